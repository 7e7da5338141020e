//! What can be typed. Every value is a library type with `FromStr`; the help text is the doc comment.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::{
    checkpoint::Options,
    device::Choice,
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
    /// Train the book's model on pictures of your own or on CIFAR-10
    Train(Box<TrainArgs>),
    /// Say what a checkpoint is and how it is read
    Info(InfoArgs),
    /// List the backends and graphics adapters, and what `auto` takes
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
    /// auto, wgpu (GPU), flex or ndarray (CPU)
    #[arg(long, value_name = "NAME", default_value_t = Choice::Auto)]
    pub backend: Choice,
    /// Adapter number, as `vit-attn devices` lists them
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
}

/// `vit-attn run`.
#[derive(Debug, Args)]
#[command(after_help = "Example: vit-attn run photo.jpg --view at=120,80 --layers 0,-1 --overlay -o maps")]
pub struct RunArgs {
    /// Pictures: PNG, JPEG, WebP, GIF, BMP, TIFF; transparency is put on white
    #[arg(required = true, value_name = "IMAGE")]
    pub images: Vec<PathBuf>,
    /// Checkpoint directory or file, or a model in the Hugging Face cache; without it, the built-in model
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// How to open the checkpoint
    #[command(flatten)]
    pub checkpoint: CheckpointArgs,
    /// Output directory [default: <IMAGE stem>-attention]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Whose attention: cls, mean, patch=ROW,COL or at=X,Y [default: cls, or mean without a CLS token]
    #[arg(long)]
    pub view: Option<View>,
    /// Layers, such as 0,3-5,-1, all or last
    #[arg(long, value_name = "PICKS", default_value_t = Picks::last(), allow_hyphen_values = true)]
    pub layers: Picks,
    /// Heads, picked the same way
    #[arg(long, value_name = "PICKS", default_value_t = Picks::all(), allow_hyphen_values = true)]
    pub heads: Picks,
    /// Also draw each map over the original picture
    #[arg(long)]
    pub overlay: bool,
    /// Files to write: png, npy, safetensors (repeat or separate by commas)
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
    /// Print the manifest instead of the paths written
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
    #[arg(long, value_name = "N")]
    pub heads_per_layer: Option<NonZeroUsize>,
    /// Entry of a training checkpoint that holds the model, such as teacher
    #[arg(long, value_name = "KEY")]
    pub checkpoint_key: Option<String>,
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
    /// viridis, magma, inferno, plasma, cividis, turbo or gray
    #[arg(long, value_name = "NAME", default_value_t = Colormap::default())]
    pub colormap: Colormap,
    /// Colours span each map, each layer, all maps, or MIN,MAX
    #[arg(long, default_value_t = Scale::default(), allow_hyphen_values = true)]
    pub scale: Scale,
    /// Percentiles of the values that the scale spans, such as 2,98
    #[arg(long, value_name = "LO,HI", default_value_t = Clip::default())]
    pub clip: Clip,
    /// nearest shows the true patches; bilinear smooths between them
    #[arg(long, value_name = "HOW", default_value_t = Upsample::default())]
    pub upsample: Upsample,
}

/// `vit-attn info`.
#[derive(Debug, Args)]
#[command(after_help = "Example: vit-attn info dino_vits16.pth --heads-per-layer 6 --size 480x320")]
pub struct InfoArgs {
    /// Checkpoint directory or file, or a model in the Hugging Face cache; without it, the built-in model
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
    after_help = "Example: vit-attn train --data photos/ --out my-vit --epochs 30   (photos/cat/1.jpg, photos/dog/2.jpg, ...)"
)]
pub struct TrainArgs {
    /// CIFAR-10's binary files, or folders of pictures named after their class
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Output directory: a checkpoint for `run --model`
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// Go on with the run in the output directory, under its own settings
    #[arg(long)]
    pub resume: bool,
    /// How to train
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Share of the pictures held out, if the data has no test part
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    pub validation_share: f32,
    /// Where to compute
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Start over where an earlier run was
    #[arg(long, conflicts_with = "resume")]
    pub force: bool,
}

/// How to train, and what.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// Passes over the training pictures
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// Pictures of a step
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
    /// Pixels that a picture is shifted by, at most
    #[arg(long, value_name = "PIXELS", default_value_t = 2)]
    pub crop_padding: u32,
    /// Do not mirror pictures at random
    #[arg(long)]
    pub no_flip: bool,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Values of a token
    #[arg(long, value_name = "N", default_value_t = 48)]
    pub width: usize,
    /// Blocks
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub depth: usize,
    /// Attention heads of a block
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub heads: usize,
    /// Side of a patch in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 4)]
    pub patch: usize,
    /// Side of the model's picture in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 32)]
    pub image_size: usize,
}
