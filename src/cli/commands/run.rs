//! `vit-attn run`: pictures in, heatmaps out.

use std::{
    collections::BTreeMap,
    env,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{anyhow, bail};

use crate::{
    checkpoint::{self, Checkpoint},
    cli::{args::RunArgs, output, progress::Progress},
    device::{self, Opened},
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
                eprintln!("vit-attn: error: {error:#}");
                failed += 1;
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} pictures failed; the others were written", jobs.len());
    }
    Ok(())
}

/// One picture and where its maps go.
struct Job {
    image: PathBuf,
    out: PathBuf,
}

/// Pairs pictures with output directories, and refuses directories that are taken before anything is computed.
fn jobs(args: &RunArgs) -> anyhow::Result<Vec<Job>> {
    let mut taken = BTreeMap::new();
    let mut jobs = Vec::new();
    for image in &args.images {
        let stem = image.file_stem().ok_or_else(|| anyhow!("{}: is not a picture's path", image.display()))?;
        let mut name = stem.to_owned();
        name.push("-attention");
        let out = match &args.out {
            Some(out) if args.images.len() == 1 => out.clone(),
            Some(out) => out.join(name),
            None => PathBuf::from(name),
        };
        if let Some(other) = taken.insert(out.clone(), image) {
            let (a, b) = (other.display(), image.display());
            bail!("{a} and {b} would both be written to {}; run them one by one with --out", out.display());
        }
        output::check(&out, args.force)?;
        jobs.push(Job { image: image.clone(), out });
    }
    Ok(jobs)
}

/// What all pictures of a run share.
struct Session {
    name: String,
    checkpoint: Checkpoint,
    weights_sha256: String,
    model: ViT,
    opened: Opened,
    layers: Vec<usize>,
    heads: Vec<usize>,
    loading: Duration,
}

