//! Secrets that let somebody in once: setup codes of nodes, which end with their window, and links for pages,
//! which end by themselves. A second use of one is an alarm.

use super::pairing::{check_known, clean};
use super::{Device, DeviceError, Devices, PageLink, PairingWindow, PendingDevice, Scope, records};
use crate::approvals::audit::Audit;
use crate::bus::Event;
use crate::store::now_ms;
use hearth_shared::approver::{Approver, ApproverKind};
use hearth_shared::connect::Role;
use hearth_shared::identity::{DeviceId, random};
use hearth_shared::pairing::{CodeSecret, SetupCode};
use rusqlite::{OptionalExtension as _, params};
use serde_json::json;
use std::time::Duration;

/// Codes of one window that wait to be used.
const MAX_OPEN_CODES: usize = 16;
/// One alarm an hour per code is enough to be heard and too few to fill a disk.
const ALARM_EVERY_MS: u64 = 3_600_000;

enum CodeUse {
    Admitted(Box<Device>),
    /// The same device again: its answer was lost on the way.
    Again(Box<Device>),
    Bad,
    Reused {
        alarm: bool,
    },
    Refused(DeviceError),
}

impl Devices {
    /// Uses up a setup code and admits the device that holds it, in one transaction. The same device may
    /// present its code again while the window is open (the answer may have been lost); anybody else who
    /// does raises [`Event::Alarm`].
    ///
    /// # Errors
    /// [`DeviceError::BadCode`], [`DeviceError::WrongKind`], [`DeviceError::Refused`],
    /// [`DeviceError::Store`].
    pub async fn redeem(
        &self,
        secret: &CodeSecret,
        mut asks: PendingDevice,
        via: &'static str,
    ) -> Result<Device, DeviceError> {
        clean(&mut asks);
        let window = self.desk().window().map(|w| w.id);
        let digest = secret.digest();
        let name = asks.name.clone();
        let link = asks.role == Role::Operator;
        let used = self
            .store
            .write(move |t| {
                if let Some(device) = records::get(t, &asks.device_id)?
                    && let Err(error) = check_known(&device, asks.kind)
                {
                    return Ok(CodeUse::Refused(error));
                }
                let code = t
                    .prepare_cached(
                        "SELECT window, used_by, alarm_ms, scopes, expires_ms FROM setup_codes WHERE digest = ?1",
                    )?
                    .query_row([digest.0], |r| {
                        Ok((
                            r.get::<_, [u8; 16]>(0)?,
                            r.get::<_, Option<[u8; 32]>>(1)?,
                            r.get::<_, Option<i64>>(2)?,
                            r.get::<_, Option<String>>(3)?.zip(r.get::<_, Option<i64>>(4)?),
                        ))
                    })
                    .optional()?;
                let Some((made_in, used_by, alarm_ms, rights)) = code else { return Ok(CodeUse::Bad) };
                // A page's link is no code for a node, nor the other way round.
                if rights.is_some() != link {
                    return Ok(CodeUse::Bad);
                }
                if let Some(used_by) = used_by {
                    if used_by == asks.device_id.0
                        && let Some(device) = records::get(t, &asks.device_id)?
                    {
                        return Ok(CodeUse::Again(Box::new(device)));
                    }
                    let now = now_ms();
                    let alarm = alarm_ms.is_none_or(|at| (at as u64).abs_diff(now) > ALARM_EVERY_MS);
                    if alarm {
                        t.execute(
                            "UPDATE setup_codes SET alarm_ms = ?2 WHERE digest = ?1",
                            params![digest.0, now as i64],
                        )?;
                        let body = json!({
                            "code": digest, "usedBy": DeviceId(used_by), "device": asks.device_id,
                            "name": asks.name, "remoteIp": asks.remote_ip,
                        });
                        Audit::append_in(t, "pairing.code.reused", &body)?;
                    }
                    return Ok(CodeUse::Reused { alarm });
                }
                let good = match &rights {
                    Some((_, expires_ms)) => *expires_ms > now_ms() as i64,
                    None => window == Some(made_in),
                };
                if !good {
                    return Ok(CodeUse::Bad);
                }
                if let Some((scopes, _)) = &rights {
                    // What the link was made for, whatever the page asks.
                    asks.scopes = records::split_scopes(scopes);
                }
                t.execute(
                    "UPDATE setup_codes SET used_ms = ?2, used_by = ?3 WHERE digest = ?1",
                    params![digest.0, now_ms() as i64, asks.device_id.0],
                )?;
                let body = json!({ "code": digest, "device": asks.device_id });
                Audit::append_in(t, "pairing.code.used", &body)?;
                let by = if link { "page link" } else { "setup code" };
                Ok(CodeUse::Admitted(Box::new(records::admit(t, &asks, via, by)?)))
            })
            .await?;
        match used {
            CodeUse::Admitted(device) => {
                let resolved = Event::DevicePairResolved {
                    request_id: String::new(),
                    device: device.id,
                    decision: "approved",
                };
                self.bus.emit(resolved);
                Ok(*device)
            }
            CodeUse::Again(device) => Ok(*device),
            CodeUse::Refused(error) => Err(error),
            CodeUse::Bad => {
                if window.is_none() {
                    self.desk().count_closed();
                }
                Err(DeviceError::BadCode)
            }
            CodeUse::Reused { alarm } => {
                if alarm {
                    let what = if link { "link for a page" } else { "setup code" };
                    let message = format!(
                        "a {what} was used a second time, by a device that calls itself `{name}`; if that was \
                         not you, somebody has seen it: check `hearth devices list` and remove what you do not know"
                    );
                    tracing::warn!("{message}");
                    self.bus.emit(Event::Alarm { message });
                }
                Err(DeviceError::BadCode)
            }
        }
    }

