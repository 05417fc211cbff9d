//! `hearth-node reset`

use super::open::hold;
use super::{Context, Failure, confirm};
use crate::state::{StateError, remove_durably};
use serde_json::json;

/// Arguments of `reset`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// New identity, no hub, no approvers, no always-rules, empty outbox. node.toml stays: it is the owner's.
///
/// # Errors
/// [`Failure`]; when the node runs, nothing is touched.
pub(super) async fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let question = "Forget the hub, the approvers, always-rules, unsent readings and this node's identity?";
    if !arguments.yes && !confirm(question).await? {
        return Err(Failure::new(1, "nothing was changed"));
    }
    let held = hold(context, false)?;
    let home = &context.home;
    let remove = |path: std::path::PathBuf| remove_durably(&path).map_err(StateError::io("remove", &path));
    // The hub first and the key last: power may go between any two, and at every point either nothing
    // is paired or `reset` can be run again.
    remove(home.hub())?;
    held.guard.forget()?;
    remove(home.outbox())?;
    let database = home.database();
    // The audit log belongs to the key that signed it: both are put aside together.
    let old = held.key.device_id().short();
    drop(held);
    let _lock = home.lock()?;
    let aside = home.dir().join(format!("node-{old}.db"));
    std::fs::rename(&database, &aside).map_err(StateError::io("put aside", &database))?;
    remove(home.key())?;
    let key = crate::identity::load_or_create_key(home)?;
    let value = json!({"node": key.device_id(), "audit": aside});
    context.print(&value, |_| {
        format!(
            "Reset. New identity {}; the audit log so far is in {}.\nPair with `hearth-node pair CODE`.\n",
            key.device_id().short(),
            aside.display()
        )
    })
}
