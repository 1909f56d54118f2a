//! Filters that are filled anew, and take the place of others.

use umbel_core::Error;
use umbel_core::engine::Refill;
use umbel_core::entry::Request;

use super::{
    Action, Alive, Expected, STANDARD, checkpoint, crash_everywhere, exactly, maybe, named, prepare, standard,
};
use crate::world::{keys, run};

/// Begins to fill the sharded filter anew, while keys are added to it and removed.
fn begin_rebuild(alive: &Alive) -> Result<bool, Error> {
    run(async {
        let (engine, filter) = (&alive.engine, named(alive, "sharded")?);
        let (rebuild, _) = engine.begin_rebuild(&filter, &Refill::default()).await?;
        engine.add_as(&filter, &keys(500..520), Request { session: 5, sequence: 1 }).await?;
        engine.remove_as(&filter, &keys(40..60), Request { session: 5, sequence: 2 }).await?;
        engine.fill(&rebuild, &keys(0..200), Request::default()).await?;
        engine.fill(&rebuild, &keys(600..650), Request::default()).await?;
        Ok(true)
    })
}

/// The sharded filter as it is while another one is filled.
fn being_rebuilt(done: bool) -> Expected {
    let mut expected = standard();
    let (added, removed) =
        if done { (exactly(1, 500..520), exactly(0, 40..60)) } else { (maybe(500..520), maybe(40..60)) };
    let kept = [exactly(2, 0..40), exactly(1, 60..300), exactly(0, 600..650)].concat();
    expected.insert("sharded", [kept, added, removed].concat());
    expected
}

#[test]
fn a_filter_can_be_half_filled_anew() {
    crash_everywhere(&Action {
        name: "begin to fill a filter anew",
        act: begin_rebuild,
        expected: being_rebuilt,
        writes: true,
        ..STANDARD
    });
    crash_everywhere(&Action {
        name: "checkpoint while a filter is filled anew",
        prepare: |alive| {
            prepare(alive);
            begin_rebuild(alive).unwrap();
        },
        expected: |_| being_rebuilt(true),
        ..STANDARD
    });
}

#[test]
fn a_filter_can_half_take_the_place_of_another() {
    let prepared = |alive: &Alive| {
        prepare(alive);
        begin_rebuild(alive).unwrap();
    };
    let finished = |done| {
        let mut expected = standard();
        let filled =
            [exactly(0, 40..60), exactly(1, 60..200), exactly(1, 500..520), exactly(0, 650..660)].concat();
        let other = if done {
            [exactly(1, 0..40), exactly(0, 200..300), exactly(1, 600..650)].concat()
        } else {
            let twice = (0..40).map(|number| (number, 1, 2)).collect();
            [twice, maybe(200..300), maybe(600..650)].concat()
        };
        expected.insert("sharded", [filled, other].concat());
        expected
    };
    let finish = |alive: &Alive| -> Result<bool, Error> {
        let filter = named(alive, "sharded")?;
        run(alive.engine.finish_rebuild(&filter, false)).map(|_| true)
    };
    let action = Action { act: finish, expected: finished, writes: true, ..STANDARD };
    crash_everywhere(&Action { name: "finish to fill a filter anew", prepare: prepared, ..action });
    let action = Action { act: finish, expected: finished, writes: true, ..STANDARD };
    crash_everywhere(&Action {
        name: "finish to fill a filter anew, from a checkpoint",
        prepare: |alive| {
            prepare(alive);
            begin_rebuild(alive).unwrap();
            checkpoint(alive).unwrap();
        },
        ..action
    });
    crash_everywhere(&Action {
        name: "give up filling a filter anew",
        prepare: prepared,
        act: |alive| {
            let filter = named(alive, "sharded")?;
            run(alive.engine.abort_rebuild(&filter)).map(|()| true)
        },
        expected: |_| being_rebuilt(true),
        writes: true,
        ..STANDARD
    });
}
