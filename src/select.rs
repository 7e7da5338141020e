//! Picks of layers and heads, such as `0,3-5,-1`, `all`, `last`: parsed first, resolved against real sizes later.

use std::{fmt, str::FromStr};

use crate::error::{Error, Result};

/// A pick of indices, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picks {
    text: String,
    ranges: Vec<(i64, i64)>,
}

impl Picks {
    /// Every index.
    pub fn all() -> Self {
        Self { text: "all".to_owned(), ranges: vec![(0, -1)] }
    }

    /// The last index.
    pub fn last() -> Self {
        Self { text: "last".to_owned(), ranges: vec![(-1, -1)] }
    }

    /// The picked indices out of `count`, ascending, each once.
    ///
    /// # Errors
    /// [`Error::Selection`] naming `flag` and the valid range where an index lies outside it.
    pub fn resolve(&self, flag: &'static str, count: usize) -> Result<Vec<usize>> {
        let total = count as i64;
        let outside = || {
            let what = flag.trim_start_matches('-');
            let valid = match count {
                0 => "there is nothing to pick from".to_owned(),
                _ => format!("this model has {count} {what}, so 0 to {} (or -1 to -{count} from the end)", count - 1),
            };
            Error::selection(flag, &self.text, valid)
        };
        let mut picked = vec![false; count];
        for &(first, last) in &self.ranges {
            let absolute = |index: i64| if index < 0 { index + total } else { index };
            let (from, to) = (absolute(first), absolute(last));
            if !(0..total).contains(&from) || !(0..total).contains(&to) {
                return Err(outside());
            }
            if from > to {
                let valid = format!("the range {first}-{last} runs backwards; write {last}-{first}");
                return Err(Error::selection(flag, &self.text, valid));
            }
            picked[from as usize..=to as usize].fill(true);
        }
        Ok((0..count).filter(|&index| picked[index]).collect())
    }
}

impl FromStr for Picks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |part: &str| match part {
            "all" => Some((0, -1)),
            "last" => Some((-1, -1)),
            _ => match part.char_indices().skip(1).find(|&(_, c)| c == '-') {
                Some((dash, _)) => Some((part[..dash].parse().ok()?, part[dash + 1..].parse().ok()?)),
                None => part.parse().ok().map(|index| (index, index)),
            },
        };
        let ranges = text.split(',').map(|part| range(part.trim())).collect::<Option<_>>();
        let ranges = ranges.ok_or("expected picks such as `0,3-5,-1`, `all` or `last`")?;
        Ok(Self { text: text.to_owned(), ranges })
    }
}

impl fmt::Display for Picks {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(text: &str, count: usize) -> Result<Vec<usize>, String> {
        text.parse::<Picks>()?.resolve("--layers", count).map_err(|error| error.to_string())
    }

    #[test]
    fn picks_ranges_and_negative_indices_resolve_in_order_and_once() {
        assert_eq!(pick("0,3-5,-1", 12), Ok(vec![0, 3, 4, 5, 11]));
        assert_eq!(pick("-2--1, 0,0", 12), Ok(vec![0, 10, 11]));
        assert_eq!(pick("all", 3), Ok(vec![0, 1, 2]));
        assert_eq!(pick("last", 3), Ok(vec![2]));
    }

    #[test]
    fn a_pick_outside_the_model_names_the_flag_and_the_valid_range() {
        let error = pick("4", 4).unwrap_err();
        assert_eq!(error, "--layers 4: this model has 4 layers, so 0 to 3 (or -1 to -4 from the end)");
        assert!(pick("-5", 4).is_err() && pick("5-1", 4).is_err() && pick("0", 0).is_err());
    }

    #[test]
    fn a_range_that_runs_backwards_is_told_the_right_way_round() {
        assert_eq!(pick("0,3-1", 4).unwrap_err(), "--layers 0,3-1: the range 3-1 runs backwards; write 1-3");
        assert_eq!(pick("-1-0", 4).unwrap_err(), "--layers -1-0: the range -1-0 runs backwards; write 0--1");
    }

    #[test]
    fn words_that_are_no_picks_are_refused() {
        for text in ["", "a", "1-", "1--", "1,,2", "0-99999999999999999999", "é-1"] {
            assert!(text.parse::<Picks>().is_err(), "{text:?} was taken");
        }
    }
}
