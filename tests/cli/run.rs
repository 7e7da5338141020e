//! `vit-attn run`: what it writes, and that the numbers agree with each other.

use std::{collections::BTreeSet, fs};

use safetensors::SafeTensors;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{Place, asset, fixture, set};
use crate::common;

/// The JSON pointer of a value in the manifest, and a test for the value.
type Field = (&'static str, fn(&Value) -> bool);

/// What a manifest has.
const FIELDS: [Field; 29] = [
    ("/schema", Value::is_u64),
    ("/tool_version", Value::is_string),
    ("/command", Value::is_array),
    ("/input/path", Value::is_string),
    ("/input/width", Value::is_u64),
    ("/input/height", Value::is_u64),
    ("/input/sha256", Value::is_string),
    ("/geometry/x/original", Value::is_u64),
    ("/geometry/x/resized", Value::is_u64),
    ("/geometry/y/start", Value::is_u64),
    ("/geometry/y/seen", Value::is_u64),
    ("/geometry/y/patches", Value::is_u64),
    ("/tokens/prefix", Value::is_array),
    ("/tokens/grid", Value::is_array),
    ("/model/name", Value::is_string),
    ("/model/family", Value::is_string),
    ("/model/config/depth", Value::is_u64),
    ("/model/parameters", Value::is_u64),
    ("/model/weights_sha256", Value::is_string),
    ("/backend", Value::is_string),
    ("/adapter", |_| true),
    ("/layers", Value::is_array),
    ("/heads", Value::is_array),
    ("/view/word", Value::is_string),
    ("/view/queries", Value::is_array),
    ("/prediction/0/probability", Value::is_f64),
    ("/seconds/0/seconds", Value::is_f64),
    ("/warnings", Value::is_array),
    ("/files", Value::is_array),
];

/// The numbers of a map.
const STATS: [&str; 6] = ["min", "max", "mean", "patch_share", "top_share", "entropy"];

/// The numbers of every map of a manifest.
fn stats(manifest: &Value) -> Vec<f32> {
    let maps = manifest["maps"].as_array().unwrap();
    maps.iter().flat_map(|map| STATS.map(|name| map[name].as_f64().unwrap() as f32)).collect()
}

/// The shape and values of a NumPy array.
fn npy(place: &Place, file: &str) -> (Vec<u64>, Vec<f32>) {
    let bytes = fs::read(place.path(file)).unwrap();
    let array = npyz::NpyFile::new(bytes.as_slice()).unwrap();
    assert_eq!(array.order(), npyz::Order::C);
    (array.shape().to_vec(), array.into_vec().unwrap())
}

#[test]
fn a_run_writes_its_files_into_a_folder_named_after_the_picture_and_lists_them() {
    let place = Place::new();
    let ended = place.ok(&["run", &asset("cat.png")]);
    let heads = ["cls-L03-H00.png", "cls-L03-H01.png", "cls-L03-H02.png", "cls-L03-H03.png"];
    let names = set(&[&heads[..], &["input.png", "cls-grid.png", "manifest.json"]].concat());
    assert_eq!(place.files("cat-attention"), names, "nothing else may be left, such as a temporary file");
    let listed: Vec<&str> = ended.out.lines().collect();
    assert_eq!(listed.len(), names.len());
    assert_eq!(listed.iter().map(|path| path.replace("cat-attention/", "")).collect::<BTreeSet<_>>(), names);
    assert!(listed.iter().all(|path| place.path(path).is_file()));
    assert_eq!(listed.last(), Some(&"cat-attention/manifest.json"), "the manifest says that the rest is there");
    for head in heads {
        let map = place.image(&format!("cat-attention/{head}"));
        assert_eq!(map.dimensions(), (256, 256), "8 x 8 patches in blocks of 32");
        for (x, y, pixel) in map.enumerate_pixels() {
            assert_eq!(pixel, map.get_pixel(x / 32 * 32, y / 32 * 32), "there is more than the map in {head}");
        }
    }
    let sheet = place.image("cat-attention/cls-grid.png");
    assert!(sheet.width() > 1000 && sheet.height() > 256, "{:?}", sheet.dimensions());

    assert!(ended.err.contains("layer  head  on patches"), "{}", ended.err);
    let prediction = ended.err.lines().find_map(|line| line.trim().strip_prefix("prediction: ")).unwrap();
    assert_eq!(prediction.matches(" %").count(), 3, "three classes: {prediction}");
}

#[test]
fn input_png_shows_what_the_model_saw_in_the_right_colours() {
    let place = Place::new();
    place.ok(&["run", &asset("cat.png")]);
    let input = place.image("cat-attention/input.png");
    let seen = image::open(asset("cat-32.png")).unwrap().into_rgb8();
    assert_eq!(input.dimensions(), (256, 256));
    for (x, y, pixel) in input.enumerate_pixels() {
        let expected = seen.get_pixel(x / 8, y / 8);
        let off = pixel.0.iter().zip(expected.0).map(|(a, b)| a.abs_diff(b)).max();
        assert!(off <= Some(1), "({x}, {y}) is {pixel:?}, not {expected:?}");
    }
}

#[test]
fn json_prints_the_manifest_that_is_written_with_everything_about_the_run() {
    let place = Place::new();
    let ended = place.ok(&["run", &asset("cat.png"), "--json", "-o", "out", "--layers", "1,3"]);
    let manifest: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(manifest, place.manifest("out"));
    for (field, is_right) in FIELDS {
        let value = manifest.pointer(field).unwrap_or_else(|| panic!("{field} is missing in {manifest}"));
        assert!(is_right(value), "{field} is {value}");
    }
    let sha256 = |path: &str| format!("{:x}", Sha256::digest(fs::read(path).unwrap()));
    assert_eq!(manifest["input"]["sha256"], sha256(&asset("cat.png")));
    assert_eq!((&manifest["input"]["width"], &manifest["input"]["height"]), (&451.into(), &300.into()));
    assert_eq!(manifest["command"].as_array().unwrap().last().unwrap(), "1,3");
    assert_eq!((&manifest["tokens"]["grid"], &manifest["tokens"]["prefix"]), (&[8, 8].into(), &["CLS"].into()));
    assert_eq!((&manifest["layers"], &manifest["heads"]), (&[1, 3].into(), &[0, 1, 2, 3].into()));
    assert_eq!(manifest["view"]["queries"], Value::from([0]));
    let maps = manifest["maps"].as_array().unwrap();
    assert_eq!(maps.len(), 8);
    for map in maps {
        let (layer, head) = (map["layer"].as_u64().unwrap(), map["head"].as_u64().unwrap());
        assert_eq!(map["file"], format!("cls-L{layer:02}-H{head:02}.png"));
        assert!(STATS.iter().all(|name| map[*name].is_f64()), "{map}");
    }
    let mut files = place.files("out");
    files.remove("manifest.json");
    let listed = manifest["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap().to_owned());
    assert_eq!(listed.collect::<BTreeSet<_>>(), files);
    let classes = manifest["prediction"].as_array().unwrap();
    let sum: f64 = classes.iter().map(|class| class["probability"].as_f64().unwrap()).sum();
    assert!(classes.len() == 10 && (sum - 1.0).abs() < 1e-5, "{sum}");
    assert!(classes.is_sorted_by(|a, b| a["probability"].as_f64() >= b["probability"].as_f64()));
}

#[test]
fn the_hash_of_the_weights_is_that_of_the_file() {
    let place = Place::new();
    place.ok(&["run", &asset("cat.png"), "-m", &fixture("book-fused"), "-o", "out"]);
    let bytes = fs::read(fixture("book-fused/model.safetensors")).unwrap();
    let model = &place.manifest("out")["model"];
    assert_eq!(model["weights_sha256"], format!("{:x}", Sha256::digest(&bytes)));
    assert_eq!((&model["name"], &model["family"]), (&fixture("book-fused").into(), &"book".into()));
}

#[test]
fn layers_and_heads_are_picked_by_number_range_and_from_the_end() {
    let place = Place::new();
    let cat = asset("cat.png");
    place.ok(&["run", &cat, "-o", "a", "--layers", "0,-1", "--heads", "1-2", "-f", "npy"]);
    let manifest = place.manifest("a");
    assert_eq!((&manifest["layers"], &manifest["heads"]), (&[0, 3].into(), &[1, 2].into()));
    assert_eq!(npy(&place, "a/cls.npy").0, [2, 2, 8, 8]);
    place.ok(&["run", &cat, "-o", "b", "--layers", "-2--1", "--heads", "last"]);
    let heads = ["cls-L02-H03.png", "cls-L03-H03.png"];
    assert_eq!(place.files("b"), set(&[&heads[..], &["input.png", "cls-grid.png", "manifest.json"]].concat()));
    place.ok(&["run", &cat, "-o", "c", "--layers", "all", "--json"]);
    assert_eq!(place.manifest("c")["maps"].as_array().unwrap().len(), 16);
}

#[test]
fn every_view_has_its_word_in_the_file_names_and_asks_the_right_tokens() {
    let place = Place::new();
    let all: Vec<u64> = (1..65).collect();
    // The cat is 451 x 300, so that a patch is 56.375 x 37.5 pixels of it.
    let views: [(&str, &str, &[u64]); 7] = [
        ("cls", "cls", &[0]),
        ("mean", "mean", &all),
        ("patch=0,0", "patch-0-0", &[1]),
        ("patch=3,5", "patch-3-5", &[1 + 3 * 8 + 5]),
        ("at=120,80", "at-120-80", &[1 + 2 * 8 + 2]),
        ("at=450.9,299.5", "at-450.9-299.5", &[64]),
        ("at=56.374,37.5", "at-56.374-37.5", &[1 + 8]),
    ];
    for (view, word, queries) in views {
        place.ok(&["run", &asset("cat.png"), "-o", word, "--view", view, "--heads", "0", "-f", "png,npy", "--overlay"]);
        let manifest = place.manifest(word);
        assert_eq!((&manifest["view"]["word"], &manifest["view"]["queries"]), (&word.into(), &queries.into()));
        let names = ["-L03-H00.png", "-overlay-L03-H00.png", "-grid.png", ".npy"].map(|end| format!("{word}{end}"));
        let mut expected: BTreeSet<String> = names.into_iter().collect();
        expected.extend(set(&["input.png", "manifest.json"]));
        assert_eq!(place.files(word), expected);
    }
}

#[test]
fn a_model_with_a_probe_is_shown_by_it_in_one_row_of_maps_that_belongs_to_no_layer() {
    let place = Place::new();
    let (cat, model) = (asset("cat.png"), fixture("families/hf-siglip-vision"));
    let ended = place.ok(&["run", &cat, "-m", &model, "-o", "out", "--heads", "0,1", "-f", "png,npy", "--overlay"]);
    let maps = ["probe-H00.png", "probe-H01.png", "probe-overlay-H00.png", "probe-overlay-H01.png"];
    assert_eq!(
        place.files("out"),
        set(&[&maps[..], &["probe-grid.png", "probe.npy", "input.png", "manifest.json"]].concat())
    );
    let manifest = place.manifest("out");
    assert_eq!(manifest["view"]["word"], "probe");
    assert_eq!(
        (&manifest["layers"], &manifest["view"]["queries"]),
        (&serde_json::json!([null]), &Value::Array(vec![]))
    );
    assert_eq!(manifest["maps"][1]["layer"], Value::Null);
    assert_eq!((&manifest["maps"][1]["head"], &manifest["maps"][1]["file"]), (&1.into(), &"probe-H01.png".into()));
    let grid: Vec<u64> = manifest["tokens"]["grid"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    let (shape, values) = npy(&place, "out/probe.npy");
    assert_eq!(shape, [1, 2, grid[0], grid[1]]);
    // SigLIP's probe sees the patches alone.
    assert!(values.chunks(values.len() / 2).all(|head| (head.iter().sum::<f32>() - 1.0).abs() <= 1e-5));
    assert!(ended.err.contains("\n  probe     0  "), "{}", ended.err);

    // Whole matrices are of layers whatever the view; and who names a layer sees that.
    place.ok(&["run", &cat, "-m", &model, "-o", "whole", "-f", "safetensors"]);
    assert_eq!(place.files("whole"), set(&["attention.safetensors", "manifest.json"]));
    let bytes = fs::read(place.path("whole/attention.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let probe = tensors.tensor("probe").unwrap();
    // The maps are of the first two heads; the tensor has all of them.
    let first: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert!(probe.shape()[0] > 2 && probe.data().starts_with(&first), "{:?}", probe.shape());
    place.ok(&["run", &cat, "-m", &model, "-o", "layer", "--layers", "0"]);
    assert_eq!(place.manifest("layer")["view"]["word"], "mean");
    let error = place.refused(2, &["run", &cat, "-m", &model, "-o", "no", "--view", "probe", "--layers", "0"]);
    assert!(error.starts_with("--layers 0: the probe comes after all layers"), "{error}");
    let models = format!("{model},{model}");
    place.ok(&["compare", &cat, "--models", &models, "--view", "probe", "--layers", "0", "-o", "compared"]);
    assert!(place.files("compared").contains("difference-probe-H00.png"), "{:?}", place.files("compared"));
}

#[test]
fn overlays_have_the_size_of_the_original_turned_upright() {
    let place = Place::new();
    let pictures = [(asset("cat.png"), (451, 300)), (fixture("pictures/read/turned-6.jpg"), (0, 0))];
    for (index, (picture, size)) in pictures.into_iter().enumerate() {
        let out = index.to_string();
        place.ok(&["run", &picture, "-o", &out, "--overlay", "--heads", "0"]);
        let overlay = place.image(&format!("{out}/cls-overlay-L03-H00.png"));
        let stored = image::open(&picture).unwrap();
        // Orientation 6 is a quarter turn, and the decoder alone does not turn.
        let expected = if size == (0, 0) { (stored.height(), stored.width()) } else { size };
        assert_eq!(overlay.dimensions(), expected);
        let input = &place.manifest(&out)["input"];
        assert_eq!((&input["width"], &input["height"]), (&expected.0.into(), &expected.1.into()));
    }
}

#[test]
fn the_npy_file_holds_the_weights_that_the_manifest_sums_up() {
    let place = Place::new();
    let model = fixture("book-wide-grid");
    place.ok(&["run", &asset("rocket.jpg"), "-m", &model, "-o", "out", "--layers", "all", "-f", "npy"]);
    assert_eq!(place.files("out"), set(&["cls.npy", "manifest.json"]));
    let (shape, values) = npy(&place, "out/cls.npy");
    assert_eq!(shape, [2, 2, 6, 10]);
    let manifest = place.manifest("out");
    for (map, values) in manifest["maps"].as_array().unwrap().iter().zip(values.chunks(60)) {
        assert!(map["file"].is_null(), "no heatmap was written: {map}");
        let (min, max) = values.iter().fold((1.0f32, 0.0f32), |(min, max), &v| (min.min(v), max.max(v)));
        let sum: f32 = values.iter().sum();
        for (name, expected) in
            [("min", min), ("max", max), ("mean", sum / 60.0), ("patch_share", sum), ("top_share", max / sum)]
        {
            let found = map[name].as_f64().unwrap() as f32;
            assert!((found - expected).abs() <= 1e-6, "{name} is {found}, not {expected}");
        }
        let place = |axis: usize| map["top"][axis].as_u64().unwrap() as usize;
        assert_eq!(values[place(0) * 10 + place(1)], max);
    }
}

#[test]
fn the_safetensors_file_holds_whole_matrices_that_the_maps_are_cut_from() {
    let place = Place::new();
    let model = fixture("book-wide-grid");
    place.ok(&["run", &asset("cat.png"), "-m", &model, "-o", "out", "--layers", "all", "-f", "safetensors,npy"]);
    assert_eq!(place.files("out"), set(&["attention.safetensors", "cls.npy", "manifest.json"]));
    let bytes = fs::read(place.path("out/attention.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.names().iter().collect::<BTreeSet<_>>(), ["attention.0", "attention.1"].iter().collect());
    let maps = npy(&place, "out/cls.npy").1;
    for layer in 0..2 {
        let tensor = tensors.tensor(&format!("attention.{layer}")).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (safetensors::Dtype::F32, &[2, 61, 61][..]));
        let values: Vec<f32> = tensor.data().as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
        assert!(values.chunks(61).all(|row| (row.iter().sum::<f32>() - 1.0).abs() <= 1e-5), "rows sum to one");
        for head in 0..2 {
            let cls = &values[head * 61 * 61 + 1..][..60];
            assert!(common::difference(cls, &maps[(layer * 2 + head) * 60..][..60]) <= 1e-7);
        }
    }
}

#[test]
fn formats_can_be_repeated_or_separated_by_commas() {
    let place = Place::new();
    place.ok(&["run", &asset("cat.png"), "-o", "a", "-f", "npy", "-f", "safetensors"]);
    place.ok(&["run", &asset("cat.png"), "-o", "b", "--format", "npy,safetensors,npy"]);
    assert_eq!(place.files("a"), place.files("b"));
    place.ok(&["run", &asset("cat.png"), "-o", "c", "-f", "npy", "--overlay", "--heads", "0"]);
    assert_eq!(place.files("c"), set(&["cls.npy", "cls-overlay-L03-H00.png", "manifest.json"]));
}

#[test]
fn an_earlier_run_is_written_over_only_by_force() {
    let place = Place::new();
    let cat = asset("cat.png");
    place.ok(&["run", &cat, "-o", "out"]);
    let before = fs::read(place.path("out/manifest.json")).unwrap();
    let error = place.refused(1, &["run", &cat, "-o", "out", "--view", "mean"]);
    assert!(error.contains("out: holds the maps of an earlier run") && error.contains("--force"), "{error}");
    assert_eq!(fs::read(place.path("out/manifest.json")).unwrap(), before);
    let other = ["notes.txt", "cls-L03-H99.png", "../sibling.png"];
    other.iter().for_each(|name| fs::write(place.path("out").join(name), "mine").unwrap());
    let mut manifest = place.manifest("out");
    manifest["files"].as_array_mut().unwrap().extend(["../sibling.png", "gone.png"].map(Value::from));
    fs::write(place.path("out/manifest.json"), manifest.to_string()).unwrap();
    place.ok(&["run", &cat, "-o", "out", "--view", "mean", "--heads", "0", "--force"]);
    assert_eq!(place.manifest("out")["view"]["word"], "mean");
    let left = ["mean-L03-H00.png", "mean-grid.png", "input.png", "manifest.json", "notes.txt", "cls-L03-H99.png"];
    assert_eq!(place.files("out"), set(&left), "what the earlier run made is gone, and nothing else");
    assert!(place.path("sibling.png").is_file(), "no manifest reaches out of its folder");
}

#[test]
fn a_folder_without_a_manifest_is_filled_and_its_other_files_stay() {
    let place = Place::new();
    fs::create_dir(place.path("out")).unwrap();
    fs::write(place.path("out/notes.txt"), "mine").unwrap();
    place.ok(&["run", &asset("cat.png"), "-o", "out"]);
    assert_eq!(fs::read_to_string(place.path("out/notes.txt")).unwrap(), "mine");
    place.ok(&["run", &asset("cat.png"), "-o", "a/new/path"]);
    assert!(place.path("a/new/path/manifest.json").is_file());
}

#[test]
fn several_pictures_get_a_folder_each_and_one_that_fails_does_not_stop_the_others() {
    let place = Place::new();
    fs::write(place.path("bad.png"), "no picture").unwrap();
    let (cat, coffee) = (asset("cat.png"), asset("coffee.jpg"));
    let ended = place.vit(&["run", &cat, "bad.png", &coffee, "-o", "maps"]);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert_eq!(place.files("maps"), set(&["cat-attention", "coffee-attention"]));
    assert_eq!(ended.out.lines().count(), 14);
    assert!(ended.err.contains("vit-attn: error: bad.png: is not a picture"), "{}", ended.err);
    assert!(ended.err.ends_with("vit-attn: error: 1 of 3 pictures failed; the others were written\n"), "{}", ended.err);
    place.ok(&["run", &cat, &coffee]);
    assert!(place.path("coffee-attention/manifest.json").is_file(), "without --out they lie side by side");
    let ended = place.vit(&["run", "bad.png", "none.png"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    assert!(ended.err.ends_with("vit-attn: error: all 2 pictures failed\n"), "{}", ended.err);
}

#[test]
fn several_pictures_with_json_print_one_manifest_a_line() {
    let place = Place::new();
    let ended = place.ok(&["run", &asset("cat.png"), &asset("coffee.jpg"), "--json"]);
    let manifests = ended.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();
    assert_eq!(manifests, ["cat-attention", "coffee-attention"].map(|folder| place.manifest(folder)));
}

#[test]
fn the_backends_give_the_same_numbers() {
    let place = Place::new();
    let mut backends = vec!["flex", "ndarray"];
    backends.extend(common::wgpu().map(|_| "wgpu"));
    let manifests = backends.iter().map(|backend| {
        let model = fixture("book-default");
        place.ok(&["run", &asset("cat.png"), "-m", &model, "-o", backend, "--layers", "all", "--backend", backend]);
        let manifest = place.manifest(backend);
        assert_eq!(manifest["backend"], *backend);
        assert_eq!(manifest["adapter"].is_object(), *backend == "wgpu", "{manifest}");
        manifest
    });
    let manifests: Vec<Value> = manifests.collect();
    for (other, backend) in manifests.iter().zip(&backends).skip(1) {
        let off = common::difference(&stats(&manifests[0]), &stats(other));
        assert!(off <= 1e-5, "flex and {backend} are {off:e} apart");
        let probability = |manifest: &Value| manifest["prediction"][0]["probability"].as_f64().unwrap();
        assert!((probability(&manifests[0]) - probability(other)).abs() <= 1e-4);
    }
}

#[test]
fn a_model_without_config_runs_and_tensors_it_does_not_use_are_named() {
    let place = Place::new();
    place.ok(&["run", &asset("cat.png"), "-m", &fixture("book-pt/model_final.pt"), "-o", "pt"]);
    assert_eq!(place.manifest("pt")["model"]["family"], "book");
    let model = super::looks::edited(&place, "extra", |tensors| {
        let spare = tensors[0].clone();
        tensors.push(("momentum.of.something".to_owned(), spare.1));
    });
    let ended = place.ok(&["run", &asset("cat.png"), "-m", &model, "-o", "out"]);
    assert!(ended.err.contains("does not use: momentum.of.something"), "{}", ended.err);
}

#[test]
#[cfg(target_os = "linux")]
fn paths_on_stdout_are_the_bytes_that_the_file_system_has() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
    let place = Place::new();
    // Latin-1, as on old disks.
    let name = OsStr::from_bytes(b"caf\xe9.png");
    fs::copy(asset("cat.png"), place.path("").join(name)).unwrap();
    let output = place.command(&["run"]).arg(name).output().unwrap();
    assert!(output.status.success());
    let first = output.stdout.split(|byte| *byte == b'\n').next().unwrap();
    assert_eq!(first, b"caf\xe9-attention/cls-grid.png");
    assert!(place.path("").join(OsStr::from_bytes(first)).is_file());
}

#[test]
fn odd_but_whole_pictures_run() {
    let place = Place::new();
    image::RgbImage::from_pixel(1, 1, image::Rgb([9, 8, 7])).save(place.path("dot.png")).unwrap();
    image::RgbImage::from_fn(4000, 8, |x, _| image::Rgb([(x % 256) as u8; 3])).save(place.path("strip.png")).unwrap();
    fs::copy(fixture("pictures/read/rgb.png"), place.path("really-a-png.jpg")).unwrap();
    fs::copy(fixture("pictures/read/animated.gif"), place.path("moves.gif")).unwrap();
    for (name, warning) in [
        ("dot.png", ""),
        ("strip.png", ""),
        ("really-a-png.jpg", "is read as PNG"),
        ("moves.gif", "only its first frame is used"),
    ] {
        let ended = place.ok(&["run", name, "--overlay", "-o", &format!("{name}-out")]);
        assert!(ended.err.contains(warning), "{name}: {}", ended.err);
        let manifest = place.manifest(&format!("{name}-out"));
        let warnings: Vec<&str> =
            manifest["warnings"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
        assert_eq!(warnings.iter().any(|text| text.contains(warning)), !warning.is_empty(), "{name}: {warnings:?}");
    }
}
