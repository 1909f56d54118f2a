//! The steps that lead from one state to the next, and what must hold in each state.
//!
//! A step is what one actor does without another one in between; anything may happen between two steps. So a node that sleeps, a slow
//! registry and a message that is late need no steps of their own: they are ways in which other steps come first.
//!
//! Time is not counted. What the clocks guarantee is one condition: **the registry ends a lease only when the node's own trust in it has
//! run out** (rules L1 and L2). Trust may run out at any moment.

use crate::mutation::Mutation;
use crate::state::{Change, Content, Look, NODES, Node, Part, Query, Record, State, Stray};

/// What the client changes and asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A key: its partition's leader answers without a read barrier.
    Key,
    /// A name in the catalog: every node that is not isolated answers without one.
    Name,
}

/// How often the surroundings may interfere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Leases that the registry ends; the node's own trust in its lease has run out by then.
    pub ends: u8,
    /// Times that a node's trust runs out although its lease lives on.
    pub gaps: u8,
    /// Times that a node begins or stops serving the partition.
    pub wishes: u8,
    /// Times that a node reports another one as not reached, or takes it back.
    pub reports: u8,
    /// Looks at the registry that are given up while their record is in flight.
    pub strays: u8,
}

impl Bounds {
    /// Bounds in the order of their fields.
    pub(crate) fn of([ends, gaps, wishes, reports, strays]: [u8; 5]) -> Self {
        Self { ends, gaps, wishes, reports, strays }
    }
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// What the client changes and asks for.
    pub subject: Subject,
    /// How often the surroundings may interfere.
    pub bounds: Bounds,
    /// The rule that is dropped, if one is.
    pub mutation: Option<Mutation>,
    /// Whether states that differ only in what can never matter again are one, and those from which nothing can go wrong are not followed.
    pub is_reduced: bool,
}

/// A step; nodes are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A node's trust in its lease runs out.
    TrustEnds(usize),
    /// The registry renews a lease that lives still, and the node hears it.
    KeepAlive(usize),
    /// The registry acknowledges a lease; the answer is in flight.
    LateAnswer(usize),
    /// That answer arrives.
    LateAnswerArrives(usize),
    /// A follower of the registry acknowledges a lease.
    FollowerAnswers(usize),
    /// The registry ends a lease, and deletes the record.
    LeaseEnds(usize),
    /// A node without a record takes a lease and puts a record that names no view.
    Return(usize),
    /// The registry lists all records.
    List(usize),
    /// The listing arrives; the node acts on it.
    Act(usize),
    /// A record arrives at the registry.
    Put(usize),
    /// A node acts on the view that its record names already.
    ActLate(usize),
    /// A node gives a look up while its record is in flight.
    GiveUp(usize),
    /// The record of a look that was given up arrives.
    StrayArrives,
    /// A node begins to serve the partition, or stops.
    Wish(usize),
    /// A node finds that it does not reach another one, or reaches it again.
    Report(usize, usize),
    /// A node reads the log to its end for its present term.
    Read(usize),
    /// A read of the log begins that requests may join later.
    BarrierBegins(usize),
    /// Before it appends, a node finds that it leads.
    LeadsEarly(usize),
    /// A node appends the client's entry to the log and folds it.
    Append(usize),
    /// The node that appended finds its lease valid.
    ChangeLease,
    /// The node that appended finds its view settled.
    ChangeView,
    /// A node confirms that it has folded the entry.
    Confirm(usize),
    /// The client hears that its change is done.
    Acknowledge,
    /// A node is asked for what was acknowledged, and takes the first step of its answer.
    Ask(usize),
    /// It takes the next one.
    AskOn,
    /// A node answers "absent" without any check.
    Deny(usize),
}

