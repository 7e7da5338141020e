//! Comparing and measuring: the arithmetic on records made by hand, and the two subcommands as they are typed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failed unwrap is the failure")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::fixture;
use npyz::WriterBuilder as _;
use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;
use vit_attn::compare::{self, Place};
use vit_attn::map::{Map, MapSet, MapStats};
use vit_attn::record::{AttentionRecord, LayerAttention, TokenLayout};
use vit_attn::reference::{self, Shape};
use vit_attn::render::difference::{self, Panel};

/// CLS and a grid of 1 x 2; layers 0 and 1 of two heads, every row a quarter, a half and a quarter.
fn record() -> AttentionRecord {
    let tokens = TokenLayout { prefix: vec!["CLS".into()], grid: (1, 2) };
    let weights = || [0.25, 0.5, 0.25].repeat(2 * 3);
    let layer = |layer| LayerAttention { layer, queries: vec![0, 1, 2], keys: 3, weights: weights() };
    AttentionRecord { tokens, layers: vec![layer(0), layer(1)] }
}

/// The place of a weight in a layer of [`record`].
fn index(head: usize, query: usize, key: usize) -> usize {
    (head * 3 + query) * 3 + key
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9, "{found} is not {expected}");
}

#[test]
fn equal_records_do_not_differ() {
    for layer in compare::attention(&record(), &record()).unwrap() {
        assert_eq!((layer.max_abs, layer.mean_abs, layer.max_kl, layer.same_top), (0.0, 0.0, 0.0, 1.0));
        assert_eq!(layer.max_abs_by_head, [0.0, 0.0]);
    }
}

#[test]
fn one_row_that_differs_is_measured_and_found() {
    let (first, mut second) = (record(), record());
    let row = index(1, 2, 0);
    second.layers[1].weights[row..row + 3].copy_from_slice(&[0.25, 0.25, 0.5]);
    let layers = compare::attention(&first, &second).unwrap();
    assert_eq!(layers[0].max_abs, 0.0);
    close(layers[1].max_abs, 0.25);
    close(layers[1].mean_abs, 0.5 / 18.0);
    // 0.5 ln 2 + 0.25 ln 0.5
    close(layers[1].max_kl, 0.25 * 2f64.ln());
    close(layers[1].same_top, 5.0 / 6.0);
    assert_eq!(layers[1].max_abs_by_head, [0.0, 0.25]);
    let expected = Place { layer: 1, head: 1, query: 2, key: 1, first: 0.5, second: 0.25 };
    assert_eq!(compare::worst(&layers), Some(expected));
}

#[test]
fn queries_of_a_partial_record_keep_their_own_numbers() {
    let cut = |mut record: AttentionRecord| {
        for layer in &mut record.layers {
            layer.queries = vec![0, 2];
            layer.weights.truncate(2 * 2 * 3);
        }
        record
    };
    let (first, mut second) = (cut(record()), cut(record()));
    second.layers[0].weights[(2 + 1) * 3 + 2] = 0.375;
    let worst = compare::worst(&compare::attention(&first, &second).unwrap()).unwrap();
    assert_eq!((worst.head, worst.query, worst.key), (1, 2, 2));
}

#[test]
fn the_strongest_patch_is_sought_among_patches_only() {
    let mut second = record();
    // CLS becomes the strongest token, but the order of the patches stays.
    second.layers[0].weights[..3].copy_from_slice(&[0.9, 0.06, 0.04]);
    assert_eq!(compare::attention(&record(), &second).unwrap()[0].same_top, 1.0);
}

#[test]
fn a_weight_that_is_not_a_number_is_the_worst() {
    let mut second = record();
    second.layers[0].weights[index(0, 0, 0)] = 1.0;
    second.layers[1].weights[index(1, 1, 0)] = f32::NAN;
    second.layers[1].weights[index(1, 2, 2)] = 1.0;
    let layers = compare::attention(&record(), &second).unwrap();
    let worst = compare::worst(&layers).unwrap();
    assert!(worst.difference().is_nan());
    assert_eq!((worst.layer, worst.head, worst.query, worst.key), (1, 1, 1, 0));
    assert!(layers[1].max_abs.is_nan() && layers[1].max_kl.is_nan() && layers[1].mean_abs.is_nan());
    assert!(!layers[0].max_abs.is_nan());
}