impl Session {
    fn open(args: &RunArgs) -> anyhow::Result<Self> {
        let started = Instant::now();
        let checkpoint = match &args.model {
            Some(path) => Checkpoint::open_with(path, &args.checkpoint.options())?,
            None => checkpoint::built_in(&args.checkpoint.options())?,
        };
        for note in &checkpoint.notes {
            eprintln!("vit-attn: {note}");
        }
        if !checkpoint.unused.is_empty() {
            eprintln!("vit-attn: tensors that the model does not use: {}", checkpoint.unused.join(", "));
        }
        let layers = args.layers.resolve("--layers", checkpoint.config.depth)?;
        let heads = args.heads.resolve("--heads", checkpoint.config.heads)?;
        let opened = device::open(args.device.backend, args.device.device)?;
        if let Some(note) = &opened.note {
            eprintln!("vit-attn: {note}");
        }
        let model = ViT::new(&checkpoint.config, &opened.device, |name, shape| checkpoint.fetch(name, shape))?;
        Ok(Self {
            name: args.model.as_ref().map_or("built-in".to_owned(), |path| path.display().to_string()),
            weights_sha256: checkpoint.sha256()?,
            checkpoint,
            model,
            opened,
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
        let view = args.view.unwrap_or_else(|| View::default_for(&tokens)).resolve(&tokens, &input.geometry)?;
        let whole = args.format.contains(&Format::Safetensors);
        let queries = if whole { Queries::All } else { Queries::Rows(view.queries.clone()) };
        let wanted = Wanted { layers: self.layers.clone(), queries };
        let seen = inspect::inspect(&self.model, &self.opened, &input.pixels, &wanted, || progress.step())?;
        clock.stage("forward pass");

        let record = seen.attention.first().ok_or_else(|| anyhow!("the model saw no picture"))?;
        let maps = view.maps(record, &self.heads)?;
        let drawing = Drawing::new(&maps, args.look.style())?;
        let artifacts = self.draw(args, &drawing, &picture, &input, &seen)?;
        clock.stage("draw");

        let warnings: Vec<String> = picture.notes.iter().chain(drawing.warnings()).cloned().collect();
        let prediction = seen.logits.as_ref().and_then(|logits| logits.first());
        let prediction = prediction.map(|logits| manifest::classes(logits, &self.checkpoint.labels));
        let files: Vec<String> = artifacts.iter().map(|artifact| artifact.name.clone()).collect();
        let shown = Shown { picture: &picture, input: &input, view: &view, drawing: &drawing };
        let manifest = Manifest {
            warnings: &warnings,
            prediction: prediction.as_deref(),
            seconds: clock.stages,
            ..self.manifest(&shown, &maps, files)
        };
        publish(args, job, artifacts, &manifest)?;
        summarise(&manifest)?;
        Ok(())
    }

    fn draw(
        &self,
        args: &RunArgs,
        drawing: &Drawing,
        picture: &Picture,
        input: &ModelInput,
        seen: &Seen,
    ) -> anyhow::Result<Vec<Artifact>> {
        let mut artifacts = Vec::new();
        if args.format.contains(&Format::Png) {
            artifacts.push(input::file(&input.seen)?);
            artifacts.extend(heatmap::files(drawing).collect::<Result<Vec<_>, _>>()?);
            let caption = Caption { seen: &input.seen, picture: &file_name(&picture.path), model: &self.name };
            artifacts.push(sheet::file(drawing, &caption)?);
        }
        if args.overlay {
            artifacts.extend(overlay::files(drawing, &picture.pixels, &input.geometry).collect::<Result<Vec<_>, _>>()?);
        }
        if args.format.contains(&Format::Npy) {
            artifacts.push(npy::file(drawing.maps())?);
        }
        if args.format.contains(&Format::Safetensors) {
            artifacts.extend(seen.attention.iter().map(tensors::file).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(artifacts)
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

/// What one picture's manifest tells of.
struct Shown<'a> {
    picture: &'a Picture,
    input: &'a ModelInput,
    view: &'a Resolved,
    drawing: &'a Drawing<'a>,
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

/// Writes the files, the manifest last: a directory that has one is complete. Prints what data goes to stdout.
fn publish(args: &RunArgs, job: &Job, mut artifacts: Vec<Artifact>, manifest: &Manifest) -> anyhow::Result<()> {
    let file = manifest::file(manifest)?;
    let json = args.json.then(|| file.bytes.clone());
    artifacts.push(file);
    let paths = output::write(&job.out, &artifacts)?;
    let mut out = io::stdout().lock();
    match json {
        Some(json) => out.write_all(&json)?,
        None => paths.iter().try_for_each(|path| writeln!(out, "{}", path.display()))?,
    }
    Ok(out.flush()?)
}

/// Most lines of the table of heads on stderr; the manifest has all of them.
const SUMMARY_LINES: usize = 16;

/// The table of heads and the prediction, on stderr.
fn summarise(manifest: &Manifest) -> io::Result<()> {
    let mut err = io::stderr().lock();
    for warning in manifest.warnings {
        writeln!(err, "vit-attn: {warning}")?;
    }
    writeln!(err, "{}: {}", manifest.input.path, manifest.view.title)?;
    writeln!(err, "  layer  head  on patches  strongest patch (row, col)  entropy")?;
    for map in manifest.maps.iter().take(SUMMARY_LINES) {
        let (stats, (row, col)) = (map.stats, map.stats.top);
        writeln!(
            err,
            "  {:>5}  {:>4}  {:>9.1} %  {:>15.1} %  ({row}, {col}){:pad$}  {:>7.2}",
            map.layer,
            map.head,
            100.0 * stats.patch_share,
            100.0 * stats.top_share,
            "",
            stats.entropy,
            pad = 6usize.saturating_sub(row.to_string().len() + col.to_string().len()),
        )?;
    }
    if manifest.maps.len() > SUMMARY_LINES {
        writeln!(err, "  ... and {} more in manifest.json", manifest.maps.len() - SUMMARY_LINES)?;
    }
    if let Some(classes) = manifest.prediction {
        let name = |class: &Class| class.label.clone().unwrap_or_else(|| format!("class {}", class.index));
        let top = classes.iter().take(3).map(|class| format!("{} {:.1} %", name(class), 100.0 * class.probability));
        writeln!(err, "  prediction: {}", top.collect::<Vec<_>>().join(", "))?;
    }
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