/// Things that must be possible, so that a model cannot pass because nothing happens in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// A change is acknowledged.
    Acknowledged,
    /// A change is acknowledged that was appended by a node which does not lead.
    Confirmed,
    /// A node may answer "absent" without a read barrier.
    Absent,
    /// A node whose lease had ended is back, and all nodes agree on that.
    Returned,
    /// Another node leads while all have leases.
    Led,
}

impl Sight {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Acknowledged, Self::Confirmed, Self::Absent, Self::Returned, Self::Led];
}

impl Configuration {
    fn drops(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// The states from which everything begins: all nodes agree, and the key belongs to one of two partitions.
    pub fn initial(&self) -> Vec<State> {
        let partitions = match self.subject {
            Subject::Key => 0..2,
            Subject::Name => 0..1,
        };
        let state = |partition| {
            let mut state = State {
                partition,
                ends_left: self.bounds.ends,
                gaps_left: self.bounds.gaps,
                wishes_left: self.bounds.wishes,
                reports_left: self.bounds.reports,
                strays_left: self.bounds.strays,
                ..State::default()
            };
            for node in 0..NODES {
                // Where hosts change, the partition's first node in the order of the ring comes later.
                let serves = self.bounds.wishes == 0 || ring(partition)[0] != node;
                let part = Part { serves, reports: 0 };
                state.nodes[node].wish = part;
                state.records[node] = Record { is_there: true, part, names: None };
            }
            let content = state.listing();
            for node in 0..NODES {
                state.records[node].names = Some(content);
                let node = &mut state.nodes[node];
                (node.acting, node.is_settled, node.trusts) = (content, true, true);
            }
            state
        };
        partitions.map(state).collect()
    }

    /// The node that leads the partition by a view, as one node sees it.
    fn leader(&self, state: &State, content: Content, me: usize) -> Option<usize> {
        let order = ring(state.partition);
        let hosts = || order.into_iter().filter(|node| content.serves(*node));
        let passes_over = |node: usize| match self.mutation {
            Some(Mutation::LocalOrder) => (me, node) == (1, 0),
            Some(Mutation::LocalIsolation) => state.nodes[me].wish.reports >> node & 1 == 1,
            _ => false,
        };
        let (isolated, impaired) = content.isolation();
        // Of equals, the first in the order of the ring.
        hosts().min_by_key(|node| (passes_over(*node), isolated >> node & 1 == 1, impaired >> node & 1 == 1))
    }

    /// Whether a node may answer without a read barrier by its view, apart from its lease and from what it has read.
    fn answers_alone(&self, state: &State, node: usize) -> bool {
        let me = &state.nodes[node];
        match self.subject {
            Subject::Key => {
                me.is_settled && !me.is_stood_down && self.leader(state, me.acting, node) == Some(node)
            }
            Subject::Name => {
                (me.is_settled || self.drops(Mutation::UnsettledCatalog))
                    && (!me.acting.is_isolated(node) || self.drops(Mutation::IsolatedCatalog))
            }
        }
    }

    fn has_read(&self, state: &State, node: usize) -> bool {
        let needs = !self.drops(Mutation::LeaderUnread) && !self.drops(Mutation::UnreadCatalog);
        state.nodes[node].has_read || !needs
    }

    /// Those that have to confirm a change by the view of a node.
    fn confirming(&self, state: &State, node: usize) -> u8 {
        let content = state.nodes[node].acting;
        let leader = self.leader(state, content, node).map_or(0, |leader| 1 << leader);
        if self.subject == Subject::Key || self.drops(Mutation::NameByLeaderAlone) {
            return leader;
        }
        let is_passed = |other: usize| {
            content.is_isolated(other)
                || self.drops(Mutation::LocalIsolation) && state.nodes[node].wish.reports >> other & 1 == 1
        };
        let others = (0..NODES).filter(|other| content.has(*other) && !is_passed(*other));
        others.fold(leader, |all, other| all | 1 << other)
    }

    fn begin_term(&self, state: &mut State, node: usize) {
        if !self.drops(Mutation::ReadForGood) {
            state.nodes[node].has_read = false;
        }
    }

    fn act_on(&self, state: &mut State, node: usize, content: Content, is_settled: bool) {
        let me = &mut state.nodes[node];
        let changes = me.acting != content || me.is_settled != is_settled;
        (me.acting, me.is_settled, me.is_stood_down) = (content, is_settled, false);
        if changes {
            self.begin_term(state, node);
        }
    }

    /// Whether the state is wrong, and why.
    pub fn fault(&self, state: &State) -> Option<&'static str> {
        if matches!(state.query, Query::Denied(_)) {
            return Some("an acknowledged key was answered \"absent\"");
        }
        if self.subject == Subject::Key {
            let leads = |node: &usize| state.nodes[*node].trusts && self.answers_alone(state, *node);
            if (0..NODES).filter(leads).count() > 1 {
                return Some("two nodes lead the partition");
            }
        }
        None
    }

