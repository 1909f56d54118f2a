//! One client: what it is, and its commands, one after another.
//!
//! Commands of one name for one filter that come in a row are a *run*: their keys are hashed as they are parsed and asked for, or added, together.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use umbel_core::engine::{Answer, Handle, Written};
use umbel_filter::Fingerprint;

use crate::acl::{Access, Denied, Login, Reason, User};
use crate::batch::Part;
use crate::clients::Client;
use crate::cluster::wire;
use crate::commands::bf::{self, Now};
use crate::commands::table::{self, Id, Row};
use crate::commands::{self, Outcome, Refusal};
use crate::event_loop::{Local, Room};
use crate::latency::Event;
use crate::names::{key_of, name_of};
use crate::node::{Node, unix_time};
use crate::resp::{Command, Limits, Parser, Reply};

/// Keys after which a run is answered even if it could go on.
const RUN_KEYS_MAX: usize = 1 << 14;
/// Bytes of a filter's name that a session keeps room for.
const KEY_BYTES_KEPT: usize = 256;

/// The reply to commands that show or change filters of all names, for a user of some.
const NOT_ALL_KEYS: &str =
    "NOPERM the command concerns all filters, and the user may not access all of them (~*)";

/// A client and what it has said so far.
#[derive(Debug)]
pub struct Session {
    /// What all clients share.
    pub node: Arc<Node>,
    /// What the clients of one event loop share.
    pub local: Rc<Local>,
    /// The client as others see it.
    pub client: Arc<Client>,
    /// Replies that were not sent yet.
    pub reply: Reply,
    /// Commands that are collected for EXEC.
    pub transaction: Option<Transaction>,
    /// Whether collected commands are being run.
    pub is_executing: bool,
    /// Whether the connection ends after the replies were sent.
    pub is_closing: bool,
    /// Whether the client wants replies.
    pub wants: Wants,
    /// Whether it is another node, which has shown that it knows the secret.
    pub is_peer: bool,
    /// Who the client is, if it has said so or need not.
    pub login: Option<Login>,
    /// When the clock was last looked at: one command ends and the next one begins then.
    pub(crate) now: Instant,
    run: Run,
    answers: Vec<Answer>,
}

/// Which replies a client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wants {
    /// All.
    #[default]
    Replies,
    /// All but the one to the next command.
    NotTheNext,
    /// None.
    Nothing,
}

/// Commands that are collected for EXEC.
#[derive(Debug, Default)]
pub struct Transaction {
    /// The commands with their words.
    pub commands: Vec<(Id, Vec<Vec<u8>>)>,
    /// Bytes of their words.
    pub bytes: usize,
    /// Whether one of them could not be taken.
    pub is_broken: bool,
}

/// Commands that are answered together. Between runs, it is what the last one was about: the next one mostly is about the same.
#[derive(Debug, Default)]
struct Run {
    /// The command, while the run is under way.
    id: Option<Id>,
    /// The command as the client writes it, and which one it is.
    name: Vec<u8>,
    named: Option<Id>,
    key: Vec<u8>,
    /// The bytes of its first command up to the item, if it has one item and more like it may follow.
    head: Vec<u8>,
    filter: Option<Arc<Handle>>,
    /// What names meant when the filter was found.
    names: u64,
    keys: Vec<Fingerprint>,
    /// How many keys each command has.
    lengths: Vec<u32>,
    started: Option<Instant>,
    /// A fixed filter that is full refuses keys; so that each client knows which of its own, they are added one command at a time.
    is_single: bool,
}

impl Session {
    /// A client that has just come.
    pub fn new(node: Arc<Node>, local: Rc<Local>, client: Arc<Client>) -> Self {
        let (login, now) = (node.acl.greet(), node.now());
        Self {
            node,
            local,
            client,
            reply: Reply::default(),
            transaction: None,
            is_executing: false,
            is_closing: false,
            wants: Wants::default(),
            is_peer: false,
            login,
            now,
            run: Run::default(),
            answers: Vec::new(),
        }
    }