#[test]
fn weights_too_small_for_a_normal_number_do_not_make_the_divergence_infinite() {
    let (mut first, mut second) = (record(), record());
    first.layers[0].weights[..3].copy_from_slice(&[1e-40, 0.5, 0.5]);
    second.layers[0].weights[..3].copy_from_slice(&[0.0, 0.5, 0.5]);
    assert_eq!(compare::attention(&first, &second).unwrap()[0].max_kl, 0.0);
}

#[test]
fn records_that_are_not_alike_are_refused_in_words() {
    let spoil = |change: fn(&mut AttentionRecord)| {
        let mut other = record();
        change(&mut other);
        compare::attention(&record(), &other).unwrap_err().to_string()
    };
    assert!(spoil(|other| other.layers.truncate(1)).contains("1 layers of 3 tokens"));
    assert!(spoil(|other| other.tokens.grid = (2, 2)).contains("5 tokens"));
    assert!(spoil(|other| other.layers[1].layer = 5).contains("layer 5"));
    assert!(spoil(|other| other.layers[0].weights.truncate(9)).contains("1 heads"));
    assert!(spoil(|other| other.layers[0].queries = vec![0, 1, 3]).contains("cannot be compared"));
}

#[test]
fn logits_of_different_models_are_compared_only_where_they_are_as_many() {
    assert_eq!(compare::max_abs(&[1.0, 2.0], &[1.5, 1.0]), Some(1.0));
    assert_eq!(compare::max_abs(&[1.0], &[1.0, 2.0]), None);
    assert!(compare::max_abs(&[f32::NAN, 1.0], &[1.0, 9.0]).unwrap().is_nan());
}

#[test]
fn maps_are_subtracted_with_their_statistics() {
    let stats =
        |entropy| MapStats { min: 0.0, max: 0.0, mean: 0.0, patch_share: 0.5, top_share: 0.1, top: (0, 0), entropy };
    let set = |values: Vec<f32>, entropy| MapSet {
        view: "cls".into(),
        title: "attention of the CLS token".into(),
        layers: vec![Some(3)],
        heads: vec![1],
        query: None,
        maps: vec![Map { layer: Some(3), head: 1, rows: 2, cols: 2, values, stats: stats(entropy) }],
    };
    let (first, second) = (set(vec![0.25, 0.25, 0.0, 0.0], 1.0), set(vec![0.0, 0.25, 0.0, 0.5], 0.5));
    let maps = compare::maps(&first, &second).unwrap();
    assert_eq!(maps.maps[0].values, [-0.25, 0.0, 0.0, 0.5]);
    let stats = maps.maps[0].stats;
    assert_eq!((stats.min, stats.max, stats.mean, stats.top, stats.entropy), (-0.25, 0.5, 0.0625, (1, 1), -0.5));
    let other = MapSet { heads: vec![], maps: vec![], ..first.clone() };
    assert!(compare::maps(&first, &other).is_err());
}

/// The programme itself.
fn vit_attn(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vit-attn")).args(args).output().unwrap()
}

