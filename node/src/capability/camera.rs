//! Cameras.

mod picture;
mod scene;
mod simulated;

use super::gpio::Gpio;
use super::{Board, Bytes, Call, Handle, Output, Ready, answer};
use crate::config::board::{CameraConfig, Driver};
use hearth_shared::command::camera::{CameraInfo, ListParams, ListResult, SnapParams, SnapResult};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::link::PartDecl;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// A picture as a driver gives it.
#[derive(Debug)]
pub struct Jpeg {
    /// The file.
    pub data: Vec<u8>,
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
}

/// What a driver is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Shot {
    /// Largest width in pixels.
    pub max_width: u32,
    /// 1 to 100.
    pub quality: u8,
}

/// A camera driver. Real ones encode in hardware or pass on the camera's own JPEG, so that is what
/// the seam carries.
pub trait Camera: Send + Sync + std::fmt::Debug {
    /// `simulated`, `usb`, `csi`.
    fn device_type(&self) -> &'static str;

    /// Takes a picture. Blocking: called on a thread that may wait.
    ///
    /// # Errors
    /// `HARDWARE` with what failed and what to check.
    fn shoot(&self, shot: Shot) -> Result<Jpeg, CommandError>;
}

/// The cameras of the board, sorted by id.
#[derive(Debug)]
pub(super) struct Cameras(Vec<Part>);

#[derive(Debug)]
struct Part {
    info: CameraInfo,
    driver: Arc<dyn Camera>,
    /// One shot at a time: a camera cannot do two, and a hung one must not eat threads.
    free: Arc<Semaphore>,
}

impl Cameras {
    pub(super) fn open(configs: &[CameraConfig], node: &str, gpio: &Arc<Gpio>) -> Result<Self, CommandError> {
        let mut parts = Vec::with_capacity(configs.len());
        for config in configs {
            let driver: Arc<dyn Camera> = match config.driver {
                Some(Driver::Simulated) => {
                    Arc::new(simulated::SimulatedCamera::new(node, &config.id, gpio.clone()))
                }
                None => return Err(super::no_driver("camera", &config.id)),
            };
            parts.push(Part {
                info: CameraInfo {
                    id: config.id.clone(),
                    name: config.name.clone().unwrap_or_else(|| config.id.clone()),
                    position: config.position.as_str().into(),
                    device_type: driver.device_type().into(),
                },
                driver,
                free: Arc::new(Semaphore::new(1)),
            });
        }
        parts.sort_by(|a, b| a.info.id.cmp(&b.info.id));
        Ok(Self(parts))
    }

    pub(super) fn declared(&self) -> Vec<PartDecl> {
        let decl = |p: &Part| PartDecl {
            id: p.info.id.clone(),
            name: p.info.name.clone(),
            detail: p.info.device_type.clone(),
        };
        self.0.iter().map(decl).collect()
    }

    fn list(&self) -> Result<Output, CommandError> {
        answer(&ListResult { devices: self.0.iter().map(|p| p.info.clone()).collect() })
    }

    fn find(&self, id: Option<&str>) -> Result<&Part, CommandError> {
        let Some(id) = id else {
            return self.0.first().ok_or_else(|| {
                CommandError::new(ErrorCode::NotFound, "this node has no camera; see [[board.camera]]")
            });
        };
        self.0
            .iter()
            .find(|p| p.info.id == id)
            .ok_or_else(|| super::not_found("camera", id, self.0.iter().map(|p| p.info.id.as_str())))
    }

    fn snap_facts(&self, params: &SnapParams) -> Result<Value, CommandError> {
        let info = &self.find(params.device_id.as_deref())?.info;
        Ok(json!({"camera": info.id, "name": info.name, "deviceType": info.device_type}))
    }

    async fn snap(&self, params: &SnapParams) -> Result<Output, CommandError> {
        let part = self.find(params.device_id.as_deref())?;
        tokio::time::sleep(Duration::from_millis(params.delay_ms.into())).await;
        let permit = part.free.clone().acquire_owned().await.map_err(|_| super::stopping())?;
        // Checked to be within 0.05 to 1.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let quality = (params.quality * 100.0).round() as u8;
        let shot = Shot { max_width: params.max_width, quality };
        let driver = part.driver.clone();
        let picture = super::blocking(move || {
            let picture = driver.shoot(shot);
            drop(permit);
            picture
        })
        .await?;
        let result = SnapResult {
            format: "jpg".into(),
            width: picture.width,
            height: picture.height,
            device_id: part.info.id.clone(),
            size_bytes: picture.data.len() as u64,
        };
        let mut output = answer(&result)?;
        output.attachments.push(Bytes { mime: "image/jpeg".into(), data: picture.data });
        Ok(output)
    }
}

impl Handle<ListParams> for Board {
    async fn prepare(&self, _: &ListParams) -> Result<Ready, CommandError> {
        Ok(Ready::plain())
    }
    async fn run(&self, _: ListParams, _: Call) -> Result<Output, CommandError> {
        self.cameras.list()
    }
}

impl Handle<SnapParams> for Board {
    async fn prepare(&self, params: &SnapParams) -> Result<Ready, CommandError> {
        self.cameras.snap_facts(params).map(Ready::from)
    }
    async fn run(&self, params: SnapParams, call: Call) -> Result<Output, CommandError> {
        call.within(self.cameras.snap(&params)).await
    }
}
