//! Learned positions at another grid than they were trained on, with each library's own way of resampling them.
//!
//! Plain loops on the host, once at loading. Each way is separable: one set of taps for the rows, one for the columns.

/// How a library resamples a table of positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resampling {
    /// Cubic with a = -0.75 at the edge-aligned scale: PyTorch's `interpolate(size=, mode="bicubic")`.
    Bicubic,
    /// The same taps at Meta's own scale, (n + 0.1) / √N patches for one, which shifts every sample a little.
    BicubicOffset,
    /// Cubic with a = -0.5 that widens when shrinking: PyTorch's `interpolate(..., antialias=True)`, as Pillow's.
    BicubicAntialias,
    /// Cubic with a = -0.75, corner on corner: PyTorch's `interpolate(..., align_corners=True)`, torchvision's way.
    BicubicAligned,
    /// Linear, corner on corner: SciPy's `ndimage.zoom(order=1)`, Google's way.
    BilinearAligned,
}

/// Which tokens a file's table of positions covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Covers {
    /// Every token.
    All,
    /// CLS and the patches; registers have none.
    ClsAndPatches,
    /// The patches only.
    Patches,
}

/// A table of learned positions, and how to use it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Positions {
    /// Which tokens it covers.
    pub covers: Covers,
    /// The patches that it was trained on, (rows, cols).
    pub grid: (usize, usize),
    /// How it is brought to another grid.
    pub resampling: Resampling,
}

impl Positions {
    /// The rows of the file's table before those of the patches.
    pub(super) fn leading(&self, prefix: usize) -> usize {
        match self.covers {
            Covers::All => prefix,
            Covers::ClsAndPatches => prefix.min(1),
            Covers::Patches => 0,
        }
    }

    /// One position for each token of the model: those of the file, resampled to `grid`, and zeros where it has none.
    ///
    /// # Shapes
    /// `table`: `[leading + patches, width]` to `[prefix + patches, width]`, row-major
    pub fn at(&self, table: &[f32], prefix: usize, grid: (usize, usize), width: usize) -> Vec<f32> {
        let (leading, patches) = table.split_at_checked(self.leading(prefix) * width).unwrap_or((table, &[]));
        let mut values = leading.to_vec();
        values.resize(prefix * width, 0.0);
        if grid == self.grid {
            values.extend(patches);
        } else {
            let rows = resample(patches, &self.taps(0, grid), self.grid.1 * width);
            values.extend(rows.chunks(self.grid.1 * width).flat_map(|row| resample(row, &self.taps(1, grid), width)));
        }
        values
    }

    /// The taps of each new row (axis 0) or column (axis 1).
    fn taps(&self, axis: usize, grid: (usize, usize)) -> Vec<Taps> {
        let (from, to) = if axis == 0 { (self.grid.0, grid.0) } else { (self.grid.1, grid.1) };
        let exact = from as f64 / to as f64;
        let taps = |i: usize| match self.resampling {
            Resampling::Bicubic => cubic_taps(centred(i, exact), from),
            Resampling::BicubicOffset => {
                let side = ((self.grid.0 * self.grid.1) as f64).sqrt();
                cubic_taps(centred(i, side / (to as f64 + 0.1)), from)
            }
            Resampling::BicubicAligned => cubic_taps(aligned(i, from, to), from),
            Resampling::BilinearAligned => linear_taps(aligned(i, from, to), from),
            Resampling::BicubicAntialias => antialiased_taps(i, exact, from),
        };
        (0..to).map(taps).collect()
    }
}

/// What one new value is made of: old ones with their weights.
type Taps = Vec<(usize, f64)>;

/// Weighs whole lines of `length` values.
fn resample(lines: &[f32], taps: &[Taps], length: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(taps.len() * length);
    for taps in taps {
        let mut sum = vec![0.0; length];
        for &(line, weight) in taps {
            let values = lines.get(line * length..(line + 1) * length).unwrap_or(&[]);
            sum.iter_mut().zip(values).for_each(|(sum, &value)| *sum += weight * f64::from(value));
        }
        out.extend(sum.iter().map(|&value| value as f32));
    }
    out
}

/// Where the `i`th new value lies among the old ones, if the edges lie on the edges.
fn centred(i: usize, scale: f64) -> f64 {
    (i as f64 + 0.5) * scale - 0.5
}

/// Where the `i`th of `to` new values lies among `from` old ones, if the corners lie on the corners.
fn aligned(i: usize, from: usize, to: usize) -> f64 {
    i as f64 * from.saturating_sub(1) as f64 / to.saturating_sub(1).max(1) as f64
}

/// An index beyond the edge is the edge's.
fn clamp(index: f64, count: usize) -> usize {
    (index.max(0.0) as usize).min(count - 1)
}

fn cubic_taps(place: f64, count: usize) -> Taps {
    let (whole, beyond) = (place.floor(), place - place.floor());
    (-1..=2).map(f64::from).map(|k| (clamp(whole + k, count), cubic(k - beyond, -0.75))).collect()
}

fn linear_taps(place: f64, count: usize) -> Taps {
    let (whole, beyond) = (place.floor(), place - place.floor());
    vec![(clamp(whole, count), 1.0 - beyond), (clamp(whole + 1.0, count), beyond)]
}

fn antialiased_taps(i: usize, scale: f64, count: usize) -> Taps {
    let stretch = scale.max(1.0);
    let centre = (i as f64 + 0.5) * scale;
    // A negative number becomes 0.
    let first = (centre - 2.0 * stretch + 0.5) as usize;
    let end = ((centre + 2.0 * stretch + 0.5) as usize).min(count);
    let weight = |k: usize| cubic((k as f64 - centre + 0.5) / stretch, -0.5);
    let sum: f64 = (first..end).map(weight).sum();
    (first..end).map(|k| (k, weight(k) / sum)).collect()
}

/// Keys' cubic kernel.
fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}
