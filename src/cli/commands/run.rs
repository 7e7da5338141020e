//! `vit-attn run`: pictures in, heatmaps out.

use std::{
    collections::BTreeMap,
    env, iter,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{anyhow, bail};

use super::common;
use crate::{
    checkpoint::Checkpoint,
    cli::{
        args::RunArgs,
        output,
        progress::{self, Progress},
        talk::{hand_out, say},
    },
    device::{self, Opened},
    error::{Error, Result},
    inspect::{self, Seen, Wanted},
    map::{Artifact, MapSet},
    model::{Queries, ViT},
    picture::{self, ModelInput, Picture},
    render::{
        Drawing, Format, heatmap, input,
        manifest::{self, Class, Manifest, Stage},
        npy, overlay,
        sheet::{self, Caption},
        tensors,
    },
    select::Picks,
    views::{Resolved, View},
};

/// Runs the model on each picture and writes its maps.
pub fn run(args: &RunArgs) -> anyhow::Result<()> {
    let jobs = jobs(args)?;
    let session = Session::open(args)?;
    let mut progress = Progress::new((jobs.len() * session.layers.len()) as u64, "attending");
    let mut failed = 0;
    for job in &jobs {
        match session.picture(args, job, &mut progress) {
            Ok(()) => {}
            // With one picture its own error is the result; with several, the others still count.
            Err(error) if jobs.len() == 1 => return Err(error),
            Err(error) => {
                progress.pause(|| say(format_args!("vit-attn: error: {error:#}")));
                failed += 1;
            }
        }
    }
    match jobs.len() {
        _ if failed == 0 => Ok(()),
        all if failed == all => bail!("all {all} pictures failed"),
        all => bail!("{failed} of {all} pictures failed; the others were written"),
    }
}

/// One picture and where its maps go.
struct Job {
    image: PathBuf,
    out: PathBuf,
}

/// Pairs pictures with output directories, and refuses directories that are taken before anything is computed.
fn jobs(args: &RunArgs) -> Result<Vec<Job>> {
    let mut taken = BTreeMap::new();
    let mut jobs = Vec::new();
    for image in &args.images {
        // Only paths such as `/` and `..` have no last part.
        let stem = image.file_stem().ok_or_else(|| Error::picture(image, "is a directory; name a picture file"))?;
        let mut name = stem.to_owned();
        name.push("-attention");
        let out = match &args.out {
            Some(out) if args.images.len() == 1 => out.clone(),
            Some(out) => out.join(name),
            None => PathBuf::from(name),
        };
        if let Some(other) = taken.insert(out.clone(), image) {
            let (a, b) = (other.display(), image.display());
            let reason = format!("{a} and {b} would both be written there; run them one by one");
            return Err(Error::selection("--out", out.display().to_string(), reason));
        }
        output::check(&out, args.force)?;
        jobs.push(Job { image: image.clone(), out });
    }
    Ok(jobs)
}

/// The layers to keep: those picked. For maps of the probe none are needed, but whole matrices are always of layers.
fn layers(args: &RunArgs, view: View, depth: usize) -> Result<Vec<usize>> {
    let whole = args.format.contains(&Format::Safetensors);
    match &args.layers {
        None if view == View::Probe && !whole => Ok(Vec::new()),
        Some(picks) if view == View::Probe && !whole => {
            let valid = "the probe comes after all layers, so leave this out, or show layers by --view cls or mean";
            Err(Error::selection("--layers", picks.to_string(), valid))
        }
        picks => picks.as_ref().unwrap_or(&Picks::last()).resolve("--layers", depth),
    }
}

/// What all pictures of a run share.
struct Session {
    name: String,
    checkpoint: Checkpoint,
    weights_sha256: String,
    model: ViT,
    opened: Opened,
    view: View,
    layers: Vec<usize>,
    heads: Vec<usize>,
    loading: Duration,
}

impl Session {
    fn open(args: &RunArgs) -> anyhow::Result<Self> {
        let started = Instant::now();
        let (name, checkpoint) = common::open_model(args.model.as_deref(), &args.checkpoint.options())?;
        let config = &checkpoint.config;
        // Who names layers means those, though the probe comes after them.
        let default = || View::default_for(&config.layout(), config.probe && args.layers.is_none());
        let view = args.view.unwrap_or_else(default);
        let layers = layers(args, view, config.depth)?;
        let heads = args.heads.resolve("--heads", config.heads)?;
        let opened = device::open(args.device.backend, args.device.device)?;
        if let Some(note) = &opened.note {
            say(format_args!("vit-attn: {note}"));
        }
        let model = ViT::new(&checkpoint.config, &opened.device, |name, shape| checkpoint.fetch(name, shape))?;
        Ok(Self {
            name,
            weights_sha256: checkpoint.sha256()?,
            checkpoint,
            model,
            opened,
            view,
            layers,
            heads,
            loading: started.elapsed(),
        })
    }

    /// One picture, from its file to its maps.
    fn picture(&self, args: &RunArgs, job: &Job, progress: &mut Progress) -> anyhow::Result<()> {
        let mut clock = Clock { stages: vec![Stage::new("load model", self.loading)], last: Instant::now() };
        let picture = picture::load(&job.image)?;
        let input = self.checkpoint.recipe.apply(&picture, self.checkpoint.config.patch_size)?;
        clock.stage("read picture");

        let tokens = self.model.layout();
        let view = self.view.resolve(&tokens, self.checkpoint.config.probe, &input.geometry)?;
        let whole = args.format.contains(&Format::Safetensors);
        let queries = if whole { Queries::All } else { Queries::Rows(view.queries.clone()) };
        let wanted = Wanted { layers: self.layers.clone(), queries, probe: view.asks_probe(), tokens: false };
        common::check_memory(&self.checkpoint.config, &wanted, if whole { 2 } else { 1 })?;
        let seen = progress::run_on(self.opened.backend, || {
            inspect::inspect(&self.model, &self.opened, &input.pixels, &wanted, || progress.step())
        })?;
        clock.stage("forward pass");

        let record = seen.attention.first().ok_or_else(|| anyhow!("the model saw no picture"))?;
        let maps = view.maps(record, seen.probe.as_ref().and_then(|probe| probe.first()), &self.heads)?;
        let drawing = Drawing::new(&maps, args.look.style())?;
        let shown = Shown { picture: &picture, input: &input, view: &view, seen: &seen, drawing: &drawing };
        let paths = self.write(args, &job.out, &shown, progress)?;
        clock.stage("draw and write");

        let prediction = prediction(&seen, &self.checkpoint.labels);
        let warnings = warnings(&shown, prediction.as_deref());
        let manifest = Manifest {
            warnings: &warnings,
            prediction: prediction.as_deref(),
            seconds: clock.stages,
            ..self.manifest(&shown, &maps, paths.iter().map(|path| file_name(path)).collect())
        };
        progress.pause(|| publish(args, job, paths, &manifest))
    }

    /// Draws and writes one file after the other, because a large picture's overlays together take much memory.
    fn write(&self, args: &RunArgs, out: &Path, shown: &Shown, progress: &mut Progress) -> Result<Vec<PathBuf>> {
        output::prepare(out)?;
        output::clear(out, &shown.picture.path)?;
        let caption = Caption { seen: &shown.input.seen, picture: &file_name(&shown.picture.path), model: &self.name };
        let kinds = usize::from(args.format.contains(&Format::Png)) + usize::from(args.overlay);
        progress.extend((kinds * shown.drawing.maps().maps.len()) as u64);
        let replace = output::may_replace(out, args.force, &shown.picture.path);
        output::write_all(out, artifacts(args, shown, &caption).inspect(|_| progress.step()), replace)
    }

    fn manifest<'a>(&'a self, shown: &'a Shown, maps: &'a MapSet, files: Vec<String>) -> Manifest<'a> {
        let config = &self.checkpoint.config;
        let numbers = config.parameters().iter().map(|parameter| parameter.shape.iter().product::<usize>()).sum();
        Manifest {
            schema: manifest::SCHEMA,
            tool_version: env!("CARGO_PKG_VERSION"),
            command: env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            input: manifest::Input {
                path: shown.picture.path.display().to_string(),
                width: shown.picture.pixels.width(),
                height: shown.picture.pixels.height(),
                sha256: shown.picture.sha256.clone(),
            },
            geometry: &shown.input.geometry,
            tokens: self.model.layout(),
            model: manifest::Model {
                name: &self.name,
                family: self.checkpoint.family,
                config,
                parameters: numbers,
                weights_sha256: &self.weights_sha256,
            },
            backend: self.opened.backend,
            adapter: self.opened.adapter.as_ref(),
            layers: &maps.layers,
            heads: &maps.heads,
            view: manifest::View { word: &shown.view.word, title: &shown.view.title, queries: &shown.view.queries },
            maps: manifest::entries(shown.drawing, &files),
            prediction: None,
            files,
            warnings: &[],
            seconds: Vec::new(),
        }
    }
}

