//! The board as the dispatcher sees it.

use crate::capability::{Board, Inventory, Output, Prepared};
use hearth_shared::command::Invocation;
use hearth_shared::error::CommandError;
use std::future::Future;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What the dispatcher needs of a board. [`Board`] is it; tests put their own in its place.
pub trait Runs: Send + Sync + std::fmt::Debug + 'static {
    /// See [`Board::inventory`].
    fn inventory(&self) -> Inventory;
    /// See [`Board::prepare`].
    fn prepare(&self, invocation: Invocation) -> impl Future<Output = Result<Prepared, CommandError>> + Send;
    /// See [`Board::run`].
    fn run(
        &self,
        prepared: Prepared,
        timeout: Duration,
        cancel: CancellationToken,
    ) -> impl Future<Output = Result<Output, CommandError>> + Send;
}

impl Runs for Board {
    fn inventory(&self) -> Inventory {
        Self::inventory(self)
    }
    async fn prepare(&self, invocation: Invocation) -> Result<Prepared, CommandError> {
        Self::prepare(self, invocation).await
    }
    async fn run(
        &self,
        prepared: Prepared,
        timeout: Duration,
        cancel: CancellationToken,
    ) -> Result<Output, CommandError> {
        Self::run(self, prepared, timeout, cancel).await
    }
}
