//! Keeps every adapter running, carries events to the outbox, and tells how each channel stands.

use super::adapter::{Adapter, ChannelError, SendError};
use super::cards::{Board, Cards};
use super::draft::Drafts;
use super::health::{Condition, Health, State};
use super::inbox::Inbox;
use super::message::{Part, Text};
use super::outbox::{rows, worker::Worker};
use super::people::{Knock, Member, People, PeopleError};
use super::{Capabilities, Opened, can};
use crate::actions::Actions;
use crate::bus::{Bus, ChatEvent, Event};
use crate::config::AccessConfig;
use crate::hub::Tasks;
use crate::nodes::Nodes;
use crate::routing::Router;
use crate::store::{Store, StoreError};
use hearth_shared::backoff::Backoff;
use hearth_shared::identity::{DeviceId, random};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;

/// Longest that a check or a test message may take.
const CHECK_LIMIT: Duration = Duration::from_secs(30);
/// An account that another program receives for, or whose token is wrong, is tried again this seldom.
const LONG_PAUSE: Duration = Duration::from_secs(60);

/// Parts of the hub that channels stand on.
#[derive(Debug)]
pub struct Below {
    /// Database.
    pub store: Store,
    /// Events.
    pub bus: Bus,
    /// Requests and approvals.
    pub actions: Actions,
    /// Media.
    pub nodes: Nodes,
    /// Messages.
    pub router: Router,
    /// Background work.
    pub tasks: Tasks,
    /// The hub's own id: the sender of files that people send.
    pub hub: DeviceId,
}

/// A channel as shown to people.
#[derive(Debug, Clone)]
pub struct ChannelView {
    /// Its name.
    pub name: &'static str,
    /// What it can do.
    pub can: Capabilities,
    /// Its access rules; none where the gateway lets people in.
    pub access: Option<AccessConfig>,
    /// How it is.
    pub condition: Condition,
    /// Messages that wait to be sent, and that failed within the last days.
    pub waiting: u64,
    /// See there.
    pub failed: u64,
    /// Who was let in with a code.
    pub members: Vec<Member>,
    /// Who waits to be let in.
    pub knocks: Vec<Knock>,
}

