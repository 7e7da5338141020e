//! See where a Vision Transformer looks.
//!
//! ```text
//! file --picture--> Picture --Recipe--> pixels --model--> tokens --blocks--> (tokens, weights) per layer
//!                                                                   | inspect: reads back only what was asked for
//!                                                                   v
//!      files <--cli-- Vec<Artifact> <--render-- MapSet <--views-- AttentionRecord (host memory, f32)
//! ```
//!
//! One direction; no stage calls back. After [`record::AttentionRecord`] no burn type exists, and before [`cli`]
//! nothing writes, prints or exits.

// Plain data that the stages hand on.
pub mod error;
pub mod map;
pub mod record;
pub mod select;

// The stages; each uses only what stands above it.
pub mod picture;

pub mod device;

pub mod model;

pub mod checkpoint;

pub mod inspect;

pub mod reference;

pub mod compare;

pub mod views;

pub mod render;

pub mod train;

pub mod cli;
