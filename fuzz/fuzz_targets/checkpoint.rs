//! Anything at all as a checkpoint: headers, key maps and values. Only a panic or too much memory is a finding.
//!
//! The first byte chooses the file's ending. What follows up to the first zero byte is its `config.json` (none if empty),
//! the rest the weights.

#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use vit_attn::checkpoint::{Checkpoint, Options};

/// The most parameters that are fetched: a small file may repeat one large tensor in a thousand blocks.
const FETCHED: usize = 64;

fuzz_target!(|data: &[u8]| {
    let Some((&ending, rest)) = data.split_first() else { return };
    let ending = ["safetensors", "pth", "npz", "bin"][usize::from(ending) % 4];
    let zero = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let (config, weights) = (&rest[..zero], rest.get(zero + 1..).unwrap_or_default());
    let place = tempfile::tempdir().expect("a temporary directory");
    let path = place.path().join(format!("model.{ending}"));
    fs::write(&path, weights).expect("a temporary file");
    if !config.is_empty() {
        fs::write(place.path().join("config.json"), config).expect("a temporary file");
    }
    let options = Options { heads: Some(2), ..Options::default() };
    let Ok(checkpoint) = Checkpoint::open_with(&path, &options) else { return };
    for parameter in checkpoint.config.parameters().into_iter().take(FETCHED) {
        let _ = checkpoint.fetch(&parameter.name, &parameter.shape);
    }
});
