//! Trained weights: opens a checkpoint, recognises its family, and hands out tensors under the model's own names.
//!
//! ```text
//! path --locate--> weights, config.json --tensors, settings, wrappers--> Evidence --family--> Plan --check--> Checkpoint
//! ```
//!
//! Every key and shape is checked while opening, before a value is read; values are then read one tensor at a time.
//! A new family is one file and one line in [`FAMILIES`].

mod book;
mod family;
mod google;
mod heads;
mod hf;
mod hf_clip;
mod hf_dinov2;
mod hf_dinov3;
mod hf_siglip;
mod hf_vit;
pub mod hub;
mod locate;
mod meta;
mod names;
mod npy;
mod open_clip;
mod positions;
mod processor;
mod settings;
mod tensors;
mod timm;
mod torchscript;
mod torchvision;
mod wrappers;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

pub use book::{CIFAR10_LABELS, save_book};
pub use family::{Evidence, FAMILIES, Family, Piece, Plan, Source};
pub use npy::NpyHeader;
pub use positions::{Covers, Positions, Resampling};
pub use settings::Settings;
pub use tensors::{Dtype, Tensor, Tensors};

use crate::{
    error::{Error, Result},
    model::config::ViTConfig,
    picture::{MAX_INPUT_SIDE, Recipe},
};

/// The largest width, class count, picture side or similar that a model may have: far above any real one, and small
/// enough that no product of three overflows.
pub const MAX_SIZE: usize = 1 << 20;

/// The most blocks that a model may have.
pub const MAX_DEPTH: usize = 1000;

/// The most bad tensors that are listed one by one.
const MAX_PROBLEMS: usize = 10_000;

/// What a person says of a checkpoint beyond its path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Size in pixels to run at, (rows, cols), in place of the checkpoint's own.
    pub size: Option<(usize, usize)>,
    /// Heads of a layer, for checkpoints that do not say.
    pub heads: Option<usize>,
    /// The top-level entry of the file that holds the model, such as `teacher`.
    pub entry: Option<String>,
}

/// A model on disk (or inside the binary) whose keys and shapes all fit, ready to give its values.
#[derive(Debug)]
pub struct Checkpoint {
    /// The weights file.
    pub path: PathBuf,
    /// Name of the family that recognised it.
    pub family: &'static str,
    /// What was taken from the start of the tensors' names, such as `model.vit.`.
    pub wrapper: String,
    /// Sizes and choices of the model, at the size it is run at.
    pub config: ViTConfig,
    /// How the model wants its pictures, at that size.
    pub recipe: Recipe,
    /// Names of the classes in order; empty if unknown.
    pub labels: Vec<String>,
    /// The file's table of positions, as it was trained; `None` for rotary ones.
    pub positions: Option<Positions>,
    /// What a person should know, such as what had to be guessed, one sentence each.
    pub notes: Vec<String>,
    /// Tensors of the file that belong to something else, sorted, each with what that is.
    pub beside: Vec<(String, &'static str)>,
    /// Other tensors of the file that the model does not use, sorted.
    pub unused: Vec<String>,
    tensors: Tensors,
    sources: BTreeMap<String, Source>,
}

impl Checkpoint {
    /// Opens a directory with `config.json` and weights, or a weights file by itself (a `config.json` beside it is
    /// used).
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if there is no such model or the files are broken, [`Error::Keys`] listing every tensor
    /// that is missing or misshapen.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &Options::default())
    }

    /// Opens a checkpoint as a person wants it.
    ///
    /// # Errors
    /// As [`Checkpoint::open`], and [`Error::Selection`] if an option does not fit the model.
    pub fn open_with(path: &Path, options: &Options) -> Result<Self> {
        let place = locate::locate(path)?;
        let tensors = Tensors::open(&place.weights)?;
        let settings = place.config.as_deref().map(Settings::open).transpose()?;
        let processor = place.processor.as_deref().map(Settings::open).transpose()?;
        Self::new(tensors, settings, processor, options)
    }

    /// Opens a model inside the binary: the text of its `config.json` and the bytes of its `model.safetensors`.
    ///
    /// # Errors
    /// As [`Checkpoint::open`], with `built-in` in place of the path.
    pub fn from_bytes(config: &str, weights: &'static [u8], options: &Options) -> Result<Self> {
        let path = Path::new("built-in");
        let settings = Settings::parse(path, config.as_bytes())?;
        Self::new(Tensors::from_bytes(path, weights)?, Some(settings), None, options)
    }

