//! Trained weights: opens a checkpoint, recognises its family, and hands out tensors under the model's own names.
//!
//! ```text
//! path --locate--> weights, config.json --tensors, settings--> Evidence --family--> Plan --check--> Checkpoint
//! ```
//!
//! Every key and shape is checked while opening, before a value is read; values are then read one tensor at a time.
//! A new family is one file and one line in [`FAMILIES`].

mod book;
mod family;
mod locate;
mod settings;
mod tensors;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

pub use book::{CIFAR10_LABELS, save_book};
pub use family::{Evidence, FAMILIES, Family, Piece, Plan, Source};
pub use settings::Settings;
pub use tensors::{Dtype, Tensor, Tensors};

use crate::{
    error::{Error, Result},
    model::config::ViTConfig,
    picture::Recipe,
};

/// The largest width, class count, picture side or similar that a model may have: far above any real one, and small
/// enough that no product of three overflows.
pub const MAX_SIZE: usize = 1 << 20;

/// The most blocks that a model may have.
pub const MAX_DEPTH: usize = 1000;

/// The most bad tensors that are listed one by one.
const MAX_PROBLEMS: usize = 10_000;

/// A model on disk (or inside the binary) whose keys and shapes all fit, ready to give its values.
#[derive(Debug)]
pub struct Checkpoint {
    /// The weights file.
    pub path: PathBuf,
    /// Name of the family that recognised it.
    pub family: &'static str,
    /// Sizes and choices of the model.
    pub config: ViTConfig,
    /// How the model wants its pictures.
    pub recipe: Recipe,
    /// Names of the classes in order; empty if unknown.
    pub labels: Vec<String>,
    /// Tensors of the file that the model does not use, sorted.
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
        let place = locate::locate(path)?;
        let tensors = Tensors::open(&place.weights)?;
        let settings = place.config.as_deref().map(Settings::open).transpose()?;
        Self::new(tensors, settings)
    }

    /// Opens a model inside the binary: the text of its `config.json` and the bytes of its `model.safetensors`.
    ///
    /// # Errors
    /// As [`Checkpoint::open`], with `built-in` in place of the path.
    pub fn from_bytes(config: &str, weights: &'static [u8]) -> Result<Self> {
        let path = Path::new("built-in");
        Self::new(Tensors::from_bytes(path, weights)?, Some(Settings::parse(path, config.as_bytes())?))
    }

    fn new(tensors: Tensors, settings: Option<Settings>) -> Result<Self> {
        let evidence = Evidence { tensors: &tensors, settings: settings.as_ref() };
        let family = family::recognise(&evidence)?;
        let Plan { config, recipe, labels } = (family.build)(&evidence)?;
        check_sizes(&config, &evidence)?;
        let sources = check_keys(family, &config, &evidence)?;
        let used: BTreeSet<&str> = sources.values().flat_map(|s| &s.pieces).map(|piece| piece.key.as_str()).collect();
        let unused = tensors.keys().filter(|key| !used.contains(key)).map(str::to_owned).collect();
        Ok(Self {
            path: tensors.path().to_owned(),
            family: family.name,
            config,
            recipe,
            labels,
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
            self.tensors.read(&piece.key, &mut values)?;
        }
        Ok(values)
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
    if image.0 % patch.0 != 0 || image.1 % patch.1 != 0 {
        return Err(evidence.refuse(format!("picture size {image:?} is not a multiple of the patch size {patch:?}")));
    }
    Ok(())
}

/// Finds the source of every parameter, and lists all tensors that are missing or misshapen.
fn check_keys(family: &Family, config: &ViTConfig, evidence: &Evidence) -> Result<BTreeMap<String, Source>> {
    let mut sources = BTreeMap::new();
    let mut problems = Vec::new();
    for parameter in config.parameters() {
        let source = (family.source)(evidence, config, &parameter);
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

/// The model that is used when none is named: the book's, trained on CIFAR-10 (`assets/cifar10-vit/`).
///
/// # Errors
/// None in practice; as [`Checkpoint::from_bytes`].
pub fn built_in() -> Result<Checkpoint> {
    Checkpoint::from_bytes(
        include_str!("../../assets/cifar10-vit/config.json"),
        include_bytes!("../../assets/cifar10-vit/model.safetensors"),
    )
}
