//! What training code and larger models put before the names of a Vision Transformer's tensors.

use std::collections::BTreeSet;

use super::Tensors;

/// Known wrappers. They are only taken from the start of a name, one after the other.
const WRAPPERS: [&str; 36] = [
    "module.",
    "_orig_mod.",
    "_forward_module.",
    "state_dict.",
    "model_state_dict.",
    "state_dict_ema.",
    "model_ema.",
    "ema_model.",
    "model.",
    "net.",
    "network.",
    "backbone.",
    "encoder.",
    "student.",
    "teacher.",
    "target_encoder.",
    "base_encoder.",
    "momentum_encoder.",
    "vit.",
    "deit.",
    "dinov2.",
    "dinov2_with_registers.",
    "dinov3_vit.",
    "clip.",
    "siglip.",
    "base_model.",
    "vision_model.",
    "vision_tower.",
    "vision_encoder.",
    "image_encoder.",
    "visual.",
    "trunk.",
    "opt.",
    "target.",
    "params.",
    "img.",
];

/// The longest chain of wrappers that is taken off.
const MAX_CHAIN: usize = 8;

/// The most chains that are tried.
const MAX_CHAINS: usize = 64;

/// Every chain of wrappers that some name starts with, the likeliest to hold the model first: averaged weights before
/// those they are an average of (DINO's teacher before its student), then short before long.
pub(super) fn chains(tensors: &Tensors) -> Vec<Vec<&'static str>> {
    let mut chains = BTreeSet::from([Vec::new()]);
    for key in tensors.keys() {
        let mut chain = Vec::new();
        let mut rest = key;
        while let Some((wrapper, inner)) = WRAPPERS.iter().find_map(|w| Some((*w, rest.strip_prefix(w)?))) {
            chain.push(wrapper);
            rest = inner;
            if chain.len() > MAX_CHAIN || chains.len() >= MAX_CHAINS {
                break;
            }
            chains.insert(chain.clone());
        }
    }
    let mut chains: Vec<_> = chains.into_iter().collect();
    chains.sort_by_key(|chain| {
        let averaged = chain.iter().any(|wrapper| wrapper.contains("ema"));
        (chain.contains(&"student."), !averaged, chain.len())
    });
    chains
}

/// A name without the number of a chunk: training code of Meta's keeps blocks in chunks, which keep their numbers
/// (`blocks.1.7.norm1` is block 7).
pub(super) fn unchunked(name: &str) -> String {
    let number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let words: Vec<&str> = name.splitn(4, '.').collect();
    match words[..] {
        ["blocks", chunk, block, rest] if number(chunk) && number(block) => format!("blocks.{block}.{rest}"),
        _ => name.to_owned(),
    }
}
