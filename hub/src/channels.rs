//! Channels: how people write to the hub.

/// One neutral message.
#[derive(Debug, Clone)]
pub struct Inbound {
    /// `terminal`, `webchat`.
    pub channel: String,
    /// Who writes, as the channel knows him.
    pub sender: String,
    /// The conversation: a session key or its short form.
    pub session: String,
    /// Unique per message: duplicates are dropped for 7 days.
    pub message_id: String,
    /// What he writes.
    pub text: String,
    /// Whether the sender may decide approvals: the gateway knows (scope `operator.approvals`), the text
    /// never does. Without it `/approve` is refused.
    pub may_decide: bool,
}
