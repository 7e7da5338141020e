//! `vit-attn info`: what a checkpoint is, how it was read, and what running it takes.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
};

use serde::Serialize;

use super::common;
use crate::{
    checkpoint::{self, Checkpoint, Positions},
    cli::{args::InfoArgs, talk::hand_out},
    model::{Activation, ViTConfig},
    picture::{Recipe, Resize},
    record::TokenLayout,
};

/// Prints what is known of a checkpoint.
pub fn run(args: &InfoArgs) -> anyhow::Result<()> {
    let checkpoint = match &args.model {
        Some(path) => common::open_checkpoint(path, &args.checkpoint.options())?,
        None => checkpoint::built_in(&args.checkpoint.options())?,
    };
    let about = About::new(&checkpoint);
    let mut out = Vec::new();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &about)?;
        writeln!(out)?;
    } else {
        about.write(&mut out)?;
    }
    hand_out(&out)
}

/// What is known of a checkpoint.
#[derive(Serialize)]
struct About<'a> {
    path: String,
    family: &'static str,
    wrapper: &'a str,
    parameters: usize,
    config: &'a ViTConfig,
    tokens: TokenLayout,
    recipe: &'a Recipe,
    positions: Option<&'a Positions>,
    labels: &'a [String],
    attention_bytes: u64,
    loaded_tensors: usize,
    beside: &'a [(String, &'static str)],
    unused: &'a [String],
    notes: &'a [String],
}

impl<'a> About<'a> {
    fn new(checkpoint: &'a Checkpoint) -> Self {
        let config = &checkpoint.config;
        let tokens = config.tokens() as u64;
        Self {
            path: checkpoint.path.display().to_string(),
            family: checkpoint.family,
            wrapper: &checkpoint.wrapper,
            parameters: checkpoint.parameters(),
            config,
            tokens: config.layout(),
            recipe: &checkpoint.recipe,
            positions: checkpoint.positions.as_ref(),
            labels: &checkpoint.labels,
            attention_bytes: 4 * tokens * tokens * config.heads as u64 * config.depth as u64,
            loaded_tensors: checkpoint.loaded(),
            beside: &checkpoint.beside,
            unused: &checkpoint.unused,
            notes: &checkpoint.notes,
        }
    }

    fn write(&self, out: &mut impl io::Write) -> io::Result<()> {
        let config = self.config;
        let wrapper = if self.wrapper.is_empty() { String::new() } else { format!(", under {}", self.wrapper) };
        writeln!(out, "weights       {}", self.path)?;
        writeln!(out, "family        {}, by its tensors' names{wrapper}", self.family)?;
        writeln!(out, "parameters    {}", self.parameters)?;
        writeln!(out, "layers        {} of {} heads, width {}", config.depth, config.heads, config.width)?;
        let gated = if config.gated_mlp { ", gated" } else { "" };
        writeln!(out, "MLP           width {}, {}{gated}", config.mlp_width, activation(config.activation))?;
        let kind = if config.rms_norm { "RMS, " } else { "" };
        writeln!(out, "norms         {kind}epsilon {:e}", config.norm_eps)?;
        writeln!(out, "classes       {}", config.classes)?;
        self.write_input(out)?;
        writeln!(out, "attention     {} takes {}", self.whole_matrix(), bytes(self.attention_bytes))?;
        writeln!(out, "tensors       {} loaded", self.loaded_tensors)?;
        let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (key, what) in self.beside {
            kinds.entry(what).or_default().push(key);
        }
        for (what, keys) in kinds {
            let more = if keys.len() > 1 { format!(" and {} more", keys.len() - 1) } else { String::new() };
            writeln!(out, "  not loaded  {}{more}: {what}", keys.first().unwrap_or(&""))?;
        }
        for key in self.unused {
            writeln!(out, "  not used    {key}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "note          {note}"))
    }

    fn write_input(&self, out: &mut impl io::Write) -> io::Result<()> {
        let ((rows, cols), patch) = (self.config.image_size, self.config.patch_size);
        writeln!(out, "picture       {cols}x{rows} pixels in patches of {}x{}", patch.1, patch.0)?;
        let resize = match self.recipe.resize {
            Resize::Squash { rows, cols } => format!("squashed to {cols}x{rows}"),
            Resize::ShortestEdge(edge) => format!("shorter edge to {edge}"),
            Resize::Cover { rows, cols } => format!("to cover {cols}x{rows}"),
        };
        let crop =
            self.recipe.crop.map_or(String::new(), |crop| format!(", {}x{} from the middle", crop.cols, crop.rows));
        let Recipe { filter, mean, std, .. } = self.recipe;
        writeln!(out, "preprocessing {resize} ({}){crop}; mean {mean:?}, deviation {std:?}", words(filter))?;
        let prefix = self.tokens.prefix.len();
        for (index, name) in self.tokens.prefix.iter().enumerate() {
            writeln!(out, "token {index:<8}{name}")?;
        }
        if self.config.probe {
            let sees = if self.config.probe_sees_prefix { "all tokens" } else { "the patches" };
            writeln!(out, "probe         attends to {sees} after the last layer (--view probe)")?;
        }
        let ((rows, cols), last) = (self.tokens.grid, self.tokens.tokens() - 1);
        writeln!(out, "tokens        {prefix} to {last}: patches, {rows} rows of {cols}, row by row")?;
        match self.positions {
            None => writeln!(out, "positions     rotary, for any size"),
            Some(Positions { grid, .. }) if *grid == self.tokens.grid => {
                writeln!(out, "positions     {} x {}, as stored", grid.0, grid.1)
            }
            Some(Positions { grid, resampling, .. }) => {
                writeln!(out, "positions     resampled from {} x {} ({})", grid.0, grid.1, words(resampling))
            }
        }
    }

    fn whole_matrix(&self) -> String {
        let tokens = self.tokens.tokens();
        format!("of all layers and heads, {tokens} x {tokens} each,")
    }
}

/// An activation as papers write it.
fn activation(activation: Activation) -> &'static str {
    match activation {
        Activation::GeluErf => "GELU (erf)",
        Activation::GeluTanh => "GELU (tanh)",
        Activation::QuickGelu => "quick GELU",
        Activation::Silu => "SiLU",
    }
}

/// The name that a value has in JSON, as words.
fn words(value: impl Serialize) -> String {
    let name = serde_json::to_value(value).unwrap_or_default();
    name.as_str().unwrap_or_default().replace('_', " ")
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000_000 => format!("{:.0} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.0} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}
