//! The Vision Transformer, written to be read next to the book: patches, attention in four stages, blocks, classifier.
//! Knows tensors only: no files, no checkpoint families, no pictures.

pub mod attention;
pub mod block;
pub mod config;
mod fused;
pub mod init;
pub mod kernels;
pub mod norm;
pub mod parameters;
pub mod probe;
pub mod rotary;
pub mod sizes;
pub mod vit;

pub use attention::{Attention, Queries, Weights};
pub use block::{Block, Mlp};
pub use config::{Activation, Parameter, Pool, ViTConfig};
pub use norm::Norm;
pub use parameters::Parameters;
pub use probe::Probe;
pub use rotary::Rotary;
pub use sizes::Standard;
pub use vit::{Forward, Output, ViT};
