//! `camera.*`

use super::{Params, Target};
use serde::{Deserialize, Serialize};

/// No parameters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListParams {}

/// The cameras of a node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListResult {
    /// One entry a camera.
    pub devices: Vec<CameraInfo>,
}

/// A camera.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CameraInfo {
    /// Stable id on this node.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// `front`, `back` or `unknown`.
    pub position: String,
    /// `simulated`, `usb`, `csi`.
    pub device_type: String,
}

impl Params for ListParams {
    type Result = ListResult;
    fn sentence(&self) -> String {
        "List the cameras".into()
    }
}

/// Parameters of a picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapParams {
    /// Camera id; the node's first camera when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    /// Largest width in pixels, 16 to 4096; larger pictures are scaled down.
    #[serde(default = "default_max_width")]
    pub max_width: u32,
    /// JPEG quality, 0.05 to 1.
    #[serde(default = "default_quality")]
    pub quality: f64,
    /// Wait before the shot, 0 to 10,000 ms.
    #[serde(default)]
    pub delay_ms: u32,
}

fn default_max_width() -> u32 {
    1600
}
fn default_quality() -> f64 {
    0.9
}

impl Default for SnapParams {
    fn default() -> Self {
        Self { device_id: None, max_width: default_max_width(), quality: default_quality(), delay_ms: 0 }
    }
}

/// A picture; its bytes travel as the first attachment (`image/jpeg`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SnapResult {
    /// `jpg`.
    pub format: String,
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
    /// Camera id.
    pub device_id: String,
    /// Size of the JPEG in bytes.
    pub size_bytes: u64,
}

impl Params for SnapParams {
    type Result = SnapResult;
    fn check(&self) -> Result<(), String> {
        if !(16..=4096).contains(&self.max_width) {
            return Err(format!("maxWidth {} is not within 16 to 4096", self.max_width));
        }
        if !(0.05..=1.0).contains(&self.quality) {
            return Err(format!("quality {} is not within 0.05 to 1", self.quality));
        }
        if self.delay_ms > 10_000 {
            return Err(format!("delayMs {} is over 10000", self.delay_ms));
        }
        Ok(())
    }
    fn target(&self) -> Option<Target<'_>> {
        self.device_id.as_deref().map(|id| Target { kind: "camera", id })
    }
    fn sentence(&self) -> String {
        match &self.device_id {
            Some(id) => format!("Take a picture with camera {id}"),
            None => "Take a picture with the first camera".into(),
        }
    }
}
