//! The configurations that are checked.

use crate::mutation::Mutation;
use crate::search::{Outcome, Verdict};
use crate::system::{Bounds, Configuration, Sight, Subject};

/// The outcome that a search has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// No state is wrong, and all that should be possible was seen.
    Holds,
    /// A wrong state is found.
    Broken,
}

/// A configuration and the outcome that it has to have.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What is checked.
    pub configuration: Configuration,
    /// The outcome that it has to have.
    pub expectation: Expectation,
}

/// Bounds of the searches that must find nothing, by their size: quick, as CI does them, and large. Leases that end, gaps, wishes, reports,
/// late records.
const KEYS: [&[[u8; 5]]; 3] = [
    &[[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 2, 0, 1]],
    &[
        [3, 0, 0, 0, 0],
        [2, 1, 0, 0, 0],
        [1, 0, 2, 0, 0],
        [2, 0, 0, 0, 1],
        [1, 0, 1, 0, 1],
        [0, 0, 2, 0, 1],
        [1, 0, 0, 1, 0],
    ],
    &[[2, 0, 1, 0, 0], [1, 1, 1, 0, 1], [2, 1, 1, 0, 0], [1, 0, 2, 0, 1], [2, 0, 0, 1, 1], [1, 0, 0, 2, 0]],
];
const NAMES: [&[[u8; 5]]; 3] = [
    &[[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]],
    &[[2, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 0, 1]],
    &[[1, 1, 0, 1, 0], [1, 0, 0, 1, 1], [2, 0, 0, 1, 0], [2, 1, 0, 0, 0], [2, 0, 0, 0, 1], [1, 0, 0, 2, 0]],
];

/// How much is checked: each size has the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Seconds, without optimisation.
    Quick,
    /// Less than two minutes.
    Standard,
    /// Many minutes, and gigabytes.
    Large,
}

/// All cases of a size: the mended rules, a rule that is more than safety needs, and every mutation.
pub fn cases(size: Size) -> Vec<Case> {
    let of = |all: [&'static [[u8; 5]]; 3], subject| {
        let bounds = match size {
            Size::Quick => all[0].to_vec(),
            Size::Standard => all[1].to_vec(),
            Size::Large => [all[1], all[2]].concat(),
        };
        bounds.into_iter().map(move |bounds| holds(subject, bounds))
    };
    let mended = of(KEYS, Subject::Key).chain(of(NAMES, Subject::Name));
    let spare = Configuration {
        mutation: Some(Mutation::SameTermAfterGap),
        ..holds(Subject::Key, [1, 1, 0, 0, 0]).configuration
    };
    let spare = Case { configuration: spare, expectation: Expectation::Holds };
    mended.chain([spare]).chain(Mutation::ALL.into_iter().map(broken)).collect()
}

fn holds(subject: Subject, bounds: [u8; 5]) -> Case {
    let configuration =
        Configuration { subject, bounds: Bounds::of(bounds), mutation: None, is_reduced: true };
    Case { configuration, expectation: Expectation::Holds }
}

/// A mutation, in bounds as small as it needs.
fn broken(mutation: Mutation) -> Case {
    let bounds = match mutation {
        Mutation::PutBlindly | Mutation::ForgetLatePut => [0, 0, 2, 0, 1],
        Mutation::ReloadKeepsRead => [0, 0, 2, 0, 0],
        Mutation::LocalIsolation | Mutation::IsolatedCatalog => [0, 0, 0, 1, 0],
        Mutation::MissingIsAbsent => [0, 0, 1, 0, 0],
        _ => [1, 0, 0, 0, 0],
    };
    let subject = if mutation.is_of_names() { Subject::Name } else { Subject::Key };
    let (bounds, mutation) = (Bounds::of(bounds), Some(mutation));
    let configuration = Configuration { subject, bounds, mutation, is_reduced: false };
    Case { configuration, expectation: Expectation::Broken }
}

impl Case {
    /// What has to be seen in a search that ends, so that it cannot pass because nothing happens in it.
    pub fn sights(&self) -> Vec<Sight> {
        let bounds = &self.configuration.bounds;
        let is_needed = |sight: &Sight| match sight {
            Sight::Absent | Sight::Confirmed => true,
            // While nothing ends a lease, no node stays behind the log for long, and the search goes no further.
            Sight::Acknowledged => bounds.ends > 0,
            Sight::Returned => bounds.ends > 0,
            Sight::Led => bounds.wishes > 0,
        };
        Sight::ALL.into_iter().filter(is_needed).collect()
    }

    /// Why an outcome is not what was expected; none if it is.
    pub fn objection(&self, outcome: &Outcome) -> Option<String> {
        match (&outcome.verdict, self.expectation) {
            (Verdict::Unfinished, _) => {
                Some(format!("unfinished after {} states: give it more", outcome.states))
            }
            (Verdict::Broken { .. }, Expectation::Broken) => None,
            (Verdict::Broken { fault, .. }, Expectation::Holds) => Some(format!("a counterexample: {fault}")),
            (Verdict::Holds, Expectation::Broken) => Some("the mutation was not found".to_owned()),
            (Verdict::Holds, Expectation::Holds) => {
                let missing: Vec<Sight> =
                    self.sights().into_iter().filter(|sight| !outcome.seen.contains(sight)).collect();
                (!missing.is_empty()).then(|| format!("never seen: {missing:?}"))
            }
        }
    }
}
