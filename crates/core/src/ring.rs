//! The ring: which members host which slots, as a function of the members and of nothing else.
//!
//! ```text
//!        slot 17                      Every member has points on the ring, as many as it has weight.
//!           v                         A slot has the members whose points come next, walking on past
//!  --a--b-----c--a--d--b--c--         those that have enough already, and past the zones that the
//!             1     2                 slot is in already.
//! ```
//!
//! Walking past the full ones bounds loads from above. Chance leaves some members with too little all the same, so they are given slots of
//! those who have more than their share.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::limits::{MEMBER_NAME_BYTES_MAX, MEMBERS_MAX, SLOTS_MAX, WEIGHT_MAX};
use crate::{Error, Result};

#[cfg(test)]
mod tests;

/// The least number of members that so many slots each have room on, with so many copies of each slot. The ring gives a member up to a
/// tenth more than its share.
pub fn members_needed(slots: u128, copies: u128, slots_a_member: u128) -> Option<u128> {
    match slots_a_member {
        0 => None,
        room if room >= slots => Some(copies),
        room => Some((slots * copies * 11).div_ceil(room * 10).max(copies)),
    }
}

/// How far a load may be from a member's share. The ends are rounded outwards, because slots are not divided.
const TOLERANCE: f64 = 0.1;
/// Slots and points have places of their own, even if names were alike.
const SLOT_SEED: u64 = u64::from_le_bytes(*b"the slot");
const WISH_SEED: u64 = u64::from_le_bytes(*b"the wish");

/// Who may host slots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The name, which no other member has.
    pub name: String,
    /// Points on the ring: a member with twice as many gets twice the slots.
    pub weight: u32,
    /// What may fail at once: hosts of a slot are in different zones, as far as there are enough.
    pub zone: String,
}

impl Member {
    /// The weight of an ordinary machine.
    pub const WEIGHT: u32 = 100;

    /// An ordinary machine.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), weight: Self::WEIGHT, zone: String::new() }
    }

    /// With another weight.
    #[must_use]
    pub fn weight(self, weight: u32) -> Self {
        Self { weight, ..self }
    }

    /// In a zone.
    #[must_use]
    pub fn zone(self, zone: impl Into<String>) -> Self {
        Self { zone: zone.into(), ..self }
    }

    fn check(&self) -> Result<()> {
        let fits = |text: &str| text.len() <= MEMBER_NAME_BYTES_MAX && !text.chars().any(char::is_control);
        if self.name.is_empty() || !fits(&self.name) || !fits(&self.zone) {
            let text = format!("{:?} in zone {:?}", self.name, self.zone);
            return Err(Error::Invalid(format!(
                "a member {text}; names have 1 to {MEMBER_NAME_BYTES_MAX} bytes without control characters"
            )));
        }
        if !(1..=WEIGHT_MAX).contains(&self.weight) {
            return Err(Error::Invalid(format!(
                "weight {} of {}; it must be 1 to {WEIGHT_MAX}",
                self.weight, self.name
            )));
        }
        Ok(())
    }
}

/// The hosts of every slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// By name.
    members: Vec<Member>,
    /// Of each slot, the members that host it, the first to ask first.
    hosts: Vec<Vec<u16>>,
}

impl Ring {
    /// Places slots, each with so many hosts, or as many as there are members.
    pub fn new(mut members: Vec<Member>, slots: u32, copies: u32) -> Result<Self> {
        if !(1..=SLOTS_MAX).contains(&slots) {
            return Err(Error::Invalid(format!("{slots} slots; it must be 1 to {SLOTS_MAX}")));
        }
        if copies == 0 {
            return Err(Error::Invalid("no copies; a slot has at least one host".into()));
        }
        if !(1..=MEMBERS_MAX).contains(&members.len()) {
            return Err(Error::Invalid(format!(
                "{} members; there may be 1 to {MEMBERS_MAX}",
                members.len()
            )));
        }
        members.sort_unstable();
        members.iter().try_for_each(Member::check)?;
        if let Some(two) = members.windows(2).find(|two| two[0].name == two[1].name) {
            return Err(Error::Invalid(format!("two members are called {}", two[0].name)));
        }
        let copies = (copies as usize).min(members.len());
        let mut placing = Placing::new(&members, slots as usize, copies);
        (0..slots as usize).for_each(|slot| placing.walk(slot));
        placing.raise_poor();
        let hosts = placing.hosts;
        Ok(Self { members, hosts })
    }

