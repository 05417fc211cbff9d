//! Sine waves for simulated parts, without the C library's mathematics: those pages alone are a tenth of the
//! memory an idle node holds.

/// Sine of an angle in full turns, exact to 0.002: Bhaskara I's approximation (7th century),
/// `16 t (1 - t) / (5 - 4 t (1 - t))` over half a turn.
pub(super) fn sine(turns: f64) -> f64 {
    let turn = turns - turns.floor();
    let (half, sign) = if turn < 0.5 { (turn * 2.0, 1.0) } else { (turn * 2.0 - 1.0, -1.0) };
    let arch = half * (1.0 - half);
    sign * 16.0 * arch / (5.0 - 4.0 * arch)
}

/// Cosine, likewise.
pub(super) fn cosine(turns: f64) -> f64 {
    sine(turns + 0.25)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_close_to_the_real_one() {
        for step in -1000..1000 {
            let turns = f64::from(step) / 137.0;
            let angle = turns * std::f64::consts::TAU;
            assert!((sine(turns) - angle.sin()).abs() < 0.002, "{turns}");
            assert!((cosine(turns) - angle.cos()).abs() < 0.002, "{turns}");
        }
    }
}