fn path(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn cat() -> String {
    path(&Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/cat-32.png"))
}

fn model() -> String {
    path(&fixture("book-default"))
}

/// `compare` on the cat with book-default and flex, and more arguments.
fn compare_flex(more: &[&str]) -> Output {
    let (cat, model) = (cat(), model());
    vit_attn(&[&["compare", &cat, "--model", &model, "--backends", "flex"], more].concat())
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// All layers of book-default on the cat, as `run` writes them.
fn dumped(directory: &TempDir) -> PathBuf {
    let out = directory.path().join("run");
    let args = ["run", &cat(), "--model", &model(), "--backend", "flex", "--layers", "all", "-f", "safetensors", "-o"];
    assert!(vit_attn(&[&args[..], &[&path(&out)]].concat()).status.success());
    out.join("attention.safetensors")
}

/// The dump's values, layer by layer, and the file's bytes.
fn values(file: &Path) -> (Vec<Vec<f32>>, Vec<u8>) {
    let bytes = std::fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let read = |layer: usize| {
        let data = tensors.tensor(&format!("attention.{layer}")).unwrap().data().to_vec();
        data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    ((0..4).map(read).collect(), bytes)
}

/// A NumPy array in a file.
fn npy<T: npyz::Serialize + npyz::AutoSerialize + Copy>(
    directory: &TempDir,
    name: &str,
    shape: &[u64],
    values: &[T],
) -> PathBuf {
    let mut bytes = Vec::new();
    let mut writer = npyz::WriteOptions::new().default_dtype().shape(shape).writer(&mut bytes).begin_nd().unwrap();
    writer.extend(values.iter().copied()).unwrap();
    writer.finish().unwrap();
    let file = directory.path().join(name);
    std::fs::write(&file, bytes).unwrap();
    file
}

#[test]
fn two_backends_agree_within_the_default_tolerance_and_not_within_none() {
    let (cat, model) = (cat(), model());
    let args = ["compare", &cat, "--model", &model, "--backends", "flex,ndarray"];
    let passes = vit_attn(&args);
    assert!(passes.status.success(), "{}", said(&passes));
    let table = String::from_utf8(passes.stdout).unwrap();
    assert!(table.contains("flex and ndarray") && table.contains("logits") && table.contains("warm run"), "{table}");

    let fails = vit_attn(&[&args[..], &["--tolerance", "1e-12", "--json"]].concat());
    assert_eq!(fails.status.code(), Some(1));
    let report = json(&fails);
    let worst = &report["pairs"][0]["worst"];
    let number = |name: &str| worst[name].as_u64().unwrap();
    let place = format!("layer {}, head {}, query {} (", number("layer"), number("head"), number("query"));
    let message = said(&fails);
    assert!(message.contains(&place) && message.contains(&format!("key {} (", number("key"))), "{message}");
    let weight = |name: &str| (worst[name].as_f64().unwrap() as f32).to_string();
    assert!(message.contains(&format!("{} and {}", weight("first"), weight("second"))), "{message}");
}

#[test]
fn the_json_of_a_comparison_holds_every_pair_and_layer() {
    let (cat, model) = (cat(), model());
    let output = vit_attn(&["compare", &cat, "--model", &model, "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    let count = |list: &Value| list.as_array().unwrap().len();
    let sources = count(&report["sources"]);
    assert_eq!(sources + count(&report["unavailable"]), vit_attn::device::BACKENDS.len());
    assert_eq!(count(&report["pairs"]), sources * (sources - 1) / 2);
    assert_eq!(report["within_tolerance"], true);
    for left in report["unavailable"].as_array().unwrap() {
        assert!(!left["reason"].as_str().unwrap().is_empty());
    }
    for pair in report["pairs"].as_array().unwrap() {
        assert_eq!(count(&pair["layers"]), 4);
        assert!(pair["logits_max_abs"].as_f64().unwrap() < 1e-4);
        for layer in pair["layers"].as_array().unwrap() {
            let value = |name: &str| layer[name].as_f64().unwrap();
            assert!(value("mean_abs") <= value("max_abs") && value("max_abs") <= 1e-5, "{layer}");
            assert!((0.0..1e-6).contains(&value("max_kl")) && value("same_top") > 0.9, "{layer}");
            assert_eq!(count(&layer["max_abs_by_head"]), 4);
        }
    }
    for source in report["sources"].as_array().unwrap() {
        let stages: Vec<_> =
            source["seconds"].as_array().unwrap().iter().map(|s| s["stage"].as_str().unwrap()).collect();
        assert_eq!(stages, ["load", "first run", "warm run"]);
    }
}

#[test]
fn what_run_dumped_is_a_reference_that_agrees() {
    let directory = TempDir::new().unwrap();
    let file = path(&dumped(&directory));
    let output = compare_flex(&["--reference", &file, "--tolerance", "0", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    assert_eq!(report["layers"], serde_json::json!([0, 1, 2, 3]));
    assert_eq!(report["pairs"][0]["first"], file.as_str());
    let some = json(&compare_flex(&["--reference", &file, "--layers", "1,-1", "--json"]));
    assert_eq!(some["layers"], serde_json::json!([1, 3]));
}

#[test]
fn a_weight_changed_in_a_reference_is_found_at_its_place() {
    let directory = TempDir::new().unwrap();
    let file = dumped(&directory);
    let (layers, mut bytes) = values(&file);
    // Layer 2, head 3, query 17 (row 2, column 0), key 5. Tensors of equal size lie in the order of their names.
    let place = ((2 * 4 + 3) * 65 + 17) * 65 + 5;
    let start = bytes.len() - 4 * 4 * 4 * 65 * 65 + 4 * place;
    let weight = layers[2][(3 * 65 + 17) * 65 + 5] + 0.001;
    bytes[start..start + 4].copy_from_slice(&weight.to_le_bytes());
    std::fs::write(&file, bytes).unwrap();

    let output = compare_flex(&["--reference", &path(&file), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let worst = &json(&output)["pairs"][0]["worst"];
    for (name, expected) in [("layer", 2), ("head", 3), ("query", 17), ("key", 5)] {
        assert_eq!(worst[name], expected, "{name}");
    }
    assert!(said(&output).contains("layer 2, head 3, query 17 (patch 2,0), key 5 (patch 0,4)"), "{}", said(&output));
    assert!(compare_flex(&["--reference", &path(&file), "--tolerance", "0.01"]).status.success());
    assert!(compare_flex(&["--reference", &path(&file), "--layers", "0,1,3"]).status.success());
}

#[test]
fn a_numpy_array_is_a_reference_of_all_layers_or_of_those_asked_for() {
    let directory = TempDir::new().unwrap();
    let (layers, _) = values(&dumped(&directory));
    let all = npy(&directory, "all.npy", &[4, 4, 65, 65], &layers.concat());
    let doubles: Vec<f64> = layers[2..].concat().iter().map(|&value| value.into()).collect();
    let two = npy(&directory, "two.npy", &[2, 4, 65, 65], &doubles);
    for (file, more, expected) in [
        (&all, &[][..], vec![0, 1, 2, 3]),
        (&all, &["--layers", "3"], vec![3]),
        (&two, &["--layers", "2,3"], vec![2, 3]),
    ] {
        let file = path(file);
        let output = compare_flex(&[&["--reference", &file, "--tolerance", "0", "--json"], more].concat());
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(json(&output)["layers"], serde_json::json!(expected));
    }
    let output = compare_flex(&["--reference", &path(&two)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("[2, 4, 65, 65]") && said(&output).contains("[4, 4, 65, 65]"), "{}", said(&output));
}

/// A NumPy archive of arrays that are files by themselves.
fn npz(directory: &TempDir, name: &str, arrays: &[(&str, PathBuf)]) -> PathBuf {
    let file = directory.path().join(name);
    let mut archive = zip::ZipWriter::new(std::fs::File::create(&file).unwrap());
    for (name, array) in arrays {
        archive.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
        std::io::Write::write_all(&mut archive, &std::fs::read(array).unwrap()).unwrap();
    }
    archive.finish().unwrap();
    file
}

#[test]
fn a_numpy_archive_of_one_array_or_of_one_for_each_layer_is_a_reference() {
    let directory = TempDir::new().unwrap();
    let shape = Shape { tokens: TokenLayout { prefix: vec!["CLS".into()], grid: (1, 2) }, depth: 2, heads: 2 };
    let values: Vec<f32> = (0..36).map(|value| value as f32).collect();
    let whole = npy(&directory, "whole.npy", &[2, 2, 3, 3], &values);
    let layers = [("attention.0", 0), ("attention.1", 18)]
        .map(|(name, start)| (name, npy(&directory, &format!("{name}.npy"), &[2, 3, 3], &values[start..start + 18])));
    for archive in [npz(&directory, "one.npz", &[("arr_0", whole)]), npz(&directory, "each.npz", &layers)] {
        let record = reference::open(&archive, &shape, None).unwrap();
        let weights: Vec<f32> = record.layers.iter().flat_map(|layer| layer.weights.clone()).collect();
        assert_eq!(weights, values, "{}", archive.display());
        assert_eq!(reference::open(&archive, &shape, Some(&[1])).unwrap().layers[0].weights, values[18..]);
    }
}

#[test]
fn a_reference_of_another_shape_or_none_at_all_is_refused_with_what_would_be_right() {
    let directory = TempDir::new().unwrap();
    let shape = Shape { tokens: TokenLayout { prefix: vec!["CLS".into()], grid: (1, 2) }, depth: 2, heads: 2 };
    let refuse = |file: &Path| reference::open(file, &shape, None).unwrap_err().to_string();
    let write = |name: &str, bytes: &[u8]| {
        let file = directory.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        file
    };
    let good = npy(&directory, "good.npy", &[2, 2, 3, 3], &[1.0_f32 / 3.0; 36]);
    assert_eq!(reference::open(&good, &shape, Some(&[1])).unwrap().layers[0].layer, 1);
    assert!(refuse(&npy(&directory, "heads.npy", &[2, 3, 3, 3], &[0.0_f32; 54])).contains("[2, 2, 3, 3]"));
    assert!(refuse(&npy(&directory, "int.npy", &[2, 2, 3, 3], &[0_i32; 36])).contains("float32"));
    let bytes = std::fs::read(&good).unwrap();
    assert!(refuse(&write("cut.npy", &bytes[..bytes.len() - 1])).contains("holds 143 bytes"));
    assert!(refuse(&write("header.npy", &bytes[..20])).contains("header"));
    let fortran = String::from_utf8_lossy(&bytes[..64]).replace("False", "True ");
    assert!(fortran.contains("True "));
    let mut fortran = bytes.clone();
    let at = fortran.windows(5).position(|word| word == b"False").unwrap();
    fortran[at..at + 5].copy_from_slice(b"True ");
    assert!(refuse(&write("fortran.npy", &fortran)).contains("ascontiguousarray"));
    let mut nested = b"\x93NUMPY\x01\x00\xe8\x03".to_vec();
    nested.extend([b'('; 1000]);
    assert!(refuse(&write("nested.npy", &nested)).contains("header"));
    assert!(refuse(&write("text.npy", b"0.1 0.2")).contains("not a NumPy array"));
    let two = [("a", good.clone()), ("b", good.clone())];
    assert!(refuse(&npz(&directory, "two.npz", &two)).contains("attention.0"));
    let wide = npy(&directory, "wide.npy", &[1, 2, 3, 3], &[1.0_f32 / 3.0; 18]);
    assert!(refuse(&npz(&directory, "wide.npz", &[("a", wide)])).contains("[2, 2, 3, 3]"));
    refuse(&write("archive.npz", b"PK"));
    assert!(refuse(directory.path()).contains("regular file"));

    let others = fixture("book-default").join("model.safetensors");
    assert!(refuse(&others).contains("attention.0"));
    let wide = refuse(&fixture("book-wide-grid").join("expected.safetensors"));
    assert!(wide.contains("2 heads and 3 tokens"), "{wide}");
}

#[test]
fn two_models_on_a_picture_give_maps_of_their_difference() {
    let directory = TempDir::new().unwrap();
    let (first, second) = (directory.path().join("a"), directory.path().join("b"));
    for (file, scale) in [(&first, 1.0_f32), (&second, 1.5)] {
        std::fs::create_dir(file).unwrap();
        std::fs::copy(fixture("book-default/config.json"), file.join("config.json")).unwrap();
        let mut bytes = std::fs::read(fixture("book-default/model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let key = "encoder.blocks.3.attention.heads.2.query.weight";
        let data = tensors.tensor(key).unwrap().data();
        let (start, length) = (data.as_ptr() as usize - bytes.as_ptr() as usize, data.len());
        for value in bytes[start..start + length].as_chunks_mut::<4>().0 {
            *value = (f32::from_le_bytes(*value) * scale).to_le_bytes();
        }
        std::fs::write(file.join("model.safetensors"), bytes).unwrap();
    }
    let (models, out) = (format!("{},{}", path(&first), path(&second)), directory.path().join("out"));
    let args = ["compare", &cat(), "--models", &models, "--backends", "flex", "--json", "-o", &path(&out)];
    let output = vit_attn(&args);
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    let by_head = |layer: usize| report["pairs"][0]["layers"][layer]["max_abs_by_head"].clone();
    assert_eq!(by_head(2), serde_json::json!([0.0, 0.0, 0.0, 0.0]));
    let last: Vec<f64> = by_head(3).as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
    assert!(last[2] > 1e-3 && [0, 1, 3].iter().all(|&head| last[head] == 0.0), "{last:?}");
    for file in ["differences.png", "difference-cls-grid.png", "difference-cls-L03-H02.png", "manifest.json"] {
        assert!(out.join(file).is_file(), "{file} is missing");
    }
    let (changed, same) = ("difference-cls-L03-H02.png", "difference-cls-L03-H01.png");
    let colours = |file: &str| {
        let picture = image::open(out.join(file)).unwrap().into_rgb8();
        picture.pixels().copied().collect::<std::collections::HashSet<_>>().len()
    };
    assert!(colours(changed) > 10 && colours(same) == 1);

    let again = vit_attn(&args);
    assert_eq!(again.status.code(), Some(1));
    assert!(said(&again).contains("--force"));
    assert_eq!(vit_attn(&[&args[..], &["--force", "--tolerance", "1e-3"]].concat()).status.code(), Some(1));
}

#[test]
fn models_whose_maps_do_not_fit_are_refused() {
    let refuse = |models: &[&str], more: &[&str]| {
        let models = models.iter().map(|name| path(&fixture(name))).collect::<Vec<_>>().join(",");
        let cat = cat();
        let output = vit_attn(&[&["compare", &cat, "--models", &models], more].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        said(&output)
    };
    assert!(refuse(&["book-default", "book-wide-grid"], &[]).contains("8 x 8 and 6 x 10"));
    assert!(refuse(&["book-default"], &[]).contains("two checkpoints"));
    assert!(refuse(&["book-default", "book-default"], &["--backends", "flex,ndarray"]).contains("one backend"));
    // Pictures of 16 x 16 in patches of 4 both, but 3 layers of 5 heads against 2 of 2.
    assert!(refuse(&["book-fused", "book-half"], &[]).contains("different layers (3 and 2)"));
    assert!(refuse(&["book-fused", "book-half"], &["--layers", "0"]).contains("numbers of heads (5 and 2)"));
}

#[test]
fn a_backend_alone_and_a_tolerance_below_zero_are_refused() {
    let alone = compare_flex(&[]);
    assert_eq!(alone.status.code(), Some(1));
    assert!(said(&alone).contains("second backend"), "{}", said(&alone));
    assert_eq!(compare_flex(&["--tolerance", "-1"]).status.code(), Some(2));
    assert_eq!(compare_flex(&["--tolerance", "nan"]).status.code(), Some(2));
    assert_eq!(compare_flex(&["--view", "mean"]).status.code(), Some(2));
}

fn panel(differences: Vec<Vec<f64>>) -> Panel {
    Panel { title: "a and b".into(), layers: (0..differences.len()).collect(), differences }
}

fn drawn(panels: &[Panel], tolerance: Option<f64>) -> image::RgbImage {
    let file = difference::file(panels, tolerance, "cat.png").unwrap();
    assert_eq!(file.name, "differences.png");
    image::load_from_memory(&file.bytes).unwrap().into_rgb8()
}

#[test]
fn the_picture_of_differences_frames_what_is_beyond_the_tolerance() {
    let differences = vec![vec![1e-7, 3e-6], vec![1e-3, 0.0]];
    let framed = |tolerance| {
        let picture = drawn(&[panel(differences.clone())], tolerance);
        picture.pixels().filter(|pixel| pixel.0 == [213, 94, 0]).count()
    };
    assert_eq!(framed(None), 0);
    assert_eq!(framed(Some(1e-2)), 0);
    let one = framed(Some(1e-4));
    assert!(one > 0);
    assert_eq!(framed(Some(1e-6)), 2 * one);
}

#[test]
fn the_picture_of_differences_takes_zeros_nan_and_many_pairs() {
    let magenta = |picture: &image::RgbImage| picture.pixels().any(|pixel| pixel.0 == [255, 0, 255]);
    assert!(!magenta(&drawn(&[panel(vec![vec![0.0; 3]; 2])], None)));
    assert!(magenta(&drawn(&[panel(vec![vec![f64::NAN, 1e-5]])], None)));
    let many = drawn(&vec![panel(vec![vec![1e-5; 16]; 24]); 7], None);
    let one = drawn(&[panel(vec![vec![1e-5; 16]; 24])], None);
    assert!(many.width() > 2 * one.width() && many.height() > 2 * one.height());
    assert!(difference::file(&[], None, "").is_err());
    assert!(difference::file(&[panel(vec![vec![1e-5; 100_000]; 100])], None, "").is_err());
}

#[test]
fn a_benchmark_gives_every_number_for_each_backend_and_batch() {
    let output = vit_attn(&[
        "bench",
        "--synthetic",
        "book",
        "--backends",
        "flex,ndarray",
        "--batch",
        "1,3",
        "--runs",
        "2",
        "--json",
    ]);
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    assert_eq!((&report["model"], &report["runs"]), (&"book (random weights)".into(), &2.into()));
    assert!(report["threads"].as_u64().unwrap() > 0);
    assert_eq!(report["config"]["width"], 48);
    let measured = report["measurements"].as_array().unwrap();
    let order: Vec<_> =
        measured.iter().map(|m| (m["backend"].as_str().unwrap(), m["batch"].as_u64().unwrap())).collect();
    assert_eq!(order, [("flex", 1), ("flex", 3), ("ndarray", 1), ("ndarray", 3)]);
    for measured in measured {
        let number = |value: &Value| value.as_f64().unwrap();
        assert!(number(&measured["load_seconds"]) > 0.0 && number(&measured["first_run_seconds"]) > 0.0);
        assert!(number(&measured["first_run_extra_seconds"]) >= 0.0);
        let spread = ["min", "lower_quartile", "median", "upper_quartile", "max"];
        let spread = spread.map(|name| number(&measured["run_seconds"][name]));
        assert!(spread[0] > 0.0 && spread.is_sorted(), "{spread:?}");
        let rate = number(&measured["batch"]) / spread[2];
        assert!((number(&measured["pictures_per_second"]) / rate - 1.0).abs() < 1e-6);
        if cfg!(target_os = "linux") {
            assert!(measured["peak_memory_bytes"].as_u64().unwrap() > 1_000_000);
        }
    }
}

#[test]
fn a_benchmark_takes_a_picture_a_checkpoint_and_another_size() {
    let (cat, model) = (cat(), model());
    let output = vit_attn(&["bench", &cat, "--model", &model, "--backends", "flex", "--runs", "1"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("65 tokens, 4 layers of 4 heads"));
    let sized = ["bench", "--synthetic", "book", "--backends", "flex", "--runs", "1", "--json", "--size"];
    assert_eq!(json(&vit_attn(&[&sized[..], &["48"]].concat()))["tokens"]["grid"], serde_json::json!([12, 12]));
    let refused = vit_attn(&[&sized[..], &["50"]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("multiples of the patch size 4"), "{}", said(&refused));
    let resampled = vit_attn(&["bench", "--size", "48x32", "--backends", "flex", "--runs", "1", "--json"]);
    assert_eq!(json(&resampled)["tokens"]["grid"], serde_json::json!([8, 12]));
    assert_eq!(vit_attn(&["bench", "--runs", "0"]).status.code(), Some(2));
    assert_eq!(vit_attn(&["bench", "missing.png", "--backends", "flex"]).status.code(), Some(1));
}

#[test]
fn the_well_known_sizes_have_as_many_parameters_as_timm_counts() {
    // timm 1.0: vit_small_patch16_224, vit_base_patch16_224, vit_large_patch14_224.
    let counts = [("s16", 22_050_664), ("b16", 86_567_656), ("l14", 304_203_752)];
    for (name, expected) in counts {
        let config = name.parse::<vit_attn::model::Standard>().unwrap().config();
        let count: usize = config.parameters().iter().map(|parameter| parameter.shape.iter().product::<usize>()).sum();
        assert_eq!(count, expected, "{name}");
    }
    assert!("h14".parse::<vit_attn::model::Standard>().unwrap_err().contains("l14"));
}
