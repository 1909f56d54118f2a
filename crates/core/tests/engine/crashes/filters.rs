//! Filters that are made, dropped, cleared, renamed, imported, united, and windows.

use umbel_core::Error;
use umbel_core::engine::NewFilter;
use umbel_filter::Spec;

use super::{Action, STANDARD, checkpoint, crash_everywhere, exactly, maybe, named, prepare, standard};
use crate::world::{everywhere, keys, run};

#[test]
fn a_filter_can_be_half_made() {
    crash_everywhere(&Action {
        name: "create a sharded filter",
        act: |alive| {
            let new = everywhere("new", Spec::counting(100, 0.01));
            let filter = run(alive.engine.create(new))?;
            run(alive.engine.add(&filter, &keys(0..20))).map(|_| true)
        },
        expected: |done| {
            let mut expected = standard();
            expected.insert("new", if done { exactly(1, 0..20) } else { maybe(0..20) });
            expected
        },
        optional: &["new"],
        writes: true,
        ..STANDARD
    });
}

#[test]
fn a_filter_can_be_half_dropped() {
    crash_everywhere(&Action {
        name: "drop a sharded filter",
        act: |alive| {
            let filter = alive.engine.filter("sharded");
            let gone = || Error::Invalid("it is gone".into());
            run(alive.engine.drop_filter(&filter.ok_or_else(gone)?)).map(|()| true)
        },
        expected: |done| {
            let mut expected = standard();
            let counts = expected.get_mut("sharded").unwrap();
            if done {
                // Only a filter made anew could have this name.
                counts.iter_mut().for_each(|count| *count = (count.0, 9, 9));
            } else {
                counts.iter_mut().for_each(|count| count.1 = 0);
            }
            expected
        },
        optional: &["sharded"],
        writes: true,
        ..STANDARD
    });
}

#[test]
fn a_filter_can_be_half_cleared() {
    crash_everywhere(&Action {
        name: "clear a sharded filter",
        act: |alive| run(alive.engine.clear(&alive.engine.filter("sharded").unwrap())).map(|()| true),
        expected: |done| {
            let mut expected = standard();
            let counts = expected.get_mut("sharded").unwrap();
            counts.iter_mut().for_each(|count| count.1 = 0);
            if done {
                counts.iter_mut().for_each(|count| count.2 = 0);
            }
            expected
        },
        writes: true,
        ..STANDARD
    });
}

/// Expected of a filter that must not be there: only one that was made anew could have its name.
fn gone(counts: &mut [(u64, u64, u64)]) {
    counts.iter_mut().for_each(|count| *count = (count.0, 9, 9));
}

#[test]
fn a_filter_can_be_half_renamed() {
    crash_everywhere(&Action {
        name: "rename a sharded filter",
        act: |alive| {
            let filter = named(alive, "sharded")?;
            run(alive.engine.rename(&filter, "renamed", false))?;
            checkpoint(alive)
        },
        expected: |done| {
            let mut expected = standard();
            expected.insert("renamed", expected["sharded"].clone());
            if done {
                gone(expected.get_mut("sharded").unwrap());
            }
            expected
        },
        optional: &["sharded", "renamed"],
        one_of: &["sharded", "renamed"],
        writes: true,
        ..STANDARD
    });
    crash_everywhere(&Action {
        name: "rename a sharded filter over another",
        act: |alive| {
            let filter = named(alive, "sharded")?;
            run(alive.engine.rename(&filter, "whole", true)).map(|()| true)
        },
        // One or the other has the name, at every moment.
        expected: |done| {
            let mut expected = standard();
            expected.insert("whole", (0..300).map(|number| (number, 1, 2)).collect());
            if done {
                expected.insert("whole", expected["sharded"].clone());
                gone(expected.get_mut("sharded").unwrap());
            }
            expected
        },
        optional: &["sharded"],
        writes: true,
        ..STANDARD
    });
    crash_everywhere(&Action {
        name: "rename filters over others, again and again",
        act: |alive| {
            for (from, to) in [("sharded", "whole"), ("layers", "other"), ("whole", "other")] {
                run(alive.engine.rename(&named(alive, from)?, to, true))?;
            }
            checkpoint(alive)
        },
        expected: |done| {
            let mut expected = standard();
            let either: Vec<_> = (0..300).map(|number| (number, 1, 2)).collect();
            expected.insert("whole", either.clone());
            expected.insert("other", either);
            if done {
                expected.insert("other", expected["sharded"].clone());
                for name in ["sharded", "whole", "layers"] {
                    gone(expected.get_mut(name).unwrap());
                }
            }
            expected
        },
        optional: &["sharded", "whole", "layers", "other"],
        writes: true,
        ..STANDARD
    });
}

