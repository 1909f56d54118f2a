//! Every registry against its real server: the contract, sessions that are lost, watches with gaps, locks.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::own;
use common::proxy::Proxy;
use common::{Service, elsewhere, fresh, passed, service};
use umbel_adapters::{Url, open_registry};
use umbel_core::Error;
use umbel_core::random::{Random, SystemRandom};
use umbel_core::registry::lock::{self, Fence};
use umbel_core::registry::{Change, Expected, Lease, Registry, suite};

async fn open(service: &Service, prefix: &str) -> Arc<dyn Registry> {
    open_at(service, &service.address(), prefix).await
}

async fn open_at(service: &Service, address: &str, prefix: &str) -> Arc<dyn Registry> {
    let url = format!("{}://{address}/{prefix}?timeout_ms=4000", service.name);
    let opened = open_registry(&Url::parse(&url).unwrap()).await.unwrap();
    println!("{}", opened.about);
    opened.plane
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// What a call comes to when the server is back: it may be away for a while, but must not be needed to be opened again.
async fn at_last<T>(call: impl AsyncFn() -> Result<T, Error>) -> T {
    let end = Instant::now() + Duration::from_secs(40);
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(Error::Retry(_)) if Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn contract(service: &Service) {
    let registry = open(service, &fresh("suite")).await;
    let called = Arc::clone(&registry);
    elsewhere(async move {
        called.put("elsewhere", bytes("x"), Expected::Absent, None).await.unwrap();
        assert_eq!(called.get("elsewhere").await.unwrap().unwrap().value, bytes("x"));
        called.delete("elsewhere", Expected::Anything).await.unwrap();
    });
    passed(service, "registry", "other runtimes", "put and read under one without timers and sockets");
    let begin = Instant::now();
    suite::all(registry, &|time| Box::pin(tokio::time::sleep(time))).await;
    for case in suite::CASES {
        passed(service, "registry", case, format!("contract, all in {:.1} s", begin.elapsed().as_secs_f64()));
    }
}

/// Values and versions are there after a crash of the server, and a session goes on or is known to be over.
async fn restarts(service: &Service) {
    let registry = open(service, &fresh("restart")).await;
    let mut newest = 0;
    for round in 0..3 {
        let lease = at_last(async || registry.grant(Duration::from_secs(5)).await).await;
        let name = format!("name/{round}");
        let Change::Done(version) =
            at_last(async || registry.put(&name, bytes("kept"), Expected::Anything, None).await).await
        else {
            panic!("a conflict")
        };
        assert!(version > newest, "revisions grow across restarts");
        newest = version;
        at_last(async || registry.put("leased", bytes("x"), Expected::Anything, Some(lease)).await).await;
        service.kill();
        let away = registry.get(&name).await;
        assert!(matches!(away, Err(Error::Retry(_))), "{away:?}");
        service.start();
        let held = at_last(async || registry.get(&name).await).await.expect("it was acknowledged");
        assert_eq!((held.value, held.version), (bytes("kept"), version));
        let alive = at_last(async || registry.keep_alive(lease).await).await;
        let leased = at_last(async || registry.get("leased").await).await;
        // A lease that is said to be alive has its names. If it is over, they may take a moment to go.
        assert!(!alive || leased.is_some());
        at_last(async || registry.revoke(lease).await).await;
    }
    let listed = at_last(async || registry.list("name/").await).await;
    assert!(listed.entries.len() == 3 && listed.revision >= newest);
    passed(service, "registry", "restarts", "3 kills, 3 values kept, versions grow");
}

/// Somebody waits for a change while the server crashes; the change comes from another client, right after that.
async fn watch_gaps(service: &Service) {
    let prefix = fresh("gap");
    let (one, other) = (open(service, &prefix).await, open(service, &prefix).await);
    for round in 0..3 {
        let before = at_last(async || one.list("w/").await).await.revision;
        let waiting = tokio::spawn({
            let one = Arc::clone(&one);
            async move {
                let mut calls = 0;
                loop {
                    calls += 1;
                    // A hint may come without a change: the listing tells, and the same revision is waited for again.
                    if one.changed("w/", before).await.is_ok()
                        && let Ok(listing) = one.list("w/").await
                        && listing.revision > before
                        && listing.entries.len() == round + 1
                    {
                        return calls;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished());
        service.kill();
        service.start();
        let name = format!("w/{round}");
        at_last(async || other.put(&name, bytes("x"), Expected::Anything, None).await).await;
        let calls = tokio::time::timeout(Duration::from_secs(40), waiting).await.expect("in time").unwrap();
        println!("{}: noticed after {calls} calls", service.name);
    }
    passed(service, "registry", "watch gaps", "3 of 3 changes noticed");
}

/// A server that does not answer is an error that says to try again, in time; later all goes on.
async fn pauses(service: &Service) {
    let registry = open(service, &fresh("pause")).await;
    let Change::Done(version) = registry.put("a", bytes("1"), Expected::Absent, None).await.unwrap() else {
        panic!("a conflict")
    };
    service.pause();
    let begin = Instant::now();
    let outcomes = [registry.get("a").await.map(drop), registry.list("").await.map(drop)];
    let took = begin.elapsed();
    service.resume();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(Error::Retry(_)))), "{outcomes:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    let held = at_last(async || registry.get("a").await).await.unwrap();
    assert_eq!(held.version, version);
    passed(service, "registry", "pause", format!("told to retry in {:.1} s", took.as_secs_f64() / 2.0));
}

/// Somebody who has a lock is cut off for longer than its session lasts, while the server goes on: another one gets the lock, the
/// first is told when it is back, does not pass the fence, and goes on without being opened again.
async fn lost_sessions(service: &Service) {
    let prefix = fresh("session");
    let proxy = Proxy::at("127.0.0.1:0", service.address()).await;
    let (one, other) = (open_at(service, &proxy.address, &prefix).await, open(service, &prefix).await);
    let fence = Fence::default();
    for round in 0..2 {
        let lease = at_last(async || one.grant(Duration::from_secs(3)).await).await;
        let early = lock::acquire(&*one, "lock", bytes("one"), lease).await.unwrap().expect("it is free");
        one.put("other name", bytes("x"), Expected::Anything, Some(lease)).await.unwrap();
        assert!(fence.passes(early.number));
        let before = one.list("").await.unwrap().revision;
        let watching = tokio::spawn({
            let one = Arc::clone(&one);
            async move { one.changed("", before).await.is_ok() }
        });
        proxy.close();
        let away = one.get("lock").await;
        assert!(matches!(away, Err(Error::Retry(_))), "{away:?}");
        let lease_of_other = at_last(async || other.grant(Duration::from_secs(8)).await).await;
        let end = Instant::now() + Duration::from_secs(15);
        let late = loop {
            assert!(at_last(async || other.keep_alive(lease_of_other).await).await);
            if let Some(late) = lock::acquire(&*other, "lock", bytes("other"), lease_of_other).await.unwrap()
            {
                break late;
            }
            assert!(Instant::now() < end, "round {round}: the session that is cut off does not end");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert!(late.number > early.number && fence.passes(late.number));
        proxy.open();
        let alive = at_last(async || one.keep_alive(lease).await).await;
        assert!(!alive, "a session that has ended is said to be alive");
        let refused = one.put("lock", bytes("one"), Expected::Anything, Some(lease)).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        assert!(!fence.passes(early.number), "the one that was cut off comes too late");
        at_last(async || lock::release(&*one, &early).await).await;
        let held = at_last(async || one.get("lock").await).await.expect("it is the other's");
        assert_eq!((held.value, held.version), (bytes("other"), late.number));
        assert_eq!(one.get("other name").await.unwrap(), None, "what was under the session went with it");
        // Whoever watched hears of something, or that it has to look again.
        tokio::time::timeout(Duration::from_secs(30), watching).await.expect("in time").unwrap();
        assert!(one.list("").await.unwrap().revision > before);
        lock::release(&*other, &late).await.unwrap();
        at_last(async || other.revoke(lease_of_other).await).await;
    }
    passed(service, "registry", "lost sessions", "2 of 2: told at its return, and not past the fence");
}

/// A holder that sleeps past its lease, and one that comes after it: both never pass.
async fn locks(service: &Service) {
    let prefix = fresh("lock");
    let (one, other) = (open(service, &prefix).await, open(service, &prefix).await);
    let grant = async |registry: &dyn Registry| registry.grant(Duration::from_secs(2)).await.unwrap();
    let fence = Fence::default();
    let early = lock::acquire(&*one, "lock", bytes("one"), grant(&*one).await).await.unwrap().unwrap();
    assert!(fence.passes(early.number));
    let lease = other.grant(Duration::from_secs(30)).await;
    // ZooKeeper with short ticks has no leases of that length.
    let lease = match lease {
        Ok(lease) => lease,
        Err(_) => other.grant(Duration::from_secs(8)).await.unwrap(),
    };
    assert_eq!(lock::acquire(&*other, "lock", bytes("other"), lease).await.unwrap(), None);
    let end = Instant::now() + Duration::from_secs(12);
    let late = loop {
        assert!(other.keep_alive(lease).await.unwrap());
        if let Some(late) = lock::acquire(&*other, "lock", bytes("other"), lease).await.unwrap() {
            break late;
        }
        assert!(Instant::now() < end, "the lease of the first does not end");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(late.number > early.number && fence.passes(late.number));
    assert!(!fence.passes(early.number), "the one that slept comes too late");
    lock::release(&*one, &early).await.unwrap();
    assert!(other.get("lock").await.unwrap().is_some(), "it cannot release what it does not have");
    lock::release(&*other, &late).await.unwrap();
    other.revoke(lease).await.unwrap();

    // Many who want it at once: the guarded value is changed by one at a time.
    let fence = Arc::new(Fence::default());
    let guarded = Arc::new(std::sync::Mutex::new((0_u64, 0_u64)));
    let mut tasks = Vec::new();
    for task in 0..4 {
        let registry = if task % 2 == 0 { Arc::clone(&one) } else { Arc::clone(&other) };
        let (fence, guarded) = (Arc::clone(&fence), Arc::clone(&guarded));
        tasks.push(tokio::spawn(async move {
            let lease = registry.grant(Duration::from_secs(8)).await.unwrap();
            let mut turns = 0;
            while turns < 10 {
                assert!(registry.keep_alive(lease).await.unwrap());
                let owner = bytes(&format!("{task}"));
                let Some(held) = lock::acquire(&*registry, "many", owner, lease).await.unwrap() else {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                };
                assert!(fence.passes(held.number));
                {
                    let mut guarded = guarded.lock().unwrap();
                    assert!(held.number > guarded.0, "numbers grow from holder to holder");
                    *guarded = (held.number, guarded.1 + 1);
                }
                lock::release(&*registry, &held).await.unwrap();
                turns += 1;
            }
            registry.revoke(lease).await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(guarded.lock().unwrap().1, 40);
    passed(service, "registry", "locks", "a late holder is refused; 40 turns of 4 holders");
}

/// Names of every kind, more than fit into one answer.
async fn many_names(service: &Service) {
    let registry = open(service, &fresh("many")).await;
    let odd = ["a.b", "ä/ö", " ", "%2F", "..", ".", "/", "a//b", "ZZ\u{1}"];
    let mut names: Vec<String> = (0..200).map(|number| format!("n/{number:03}")).collect();
    names.extend(odd.iter().map(|name| (*name).to_owned()));
    for name in &names {
        registry.put(name, bytes(name), Expected::Absent, None).await.unwrap();
    }
    names.sort();
    let listed = registry.list("").await.unwrap();
    let found: Vec<_> = listed.entries.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(found, names);
    assert!(listed.entries.iter().all(|(name, held)| held.value == bytes(name)));
    assert_eq!(registry.list("n/1").await.unwrap().entries.len(), 100);
    let unknown = registry.put("late", Bytes::new(), Expected::Anything, Some(Lease(7))).await;
    assert!(matches!(unknown, Err(Error::Invalid(_))), "{unknown:?}");
    passed(service, "registry", "many names", format!("{} names", names.len()));
}

macro_rules! registries {
    ($($name:ident),*) => {$(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "needs real servers; `cargo xtask planes` starts them"]
            async fn keeps_the_contract() {
                let Some(service) = service(stringify!($name)) else { return };
                contract(&service).await;
                many_names(&service).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "needs real servers; `cargo xtask planes` starts them"]
            async fn survives_faults() {
                let Some(service) = service(stringify!($name)) else { return };
                restarts(&service).await;
                watch_gaps(&service).await;
                pauses(&service).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "needs real servers; `cargo xtask planes` starts them"]
            async fn locks_are_fenced() {
                let Some(service) = service(stringify!($name)) else { return };
                locks(&service).await;
                lost_sessions(&service).await;
            }
        }
    )*};
}

registries!(etcd, redis, zookeeper);

/// Moves the end of a lease, as a clock of the server that is set the other way leaves it.
fn move_end(service: &Service, prefix: &str, lease: Lease, millis: i64) {
    tell_redis(service, &format!("ZINCRBY {{{prefix}:registry}}:ends {millis} {}", lease.0));
}

fn tell_redis(service: &Service, command: &str) {
    let line = format!("{command}\r\n");
    let mut socket = TcpStream::connect(service.address()).unwrap();
    socket.write_all(line.as_bytes()).unwrap();
    assert_eq!(socket.read(&mut [0]).unwrap(), 1);
}

/// Redis forgets what it had, as one without a disk does when it starts again. Who had a lease then does not keep alive what another one got.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn redis_leases_have_numbers_that_never_come_again() {
    let Some(service) = service("redis") else { return };
    let prefix = fresh("forgets");
    let (one, other) = (open(&service, &prefix).await, open(&service, &prefix).await);
    let lost = one.grant(Duration::from_secs(5)).await.unwrap();
    let keys = ["ends", "times", "lease", "revision", "values", "versions", "names", "owners"];
    let keys = keys.map(|key| format!("{{{prefix}:registry}}:{key}"));
    tell_redis(&service, &format!("DEL {}", keys.join(" ")));
    let lease = other.grant(Duration::from_secs(5)).await.unwrap();
    assert!(lease.0 > lost.0, "{lease:?} after {lost:?}");
    assert!(!one.keep_alive(lost).await.unwrap(), "it keeps the lease of another one alive");
    assert!(other.keep_alive(lease).await.unwrap());
    passed(&service, "registry", "forgotten leases", "are not those that are granted after them");
}

/// etcd gives a token for a password, and forgets it when it is started again, if so much was changed since that its log does not have it any
/// more. It is asked for another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn etcd_is_told_the_password_again() {
    let Some(service) = service("etcd") else { return };
    let script = "exec etcd --name t1 --data-dir {folder}/data --snapshot-count 10 \
         --listen-client-urls http://127.0.0.1:{port} --advertise-client-urls http://127.0.0.1:{port} \
         --listen-peer-urls http://127.0.0.1:{port1} --initial-advertise-peer-urls http://127.0.0.1:{port1} \
         --initial-cluster t1=http://127.0.0.1:{port1}";
    let mut server = own::start(script, &[]);
    let address = format!("127.0.0.1:{}", server.port);
    for words in ["user add root:hunter2", "user grant-role root root", "auth enable"] {
        let mut control = std::process::Command::new("etcdctl");
        control.env("ETCDCTL_API", "3").args(["--endpoints", &address]).args(words.split(' '));
        let output = control.output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let registry = open_at(&service, &format!("root:hunter2@{address}"), "guarded").await;
    let lease = registry.grant(Duration::from_secs(600)).await.unwrap();
    for number in 0..50 {
        let name = format!("name/{number}");
        registry.put(&name, bytes("kept"), Expected::Absent, Some(lease)).await.unwrap();
    }
    tokio::task::block_in_place(|| server.restart());
    assert_eq!(at_last(async || registry.list("name/").await).await.entries.len(), 50);
    assert!(at_last(async || registry.keep_alive(lease).await).await);
    passed(&service, "registry", "password after a restart", "given again by itself");
}

/// What the three servers of an ensemble are, whose ports for clients begin with this one.
async fn roles_at(port: u16) -> Vec<String> {
    let role = |port: u16| {
        let mut said = String::new();
        let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
        socket.write_all(b"srvr").ok()?;
        socket.read_to_string(&mut said).ok()?;
        said.lines().find_map(|line| line.strip_prefix("Mode: ").map(str::to_owned))
    };
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let roles: Vec<_> = (port..port + 3).filter_map(role).collect();
        if roles.len() == 3 && roles.iter().any(|role| role == "leader") {
            return roles;
        }
        assert!(Instant::now() < end, "they do not find each other: {roles:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A follower stops right after it answered keep-alives. No name is gone before its holder has stopped trusting the lease, which it does
/// for nine tenths of its length from before it asked; all are gone some time later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn ensemble_leases_outlast_the_trust_in_them() {
    const ROUNDS: u64 = 8;
    const LEASES: u64 = 24;
    const LENGTH: Duration = Duration::from_secs(5);
    let trusted = LENGTH * 9 / 10;
    let Some(service) = service("ensemble") else { return };
    let port: u16 = service.address_behind(0).rsplit_once(':').unwrap().1.parse().unwrap();
    let url = |port: u16, prefix: &str| {
        Url::parse(&format!("zookeeper://127.0.0.1:{port}/{prefix}?timeout_ms=4000")).unwrap()
    };
    let random = SystemRandom::default();
    let pause = &async |most: u64| tokio::time::sleep(Duration::from_millis(random.next() % most)).await;
    let mut shortest = Duration::MAX;
    for round in 0..ROUNDS {
        let roles = roles_at(port).await;
        let find = |wanted: &str| roles.iter().position(|role| role == wanted).unwrap() as u16;
        let (leader, follower) = (find("leader"), find("follower"));
        let prefix = fresh("outlast");
        let holder = &open_registry(&url(port + follower, &prefix)).await.unwrap().plane;
        let observer = open_registry(&url(port + leader, &prefix)).await.unwrap().plane;
        // All at once, so that none ends before the last one is there, however busy the machine is.
        let granted = (0..LEASES).map(|number| async move {
            pause(1400).await;
            let lease = at_last(async || holder.grant(LENGTH).await).await;
            holder.put(&format!("{number:02}"), bytes("x"), Expected::Absent, Some(lease)).await.unwrap();
            lease
        });
        let leases = futures_util::future::join_all(granted).await;
        let kept = leases.iter().map(|lease| async { assert!(holder.keep_alive(*lease).await.unwrap()) });
        futures_util::future::join_all(kept).await;
        pause(1500).await;
        let kept = leases.iter().map(|lease| async {
            let begin = Instant::now();
            assert!(holder.keep_alive(*lease).await.unwrap());
            begin
        });
        let begins = futures_util::future::join_all(kept).await;
        tokio::task::block_in_place(|| service.pause_member(follower + 1));
        let end = Instant::now() + LENGTH * 4;
        let mut gone = std::collections::BTreeMap::new();
        while gone.len() < begins.len() {
            let left = at_last(async || observer.list("").await).await.entries;
            for (number, begin) in begins.iter().enumerate() {
                // The name was gone by now, or earlier.
                if left.iter().all(|(name, _)| *name != format!("{number:02}")) {
                    gone.entry(number).or_insert_with(|| begin.elapsed());
                }
            }
            assert!(Instant::now() < end, "{} names of {LEASES} do not go", left.len());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::task::block_in_place(|| service.resume_member(follower + 1));
        shortest = shortest.min(*gone.values().min().unwrap());
        println!(
            "round {round}: names were gone {:?} after their last keep-alive",
            gone.values().min().unwrap()
        );
        let early = gone.values().filter(|lived| **lived < trusted).count();
        assert_eq!(
            early, 0,
            "of {LEASES} names, gone within the {trusted:?} of trust; the first after {shortest:.2?}"
        );
    }
    let row =
        format!("{} names, gone after {shortest:.2?} or later, trusted for {trusted:.2?}", ROUNDS * LEASES);
    passed(&service, "registry", "a follower that is cut off", row);
}

/// A server of an ensemble that does not hear its leader goes on to answer reads for a while. Sessions end by the leader, so a lease is not
/// said to be alive then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn zookeeper_leases_are_kept_alive_by_its_leader() {
    let Some(service) = service("zookeeper") else { return };
    let settings = |number: u32, port: &str| {
        format!(
            "tickTime=500\ninitLimit=20\nsyncLimit=40\ndataDir={{folder}}/data/{number}\nclientPort={port}\n\
             clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\n\
             server.1=127.0.0.1:{{port3}}:{{port4}}\nserver.2=127.0.0.1:{{port5}}:{{port6}}\n\
             server.3=127.0.0.1:{{port7}}:{{port8}}\n"
        )
    };
    let files = [settings(1, "{port}"), settings(2, "{port1}"), settings(3, "{port2}")];
    let script = "for number in 1 2 3; do mkdir -p $number; echo $number > $number/myid\n\
        java -Xmx128m -cp '/etc/zookeeper/conf:/usr/share/java/*' \
        org.apache.zookeeper.server.quorum.QuorumPeerMain {folder}/$number.cfg & echo $! > {folder}/$number.pid\n\
        done; wait";
    let server = own::start(script, &[("1.cfg", &files[0]), ("2.cfg", &files[1]), ("3.cfg", &files[2])]);
    let roles = roles_at(server.port).await;
    let find = |wanted: &str| roles.iter().position(|role| role == wanted).unwrap() as u16;
    let (leader, follower) = (find("leader") + 1, find("follower"));
    let registry = open_at(&service, &format!("127.0.0.1:{}", server.port + follower), "ensemble").await;
    let lease = at_last(async || registry.grant(Duration::from_secs(8)).await).await;
    assert!(at_last(async || registry.keep_alive(lease).await).await);
    let pid = std::fs::read_to_string(server.file(&format!("{leader}.pid"))).unwrap();
    let signal =
        |signal: &str| std::process::Command::new("kill").args([signal, pid.trim()]).status().unwrap();
    assert!(signal("-STOP").success());
    tokio::time::sleep(Duration::from_millis(200)).await;
    let outcome = registry.keep_alive(lease).await;
    assert!(signal("-CONT").success());
    assert!(matches!(outcome, Err(Error::Retry(_))), "without the leader it is {outcome:?}");
    // When it is back, one of both is true, and the registry says which.
    at_last(async || registry.keep_alive(lease).await).await;
    passed(&service, "registry", "a leader that is silent", "a lease is not said to be alive");
}

/// A lease that was granted before the server's clock went back ends when its time is over, and not when the clock is where it was. After
/// the clock went forward nobody ends it before that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn redis_leases_end_in_their_time_whatever_its_clock_does() {
    const DAY_MILLIS: i64 = 24 * 3600 * 1000;
    let Some(service) = service("redis") else { return };
    let prefix = fresh("clock");
    let length = Duration::from_secs(2);
    for jump in [-DAY_MILLIS, DAY_MILLIS] {
        let holder = open(&service, &prefix).await;
        let lease = holder.grant(length).await.unwrap();
        holder.put("held", bytes("x"), Expected::Absent, Some(lease)).await.unwrap();
        move_end(&service, &prefix, lease, -jump);
        let (other, begin) = (open(&service, &prefix).await, Instant::now());
        // Its first look shows it what the clock is, and no more.
        while other.get("held").await.unwrap().is_some() {
            assert!(begin.elapsed() < length * 2, "a lease of {length:?} goes on after a jump of {jump}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(begin.elapsed() >= length, "it ended after {:?}, after a jump of {jump}", begin.elapsed());
        assert!(!holder.keep_alive(lease).await.unwrap());
    }
    passed(
        &service,
        "registry",
        "clocks",
        "leases end in their time when the clock jumps by a day, either way",
    );
}