    /// The members, by name.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.hosts.len()
    }

    /// The hosts of a slot, the first to ask first.
    pub fn hosts(&self, slot: u16) -> impl ExactSizeIterator<Item = &Member> {
        let hosts = self.hosts.get(usize::from(slot)).map_or(&[][..], Vec::as_slice);
        hosts.iter().map(|member| &self.members[usize::from(*member)])
    }

    /// The slots that a member hosts.
    pub fn slots_of(&self, name: &str) -> impl Iterator<Item = u16> {
        let member = self.members.binary_search_by(|member| member.name.as_str().cmp(name)).ok();
        let slots = (0u16..).zip(&self.hosts);
        slots
            .filter(move |(_, hosts)| hosts.iter().any(|host| Some(usize::from(*host)) == member))
            .map(|(slot, _)| slot)
    }

    /// How many slots get a host that they do not have now.
    pub fn moves_to(&self, next: &Self) -> usize {
        let new = |slot: u16| {
            let stays = |host: &&Member| self.hosts(slot).any(|now| now.name == host.name);
            next.hosts(slot).len() - next.hosts(slot).filter(stays).count()
        };
        (0..next.hosts.len()).map(|slot| new(slot as u16)).sum()
    }
}

/// What each of several gets of a total, by weight, as far as the bounds of each allow.
fn shares(total: f64, weights: &[f64], bounds: &[(f64, f64)]) -> Vec<f64> {
    let at = |level: f64| {
        let bounded = weights.iter().zip(bounds);
        bounded.map(move |(weight, (least, most))| (level * weight).clamp(*least, *most))
    };
    let (mut low, mut high) = (0.0, total);
    // As often as a fraction can be halved.
    for _ in 0..f64::MANTISSA_DIGITS {
        let middle = (low + high) / 2.0;
        if at(middle).sum::<f64>() < total { low = middle } else { high = middle }
    }
    at(high).collect()
}

/// A ring that is being made.
struct Placing<'m> {
    members: &'m [Member],
    copies: usize,
    /// Points and whose they are, in the order of the ring.
    points: Vec<(u64, u16)>,
    /// The number of each member's zone.
    zones: Vec<usize>,
    /// What each member should host.
    shares: Vec<f64>,
    loads: Vec<usize>,
    hosts: Vec<Vec<u16>>,
}

impl<'m> Placing<'m> {
    fn new(members: &'m [Member], slots: usize, copies: usize) -> Self {
        let mut points: Vec<_> = (0u16..)
            .zip(members)
            .flat_map(|(number, member)| {
                (0..u64::from(member.weight))
                    .map(move |point| (xxh3_64_with_seed(member.name.as_bytes(), point), number))
            })
            .collect();
        points.sort_unstable();
        let mut in_zones: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (number, member) in members.iter().enumerate() {
            in_zones.entry(&member.zone).or_default().push(number);
        }
        let in_zones: Vec<_> = in_zones.into_values().collect();
        // Hosts of a slot that a zone has at most, if no zone has two more than another which could have more.
        let room = |most: usize| in_zones.iter().map(|zone| zone.len().min(most)).sum::<usize>();
        let most = (1..copies).find(|most| room(*most) >= copies).unwrap_or(copies);

        let weight = |number: &usize| f64::from(members[*number].weight);
        let weights: Vec<f64> = in_zones.iter().map(|zone| zone.iter().map(weight).sum()).collect();
        let hosted = |zone: &Vec<usize>, most: usize| (slots * zone.len().min(most)) as f64;
        let bounds: Vec<_> =
            in_zones.iter().map(|zone| (hosted(zone, most - 1), hosted(zone, most))).collect();
        let of_zones = shares((slots * copies) as f64, &weights, &bounds);
        let (mut zones, mut of_members) = (vec![0; members.len()], vec![0.0; members.len()]);
        for ((number, zone), share) in in_zones.iter().enumerate().zip(of_zones) {
            let weights: Vec<f64> = zone.iter().map(weight).collect();
            let of_zone = shares(share, &weights, &vec![(0.0, slots as f64); zone.len()]);
            for (member, share) in zone.iter().zip(of_zone) {
                (zones[*member], of_members[*member]) = (number, share);
            }
        }
        Self {
            members,
            copies,
            points,
            zones,
            shares: of_members,
            loads: vec![0; members.len()],
            hosts: vec![Vec::with_capacity(copies); slots],
        }
    }

