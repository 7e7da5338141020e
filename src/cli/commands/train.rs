//! `vit-attn train`: the book's model, from pictures to a checkpoint.

use std::{
    fs,
    path::{self, Path},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::{
    checkpoint::{self, MAX_DEPTH, MAX_SIZE},
    cli::{
        args::{PlanArgs, TrainArgs},
        output,
        progress::Progress,
        talk::{hand_out, say},
    },
    device::{self, Opened},
    error::{Error, Result},
    map::Artifact,
    model::ViTConfig,
    picture::MAX_INPUT_SIDE,
    train::{
        EpochResult, Plan, Trainer,
        augment::Augment,
        curve::{self, Point},
        data::{self, Split},
        resume,
    },
};

/// Set by Ctrl-C: the step under way is finished, then the run is saved.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Trains, or goes on training.
pub fn run(args: &TrainArgs) -> anyhow::Result<()> {
    if is_within(&args.out, &args.data) {
        let reason = format!("lies in the data {}, where it would be taken for pictures", args.data.display());
        bail!(Error::selection("--out", args.out.display().to_string(), reason));
    }
    let saved = args.out.join(resume::FILE);
    if !args.resume && !args.force && saved.exists() {
        bail!(Error::output(&args.out, "holds an earlier run: go on with --resume, or start over with --force"));
    }
    let opened = device::open(args.device.backend, args.device.device)?;
    let started = args.resume.then(|| load(&saved, &opened)).transpose()?;
    // Before any picture is read, which can take minutes.
    let (plan, config) = match &started {
        Some(run) => (run.plan.clone(), run.config().clone()),
        None => (plan(args)?, config(&args.plan)?),
    };
    if let Some(note) = &opened.note {
        say(format_args!("vit-attn: {note}"));
    }
    let reading = Instant::now();
    let split = read(&args.data, &plan, &config)?;
    let config = ViTConfig { classes: split.classes.len(), ..config };
    check_memory(&config, plan.batch_size.min(split.train.len()))?;
    let trainer = match started {
        Some(run) => fitting(run, &split, &args.data)?,
        None => Trainer::new(&config, Plan { pictures: split.train.len(), ..plan }, &opened.device)?,
    };
    output::prepare(&args.out)?;
    say(format_args!(
        "{} pictures to learn from, {} held out, read in {:.1} s; training on {}",
        split.train.len(),
        split.held_out.len(),
        reading.elapsed().as_secs_f64(),
        opened.backend
    ));
    // A second Ctrl-C finds the flag set already and changes nothing: the step is short.
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::SeqCst)).context("cannot listen for Ctrl-C")?;
    train(trainer, &split, &args.out)
}

/// Whether `path`, which need not exist yet, is `directory` or lies in it.
fn is_within(path: &Path, directory: &Path) -> bool {
    let whole = path::absolute(path).unwrap_or_default();
    let real = whole.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    real.zip(directory.canonicalize().ok()).is_some_and(|(path, directory)| path.starts_with(directory))
}

/// The run that was saved.
fn load(saved: &Path, opened: &Opened) -> anyhow::Result<Trainer> {
    if !saved.is_file() {
        bail!("{}: no such file, so there is no run to resume", saved.display());
    }
    let bytes = fs::read(saved).with_context(|| format!("{}: cannot be read", saved.display()))?;
    resume::load(&bytes, &opened.device).with_context(|| saved.display().to_string())
}

/// The pictures, with a bar while they are decoded.
fn read(dir: &Path, plan: &Plan, config: &ViTConfig) -> Result<Split> {
    let progress = Mutex::new(Progress::new(0, "reading pictures"));
    let tick = |done, all| progress.lock().unwrap_or_else(PoisonError::into_inner).reach(done, all);
    let split = data::open(dir, config.image_size, plan.validation_share, plan.seed, &tick)?;
    drop(progress);
    for note in &split.notes {
        say(format_args!("vit-attn: {note}"));
    }
    Ok(split)
}