    /// Whether something can be seen in a state.
    pub fn shows(&self, state: &State, sight: Sight) -> bool {
        let nodes = || 0..NODES;
        let agree = || nodes().all(|node| state.nodes[node].is_settled && state.nodes[node].trusts);
        match sight {
            Sight::Acknowledged => state.change == Change::Acknowledged,
            Sight::Confirmed => {
                matches!(state.change, Change::Confirming(node, needed) if needed & 1 << node == 0)
            }
            Sight::Absent => {
                let may_answer = |node: usize| {
                    let me = &state.nodes[node];
                    me.trusts && self.answers_alone(state, node) && me.has_read && !me.has_folded
                };
                !state.is_logged && nodes().any(may_answer)
            }
            Sight::Returned => state.ends_left < self.bounds.ends && agree(),
            Sight::Led => {
                let first = ring(state.partition)[usize::from(self.bounds.wishes > 0)];
                agree()
                    && state.records.iter().all(|record| record.is_there)
                    && self.leader(state, state.nodes[0].acting, 0) != Some(first)
            }
        }
    }

    /// Gives each step that is possible in a state, with the state that it leads to.
    pub fn steps(&self, state: &State, mut give: impl FnMut(Action, State)) {
        if matches!(state.query, Query::Denied(_)) || self.is_reduced && is_safe(state) {
            return;
        }
        let mut give = |action, to| give(action, if self.is_reduced { reduced(to) } else { to });
        for node in 0..NODES {
            self.lease_steps(state, node, &mut give);
            self.look_steps(state, node, &mut give);
            self.own_steps(state, node, &mut give);
        }
        self.stray_steps(state, &mut give);
        self.change_steps(state, &mut give);
        self.query_steps(state, &mut give);
    }

    fn lease_steps(&self, state: &State, node: usize, give: &mut impl FnMut(Action, State)) {
        let (me, record) = (&state.nodes[node], &state.records[node]);
        let mut step = |action, change: &dyn Fn(&mut State)| give(action, changed(state, change));
        if me.trusts && state.gaps_left > 0 {
            step(Action::TrustEnds(node), &|state| {
                state.gaps_left -= 1;
                (state.nodes[node].trusts, state.nodes[node].trusts_wrongly) = (false, false);
            });
        }
        // An answer that arrives after the registry has ended the lease counts from before its request, and so gives no trust: the step
        // in which the registry acts and the node hears of it can be one (rule L1).
        if record.is_there && !me.trusts {
            step(Action::KeepAlive(node), &|state| {
                state.nodes[node].trusts = true;
                if !self.drops(Mutation::SameTermAfterGap) {
                    self.begin_term(state, node);
                }
            });
        }
        if self.drops(Mutation::LeaseFromAnswer) {
            if record.is_there && !me.late_answer {
                step(Action::LateAnswer(node), &|state| state.nodes[node].late_answer = true);
            }
            if me.late_answer {
                step(Action::LateAnswerArrives(node), &|state| {
                    let me = &mut state.nodes[node];
                    me.late_answer = false;
                    let begins = !std::mem::replace(&mut me.trusts, true);
                    me.trusts_wrongly = true;
                    if begins {
                        self.begin_term(state, node);
                    }
                });
            }
        }
        if self.drops(Mutation::FollowerRenews) && !(me.trusts && me.trusts_wrongly) {
            step(Action::FollowerAnswers(node), &|state| {
                let me = &mut state.nodes[node];
                let begins = !std::mem::replace(&mut me.trusts, true);
                me.trusts_wrongly = true;
                if begins {
                    self.begin_term(state, node);
                }
            });
        }
        if record.is_there && state.ends_left > 0 {
            step(Action::LeaseEnds(node), &|state| {
                let me = &mut state.nodes[node];
                me.trusts &= me.trusts_wrongly;
                state.records[node] = Record::default();
                state.ends_left -= 1;
                self.forget_stray(state, node);
            });
        }
    }