/// Why a channel could not be asked or tested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// There is none of this name.
    #[error("no channel `{0}` is configured; see `hearth channels list`")]
    NoChannel(String),
    /// It lets nobody in by itself.
    #[error("`{0}` has no list of people: the gateway lets its clients in, see `hearth devices`")]
    NoPeople(String),
    /// The account does not work.
    #[error("{0}")]
    Channel(#[from] ChannelError),
    /// The message was not sent.
    #[error("{0}")]
    Send(#[from] SendError),
    /// Nothing came back.
    #[error("no answer within {} s", CHECK_LIMIT.as_secs())]
    Late,
    /// People.
    #[error(transparent)]
    People(#[from] PeopleError),
    /// Database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug)]
struct Entry {
    name: &'static str,
    can: Capabilities,
    access: Option<AccessConfig>,
    adapter: Option<Arc<dyn Adapter>>,
    health: Arc<Health>,
    drafts: Arc<Drafts>,
    wake: Arc<Notify>,
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Channels {
    parts: Arc<Parts>,
}

#[derive(Debug)]
struct Parts {
    store: Store,
    people: People,
    cards: Cards,
    tasks: Tasks,
    entries: Vec<Entry>,
}

impl Channels {
    /// Starts what was opened. A channel that does not work is told of in its status and
    /// keeps nobody else from running.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) async fn start(below: Below, opened: Vec<Opened>) -> Result<Self, StoreError> {
        let Below { store, bus, actions, nodes, router, tasks, hub } = below;
        let people = People::new(store.clone());
        let cards = Cards::new(store.clone(), bus.clone(), actions, people.clone(), tasks.clone());
        let entries: Vec<Entry> = opened.into_iter().map(entry).collect();
        cards.set_boards(entries.iter().filter_map(board).collect());
        // From now on: what happens while the rest is set up must not be missed.
        let events = bus.subscribe();
        let parts = Arc::new(Parts { store, people, cards, tasks, entries });
        let channels = Self { parts };
        for entry in &channels.parts.entries {
            let (Some(access), Some(adapter)) = (&entry.access, &entry.adapter) else { continue };
            if let Some(cursor) = super::inbox::cursor(&channels.parts.store, entry.name).await? {
                adapter.restore(&cursor);
            }
            channels.launch(entry, access.clone(), adapter.clone(), &router, &nodes, hub);
        }
        channels.parts.cards.count_approvers().await?;
        let pump = channels.clone();
        channels.parts.tasks.spawn(async move { pump.pump(events).await });
        Ok(channels)
    }

    fn launch(
        &self,
        entry: &Entry,
        access: AccessConfig,
        adapter: Arc<dyn Adapter>,
        router: &Router,
        nodes: &Nodes,
        hub: DeviceId,
    ) {
        let parts = &self.parts;
        let stop = parts.tasks.stop.clone();
        let worker = Worker {
            channel: entry.name,
            can: entry.can,
            adapter: adapter.clone(),
            store: parts.store.clone(),
            wake: entry.wake.clone(),
            drafts: entry.drafts.clone(),
            health: entry.health.clone(),
            stop: stop.clone(),
        };
        parts.tasks.spawn(Box::pin(worker.run()));
        let inbox = Inbox {
            channel: entry.name,
            access,
            adapter: adapter.clone(),
            store: parts.store.clone(),
            people: parts.people.clone(),
            router: router.clone(),
            media: nodes.media().clone(),
            cards: parts.cards.clone(),
            drafts: entry.drafts.clone(),
            health: entry.health.clone(),
            wake: entry.wake.clone(),
            hub,
        };
        let health = entry.health.clone();
        parts.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = Box::pin(receive(&*adapter, &inbox, &health)) => {}
            }
        });
    }

    /// From the bus to the outbox and the cards.
    async fn pump(self, mut events: tokio::sync::broadcast::Receiver<Event>) {
        self.told(self.hand_over().await);
        self.told(self.parts.cards.reconcile().await);
        loop {
            let event = tokio::select! {
                () = self.parts.tasks.stop.cancelled() => return,
                event = events.recv() => event,
            };
            match event {
                Ok(Event::Chat(chat)) => self.told(self.chat(&chat).await),
                Ok(Event::NodeConnected { node }) => self.told(self.parts.cards.node_back(node).await),
                Ok(Event::ApprovalRequested { id }) => self.parts.cards.requested(id),
                Ok(Event::ApprovalResolved { id }) => self.told(self.parts.cards.resolved(id).await),
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => {
                    self.told(self.hand_over().await);
                    self.told(self.parts.cards.reconcile().await);
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn told(&self, outcome: Result<(), StoreError>) {
        if let Err(error) = outcome
            && !matches!(error, StoreError::Closed)
        {
            tracing::error!(%error, "a channel missed something; it is taken up at the next event");
        }
    }

    async fn chat(&self, chat: &ChatEvent) -> Result<(), StoreError> {
        match chat.state {
            "delta" => {
                let text = chat.fields.pointer("/message/content/0/text").and_then(|t| t.as_str());
                let now = tokio::time::Instant::now();
                for entry in self.parts.entries.iter().filter(|e| e.can.edits) {
                    if entry.drafts.update(&chat.run_id, text.unwrap_or_default(), now) {
                        entry.wake.notify_one();
                    }
                }
                Ok(())
            }
            "status" => self.waits(chat).await,
            _ => {
                for entry in &self.parts.entries {
                    entry.drafts.end(&chat.run_id);
                }
                self.hand_over().await
            }
        }
    }

    /// Tells a conversation what its request waits for. Who decides himself gets the card instead.
    async fn waits(&self, chat: &ChatEvent) -> Result<(), StoreError> {
        let phase = chat.fields["phase"].as_str().unwrap_or_default();
        let Some(text) = chat.fields["text"].as_str() else { return Ok(()) };
        for entry in &self.parts.entries {
            let Some((to, may_decide)) = entry.drafts.find(&chat.run_id) else { continue };
            if may_decide && phase == "waiting_approval" {
                continue;
            }
            let key = format!("run/{}/{phase}/{}", chat.run_id, chat.seq);
            let part = Part::Text { text: Text::plain(text) };
            let name = entry.name;
            self.parts.store.write(move |t| rows::enqueue(t, &key, name, &to.conversation, &part)).await?;
            entry.wake.notify_one();
        }
        Ok(())
    }

    async fn hand_over(&self) -> Result<(), StoreError> {
        loop {
            let (ready, all) = self.parts.store.write(|t| rows::hand_over(t, can)).await?;
            for entry in self.parts.entries.iter().filter(|e| ready.iter().any(|c| c == e.name)) {
                entry.wake.notify_one();
            }
            if all {
                return Ok(());
            }
        }
    }

    fn find(&self, name: &str) -> Result<&Entry, HostError> {
        let entry = self.parts.entries.iter().find(|e| e.name == name);
        let safe = || hearth_shared::identity::display_safe(name, 40);
        entry.ok_or_else(|| HostError::NoChannel(safe()))
    }

    fn find_with_people(&self, name: &str) -> Result<&Entry, HostError> {
        let entry = self.find(name)?;
        if entry.access.is_none() {
            return Err(HostError::NoPeople(entry.name.into()));
        }
        Ok(entry)
    }

    /// All channels.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn list(&self) -> Result<Vec<ChannelView>, StoreError> {
        let mut list = Vec::new();
        for entry in &self.parts.entries {
            let name = entry.name;
            let (waiting, failed) = self.parts.store.read(move |c| rows::counts(c, name)).await?;
            let condition = entry.health.now();
            list.push(ChannelView {
                name,
                can: entry.can,
                access: entry.access.clone(),
                condition,
                waiting,
                failed,
                members: self.parts.people.members(name).await?,
                knocks: self.parts.people.knocks(name).await?,
            });
        }
        Ok(list)
    }

    /// One line for each that lets people in by itself, for example `telegram: up`.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let configured = self.parts.entries.iter().filter(|e| e.access.is_some());
        configured.map(|e| format!("{}: {}", e.name, e.health.now().state.as_str())).collect()
    }

    /// Asks the platform who we are there, and sends a message to a person if one is named.
    ///
    /// # Errors
    /// [`HostError`].
    pub async fn test(&self, name: &str, person: Option<&str>) -> Result<String, HostError> {
        let entry = self.find(name)?;
        let Some(adapter) = &entry.adapter else {
            let why = entry.health.now().error.unwrap_or_default();
            return Err(HostError::Channel(ChannelError::Config(why)));
        };
        let work = async {
            let who = adapter.check().await?;
            if let Some(person) = person {
                let to = adapter.direct(person).await?;
                adapter.messages().send(&to, &Text::plain("This is a test message of your hub.")).await?;
            }
            Ok(who)
        };
        tokio::time::timeout(CHECK_LIMIT, work).await.unwrap_or(Err(HostError::Late))
    }

    /// Lets the person in who was given a code.
    ///
    /// # Errors
    /// [`HostError`].
    pub async fn allow(
        &self,
        name: &str,
        code: &str,
        may_decide: bool,
        by: &str,
    ) -> Result<Member, HostError> {
        let entry = self.find_with_people(name)?;
        let member = self.parts.people.allow(entry.name, code, may_decide, by).await?;
        self.parts.cards.count_approvers().await?;
        // What waits already waits for him too.
        self.parts.cards.reconcile().await?;
        let key = format!("welcome/{}/{}/{}", entry.name, member.person, member.added_ms);
        if let Some(adapter) = &entry.adapter
            && let Ok(Ok(to)) = tokio::time::timeout(CHECK_LIMIT, adapter.direct(&member.person)).await
        {
            let part = Part::Text { text: Text::plain("You are in. Say `help` to see what I can do.") };
            let name = entry.name;
            self.parts.store.write(move |t| rows::enqueue(t, &key, name, &to, &part)).await?;
            entry.wake.notify_one();
        }
        Ok(member)
    }

    /// Forgets a person who was let in.
    ///
    /// # Errors
    /// [`HostError`].
    pub async fn remove(&self, name: &str, person: &str, by: &str) -> Result<(), HostError> {
        let entry = self.find_with_people(name)?;
        self.parts.people.remove(entry.name, person, by).await?;
        self.parts.cards.count_approvers().await?;
        Ok(())
    }
}

fn entry(opened: Opened) -> Entry {
    let Opened { name, can, access, adapter } = opened;
    // Clients of the gateway are there as soon as it listens.
    let state = if access.is_some() { State::Starting } else { State::Up };
    let health = Arc::new(Health::new(name, state));
    let adapter = match adapter {
        Ok(adapter) => Some(adapter),
        Err(error) => {
            health.down(&error);
            None
        }
    };
    Entry { name, can, access, adapter, health, drafts: Arc::default(), wake: Arc::default() }
}

fn board(entry: &Entry) -> Option<Board> {
    Some(Board {
        name: entry.name,
        can: entry.can,
        access: entry.access.clone()?,
        adapter: entry.adapter.clone()?,
        wake: entry.wake.clone(),
    })
}

/// Receives for ever, with growing pauses after failures.
async fn receive(adapter: &dyn Adapter, inbox: &Inbox, health: &Health) {
    let mut backoff = Backoff::default();
    loop {
        let began = Instant::now();
        let outcome = adapter.receive(inbox).await;
        let jitter = random::<8>().map_or(0, u64::from_le_bytes);
        backoff.connection_ended(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let mut pause = Duration::from_millis(backoff.next_delay_ms(jitter));
        if let Err(error) = outcome {
            health.down(&error);
            match error {
                ChannelError::Slow(wait) => pause = wait,
                ChannelError::Config(_) | ChannelError::Credentials(_) => pause = LONG_PAUSE,
                _ => {}
            }
        }
        tokio::time::sleep(pause.min(LONG_PAUSE)).await;
    }
}
