//! What the simulated camera sees.

use super::picture::Picture;
use crate::capability::wave::{cosine, sine};
use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::ascii::{FONT_6X10, FONT_10X20};
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::*;
use embedded_graphics::primitives::{Circle, Line, PrimitiveStyle, Rectangle, Triangle};
use embedded_graphics::text::{Alignment, Text};

const WIDTH: u16 = 640;
const HEIGHT: u16 = 480;
const DAY: u64 = 86_400;
/// The pane of the window.
const PANE: Rectangle = Rectangle::new(Point::new(330, 60), Size::new(270, 190));
const WALL: Rgb888 = Rgb888::new(120, 110, 98);
const FRAME: Rgb888 = Rgb888::new(226, 220, 208);
const WOOD: Rgb888 = Rgb888::new(134, 92, 54);
const WOOD_DARK: Rgb888 = Rgb888::new(92, 62, 36);
const INK: Rgb888 = Rgb888::new(245, 245, 240);
const PANEL: Rgb888 = Rgb888::new(38, 42, 48);

/// A pin as a lamp.
#[derive(Debug)]
pub(super) struct Lamp {
    pub(super) label: String,
    pub(super) on: bool,
    pub(super) output: bool,
}

/// Everything the picture depends on.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) title: &'a str,
    pub(super) unix_seconds: u64,
    pub(super) lamps: Vec<Lamp>,
}

