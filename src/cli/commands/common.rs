//! What several subcommands do first.

use std::{fs, path::Path};

use serde::Serialize;

use crate::{
    checkpoint::{self, Checkpoint, Options},
    cli::{args::PlacesArgs, hub, talk::say},
    device::{self, BACKENDS, Backend, Choice, Opened},
    error::{Error, Result},
    inspect::Wanted,
    model::{Queries, ViTConfig},
};

/// The checkpoint at `path`, or the built-in one, with its name; says what a person should know about it.
pub fn open_model(path: Option<&Path>, options: &Options) -> Result<(String, Checkpoint)> {
    let checkpoint = match path {
        Some(path) => open_checkpoint(path, options)?,
        None => checkpoint::built_in(options)?,
    };
    for note in &checkpoint.notes {
        say(format!("vit-attn: {note}"));
    }
    if !checkpoint.unused.is_empty() {
        say(format!("vit-attn: tensors that the model does not use: {}", checkpoint.unused.join(", ")));
    }
    Ok((path.map_or_else(|| "built-in".to_owned(), |path| path.display().to_string()), checkpoint))
}

/// The checkpoint at `path`, downloaded first if it is a model of the hub that is not on this machine.
pub fn open_checkpoint(path: &Path, options: &Options) -> Result<Checkpoint> {
    hub::fetch(path)?;
    Checkpoint::open_with(path, options)
}

/// A backend that cannot run here.
#[derive(Debug, Serialize)]
pub struct Unavailable {
    /// Its name.
    pub backend: String,
    /// Why, in one sentence.
    pub reason: String,
}

impl Unavailable {
    /// A backend that failed with `error`, which is told.
    pub fn tell(backend: impl ToString, error: &Error) -> Self {
        say(format!("vit-attn: left out: {error}"));
        Self { backend: backend.to_string(), reason: error.to_string() }
    }
}

/// Opens one of several backends: the adapter's number is not for those on the CPU.
pub fn open_backend(choice: Choice, adapter: Option<usize>) -> Result<Opened> {
    let cpu = matches!(choice, Choice::Only(backend) if backend != Backend::Wgpu);
    device::open(choice, if cpu { None } else { adapter })
}

/// Opens the backends asked for, or all; tells of those that cannot run here.
pub fn open_backends(places: &PlacesArgs) -> Result<(Vec<Opened>, Vec<Unavailable>)> {
    let every = || BACKENDS.iter().map(|(backend, ..)| Choice::Only(*backend)).collect();
    let choices: Vec<Choice> = if places.backends.is_empty() { every() } else { places.backends.clone() };
    let (mut opened, mut unavailable) = (Vec::new(), Vec::new());
    for choice in choices {
        match open_backend(choice, places.device) {
            Ok(backend) => opened.push(backend),
            Err(error @ Error::Selection { .. }) => return Err(error),
            Err(error) => unavailable.push(Unavailable::tell(choice, &error)),
        }
    }
    Ok((opened, unavailable))
}

/// Refuses attention that takes more memory than there is: `copies` at a time of what is wanted of one picture.
///
/// # Errors
/// [`Error::Numbers`] telling what it takes, and what there is.
pub fn check_memory(config: &ViTConfig, wanted: &Wanted, copies: usize) -> Result<()> {
    let tokens = config.tokens();
    let layers = wanted.layers.len();
    let rows = match &wanted.queries {
        Queries::None => 0,
        Queries::All => tokens,
        Queries::Rows(rows) => rows.len(),
    };
    let values = [layers, config.heads, rows, tokens, size_of::<f32>(), copies];
    let bytes = values.into_iter().map(|value| value as f64).product::<f64>();
    match memory("/proc/meminfo", "MemAvailable:").map(|bytes| bytes as f64) {
        Some(available) if bytes > available => Err(Error::Numbers(format!(
            "the attention of {layers} layers, {rows} queries by {tokens} keys, takes {:.1} GB and {:.1} GB of memory are free: \
             pick fewer --layers, or a smaller --size",
            bytes / 1e9,
            available / 1e9
        ))),
        _ => Ok(()),
    }
}

/// Bytes that a file of Linux's tells behind `field`; elsewhere `None`.
pub fn memory(file: &str, field: &str) -> Option<u64> {
    let about = fs::read_to_string(file).ok()?;
    let line = about.lines().find_map(|line| line.strip_prefix(field))?;
    Some(1024 * line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?)
}
