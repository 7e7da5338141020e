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
    /// Checkpoint directory or file; without it, the built-in model
    #[arg(short, long, value_name = "PATH")]
    pub model: Option<PathBuf>,
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