#[test]
fn a_filter_can_be_half_imported() {
    crash_everywhere(&Action {
        name: "import a filter",
        act: |alive| {
            let spec = Spec::hosted(umbel_filter::Layout::Guava, 200_000, 0.01);
            let filter = umbel_filter::Filter::new(&spec, &umbel_filter::Limits::default()).unwrap();
            filter.insert_fingerprints(&keys(0..500), &mut Vec::new()).unwrap();
            run(alive.engine.import(NewFilter::new("imported", spec), filter))?;
            checkpoint(alive)
        },
        expected: |_| {
            // It is there as a whole, or not at all.
            let mut expected = standard();
            expected.insert("imported", exactly(1, 0..500));
            expected
        },
        optional: &["imported"],
        writes: true,
        ..STANDARD
    });
}

#[test]
fn an_expired_filter_can_be_half_dropped() {
    crash_everywhere(&Action {
        name: "expire a sharded filter",
        act: |alive| {
            let filter = named(alive, "sharded")?;
            run(alive.engine.expire(&filter, Some(0)))?;
            run(alive.engine.maintain()).map(|_| true)
        },
        expected: |done| {
            let mut expected = standard();
            if done {
                gone(expected.get_mut("sharded").unwrap());
            }
            expected
        },
        optional: &["sharded"],
        writes: true,
        ..STANDARD
    });
}

fn window() -> NewFilter {
    let window = Some(umbel_core::definition::Window { length_ms: 1_000, buckets: 4 });
    NewFilter { window, ..NewFilter::new("window", Spec::bloom(400, 0.01)) }
}

#[test]
fn a_window_can_be_half_made_and_half_dropped() {
    crash_everywhere(&Action {
        name: "make a window and its first bucket",
        act: |alive| {
            let filter = match alive.engine.filter("window") {
                Some(filter) => filter,
                None => run(alive.engine.create(window()))?,
            };
            run(alive.engine.add(&filter, &keys(0..50)))?;
            checkpoint(alive)
        },
        expected: |done| {
            let mut expected = standard();
            expected.insert("window", if done { exactly(1, 0..50) } else { maybe(0..50) });
            expected
        },
        optional: &["window"],
        writes: true,
        ..STANDARD
    });
    crash_everywhere(&Action {
        name: "drop a window",
        prepare: |alive| {
            prepare(alive);
            let filter = run(alive.engine.create(window())).unwrap();
            run(alive.engine.add(&filter, &keys(0..50))).unwrap();
        },
        act: |alive| run(alive.engine.drop_filter(&named(alive, "window")?)).map(|()| true),
        expected: |done| {
            let mut expected = standard();
            expected.insert("window", exactly(1, 0..50));
            if done {
                gone(expected.get_mut("window").unwrap());
            }
            expected
        },
        optional: &["window"],
        writes: true,
        ..STANDARD
    });
}

#[test]
fn a_union_can_be_half_done() {
    crash_everywhere(&Action {
        name: "merge keys into a filter that has none of them",
        prepare: |alive| {
            prepare(alive);
            run(alive.engine.create(NewFilter::new("union", Spec::bloom(400, 0.01)))).unwrap();
        },
        act: |alive| {
            let (into, from) = (named(alive, "union")?, named(alive, "sharded")?);
            run(alive.engine.merge(&into, &[from]))?;
            checkpoint(alive)
        },
        expected: |done| {
            let mut expected = standard();
            expected.insert("union", if done { exactly(1, 0..300) } else { maybe(0..300) });
            expected
        },
        writes: true,
        ..STANDARD
    });
}
