use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const SLOTS: u32 = 256;

fn machines(numbers: impl IntoIterator<Item = usize>) -> Vec<Member> {
    numbers.into_iter().map(|number| Member::new(format!("node-{number}"))).collect()
}

fn ring(members: Vec<Member>, copies: u32) -> Ring {
    Ring::new(members, SLOTS, copies).expect("members are right")
}

fn load(ring: &Ring, name: &str) -> f64 {
    ring.slots_of(name).count() as f64
}

/// Whether a load is within a tenth of a share, in whole slots.
fn is_fair(load: f64, share: f64) -> bool {
    ((share * 0.9).floor()..=(share * 1.1).ceil()).contains(&load)
}

/// Three to a thousand machines: nobody has a tenth more or less than its share, and one that joins or leaves moves its share and at most a
/// tenth of all.
#[test]
fn loads_are_fair_and_little_moves() {
    for count in
        [3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 25, 32, 40, 50, 64, 80, 100, 128, 200, 256, 300, 500, 700, 1000]
    {
        for copies in [1, 2, 3] {
            let all = f64::from(SLOTS * copies);
            let now = ring(machines(0..count), copies);
            for member in now.members() {
                let (load, share) = (load(&now, &member.name), all / count as f64);
                assert!(is_fair(load, share), "{load} slots of {share} in {count} machines, {copies} copies");
            }
            let joined = ring(machines((0..count).chain([5000])), copies);
            let moved = now.moves_to(&joined) as f64 / all;
            let share = 1.0 / (count as f64 + 1.0);
            assert!(moved <= share + 0.1, "{moved} moved when one joined {count}, {copies} copies");
            if count as u32 > copies {
                let left = ring(machines(1..count), copies);
                let moved = now.moves_to(&left) as f64 / all;
                let had = load(&now, "node-0") / all;
                assert!(
                    moved <= had + 0.1,
                    "{moved} moved when one of {count} left with {had}, {copies} copies"
                );
                assert!(moved >= had, "what it had is elsewhere");
            }
        }
    }
}

/// What this version places, others have to place alike: they share the log and the blobs.
#[test]
fn places_are_the_same_in_every_version() {
    let zones = ["a", "b", "c"];
    let members: Vec<_> = (0..7)
        .map(|number| {
            Member::new(format!("node-{number}")).weight(50 + 25 * number).zone(zones[number as usize % 3])
        })
        .collect();
    let ring = ring(members, 2);
    let first: Vec<Vec<&str>> =
        (0..6).map(|slot| ring.hosts(slot).map(|host| host.name.as_str()).collect()).collect();
    let all: String =
        (0..SLOTS as u16).flat_map(|slot| ring.hosts(slot).map(|host| host.name.as_str())).collect();
    let sum = xxh3_64_with_seed(all.as_bytes(), 0);
    assert_eq!((first, sum), (GOLDEN.0.iter().map(|hosts| hosts.to_vec()).collect(), GOLDEN.1));
}

const GOLDEN: ([[&str; 2]; 6], u64) = (
    [
        ["node-3", "node-4"],
        ["node-0", "node-5"],
        ["node-5", "node-3"],
        ["node-3", "node-4"],
        ["node-3", "node-5"],
        ["node-5", "node-6"],
    ],
    7_063_115_169_475_157_025,
);

#[test]
fn weights_are_shares() {
    let mut members = machines(0..6);
    members[0].weight = 200;
    members[1].weight = 50;
    let ring = ring(members, 2);
    let of_weight = |weight: f64| 512.0 * weight / 650.0;
    for (name, weight) in [("node-0", 200.0), ("node-1", 50.0), ("node-2", 100.0)] {
        let load = load(&ring, name);
        assert!(is_fair(load, of_weight(weight)), "{load} slots of {}", of_weight(weight));
    }
}

/// A machine so heavy that it would have to host slots twice hosts each of them once, and the others share the rest.
#[test]
fn nobody_hosts_a_slot_twice() {
    let mut members = machines(0..4);
    members[0].weight = WEIGHT_MAX;
    let ring = ring(members, 2);
    assert_eq!(load(&ring, "node-0"), 256.0);
    (1..4).for_each(|number| assert!(is_fair(load(&ring, &format!("node-{number}")), 256.0 / 3.0)));
}

#[test]
fn members_that_make_no_ring_are_refused() {
    let refused =
        |members, slots, copies| Ring::new(members, slots, copies).expect_err("refused").to_string();
    assert!(refused(vec![], 256, 2).contains("0 members"));
    assert!(refused(machines([1, 1]), 256, 2).contains("two members are called node-1"));
    assert!(refused(machines([1]), 0, 2).contains("0 slots"));
    assert!(refused(machines([1]), SLOTS_MAX + 1, 2).contains("slots"));
    assert!(refused(machines([1]), 256, 0).contains("no copies"));
    assert!(refused(vec![Member::new("a").weight(0)], 256, 1).contains("weight 0 of a"));
    assert!(refused(vec![Member::new("")], 256, 1).contains("names have"));
    assert!(refused(vec![Member::new("a\n")], 256, 1).contains("names have"));
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let member = (1u32..400, 0u8..5);
    proptest::collection::vec(member, 1..40).prop_map(|members| {
        let named = members.into_iter().enumerate();
        named
            .map(|(number, (weight, zone))| {
                Member::new(format!("m{number}")).weight(weight).zone(format!("z{zone}"))
            })
            .collect()
    })
}

proptest! {
    /// Whatever the members are: a slot has as many different hosts as it should, in as many zones as it can, whoever is named first.
    #[test]
    fn hosts_are_different_and_apart(members in members(), copies in 1u32..6) {
        let ring = Ring::new(members.clone(), SLOTS, copies).expect("members are right");
        let reversed = Ring::new(members.iter().rev().cloned().collect(), SLOTS, copies).expect("members are right");
        prop_assert_eq!(&ring, &reversed);
        let zones: BTreeSet<_> = members.iter().map(|member| member.zone.as_str()).collect();
        for slot in 0..SLOTS as u16 {
            let names: BTreeSet<_> = ring.hosts(slot).map(|host| host.name.as_str()).collect();
            prop_assert_eq!(names.len(), (copies as usize).min(members.len()));
            let in_zones: BTreeSet<_> = ring.hosts(slot).map(|host| host.zone.as_str()).collect();
            prop_assert_eq!(in_zones.len(), names.len().min(zones.len()));
        }
    }
}