    /// What the client may send.
    pub fn limits(&self) -> Limits {
        if self.is_peer {
            // What nodes tell each other does not depend on what clients may say.
            let most = wire::MESSAGE_BYTES_MAX;
            return Limits {
                arguments_max: 16,
                bulk_bytes_max: most,
                command_bytes_max: 2 * most,
                authenticated: true,
            };
        }
        self.node.limits(self.login.is_some())
    }

    /// Begins to count anew how long things take.
    pub(crate) fn look_at_clock(&mut self) {
        self.now = self.node.now();
    }

    /// Takes a command, if that can be done without waiting: it goes on with the run, or begins one about a filter that is there. If
    /// not, [`take`](Self::take) does it.
    #[inline]
    pub(crate) fn take_at_once(&mut self, command: Command<'_>) -> bool {
        self.go_on(command) || self.finish_at_once() && self.begin_at_once(command)
    }

    /// Takes the command at the start of `input`, if it is another one of the run that is under way and differs from its first one in
    /// nothing but the item. Gives how many bytes it has.
    #[inline]
    pub(crate) fn go_on_alike(&mut self, parser: &Parser, input: &[u8], limits: &Limits) -> Option<usize> {
        let run = &mut self.run;
        if run.id.is_none() || run.head.is_empty() || run.keys.len() >= RUN_KEYS_MAX {
            return None;
        }
        let (item, bytes) = parser.next_alike(input, &run.head, limits)?;
        run.lengths.push(1);
        run.push_item(item);
        Some(bytes)
    }

    /// Takes a command if it goes on with the run that is under way.
    #[inline]
    fn go_on(&mut self, command: Command<'_>) -> bool {
        let run = &mut self.run;
        let Some(id) = run.id else { return false };
        if command.get(0) != run.name || command.get(1) != run.key || run.is_single {
            return false;
        }
        if !is_many(id) && command.len() != 3 || command.len() < 3 || run.keys.len() >= RUN_KEYS_MAX {
            return false;
        }
        run.push(command);
        true
    }

    /// Takes a command.
    pub(crate) async fn take(&mut self, command: Command<'_>) {
        self.finish_run().await;
        let before = self.reply.len();
        let wanted = self.wants;
        if wanted == Wants::NotTheNext {
            self.wants = Wants::Replies;
        }
        let changes_wish = self.take_one(command, wanted).await;
        if wanted != Wants::Replies && !changes_wish {
            self.reply.truncate(before);
        }
    }

    /// Takes a command that does not go on with a run, and whose reply is wanted or not. Gives whether it made the client want replies, its own
    /// among them.
    async fn take_one(&mut self, command: Command<'_>, wanted: Wants) -> bool {
        let id = match self.find(command) {
            Ok(id) => id,
            Err(refusal) => {
                self.refuse(&refusal);
                return false;
            }
        };
        self.client.runs(id);
        if self.node.pause.is_on() {
            self.wait_for_pause(id).await;
            self.look_at_clock();
            if self.client.is_killed() {
                self.is_closing = true;
                return false;
            }
        }
        let collects = self.transaction.is_some()
            && !matches!(id, Id::Exec | Id::Discard | Id::Multi | Id::Quit | Id::Reset);
        if collects {
            self.collect(id, command);
            return false;
        }
        if self.node.clients.are_watched() && id != Id::Exec {
            self.show(id.row(), command);
        }
        if wanted == Wants::Replies && is_run(id) {
            // The keys wait for more of them; the run is answered before anything else happens.
            match self.filter_of_run(id, command.get(1)).await {
                Ok(filter) => self.begin_run(id, command, filter),
                Err(refusal) => {
                    self.ended(id, 1, self.now, true, Some(command));
                    self.refuse(&refusal);
                }
            }
            return false;
        }
        let done = self.run_one(id, command).await;
        if id == Id::Exec && self.node.clients.are_watched() {
            // What it ran was shown first.
            self.show(id.row(), command);
        }
        done && self.wants == Wants::Replies && matches!(id, Id::ClientReply | Id::Reset)
    }

