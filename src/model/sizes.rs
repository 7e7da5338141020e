//! Models of well-known sizes, for measuring without a download.

use std::{fmt, str::FromStr};

use super::{Activation, ViTConfig};

/// A well-known size of Vision Transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standard {
    /// ViT-S/8 at 224 x 224, the size of DINO's best known model.
    S8,
    /// ViT-S/16 at 224 x 224.
    S16,
    /// ViT-B/16 at 224 x 224.
    B16,
    /// ViT-L/14 at 224 x 224.
    L14,
    /// The book's model at 32 x 32.
    Book,
}

impl Standard {
    /// Every size by name.
    pub const NAMES: [(&'static str, Self); 5] =
        [("s8", Self::S8), ("s16", Self::S16), ("b16", Self::B16), ("l14", Self::L14), ("book", Self::Book)];

    /// The model's sizes and choices; the larger ones have timm's 1,000 classes.
    pub fn config(self) -> ViTConfig {
        let standard = |patch: usize, width: usize, depth: usize| ViTConfig {
            image_size: (224, 224),
            patch_size: (patch, patch),
            width,
            depth,
            heads: width / 64,
            mlp_width: 4 * width,
            activation: Activation::GeluErf,
            norm_eps: 1e-6,
            final_norm: true,
            classes: 1000,
            ..ViTConfig::default()
        };
        match self {
            Self::S8 => standard(8, 384, 12),
            Self::S16 => standard(16, 384, 12),
            Self::B16 => standard(16, 768, 12),
            Self::L14 => standard(14, 1024, 24),
            Self::Book => ViTConfig::default(),
        }
    }
}

impl FromStr for Standard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        let names = || Self::NAMES.map(|(name, _)| name).join(", ");
        found.map(|(_, size)| *size).ok_or_else(|| format!("expected one of {}", names()))
    }
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(Self::NAMES.iter().find(|(_, size)| size == self).map_or("?", |(name, _)| name))
    }
}
