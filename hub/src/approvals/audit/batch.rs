//! Records of requests without effects, committed in groups.

use super::Audit;
use crate::hub::Tasks;
use crate::store::{Store, StoreError};
use hearth_shared::chain::Head;
use hearth_shared::identity::DeviceId;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc;

/// Longest wait of a record in memory.
const GROUP: Duration = Duration::from_secs(1);
/// Records in memory; who brings one more waits.
const CAPACITY: usize = 512;

/// One request that only looked at something.
#[derive(Debug)]
pub struct Seen {
    /// Kind of the record.
    pub kind: &'static str,
    /// Its body.
    pub body: Value,
    /// The node, the hub's head it was sent, and the head of its own log that it answered with.
    pub heads: Option<(DeviceId, Head, Option<Head>)>,
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Batch {
    queue: mpsc::Sender<Seen>,
}

impl Batch {
    /// Starts the writer. It commits what is queued before it ends.
    #[must_use]
    pub fn start(store: Store, tasks: &Tasks) -> Self {
        let (queue, incoming) = mpsc::channel(CAPACITY);
        let stop = tasks.stop.clone();
        tasks.spawn(async move { write(store, incoming, stop).await });
        Self { queue }
    }

    /// Queues a record. Waits only while the queue is full; after the hub's stop it is dropped.
    pub async fn add(&self, seen: Seen) {
        let _ = self.queue.send(seen).await;
    }
}

async fn write(store: Store, mut incoming: mpsc::Receiver<Seen>, stop: tokio_util::sync::CancellationToken) {
    let mut group = Vec::new();
    loop {
        let more = tokio::select! {
            first = incoming.recv() => first,
            () = stop.cancelled() => None,
        };
        let last = more.is_none();
        if last {
            incoming.close();
            while let Some(seen) = incoming.recv().await {
                group.push(seen);
            }
        } else {
            group.extend(more);
            tokio::select! {
                () = tokio::time::sleep(GROUP) => {}
                () = stop.cancelled() => {}
            }
            while group.len() < CAPACITY
                && let Ok(seen) = incoming.try_recv()
            {
                group.push(seen);
            }
        }
        if !group.is_empty() {
            let records = std::mem::take(&mut group);
            if let Err(error) = store.write(move |t| commit(t, &records)).await {
                tracing::error!(%error, "audit records were not written");
            }
        }
        if last {
            return;
        }
    }
}

fn commit(transaction: &rusqlite::Transaction<'_>, records: &[Seen]) -> Result<(), StoreError> {
    for seen in records {
        Audit::append_in(transaction, seen.kind, &seen.body)?;
        if let Some((node, sent, answered)) = &seen.heads {
            Audit::note_held_in(transaction, &format!("node:{node}"), *sent)?;
            if let Some(head) = answered {
                Audit::note_receipt_in(transaction, node, *head)?;
            }
        }
    }
    Ok(())
}