    /// Waits for the end of a pause, the connection or the server, if the command has to.
    async fn wait_for_pause(&self, id: Id) {
        // Whoever paused too much can end it.
        if id == Id::ClientUnpause {
            return;
        }
        let collected = self.transaction.as_ref().filter(|_| id == Id::Exec);
        let writes = id.row().is("write")
            || collected
                .is_some_and(|collected| collected.commands.iter().any(|(id, _)| id.row().is("write")));
        let mut pause = pin!(self.node.pause.wait(writes, || self.node.now()));
        let mut stopped = pin!(self.node.stop.stopped());
        poll_fn(|context| {
            self.client.register(context.waker());
            let is_over = self.client.is_killed()
                || pause.as_mut().poll(context).is_ready()
                || stopped.as_mut().poll(context).is_ready();
            if is_over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Runs a command and writes its reply; gives whether it was done.
    pub(crate) async fn run_one(&mut self, id: Id, command: Command<'_>) -> bool {
        let before = self.reply.len();
        let started = self.now;
        let outcome = commands::run(id, self, command).await;
        self.count_sought(id.row(), command);
        self.ended(id, 1, started, outcome.is_err(), Some(command));
        if let Err(refusal) = &outcome {
            self.reply.truncate(before);
            self.refuse(refusal);
        }
        outcome.is_ok()
    }

    /// Runs a command that was collected.
    pub(crate) async fn run_collected(&mut self, id: Id, command: Command<'_>) {
        if self.node.clients.are_watched() {
            self.show(id.row(), command);
        }
        // It may have been permitted when it was collected, and to another user.
        if let Err(refusal) = self.permit(id.row(), command) {
            return self.refuse(&refusal);
        }
        self.run_one(id, command).await;
    }

    /// The command that is meant, if it is one that the client may run.
    fn find(&mut self, command: Command<'_>) -> Result<Id, Refusal> {
        let found = self.resolve(command);
        if found.is_err()
            && let Some(transaction) = &mut self.transaction
        {
            transaction.is_broken = true;
        }
        found
    }

    fn resolve(&mut self, command: Command<'_>) -> Result<Id, Refusal> {
        let Some(mut id) = table::find(command.get(0)).filter(|id| !id.row().name.contains('|')) else {
            return Err(commands::unknown(command));
        };
        if id.row().is("container") && command.len() > 1 {
            if id == Id::Debug {
                commands::server::permits_debug(self)?;
            }
            id = table::find_subcommand(id.row(), command.get(1))
                .ok_or_else(|| commands::unknown_subcommand(id.row(), command))?;
        }
        let row = id.row();
        if !row.takes(command.len()) {
            return Err(format!("ERR wrong number of arguments for '{}' command", row.name).into());
        }
        self.permit(row, command)?;
        if self.transaction.is_some() && row.is("no_multi") {
            return Err("ERR Command not allowed inside a transaction".into());
        }
        Ok(id)
    }

    /// Says why the client may not run a command, if it may not.
    pub fn permit(&mut self, row: &Row, command: Command<'_>) -> Outcome {
        let Some(login) = &mut self.login else {
            return if row.is("no_auth") { Ok(()) } else { Err("NOAUTH Authentication required.".into()) };
        };
        let node = &self.node;
        let Some(user) = node.acl.current(login) else {
            // Whoever the client was is gone.
            self.is_closing = true;
            return Err("NOAUTH Authentication required.".into());
        };
        if row.is("no_auth") {
            return Ok(());
        }
        let keys = row.key_positions(command.len()).map(|position| command.get(position));
        let Err(denied) = user.can(row.id as u16, keys, access(row)) else { return Ok(()) };
        let (reason, object) = match &denied {
            Denied::Command => (Reason::Command, row.name.as_bytes()),
            Denied::Key(key) => (Reason::Key, &key[..]),
        };
        let context = if self.transaction.is_some() { "multi" } else { "toplevel" };
        let now = unix_time().as_millis() as u64;
        node.acl.log().record(reason, context, object, user.name(), self.client.line(node.now()), now);
        Err(denied.reply(user.name(), row.name).into())
    }

    /// The user that the client is, as of its last command.
    pub(crate) fn user(&self) -> Option<Arc<User>> {
        self.login.as_ref().map(|login| Arc::clone(login.user()))
    }

    /// Refuses a command that concerns filters of all names, if the client may run it on some of them only.
    pub(crate) fn permit_all_keys(&self, id: Id) -> Outcome {
        let may = |login: &Login| login.user().can_on_all_keys(id as u16, access(id.row()));
        if self.login.as_ref().is_some_and(may) { Ok(()) } else { Err(NOT_ALL_KEYS.into()) }
    }

    /// All filters that a list shows to the client, which asked for it with this command.
    pub(crate) async fn filters(&self, id: Id) -> Outcome<Vec<Arc<Handle>>> {
        let mut filters = self.node.engine.find_all().await?;
        let user = self.user();
        filters.retain(|filter| {
            let definition = filter.definition();
            let key = key_of(&definition.name);
            user.as_ref().is_some_and(|user| user.can(id as u16, [&key[..]], Access::READ).is_ok())
        });
        Ok(filters)
    }

    fn collect(&mut self, id: Id, command: Command<'_>) {
        let Some(transaction) = &mut self.transaction else { return };
        let words: Vec<Vec<u8>> = command.from(0).map(<[u8]>::to_vec).collect();
        // An empty word takes memory too.
        transaction.bytes += words.iter().map(|word| word.len() + size_of::<Vec<u8>>()).sum::<usize>();
        if transaction.bytes > self.node.limits(true).command_bytes_max {
            transaction.is_broken = true;
            return self.refuse(&"ERR too many bytes in one transaction".into());
        }
        transaction.commands.push((id, words));
        self.client.about().collected = Some(transaction.commands.len());
        self.reply.simple("QUEUED");
    }

    /// Writes an error.
    pub fn refuse(&mut self, refusal: &Refusal) {
        self.local.metrics(&self.node).error(&refusal.0);
        if let Some(why) = refusal.0.strip_prefix(commands::CLOSED) {
            // Nothing will be written any more until somebody has looked at the disk.
            self.node.fail(why.trim().to_owned());
        }
        self.reply.error(&refusal.0);
    }

    /// Notes that commands were run.
    fn ended(
        &mut self,
        id: Id,
        commands: u64,
        started: Instant,
        is_error: bool,
        command: Option<Command<'_>>,
    ) {
        self.look_at_clock();
        let took = self.now.saturating_duration_since(started);
        let metrics = self.local.metrics(&self.node);
        metrics.called(id as u16, commands, took / commands.max(1) as u32);
        if is_error {
            metrics.failed(id as u16);
        }
        if self.node.latency.threshold_ms() > 0 {
            let event = if id.row().is("fast") { Event::FastCommand } else { Event::Command };
            self.node.latency.record(event, took);
        }
        // Who says nothing but a secret is not shown.
        if took >= self.node.slowlog.threshold() && !matches!(id, Id::Auth | Id::UmbelPeerHello) {
            let words: Vec<&[u8]> = match command {
                Some(command) if may_hold_secret(id) => {
                    command.from(0).take(2).chain([&b"(redacted)"[..]]).collect()
                }
                Some(command) => command.from(0).collect(),
                None => vec![&self.run.name, &self.run.key],
            };
            self.node.slowlog.push(&self.client, &words, took);
        }
    }

    /// Counts which of the filters that a command asked for are there.
    fn count_sought(&self, row: &Row, command: Command<'_>) {
        if row.is("readonly") {
            let metrics = self.local.metrics(&self.node);
            for key in row.key_positions(command.len()).map(|position| command.get(position)) {
                metrics.sought(1, self.node.engine.filter(&name_of(key)).is_some());
            }
        }
    }

    fn show(&self, row: &Row, command: Command<'_>) {
        if row.is("admin") || matches!(row.id, Id::Auth | Id::Hello) {
            return;
        }
        self.node.clients.show(&commands::monitor_line(&self.client, command));
    }
}

/// Runs.
impl Session {
    /// Begins a run if nothing stands in the way and the filter is there.
    fn begin_at_once(&mut self, command: Command<'_>) -> bool {
        let Some(id) = self.run.command(command.get(0)) else { return false };
        let node = &self.node;
        let is_plain = self.wants == Wants::Replies && self.transaction.is_none();
        if !is_plain || node.pause.is_on() || node.clients.are_watched() || !id.row().takes(command.len()) {
            return false;
        }
        // In this order: what was acknowledged before the command came is in the directory, and in what its version stands for.
        if !node.engine.has_all_names() {
            return false;
        }
        let names = node.engine.names_version();
        let filter = match self.run.filter_again(command.get(1), names) {
            Some(filter) => Some(filter),
            None => node.engine.filter(&name_of(command.get(1))),
        };
        if filter.is_none() && is_add(id) {
            return false;
        }
        let permitted =
            self.permit(id.row(), command).and_then(|()| check_kind_of_run(id, filter.as_deref()));
        self.client.runs(id);
        match permitted {
            Ok(()) => {
                self.begin_run(id, command, filter);
                self.run.names = names;
            }
            Err(refusal) => {
                self.ended(id, 1, self.now, true, None);
                self.refuse(&refusal);
            }
        }
        true
    }

    fn begin_run(&mut self, id: Id, command: Command<'_>, filter: Option<Arc<Handle>>) {
        let room = self.local.take_room();
        self.answers = room.answers;
        let run = &mut self.run;
        run.keys = room.keys;
        run.lengths = room.lengths;
        run.is_single = is_add(id) && filter.as_ref().is_some_and(|filter| commands::is_fixed(filter));
        run.id = Some(id);
        run.filter = filter;
        run.name.clear();
        run.name.extend_from_slice(command.get(0));
        run.named = Some(id);
        run.key.clear();
        run.key.extend_from_slice(command.get(1));
        run.started = Some(self.now);
        run.push(command);
        // What is shown or refused by keys is looked at one by one.
        run.is_single |= self.node.clients.are_watched();
        run.head.clear();
        if !is_many(id) && !run.is_single {
            run.head.extend_from_slice(command.head(2));
        }
    }

    /// The filter that a run is about; an add makes it if there is none.
    async fn filter_of_run(&self, id: Id, key: &[u8]) -> Result<Option<Arc<Handle>>, Refusal> {
        let filter = self.node.filter(&name_of(key)).await?;
        check_kind_of_run(id, filter.as_deref())?;
        if filter.is_some() || !is_add(id) {
            return Ok(filter);
        }
        self.make_filter_of_run(id, key).await
    }

    async fn make_filter_of_run(&self, id: Id, key: &[u8]) -> Result<Option<Arc<Handle>>, Refusal> {
        if is_cuckoo(id) {
            commands::cf::make(self, key, None).await.map(Some)
        } else {
            bf::make(self, key, None).await.map(Some)
        }
    }

    /// Answers the run that is under way, if that can be done without waiting.
    pub(crate) fn finish_at_once(&mut self) -> bool {
        let Some(id) = self.run.id else { return true };
        if is_add(id) {
            return false;
        }
        match &self.run.filter {
            Some(filter) => {
                // If not, it may be on disk, or another node has to be asked.
                if !self.node.engine.contains_at_once(filter, &self.run.keys, &mut self.answers) {
                    return false;
                }
            }
            None => {
                self.answers.clear();
                self.answers.resize(self.run.keys.len(), Answer::Absent);
            }
        }
        let outcome = self.write_answers(id);
        self.end_run(id, &outcome);
        true
    }

    /// Answers the run that is under way.
    pub(crate) async fn finish_run(&mut self) {
        if self.finish_at_once() {
            return;
        }
        if let Some(part) = self.add_run() {
            part.known().await;
            return if part.is_gone() { self.add_again().await } else { self.finish_adds(&part) };
        }
        let (Some(id), Some(filter)) = (self.run.id, self.run.filter.clone()) else { return };
        let outcome = self.look_up_run(id, &filter).await;
        self.end_run(id, &outcome);
    }

    fn end_run(&mut self, id: Id, outcome: &Outcome) {
        let commands = self.run.lengths.len() as u64;
        let started = self.run.started.take().unwrap_or(self.now);
        if let Err(refusal) = outcome {
            (0..commands).for_each(|_| self.refuse(refusal));
        }
        if !is_add(id) {
            self.local.metrics(&self.node).sought(commands, self.run.filter.is_some());
        }
        self.ended(id, commands, started, outcome.is_err(), None);
        self.local.give_room(Room {
            keys: std::mem::take(&mut self.run.keys),
            lengths: std::mem::take(&mut self.run.lengths),
            answers: std::mem::take(&mut self.answers),
        });
        self.run.id = None;
        // Names of filters are short; one that was not is not kept for the next run.
        if self.run.key.len() > KEY_BYTES_KEPT {
            self.run.forget_filter();
        }
    }

    async fn look_up_run(&mut self, id: Id, filter: &Arc<Handle>) -> Outcome {
        let part = self.local.lookups.put(filter, &self.run.keys);
        part.known().await;
        let failure = match part.answers() {
            Ok(answers) => {
                self.answers.clear();
                self.answers.extend_from_slice(answers);
                None
            }
            // Nobody is refused for what others asked.
            Err(_) if part.is_shared() => {
                match self.node.engine.contains(filter, &self.run.keys, None).await {
                    Ok(answers) => {
                        self.answers = answers;
                        None
                    }
                    Err(error) => Some(error),
                }
            }
            Err(error) => Some(error),
        };
        let is_gone = match &failure {
            None => self.answers.contains(&Answer::Unknown),
            Some(error) => matches!(error, umbel_core::Error::Gone(_)),
        };
        match (bf::again_if_gone(self, &self.run.key, filter, is_gone).await?, failure) {
            (Now::Same, None) => {}
            (Now::Same, Some(error)) => return Err(commands::failed_again(&self.run.key, error)),
            (Now::Nothing, _) => self.answers = vec![Answer::Absent; self.run.keys.len()],
            (Now::Other(now), _) => {
                self.check_takes_run(id, &now)?;
                let answers = self.node.engine.contains(&now, &self.run.keys, None).await;
                self.answers = answers.map_err(|error| commands::failed_again(&self.run.key, error))?;
            }
        }
        self.write_answers(id)
    }

    /// Says why keys that were hashed for the filter of a run cannot go to the one that has its name now, if so.
    fn check_takes_run(&self, id: Id, now: &Handle) -> Outcome {
        check_kind_of_run(id, Some(now))?;
        let family = self.run.filter.as_ref().map(|filter| filter.hasher().family());
        if family == Some(now.hasher().family()) { Ok(()) } else { Err(commands::dropped(&self.run.key)) }
    }

    /// Adds the keys of the run that is under way to the filter that its name means now: the one that it meant was dropped.
    pub(crate) async fn add_again(&mut self) {
        let Some(id) = self.run.id else { return };
        let outcome = match self.add_run_again(id).await {
            Ok(written) => {
                let refused = written.refused.as_deref();
                self.write_all_added(id, &written.answers, refused);
                Ok(())
            }
            Err(refusal) => Err(refusal),
        };
        self.end_run(id, &outcome);
    }

    async fn add_run_again(&self, id: Id) -> Outcome<Written> {
        let key = &self.run.key;
        let filter = match self.node.filter_again(&name_of(key)).await? {
            None => self.make_filter_of_run(id, key).await?,
            found => found,
        };
        let filter = filter.ok_or_else(|| commands::dropped(key))?;
        self.check_takes_run(id, &filter)?;
        let written = self.node.engine.add(&filter, &self.run.keys).await;
        written.map_err(|error| commands::failed_again(key, error))
    }

    fn write_answers(&mut self, id: Id) -> Outcome {
        if self.answers.contains(&Answer::Unknown) {
            return Err(commands::cannot_tell(&self.run.key));
        }
        let mut answers = self.answers.iter().map(|answer| *answer == Answer::Maybe);
        for length in &self.run.lengths {
            if is_many(id) {
                self.reply.array(*length as usize);
            }
            answers.by_ref().take(*length as usize).for_each(|maybe| self.reply.boolean(maybe));
        }
        Ok(())
    }

    /// Adds the keys of the run that is under way, if it adds any. When it is known what came of them, they are to be finished.
    pub(crate) fn add_run(&self) -> Option<Part<Written>> {
        self.run.id.filter(|id| is_add(*id))?;
        let filter = self.run.filter.as_ref()?;
        Some(self.local.adds.put(filter, &self.run.keys))
    }

    /// Answers a run of adds, of which it is known what came.
    pub(crate) fn finish_adds(&mut self, part: &Part<Written>) {
        let Some(id) = self.run.id else { return };
        let outcome = match part.answers() {
            Ok(answers) => {
                self.write_all_added(id, answers, part.refused());
                Ok(())
            }
            Err(error) => Err(error.into()),
        };
        self.end_run(id, &outcome);
    }

    fn write_all_added(&mut self, id: Id, mut answers: &[Option<bool>], refused: Option<&str>) {
        for length in &self.run.lengths {
            let (own, rest) = answers.split_at(*length as usize);
            answers = rest;
            write_added(&mut self.reply, id, own, refused);
        }
    }
}

fn write_added(reply: &mut Reply, id: Id, answers: &[Option<bool>], refused: Option<&str>) {
    let full = || Cow::from(refused.map_or_else(|| "ERR the filter is full".to_owned(), commands::full));
    if id == Id::CfAdd {
        match answers {
            [None] => reply.error("Filter is full"),
            _ => reply.boolean(true),
        }
        return;
    }
    if id == Id::BfAdd {
        match answers {
            [Some(new)] => reply.boolean(*new),
            _ => reply.error(&full()),
        }
        return;
    }
    let refused = if answers.contains(&None) { full() } else { Cow::default() };
    bf::write_many(reply, answers, &refused);
}

impl Run {
    /// The command of a run that is called so.
    fn command(&self, name: &[u8]) -> Option<Id> {
        self.named.filter(|_| name == self.name).or_else(|| table::find(name).filter(|id| is_run(*id)))
    }

    /// The filter of the run before, if it is the one of this name still.
    fn filter_again(&mut self, key: &[u8], names: u64) -> Option<Arc<Handle>> {
        let is_same = key == self.key && names == self.names;
        self.filter.take_if(|filter| is_same && !filter.expires())
    }

    fn forget_filter(&mut self) {
        self.filter = None;
        self.key = Vec::new();
        self.head = Vec::new();
    }

    #[inline]
    fn push(&mut self, command: Command<'_>) {
        self.lengths.push(command.len() as u32 - 2);
        match &self.filter {
            Some(filter) => {
                let hasher = filter.hasher();
                self.keys.extend(command.from(2).map(|key| hasher.fingerprint(key)));
            }
            None => self.keys.resize(self.keys.len() + command.len() - 2, Fingerprint::default()),
        }
    }

    #[inline]
    fn push_item(&mut self, item: &[u8]) {
        let hashed = self.filter.as_ref().map(|filter| filter.hasher().fingerprint(item));
        self.keys.push(hashed.unwrap_or_default());
    }
}

/// What a command does with its keys.
fn access(row: &Row) -> Access {
    if row.is("write") { Access::WRITE } else { Access::READ }
}

fn is_run(id: Id) -> bool {
    is_add(id) || matches!(id, Id::BfExists | Id::BfMexists | Id::CfExists | Id::CfMexists)
}

/// Whether a password may be among a command's arguments.
fn may_hold_secret(id: Id) -> bool {
    matches!(id, Id::Hello | Id::AclSetuser | Id::ConfigSet)
}

fn is_cuckoo(id: Id) -> bool {
    matches!(id, Id::CfAdd | Id::CfExists | Id::CfMexists)
}

fn check_kind_of_run(id: Id, filter: Option<&Handle>) -> Outcome {
    filter.map_or(Ok(()), |filter| commands::check_kind(filter, is_cuckoo(id)))
}

fn is_many(id: Id) -> bool {
    matches!(id, Id::BfMexists | Id::BfMadd | Id::CfMexists)
}

fn is_add(id: Id) -> bool {
    matches!(id, Id::BfAdd | Id::BfMadd | Id::CfAdd)
}

/// How long something took, for those who count in microseconds.
pub(crate) fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
