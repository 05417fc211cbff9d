//! Opening the parts of a node, in the order in which they depend on each other.

use super::{Context, Failure};
use crate::capability::Board;
use crate::config::Config;
use crate::dispatch::Dispatcher;
use crate::guard::Guard;
use crate::identity::{Clock, load_or_create_key};
use crate::link::Node;
use crate::outbox::Outbox;
use crate::outbox::store::Bounds;
use crate::state::Lock;
use hearth_shared::identity::SecretKey;
use std::sync::Arc;

/// What commands on the stored state need: nobody else has the home, the guard is open.
pub(super) struct Held {
    pub(super) config: Config,
    pub(super) key: Arc<SecretKey>,
    pub(super) clock: Clock,
    pub(super) guard: Arc<Guard>,
    _lock: Lock,
}

/// A whole node.
pub(super) struct Opened {
    pub(super) held: Held,
    pub(super) outbox: Outbox,
    pub(super) node: Node,
}

/// Locks the home and opens the guard.
///
/// # Errors
/// [`Failure`]; when a node runs, it says so.
pub(super) fn hold(context: &Context, simulate: bool) -> Result<Held, Failure> {
    context.home.prepare()?;
    let mut config = Config::load(&context.home.config())?;
    config.board.simulate |= simulate;
    // The guard declares what is in the file or this; one rule for the default in both.
    config.name.get_or_insert_with(crate::identity::host_name);
    let lock = context.home.lock()?;
    let key = load_or_create_key(&context.home)?;
    let clock = Clock::start(config.trust_clock)?;
    let home = context.home.clone();
    let database = move || home.open_database().map_err(|e| e.to_string());
    let guard = Guard::open(database, key.clone(), clock.boot(), &config, context.home.dir())?;
    Ok(Held { config, key, clock, guard, _lock: lock })
}

/// Opens everything. Outputs of the board go into their safe states.
///
/// # Errors
/// [`Failure`].
pub(super) fn open(context: &Context, simulate: bool) -> Result<Opened, Failure> {
    let held = hold(context, simulate)?;
    let bounds =
        Bounds { items: held.config.outbox.max_items, bytes: held.config.outbox.max_mb * 1024 * 1024 };
    let outbox = Outbox::open(&context.home, bounds, held.clock)?;
    let name = held.config.name.clone().unwrap_or_default();
    let board = Board::open(&held.config.board, &name, context.home.dir(), Arc::new(outbox.clone()))?;
    let dispatcher = Dispatcher::new(held.guard.clone(), board.clone());
    let node = Node { guard: held.guard.clone(), board, dispatcher };
    Ok(Opened { held, outbox, node })
}