impl Scene<'_> {
    pub(super) fn render(&self) -> Picture {
        let mut picture = Picture::new(WIDTH, HEIGHT);
        self.room(&mut picture);
        self.window(&mut picture);
        self.lamps(&mut picture);
        self.clock(&mut picture);
        self.caption(&mut picture);
        picture
    }

    fn room(&self, picture: &mut Picture) {
        rect(picture, 0, 0, WIDTH.into(), 330, shade(WALL, 55 + 45 * self.daylight() / 100));
        rect(picture, 0, 330, WIDTH.into(), 26, WOOD);
        rect(picture, 0, 356, WIDTH.into(), 124, WOOD_DARK);
        for x in [60, 540] {
            rect(picture, x, 356, 36, 124, WOOD);
        }
        for x in (40..640).step_by(110) {
            line(picture, Point::new(x, 333), Point::new(x + 70, 333), WOOD_DARK);
        }
    }

    /// How bright it is outside, 0 at night to 100 by day, with an hour and a half of dawn and dusk.
    fn daylight(&self) -> u32 {
        let minute = (self.unix_seconds % DAY / 60) as u32;
        let ramp = |from: u32| (minute.saturating_sub(from) * 100 / 90).min(100);
        ramp(330) - ramp(1_110).min(ramp(330))
    }

    fn window(&self, picture: &mut Picture) {
        let light = self.daylight();
        let Rectangle { top_left: at, size } = PANE;
        rect(picture, at.x - 8, at.y - 8, size.width + 16, size.height + 16, FRAME);
        for row in 0..size.height {
            let night = Rgb888::new(10, 14, 38);
            let day = Rgb888::new(110, 170, 235);
            let mut sky = mix(night, day, light);
            // Dawn and dusk are red near the horizon, most when half of the light is there.
            let glow = 100 - light.abs_diff(50) * 2;
            sky = mix(sky, Rgb888::new(250, 140, 80), glow * row / size.height);
            let y = at.y + i32::try_from(row).unwrap_or(0);
            line(picture, Point::new(at.x, y), Point::new(at.x + 269, y), sky);
        }
        if light < 40 {
            self.stars(picture);
        }
        self.sun_or_moon(picture, light);
        let hill = mix(Rgb888::new(12, 22, 16), Rgb888::new(70, 120, 60), light);
        for (left, top, right) in [(330, 205, 450), (420, 190, 599), (380, 220, 520)] {
            let peak = Point::new((left + right) / 2, top);
            let slope = Triangle::new(Point::new(left, 249), peak, Point::new(right, 249));
            draw(slope.into_styled(PrimitiveStyle::with_fill(hill)).draw(picture));
        }
        rect(picture, at.x + 131, at.y, 8, size.height, FRAME);
        rect(picture, at.x, at.y + 91, size.width, 8, FRAME);
    }

    fn stars(&self, picture: &mut Picture) {
        for i in 0..24_i32 {
            let point = Point::new(336 + (i * 97) % 256, 66 + (i * 53) % 110);
            // A few of them twinkle.
            if (i + (self.unix_seconds % 5) as i32) % 5 != 0 {
                rect(picture, point.x, point.y, 2, 2, INK);
            }
        }
    }

    fn sun_or_moon(&self, picture: &mut Picture, light: u32) {
        let minute = (self.unix_seconds % DAY / 60) as i32;
        // By day from 5:30 to 20:00, by night the rest: once across the window each.
        let by_day = (330..1_200).contains(&minute);
        let (gone, whole) =
            if by_day { (minute - 330, 870) } else { ((minute - 1_200).rem_euclid(1_440), 570) };
        let x = 335 + 230 * gone / whole;
        let off_middle = 100 - 200 * gone / whole;
        let y = 72 + 110 * off_middle * off_middle / 10_000;
        let color =
            if by_day { mix(Rgb888::new(255, 150, 70), Rgb888::new(255, 240, 170), light) } else { INK };
        circle(picture, x, y, if by_day { 30 } else { 22 }, color);
    }

    fn lamps(&self, picture: &mut Picture) {
        rect(picture, 30, 220, 260, 110, PANEL);
        for (i, lamp) in (0_i32..).zip(self.lamps.iter().take(8)) {
            let (x, y) = (46 + i % 4 * 62, 232 + i / 4 * 50);
            let on = if lamp.output { Rgb888::new(60, 230, 90) } else { Rgb888::new(255, 200, 60) };
            circle(picture, x, y, 28, Rgb888::new(90, 96, 104));
            circle(picture, x + 3, y + 3, 22, if lamp.on { on } else { Rgb888::new(30, 40, 34) });
            let state = if lamp.on { "ON" } else { "off" };
            let label: String = lamp.label.chars().take(9).collect();
            small(picture, x + 14, y + 37, &label);
            small(picture, x + 14, y + 17, state);
        }
    }

    /// A clock on the wall whose second hand makes every picture another one.
    fn clock(&self, picture: &mut Picture) {
        let middle = Point::new(160, 120);
        circle(picture, middle.x - 62, middle.y - 62, 124, WOOD_DARK);
        circle(picture, middle.x - 56, middle.y - 56, 112, INK);
        let seconds = self.unix_seconds % DAY;
        let dark = Rgb888::new(30, 30, 34);
        for hour in 0..12 {
            let (inner, outer) = (hand(hour * 3_600, 43_200, 48.0), hand(hour * 3_600, 43_200, 54.0));
            line(picture, middle + inner, middle + outer, dark);
        }
        for (turn, length, color, thick) in
            [(43_200, 28.0, dark, 5), (3_600, 42.0, dark, 3), (60, 48.0, Rgb888::new(200, 40, 40), 1)]
        {
            let end = middle + hand(seconds % turn, turn, length);
            let stroke = PrimitiveStyle::with_stroke(color, thick);
            draw(Line::new(middle, end).into_styled(stroke).draw(picture));
        }
    }

    fn caption(&self, picture: &mut Picture) {
        let title: String = self.title.chars().take(60).collect();
        rect(picture, 0, 0, WIDTH.into(), 30, PANEL);
        rect(picture, 0, 446, WIDTH.into(), 34, PANEL);
        let style = MonoTextStyle::new(&FONT_10X20, INK);
        draw(Text::new(&title, Point::new(12, 21), style).draw(picture));
        let time = utc(self.unix_seconds);
        draw(Text::with_alignment(&time, Point::new(628, 469), style, Alignment::Right).draw(picture));
        draw(Text::new("simulated", Point::new(12, 469), style).draw(picture));
    }
}

/// From the middle of a dial to the place of `part` of `whole`.
fn hand(part: u64, whole: u64, length: f64) -> Point {
    let turns = part as f64 / whole as f64;
    #[expect(clippy::cast_possible_truncation)]
    let point = Point::new((sine(turns) * length).round() as i32, (-cosine(turns) * length).round() as i32);
    point
}

