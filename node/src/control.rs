//! The control socket: how `status`, `approvers`, `audit` and `always` reach a node that runs and holds the database.
//!
//! One JSON line each way over `control.sock` (0600, in a directory that only the node's user can write):
//! whoever can connect could edit the node's files as well, so nothing more is asked.

pub mod ledger;

use crate::guard::{Guard, GuardError};
use crate::state::{Home, StateError};
use hearth_shared::approver::Approver;
use hearth_shared::identity::DeviceId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

/// Longest line either way, in bytes.
const MAX_LINE: u64 = 256 * 1024;
/// Longest wait for one exchange.
const DEADLINE: Duration = Duration::from_secs(10);
/// Conversations at once.
const MAX_CLIENTS: usize = 4;
/// Longest path a Unix socket address takes.
const MAX_SOCKET_PATH: usize = 107;

/// What may be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// The node's state.
    Status,
    /// The list of approvers, or a change of it.
    Approvers { change: ApproverChange },
    /// The audit log or the always-rules.
    Ledger { query: ledger::Query },
}

/// A change made locally, by the owner of the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum ApproverChange {
    /// None: only list.
    List,
    /// Add.
    Add(Approver),
    /// Remove.
    Remove(DeviceId),
    /// Take off all persons.
    Reset,
    /// Make a new recovery key.
    Recovery,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// Done.
    Ok(Value),
    /// One line.
    Error(String),
}

/// Carries out a change on an open guard: in the running node, or in a command that holds the home itself.
///
/// # Errors
/// The guard's.
pub fn change_approvers(guard: &Guard, change: ApproverChange) -> Result<Value, GuardError> {
    if guard.hub().is_none() && !matches!(change, ApproverChange::List) {
        let why =
            "this node is not paired: its first approvers come with pairing; run `hearth-node pair CODE`";
        return Err(GuardError::Refused(why.into()));
    }
    let mut phrase = None;
    let set = match change {
        ApproverChange::List => guard.approvers(),
        ApproverChange::Add(approver) => guard.add_approver(approver)?,
        ApproverChange::Remove(id) => guard.remove_approver(&id)?,
        ApproverChange::Reset => guard.reset_approvers()?,
        ApproverChange::Recovery => {
            let (words, set) = guard.create_recovery()?;
            // It goes to the owner's terminal and nowhere else.
            phrase = Some(words.expose().to_owned());
            set
        }
    };
    let list: Vec<Value> = set
        .approvers
        .iter()
        .map(|a| json!({"id": a.id(), "key": a.key, "kind": a.kind, "admin": a.admin, "name": a.name}))
        .collect();
    Ok(json!({
        "epoch": set.epoch,
        "approvers": list,
        "recovery": set.recovery.map(|k| k.device_id()),
        "personInForce": guard.person_in_force(),
        "phrase": phrase,
    }))
}

/// The socket's path, also when the home's is too long for an address.
fn short_path(home: &Home) -> io::Result<(PathBuf, Option<std::fs::File>)> {
    let path = home.control();
    if path.as_os_str().len() <= MAX_SOCKET_PATH {
        return Ok((path, None));
    }
    let dir = std::fs::File::open(home.dir())?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&dir);
    Ok((PathBuf::from(format!("/proc/self/fd/{fd}/control.sock")), Some(dir)))
}

/// The listening socket; its file goes when it is dropped.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    home: Home,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(self.home.control()) {
            tracing::debug!(%error, "control socket");
        }
    }
}