/// The run, if it can go on with this data.
fn fitting(run: Trainer, split: &Split, data: &Path) -> Result<Trainer> {
    let (learnt, found) = (run.config().classes, split.classes.len());
    if learnt != found {
        let reason = format!("has {found} classes, and the run to resume has {learnt}: name the data it began with");
        return Err(Error::data(data, reason));
    }
    let (began, found) = (run.plan.pictures, split.train.len());
    if (began != found && began != 0) || run.step > run.steps(&split.train) {
        let reason = format!(
            "has {found} pictures to learn from, and the run to resume began with {began}: name the data it began with"
        );
        return Err(Error::data(data, reason));
    }
    Ok(run)
}

fn train(mut trainer: Trainer, split: &Split, out: &Path) -> anyhow::Result<()> {
    while trainer.history.len() < trainer.plan.epochs {
        let started = Instant::now();
        let begun = trainer.step;
        let order = trainer.order(&split.train);
        let steps = trainer.steps(&split.train);
        let label = format!("epoch {}/{}", trainer.history.len() + 1, trainer.plan.epochs);
        let mut progress = Progress::new(steps as u64, &label);
        while trainer.step < steps {
            trainer.advance(&split.train, &order)?;
            let pictures = (trainer.step - begun) * trainer.plan.batch_size;
            let rate = pictures as f64 / started.elapsed().as_secs_f64();
            let (loss, accuracy) = (trainer.tally.mean_loss(), 100.0 * trainer.tally.accuracy());
            progress.describe(&format!("{label}  loss {loss:.3}  accuracy {accuracy:.1} %  {rate:.0} pictures/s"));
            progress.reach(trainer.step, steps);
            if INTERRUPTED.load(Ordering::SeqCst) {
                output::write(out, &resume::save(&trainer)?, true)?;
                bail!("interrupted at {label}, step {} of {steps}, and saved; go on with --resume", trainer.step);
            }
        }
        let result = trainer.finish_epoch(&split.train, &split.held_out, || ())?;
        drop(progress);
        say(line(&result, &label, split.held_out_name, started.elapsed().as_secs_f64()));
        for file in files(&trainer, split)? {
            output::write(out, &file, true)?;
        }
    }
    hand_out(format!("{}\n", out.display()).as_bytes())
}

fn line(result: &EpochResult, label: &str, held_out: &str, seconds: f64) -> String {
    format!(
        "{label}  loss {:.4}  accuracy {:.2} %  {held_out} loss {:.4}  {held_out} accuracy {:.2} %  rate {:.1e}  {seconds:.0} s",
        result.train_loss,
        100.0 * result.train_accuracy,
        result.held_out_loss,
        100.0 * result.held_out_accuracy,
        result.learning_rate,
    )
}

/// What `metrics.json` tells.
#[derive(Serialize)]
struct Metrics<'a> {
    plan: &'a Plan,
    train_pictures: usize,
    held_out_pictures: usize,
    held_out: &'a str,
    epochs: &'a [EpochResult],
}

/// The checkpoint, its metrics and curve, and the run to resume, which comes last: it stands for the rest.
fn files(trainer: &Trainer, split: &Split) -> anyhow::Result<Vec<Artifact>> {
    let weights = trainer.weights()?;
    let mut files =
        checkpoint::save_book(trainer.config(), &split.classes, |name| weights.get(name).cloned().unwrap_or_default())?;
    let metrics = Metrics {
        plan: &trainer.plan,
        train_pictures: split.train.len(),
        held_out_pictures: split.held_out.len(),
        held_out: split.held_out_name,
        epochs: &trainer.history,
    };
    let mut bytes = serde_json::to_vec_pretty(&metrics)?;
    bytes.push(b'\n');
    files.push(Artifact { name: "metrics.json".to_owned(), bytes });
    let point = |result: &EpochResult| Point {
        epoch: result.epoch,
        train_loss: result.train_loss,
        held_out_loss: result.held_out_loss,
        train_accuracy: result.train_accuracy,
        held_out_accuracy: result.held_out_accuracy,
    };
    let points: Vec<Point> = trainer.history.iter().map(point).collect();
    files.push(Artifact { name: "curve.png".to_owned(), bytes: curve::png(&points, split.held_out_name)? });
    files.push(resume::save(trainer)?);
    Ok(files)
}

