//! A table whose rows change while a filter is filled from it, an application that tells the filter what it does to the table, sooner
//! or later, and a loader that reads rows, keeps them for a while and sends some twice. Whatever comes in which order: in the end the
//! filter holds the rows of the table and nothing else.
//!
//! `UMBEL_MODEL_SEED=<seed> UMBEL_MODEL_CASES=1 cargo test -p umbel-core --test engine rebuild::model` repeats a case.

use std::collections::{BTreeMap, BTreeSet};

use umbel_core::disk::MemoryDisk;
use umbel_core::random::SeededRandom;

use super::*;
use crate::model::from_environment;
use crate::world::below;

const CASES: u64 = 60;
/// Keys that there are at all.
const KEYS: u64 = 60;
/// Rows that the loader reads at once.
const ROWS: usize = 12;

#[test]
fn the_new_filter_holds_the_rows_of_the_table() {
    let cases = from_environment("UMBEL_MODEL_CASES", CASES);
    let first = from_environment("UMBEL_MODEL_SEED", 1);
    let mut tally = BTreeMap::new();
    for seed in first..first + cases {
        let mut case = Case::new(seed);
        run(case.live());
        case.tally.iter().for_each(|(what, times)| *tally.entry(*what).or_default() += times);
    }
    println!("{cases} cases: {tally:?}");
    assert!(cases < 50 || tally.len() == 11 && tally.values().all(|times: &u64| *times > 20), "{tally:?}");
}

struct Case {
    seed: u64,
    random: SeededRandom,
    disk: MemoryDisk,
    engine: Option<Engine>,
    counts: bool,
    table: BTreeSet<u64>,
    /// Keys in the old filter that have no row, and get none: how often they would have to be removed nobody knows.
    stale: BTreeSet<u64>,
    /// What the application did to the table and has not told the filter yet: whether the row is there.
    untold: BTreeMap<u64, bool>,
    /// Where the loader goes on reading, and what it has read and not sent for good.
    cursor: u64,
    read: Vec<Vec<u64>>,
    steps: Vec<String>,
    tally: BTreeMap<&'static str, u64>,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let steps = self.steps.join("\n  ");
            eprintln!("UMBEL_MODEL_SEED={} UMBEL_MODEL_CASES=1\n  {steps}", self.seed);
        }
    }
}

impl Case {
    fn new(seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        Self {
            seed,
            counts: below(&random, 4) > 0,
            random,
            disk: MemoryDisk::default(),
            engine: None,
            table: BTreeSet::new(),
            stale: BTreeSet::new(),
            untold: BTreeMap::new(),
            cursor: 0,
            read: Vec::new(),
            steps: Vec::new(),
            tally: BTreeMap::new(),
        }
    }

    fn below(&self, bound: u64) -> u64 {
        below(&self.random, bound)
    }

