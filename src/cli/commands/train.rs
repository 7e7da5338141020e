//! `vit-attn train`: the book's model, from pictures to a checkpoint.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::{
    checkpoint,
    cli::{
        args::{PlanArgs, TrainArgs},
        output,
        progress::Progress,
    },
    device,
    error::Error,
    map::Artifact,
    model::ViTConfig,
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
    let saved = args.out.join(resume::FILE);
    if !args.resume && !args.force && saved.exists() {
        bail!(Error::output(&args.out, "holds an earlier run: go on with --resume, or start over with --force"));
    }
    let opened = device::open(args.device.backend, args.device.device)?;
    if let Some(note) = &opened.note {
        eprintln!("vit-attn: {note}");
    }
    let reading = Instant::now();
    let started = if args.resume {
        let bytes = fs::read(&saved).with_context(|| format!("{}: no run to resume", saved.display()))?;
        Some(resume::load(&bytes, &opened.device).with_context(|| saved.display().to_string())?)
    } else {
        None
    };
    let size = started.as_ref().map_or((args.plan.image_size, args.plan.image_size), |run| run.config().image_size);
    let seed = started.as_ref().map_or(args.plan.seed, |run| run.plan.seed);
    let split = data::open(&args.data, size, args.validation_share, seed, &|_, _| ())?;
    for note in &split.notes {
        eprintln!("vit-attn: {note}");
    }
    let trainer = match started {
        Some(trainer) => trainer,
        None => Trainer::new(&config(&args.plan, split.classes.len())?, plan(&args.plan)?, &opened.device)?,
    };
    eprintln!(
        "{} pictures to learn from, {} held out, read in {:.1} s; training on {}",
        split.train.len(),
        split.held_out.len(),
        reading.elapsed().as_secs_f64(),
        opened.backend
    );
    // A second Ctrl-C finds the flag set already and changes nothing: the step is short.
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::SeqCst)).context("cannot listen for Ctrl-C")?;
    train(trainer, &split, &args.out)
}

fn train(mut trainer: Trainer, split: &Split, out: &Path) -> anyhow::Result<()> {
    while trainer.history.len() < trainer.plan.epochs {
        let started = Instant::now();
        let begun = trainer.step;
        let order = trainer.order(&split.train);
        let steps = trainer.steps(&split.train);
        let label = format!("epoch {}/{}", trainer.history.len() + 1, trainer.plan.epochs);
        let mut progress = Progress::new(steps as u64, &label);
        progress.set(trainer.step as u64);
        while trainer.step < steps {
            trainer.advance(&split.train, &order)?;
            let pictures = (trainer.step - begun) * trainer.plan.batch_size;
            let rate = pictures as f64 / started.elapsed().as_secs_f64();
            let (loss, accuracy) = (trainer.tally.mean_loss(), 100.0 * trainer.tally.accuracy());
            progress.say(&format!("{label}  loss {loss:.3}  accuracy {accuracy:.1} %  {rate:.0} pictures/s"));
            progress.step();
            if INTERRUPTED.load(Ordering::SeqCst) {
                output::write(out, &[resume::save(&trainer)?])?;
                drop(progress);
                eprintln!("interrupted at {label}, step {}; go on with --resume", trainer.step);
                return Ok(());
            }
        }
        let result = trainer.finish_epoch(&split.train, &split.held_out, || ())?;
        drop(progress);
        eprintln!("{}", line(&result, &label, split.held_out_name, started.elapsed().as_secs_f64()));
        output::write(out, &files(&trainer, split)?)?;
    }
    println!("{}", out.display());
    Ok(())
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

fn config(args: &PlanArgs, classes: usize) -> anyhow::Result<ViTConfig> {
    let (size, patch) = (args.image_size, args.patch);
    if patch == 0 || size == 0 || !size.is_multiple_of(patch) {
        let valid = format!("the image size {size} must be a multiple of the patch size");
        bail!(Error::selection("--patch", patch.to_string(), valid));
    }
    if args.heads == 0 || args.width == 0 || !args.width.is_multiple_of(args.heads) {
        let valid = format!("the width {} must be a multiple of the number of heads", args.width);
        bail!(Error::selection("--heads", args.heads.to_string(), valid));
    }
    if args.depth == 0 {
        bail!(Error::selection("--depth", "0", "a model has at least one block"));
    }
    Ok(ViTConfig {
        image_size: (size, size),
        patch_size: (patch, patch),
        width: args.width,
        depth: args.depth,
        heads: args.heads,
        mlp_width: 4 * args.width,
        classes,
        ..ViTConfig::default()
    })
}

fn plan(args: &PlanArgs) -> anyhow::Result<Plan> {
    if !(args.learning_rate > 0.0 && args.learning_rate.is_finite()) {
        bail!(Error::selection("--learning-rate", args.learning_rate.to_string(), "expected a number above 0"));
    }
    if !(0.0..1.0).contains(&args.label_smoothing) {
        let valid = "expected a share from 0 to below 1";
        bail!(Error::selection("--label-smoothing", args.label_smoothing.to_string(), valid));
    }
    if !(args.weight_decay >= 0.0 && args.weight_decay.is_finite()) {
        bail!(Error::selection("--weight-decay", args.weight_decay.to_string(), "expected 0 or more"));
    }
    Ok(Plan {
        epochs: args.epochs as usize,
        batch_size: args.batch_size as usize,
        learning_rate: args.learning_rate,
        warmup: args.warmup as usize,
        weight_decay: args.weight_decay,
        label_smoothing: args.label_smoothing,
        augment: Augment { crop_padding: args.crop_padding, flip: !args.no_flip },
        seed: args.seed,
    })
}
