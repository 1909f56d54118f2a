//! What `CF.INFO` counts, as bytes.

mod common;

use common::{Client, new_folder, start_in};

/// How many items were inserted, less those that went, and how many were deleted.
fn counts(client: &mut Client, filter: &str) -> (u64, u64) {
    let reply = client.ask(&format!("CF.INFO {filter}"));
    let number = |name: &str| {
        let mut lines = reply.split("\r\n").skip_while(|line| line.strip_prefix('+') != Some(name));
        lines.nth(1).and_then(|line| line.strip_prefix(':')?.parse().ok()).expect("a number")
    };
    (number("Number of items inserted"), number("Number of items deleted"))
}

/// Adds items, every one so many times.
fn insert(client: &mut Client, filter: &str, items: std::ops::Range<u32>, times: usize) {
    let names: Vec<String> = items.map(|item| format!("item:{item}")).collect();
    for _ in 0..times {
        client.ask(&format!("CF.INSERT {filter} ITEMS {}", names.join(" ")));
    }
}

#[test]
fn items_count_as_often_as_they_were_added() {
    let mut server = start_in(new_folder());
    let mut client = server.connect();
    client.ask("CF.RESERVE f 100");
    insert(&mut client, "f", 0..50, 3);
    assert_eq!(counts(&mut client, "f"), (150, 0));
    // A counter of four bits is stuck long before.
    insert(&mut client, "f", 0..1, 100);
    assert_eq!(counts(&mut client, "f"), (250, 0));
    for (item, gone) in [("item:0", 1), ("item:1", 1), ("never added", 0)] {
        assert_eq!(client.ask(&format!("CF.DEL f \"{item}\"")), format!(":{gone}\r\n"));
    }
    assert_eq!(client.ask("CF.ADDNX f item:1"), ":0\r\n");
    assert_eq!(counts(&mut client, "f"), (248, 2));
    // It has to grow for these, which is no deletion and no new beginning.
    insert(&mut client, "f", 50..1000, 2);
    assert_eq!(counts(&mut client, "f"), (2148, 2));
    for is_saved in [true, false] {
        if is_saved {
            assert_eq!(client.ask("SAVE"), "+OK\r\n");
        }
        // What comes after it is in the log alone.
        client.ask("CF.DEL f item:2");
        client.ask("CF.ADD f item:3");
        let before = counts(&mut client, "f");
        drop(client);
        let folder = server.stop();
        server = start_in(folder);
        client = server.connect();
        assert_eq!(counts(&mut client, "f"), before);
    }
    assert_eq!(counts(&mut client, "f"), (2148, 4));
    assert_eq!(client.ask("CF.COMPACT f"), "+OK\r\n");
    assert_eq!(counts(&mut client, "f"), (2148, 0), "deletions are counted from the compaction on");
    assert_eq!(client.ask("CF.COUNT f item:0"), ":102\r\n");
    assert_eq!(client.ask("UMBEL.CLEAR f"), "+OK\r\n");
    assert_eq!(counts(&mut client, "f"), (0, 0));
}

#[test]
fn counts_stay_while_a_filter_is_on_disk() {
    let server = common::start_with(new_folder(), |config| config.enable_debug_command = true);
    let mut client = server.connect();
    insert(&mut client, "f", 0..10, 20);
    client.ask("CF.DEL f item:1");
    assert_eq!(client.ask("DEBUG RELOAD"), "+OK\r\n");
    assert_eq!(counts(&mut client, "f"), (199, 1));
    client.ask("CF.ADD f item:1");
    assert_eq!(counts(&mut client, "f"), (200, 1));
}
