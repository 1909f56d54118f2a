//! A folder belongs to one filter of one deployment: nothing of it answers for another one, and no key of it goes to another one.

use std::time::Duration;

use umbel_client::{Answer, Error, Options, Replica, Strategy};
use umbel_core::engine::NewFilter;
use umbel_filter::{Family, Spec};

use crate::world::{Centre, Folder, all_maybe, keys, mostly_absent, open, reached, strategies, until};

/// Keys that only the second filter has.
const OTHERS: std::ops::Range<u64> = 5_000..5_100;

async fn add_other(centre: &Centre, spec: Spec) {
    let engine = centre.engine();
    let filter = engine.create(NewFilter::new("other", spec)).await.expect("a filter");
    let keys: Vec<_> = keys(OTHERS).iter().map(|key| filter.hasher().fingerprint(key.as_bytes())).collect();
    engine.add(&filter, &keys).await.expect("added");
}

fn refusal(outcome: Result<Replica, Error>, folder: &Folder, words: &[&str]) {
    let error = match outcome {
        Err(Error::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    let place = folder.path().display().to_string();
    for word in words.iter().copied().chain([&*place, "folder of its own"]) {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_of_another_filter_is_refused() {
    for strategy in strategies() {
        for spec in [
            Spec::bloom(1_000, 0.01),
            Spec { family: Family::Xxh3, ..Spec::bloom(1_000, 0.01) },
            Spec::counting(50_000, 0.001),
        ] {
            let mut centre = Centre::start();
            centre.create(Spec::bloom(1_000, 0.01)).await;
            centre.add(0..100).await;
            add_other(&centre, spec).await;
            let folder = Folder::new();
            let other = || Options::new(centre.url(), "other", strategy).folder(folder.path());
            let (other, first) = (other(), centre.options(strategy).folder(folder.path()));
            let replica = open(first.clone()).await;
            replica.close().await.unwrap();
            // With the server, and without it.
            refusal(
                Replica::open(other.clone()).await,
                &folder,
                &["filter f", "filter other", "that is the filter"],
            );
            centre.stop();
            refusal(Replica::open(other).await, &folder, &["filter f", "filter other", "cannot be asked"]);
            // It is as good as before for the filter that it belongs to.
            let replica = open(first).await;
            all_maybe(&replica, 0..100);
            mostly_absent(&replica, OTHERS);
            replica.close().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn name_that_was_given_again_is_known_before_the_first_answer() {
    for strategy in strategies() {
        let mut centre = Centre::start();
        centre.create(Spec::bloom(1_000, 0.01)).await;
        centre.add(0..100).await;
        let folder = Folder::new();
        let options = centre.options(strategy).folder(folder.path());
        let replica = open(options.clone()).await;
        centre.stop();
        // Own keys that never reach the filter that they are for.
        replica.add(&keys(200..210)).await.unwrap();
        replica.close().await.unwrap();
        drop(replica);
        centre.start_unseen();
        centre.engine().drop_filter(&centre.filter()).await.unwrap();
        centre.create(Spec::bloom(1_000, 0.01)).await;
        centre.add(OTHERS).await;
        centre.stop();
        centre.start_again();
        let replica = open(options).await;
        all_maybe(&replica, OTHERS);
        let token = centre.add(300..301).await;
        reached(&replica, &token).await;
        assert_eq!(replica.status().spooled_keys, 0, "{:#?}", replica.status());
        mostly_absent(&replica, 0..100);
        mostly_absent(&replica, 200..210);
        replica.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_for_a_filter_that_is_gone_are_not_added_to_the_next_one() {
    // The copy asks once an hour: it does not know that the name was given to another filter, and sends what it has.
    let strategy = Strategy::pull(Duration::from_secs(3_600));
    for with_folder in [true, false] {
        let mut centre = Centre::start();
        centre.create(Spec::counting(1_000, 0.001)).await;
        let folder = Folder::new();
        let mut options = centre.options(strategy);
        if with_folder {
            options = options.folder(folder.path());
        }
        let replica = open(options).await;
        centre.stop();
        replica.add(&keys(200..210)).await.unwrap();
        centre.start_unseen();
        centre.engine().drop_filter(&centre.filter()).await.unwrap();
        centre.create(Spec::counting(1_000, 0.001)).await;
        centre.add(OTHERS).await;
        centre.stop();
        centre.start_again();
        until(&replica, "the keys are given up", || replica.status().refused_keys == 10).await;
        assert_eq!(centre.counts(200..210).await, [0; 10]);
        until(&replica, "it follows the new filter", || replica.contains("key 5000") == Answer::Maybe).await;
        replica.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_deployment_at_the_address_is_refused() {
    for strategy in strategies() {
        let mut centre = Centre::start();
        centre.create(Spec::bloom(1_000, 0.01)).await;
        centre.add(0..100).await;
        let folder = Folder::new();
        let options = centre.options(strategy).folder(folder.path());
        let (replica, loose) = (open(options.clone()).await, open(centre.options(strategy)).await);
        centre.stop();
        replica.add(&keys(200..210)).await.unwrap();
        let other = centre.start_other();
        centre.create(Spec::bloom(1_000, 0.01)).await;
        centre.add(OTHERS).await;
        // While it runs: nothing is known any more, and nothing is sent.
        until(&replica, "it is noticed", || replica.contains("key 1") == Answer::Unknown).await;
        until(&replica, "it says why", || {
            replica.status().last_error.unwrap_or_default().contains("deployment")
        })
        .await;
        assert_eq!(
            (replica.contains("nothing"), replica.contains("key 5000")),
            (Answer::Unknown, Answer::Unknown)
        );
        assert_eq!(replica.status().spooled_keys, 10);
        // Without a folder there is nothing that belongs to the other one.
        until(&loose, "it follows the new one", || loose.contains("key 5000") == Answer::Maybe).await;
        mostly_absent(&loose, 0..100);
        replica.close().await.unwrap();
        drop(replica);
        // And at a start.
        refusal(Replica::open(options.clone()).await, &folder, &["deployment", "filter f"]);
        // Back again, it has all that it had.
        centre.stop();
        centre.start_first(other);
        let replica = open(options).await;
        all_maybe(&replica, 0..100);
        all_maybe(&replica, 200..210);
        replica.flush().await.unwrap();
        mostly_absent(&replica, OTHERS);
        replica.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_answers_without_a_server_only_where_its_deployment_was_met() {
    let mut centre = Centre::start();
    centre.create(Spec::bloom(1_000, 0.01)).await;
    let folder = Folder::new();
    open(centre.options(Strategy::delta()).folder(folder.path())).await.close().await.unwrap();
    centre.stop();
    let elsewhere = Options::new("http://127.0.0.1:9", "f", Strategy::delta()).folder(folder.path());
    refusal(Replica::open(elsewhere.clone()).await, &folder, &["http://127.0.0.1:9", &centre.url()]);
    open(elsewhere.or_server(centre.url())).await.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_filter_keeps_its_folder() {
    let mut centre = Centre::start();
    centre.create(Spec::bloom(1_000, 0.01)).await;
    centre.add(0..100).await;
    let folder = Folder::new();
    open(centre.options(Strategy::delta()).folder(folder.path())).await.close().await.unwrap();
    centre.engine().rename(&centre.filter(), "g", false).await.unwrap();
    let renamed = Options::new(centre.url(), "g", Strategy::delta()).folder(folder.path());
    let replica = open(renamed.clone()).await;
    all_maybe(&replica, 0..100);
    assert_eq!(replica.status().chunks_fetched, 0);
    replica.close().await.unwrap();
    // From now on it is known by that name, without a server too; under the old one it is another filter's.
    centre.stop();
    let replica = open(renamed).await;
    all_maybe(&replica, 0..100);
    replica.close().await.unwrap();
    let old = centre.options(Strategy::delta()).folder(folder.path());
    refusal(Replica::open(old).await, &folder, &["filter g"]);
}

#[test]
fn request_for_another_filter_or_deployment_is_refused() {
    use serde_json::json;
    let door = crate::common::Door::open(crate::common::start());
    door.post("/v1/filters", &json!({ "name": "f", "capacity": 1000, "error": 0.001 }));
    let (_, identity) = door.get("/v1/filters/f/identity");
    let (filter, deployment) =
        (identity["filter"].as_str().unwrap(), identity["deployment"].as_str().unwrap());
    let add = |head: &[String]| {
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        door.request("POST", "/v1/filters/f/add", &head, br#"{"keys":["a"]}"#)
    };
    let answer = add(&[format!("umbel-filter: {filter}"), format!("umbel-deployment: {deployment}")]);
    assert_eq!((answer.status, answer.header("umbel-deployment")), (200, Some(deployment)));
    let answer = add(&["umbel-filter: 0000000000000001".to_owned()]);
    assert_eq!((answer.status, &*answer.code()), (410, "replaced"));
    let another = crate::common::Door::open(crate::common::start());
    another.post("/v1/filters", &json!({ "name": "f", "capacity": 1000, "error": 0.001 }));
    let other = another.get("/v1/filters/f/identity").1["deployment"].as_str().unwrap().to_owned();
    let answer = add(&[format!("umbel-deployment: {other}")]);
    assert_eq!((answer.status, &*answer.code()), (410, "other_deployment"));
    for damaged in [format!("umbel-deployment: {}0", &other[..40]), "umbel-filter: x".to_owned()] {
        let answer = add(&[damaged]);
        assert_eq!((answer.status, &*answer.code()), (400, "damaged"));
    }
}
