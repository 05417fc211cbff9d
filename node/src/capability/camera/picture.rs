//! A picture in memory: something to draw on, to scale and to encode.

use super::{Jpeg, Shot};
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::*;
use embedded_graphics::primitives::Rectangle;
use hearth_shared::error::{CommandError, ErrorCode};

/// RGB, 3 bytes a pixel, rows from the top.
#[derive(Debug)]
pub(super) struct Picture {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Picture {
    pub(super) fn new(width: u16, height: u16) -> Self {
        let (width, height) = (usize::from(width), usize::from(height));
        Self { width, height, rgb: vec![0; width * height * 3] }
    }

    /// Scaled down to at most `max_width` by averaging the pixels that fall together.
    fn fit(self, max_width: u32) -> Self {
        let max_width = usize::try_from(max_width).unwrap_or(usize::MAX).max(1);
        if self.width <= max_width {
            return self;
        }
        let width = max_width;
        let height = (self.height * width / self.width).max(1);
        let mut rgb = Vec::with_capacity(width * height * 3);
        for y in 0..height {
            let rows = y * self.height / height..((y + 1) * self.height / height).max(y + 1);
            for x in 0..width {
                let columns = x * self.width / width..((x + 1) * self.width / width).max(x + 1);
                rgb.extend_from_slice(&self.mean(rows.clone(), columns));
            }
        }
        Self { width, height, rgb }
    }

    fn mean(&self, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) -> [u8; 3] {
        let mut sum = [0_usize; 3];
        let mut count = 0;
        for y in rows {
            let start = (y * self.width + columns.start) * 3;
            let row = self.rgb.get(start..start + columns.len() * 3).unwrap_or_default();
            for pixel in row.chunks_exact(3) {
                sum.iter_mut().zip(pixel).for_each(|(s, p)| *s += usize::from(*p));
                count += 1;
            }
        }
        sum.map(|s| u8::try_from(s / count.max(1)).unwrap_or(u8::MAX))
    }

    /// Encodes it as asked.
    pub(super) fn encode(self, shot: Shot) -> Result<Jpeg, CommandError> {
        let picture = self.fit(shot.max_width);
        let fault = |what: String| CommandError::new(ErrorCode::Internal, format!("JPEG: {what}"));
        let side = |n: usize| u16::try_from(n).map_err(|_| fault(format!("{n} pixels are too many")));
        let (width, height) = (side(picture.width)?, side(picture.height)?);
        let mut data = Vec::with_capacity(64 * 1024);
        jpeg_encoder::Encoder::new(&mut data, shot.quality.clamp(1, 100))
            .encode(&picture.rgb, width, height, jpeg_encoder::ColorType::Rgb)
            .map_err(|e| fault(e.to_string()))?;
        Ok(Jpeg { data, width: width.into(), height: height.into() })
    }
}

impl OriginDimensions for Picture {
    fn size(&self) -> Size {
        Size::new(
            u32::try_from(self.width).unwrap_or(u32::MAX),
            u32::try_from(self.height).unwrap_or(u32::MAX),
        )
    }
}

impl DrawTarget for Picture {
    type Color = Rgb888;
    type Error = std::convert::Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Self::Error> {
        for Pixel(point, color) in pixels {
            let (Ok(x), Ok(y)) = (usize::try_from(point.x), usize::try_from(point.y)) else { continue };
            if x >= self.width {
                continue;
            }
            let at = (y * self.width + x) * 3;
            if let Some(pixel) = self.rgb.get_mut(at..at + 3) {
                pixel.copy_from_slice(&[color.r(), color.g(), color.b()]);
            }
        }
        Ok(())
    }

    fn fill_solid(&mut self, area: &Rectangle, color: Rgb888) -> Result<(), Self::Error> {
        self.draw_iter(area.intersection(&self.bounding_box()).points().map(|p| Pixel(p, color)))
    }
}