    fn new(
        tensors: Tensors,
        settings: Option<Settings>,
        processor: Option<Settings>,
        options: &Options,
    ) -> Result<Self> {
        let tensors = match &options.entry {
            Some(entry) => tensors.under(entry)?,
            None => tensors,
        };
        let (settings, processor, heads) = (settings.as_ref(), processor.as_ref(), options.heads);
        let (tensors, chain, family) = family::recognise(tensors, settings)?;
        let evidence = Evidence { tensors: &tensors, settings, processor, heads };
        let plan = (family.build)(&evidence)?;
        check_sizes(&plan.config, &evidence)?;
        if let Some(said) = heads.filter(|said| *said != plan.config.heads) {
            let valid = format!("the checkpoint says that a layer has {} heads", plan.config.heads);
            return Err(Error::selection("--heads-per-layer", said.to_string(), valid));
        }
        let plan = at_size(plan, options.size, &evidence)?;
        let sources = check_keys(family, &plan, &evidence)?;
        let (beside, unused) = spare(family, &sources, &evidence)?;
        Ok(Self {
            path: tensors.path().to_owned(),
            family: family.name,
            wrapper: chain.concat(),
            config: plan.config,
            recipe: plan.recipe,
            labels: plan.labels,
            positions: plan.positions,
            notes: plan.notes,
            beside,
            unused,
            tensors,
            sources,
        })
    }

    /// The values of the parameter with this canonical name (see [`ViTConfig::parameters`]) as f32, row-major in
    /// PyTorch's order. Reads them from the file now; nothing is kept.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the model has no such parameter, if it is not of `shape`, or if the file cannot be
    /// read any more.
    pub fn fetch(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let source = self.sources.get(name);
        let source = source.ok_or_else(|| self.refuse(format!("the model has no parameter {name}")))?;
        let wanted = shape.iter().copied().fold(1, usize::saturating_mul);
        let held: usize = source.pieces.iter().map(Piece::elements).sum();
        if wanted != held {
            return Err(self.refuse(format!("{name} has {held} values, not the {wanted} of shape {shape:?}")));
        }
        let mut values = Vec::with_capacity(held);
        for piece in &source.pieces {
            piece.read(&self.tensors, &mut values)?;
        }
        Ok(values)
    }

    /// Number of the model's values that the file holds.
    pub fn parameters(&self) -> usize {
        let pieces = self.sources.values().flat_map(|source| &source.pieces);
        pieces.filter(|piece| piece.key().is_some()).map(Piece::elements).sum()
    }

    /// Number of the file's tensors that the model uses.
    pub fn loaded(&self) -> usize {
        let pieces = self.sources.values().flat_map(|source| &source.pieces);
        pieces.filter_map(Piece::key).collect::<BTreeSet<_>>().len()
    }

    /// SHA-256 of the weights file in lower-case hex. Reads the whole file.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the file cannot be read.
    pub fn sha256(&self) -> Result<String> {
        self.tensors.sha256()
    }

    fn refuse(&self, reason: String) -> Error {
        Error::checkpoint(&self.path, reason)
    }
}

/// Refuses sizes that no model has, before anything is computed or allocated from them.
fn check_sizes(config: &ViTConfig, evidence: &Evidence) -> Result<()> {
    let ViTConfig { image_size: image, patch_size: patch, width, depth, heads, .. } = *config;
    let sizes = [image.0, image.1, patch.0, patch.1, config.channels, width, heads, config.mlp_width];
    if sizes.contains(&0) || sizes.iter().chain([&config.classes]).any(|&size| size > MAX_SIZE) {
        return Err(evidence.refuse(format!(
            "the model's sizes are out of range (1 to {MAX_SIZE}): picture {image:?}, patch {patch:?}, channels {}, \
             width {width}, heads {heads}, MLP width {}, classes {}",
            config.channels, config.mlp_width, config.classes
        )));
    }
    if depth == 0 || depth > MAX_DEPTH {
        return Err(evidence.refuse(format!("a model of {depth} layers: expected 1 to {MAX_DEPTH}")));
    }
    if width % heads != 0 {
        return Err(evidence.refuse(format!("width {width} cannot be split over {heads} heads: it must be a multiple")));
    }
    if config.rotary && !config.head_width().is_multiple_of(4) {
        let head = config.head_width();
        return Err(evidence.refuse(format!("heads of {head} values with rotary positions: expected a multiple of 4")));
    }
    if image.0 % patch.0 != 0 || image.1 % patch.1 != 0 {
        return Err(evidence.refuse(format!("picture size {image:?} is not a multiple of the patch size {patch:?}")));
    }
    Ok(())
}

