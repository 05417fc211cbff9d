//! The schema, as a list of steps. `user_version` counts the steps taken; steps are only ever appended.

use super::StoreError;
use rusqlite::Connection;

const STEPS: &[&str] = &[
    include_str!("migrations/001_devices.sql"),
    include_str!("migrations/002_readings.sql"),
    include_str!("migrations/003_actions.sql"),
    include_str!("migrations/004_sessions.sql"),
    include_str!("migrations/005_page_links.sql"),
    include_str!("migrations/006_channels.sql"),
    include_str!("migrations/007_raw_from.sql"),
    include_str!("migrations/008_hosts.sql"),
    include_str!("migrations/009_push.sql"),
];

/// How many steps there are.
pub(super) fn version() -> usize {
    STEPS.len()
}

pub(super) fn run(connection: &mut Connection) -> Result<(), StoreError> {
    let done: usize =
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))? as usize;
    if done > STEPS.len() {
        return Err(StoreError::TooNew { found: done, known: STEPS.len() });
    }
    for (index, step) in STEPS.iter().enumerate().skip(done) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", (index + 1) as i64)?;
        transaction.commit()?;
    }
    Ok(())
}
