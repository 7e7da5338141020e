//! `vit-attn bench`: load time, speed and memory of a model on each backend.

use std::{
    env, io,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::common::{self, Unavailable};
use crate::{
    checkpoint::Checkpoint,
    cli::{
        args::BenchArgs,
        talk::{hand_out, say},
    },
    device::{Choice, Opened},
    error::{Error, Result},
    inspect::{self, Wanted},
    model::{Queries, ViT, ViTConfig, init},
    picture::{self, ModelInput, Picture, Recipe},
    record::TokenLayout,
    render::{manifest, scale::percentile},
    views::{Resolved, View},
};

/// Tells a process of ours what to measure, `<backend>,<batch>`. Each measurement has a process of its own, so that
/// the peaks of memory do not mix.
const ONE: &str = "VIT_ATTN_BENCH_ONE";

/// Measures everything asked for, or in a process that was started for it, one thing.
pub fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let model = Model::open(args)?;
    if let Ok(one) = env::var(ONE) {
        let (backend, batch) = one.split_once(',').with_context(|| format!("{ONE}: expected <backend>,<batch>"))?;
        let backend: Choice = backend.parse().map_err(anyhow::Error::msg)?;
        let opened = common::open_backend(backend, args.places.device)?;
        return print_json(&measure(args, &model, &opened, batch.parse()?)?);
    }
    // What is wrong with the picture or the view is said once, and here.
    model.input(args)?;
    let (opened, unavailable) = common::open_backends(&args.places)?;
    let mut report = Report::new(args, &model, unavailable);
    let mut failed = 0;
    for opened in &opened {
        for &batch in &args.batch {
            match measure_apart(opened, batch) {
                Ok(measured) => report.measurements.push(measured),
                Err(error) => {
                    say(format!("vit-attn: error: {} with batch {batch}: {error:#}", opened.backend));
                    failed += 1;
                }
            }
        }
    }
    if args.json {
        print_json(&report)?;
    } else {
        let mut table = Vec::new();
        print(&mut table, &report)?;
        hand_out(&table)?;
    }
    if failed > 0 {
        bail!("{failed} of {} measurements failed", failed + report.measurements.len());
    }
    if !args.places.backends.is_empty() && !report.unavailable.is_empty() {
        bail!("not every backend that was named can run here");
    }
    Ok(())
}

/// What is measured.
struct Model {
    name: String,
    config: ViTConfig,
    recipe: Recipe,
    /// `None` for random weights.
    checkpoint: Option<Checkpoint>,
}

impl Model {
    fn open(args: &BenchArgs) -> Result<Self> {
        let Some(size) = args.synthetic else {
            let (name, checkpoint) = common::open_model(args.model.as_deref(), &args.checkpoint.options())?;
            let (config, recipe) = (checkpoint.config.clone(), checkpoint.recipe.clone());
            return Ok(Self { name, config, recipe, checkpoint: Some(checkpoint) });
        };
        let mut config = size.config();
        let (rows, cols) = args.checkpoint.options().size.unwrap_or(config.image_size);
        let patch = config.patch_size.0;
        if !rows.is_multiple_of(patch) || !cols.is_multiple_of(patch) {
            let valid = format!("expected multiples of the patch size {patch}");
            return Err(Error::selection("--size", format!("{cols}x{rows}"), valid));
        }
        config.image_size = (rows, cols);
        let recipe = Recipe::book(rows, cols);
        Ok(Self { name: format!("{size} (random weights)"), config, recipe, checkpoint: None })
    }

    /// Builds the model, and says how long that took without making numbers up.
    fn build(&self, opened: &Opened) -> Result<(ViT, Duration)> {
        let started = Instant::now();
        let mut making = Duration::ZERO;
        let mut random = init::random(0);
        let model = ViT::new(&self.config, &opened.device, |name, shape| match &self.checkpoint {
            Some(checkpoint) => checkpoint.fetch(name, shape),
            None => {
                let started = Instant::now();
                let values = random(name, shape);
                making += started.elapsed();
                values
            }
        })?;
        Ok((model, started.elapsed() - making))
    }

    /// One picture as the model sees it, and the attention that is read.
    fn input(&self, args: &BenchArgs) -> Result<(ModelInput, Wanted)> {
        let picture = match &args.image {
            Some(path) => picture::load(path)?,
            None => Picture::made_up(self.config.image_size),
        };
        let input = self.recipe.apply(&picture, self.config.patch_size)?;
        let resolve = |view: View| view.resolve(&self.config.layout(), self.config.probe, &input.geometry);
        let view = args.view.map(resolve).transpose()?;
        let probe = view.as_ref().is_some_and(Resolved::asks_probe);
        let queries = view.map_or(Queries::All, |view| Queries::Rows(view.queries));
        let layers = if probe { Vec::new() } else { (0..self.config.depth).collect() };
        Ok((input, Wanted { layers, queries, probe, tokens: false }))
    }
}

/// Everything that was measured.
#[derive(Serialize)]
struct Report {
    schema: u32,
    tool_version: &'static str,
    command: Vec<String>,
    image: Option<String>,
    model: String,
    config: ViTConfig,
    tokens: TokenLayout,
    threads: usize,
    runs: u32,
    /// The view whose rows of attention are read; `None` for all of it.
    view: Option<String>,
    measurements: Vec<Measurement>,
    unavailable: Vec<Unavailable>,
}

