//! A `preprocessor_config.json` of transformers as a recipe.

use serde_json::Value;

use super::Settings;
use crate::{
    error::{Error, Result},
    picture::{Crop, Filter, Middle, Recipe, Resize},
};

/// The recipe that the file states; where it is silent, the family's `default`.
///
/// Rescaling and resizing swap places in some processors: that changes pixels by less than one step of 255.
pub(super) fn recipe(file: &Settings, default: Recipe) -> Result<Recipe> {
    let on = |name: &str| Ok::<_, Error>(file.flag(name)?.unwrap_or(true));
    let mut recipe = default;
    if on("do_resize")? {
        recipe.resize = resize(file, recipe.resize)?;
        recipe.filter = filter(file, recipe.filter)?;
    }
    recipe.crop = crop(file, &recipe)?;
    if let (None, Resize::ShortestEdge(edge)) = (recipe.crop, recipe.resize) {
        // Such pictures differ in size one by one, so a square is what all of them get.
        recipe.resize = Resize::Squash { rows: edge, cols: edge };
    }
    let (mut mean, mut std) = match on("do_normalize")? {
        true => (file.colours("image_mean")?.unwrap_or(recipe.mean), file.colours("image_std")?.unwrap_or(recipe.std)),
        false => ([0.0; 3], [1.0; 3]),
    };
    let factor = if on("do_rescale")? { file.number("rescale_factor")?.unwrap_or(1.0 / 255.0) } else { 1.0 };
    // Ours run from 0 to 1 before the mean is subtracted.
    let scale = (factor * 255.0) as f32;
    if (scale - 1.0).abs() > 1e-6 {
        (mean, std) = (mean.map(|value| value / scale), std.map(|value| value / scale));
    }
    if std.iter().any(|value| !value.is_normal()) {
        return Err(Error::checkpoint(file.path(), format!("image_std is {std:?}: expected three numbers but zero")));
    }
    Ok(Recipe { mean, std, ..recipe })
}

fn resize(file: &Settings, default: Resize) -> Result<Resize> {
    let Some(value) = file.stated("size") else { return Ok(default) };
    if let Some(edge) = sides(value, "shortest_edge", "shortest_edge") {
        return Ok(Resize::ShortestEdge(edge.0));
    }
    match (sides(value, "height", "width"), value.as_u64(), default) {
        (Some((rows, cols)), ..) => Ok(Resize::Squash { rows, cols }),
        (None, Some(_), Resize::Squash { .. }) => {
            let side = file.size("size")?;
            Ok(Resize::Squash { rows: side, cols: side })
        }
        (None, Some(_), _) => Ok(Resize::ShortestEdge(file.size("size")?)),
        _ => Err(file.refuse("size", value, "a number, height and width, or shortest_edge")),
    }
}

fn crop(file: &Settings, recipe: &Recipe) -> Result<Option<Crop>> {
    if !file.flag("do_center_crop")?.unwrap_or(recipe.crop.is_some()) {
        return Ok(None);
    }
    let stated = match file.stated("crop_size") {
        Some(value) if value.is_object() => sides(value, "height", "width")
            .map(Some)
            .ok_or_else(|| file.refuse("crop_size", value, "a number, or height and width"))?,
        Some(_) => Some(file.size("crop_size")?).map(|side| (side, side)),
        None => recipe.crop.map(|crop| (crop.rows, crop.cols)),
    };
    Ok(stated.map(|(rows, cols)| Crop { rows, cols, middle: Middle::Down }))
}

/// Two sizes by name.
fn sides(value: &Value, rows: &str, cols: &str) -> Option<(usize, usize)> {
    let side = |name: &str| {
        let side = usize::try_from(value.get(name)?.as_u64()?).ok()?;
        (1..=super::MAX_SIZE).contains(&side).then_some(side)
    };
    side(rows).zip(side(cols))
}

/// Pillow's numbers for filters.
fn filter(file: &Settings, default: Filter) -> Result<Filter> {
    let Some(value) = file.stated("resample") else { return Ok(default) };
    match value.as_u64() {
        Some(1) => Ok(Filter::Lanczos),
        Some(2) => Ok(Filter::Bilinear),
        Some(3) => Ok(Filter::Bicubic),
        _ => Err(file.refuse("resample", value, "1 (Lanczos), 2 (bilinear) or 3 (bicubic)")),
    }
}
