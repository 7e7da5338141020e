//! Where the patches of a model lie in the original picture.

/// Where the patches of a model lie in the original picture: the two axes are independent.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Geometry {
    /// Columns, from left to right.
    pub x: Axis,
    /// Rows, from top to bottom.
    pub y: Axis,
}

/// One axis of a [`Geometry`], in pixels unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Axis {
    /// Length of the original picture, turned upright.
    pub original: usize,
    /// Length of the resized picture.
    pub resized: usize,
    /// Where the part that the model sees begins in the resized picture.
    pub start: usize,
    /// Length of the part that the model sees: whole patches only.
    pub seen: usize,
    /// Length of a patch.
    pub patch: usize,
    /// Number of patches.
    pub patches: usize,
}

impl Axis {
    pub(super) fn new(original: usize, resized: usize, start: usize, length: usize, patch: usize) -> Self {
        let patches = length.checked_div(patch).unwrap_or(0);
        Self { original, resized, start, seen: patches * patch, patch, patches }
    }

    /// Pixels that resizing takes away; negative if it adds some.
    pub(super) fn shrinks_by(&self) -> i64 {
        self.original as i64 - self.resized as i64
    }

    /// The place of a point on the patches: patch `i` covers `i..i + 1`. `None` where the model sees nothing.
    ///
    /// `at` is in original pixels; pixel `i` covers `i..i + 1`, so its centre is at `i + 0.5`.
    pub fn grid_at(&self, at: f64) -> Option<f64> {
        let resized = at * self.resized as f64 / self.original as f64;
        let place = (resized - self.start as f64) / self.patch as f64;
        (0.0..self.patches as f64).contains(&place).then_some(place)
    }
}

impl Geometry {
    /// The patches as (rows, cols).
    pub fn grid(&self) -> (usize, usize) {
        (self.y.patches, self.x.patches)
    }

    /// The patch (row, col) under a point of the original picture, or `None` where the model sees nothing.
    ///
    /// The point is in original pixels, as in [`Axis::grid_at`].
    pub fn patch_at(&self, x: f64, y: f64) -> Option<(usize, usize)> {
        Some((self.y.grid_at(y)? as usize, self.x.grid_at(x)? as usize))
    }
}
