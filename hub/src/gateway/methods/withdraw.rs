//! A caller who leaves withdraws what he asked for.

use super::Call;
use crate::actions::Actions;
use crate::hub::Tasks;
use hearth_shared::reading::RequestId;

/// Withdraws the request when it is dropped, unless it is kept.
pub(super) struct Withdraw {
    actions: Actions,
    tasks: Tasks,
    id: Option<RequestId>,
    by: String,
}

impl Call {
    /// Guards a request of this caller.
    pub(super) fn withdraw_when_gone(&self, id: RequestId) -> Withdraw {
        let hub = &self.gateway.hub;
        Withdraw {
            actions: hub.actions.clone(),
            tasks: hub.tasks.clone(),
            id: Some(id),
            by: self.client.label(),
        }
    }
}

impl Withdraw {
    /// It came to its end, or goes on without the caller.
    pub(super) fn keep(mut self) {
        self.id = None;
    }
}

impl Drop for Withdraw {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let (actions, by) = (self.actions.clone(), std::mem::take(&mut self.by));
        self.tasks.spawn(async move {
            if let Err(error) = actions.cancel(id, &format!("{by} (left)")).await {
                tracing::warn!(%id, %error, "cannot withdraw a request whose caller has gone");
            }
        });
    }
}