/// One picture and what the model made of it.
struct Shown<'a> {
    picture: &'a Picture,
    input: &'a ModelInput,
    view: &'a Resolved,
    seen: &'a Seen,
    drawing: &'a Drawing<'a>,
}

/// Every file but the manifest, each made when it is asked for; the sheet first, because it alone can be refused.
fn artifacts<'a>(
    args: &RunArgs,
    shown: &'a Shown,
    caption: &'a Caption,
) -> impl Iterator<Item = Result<Artifact>> + 'a {
    let wants = |format| args.format.contains(&format);
    let Shown { picture, input, seen, drawing, .. } = *shown;
    let pictures = wants(Format::Png).then(|| {
        let input = iter::once_with(move || input::file(&input.seen));
        iter::once_with(move || sheet::file(drawing, caption)).chain(input).chain(heatmap::files(drawing))
    });
    let overlays = args.overlay.then(|| overlay::files(drawing, &picture.pixels, &input.geometry));
    let numbers = wants(Format::Npy).then(|| iter::once_with(move || npy::file(drawing.maps())));
    let probes = seen.probe.iter().flatten().map(Some).chain(iter::repeat(None));
    let whole = wants(Format::Safetensors)
        .then(|| seen.attention.iter().zip(probes).map(|(record, probe)| tensors::file(record, probe)));
    let pictures = pictures.into_iter().flatten().chain(overlays.into_iter().flatten());
    pictures.chain(numbers.into_iter().flatten()).chain(whole.into_iter().flatten())
}

