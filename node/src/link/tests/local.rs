//! A node without guard and board: commands that answer, hang, or give pictures.

use super::super::{Local, Pending};
use crate::capability::Bytes;
use crate::dispatch::Reply;
use hearth_shared::approver::{ApproverSet, ApproversChange};
use hearth_shared::chain::Head;
use hearth_shared::challenge::SignedChallenge;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::Grant;
use hearth_shared::identity::{Digest, SecretKey};
use hearth_shared::link::{Declaration, Invoke, Outcome, ResultFrame};
use hearth_shared::reading::RequestId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(super) struct Fake {
    key: Arc<SecretKey>,
    pub(super) declaration: Mutex<Declaration>,
    pub(super) approvers: Mutex<ApproverSet>,
    running: Mutex<HashMap<RequestId, CancellationToken>>,
    /// Lets hanging commands go on.
    pub(super) release: CancellationToken,
    pub(super) started: watch::Sender<usize>,
    pub(super) finished: watch::Sender<usize>,
}

impl Fake {
    pub(super) fn new(key: Arc<SecretKey>) -> Self {
        let declaration = Declaration {
            name: "garage".into(),
            version: "0".into(),
            platform: "linux".into(),
            arch: "x".into(),
            model: String::new(),
            simulated: true,
            commands: Vec::new(),
            cameras: Vec::new(),
            pins: Vec::new(),
            sensors: Vec::new(),
            policy: Digest([1; 32]),
            person_ready: false,
        };
        Self {
            key,
            declaration: Mutex::new(declaration),
            approvers: Mutex::default(),
            running: Mutex::default(),
            release: CancellationToken::new(),
            started: watch::channel(0).0,
            finished: watch::channel(0).0,
        }
    }

    fn reply(&self, request: RequestId, outcome: Outcome, attachments: Vec<Bytes>) -> Reply {
        let count = attachments.len() as u32;
        let frame = ResultFrame::sign(&self.key, request, outcome, count, Head::default());
        Reply { frame, attachments }
    }
}

impl Local for Fake {
    fn declaration(&self) -> Declaration {
        self.declaration.lock().unwrap().clone()
    }
    fn approvers(&self) -> ApproverSet {
        self.approvers.lock().unwrap().clone()
    }
    fn change_approvers(&self, change: &ApproversChange) -> Result<ApproverSet, String> {
        let mut set = self.approvers.lock().unwrap();
        *set = set.apply(&self.key.device_id(), change).map_err(|e| e.to_string())?;
        Ok(set.clone())
    }
    fn head(&self) -> Head {
        Head::default()
    }
    fn hub_head(&self) -> Head {
        Head::default()
    }
    fn welcomed(&self, _: Head) -> Pending<'_, ()> {
        Box::pin(std::future::ready(()))
    }
    fn invoke(&self, invoke: Invoke) -> Pending<'_, Reply> {
        Box::pin(async move {
            let cancel = CancellationToken::new();
            self.running.lock().unwrap().insert(invoke.request, cancel.clone());
            self.started.send_modify(|n| *n += 1);
            let done = Outcome::Done { result: invoke.params.clone() };
            let reply = match invoke.command.as_str() {
                "hang" => tokio::select! {
                    () = self.release.cancelled() => self.reply(invoke.request, done, Vec::new()),
                    () = cancel.cancelled() => {
                        let error = CommandError::new(ErrorCode::Cancelled, "withdrawn");
                        self.reply(invoke.request, Outcome::Failed(error), Vec::new())
                    }
                },
                "picture" => {
                    let size: usize = invoke.params.parse().unwrap();
                    let data = (0..size).map(|i| (i % 251) as u8).collect();
                    self.reply(invoke.request, done, vec![Bytes { mime: "image/jpeg".into(), data }])
                }
                _ => self.reply(invoke.request, done, Vec::new()),
            };
            self.running.lock().unwrap().remove(&invoke.request);
            self.finished.send_modify(|n| *n += 1);
            reply
        })
    }
    fn ask_challenge(&self, invoke: Invoke) -> Pending<'_, Result<SignedChallenge, Box<Reply>>> {
        Box::pin(async move {
            if invoke.command == "unknown" {
                let error = CommandError::new(ErrorCode::UnknownCommand, "no such command");
                return Err(Box::new(self.reply(invoke.request, Outcome::Failed(error), Vec::new())));
            }
            Ok(SignedChallenge { text: invoke.params, signature: self.key.sign(b"x") })
        })
    }
    fn grant(&self, request: RequestId, grant: Grant) -> Pending<'_, Reply> {
        Box::pin(async move {
            let result = format!("\"{}\"", grant.decision.as_str());
            self.reply(request, Outcome::Done { result }, Vec::new())
        })
    }
    fn cancel(&self, request: &RequestId) {
        if let Some(token) = self.running.lock().unwrap().get(request) {
            token.cancel();
        }
    }
}