impl Report {
    fn new(args: &BenchArgs, model: &Model, unavailable: Vec<Unavailable>) -> Self {
        Self {
            schema: manifest::SCHEMA,
            tool_version: env!("CARGO_PKG_VERSION"),
            command: env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            image: args.image.as_ref().map(|path| path.display().to_string()),
            model: model.name.clone(),
            config: model.config.clone(),
            tokens: model.config.layout(),
            threads: rayon::current_num_threads(),
            runs: args.runs,
            view: args.view.map(|view| view.to_string()),
            measurements: Vec::new(),
            unavailable,
        }
    }
}

/// One backend with one batch size. A run is a batch of pictures through the whole model, with the attention of all
/// layers and heads (or the rows of one view) read to the host.
#[derive(Serialize, Deserialize)]
struct Measurement {
    backend: String,
    /// The graphics adapter, on wgpu.
    adapter: Option<String>,
    /// Pictures of a run.
    batch: usize,
    /// From the open file to the model in place; random weights are made outside this time.
    load_seconds: f64,
    /// The first run.
    first_run_seconds: f64,
    /// What the first run took longer than the median: kernels that were compiled, and whatever else is done once.
    first_run_extra_seconds: f64,
    /// The runs after it.
    run_seconds: Spread,
    /// By the median.
    pictures_per_second: f64,
    /// The most memory that the process held, in bytes, with everything it is made of; Linux only.
    peak_memory_bytes: Option<u64>,
}

/// Quartiles.
#[derive(Serialize, Deserialize)]
struct Spread {
    min: f64,
    lower_quartile: f64,
    median: f64,
    upper_quartile: f64,
    max: f64,
}

impl Spread {
    fn new(mut seconds: Vec<f32>) -> Self {
        seconds.sort_unstable_by(f32::total_cmp);
        let at = |percent: f32| f64::from(percentile(&seconds, percent));
        Self { min: at(0.0), lower_quartile: at(25.0), median: at(50.0), upper_quartile: at(75.0), max: at(100.0) }
    }
}

/// Measures in a process of its own.
fn measure_apart(opened: &Opened, batch: u32) -> anyhow::Result<Measurement> {
    let mut child = Command::new(env::current_exe()?);
    child.args(env::args_os().skip(1)).env(ONE, format!("{},{batch}", opened.backend)).stderr(Stdio::piped());
    let output = child.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        // Behind an abort stands a backtrace, and before our own words may stand a graphics library's.
        const OURS: &str = "vit-attn: error: ";
        let why = said.lines().find(|line| line.starts_with(OURS) || line.starts_with("memory allocation"));
        let last = why.or(said.lines().last()).unwrap_or("it said nothing").trim_start_matches(OURS);
        bail!("{last} ({})", output.status);
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn measure(args: &BenchArgs, model: &Model, opened: &Opened, batch: usize) -> anyhow::Result<Measurement> {
    let (input, wanted) = model.input(args)?;
    common::check_memory(&model.config, &wanted, batch)?;
    let pixels = input.pixels.repeat(batch);
    let (vit, load) = model.build(opened)?;
    let run = || -> Result<f32> {
        let started = Instant::now();
        inspect::inspect(&vit, opened, &pixels, &wanted, || ())?;
        Ok(started.elapsed().as_secs_f32())
    };
    let first = f64::from(run()?);
    let spread = Spread::new((0..args.runs).map(|_| run()).collect::<Result<_>>()?);
    Ok(Measurement {
        backend: opened.backend.to_string(),
        adapter: opened.adapter.as_ref().map(|adapter| adapter.name.clone()),
        batch,
        load_seconds: load.as_secs_f64(),
        first_run_seconds: first,
        first_run_extra_seconds: (first - spread.median).max(0.0),
        pictures_per_second: batch as f64 / spread.median,
        run_seconds: spread,
        peak_memory_bytes: peak_memory(),
    })
}

/// The most memory that this process held so far, where the system tells.
fn peak_memory() -> Option<u64> {
    common::memory("/proc/self/status", "VmHWM:")
}

fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    hand_out(format!("{}\n", serde_json::to_string_pretty(value)?).as_bytes())
}

fn print(out: &mut impl io::Write, report: &Report) -> io::Result<()> {
    let ViTConfig { image_size: (rows, cols), depth, heads, .. } = report.config;
    let tokens = report.tokens.tokens();
    writeln!(out, "{}: {cols} x {rows} pixels, {tokens} tokens, {depth} layers of {heads} heads", report.model)?;
    let read = report.view.as_ref().map_or("the attention".to_owned(), |view| format!("the rows of view {view}"));
    writeln!(out, "{} threads; {} runs, {read} of all layers read to the host", report.threads, report.runs)?;
    writeln!(out, "backend  batch    load  first run  median run (min to max)      pictures/s  peak memory")?;
    for measured in &report.measurements {
        let Measurement { backend, batch, load_seconds: load, first_run_seconds: first, run_seconds: run, .. } =
            measured;
        let spread = format!("{} ({} to {})", seconds(run.median), seconds(run.min), seconds(run.max));
        let memory =
            measured.peak_memory_bytes.map_or("unknown".to_owned(), |bytes| format!("{} MB", bytes / 1_000_000));
        let (load, first, rate) = (seconds(*load), seconds(*first), measured.pictures_per_second);
        writeln!(out, "{backend:<7}  {batch:>5}  {load:>6}  {first:>9}  {spread:<27}  {rate:>10.1}  {memory:>11}")?;
    }
    Ok(())
}

/// A time in a fitting unit, with three digits.
fn seconds(value: f64) -> String {
    let (value, unit) = if value < 1.0 { (1000.0 * value, "ms") } else { (value, "s") };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}
