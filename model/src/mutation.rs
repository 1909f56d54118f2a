//! Rules that can be dropped, one at a time.

/// A switch that drops exactly one rule, or one part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// The lease counts from the answer and not from before the request.
    LeaseFromAnswer,
    /// A follower of the registry renews the lease.
    FollowerRenews,
    /// At its return, a node keeps the settled view and its role in it.
    ReturnKeepsRole,
    /// At its return, a node loses its role, but the old view still counts as settled when it acknowledges.
    ReturnTrustsView,
    /// As the code was: the same, and acknowledgements read the view before they check the lease.
    AsTheCodeWas,
    /// Node 2 passes over node 1 when it looks for the leader.
    LocalOrder,
    /// The record names a view before the node acts on it.
    NameFirst,
    /// Every listing counts as settled.
    AlwaysSettled,
    /// A partition that was read to its end once counts as read for good.
    ReadForGood,
    /// A node that this one has not reached counts as isolated at once.
    LocalIsolation,
    /// A record is put without comparing its version.
    PutBlindly,
    /// After a put whose outcome is not known, a node takes a listing for settled in which its record is as it was.
    ForgetLatePut,
    /// A role does not need a valid lease.
    RoleWithoutLease,
    /// The view is read before the lease is checked.
    ViewBeforeLease,
    /// The leader answers without having read the log.
    LeaderUnread,
    /// A partition that was released and loaded again counts as read still.
    ReloadKeepsRead,
    /// The node that appended acknowledges at once.
    AcknowledgeAtOnce,
    /// The role is checked before the append, and not after the fold.
    RoleBeforeAppend,
    /// The leader's confirmation does not need a valid lease of the node that asks for it.
    ConfirmWithoutLease,
    /// The leader of a view that is not settled may confirm.
    ConfirmUnsettled,
    /// Any host may confirm in place of the leader.
    ConfirmByAnyHost,
    /// For acknowledgements, the view is read before the lease is checked.
    ConfirmViewBeforeLease,
    /// A new name is acknowledged when the leader alone has it.
    NameByLeaderAlone,
    /// The role was checked before the request came.
    RoleBeforeRequest,
    /// Memory is read before the role is checked.
    MemoryBeforeRole,
    /// A host answers without a read barrier.
    NoBarrier,
    /// A host answers after a read barrier that began before the request came.
    OldBarrier,
    /// An isolated node uses its catalog without a read barrier.
    IsolatedCatalog,
    /// A node uses its catalog without a read barrier while its view is not settled.
    UnsettledCatalog,
    /// A node uses its catalog without a read barrier although its lease may have ended.
    CatalogWithoutLease,
    /// A node uses its catalog without a read barrier before it has read it in this term.
    UnreadCatalog,
    /// A node that does not host the partition answers "absent".
    MissingIsAbsent,
    /// A gap in the trust of a lease that lived on begins no term. Nothing goes wrong without it; it is not among [`ALL`](Self::ALL).
    SameTermAfterGap,
}

impl Mutation {
    /// All that safety needs, in the order of the rules.
    pub const ALL: [Self; 32] = [
        Self::LeaseFromAnswer,
        Self::FollowerRenews,
        Self::ReturnKeepsRole,
        Self::ReturnTrustsView,
        Self::AsTheCodeWas,
        Self::LocalOrder,
        Self::NameFirst,
        Self::AlwaysSettled,
        Self::ReadForGood,
        Self::LocalIsolation,
        Self::PutBlindly,
        Self::ForgetLatePut,
        Self::RoleWithoutLease,
        Self::ViewBeforeLease,
        Self::LeaderUnread,
        Self::ReloadKeepsRead,
        Self::AcknowledgeAtOnce,
        Self::RoleBeforeAppend,
        Self::ConfirmWithoutLease,
        Self::ConfirmUnsettled,
        Self::ConfirmByAnyHost,
        Self::ConfirmViewBeforeLease,
        Self::NameByLeaderAlone,
        Self::RoleBeforeRequest,
        Self::MemoryBeforeRole,
        Self::NoBarrier,
        Self::OldBarrier,
        Self::IsolatedCatalog,
        Self::UnsettledCatalog,
        Self::CatalogWithoutLease,
        Self::UnreadCatalog,
        Self::MissingIsAbsent,
    ];