    fn look_steps(&self, state: &State, node: usize, give: &mut impl FnMut(Action, State)) {
        let (me, record) = (&state.nodes[node], &state.records[node]);
        match me.look {
            Look::Idle if record.is_there => self.list_step(state, node, give),
            Look::Idle => self.return_step(state, node, give),
            Look::Listed { content, is_settled, is_named, is_unsure, is_outdated } => {
                give_changed(Action::Act(node), state, give, |state| {
                    let wish = state.nodes[node].wish;
                    let is_own = content.part_of(node) == wish;
                    // A record that is late could still take the place of this one: until it cannot, nothing is settled (rule V6).
                    let (next, is_settled) = match is_own {
                        true => (content, is_settled && !is_unsure),
                        false => (content.with(node, wish), false),
                    };
                    let puts = !is_own || !is_named || is_unsure;
                    if puts && self.drops(Mutation::NameFirst) {
                        state.nodes[node].look = Look::Putting(next);
                        return;
                    }
                    self.act_on(state, node, next, is_settled);
                    let sends = puts && (!is_outdated || self.drops(Mutation::PutBlindly));
                    state.nodes[node].look = if sends { Look::Putting(next) } else { Look::Idle };
                });
            }
            Look::Putting(content) => {
                give_changed(Action::Put(node), state, give, |state| {
                    if state.records[node].is_there {
                        state.records[node].part = content.part_of(node);
                        state.records[node].names = Some(content);
                        self.forget_stray(state, node);
                    }
                    let names_first = self.drops(Mutation::NameFirst);
                    state.nodes[node].look = if names_first { Look::Named(content) } else { Look::Idle };
                });
                if state.strays_left > 0 && state.stray.content.is_none() && record.is_there {
                    give_changed(Action::GiveUp(node), state, give, |state| {
                        state.strays_left -= 1;
                        state.stray = Stray { node: node as u8, content: Some(content), is_expected: true };
                        state.nodes[node].look = Look::Idle;
                    });
                }
            }
            Look::Named(content) => give_changed(Action::ActLate(node), state, give, |state| {
                self.act_on(state, node, content, false);
                state.nodes[node].look = Look::Idle;
            }),
        }
    }

    fn return_step(&self, state: &State, node: usize, give: &mut impl FnMut(Action, State)) {
        give_changed(Action::Return(node), state, give, |state| {
            let part = state.nodes[node].wish;
            state.records[node] = Record { is_there: true, part, names: None };
            let me = &mut state.nodes[node];
            (me.trusts, me.trusts_wrongly, me.late_answer) = (true, false, false);
            // Rule L3.
            match self.mutation {
                Some(Mutation::ReturnKeepsRole) => {}
                Some(Mutation::ReturnTrustsView | Mutation::AsTheCodeWas) => me.is_stood_down = true,
                _ => me.is_settled = false,
            }
            self.begin_term(state, node);
            self.forget_stray(state, node);
        });
    }