/// The model's sizes; the data tells the number of classes.
fn config(args: &PlanArgs) -> Result<ViTConfig> {
    let sizes = [
        ("--width", args.width, MAX_SIZE),
        ("--depth", args.depth, MAX_DEPTH),
        ("--heads", args.heads, MAX_SIZE),
        ("--patch", args.patch, MAX_INPUT_SIDE),
        ("--image-size", args.image_size, MAX_INPUT_SIDE),
    ];
    for (flag, size, most) in sizes {
        if !(1..=most).contains(&size) {
            return Err(Error::selection(flag, size.to_string(), format!("expected a number from 1 to {most}")));
        }
    }
    if !args.image_size.is_multiple_of(args.patch) {
        let valid = format!("the image size {} must be a multiple of the patch size", args.image_size);
        return Err(Error::selection("--patch", args.patch.to_string(), valid));
    }
    if !args.width.is_multiple_of(args.heads) {
        let valid = format!("the width {} must be a multiple of the number of heads", args.width);
        return Err(Error::selection("--heads", args.heads.to_string(), valid));
    }
    Ok(ViTConfig {
        image_size: (args.image_size, args.image_size),
        patch_size: (args.patch, args.patch),
        width: args.width,
        depth: args.depth,
        heads: args.heads,
        mlp_width: 4 * args.width,
        ..ViTConfig::default()
    })
}

/// Most memory that a run may be expected to take, in GiB; more is a slip of the keyboard.
const MAX_GIB: f64 = 64.0;

/// Refuses sizes that would end in an allocation that no machine can make.
fn check_memory(config: &ViTConfig, batch: usize) -> Result<()> {
    let product = |shape: &[usize]| shape.iter().map(|&size| size as f64).product::<f64>();
    let weights: f64 = config.parameters().iter().map(|parameter| product(&parameter.shape)).sum();
    // What a block keeps for the way back: two matrices a head, and about sixteen times its tokens.
    let tokens = config.tokens() as f64;
    let block = 2.0 * config.heads as f64 * tokens * tokens + 16.0 * tokens * config.width as f64;
    // A weight has a gradient and two moments.
    let gib = 4.0 * (4.0 * weights + (batch * config.depth) as f64 * block) / f64::from(1 << 30);
    if gib <= MAX_GIB {
        return Ok(());
    }
    let valid = format!(
        "this takes about {gib:.0} GiB of memory (depth {}, width {}, {} tokens): choose smaller sizes",
        config.depth,
        config.width,
        config.tokens()
    );
    Err(Error::selection("--batch-size", batch.to_string(), valid))
}

/// Epochs of rising learning rate where nobody says it.
const WARMUP: u32 = 3;

fn plan(args: &TrainArgs) -> Result<Plan> {
    let TrainArgs { plan: args, validation_share, .. } = args;
    let refuse = |flag, given: &dyn ToString, valid: &str| Err(Error::selection(flag, given.to_string(), valid));
    if !(args.learning_rate > 0.0 && args.learning_rate.is_finite()) {
        return refuse("--learning-rate", &args.learning_rate, "expected a number above 0");
    }
    if !(0.0..1.0).contains(&args.label_smoothing) {
        return refuse("--label-smoothing", &args.label_smoothing, "expected a share from 0 to below 1");
    }
    if !(args.weight_decay >= 0.0 && args.weight_decay.is_finite()) {
        return refuse("--weight-decay", &args.weight_decay, "expected 0 or more");
    }
    let warmup = args.warmup.unwrap_or(WARMUP.min(args.epochs / 2));
    if warmup > args.epochs {
        let valid = format!("the run has {} epochs, and the rise must end within them", args.epochs);
        return refuse("--warmup", &warmup, &valid);
    }
    Ok(Plan {
        epochs: args.epochs as usize,
        batch_size: args.batch_size as usize,
        learning_rate: args.learning_rate,
        warmup: warmup as usize,
        weight_decay: args.weight_decay,
        label_smoothing: args.label_smoothing,
        augment: Augment { crop_padding: args.crop_padding, flip: !args.no_flip },
        seed: args.seed,
        validation_share: *validation_share,
        pictures: 0,
    })
}
