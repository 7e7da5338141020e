//! What can be typed. Every value is a library type with `FromStr`; the help text is the doc comment.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::{
    device::Choice,
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
    /// Train a small Vision Transformer on pictures of your own or on CIFAR-10
    Train(Box<TrainArgs>),
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
    /// Model: a checkpoint directory or file [default: the built-in model]
    #[arg(short, long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// Output directory; several pictures get one each in it [default: photo-attention for photo.jpg]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Whose attention: cls, mean (of all patches), patch=ROW,COL (from 0) or at=X,Y (pixels of the
    /// picture) [default: cls, or mean without a CLS token]
    #[arg(long)]
    pub view: Option<View>,
    /// Layers, counted from 0, such as 0,3-5,-1, all or last
    #[arg(long, value_name = "PICKS", default_value_t = Picks::last(), allow_hyphen_values = true)]
    pub layers: Picks,
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
    /// Print the manifest instead of the paths of the files
    #[arg(long)]
    pub json: bool,
}

/// How the maps are coloured.
#[derive(Debug, Clone, Args)]
pub struct LookArgs {
    /// viridis, magma, inferno, plasma, cividis, turbo or gray
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
    /// Epochs of rising learning rate; a cosine to zero follows
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub warmup: u32,
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
