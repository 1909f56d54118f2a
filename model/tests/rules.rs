//! The mended rules hold, the code as it was does not, and each rule that is dropped is missed.

use umbel_model::{
    Bounds, Configuration, Expectation, Mutation, Size, Subject, Verdict, cases, search, trace,
};

const STATES_MAX: usize = 5_000_000;

fn of(expectation: Expectation) -> impl Iterator<Item = umbel_model::Case> {
    cases(Size::Quick).into_iter().filter(move |case| case.expectation == expectation)
}

#[test]
fn mended_rules_have_no_counterexample() {
    for case in of(Expectation::Holds) {
        let outcome = search(&case.configuration, STATES_MAX, |_| {});
        let text = trace(&case.configuration, &outcome.verdict);
        assert_eq!(case.objection(&outcome), None, "{case:?}\n{text}");
    }
}

#[test]
fn each_dropped_rule_is_found() {
    let mutations: Vec<Mutation> =
        of(Expectation::Broken).filter_map(|case| case.configuration.mutation).collect();
    assert_eq!(mutations, Mutation::ALL);
    for case in of(Expectation::Broken) {
        let outcome = search(&case.configuration, STATES_MAX, |_| {});
        assert_eq!(case.objection(&outcome), None, "{case:?}");
    }
}

#[test]
fn code_as_it_was_acknowledges_what_others_deny() {
    let was = of(Expectation::Broken)
        .find(|case| case.configuration.mutation == Some(Mutation::AsTheCodeWas))
        .expect("the code as it was is among the cases");
    let outcome = search(&was.configuration, STATES_MAX, |_| {});
    let Verdict::Broken { fault, .. } = &outcome.verdict else { panic!("not found: {outcome:?}") };
    assert_eq!(*fault, "an acknowledged key was answered \"absent\"");
    // A node sleeps past its lease, returns, confirms its own append by its old view, and another one denies it.
    let text = trace(&was.configuration, &outcome.verdict);
    let lines = ["which sleeps or gets no answer", "still counts as settled", "hears that the key is there"];
    let places: Vec<usize> =
        lines.iter().map(|line| text.find(line).unwrap_or_else(|| panic!("no {line}:\n{text}"))).collect();
    assert!(places.is_sorted(), "{text}");
    assert!(text.trim_end().ends_with("=> an acknowledged key was answered \"absent\""), "{text}");
}

#[test]
fn reduction_changes_no_verdict() {
    for (subject, bounds) in [
        (Subject::Key, Bounds { ends: 1, gaps: 0, wishes: 0, reports: 0, strays: 0 }),
        (Subject::Key, Bounds { ends: 0, gaps: 1, wishes: 1, reports: 0, strays: 1 }),
        (Subject::Name, Bounds { ends: 0, gaps: 1, wishes: 0, reports: 1, strays: 0 }),
    ] {
        let check = |mutation, is_reduced| {
            let configuration = Configuration { subject, bounds, mutation, is_reduced };
            search(&configuration, STATES_MAX, |_| {})
        };
        let (plain, reduced) = (check(None, false), check(None, true));
        assert_eq!((&plain.verdict, &reduced.verdict), (&Verdict::Holds, &Verdict::Holds));
        assert!(reduced.states < plain.states, "{} of {}", reduced.states, plain.states);
    }
}
