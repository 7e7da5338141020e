//! What can be typed. Every value is a library type with `FromStr`; the help text is the doc comment.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::{
    checkpoint::Options,
    device::Choice,
    model::Standard,
    picture::Size,
    render::{
        Format, Style,
        colormap::Colormap,
        scale::{Clip, Scale},
        upsample::Upsample,
    },
    select::Picks,
    views::View,
};

/// See where a Vision Transformer looks: attention heatmaps from the shell
#[derive(Debug, Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "Example: vit-attn run photo.jpg --layers all --overlay"
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write each head's attention on a picture as heatmaps
    Run(Box<RunArgs>),
    /// Hold backends, models or another program's attention against each other on a picture
    Compare(Box<CompareArgs>),
    /// Measure load time, speed and memory
    Bench(Box<BenchArgs>),
    /// Train a small Vision Transformer on pictures of your own or on CIFAR-10
    Train(Box<TrainArgs>),
    /// Say what a checkpoint is and how it is read
    Info(InfoArgs),
    /// List the backends and graphics adapters, and which of them `auto` takes
    Devices(DevicesArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Example: vit-attn completions bash > ~/.local/share/bash-completion/completions/vit-attn")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Where to compute.
#[derive(Debug, Clone, Args)]
pub struct DeviceArgs {
    /// auto, wgpu (GPU), flex or ndarray (both CPU)
    #[arg(long, value_name = "NAME", default_value_t = Choice::Auto)]
    pub backend: Choice,
    /// Graphics adapter by number, as `vit-attn devices` lists them
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
}

/// `vit-attn run`.
#[derive(Debug, Args)]
#[command(after_help = "Example: vit-attn run photo.jpg --view at=120,80 --layers 0,-1 --overlay -o maps")]
pub struct RunArgs {
    /// Pictures (PNG, JPEG, WebP, GIF, BMP or TIFF); transparent parts are put on white
    #[arg(required = true, value_name = "IMAGE")]
    pub images: Vec<PathBuf>,
    /// Checkpoint directory or file, or the id of a Hugging Face model [default: the built-in model]
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// How to open the checkpoint
    #[command(flatten)]
    pub checkpoint: CheckpointArgs,
    /// Output directory; several pictures get one each in it [default: photo-attention for photo.jpg]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Whose attention: cls, probe (that pools the last tokens), mean (of all patches), patch=ROW,COL
    /// (from 0) or at=X,Y (pixels of the picture) [default: probe, cls or mean: the first there is]
    #[arg(long)]
    pub view: Option<View>,
    /// Layers, counted from 0, such as 0,3-5,-1, all or last; not for the probe [default: last]
    #[arg(long, value_name = "PICKS", allow_hyphen_values = true)]
    pub layers: Option<Picks>,
    /// Heads, picked the same way
    #[arg(long, value_name = "PICKS", default_value_t = Picks::all(), allow_hyphen_values = true)]
    pub heads: Picks,
    /// Also draw each map over the original picture
    #[arg(long)]
    pub overlay: bool,
    /// What to write, with commas between: png (heatmaps), npy (their weights), safetensors (whole
    /// attention matrices)
    #[arg(short, long, value_delimiter = ',', default_value = "png")]
    pub format: Vec<Format>,
    /// How the maps are coloured
    #[command(flatten)]
    pub look: LookArgs,
    /// Where to compute
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Write over the maps of an earlier run
    #[arg(long)]
    pub force: bool,
    /// Print manifests, not paths; those of several pictures one a line
    #[arg(long)]
    pub json: bool,
}

/// How to open a checkpoint.
#[derive(Debug, Clone, Args)]
pub struct CheckpointArgs {
    /// Pixels that pictures are brought to, W or WxH [default: the checkpoint's own]
    #[arg(long, value_name = "W[xH]")]
    pub size: Option<Size>,
    /// Heads of a layer, for checkpoints that do not say
    #[arg(long, value_name = "N", value_parser = positive)]
    pub heads_per_layer: Option<NonZeroUsize>,
    /// Entry of a training checkpoint that holds the model, such as teacher
    #[arg(long, value_name = "KEY")]
    pub checkpoint_key: Option<String>,
}

fn positive(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a number from 1".to_owned())
}

impl CheckpointArgs {
    /// The same for the library.
    pub fn options(&self) -> Options {
        Options {
            size: self.size.map(|size| (size.rows, size.cols)),
            heads: self.heads_per_layer.map(NonZeroUsize::get),
            entry: self.checkpoint_key.clone(),
        }
    }
}

/// How the maps are coloured.
#[derive(Debug, Clone, Args)]
pub struct LookArgs {
    /// viridis, magma, inferno, plasma, cividis, turbo, gray or blue-red
    #[arg(long, value_name = "NAME", default_value_t = Colormap::default())]
    pub colormap: Colormap,
    /// What shares a colour scale: each map alone, a layer, all maps, or MIN,MAX for a fixed one
    #[arg(long, default_value_t = Scale::default(), allow_hyphen_values = true)]
    pub scale: Scale,
    /// Percentiles of the weights at which the colour scale ends, such as 2,98
    #[arg(long, value_name = "LO,HI", default_value_t = Clip::default(), allow_hyphen_values = true)]
    pub clip: Clip,
    /// nearest (shows the true patches) or bilinear (smooths between them)
    #[arg(long, value_name = "HOW", default_value_t = Upsample::default())]
    pub upsample: Upsample,
}

/// Where to compute, one after the other.
#[derive(Debug, Clone, Args)]
pub struct PlacesArgs {
    /// wgpu (GPU), flex or ndarray (CPU), separated by commas [default: all that run here]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub backends: Vec<Choice>,
    /// Adapter number for wgpu, as `vit-attn devices` lists them
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
}

/// `vit-attn compare`.
#[derive(Debug, Args)]
#[command(after_help = "Example: vit-attn compare photo.jpg --backends flex,wgpu -o differences\n\
                  Exit code 1: a difference is beyond the tolerance")]
pub struct CompareArgs {
    /// The picture
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// Checkpoint directory or file; without it, the built-in model
    #[arg(short, long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// How to open the checkpoint
    #[command(flatten)]
    pub checkpoint: CheckpointArgs,
    /// Where to compute
    #[command(flatten)]
    pub places: PlacesArgs,
    /// Attention from another program: .safetensors as `run` writes it, or .npy or .npz of [layers, heads, N, N]
    #[arg(long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// Two checkpoints to hold against each other, on one backend
    #[arg(long, value_name = "A,B", value_delimiter = ',', conflicts_with_all = ["model", "reference"])]
    pub models: Vec<PathBuf>,
    /// Whose attention the maps of two models show, as in `run` [default: cls, or mean without a CLS token]
    #[arg(long, requires = "models", conflicts_with_all = ["model", "reference"])]
    pub view: Option<View>,
    /// Layers, such as 0,3-5,-1, all or last [default: all, or those of the reference]
    #[arg(long, value_name = "PICKS", allow_hyphen_values = true)]
    pub layers: Option<Picks>,
    /// Largest difference of a weight that passes [default: 1e-4, or none for two models]
    #[arg(long, value_name = "T", value_parser = tolerance)]
    pub tolerance: Option<f64>,
    /// Directory for pictures of the differences
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write over an earlier run
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

fn tolerance(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number from 0 up, such as 1e-4".to_owned())
}

/// `vit-attn bench`.
#[derive(Debug, Args)]
#[command(after_help = "Example: vit-attn bench --synthetic b16 --backends flex,ndarray --batch 1,8")]
pub struct BenchArgs {
    /// A picture; without it, made-up pixels
    #[arg(value_name = "IMAGE")]
    pub image: Option<PathBuf>,
    /// Checkpoint directory or file; without it, the built-in model
    #[arg(short, long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// Random weights instead: s8, s16, b16, l14 (ViT at 224 x 224) or book
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["model", "heads_per_layer", "checkpoint_key"])]
    pub synthetic: Option<Standard>,
    /// How to open the checkpoint
    #[command(flatten)]
    pub checkpoint: CheckpointArgs,
    /// Only the attention that `run` reads for this view, such as cls [default: all of it]
    #[arg(long)]
    pub view: Option<View>,
    /// Where to compute
    #[command(flatten)]
    pub places: PlacesArgs,
    /// Pictures at a time, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: Vec<u32>,
    /// Timed runs of each
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `vit-attn info`.
#[derive(Debug, Args)]
#[command(after_help = "Example: vit-attn info dino_vits16.pth --heads-per-layer 6 --size 480x320")]
pub struct InfoArgs {
    /// Checkpoint directory or file, or the id of a Hugging Face model; without it, the built-in model
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// How to open it
    #[command(flatten)]
    pub checkpoint: CheckpointArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `vit-attn devices`.
#[derive(Debug, Args)]
#[command(after_help = "Example: vit-attn devices --json")]
pub struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl LookArgs {
    /// The same for the renderer.
    pub fn style(&self) -> Style {
        Style { colormap: self.colormap, scale: self.scale, clip: self.clip, upsample: self.upsample }
    }
}

/// `vit-attn train`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: vit-attn train --data photos --out my-vit --epochs 30\n         (with photos/cat/1.jpg, photos/dog/2.jpg, ...)"
)]
pub struct TrainArgs {
    /// Folders of pictures named after their class, or CIFAR-10's binary files
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Output directory: a checkpoint for `run --model`
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// Go on with the run in the output directory, under its own settings
    // `PlanArgs` is clap's name for all options of that struct.
    #[arg(long, conflicts_with_all = ["PlanArgs", "validation_share"])]
    pub resume: bool,
    /// How to train
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Share of the pictures to hold out, if the data has no test part
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    pub validation_share: f32,
    /// Where to compute
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Start over in place of an earlier run
    #[arg(long, conflicts_with = "resume")]
    pub force: bool,
}

/// How to train, and what.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// Passes over the training pictures
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// Pictures per step
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch_size: u32,
    /// Highest learning rate
    #[arg(long, value_name = "RATE", default_value_t = 0.003)]
    pub learning_rate: f64,
    /// Epochs of rising learning rate; a cosine to zero follows [default: 3, or half of a shorter run]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Weight decay of the matrices (AdamW)
    #[arg(long, value_name = "DECAY", default_value_t = 0.05)]
    pub weight_decay: f32,
    /// Share of each target spread over all classes
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub label_smoothing: f32,
    /// Shift pictures at random by up to this many pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 2)]
    pub crop_padding: u32,
    /// Do not mirror pictures at random
    #[arg(long)]
    pub no_flip: bool,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Numbers per token
    #[arg(long, value_name = "N", default_value_t = 48)]
    pub width: usize,
    /// Number of layers (blocks)
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub depth: usize,
    /// Attention heads per block
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub heads: usize,
    /// Side of a patch in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 4)]
    pub patch: usize,
    /// Side of the picture that the model sees, in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 32)]
    pub image_size: usize,
}
