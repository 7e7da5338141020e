//! The model's numbers against PyTorch's, and the backends' against each other. The tolerances and their reasons stand
//! in `tests/fixtures/README.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failed unwrap is the failure")]

mod common;

use common::{Expected, backends, difference, fixture};
use vit_attn::{
    checkpoint::Checkpoint,
    device::Opened,
    inspect::{Seen, Wanted, inspect},
    model::{Attention, Parameters, Queries, ViT},
};

const ATTENTION: f32 = 1e-5;
const LOGITS: f32 = 1e-4;

/// Each checkpoint and where its expected values are.
const CASES: [(&str, &str); 7] = [
    ("book-default", "book-default"),
    ("book-fused", "book-fused"),
    ("book-wide-grid", "book-wide-grid"),
    ("book-batch", "book-batch"),
    ("book-half", "book-half"),
    ("book-pt/model_final.pt", "book-pt"),
    ("book-pt/legacy.pt", "book-pt"),
];

fn see(path: &str, opened: &Opened, pixels: &[f32]) -> Seen {
    let checkpoint = Checkpoint::open(&fixture(path)).unwrap();
    let model = ViT::new(&checkpoint.config, &opened.device, |name, shape| checkpoint.fetch(name, shape)).unwrap();
    let wanted =
        Wanted { layers: (0..checkpoint.config.depth).collect(), queries: Queries::All, probe: false, tokens: true };
    inspect(&model, opened, pixels, &wanted, || ()).unwrap()
}

/// Attention of all layers, pictures and heads in one list, and the logits.
fn flatten(seen: &Seen) -> (Vec<f32>, Vec<f32>) {
    let layers = seen.attention[0].layers.len();
    let attention =
        (0..layers).flat_map(|layer| seen.attention.iter().flat_map(move |p| p.layers[layer].weights.clone()));
    (attention.collect(), seen.logits.clone().unwrap().concat())
}

#[test]
fn every_layer_of_every_fixture_is_as_pytorch_gives_it_on_every_backend() {
    for opened in backends() {
        for (path, folder) in CASES {
            let expected = Expected::open(&format!("{folder}/expected.safetensors"));
            let seen = see(path, &opened, &expected.get("pixels").1);
            let context = format!("{path} on {}", opened.backend);
            for layer in 0..seen.attention[0].layers.len() {
                let ours: Vec<f32> = seen.attention.iter().flat_map(|p| p.layers[layer].weights.clone()).collect();
                let off = difference(&ours, &expected.get(&format!("attention.{layer}")).1);
                assert!(off <= ATTENTION, "{context}: attention of layer {layer} is off by {off:e}");
            }
            let off = difference(&seen.logits.clone().unwrap().concat(), &expected.get("logits").1);
            assert!(off <= LOGITS, "{context}: logits are off by {off:e}");
            let off = difference(&seen.tokens.clone().unwrap().concat(), &expected.get("tokens").1);
            assert!(off <= LOGITS, "{context}: tokens are off by {off:e}");
        }
    }
}

#[test]
fn the_backends_agree_with_each_other() {
    let backends = backends();
    for (path, folder) in CASES {
        let pixels = Expected::open(&format!("{folder}/expected.safetensors")).get("pixels").1;
        let seen: Vec<_> = backends.iter().map(|opened| flatten(&see(path, opened, &pixels))).collect();
        for (other, opened) in seen.iter().zip(&backends).skip(1) {
            let off = difference(&seen[0].0, &other.0);
            assert!(
                off <= ATTENTION,
                "{path}: attention on {} and {} differs by {off:e}",
                backends[0].backend,
                opened.backend
            );
            let off = difference(&seen[0].1, &other.1);
            assert!(
                off <= LOGITS,
                "{path}: logits on {} and {} differ by {off:e}",
                backends[0].backend,
                opened.backend
            );
        }
    }
}

#[test]
fn some_rows_and_blocks_of_queries_are_the_same_as_the_whole_matrix() {
    let pixels = Expected::open("book-batch/expected.safetensors").get("pixels").1;
    for opened in backends() {
        let whole = see("book-batch", &opened, &pixels);
        // 3 pictures x 3 heads x 17 tokens: blocks of 2 queries, and a limit smaller than a single query's row.
        for max_elements in [2 * 3 * 3 * 17, 10] {
            let pieces = see("book-batch", &Opened { max_elements, ..opened.clone() }, &pixels);
            let (a, b) = (flatten(&whole), flatten(&pieces));
            assert!(difference(&a.0, &b.0) <= 1e-6, "attention in pieces differs on {}", opened.backend);
            assert!(difference(&a.1, &b.1) <= 1e-5, "logits in pieces differ on {}", opened.backend);
        }
        let checkpoint = Checkpoint::open(&fixture("book-batch")).unwrap();
        let model = ViT::new(&checkpoint.config, &opened.device, |name, shape| checkpoint.fetch(name, shape)).unwrap();
        let wanted = Wanted { layers: vec![1], queries: Queries::Rows(vec![0, 5, 16]), probe: false, tokens: true };
        // With rows alone, the output of both layers is computed from blocks of 2 queries.
        let blocks = Opened { block_elements: 2 * 3 * 3 * 17, ..opened.clone() };
        let rows = inspect(&model, &blocks, &pixels, &wanted, || ()).unwrap();
        let off = difference(&rows.tokens.clone().unwrap().concat(), &whole.tokens.clone().unwrap().concat());
        assert!(off <= 1e-5, "tokens from blocks are off by {off:e} on {}", opened.backend);
        for (some, all) in rows.attention.iter().zip(&whole.attention) {
            assert_eq!(some.layers.len(), 1);
            for head in 0..3 {
                for query in [0, 5, 16] {
                    let (some, all) =
                        (some.layers[0].row(head, query).unwrap(), all.layers[1].row(head, query).unwrap());
                    assert!(difference(some, all) <= 1e-6);
                }
                assert!(some.layers[0].row(head, 1).is_none());
            }
        }
    }
}