impl Server {
    /// Binds. The caller holds the home's lock, so a file that is there is left over from a crash.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn bind(home: &Home) -> Result<Self, StateError> {
        let path = home.control();
        let failed = || StateError::io("listen on", &path);
        crate::state::remove_durably(&path).map_err(failed())?;
        let (address, _dir) = short_path(home).map_err(failed())?;
        let listener = UnixListener::bind(&address).map_err(failed())?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(failed())?;
        Ok(Self { listener, home: home.clone() })
    }

    /// Answers until `stop`, a few conversations at a time.
    pub async fn serve<F>(self, stop: CancellationToken, answer: impl Fn(Request) -> F)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let mut clients = tokio::task::JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = clients.join_next(), if !clients.is_empty() => continue,
                accepted = self.listener.accept(), if clients.len() < MAX_CLIENTS => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: some will be free again.
                    tracing::warn!(%error, "control socket");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let mut stream = BufReader::new(stream);
            match tokio::time::timeout(DEADLINE, read_line::<Request>(&mut stream)).await {
                Ok(Ok(request)) => {
                    let work = answer(request);
                    clients.spawn(async move {
                        let exchange = async {
                            let answer = work.await;
                            write_line(stream.get_mut(), &answer).await
                        };
                        if !matches!(tokio::time::timeout(DEADLINE, exchange).await, Ok(Ok(()))) {
                            tracing::debug!("control client left");
                        }
                    });
                }
                Ok(Err(error)) => {
                    let refusal = Answer::Error(format!("not a request: {error}"));
                    if write_line(stream.get_mut(), &refusal).await.is_err() {
                        tracing::debug!("control client left");
                    }
                }
                Err(_) => tracing::debug!("control client said nothing"),
            }
        }
        clients.shutdown().await;
    }
}

/// Asks the running node; `None` when none listens.
///
/// # Errors
/// When it does not answer as it should.
pub async fn ask(home: &Home, request: &Request) -> io::Result<Option<Answer>> {
    let (address, _dir) = short_path(home)?;
    let exchange = async {
        let stream = match UnixStream::connect(&address).await {
            Ok(stream) => stream,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let mut stream = BufReader::new(stream);
        write_line(stream.get_mut(), request).await?;
        read_line(&mut stream).await.map(Some)
    };
    tokio::time::timeout(DEADLINE, exchange)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s")))
}

async fn read_line<T: serde::de::DeserializeOwned>(stream: &mut BufReader<UnixStream>) -> io::Result<T> {
    let mut line = Vec::new();
    stream.take(MAX_LINE).read_until(b'\n', &mut line).await?;
    serde_json::from_slice(&line).map_err(io::Error::from)
}

async fn write_line<T: Serialize + Sync>(stream: &mut UnixStream, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn exchange(dir: &std::path::Path) {
        let home = Home::locate(Some(dir.to_path_buf()));
        home.prepare().unwrap();
        assert_eq!(ask(&home, &Request::Status).await.unwrap(), None, "nobody listens");
        std::fs::write(home.control(), b"left over").unwrap();
        let server = Server::bind(&home).unwrap();
        let mode = std::fs::metadata(home.control()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let stop = CancellationToken::new();
        let serve = server.serve(stop.clone(), |request| async move {
            match request {
                Request::Status => Answer::Ok(json!({"state": "online"})),
                Request::Approvers { .. } | Request::Ledger { .. } => Answer::Error("no".into()),
            }
        });
        let client = async {
            let answer = ask(&home, &Request::Status).await.unwrap();
            assert_eq!(answer, Some(Answer::Ok(json!({"state": "online"}))));
            let change = ApproverChange::Remove(DeviceId([1; 32]));
            let answer = ask(&home, &Request::Approvers { change }).await.unwrap();
            assert_eq!(answer, Some(Answer::Error("no".into())));
            let (address, _dir) = short_path(&home).unwrap();
            let mut stream = BufReader::new(UnixStream::connect(address).await.unwrap());
            stream.get_mut().write_all(b"{\"op\":\"explode\"}\n").await.unwrap();
            assert!(matches!(read_line::<Answer>(&mut stream).await.unwrap(), Answer::Error(_)));
            stop.cancel();
        };
        tokio::join!(serve, client);
        assert!(!home.control().exists());
    }

    #[tokio::test]
    async fn asks_and_answers_over_a_private_socket() {
        let dir = tempfile::tempdir().unwrap();
        exchange(&dir.path().join("home")).await;
        exchange(&dir.path().join("long".repeat(40))).await;
    }
}
