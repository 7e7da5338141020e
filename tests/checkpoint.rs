//! Opening checkpoints: what fits opens with PyTorch's very values, everything else is one clear sentence.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failed unwrap is the failure")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use vit_attn::{
    checkpoint::{CIFAR10_LABELS, Checkpoint, Evidence, FAMILIES, Options, Settings, Tensors, save_book},
    model::config::{Activation, ViTConfig},
};

/// Every fixture that `--model` takes, as directory or as file.
const FIXTURES: [&str; 7] = [
    "book-default",
    "book-fused",
    "book-wide-grid",
    "book-batch",
    "book-half",
    "book-pt/model_final.pt",
    "book-pt/legacy.pt",
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn open(name: &str) -> Checkpoint {
    Checkpoint::open(&fixture(name)).unwrap()
}

/// The message that opening `path` fails with; one line unless it lists keys.
fn refusal(path: &Path) -> String {
    Checkpoint::open(path).unwrap_err().to_string()
}

fn assert_contains(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
}

/// A tensor of a safetensors file as the safetensors crate gives it.
fn raw(path: &Path, key: &str) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor(key).unwrap();
    assert_eq!(tensor.dtype(), Dtype::F32);
    floats(tensor.data())
}

fn fetch(checkpoint: &Checkpoint, name: &str) -> Vec<f32> {
    let parameter = checkpoint.config.parameters().into_iter().find(|parameter| parameter.name == name).unwrap();
    checkpoint.fetch(name, &parameter.shape).unwrap()
}

type Owned = (String, Dtype, Vec<usize>, Vec<u8>);