    fn list_step(&self, state: &State, node: usize, give: &mut impl FnMut(Action, State)) {
        let (me, record) = (&state.nodes[node], &state.records[node]);
        let content = state.listing();
        let names = |record: &Record| !record.is_there || record.names == Some(content);
        let is_settled = state.records.iter().all(names) || self.drops(Mutation::AlwaysSettled);
        let is_named = record.names == Some(content);
        let late = state.stray;
        let is_unsure = late.content.is_some()
            && usize::from(late.node) == node
            && late.is_expected
            && !self.drops(Mutation::ForgetLatePut);
        // A listing that says nothing new leads nowhere, unless the node changes its own record before it arrives.
        let is_known = is_named
            && me.acting == content
            && me.is_settled == is_settled
            && !me.is_stood_down
            && !is_unsure
            && record.part == me.wish
            && (state.wishes_left, state.reports_left) == (0, 0);
        if !is_known {
            give_changed(Action::List(node), state, give, |state| {
                state.nodes[node].look =
                    Look::Listed { content, is_settled, is_named, is_unsure, is_outdated: false };
            });
        }
    }

    /// A record was put or deleted: one that is late finds another version than it expects (rule V6).
    fn forget_stray(&self, state: &mut State, node: usize) {
        if state.stray.content.is_none() || usize::from(state.stray.node) != node {
            return;
        }
        if self.drops(Mutation::PutBlindly) {
            state.stray.is_expected = false;
        } else {
            state.stray = Stray::default();
        }
    }

    fn stray_steps(&self, state: &State, give: &mut impl FnMut(Action, State)) {
        let Some(content) = state.stray.content else { return };
        let node = usize::from(state.stray.node);
        let arrives = |state: &mut State| {
            state.stray = Stray::default();
            if !state.records[node].is_there {
                return;
            }
            state.records[node].part = content.part_of(node);
            state.records[node].names = Some(content);
            let blind = self.drops(Mutation::PutBlindly);
            match &mut state.nodes[node].look {
                Look::Listed { is_outdated, .. } => *is_outdated = true,
                look @ Look::Putting(_) if !blind => *look = Look::Idle,
                _ => {}
            }
        };
        give(Action::StrayArrives, changed(state, &arrives));
    }

    fn own_steps(&self, state: &State, node: usize, give: &mut impl FnMut(Action, State)) {
        let me = &state.nodes[node];
        let mut step = |action, change: &dyn Fn(&mut State)| give(action, changed(state, change));
        if state.wishes_left > 0 {
            step(Action::Wish(node), &|state| {
                state.wishes_left -= 1;
                let me = &mut state.nodes[node];
                me.wish.serves = !me.wish.serves;
                if me.wish.serves {
                    // It was loaded again, from a checkpoint (rule R3).
                    me.has_read &= self.drops(Mutation::ReloadKeepsRead);
                    me.has_folded = false;
                }
            });
        }
        if state.reports_left > 0 {
            for other in (0..NODES).filter(|other| *other != node) {
                step(Action::Report(node, other), &|state| {
                    state.reports_left -= 1;
                    state.nodes[node].wish.reports ^= 1 << other;
                });
            }
        }
        if !me.has_read && me.wish.serves && self.answers_alone(state, node) {
            step(Action::Read(node), &|state| {
                state.nodes[node].has_read = true;
                state.nodes[node].has_folded |= state.is_logged;
            });
        }
        if self.drops(Mutation::OldBarrier) && !state.is_logged && !me.old_barrier && me.wish.serves {
            step(Action::BarrierBegins(node), &|state| state.nodes[node].old_barrier = true);
        }
    }