/// The plan at the size that is asked for, or else at the one that the checkpoint's own preprocessing gives.
fn at_size(mut plan: Plan, size: Option<(usize, usize)>, evidence: &Evidence) -> Result<Plan> {
    if let Some(size) = size {
        plan.recipe = plan.recipe.at(size);
    }
    let (rows, cols) = plan.recipe.output().unwrap_or(plan.config.image_size);
    let (patch_rows, patch_cols) = plan.config.patch_size;
    let whole = (rows / patch_rows * patch_rows, cols / patch_cols * patch_cols);
    if whole.0 == 0 || whole.1 == 0 || rows.max(cols) > MAX_INPUT_SIDE {
        let reason = format!(
            "a size of {cols}x{rows} pixels: expected {patch_cols}x{patch_rows} (one patch) to {MAX_INPUT_SIDE}"
        );
        return Err(match size {
            Some(_) => Error::selection("--size", format!("{cols}x{rows}"), reason),
            None => evidence.refuse(reason),
        });
    }
    if whole != (rows, cols) {
        plan.notes.push(format!(
            "of {cols}x{rows} pixels, the model sees {}x{}: whole patches of {patch_cols}x{patch_rows}",
            whole.1, whole.0
        ));
    }
    plan.config.image_size = whole;
    Ok(plan)
}

/// Finds the source of every parameter, and lists all tensors that are missing or misshapen.
fn check_keys(family: &Family, plan: &Plan, evidence: &Evidence) -> Result<BTreeMap<String, Source>> {
    let mut sources = BTreeMap::new();
    let mut problems = Vec::new();
    for parameter in plan.config.parameters() {
        let mut source = (family.source)(evidence, &plan.config, &parameter);
        if let (Some(table), "position_embedding") = (&plan.positions, parameter.name.as_str()) {
            source = position_source(&source, table, &plan.config);
        }
        problems.extend(source.pieces.iter().filter_map(|piece| piece.problem(evidence.tensors)));
        // A config.json far too large for its file must not list millions.
        if problems.len() > MAX_PROBLEMS {
            break;
        }
        sources.insert(parameter.name, source);
    }
    if !problems.is_empty() {
        return Err(Error::Keys { path: evidence.tensors.path().to_owned(), problems });
    }
    Ok(sources)
}

/// The table that a family names, brought to the model's tokens.
fn position_source(named: &Source, table: &Positions, config: &ViTConfig) -> Source {
    let key = named.pieces.first().and_then(Piece::key).unwrap_or_default().to_owned();
    let prefix = config.prefix_tokens();
    let rows = table.leading(prefix) + table.grid.0 * table.grid.1;
    let (shape, table) = ([1, rows, config.width], table.clone());
    Source { pieces: vec![Piece::Positions { key, shape, table, prefix, grid: config.grid() }] }
}

/// A tensor that belongs to something else, and what that is.
type Beside = (String, &'static str);

/// What lies in the file beside the model: tensors that belong to something else, and unknown ones.
fn spare(
    family: &Family,
    sources: &BTreeMap<String, Source>,
    evidence: &Evidence,
) -> Result<(Vec<Beside>, Vec<String>)> {
    let used: BTreeSet<&str> = sources.values().flat_map(|s| &s.pieces).filter_map(Piece::key).collect();
    let (mut beside, mut unused) = (Vec::new(), Vec::new());
    for key in evidence.tensors.keys().filter(|key| !used.contains(key)) {
        let known =
            family.beside.iter().find(|(part, _)| key.starts_with(part) || key.ends_with(part)).map(|(_, what)| *what);
        let empty = evidence.shape(key).is_some_and(|shape| shape.contains(&0)).then_some("nothing: it is empty");
        match known.or(empty) {
            Some(what) => beside.push((key.to_owned(), what)),
            None => unused.push(key.to_owned()),
        }
    }
    // Half of a layer is damage, and what is left of it would not be missed.
    let torn = |key: &&String| {
        let layer = key.strip_suffix(".bias");
        layer.is_some_and(|layer| evidence.tensors.get(&format!("{layer}.weight")).is_none())
    };
    if let Some(key) = unused.iter().find(torn) {
        return Err(Error::checkpoint(
            evidence.tensors.path(),
            format!("has {key} without its weight: the file is damaged, or has another name for it"),
        ));
    }
    let blocks = family.blocks.map(|blocks| blocks(evidence));
    let in_block = |key: &&String| {
        let rest = blocks.and_then(|blocks| key.strip_prefix(blocks));
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    match unused.iter().find(in_block) {
        Some(key) => {
            let name = family.name;
            Err(Error::checkpoint(
                evidence.tensors.path(),
                format!(
                    "looks like {name}, but has {key} in a block, which {name} has not: its attention would be wrong"
                ),
            ))
        }
        None => Ok((beside, unused)),
    }
}

/// The model that is used when none is named: the book's, trained on CIFAR-10 (`assets/cifar10-vit/`).
///
/// # Errors
/// None in practice; as [`Checkpoint::from_bytes`].
pub fn built_in(options: &Options) -> Result<Checkpoint> {
    Checkpoint::from_bytes(
        include_str!("../../assets/cifar10-vit/config.json"),
        include_bytes!("../../assets/cifar10-vit/model.safetensors"),
        options,
    )
}