/// A directory with the fixture's config.json and its tensors after `edit`.
fn edited(name: &str, edit: impl FnOnce(&mut Vec<Owned>)) -> TempDir {
    let bytes = fs::read(fixture(name).join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let owned =
        |(key, view): (&str, TensorView)| (key.to_owned(), view.dtype(), view.shape().to_vec(), view.data().to_vec());
    let mut tensors: Vec<Owned> = tensors.iter().map(owned).collect();
    edit(&mut tensors);
    let views =
        tensors.iter().map(|(key, dtype, shape, data)| (key, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    let weights = safetensors::serialize(views, None).unwrap();
    directory(&fs::read(fixture(name).join("config.json")).unwrap(), &weights)
}

fn directory(config: &[u8], weights: &[u8]) -> TempDir {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("config.json"), config).unwrap();
    fs::write(directory.path().join("model.safetensors"), weights).unwrap();
    directory
}

/// The fixture's own weights with fields of its config.json set, or removed where the value is null.
fn with_config(name: &str, fields: &[(&str, Value)]) -> TempDir {
    let mut config: Value = serde_json::from_slice(&fs::read(fixture(name).join("config.json")).unwrap()).unwrap();
    let object = config.as_object_mut().unwrap();
    for (field, value) in fields {
        object.remove(*field);
        if !value.is_null() {
            object.insert((*field).to_owned(), value.clone());
        }
    }
    directory(&serde_json::to_vec(&config).unwrap(), &fs::read(fixture(name).join("model.safetensors")).unwrap())
}

/// A safetensors file with this header over `data` bytes of values.
fn with_header(header: &str, data: usize) -> TempDir {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    directory(b"{}", &bytes)
}

#[test]
fn family_names_are_unique() {
    let names: BTreeSet<&str> = FAMILIES.iter().map(|family| family.name).collect();
    assert_eq!(names.len(), FAMILIES.len());
}

#[test]
fn every_fixture_is_recognised_by_exactly_one_family() {
    for name in FIXTURES {
        let checkpoint = open(name);
        let tensors = Tensors::open(&checkpoint.path).unwrap();
        let settings = Settings::open(&checkpoint.path.with_file_name("config.json")).ok();
        let evidence = Evidence { tensors: &tensors, settings: settings.as_ref(), processor: None, heads: None };
        let by: Vec<&str> = FAMILIES.iter().filter(|f| (f.recognise)(&evidence)).map(|f| f.name).collect();
        assert_eq!(by, [checkpoint.family], "{name}");
        assert!(checkpoint.unused.is_empty(), "{name} {:?}", checkpoint.unused);
    }
}

#[test]
fn the_default_fixture_is_the_books_model() {
    let checkpoint = open("book-default");
    assert_eq!(checkpoint.config, ViTConfig::default());
    assert_eq!(checkpoint.labels, CIFAR10_LABELS);
    assert_eq!(checkpoint.path, fixture("book-default/model.safetensors"));
}

#[test]
fn sizes_come_from_config_json() {
    let fused = open("book-fused").config;
    assert_eq!((fused.depth, fused.width, fused.heads, fused.mlp_width, fused.image_size), (3, 40, 5, 64, (16, 16)));
    let wide = open("book-wide-grid").config;
    assert_eq!((wide.image_size, wide.patch_size, wide.grid(), wide.qkv_bias), ((24, 40), (4, 4), (6, 10), false));
    let batch = open("book-batch");
    assert_eq!((batch.config.patch_size, batch.config.classes), ((8, 8), 7));
    assert!(batch.labels.is_empty(), "only ten classes can be CIFAR-10's");
}

#[test]
fn sizes_come_from_the_shapes_where_there_is_no_config_json() {
    let sizes = ViTConfig {
        width: 8,
        depth: 2,
        heads: 2,
        mlp_width: 32,
        image_size: (16, 16),
        classes: 5,
        ..Default::default()
    };
    assert_eq!(open("book-pt").config, sizes);
    assert_eq!(open("book-pt/legacy.pt").config, sizes);
}

#[test]
fn fetched_values_are_the_ones_that_python_saved() {
    let default = open("book-default");
    let pairs = [
        ("patch_embedding.weight", "embedding.patch_embeddings.projection.weight"),
        ("cls_token", "embedding.cls_token"),
        ("position_embedding", "embedding.position_embeddings"),
        ("blocks.0.norm1.weight", "encoder.blocks.0.layernorm_1.weight"),
        ("blocks.3.norm2.bias", "encoder.blocks.3.layernorm_2.bias"),
        ("blocks.2.attention.projection.weight", "encoder.blocks.2.attention.output_projection.weight"),
        ("blocks.1.mlp.fc1.weight", "encoder.blocks.1.mlp.dense_1.weight"),
        ("blocks.1.mlp.fc2.bias", "encoder.blocks.1.mlp.dense_2.bias"),
        ("classifier.weight", "classifier.weight"),
    ];
    for (name, key) in pairs {
        assert_eq!(fetch(&default, name), raw(&default.path, key), "{name}");
    }
    let fused = open("book-fused");
    let key = "encoder.blocks.2.attention.qkv_projection.weight";
    assert_eq!(fetch(&fused, "blocks.2.attention.qkv.weight"), raw(&fused.path, key));
}

#[test]
fn heads_of_their_own_become_one_matrix_of_queries_then_keys_then_values() {
    for name in ["book-half", "book-pt/model_final.pt", "book-pt/legacy.pt"] {
        let checkpoint = open(name);
        let expected = checkpoint.path.with_file_name("expected.safetensors");
        for part in ["weight", "bias"] {
            let values = fetch(&checkpoint, &format!("blocks.1.attention.qkv.{part}"));
            assert_eq!(values, raw(&expected, &format!("qkv.{part}")), "{name} {part}");
        }
    }
}

#[test]
fn half_precision_is_widened_exactly() {
    let checkpoint = open("book-half");
    let bytes = fs::read(&checkpoint.path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let halves = |key: &str, dtype: Dtype| -> Vec<u16> {
        let tensor = tensors.tensor(key).unwrap();
        assert_eq!(tensor.dtype(), dtype);
        tensor.data().chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
    };
    let brain = halves("encoder.blocks.0.mlp.dense_1.weight", Dtype::BF16);
    let widened: Vec<f32> = brain.iter().map(|&bits| f32::from_bits(u32::from(bits) << 16)).collect();
    assert_eq!(fetch(&checkpoint, "blocks.0.mlp.fc1.weight"), widened);
    let ieee = halves("classifier.weight", Dtype::F16);
    for (bits, value) in ieee.into_iter().zip(fetch(&checkpoint, "classifier.weight")) {
        // Sign, exponent and fraction by hand; the fixture holds no infinities or NaN.
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
        let size =
            if exponent == 0 { fraction * 2f64.powi(-24) } else { (1024.0 + fraction) * 2f64.powi(exponent - 25) };
        assert_eq!(f64::from(value), if bits >> 15 == 1 { -size } else { size });
    }
}

#[test]
fn every_parameter_of_every_fixture_can_be_fetched_and_is_finite() {
    for name in FIXTURES {
        let checkpoint = open(name);
        for parameter in checkpoint.config.parameters() {
            let values = checkpoint.fetch(&parameter.name, &parameter.shape).unwrap();
            assert_eq!(values.len(), parameter.shape.iter().product::<usize>());
            assert!(values.iter().all(|value| value.is_finite()), "{name} {}", parameter.name);
        }
        let wrong = checkpoint.fetch("cls_token", &[1, 1, usize::MAX]).unwrap_err().to_string();
        assert_contains(&wrong, &["cls_token", "values"]);
        assert_contains(&checkpoint.fetch("cls", &[1]).unwrap_err().to_string(), &["no parameter cls"]);
    }
}

#[test]
fn all_missing_and_misshapen_keys_are_listed_at_once() {
    let broken = edited("book-default", |tensors| {
        tensors.retain(|(key, ..)| key != "encoder.blocks.0.attention.heads.2.query.weight");
        for (key, dtype, shape, data) in tensors {
            match key.as_str() {
                "encoder.blocks.3.mlp.dense_1.weight" => shape.reverse(),
                "embedding.position_embeddings" => {
                    (*shape, *data) = (vec![1, 64, 48], vec![0; 64 * 48 * 4]);
                }
                "classifier.bias" => (*dtype, *shape) = (Dtype::I32, vec![10]),
                _ => {}
            }
        }
    });
    let message = refusal(broken.path());
    assert_contains(&message, &["4 of the model's tensors", "model.safetensors"]);
    assert_contains(
        &message,
        &[
            "encoder.blocks.0.attention.heads.2.query.weight: missing, expected shape [12, 48]",
            "encoder.blocks.3.mlp.dense_1.weight: expected shape [192, 48], found [48, 192]",
            "embedding.position_embeddings: expected shape [1, 65, 48], found [1, 64, 48]",
            "classifier.bias: expected values in f32, f16 or bf16, found I32",
        ],
    );
}

#[test]
fn keys_that_the_model_does_not_use_are_named() {
    let extra = |key: &str| (key.to_owned(), Dtype::I64, vec![], vec![0; 8]);
    let larger = edited("book-fused", |tensors| tensors.extend([extra("steps"), extra("encoder.blocks.0.scale")]));
    assert_eq!(Checkpoint::open(larger.path()).unwrap().unused, ["encoder.blocks.0.scale", "steps"]);
    let deeper = with_config("book-fused", &[("num_hidden_layers", json!(2))]);
    let unused = Checkpoint::open(deeper.path()).unwrap().unused;
    assert!(unused.len() == 12 && unused.iter().all(|key| key.starts_with("encoder.blocks.2.")), "{unused:?}");
}

#[test]
fn a_config_that_cannot_be_is_refused_with_the_field_and_what_would_be_right() {
    let cases: &[(&str, Value, &[&str])] = &[
        ("hidden_size", json!(null), &["config.json", "has no hidden_size"]),
        ("hidden_size", json!(0), &["hidden_size is 0", "from 1 to"]),
        ("hidden_size", json!(-48), &["hidden_size is -48", "whole number"]),
        ("hidden_size", json!("48"), &["hidden_size is \"48\"", "whole number"]),
        ("intermediate_size", json!(1e300), &["intermediate_size is 1e", "whole number"]),
        ("num_hidden_layers", json!(1_000_000), &["1000000 layers", "1 to 1000"]),
        ("num_attention_heads", json!(5), &["num_attention_heads is 5", "4 heads"]),
        ("patch_size", json!(5), &["(32, 32)", "multiple of the patch size (5, 5)"]),
        ("image_size", json!([32]), &["image_size is [32]", "[rows, cols]"]),
        ("image_size", json!([32, 32, 3]), &["image_size", "[rows, cols]"]),
        ("use_faster_attention", json!(true), &["use_faster_attention is true", "false"]),
        ("use_faster_attention", json!("no"), &["use_faster_attention is \"no\"", "true or false"]),
        ("qkv_bias", json!(false), &["qkv_bias is false", "true"]),
        ("labels", json!(["cat", "dog"]), &["2 labels for 10 classes"]),
        ("labels", json!([1, 2]), &["labels is [1,2]", "strings"]),
        ("labels", json!("x".repeat(10_000)), &["labels is \"xxx", "..."]),
        ("hidden_size", json!(1 << 20), &["missing or misshapen", "expected shape [1048576"]),
    ];
    for (field, value, parts) in cases {
        let message = refusal(with_config("book-default", &[(field, value.clone())]).path());
        assert_contains(&message, parts);
        assert!(parts[0].starts_with("missing") || message.lines().count() == 1, "{message}");
        assert!(message.lines().all(|line| line.len() < 400), "{message}");
    }
    let message = refusal(with_config("book-fused", &[("num_attention_heads", json!(7))]).path());
    assert_contains(&message, &["width 40", "7 heads"]);
}

#[test]
fn a_config_that_is_no_config_is_refused() {
    let weights = fs::read(fixture("book-default/model.safetensors")).unwrap();
    let cases: [(&[u8], &str); 5] = [
        (b"", "is not JSON"),
        (b"{\"hidden_size\": 48,", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1, 2]", "not an object"),
        (b"{}", "has no num_attention_heads"),
    ];
    for (config, part) in cases {
        assert_contains(&refusal(directory(config, &weights).path()), &["config.json", part]);
    }
    let deep = "[".repeat(100_000);
    assert_contains(&refusal(directory(deep.as_bytes(), &weights).path()), &["is not JSON"]);
}

#[test]
fn fields_that_older_configs_lack_are_taken_from_the_keys() {
    let none = [("use_faster_attention", Value::Null), ("qkv_bias", Value::Null)];
    assert!(!Checkpoint::open(with_config("book-wide-grid", &none).path()).unwrap().config.qkv_bias);
    assert_eq!(Checkpoint::open(with_config("book-default", &none).path()).unwrap().config, ViTConfig::default());
}

#[test]
fn labels_of_the_config_replace_cifar10s() {
    let labels: Vec<String> = (0..10).map(|i| format!("class {i}")).collect();
    let named = with_config("book-default", &[("labels", json!(labels))]);
    assert_eq!(Checkpoint::open(named.path()).unwrap().labels, labels);
}

#[test]
fn a_weights_file_by_itself_uses_the_config_beside_it_or_says_what_it_cannot_tell() {
    assert_eq!(open("book-fused/model.safetensors").config.heads, 5);
    let alone = |name: &str| {
        let directory = TempDir::new().unwrap();
        fs::copy(fixture(name).join("model.safetensors"), directory.path().join("weights.safetensors")).unwrap();
        directory
    };
    assert_eq!(Checkpoint::open(alone("book-default").path()).unwrap().config, ViTConfig::default());
    assert_contains(&refusal(alone("book-fused").path()), &["heads", "config.json"]);
    let misfit = edited("book-default", |tensors| {
        let positions = tensors.iter_mut().find(|(key, ..)| key == "embedding.position_embeddings").unwrap();
        (positions.2, positions.3) = (vec![1, 61, 48], vec![0; 61 * 48 * 4]);
    });
    fs::remove_file(misfit.path().join("config.json")).unwrap();
    assert_contains(&refusal(misfit.path()), &["60 patches are not a square", "config.json"]);
}

#[test]
fn a_file_that_is_not_weights_is_called_what_it_is() {
    let lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 491472\n";
    let mut tar = vec![b'a'; 512];
    tar[257..262].copy_from_slice(b"ustar");
    let onnx = b"\x08\x08\x12\x07pytorch\x1a\x062.15.0:";
    let cases: [(&str, &[u8], &str); 19] = [
        ("model.gguf", b"GGUF\x03\0\0\0\x21\x01\0\0\0\0\0\0", "is a GGUF file"),
        ("model.safetensors", b"GGUF\x03\0\0\0\x21\x01\0\0\0\0\0\0", "is a GGUF file"),
        ("model.onnx", onnx, "is an ONNX graph"),
        ("tf_model.h5", b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0", "is an HDF5 file, as Keras saves"),
        ("flax_model.msgpack", b"\x82\xa6params\x83", "is a Flax msgpack file"),
        ("model_final.pt", b"\x1f\x8b\x08\0\0\0\0\0", "is compressed"),
        ("model_final.pt", b"PK\x05\x06", "is an empty archive"),
        ("model.safetensors", b"", "is empty"),
        ("model_final.pt", b"", "is empty"),
        ("model.safetensors", lfs.as_bytes(), "Git LFS pointer"),
        ("model_final.pt", lfs.as_bytes(), "Git LFS pointer"),
        ("model_final.pt", b"\n<!DOCTYPE html><html></html>", "HTML"),
        ("model_final.pt", b"{\"hidden_size\": 48}", "is JSON"),
        ("model_final.pt", b"hello, world", "neither safetensors nor a PyTorch checkpoint"),
        ("model_final.pt", &tar, "tar archive"),
        ("model.safetensors", b"abc", "truncated after 3 bytes"),
        ("model.safetensors", b"\xff\xff\xff\xff\xff\xff\xff\xff{}", "header of 18446744073709551615 bytes"),
        ("model_final.pt", b"PK\x03\x04 and no more", "cannot be read as a PyTorch checkpoint"),
        ("model_final.pt", b"\x80\x02}.", "holds no tensors"),
    ];
    for (name, bytes, part) in cases {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join(name), bytes).unwrap();
        let message = refusal(directory.path());
        assert_contains(&message, &[name, part]);
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn a_pickled_object_is_never_brought_to_life() {
    let directory = TempDir::new().unwrap();
    let mark = directory.path().join("executed");
    let command = format!("touch {}", mark.display());
    let mut pickle = b"\x80\x02cos\nsystem\nX".to_vec();
    pickle.extend((command.len() as u32).to_le_bytes());
    pickle.extend(command.as_bytes());
    pickle.extend(b"\x85R.");
    fs::write(directory.path().join("model_final.pt"), pickle).unwrap();
    assert_contains(&refusal(directory.path()), &["os.system"]);
    assert!(!mark.exists());
}

#[test]
fn a_pickle_nested_as_deep_as_it_may_be_is_no_trouble() {
    for levels in [900, 100_000] {
        let directory = TempDir::new().unwrap();
        let nested = ["]".repeat(levels), "a".repeat(levels - 1)].concat();
        fs::write(
            directory.path().join("model_final.pt"),
            [b"\x80\x02}X\x01\0\0\0k", nested.as_bytes(), b"s."].concat(),
        )
        .unwrap();
        assert_contains(&refusal(directory.path()), &[if levels < 1000 { "holds no tensors" } else { "nesting" }]);
    }
}

#[test]
fn a_path_without_weights_is_refused() {
    let empty = TempDir::new().unwrap();
    assert_contains(&refusal(empty.path()), &["holds no weights", "model.safetensors"]);
    assert_contains(&refusal(&empty.path().join("nothing")), &["nothing", "cannot be opened"]);
    for name in ["a.pt", "b.safetensors"] {
        fs::write(empty.path().join(name), b"x").unwrap();
    }
    assert_contains(&refusal(empty.path()), &["2 weights files", "a.pt", "b.safetensors", "name the one"]);
    fs::create_dir(empty.path().join("model.safetensors")).unwrap();
    assert_contains(&refusal(empty.path()), &["not a regular file"]);
    assert_contains(&refusal(&fixture("book-default/config.json")), &["is JSON"]);
}

#[test]
fn a_header_that_contradicts_itself_is_refused() {
    let one = |rest: &str| format!(r#"{{"a": {{"dtype": "F32", {rest}}}}}"#);
    let scalar = |key: &str, place: &str| format!(r#""{key}":{{"dtype":"F32","shape":[1],"data_offsets":{place}}}"#);
    let two = |first: &str, second: &str| format!("{{{},{}}}", scalar("a", first), scalar("b", second));
    let twice = format!("{{{},{}}}", scalar("a", "[0,4]"), scalar("a", "[4,8]"));
    let cases: [(String, usize, &str); 13] = [
        (one(r#""shape": [2], "data_offsets": [0, 4]"#), 4, "contradicts itself"),
        (one(r#""shape": [1], "data_offsets": [4, 0]"#), 4, "contradicts itself"),
        (one(r#""shape": [1], "data_offsets": [0, 4]"#), 3, "the file holds 3"),
        (one(r#""shape": [1], "data_offsets": [0, 4]"#), 5, "the file holds 5"),
        (one(r#""shape": [4294967296, 4294967296], "data_offsets": [0, 4]"#), 4, "contradicts itself"),
        (one(r#""shape": [-1], "data_offsets": [0, 4]"#), 4, "header is broken"),
        (one(r#""shape": [1]"#), 4, "header is broken"),
        (two("[0,4]", "[0,4]"), 4, "contradicts itself"),
        (two("[0,4]", "[8,12]"), 12, "contradicts itself"),
        (two("[0,4]", "[18446744073709551612,18446744073709551615]"), 8, "contradicts itself"),
        (twice, 8, "tensor a appears twice"),
        (r#"{"__metadata__": {"format": "pt"}}"#.to_owned(), 0, "holds no tensors"),
        ("[".repeat(50_000), 0, "header is broken"),
    ];
    for (header, data, part) in cases {
        let message = refusal(with_header(&header, data).path());
        assert_contains(&message, &["model.safetensors", part]);
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn another_kind_of_model_is_refused_with_the_names_it_has() {
    let header = r#"{"layer1.0.conv1.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let message = refusal(with_header(header, 4).path());
    assert_contains(&message, &["not a Vision Transformer", "book", "layer1.0.conv1.weight"]);
}

#[test]
fn models_of_other_libraries_and_kinds_are_refused_by_name() {
    // Real names of tensors, by `other_models.py`; no family looks at the shapes before it knows the names.
    let list = fs::read_to_string(fixture("families/other-models.tsv")).unwrap();
    let mut wrong = Vec::new();
    for line in list.lines() {
        let mut fields = line.split('\t');
        let (model, kind) = (fields.next().unwrap(), fields.next().unwrap());
        let entry = |(at, key): (usize, &str)| {
            let (start, end) = (4 * at, 4 * at + 4);
            format!(r#""{key}":{{"dtype":"F32","shape":[1],"data_offsets":[{start},{end}]}}"#)
        };
        let entries: Vec<String> = fields.enumerate().map(entry).collect();
        let directory = with_header(&format!("{{{}}}", entries.join(",")), 4 * entries.len());
        fs::remove_file(directory.path().join("config.json")).unwrap();
        let message = refusal(directory.path());
        let named = message.split_once("): its").or(message.split_once(" by the look of it"));
        if message.lines().count() > 1 || !named.is_some_and(|(start, _)| start.contains(kind)) {
            wrong.push(format!("{model} should be called {kind}: {message}"));
        }
    }
    assert!(list.lines().count() > 20 && wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sizes_that_only_an_empty_tensor_can_claim_are_refused() {
    let empty = |key: &str, shape: &str| format!(r#""{key}":{{"dtype":"F32","shape":{shape},"data_offsets":[0,0]}}"#);
    let header = format!(
        "{{{},{},{},{},{}}}",
        empty("embedding.patch_embeddings.projection.weight", "[0,9223372036854775807,1,1]"),
        empty("embedding.position_embeddings", "[1,9223372036854775807,0]"),
        empty("encoder.blocks.0.attention.heads.0.query.weight", "[0,1]"),
        empty("encoder.blocks.0.mlp.dense_1.weight", "[9223372036854775807,0]"),
        empty("classifier.weight", "[9223372036854775807,0]"),
    );
    let directory = with_header(&header, 0);
    fs::remove_file(directory.path().join("config.json")).unwrap();
    let message = refusal(directory.path());
    assert!(message.contains("square") || message.contains("out of range"), "{message}");
}

#[test]
fn no_damage_to_a_file_makes_it_panic() {
    for name in FIXTURES {
        let path = open(name).path;
        let bytes = fs::read(&path).unwrap();
        let config = fs::read(path.with_file_name("config.json")).ok();
        let place = TempDir::new().unwrap();
        let target = place.path().join(path.file_name().unwrap());
        let attempt = |weights: &[u8], config: Option<&[u8]>| {
            fs::write(&target, weights).unwrap();
            if let Some(config) = config {
                fs::write(place.path().join("config.json"), config).unwrap();
            }
            let Ok(checkpoint) = Checkpoint::open(&target) else { return };
            for parameter in checkpoint.config.parameters() {
                let _ = checkpoint.fetch(&parameter.name, &parameter.shape);
            }
        };
        let few = if bytes.len() < 50_000 { 400 } else { 60 };
        for step in 0..few {
            attempt(&bytes[..bytes.len() * step / few], config.as_deref());
            attempt(&bytes[..bytes.len().min(step)], config.as_deref());
            let mut flipped = bytes.clone();
            // Half of the flips go to the first bytes, where lengths are; the rest anywhere.
            let within = if step % 2 == 0 { bytes.len().min(600) } else { bytes.len() };
            flipped[step * 7919 % within] ^= [1, 0x80, 0xff, 0x10][step / 2 % 4];
            attempt(&flipped, config.as_deref());
        }
        for at in 0..config.as_ref().map_or(0, Vec::len) {
            let mut flipped = config.clone().unwrap();
            flipped[at] ^= 1 << (at % 7);
            attempt(&bytes, Some(&flipped));
            attempt(&bytes, Some(&flipped[..at]));
        }
    }
}

#[test]
fn a_model_inside_the_binary_opens_like_the_one_on_disk() {
    let weights = include_bytes!("fixtures/book-fused/model.safetensors");
    let built_in =
        Checkpoint::from_bytes(include_str!("fixtures/book-fused/config.json"), weights, &Options::default()).unwrap();
    let on_disk = open("book-fused");
    assert_eq!(built_in.config, on_disk.config);
    for parameter in on_disk.config.parameters() {
        assert_eq!(fetch(&built_in, &parameter.name), fetch(&on_disk, &parameter.name), "{}", parameter.name);
    }
    assert_eq!(built_in.sha256().unwrap(), on_disk.sha256().unwrap());
    let message = Checkpoint::from_bytes("{}", &weights[..1000], &Options::default()).unwrap_err().to_string();
    assert_contains(&message, &["built-in", "truncated"]);
}

#[test]
fn sha256_is_that_of_the_weights_file() {
    for name in FIXTURES {
        let checkpoint = open(name);
        fetch(&checkpoint, "classifier.bias");
        let expected: String =
            Sha256::digest(fs::read(&checkpoint.path).unwrap()).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(checkpoint.sha256().unwrap(), expected);
        assert_eq!(checkpoint.sha256().unwrap(), expected, "a second time");
    }
}

#[test]
fn a_saved_model_opens_again_with_the_same_values() {
    for name in ["book-default", "book-wide-grid", "book-batch"] {
        let original = open(name);
        let labels = original.labels.clone();
        let files = save_book(&original.config, &labels, |name| fetch(&original, name)).unwrap();
        let directory = TempDir::new().unwrap();
        for file in &files {
            fs::write(directory.path().join(&file.name), &file.bytes).unwrap();
        }
        let saved = Checkpoint::open(directory.path()).unwrap();
        assert_eq!((&saved.config, &saved.labels, &saved.recipe), (&original.config, &labels, &original.recipe));
        assert!(saved.unused.is_empty());
        for parameter in original.config.parameters() {
            assert_eq!(fetch(&saved, &parameter.name), fetch(&original, &parameter.name), "{}", parameter.name);
        }
    }
}

#[test]
fn a_saved_model_has_the_books_names_shapes_and_config() {
    let original = open("book-default");
    let files = save_book(&original.config, &original.labels, |name| fetch(&original, name)).unwrap();
    assert_eq!(files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["config.json", "model.safetensors"]);
    let config: Value = serde_json::from_slice(&files[0].bytes).unwrap();
    assert_eq!((&config["image_size"], &config["use_faster_attention"]), (&json!(32), &json!(true)));
    let book: Value = serde_json::from_slice(&fs::read(fixture("book-default/config.json")).unwrap()).unwrap();
    assert!(book.as_object().unwrap().keys().all(|field| config.get(field).is_some()), "{config}");
    let tensors = SafeTensors::deserialize(&files[1].bytes).unwrap();
    let shape = |key: &str| tensors.tensor(key).unwrap().shape().to_vec();
    assert_eq!(shape("embedding.patch_embeddings.projection.weight"), [48, 3, 4, 4]);
    assert_eq!(shape("encoder.blocks.3.attention.qkv_projection.weight"), [144, 48]);
    let wide = open("book-wide-grid");
    let files = save_book(&wide.config, &[], |name| fetch(&wide, name)).unwrap();
    let config: Value = serde_json::from_slice(&files[0].bytes).unwrap();
    assert_eq!((&config["image_size"], config.get("labels")), (&json!([24, 40]), None));
}

#[test]
fn a_model_that_the_book_cannot_hold_is_not_saved() {
    let book = ViTConfig::default();
    let others = [
        ViTConfig { final_norm: true, ..book.clone() },
        ViTConfig { registers: 4, ..book.clone() },
        ViTConfig { cls_token: false, ..book.clone() },
        ViTConfig { activation: Activation::GeluErf, ..book.clone() },
        ViTConfig { classes: 0, ..book.clone() },
    ];
    for config in others {
        let message = save_book(&config, &[], |_| Vec::new()).unwrap_err().to_string();
        assert_contains(&message, &["cannot hold this model"]);
    }
    assert_contains(&save_book(&book, &[], |_| vec![0.0; 3]).unwrap_err().to_string(), &["model.safetensors"]);
}

#[test]
fn half_a_layer_is_damage_and_not_a_model_without_it() {
    // The final norm: without a trace of it, this would be a model that has none.
    let norm = "vit.layernorm.weight";
    let torn = edited("families/hf-vit-classifier", |tensors| tensors.retain(|(key, ..)| key != norm));
    assert_contains(&refusal(torn.path()), &["layernorm.bias", "without its weight"]);
}
