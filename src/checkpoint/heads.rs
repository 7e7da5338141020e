//! How many heads a layer has: the one size that the weights of most families do not tell.

use super::Evidence;
use crate::error::Result;

/// Values of a head in most models.
const USUAL: usize = 64;

/// The number of heads as stated by the checkpoint or else by a person, or guessed, which is noted.
pub(super) fn heads(
    evidence: &Evidence,
    stated: Option<usize>,
    width: usize,
    notes: &mut Vec<String>,
) -> Result<usize> {
    match stated {
        Some(heads) => Ok(heads),
        None => heads_of(evidence, USUAL, width, notes),
    }
}

/// The number of heads as a person says it, or else guessed from a head's `usual` width, which is noted.
pub(super) fn heads_of(evidence: &Evidence, usual: usize, width: usize, notes: &mut Vec<String>) -> Result<usize> {
    match evidence.heads {
        Some(heads) => Ok(heads),
        None if width >= usual && width.is_multiple_of(usual) => {
            let guess = width / usual;
            notes.push(format!(
                "the checkpoint does not say how many heads a layer has: {guess} is a guess (width {width} / {usual}), and \
                 the maps are wrong if it is; say it with --heads-per-layer"
            ));
            Ok(guess)
        }
        None => Err(evidence.refuse(format!(
            "does not say how many heads a layer of width {width} has: say it with --heads-per-layer N"
        ))),
    }
}