    /// Opens the window (or keeps it open longer) and makes a setup code with these addresses. Several
    /// codes may be out at once; each works once.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub async fn open_window(
        &self,
        ttl: Duration,
        addresses: Vec<String>,
    ) -> Result<PairingWindow, DeviceError> {
        let mut approvers = vec![Approver {
            key: self.keys.identity.public(),
            kind: ApproverKind::Hub,
            admin: false,
            name: "hub".into(),
        }];
        approvers.extend(self.known_approvers().await?);
        approvers.truncate(hearth_shared::limits::MAX_APPROVERS);
        let secret = CodeSecret(random()?);
        let digest = secret.digest();
        let contents = SetupCode {
            addresses,
            hub: self.keys.identity.public(),
            spki: self.keys.spki,
            secret,
            approvers,
        };
        let expires_ms = now_ms() + ttl.as_millis() as u64;
        let window = self.desk().open(random()?, ttl, expires_ms);
        let made = self
            .store
            .write(move |t| {
                let open: i64 = t.query_row(
                    "SELECT count(*) FROM setup_codes WHERE window = ?1 AND used_ms IS NULL",
                    [window.id],
                    |r| r.get(0),
                )?;
                if open as usize >= MAX_OPEN_CODES {
                    return Ok(Err(open as usize));
                }
                t.execute(
                    "INSERT INTO setup_codes (digest, window, created_ms) VALUES (?1, ?2, ?3)",
                    params![digest.0, window.id, now_ms() as i64],
                )?;
                // Codes that were never used end with their window; used ones stay for the alarm.
                t.execute(
                    "DELETE FROM setup_codes WHERE window <> ?1 AND used_ms IS NULL AND scopes IS NULL",
                    [window.id],
                )?;
                let body = json!({ "code": digest, "seconds": ttl.as_secs() });
                Audit::append_in(t, "pairing.code.made", &body)?;
                Ok(Ok(()))
            })
            .await?;
        if let Err(open) = made {
            return Err(DeviceError::TooManyCodes(open));
        }
        Ok(PairingWindow { code: contents.encode(), contents, expires_ms: window.expires_ms })
    }

    /// Makes a one-time link's secret: whoever presents it first, with a device key of its own, is let in with
    /// these rights. It needs no window, and survives a restart of the hub.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub async fn make_link(
        &self,
        ttl: Duration,
        scopes: &[Scope],
        by: &str,
    ) -> Result<PageLink, DeviceError> {
        let secret = CodeSecret(random()?);
        let digest = secret.digest();
        let expires_ms = now_ms() + ttl.as_millis() as u64;
        let scopes = records::join_scopes(scopes);
        let by = by.to_owned();
        let made = self
            .store
            .write(move |t| {
                let now = now_ms() as i64;
                t.execute(
                    "DELETE FROM setup_codes WHERE scopes IS NOT NULL AND used_ms IS NULL AND expires_ms <= ?1",
                    [now],
                )?;
                let open: i64 = t.query_row(
                    "SELECT count(*) FROM setup_codes WHERE scopes IS NOT NULL AND used_ms IS NULL",
                    [],
                    |r| r.get(0),
                )?;
                if open as usize >= MAX_OPEN_CODES {
                    return Ok(Err(open as usize));
                }
                t.execute(
                    "INSERT INTO setup_codes (digest, window, created_ms, scopes, expires_ms) \
                     VALUES (?1, zeroblob(16), ?2, ?3, ?4)",
                    params![digest.0, now, scopes, expires_ms as i64],
                )?;
                let body = json!({ "code": digest, "seconds": ttl.as_secs(), "scopes": scopes, "by": by });
                Audit::append_in(t, "pairing.link.made", &body)?;
                Ok(Ok(()))
            })
            .await?;
        match made {
            Ok(()) => Ok(PageLink { secret, expires_ms }),
            Err(open) => Err(DeviceError::TooManyLinks(open)),
        }
    }
}
