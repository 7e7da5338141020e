//! Numbers as short text, for scales and axes.

/// Most digits that a label has.
const MOST_DIGITS: usize = 6;

/// A number with two significant digits: `0.0021`, `0.31`, `1.2e-5`.
pub fn short(value: f32) -> String {
    digits(value, 2)
}

/// Labels for the marks of one scale, with as few digits as tell the marks apart.
pub fn labels(values: &[f32]) -> Vec<String> {
    let write = |count: usize| values.iter().map(|&value| digits(value, count)).collect::<Vec<_>>();
    let step = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(f32::INFINITY, f32::min);
    let close = |(label, &value): (&String, &f32)| {
        // A label may be off by a tenth of a step.
        label.parse::<f32>().is_ok_and(|label| (label - value).abs() <= 0.1 * step)
    };
    let enough = |count: &usize| write(*count).iter().zip(values).all(close);
    write((2..MOST_DIGITS).find(enough).unwrap_or(MOST_DIGITS))
}

/// A number with `count` significant digits, scientific where plain writing would be long.
fn digits(value: f32, count: usize) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let scientific = format!("{value:.*e}", count.saturating_sub(1));
    // The exponent after rounding, so that 0.0996 counts as 0.10.
    let exponent = scientific.rsplit('e').next().and_then(|exponent| exponent.parse::<i32>().ok()).unwrap_or(0);
    if (-3..=5).contains(&exponent) {
        let decimals = (count as i32 - 1 - exponent).max(0) as usize;
        format!("{value:.decimals$}")
    } else {
        scientific
    }
}
