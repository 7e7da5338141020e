//! What several test files need.

#![allow(dead_code, reason = "every test file takes its part")]
#![allow(clippy::unwrap_used, reason = "in a test a failed unwrap is the failure")]

use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use vit_attn::device::{self, Backend, Choice, Opened};

/// A fixture's path.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A safetensors file of f32 tensors.
pub struct Expected(Vec<u8>);

impl Expected {
    pub fn open(path: &str) -> Self {
        Self(std::fs::read(fixture(path)).unwrap())
    }

    pub fn get(&self, name: &str) -> (Vec<usize>, Vec<f32>) {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = tensors.tensor(name).unwrap_or_else(|_| panic!("no tensor {name}"));
        let values = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        (tensor.shape().to_vec(), values)
    }
}

/// The largest absolute difference; NaN if anything is.
pub fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "different numbers of values");
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |worst, d| if d > worst || d.is_nan() { d } else { worst })
}

/// The wgpu device, or `None`, said aloud, where there is no adapter: an error where VIT_ATTN_REQUIRE_WGPU is set, as CI
/// does after installing a software adapter.
pub fn wgpu() -> Option<Opened> {
    match device::open(Choice::Only(Backend::Wgpu), None) {
        Ok(opened) => Some(opened),
        Err(error) if std::env::var_os("VIT_ATTN_REQUIRE_WGPU").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("SKIPPED on wgpu: {error}");
            None
        }
    }
}

/// The backends that run everywhere.
pub fn cpus() -> [Opened; 2] {
    [Backend::Flex, Backend::NdArray].map(|backend| device::open(Choice::Only(backend), None).unwrap())
}

/// Every backend that can run here.
pub fn backends() -> Vec<Opened> {
    cpus().into_iter().chain(wgpu()).collect()
}