/// Murmur3's finaliser as a source of numbers, as `tests/fixtures/README.md` describes it.
fn generated(seed: u32, count: usize, scale: f32) -> Vec<f32> {
    let value = |i: usize| {
        let mut h = seed.wrapping_mul(1_000_003).wrapping_add(i as u32);
        h = (h ^ (h >> 16)).wrapping_mul(0x85EB_CA6B);
        h = (h ^ (h >> 13)).wrapping_mul(0xC2B2_AE35);
        h ^= h >> 16;
        ((h >> 8) as f32 / 8_388_608.0 - 1.0) * scale
    };
    (0..count).map(value).collect()
}

/// The attention module alone on `input`, `[1, tokens, width]`, with generated weights.
fn attend(opened: &Opened, input: &[f32], width: usize, seed: u32, scale: f32) -> (Vec<f32>, Vec<f32>) {
    use burn::tensor::{Tensor, TensorData};
    let mut source = |name: &str, shape: &[usize]| {
        let seed = seed + u32::from(name.contains("projection")) * 2 + u32::from(name.ends_with("bias"));
        Ok(generated(seed, shape.iter().product(), scale))
    };
    let mut parameters = Parameters::new(&opened.device, &mut source);
    let attention = Attention::new("attention", width, 4, true, &mut parameters).unwrap();
    let tokens = input.len() / width;
    let x = Tensor::<3>::from_data(TensorData::new(input.to_vec(), [1, tokens, width]), &opened.device);
    let (output, weights) = attention.forward(x, &Queries::All, usize::MAX, opened.max_elements);
    let [piece] = weights.0.try_into().unwrap();
    (output.into_data().try_into_vec().unwrap(), piece.into_data().try_into_vec().unwrap())
}

#[test]
fn attention_takes_a_sentence_of_four_words() {
    let expected = Expected::open("attention-sentence.safetensors");
    for opened in backends() {
        let (output, weights) = attend(&opened, &generated(1, 4 * 256, 1.0), 256, 100, 1.0 / 16.0);
        assert!(difference(&weights, &expected.get("attention").1) <= ATTENTION, "weights on {}", opened.backend);
        assert!(difference(&output, &expected.get("output").1) <= LOGITS, "output on {}", opened.backend);
    }
}

#[test]
fn attention_takes_a_picture_as_1024_tokens_of_one_pixel() {
    let expected = Expected::open("attention-pixels.safetensors");
    let (picture, weight, bias) = (generated(2, 3 * 1024, 1.0), generated(3, 48 * 3, 1.0), generated(4, 48, 1.0));
    let token = |pixel: usize| {
        let (picture, weight) = (&picture, &weight);
        let value = move |d: usize| -> f32 { (0..3).map(|c| weight[d * 3 + c] * picture[c * 1024 + pixel]).sum() };
        (0..48).map(value).zip(&bias).map(|(value, bias)| value + bias).collect::<Vec<_>>()
    };
    let tokens: Vec<f32> = (0..1024).flat_map(token).collect();
    for opened in backends() {
        let (output, weights) = attend(&opened, &tokens, 48, 200, 0.5);
        let rows = |values: &[f32], width: usize, heads: usize| -> Vec<f32> {
            let row = |head: usize, query: usize| values[(head * 1024 + query) * width..][..width].to_vec();
            (0..heads).flat_map(|head| [0, 517, 1023].into_iter().flat_map(move |query| row(head, query))).collect()
        };
        assert!(difference(&rows(&weights, 1024, 4), &expected.get("attention").1) <= ATTENTION, "{}", opened.backend);
        assert!(difference(&rows(&output, 48, 1), &expected.get("output").1) <= LOGITS, "{}", opened.backend);
        let mean = |head: usize, key: usize| -> f32 {
            (0..1024).map(|query| f64::from(weights[(head * 1024 + query) * 1024 + key]) / 1024.0).sum::<f64>() as f32
        };
        let received: Vec<f32> =
            (0..4).flat_map(|head| (0..1024).map(move |key| (head, key))).map(|(h, k)| mean(h, k)).collect();
        assert!(difference(&received, &expected.get("received").1) <= ATTENTION, "{}", opened.backend);
    }
}
