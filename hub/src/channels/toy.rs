//! A whole channel in less than a hundred lines, the example of `ARCHITECTURE.md`: a chat over TCP in which a
//! line to the hub is `ID PERSON TEXT`, and one from it `PERSON TEXT`.

use super::adapter::{Adapter, Channel, ChannelError, Ground, Messages, SendError, Sent};
use super::message::{Conversation, Incoming, MessageId, Person, Text};
use super::{capabilities::Capabilities, inbox::Inbox};
use crate::config::AccessConfig;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, atomic::AtomicU64, atomic::Ordering::Relaxed};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::{net::TcpStream, sync::Mutex};

pub(crate) struct Toy;
/// `[channels.toy]`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ToyConfig {
    /// Address of the server, for example `192.168.1.5:7000`.
    pub(crate) address: String,
    /// Who may write.
    pub(crate) access: AccessConfig,
}

impl Channel for Toy {
    const NAME: &'static str = "toy";
    const CAN: Capabilities = Capabilities::PLAIN;
    type Config = ToyConfig;

    fn access(config: &ToyConfig) -> Option<&AccessConfig> {
        Some(&config.access)
    }

    fn open(config: &ToyConfig, _: &Ground) -> Result<Arc<dyn Adapter>, ChannelError> {
        Ok(Arc::new(Line { address: config.address.clone(), ..Line::default() }))
    }
}

#[derive(Debug, Default)]
struct Line {
    address: String,
    out: Mutex<Option<tokio::net::tcp::OwnedWriteHalf>>,
    sent: AtomicU64,
}

impl Adapter for Line {
    fn receive<'a>(&'a self, inbox: &'a Inbox) -> BoxFuture<'a, Result<(), ChannelError>> {
        Box::pin(async move {
            let fail = |e: std::io::Error| ChannelError::Unreachable(e.to_string());
            let (read, write) = TcpStream::connect(&self.address).await.map_err(fail)?.into_split();
            *self.out.lock().await = Some(write);
            inbox.connected();
            let mut lines = BufReader::new(read).lines();
            while let Some(line) = lines.next_line().await.map_err(fail)? {
                let mut words = line.splitn(3, ' ');
                let (Some(id), Some(person), Some(text)) = (words.next(), words.next(), words.next()) else {
                    continue;
                };
                inbox
                    .message(Incoming {
                        id: id.into(),
                        conversation: Conversation::direct(person),
                        sender: Person { id: person.into(), name: person.into() },
                        text: text.into(),
                        attachments: Vec::new(),
                        addressed: true,
                        genuine: true,
                    })
                    .await?;
            }
            Ok(())
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<String, ChannelError>> {
        Box::pin(async { Ok(format!("a client of {}", self.address)) })
    }

    fn direct<'a>(&'a self, person: &'a str) -> BoxFuture<'a, Result<Conversation, SendError>> {
        Box::pin(async move { Ok(Conversation::direct(person)) })
    }

    fn messages(&self) -> &dyn Messages {
        self
    }
}

impl Messages for Line {
    fn send<'a>(&'a self, to: &'a Conversation, text: &'a Text) -> Sent<'a> {
        Box::pin(async move {
            let line = format!("{} {}\n", to.id, text.body.replace('\n', "\u{2028}"));
            let mut out = self.out.lock().await;
            let Some(writer) = out.as_mut() else { return Err(SendError::Unreachable("no line".into())) };
            writer.write_all(line.as_bytes()).await.map_err(|e| SendError::Unknown(e.to_string()))?;
            Ok(MessageId(self.sent.fetch_add(1, Relaxed).to_string()))
        })
    }
}