/// `2026-03-29 14:05:09 UTC`. The node carries no time zones.
pub(super) fn utc(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / DAY, unix_seconds % DAY);
    // Days from 0000-03-01 in eras of 400 years, so that the leap day is the last of its year.
    let z = days + 719_468;
    let era_day = z % 146_097;
    let year_of_era = (era_day - era_day / 1_460 + era_day / 36_524 - era_day / 146_096) / 365;
    let day_of_year = era_day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + z / 146_097 * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

fn mix(a: Rgb888, b: Rgb888, percent_b: u32) -> Rgb888 {
    let p = percent_b.min(100);
    let channel = |a: u8, b: u8| ((u32::from(a) * (100 - p) + u32::from(b) * p) / 100) as u8;
    Rgb888::new(channel(a.r(), b.r()), channel(a.g(), b.g()), channel(a.b(), b.b()))
}

fn shade(color: Rgb888, percent: u32) -> Rgb888 {
    mix(Rgb888::BLACK, color, percent)
}

fn rect(picture: &mut Picture, x: i32, y: i32, width: u32, height: u32, color: Rgb888) {
    draw(picture.fill_solid(&Rectangle::new(Point::new(x, y), Size::new(width, height)), color));
}

fn circle(picture: &mut Picture, x: i32, y: i32, diameter: u32, color: Rgb888) {
    let style = PrimitiveStyle::with_fill(color);
    draw(Circle::new(Point::new(x, y), diameter).into_styled(style).draw(picture));
}

fn line(picture: &mut Picture, from: Point, to: Point, color: Rgb888) {
    draw(Line::new(from, to).into_styled(PrimitiveStyle::with_stroke(color, 1)).draw(picture));
}

fn small(picture: &mut Picture, x: i32, y: i32, text: &str) {
    let style = MonoTextStyle::new(&FONT_6X10, INK);
    draw(Text::with_alignment(text, Point::new(x, y), style, Alignment::Center).draw(picture));
}

/// Drawing into memory cannot fail.
fn draw<T>(result: Result<T, std::convert::Infallible>) {
    let Ok(_) = result;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::camera::Shot;

    fn jpeg(seconds: u64, on: bool, max_width: u32, quality: u8) -> Vec<u8> {
        let lamps = vec![Lamp { label: "pump".into(), on, output: true }];
        let scene = Scene { title: "garage / cam0", unix_seconds: seconds, lamps };
        scene.render().encode(Shot { max_width, quality }).unwrap().data
    }

    /// Width and height from the frame header.
    fn dimensions(jpeg: &[u8]) -> (u16, u16) {
        assert!(jpeg.starts_with(&[0xff, 0xd8]) && jpeg.ends_with(&[0xff, 0xd9]));
        let mut at = 2;
        loop {
            let length = usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]));
            if jpeg[at + 1] == 0xc0 {
                let side = |i: usize| u16::from_be_bytes([jpeg[at + i], jpeg[at + i + 1]]);
                return (side(7), side(5));
            }
            at += 2 + length;
        }
    }

    #[test]
    fn every_second_and_every_state_is_another_picture() {
        let noon = 1_774_785_909;
        let picture = jpeg(noon, false, 1600, 90);
        assert_eq!(dimensions(&picture), (640, 480));
        assert_ne!(picture, jpeg(noon + 1, false, 1600, 90));
        assert_ne!(picture, jpeg(noon, true, 1600, 90));
    }

    #[test]
    fn width_and_quality_are_honoured() {
        let small = jpeg(0, false, 320, 90);
        assert_eq!(dimensions(&small), (320, 240));
        assert_eq!(dimensions(&jpeg(0, false, 16, 90)), (16, 12));
        assert_eq!(dimensions(&jpeg(0, false, 333, 90)), (333, 249));
        assert!(jpeg(0, false, 640, 20).len() < jpeg(0, false, 640, 95).len());
    }

    #[test]
    fn any_time_of_day_can_be_drawn_and_nights_are_darker() {
        let mean = |hour: u64| {
            let scene = Scene { title: "", unix_seconds: hour * 3600, lamps: vec![] };
            scene.daylight()
        };
        assert_eq!((mean(0), mean(12), mean(23)), (0, 100, 0));
        for minute in (0..1440).step_by(97) {
            jpeg(minute * 60, true, 64, 10);
        }
    }

    #[test]
    fn dates_are_right() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_774_785_909), "2026-03-29 12:05:09 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }
}
