//! A deployment that an earlier build wrote is opened by this one: formats do not change by accident.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_core::disk::{Disk, RealDisk};
use umbel_core::engine::{Engine, NewFilter, Settings, Sharding};
use umbel_core::entry::Request;
use umbel_core::log::Settings as LogSettings;
use umbel_core::random::SeededRandom;
use umbel_filter::Spec;

use crate::world::{absent, keys, run};

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/engine/v1")
}

async fn open(folder: &Path) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let settings = Settings { slots: 2, ..Settings::default() };
    let log = LogSettings { partitions: 1, segment_bytes: 2 << 20, ..LogSettings::new("") };
    let builder = Engine::builder(settings).with_random(Arc::new(SeededRandom::new(1)));
    builder.in_folder(&disk, folder, &log).unwrap().open().await.unwrap()
}

const REQUEST: Request = Request { session: 9, sequence: 1 };

/// Writes the deployment that the other test opens.
#[test]
#[ignore = "it records what the other test compares with; run it for a new version of a format"]
fn record() {
    run(async {
        let engine = open(&recorded()).await;
        let spread =
            |name: &str, spec| NewFilter { sharding: Sharding::Everywhere, ..NewFilter::new(name, spec) };
        let bloom = engine.create(spread("bloom", Spec::bloom(500, 0.01))).await.unwrap();
        let counting = engine.create(NewFilter::new("counting", Spec::counting(500, 0.01))).await.unwrap();
        let layers = NewFilter { retain: false, ..NewFilter::new("layers", Spec::bloom(100, 0.01)) };
        let layers = engine.create(layers).await.unwrap();
        for round in 0..3 {
            let some = keys(round * 100..round * 100 + 100);
            engine.add(&bloom, &some).await.unwrap();
            engine.add(&counting, &some).await.unwrap();
            engine.add(&layers, &some).await.unwrap();
            engine.remove(&counting, &some[..50]).await.unwrap();
            engine.checkpoint().await.unwrap();
        }
        engine.resize(&bloom, 1_000, 0.001).await.unwrap();
        engine.add_as(&counting, &keys(1_000..1_010), REQUEST).await.unwrap();
    });
}

#[test]
fn a_recorded_deployment_is_opened() {
    let folder = std::env::temp_dir().join(format!("umbel-golden-{}", std::process::id()));
    copy(&recorded(), &folder);
    run(async {
        let engine = open(&folder).await;
        let filter = |name: &str| engine.filter(name).unwrap();
        assert_eq!(filter("bloom").definition().spec, Spec::bloom(1_000, 0.001));
        for name in ["bloom", "layers"] {
            assert_eq!(absent(&engine, &filter(name), &keys(0..300)).await, 0, "{name}");
        }
        let counts = engine.verify(&filter("counting"), &keys(0..300)).await.unwrap();
        let held = |number: usize| u64::from(number % 100 >= 50);
        assert!(counts.iter().enumerate().all(|(number, count)| *count == held(number)));
        let again = engine.add_as(&filter("counting"), &keys(1_000..1_010), REQUEST).await.unwrap();
        assert_eq!(again.answers, [Some(true); 10], "a request that was answered");
        assert_eq!(engine.verify(&filter("counting"), &keys(1_000..1_010)).await.unwrap(), [1; 10]);
    });
    std::fs::remove_dir_all(folder).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(path, target).unwrap();
        }
    }
}