    fn change_steps(&self, state: &State, give: &mut impl FnMut(Action, State)) {
        let mut step = |action, change: &dyn Fn(&mut State)| give(action, changed(state, change));
        let append = |state: &mut State, node: usize| {
            state.is_logged = true;
            state.nodes[node].has_folded = true;
        };
        match state.change {
            Change::None => {
                for node in (0..NODES).filter(|node| state.nodes[*node].wish.serves) {
                    if self.drops(Mutation::RoleBeforeAppend) {
                        if state.nodes[node].trusts && self.answers_alone(state, node) {
                            step(Action::LeadsEarly(node), &|state| {
                                state.change = Change::Early(node as u8);
                            });
                        }
                        continue;
                    }
                    step(Action::Append(node), &|state| {
                        append(state, node);
                        state.change = Change::Folded(node as u8);
                    });
                }
            }
            Change::Early(node) => step(Action::Append(usize::from(node)), &|state| {
                append(state, usize::from(node));
                state.change = Change::Confirming(node, 0);
            }),
            Change::Folded(node) => {
                if self.drops(Mutation::AcknowledgeAtOnce) {
                    step(Action::Acknowledge, &|state| state.change = Change::Acknowledged);
                } else if self.reads_view_first() {
                    self.change_view(state, node, &mut step, |needed| Change::Viewed(node, needed));
                } else if self.drops(Mutation::ConfirmWithoutLease) {
                    self.change_view(state, node, &mut step, |needed| Change::Confirming(node, needed));
                } else if state.nodes[usize::from(node)].trusts {
                    step(Action::ChangeLease, &|state| state.change = Change::Leased(node));
                }
            }
            Change::Leased(node) => {
                self.change_view(state, node, &mut step, |needed| Change::Confirming(node, needed));
            }
            Change::Viewed(node, needed) => {
                if state.nodes[usize::from(node)].trusts {
                    step(Action::ChangeLease, &|state| state.change = Change::Confirming(node, needed));
                }
            }
            Change::Confirming(_, 0) => {
                step(Action::Acknowledge, &|state| state.change = Change::Acknowledged);
            }
            Change::Confirming(node, needed) => {
                let any = self.drops(Mutation::ConfirmByAnyHost);
                let hosts =
                    |other: &usize| (any || needed >> other & 1 == 1) && state.nodes[*other].wish.serves;
                for other in (0..NODES).filter(hosts) {
                    step(Action::Confirm(other), &|state| {
                        state.nodes[other].has_folded = true;
                        let needed = if any { 0 } else { needed & !(1 << other) };
                        state.change = Change::Confirming(node, needed);
                    });
                }
            }
            Change::Acknowledged => {}
        }
    }

    fn reads_view_first(&self) -> bool {
        self.drops(Mutation::ConfirmViewBeforeLease) || self.drops(Mutation::AsTheCodeWas)
    }

    fn change_view(
        &self,
        state: &State,
        node: u8,
        step: &mut impl FnMut(Action, &dyn Fn(&mut State)),
        next: impl Fn(u8) -> Change,
    ) {
        let me = usize::from(node);
        if state.nodes[me].is_settled || self.drops(Mutation::ConfirmUnsettled) {
            let needed = self.confirming(state, me);
            if needed != 0 {
                step(Action::ChangeView, &|state| state.change = next(needed));
            }
        }
    }

    fn may_trust(&self, state: &State, node: usize) -> bool {
        let needs = !self.drops(Mutation::RoleWithoutLease) && !self.drops(Mutation::CatalogWithoutLease);
        state.nodes[node].trusts || !needs
    }

    fn may_answer(&self, state: &State, node: usize) -> bool {
        state.nodes[node].wish.serves && self.answers_alone(state, node) && self.has_read(state, node)
    }