    fn step(&mut self, what: &'static str, of: &dyn std::fmt::Debug) {
        *self.tally.entry(what).or_default() += 1;
        self.steps.push(format!("{what} {of:?}"));
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    async fn reopen(&mut self) {
        let digests = self.engine().digests().await.unwrap();
        self.engine = None;
        self.engine = Some(open(&self.disk).await.unwrap());
        assert_eq!(self.engine().digests().await.unwrap(), digests);
    }

    async fn live(&mut self) {
        self.engine = Some(open(&self.disk).await.unwrap());
        // Small, so that both filters grow.
        let spec = if self.counts { Spec::counting(15, 1e-6) } else { Spec::bloom(15, 1e-6) };
        let new = if self.below(2) == 0 { everywhere("f", spec) } else { NewFilter::new("f", spec) };
        let filter = self.engine().create(new).await.unwrap();
        // Rows that the filter knows, rows that it lacks, and keys that have no row any more.
        for number in 0..KEYS {
            let (has_row, is_known) = (self.below(2) == 0, self.below(2) == 0);
            if has_row {
                self.table.insert(number);
            }
            if is_known && !has_row {
                self.stale.insert(number);
            }
            if is_known {
                self.engine().add(&filter, &[key(number)]).await.unwrap();
            }
        }
        let mut is_begun = false;
        while !is_begun || self.cursor < KEYS || !self.read.is_empty() {
            match self.below(12) {
                0..5 => self.change(),
                5..7 => self.tell().await,
                7 if !is_begun => {
                    begin(self.engine(), "f").await;
                    self.step("begin", &());
                    is_begun = true;
                }
                7 if self.below(10) == 0 => {
                    self.engine().abort_rebuild(&self.engine().filter("f").unwrap()).await.unwrap();
                    self.step("abort", &());
                    (is_begun, self.cursor) = (false, 0);
                    self.read.clear();
                }
                8 if is_begun => self.read(),
                9 if is_begun => self.send().await,
                10 => {
                    settle(self.engine()).await.unwrap();
                    self.step("settle", &());
                }
                11 => {
                    if self.below(2) == 0 {
                        self.engine().checkpoint().await.unwrap();
                        self.step("checkpoint", &());
                    }
                    if self.below(2) == 0 {
                        self.reopen().await;
                        self.step("reopen", &());
                    }
                }
                _ => {}
            }
        }
        // What was told late is heard, before the switch or after it.
        if self.below(2) == 0 {
            self.tell_all().await;
        }
        self.engine().finish_rebuild(&self.engine().filter("f").unwrap(), true).await.unwrap();
        self.tell_all().await;
        self.check().await;
        self.reopen().await;
        self.check().await;
    }

    async fn check(&self) {
        let filter = self.engine().filter("f").unwrap();
        let all = keys(0..KEYS);
        let answers = self.engine().contains(&filter, &all, None).await.unwrap();
        let counts = self.engine().verify(&filter, &all).await.unwrap();
        for (number, (answer, count)) in (0..).zip(answers.into_iter().zip(counts)) {
            let has_row = self.table.contains(&number);
            assert_eq!(count > 0, has_row, "key {number}, {count} times");
            assert!(!has_row || answer == Answer::Maybe, "key {number} is {answer:?}");
        }
    }

    /// The application changes a row of which it has told everything.
    fn change(&mut self) {
        let number = self.below(KEYS);
        if self.untold.contains_key(&number) || self.stale.contains(&number) {
            return;
        }
        if self.table.insert(number) {
            self.untold.insert(number, true);
            self.step("insert", &number);
        } else if self.counts {
            self.table.remove(&number);
            self.untold.insert(number, false);
            self.step("delete", &number);
        }
    }

    async fn tell(&mut self) {
        let Some((number, is_there)) = self.untold.pop_first() else { return };
        let filter = self.engine().filter("f").unwrap();
        if is_there {
            self.engine().add(&filter, &[key(number)]).await.unwrap();
        } else {
            self.engine().remove(&filter, &[key(number)]).await.unwrap();
        }
        self.step(if is_there { "add" } else { "remove" }, &number);
    }

    async fn tell_all(&mut self) {
        while !self.untold.is_empty() {
            self.tell().await;
        }
    }

    fn read(&mut self) {
        let rows: Vec<u64> = self.table.range(self.cursor..).take(ROWS).copied().collect();
        self.cursor = if rows.len() < ROWS { KEYS } else { rows[ROWS - 1] + 1 };
        self.step("read", &rows);
        if !rows.is_empty() {
            self.read.push(rows);
        }
    }

    async fn send(&mut self) {
        let Some(rows) = self.read.pop() else { return };
        // A loader that was killed begins anew, and finds what it has begun.
        let rebuild = begin(self.engine(), "f").await;
        let sent: Vec<_> = rows.iter().copied().map(key).collect();
        fill(self.engine(), &rebuild, &sent).await;
        self.step("fill", &rows);
        if self.below(3) == 0 {
            self.read.push(rows);
        }
    }
}