/// The classes by falling probability, if the model has classes and their scores are numbers.
fn prediction(seen: &Seen, labels: &[String]) -> Option<Vec<Class>> {
    let logits = seen.logits.as_ref()?.first()?;
    logits.iter().all(|logit| logit.is_finite()).then(|| manifest::classes(logits, labels))
}

/// What a person should know about the run, one sentence each.
fn warnings(shown: &Shown, prediction: Option<&[Class]>) -> Vec<String> {
    let broken = shown.seen.logits.is_some() && prediction.is_none();
    let broken = broken.then(|| "the class scores are not finite, so there is no prediction".to_owned());
    shown.picture.notes.iter().chain(shown.drawing.warnings()).cloned().chain(broken).collect()
}

struct Clock {
    stages: Vec<Stage>,
    last: Instant,
}

impl Clock {
    fn stage(&mut self, name: &'static str) {
        self.stages.push(Stage::new(name, self.last.elapsed()));
        self.last = Instant::now();
    }
}

/// Writes the manifest, last: a directory that has one is complete. Then tells of the run.
fn publish(args: &RunArgs, job: &Job, mut paths: Vec<PathBuf>, manifest: &Manifest) -> anyhow::Result<()> {
    let file = manifest::file(manifest)?;
    paths.push(output::write(&job.out, &file, args.force)?);
    let list = || paths.iter().flat_map(|path| [path.as_os_str().as_encoded_bytes(), b"\n"]);
    hand_out(&match args.images.len() {
        _ if !args.json => list().flatten().copied().collect(),
        1 => file.bytes,
        // JSON Lines, which programs can read while the next picture is still computed.
        _ => [serde_json::to_vec(manifest)?, vec![b'\n']].concat(),
    })?;
    say(summary(manifest).join("\n"));
    Ok(())
}

/// Most lines of the table of heads on stderr; the manifest has all of them.
const SUMMARY_LINES: usize = 16;

/// The table of heads and the prediction, line by line.
fn summary(manifest: &Manifest) -> Vec<String> {
    let mut lines: Vec<String> = manifest.warnings.iter().map(|warning| format!("vit-attn: {warning}")).collect();
    lines.push(format!("{}: {}", manifest.input.path, manifest.view.title));
    lines.push("  layer  head  on patches  strongest patch (row, col)  entropy".to_owned());
    for map in manifest.maps.iter().take(SUMMARY_LINES) {
        let (stats, (row, col)) = (map.stats, map.stats.top);
        lines.push(format!(
            "  {:>5}  {:>4}  {:>9.1} %  {:>13} %  {:<10}  {:>7.2}",
            map.layer.map_or_else(|| "probe".to_owned(), |layer| layer.to_string()),
            map.head,
            100.0 * stats.patch_share,
            percent(100.0 * stats.top_share),
            format!("({row}, {col})"),
            stats.entropy,
        ));
    }
    if manifest.maps.len() > SUMMARY_LINES {
        lines.push(format!("  ... and {} more in {}", manifest.maps.len() - SUMMARY_LINES, output::MANIFEST));
    }
    if let Some(classes) = manifest.prediction {
        let name = |class: &Class| class.label.clone().unwrap_or_else(|| format!("class {}", class.index));
        let top = classes.iter().take(3).map(|class| format!("{} {:.1} %", name(class), 100.0 * class.probability));
        lines.push(format!("  prediction: {}", top.collect::<Vec<_>>().join(", ")));
    }
    lines
}

/// A share with a decimal, or with its first two digits where that would be none.
fn percent(share: f32) -> String {
    if share >= 0.1 || share == 0.0 { format!("{share:.1}") } else { format!("{share:.1e}") }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