    /// Only steps that may end in "absent". A read barrier that begins after the request came folds what was acknowledged before it, so a
    /// host that needs one never denies it (rule B2).
    fn query_steps(&self, state: &State, give: &mut impl FnMut(Action, State)) {
        let is_acknowledged = state.change == Change::Acknowledged;
        let before = self.drops(Mutation::RoleBeforeRequest);
        if !is_acknowledged && !before {
            return;
        }
        let lacks = |node: u8| !state.nodes[usize::from(node)].has_folded;
        let answers = |node: u8| self.may_answer(state, usize::from(node));
        let next = match state.query {
            Query::None => return self.ask_steps(state, give),
            Query::Leased(node) if before => answers(node).then_some(Query::Passed(node)),
            Query::Leased(node) => (answers(node) && lacks(node)).then_some(Query::Denied(node)),
            Query::Viewed(node) => {
                (state.nodes[usize::from(node)].trusts && lacks(node)).then_some(Query::Denied(node))
            }
            Query::Passed(node) => (is_acknowledged && lacks(node)).then_some(Query::Denied(node)),
            Query::Remembered(node, false) => {
                self.may_trust(state, usize::from(node)).then_some(Query::Remembered(node, true))
            }
            Query::Remembered(node, true) => answers(node).then_some(Query::Denied(node)),
            Query::Denied(_) => None,
        };
        if let Some(next) = next {
            give_changed(Action::AskOn, state, give, |state| state.query = next);
        }
    }

    fn ask_steps(&self, state: &State, give: &mut impl FnMut(Action, State)) {
        for (node, me) in state.nodes.iter().enumerate() {
            let (id, hosts) = (node as u8, me.wish.serves);
            let is_missing = !hosts && self.drops(Mutation::MissingIsAbsent);
            let has_barrier = hosts && (self.drops(Mutation::NoBarrier) || me.old_barrier);
            if is_missing || has_barrier && !me.has_folded {
                give_changed(Action::Deny(node), state, give, |state| state.query = Query::Denied(id));
            }
            if me.has_folded {
                continue;
            }
            let first = match self.mutation {
                Some(Mutation::ViewBeforeLease) => self.may_answer(state, node).then_some(Query::Viewed(id)),
                Some(Mutation::MemoryBeforeRole) => hosts.then_some(Query::Remembered(id, false)),
                _ => self.may_trust(state, node).then_some(Query::Leased(id)),
            };
            if let Some(first) = first {
                give_changed(Action::Ask(node), state, give, |state| state.query = first);
            }
        }
    }
}

impl State {
    /// What the registry lists at this moment.
    pub(crate) fn listing(&self) -> Content {
        let there = self.records.iter().enumerate().filter(|(_, record)| record.is_there);
        there.fold(Content::default(), |all, (node, record)| all.join(Content::part(node, record.part)))
    }
}

/// Whether a node may go on answering from memory that lacks the entry: it read the log to its end before the entry was appended.
fn is_behind(node: &Node) -> bool {
    node.has_read && !node.has_folded
}

/// Whether no node is behind. After the append none falls behind any more: each read of the log, each confirmation and each append folds
/// the entry. So "absent" is never answered again, and who leads does not depend on the entry.
fn is_safe(state: &State) -> bool {
    state.is_logged && !state.nodes.iter().any(is_behind)
}

/// The same without what can never matter again: after the append, whether a node that is not behind has read or folded.
fn reduced(mut state: State) -> State {
    if state.is_logged {
        for node in state.nodes.iter_mut().filter(|node| !is_behind(node)) {
            (node.has_read, node.has_folded) = (true, true);
        }
    }
    state
}

/// The nodes in the order of the ring. The partitions begin at different nodes.
fn ring(partition: u8) -> [usize; NODES] {
    let first = usize::from(partition);
    [first, (first + 1) % NODES, (first + 2) % NODES]
}

fn give_changed(
    action: Action,
    state: &State,
    give: &mut impl FnMut(Action, State),
    change: impl FnOnce(&mut State),
) {
    let mut next = *state;
    change(&mut next);
    give(action, next);
}

fn changed(state: &State, change: &dyn Fn(&mut State)) -> State {
    let mut next = *state;
    change(&mut next);
    next
}