    /// Hosts of a slot that are in the zone of a member.
    fn beside(&self, slot: usize, member: u16) -> usize {
        let zone = |member: u16| self.zones[usize::from(member)];
        self.hosts[slot].iter().filter(|host| zone(**host) == zone(member)).count()
    }

    fn is_full(&self, member: u16) -> bool {
        let member = usize::from(member);
        let most = (self.shares[member] * (1.0 + TOLERANCE)).ceil();
        self.loads[member] as f64 >= most
    }

    /// Finds the hosts of a slot: no zone has a second one while another could have its first.
    fn walk(&mut self, slot: usize) {
        let place = xxh3_64_with_seed(&(slot as u64).to_le_bytes(), SLOT_SEED);
        let start = self.points.partition_point(|(point, _)| *point < place);
        for in_zone in 1..=self.copies {
            for step in 0..self.points.len() {
                if self.hosts[slot].len() == self.copies {
                    return;
                }
                let (_, member) = self.points[(start + step) % self.points.len()];
                if !self.is_full(member) && self.may_join(slot, member, in_zone) {
                    self.host(slot, member);
                }
            }
            // Where only full ones are left, the one that is the least over its share has it.
            let over =
                |member: u16| self.loads[usize::from(member)] as f64 - self.shares[usize::from(member)];
            let all = 0..self.members.len() as u16;
            let mut full: Vec<_> = all.filter(|member| self.may_join(slot, *member, in_zone)).collect();
            full.sort_by(|a, b| over(*a).total_cmp(&over(*b)));
            for member in full {
                if self.may_join(slot, member, in_zone) {
                    self.host(slot, member);
                }
            }
        }
    }

    /// Whether a slot needs a host, and a member can be it with so many hosts of the slot in a zone.
    fn may_join(&self, slot: usize, member: u16, in_zone: usize) -> bool {
        let hosts = &self.hosts[slot];
        hosts.len() < self.copies && !hosts.contains(&member) && self.beside(slot, member) < in_zone
    }

    fn host(&mut self, slot: usize, member: u16) {
        self.hosts[slot].push(member);
        self.loads[usize::from(member)] += 1;
    }

    /// Gives slots to those who have too few.
    fn raise_poor(&mut self) {
        for poor in 0..self.members.len() as u16 {
            let index = usize::from(poor);
            let least = (self.shares[index] * (1.0 - TOLERANCE)).floor();
            if self.loads[index] as f64 >= least {
                continue;
            }
            // Its own order of slots: two that are poor want different ones, and the same ones whoever else is there.
            let name = self.members[index].name.as_bytes();
            let mut wishes: Vec<_> = (0..self.hosts.len())
                .map(|slot| (xxh3_64_with_seed(name, WISH_SEED ^ slot as u64), slot))
                .collect();
            wishes.sort_unstable();
            for (_, slot) in wishes {
                if self.loads[index] as f64 >= least {
                    break;
                }
                let Some(giver) = self.giver(slot, poor) else { continue };
                let gives = std::mem::replace(&mut self.hosts[slot][giver], poor);
                self.loads[usize::from(gives)] -= 1;
                self.loads[index] += 1;
            }
        }
    }

    /// Which host of a slot a poor member may replace: one with more than its share, in a zone that can spare it.
    fn giver(&self, slot: usize, poor: u16) -> Option<usize> {
        let hosts = &self.hosts[slot];
        let is_near = |host: u16| self.zones[usize::from(host)] == self.zones[usize::from(poor)];
        let can_spare = |host: u16| is_near(host) || self.beside(slot, poor) < self.beside(slot, host);
        let is_rich = |host: usize| self.loads[host] as f64 > self.shares[host];
        let may_give = |host: &u16| is_rich(usize::from(*host)) && can_spare(*host);
        hosts.iter().rposition(may_give).filter(|_| !hosts.contains(&poor))
    }
}