    /// The rule that it drops, by its number in `docs/cluster-protocol.md`.
    pub fn rule(self) -> &'static str {
        match self {
            Self::LeaseFromAnswer => "L1",
            Self::FollowerRenews => "L2",
            Self::ReturnKeepsRole | Self::ReturnTrustsView | Self::AsTheCodeWas => "L3",
            Self::LocalOrder => "V1",
            Self::NameFirst => "V2",
            Self::AlwaysSettled => "V3",
            Self::ReadForGood | Self::SameTermAfterGap => "V4",
            Self::LocalIsolation => "V5",
            Self::PutBlindly | Self::ForgetLatePut => "V6",
            Self::RoleWithoutLease | Self::ViewBeforeLease => "R1",
            Self::LeaderUnread => "R2",
            Self::ReloadKeepsRead => "R3",
            Self::AcknowledgeAtOnce
            | Self::RoleBeforeAppend
            | Self::ConfirmWithoutLease
            | Self::ConfirmUnsettled
            | Self::ConfirmByAnyHost
            | Self::ConfirmViewBeforeLease => "A1",
            Self::NameByLeaderAlone => "A2",
            Self::RoleBeforeRequest | Self::MemoryBeforeRole => "B1",
            Self::NoBarrier | Self::OldBarrier => "B2",
            Self::IsolatedCatalog
            | Self::UnsettledCatalog
            | Self::CatalogWithoutLease
            | Self::UnreadCatalog => "B3",
            Self::MissingIsAbsent => "B4",
        }
    }

    /// What it changes, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::LeaseFromAnswer => "the lease counts from the answer, not from before the request",
            Self::FollowerRenews => "a follower of the registry renews the lease",
            Self::ReturnKeepsRole => "a node that returns keeps its settled view and its role",
            Self::ReturnTrustsView => "a node that returns trusts its old view when it acknowledges",
            Self::AsTheCodeWas => {
                "as the code was: that, and acknowledgements read the view before the lease"
            }
            Self::LocalOrder => "node 2 passes over node 1 when it looks for the leader",
            Self::NameFirst => "the record names a view before the node acts on it",
            Self::AlwaysSettled => "every listing counts as settled",
            Self::ReadForGood => "one read of the log counts for all later terms",
            Self::LocalIsolation => "a node that was not reached counts as isolated at once",
            Self::PutBlindly => "a record is put without comparing its version",
            Self::ForgetLatePut => "a put whose outcome is not known is forgotten",
            Self::RoleWithoutLease => "a role needs no valid lease",
            Self::ViewBeforeLease => "a lookup reads the view before it checks the lease",
            Self::LeaderUnread => "the leader answers without having read the log",
            Self::ReloadKeepsRead => "a partition that was loaded again counts as read still",
            Self::AcknowledgeAtOnce => "the node that appended acknowledges at once",
            Self::RoleBeforeAppend => "the role is checked before the append only",
            Self::ConfirmWithoutLease => "an acknowledgement needs no valid lease",
            Self::ConfirmUnsettled => "the leader of a view that is not settled may confirm",
            Self::ConfirmByAnyHost => "any host may confirm in place of the leader",
            Self::ConfirmViewBeforeLease => "an acknowledgement reads the view before it checks the lease",
            Self::NameByLeaderAlone => "a name is acknowledged when the leader alone has it",
            Self::RoleBeforeRequest => "the role was checked before the request came",
            Self::MemoryBeforeRole => "memory is read before the role is checked",
            Self::NoBarrier => "a host answers without a read barrier",
            Self::OldBarrier => "a host answers after a barrier that began before the request",
            Self::IsolatedCatalog => "an isolated node uses its catalog without a barrier",
            Self::UnsettledCatalog => "the catalog is used while the view is not settled",
            Self::CatalogWithoutLease => "the catalog is used without a valid lease",
            Self::UnreadCatalog => "the catalog is used before it is read in this term",
            Self::SameTermAfterGap => "no new term after a gap in a lease that lived on",
            Self::MissingIsAbsent => "a node that does not host the partition answers \"absent\"",
        }
    }

    /// Whether it can show only where the subject is a name in the catalog.
    pub fn is_of_names(self) -> bool {
        matches!(
            self,
            Self::LocalIsolation
                | Self::NameByLeaderAlone
                | Self::IsolatedCatalog
                | Self::UnsettledCatalog
                | Self::CatalogWithoutLease
                | Self::UnreadCatalog
        )
    }
}
