//! Every family's checkpoints, saved by its own library, against what that library computes from them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failed unwrap is the failure")]

mod common;

use std::{
    collections::BTreeSet,
    fs,
    io::{Cursor, Read as _, Write as _},
    path::{Path, PathBuf},
};

use common::{Expected, cpus, difference, fixture, wgpu};
use half::{bf16, f16};
use safetensors::SafeTensors;
use tempfile::TempDir;
use vit_attn::{
    checkpoint::{Checkpoint, Evidence, FAMILIES, Options, Settings, Tensors},
    device::{Backend, Opened},
    inspect::{Seen, Wanted, inspect},
    model::{Parameter, Queries, ViT},
    picture,
    views::View,
};
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

/// Largest difference of an attention weight, which lies between 0 and 1.
const ATTENTION: f32 = 1e-5;
/// The same on a GPU, whose exponentials are less exact.
const ATTENTION_WGPU: f32 = 1e-4;
/// Largest difference of a value of a token, relative to the largest one there (tokens of CLIP and of models without a
/// final norm are far from 1), or to 1.
const TOKENS: f32 = 1e-4;
/// Largest difference of a pixel, of a range from 0 to 1.
const PIXELS: f32 = 2.0 / 255.0;

/// Fixtures of models that compute something that is not supported, with a part of the refusal.
const REFUSED: [(&str, &str); 1] = [("timm-vit-scale-norm", "norms inside attention or MLP")];

/// Expected values that are left out: a pooling or a head that this tool does not compute, or a norm that a bare file
/// cannot tell the place of.
const LEFT_OUT: [(&str, &str); 3] =
    [("open-clip-attention-pool", "pool"), ("open-clip-epoch", "tokens"), ("torchvision-vit-old-names", "logits")];

/// Fixtures whose pictures are prepared differently on purpose: this one's crop is padded by timm.
const PREPARED_DIFFERENTLY: [&str; 1] = ["timm-vit-map-patches"];

/// Every fixture that holds a checkpoint and its expected values.
fn folders() -> Vec<String> {
    let entries = fs::read_dir(fixture("families")).unwrap().map(|entry| entry.unwrap().path());
    let complete = entries.filter(|path| path.join("expected.safetensors").is_file());
    let mut names: Vec<String> =
        complete.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    names.retain(|name| !REFUSED.iter().any(|(refused, _)| name == refused));
    names.sort();
    names
}

/// The checkpoint in a fixture: its directory, or the one weights file that has no config beside it.
fn checkpoint_path(name: &str) -> PathBuf {
    let directory = fixture("families").join(name);
    let bare = |ending: &str| {
        let mut files = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
        files.find(|path| path.extension().is_some_and(|e| e == ending) && !path.ends_with("expected.safetensors"))
    };
    if directory.join("config.json").is_file() || directory.join("open_clip_config.json").is_file() {
        return directory;
    }
    ["pth", "pt", "npz", "bin", "safetensors"].iter().find_map(|ending| bare(ending)).unwrap()
}

fn expected(name: &str) -> Expected {
    Expected::open(&format!("families/{name}/expected.safetensors"))
}

/// What the expected values hold for each size: the size's name and the names of its tensors.
fn names(folder: &str) -> BTreeSet<String> {
    let bytes = fs::read(fixture("families").join(folder).join("expected.safetensors")).unwrap();
    SafeTensors::deserialize(&bytes).unwrap().names().into_iter().map(|name| (*name).to_owned()).collect()
}

fn sizes(folder: &str) -> BTreeSet<String> {
    let sizes = names(folder).into_iter().filter_map(|name| name.strip_suffix(".pixels").map(str::to_owned));
    sizes.filter(|size| size != "prep").collect()
}

/// The number of heads where the checkpoint does not tell it, as a person would say it.
fn options(folder: &str) -> Options {
    let attention = expected(folder).get("native.attention.0").0;
    let bare = checkpoint_path(folder).is_file();
    Options { heads: bare.then_some(attention[1]), ..Options::default() }
}

fn see(folder: &str, size: &str, opened: &Opened) -> (Checkpoint, Seen) {
    let (shape, pixels) = expected(folder).get(&format!("{size}.pixels"));
    let options = Options { size: Some((shape[2], shape[3])), ..options(folder) };
    let checkpoint =
        Checkpoint::open_with(&checkpoint_path(folder), &options).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let model = ViT::new(&checkpoint.config, &opened.device, |name, shape| checkpoint.fetch(name, shape)).unwrap();
    let wanted =
        Wanted { layers: (0..checkpoint.config.depth).collect(), queries: Queries::All, probe: true, tokens: true };
    let seen = inspect(&model, opened, &pixels, &wanted, || ()).unwrap();
    (checkpoint, seen)
}

/// Differences from the library's values that are larger than allowed, in words.
fn differences(folder: &str, size: &str, opened: &Opened) -> Vec<String> {
    let (checkpoint, seen) = see(folder, size, opened);
    let (expected, present) = (expected(folder), names(folder));
    let mut found = Vec::new();
    let mut compare = |what: &str, ours: &[f32], limit: f32, relative: bool| {
        let name = format!("{size}.{what}");
        if !present.contains(&name) || LEFT_OUT.contains(&(folder, what)) {
            return;
        }
        let theirs = expected.get(&name).1;
        let top = theirs.iter().fold(1.0f32, |top, value| top.max(value.abs()));
        let limit = if relative { limit * top } else { limit };
        if ours.len() != theirs.len() {
            return found.push(format!("{name}: {} values, not {}", ours.len(), theirs.len()));
        }
        let off = difference(ours, &theirs);
        if off.is_nan() || off > limit {
            found.push(format!("{name} is off by {off:e}, {limit:e} allowed"));
        }
    };
    let attention = if opened.backend == Backend::Wgpu { ATTENTION_WGPU } else { ATTENTION };
    let named = |layer: usize| present.contains(&format!("{size}.attention.{layer}"));
    assert!(named(checkpoint.config.depth - 1) && !named(checkpoint.config.depth), "{folder} has more layers or fewer");
    for layer in 0..checkpoint.config.depth {
        let ours: Vec<f32> = seen.attention.iter().flat_map(|record| record.layers[layer].weights.clone()).collect();
        compare(&format!("attention.{layer}"), &ours, attention, false);
    }
    compare("tokens", &seen.tokens.unwrap().concat(), TOKENS, true);
    compare("logits", &seen.logits.unwrap_or_default().concat(), TOKENS, true);
    let probe: Vec<f32> = seen.probe.into_iter().flatten().flat_map(|probe| probe.weights).collect();
    compare("pool", &probe, attention, false);
    found
}

#[test]
fn every_checkpoint_gives_its_own_librarys_numbers_at_every_size_on_every_cpu_backend() {
    let mut wrong = Vec::new();
    for opened in cpus() {
        for folder in folders() {
            for size in sizes(&folder) {
                let found = differences(&folder, &size, &opened);
                wrong.extend(found.into_iter().map(|what| format!("{folder} on {}: {what}", opened.backend)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_family_gives_its_own_librarys_numbers_on_wgpu() {
    let Some(opened) = wgpu() else { return };
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for folder in folders() {
        let family = Checkpoint::open_with(&checkpoint_path(&folder), &options(&folder)).unwrap().family;
        // One of each: every new shape costs a software adapter seconds of compiling.
        if seen.insert(family) {
            wrong.extend(differences(&folder, "other", &opened).into_iter().map(|what| format!("{folder}: {what}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_probes_maps_are_what_its_own_library_says_it_gives_the_patches() {
    let opened = &cpus()[0];
    let picture = picture::load(&fixture("families/picture.png")).unwrap();
    let mut ran = 0;
    for folder in folders() {
        if !names(&folder).contains("native.pool") || LEFT_OUT.contains(&(folder.as_str(), "pool")) {
            continue;
        }
        let (checkpoint, seen) = see(&folder, "native", opened);
        let geometry = checkpoint.recipe.apply(&picture, checkpoint.config.patch_size).unwrap().geometry;
        let (shape, theirs) = expected(&folder).get("native.pool");
        let view = View::Probe.resolve(&checkpoint.config.layout(), checkpoint.config.probe, &geometry).unwrap();
        let (record, probe, heads) = (&seen.attention[0], seen.probe.unwrap(), (0..shape[1]).collect::<Vec<_>>());
        let maps = view.maps(record, probe.first(), &heads).unwrap().maps;
        assert_eq!(maps.len(), shape[1]);
        for (map, row) in maps.iter().zip(theirs.chunks(shape[3])) {
            let off = difference(&map.values, &row[shape[3] - record.tokens.patches()..]);
            assert!(off <= ATTENTION, "{folder}, head {}: off by {off:e}", map.head);
        }
        ran += 1;
    }
    assert!(ran >= 5, "only {ran} models have a probe");
}

#[test]
fn the_probe_is_run_and_read_back_only_if_it_is_wanted() {
    let (opened, folder) = (&cpus()[0], "hf-siglip-vision");
    let checkpoint = Checkpoint::open(&checkpoint_path(folder)).unwrap();
    let model = ViT::new(&checkpoint.config, &opened.device, |name, shape| checkpoint.fetch(name, shape)).unwrap();
    let pixels = expected(folder).get("native.pixels").1;
    let seen = |layers: &[usize], probe| {
        let wanted = Wanted { layers: layers.to_vec(), queries: Queries::Rows(vec![0]), probe, tokens: true };
        inspect(&model, opened, &pixels, &wanted, || ()).unwrap()
    };
    let without = seen(&[0], false);
    assert!(without.probe.is_none() && without.tokens.is_none(), "layers ran that nobody asked for");
    assert!(seen(&[checkpoint.config.depth - 1], false).probe.is_none());
    let with = seen(&[], true);
    assert!(with.probe.is_some() && with.attention[0].layers.is_empty());
}

#[test]
fn attention_and_class_scores_are_the_same_without_the_final_tokens() {
    let opened = &cpus()[0];
    for folder in folders() {
        let (shape, pixels) = expected(&folder).get("native.pixels");
        let options = Options { size: Some((shape[2], shape[3])), ..options(&folder) };
        let checkpoint = Checkpoint::open_with(&checkpoint_path(&folder), &options).unwrap();
        let model = ViT::new(&checkpoint.config, &opened.device, |name, shape| checkpoint.fetch(name, shape)).unwrap();
        let layers: Vec<usize> = (0..checkpoint.config.depth).collect();
        for queries in [Queries::All, Queries::Rows(vec![0])] {
            let see = |tokens| {
                let wanted = Wanted { layers: layers.clone(), queries: queries.clone(), probe: false, tokens };
                inspect(&model, opened, &pixels, &wanted, || ()).unwrap()
            };
            let (with, without) = (see(true), see(false));
            assert!(with.tokens.is_some() && without.tokens.is_none(), "{folder}");
            for (with, without) in with.attention.iter().zip(&without.attention) {
                for (with, without) in with.layers.iter().zip(&without.layers) {
                    assert!(difference(&with.weights, &without.weights) <= 1e-6, "{folder}: layer {}", with.layer);
                }
            }
            assert_eq!(with.logits.is_some(), without.logits.is_some(), "{folder}");
            let [with, without] = [with, without].map(|seen| seen.logits.unwrap_or_default().concat());
            let off = difference(&with, &without);
            assert!(off <= 1e-5, "{folder}: class scores are off by {off:e}");
        }
    }
}

#[test]
fn every_checkpoint_is_recognised_by_exactly_one_family() {
    for folder in folders() {
        let opened = Checkpoint::open_with(&checkpoint_path(&folder), &options(&folder)).unwrap();
        let path = &opened.path;
        let chain: Vec<&str> = opened.wrapper.split_inclusive('.').collect();
        let tensors = Tensors::open(path).unwrap().strip(&chain);
        let settings = ["config.json", "open_clip_config.json"].map(|name| Settings::open(&path.with_file_name(name)));
        let settings = settings.into_iter().find_map(Result::ok);
        let evidence = Evidence { tensors: &tensors, settings: settings.as_ref(), processor: None, heads: None };
        let by: Vec<&str> = FAMILIES.iter().filter(|f| (f.recognise)(&evidence)).map(|f| f.name).collect();
        assert_eq!(by, [opened.family], "{folder}");
        assert!(opened.unused.is_empty(), "{folder} leaves unused {:?}", opened.unused);
    }
}

fn npy(header: &str, values: &[u8]) -> Vec<u8> {
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), values].concat()
}

/// A NumPy archive and another array.
fn with_array(npz: Vec<u8>, name: &str, method: CompressionMethod, shape: &str, values: &[u8]) -> Vec<u8> {
    let mut writer = ZipWriter::new_append(Cursor::new(npz)).unwrap();
    writer.start_file(format!("{name}.npy"), SimpleFileOptions::default().compression_method(method)).unwrap();
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    writer.write_all(&npy(&header, values)).unwrap();
    writer.finish().unwrap().into_inner()
}

/// A NumPy archive with every array of another after `edit`, which is given its header and values.
fn edited_npz(folder: &str, method: CompressionMethod, edit: impl Fn(&str, Vec<u8>) -> (String, Vec<u8>)) -> Vec<u8> {
    let bytes = fs::read(checkpoint_path(folder)).unwrap();
    let mut archive = ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).unwrap();
        let mut array = Vec::new();
        member.read_to_end(&mut array).unwrap();
        let (header, values) = edit(std::str::from_utf8(&array[10..128]).unwrap().trim_end(), array[128..].to_vec());
        writer.start_file(member.name().unwrap(), SimpleFileOptions::default().compression_method(method)).unwrap();
        writer.write_all(&npy(&header, &values)).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// Every parameter of the model in these bytes.
fn parameters(npz: &[u8]) -> Result<Vec<f32>, String> {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("vit.npz"), npz).unwrap();
    let checkpoint = Checkpoint::open(place.path()).map_err(|error| error.to_string())?;
    let fetch = |p: &Parameter| checkpoint.fetch(&p.name, &p.shape).map_err(|error| error.to_string());
    checkpoint.config.parameters().iter().map(fetch).collect::<Result<Vec<_>, _>>().map(|values| values.concat())
}

#[test]
fn a_compressed_npz_holds_the_same_values() {
    for folder in ["google-npz-vit", "google-npz-big-vision"] {
        let same = |header: &str, values: Vec<u8>| (header.to_owned(), values);
        let stored = parameters(&edited_npz(folder, CompressionMethod::Stored, same)).unwrap();
        let deflated = parameters(&edited_npz(folder, CompressionMethod::Deflated, same)).unwrap();
        assert!(!stored.is_empty() && stored == deflated, "{folder}");
    }
}

type Narrow = fn(f32) -> u16;
type Widen = fn(u16) -> f32;

#[test]
fn an_npz_of_half_precision_holds_the_rounded_values() {
    let exact = parameters(&fs::read(checkpoint_path("google-npz-vit")).unwrap()).unwrap();
    let half = |descr: &'static str, bits: Narrow| {
        move |header: &str, values: Vec<u8>| {
            let floats = values.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            (header.replace("<f4", descr), floats.flat_map(|value| bits(value).to_le_bytes()).collect())
        }
    };
    let cases: [(&str, Narrow, Widen); 2] = [
        ("<f2", |value| f16::from_f32(value).to_bits(), |bits| f16::from_bits(bits).to_f32()),
        ("|V2", |value| bf16::from_f32(value).to_bits(), |bits| bf16::from_bits(bits).to_f32()),
    ];
    for (descr, narrow, widen) in cases {
        let npz = edited_npz("google-npz-vit", CompressionMethod::Stored, half(descr, narrow));
        let rounded: Vec<f32> = exact.iter().map(|value| widen(narrow(*value))).collect();
        assert_eq!(parameters(&npz).unwrap(), rounded, "{descr}");
    }
}

#[test]
fn an_npz_whose_headers_promise_more_than_it_holds_is_refused() {
    let message = |from: &'static str, to: &'static str, method: CompressionMethod| {
        let edit = move |header: &str, values: Vec<u8>| (header.replacen(from, to, 1), values);
        parameters(&edited_npz("google-npz-vit", method, edit)).unwrap_err()
    };
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        assert!(message("(12,)", "(120000000000,)", method).contains("header promises"));
        assert!(message("(30, 12)", "(30, 13)", method).contains("header promises"));
        assert!(message("'<f4'", "'|O'", method).contains("expected values in f32"));
        assert!(message("'shape'", "'form'", method).contains("broken NumPy header"));
    }
    let small = fs::read(checkpoint_path("google-npz-vit")).unwrap();
    let bomb = with_array(small, "zeros", CompressionMethod::Deflated, "(1000000,)", &vec![0; 4_000_000]);
    let message = parameters(&bomb).unwrap_err();
    assert!(message.contains("claim far more"), "{message}");
}

#[test]
fn googles_hybrid_is_refused_by_name() {
    let vit = fs::read(checkpoint_path("google-npz-vit")).unwrap();
    let hybrid = with_array(vit, "conv_root/kernel", CompressionMethod::Stored, "(1,)", &[0; 4]);
    let message = parameters(&hybrid).unwrap_err();
    assert!(message.contains("ResNet before a Transformer"), "{message}");
}

#[test]
fn a_text_tower_in_an_npz_is_left_beside_the_model() {
    let alone = fs::read(checkpoint_path("google-npz-big-vision")).unwrap();
    let names = ["params/txt/Encoder_0/encoderblock/LayerNorm_0/scale", "params/t", "params/img/head/kernel"];
    let whole = names
        .iter()
        .fold(alone.clone(), |npz, name| with_array(npz, name, CompressionMethod::Stored, "(2, 12)", &[0; 96]));
    let place = TempDir::new().unwrap();
    let path = place.path().join("siglip.npz");
    fs::write(&path, &whole).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let beside: Vec<&str> = checkpoint.beside.iter().map(|(name, _)| name.as_str()).collect();
    let text = "txt.Encoder_0.encoderblock_0.LayerNorm_0.scale";
    assert!(beside.contains(&"head.kernel") && beside.iter().any(|name| name.ends_with(text)), "{beside:?}");
    assert!(checkpoint.unused.is_empty() && checkpoint.config.classes == 0, "{checkpoint:?}");
    assert_eq!(parameters(&whole).unwrap(), parameters(&alone).unwrap());
}

#[test]
fn every_families_name_stands_for_some_fixture() {
    let opened = |folder: &String| Checkpoint::open_with(&checkpoint_path(folder), &options(folder)).unwrap().family;
    let seen: BTreeSet<&str> = folders().iter().map(opened).collect();
    let all: BTreeSet<&str> = FAMILIES.iter().map(|family| family.name).filter(|name| *name != "book").collect();
    assert_eq!(seen, all);
}

#[test]
fn a_missing_shard_is_named_before_anything_is_computed() {
    let place = TempDir::new().unwrap();
    let files = fs::read_dir(fixture("families/hf-vit-sharded-f16")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| !path.ends_with("expected.safetensors")).collect();
    files.sort();
    let shard = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("model-0");
    let last = files.remove(files.iter().rposition(shard).unwrap());
    for file in files {
        fs::copy(&file, place.path().join(file.file_name().unwrap())).unwrap();
    }
    let message = Checkpoint::open(place.path()).unwrap_err().to_string();
    assert!(message.contains(&*last.file_name().unwrap().to_string_lossy()), "{message}");
}

#[test]
fn a_number_of_heads_that_nothing_states_is_asked_for_or_guessed_aloud() {
    let path = checkpoint_path("meta-dino");
    let message = Checkpoint::open(&path).unwrap_err().to_string();
    assert!(message.contains("--heads-per-layer"), "{message}");
    let stated = Options { heads: Some(7), ..Options::default() };
    let message = Checkpoint::open_with(&fixture("families/hf-vit-classifier"), &stated).unwrap_err().to_string();
    assert!(message.contains("--heads-per-layer 7") && message.contains("2 heads"), "{message}");
}

#[test]
fn an_entry_of_a_training_checkpoint_can_be_picked() {
    let path = checkpoint_path("meta-dino-training");
    let pick = |entry: Option<&str>| {
        let options = Options { heads: Some(3), entry: entry.map(str::to_owned), ..Options::default() };
        Checkpoint::open_with(&path, &options).map(|checkpoint| checkpoint.fetch("cls_token", &[1, 1, 12]).unwrap())
    };
    assert_eq!(pick(None).unwrap(), pick(Some("teacher")).unwrap());
    assert_ne!(pick(None).unwrap(), pick(Some("student")).unwrap());
    let message = pick(Some("pupil")).unwrap_err().to_string();
    assert!(message.contains("--checkpoint-key pupil") && message.contains("student"), "{message}");
}

#[test]
fn a_size_that_is_not_whole_patches_is_cropped_and_said() {
    let options = |size| Options { size: Some(size), ..Options::default() };
    let path = fixture("families/hf-vit-classifier");
    let checkpoint = Checkpoint::open_with(&path, &options((14, 23))).unwrap();
    assert_eq!(checkpoint.config.image_size, (12, 20));
    assert!(checkpoint.notes.iter().any(|note| note.contains("23x14") && note.contains("20x12")), "{checkpoint:?}");
    let message = Checkpoint::open_with(&path, &options((3, 40))).unwrap_err().to_string();
    assert!(message.contains("--size 40x3"), "{message}");
}

/// Opens and reads a checkpoint whose file is cut short, and one with bits flipped, at many places: at its head and its
/// end, where headers and directories are, and anywhere.
fn damage(original: &Path, bytes: &[u8], options: &Options) {
    let place = TempDir::new().unwrap();
    for entry in fs::read_dir(original.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()) {
        fs::copy(&entry, place.path().join(entry.file_name().unwrap())).unwrap();
    }
    let target = place.path().join(original.file_name().unwrap());
    let attempt = |bytes: &[u8]| {
        fs::write(&target, bytes).unwrap();
        let Ok(checkpoint) = Checkpoint::open_with(&target, options) else { return };
        for parameter in checkpoint.config.parameters() {
            let _ = checkpoint.fetch(&parameter.name, &parameter.shape);
        }
    };
    for step in 0..60 {
        attempt(&bytes[..bytes.len() * step / 60]);
        let mut flipped = bytes.to_vec();
        let few = bytes.len().min(4000);
        let at = match step % 3 {
            0 => step * 7919 % few,
            1 => bytes.len() - 1 - step * 7919 % few,
            _ => step * 7919 % bytes.len(),
        };
        flipped[at] ^= [1, 0x80, 0xff, 0x10][step / 3 % 4];
        attempt(&flipped);
    }
}

#[test]
fn damage_to_any_familys_file_is_never_a_panic() {
    for folder in folders() {
        let original = Checkpoint::open_with(&checkpoint_path(&folder), &options(&folder)).unwrap().path;
        damage(&original, &fs::read(&original).unwrap(), &options(&folder));
    }
    for folder in ["google-npz-vit", "google-npz-big-vision"] {
        let same = |header: &str, values: Vec<u8>| (header.to_owned(), values);
        let deflated = edited_npz(folder, CompressionMethod::Deflated, same);
        damage(&checkpoint_path(folder), &deflated, &Options::default());
    }
}

#[test]
fn models_that_compute_something_else_are_refused_with_the_reason() {
    for (folder, reason) in REFUSED {
        let message = Checkpoint::open(&checkpoint_path(folder)).unwrap_err().to_string();
        assert!(message.contains(reason), "{folder}: {message}");
    }
}

#[test]
fn every_picture_is_prepared_as_its_own_library_does_it() {
    let picture = picture::load(&fixture("families/picture.png")).unwrap();
    let mut wrong = Vec::new();
    for folder in folders().iter().filter(|folder| names(folder).contains("prep.pixels")) {
        if PREPARED_DIFFERENTLY.contains(&folder.as_str()) {
            continue;
        }
        let mut options = options(folder);
        if folder.starts_with("meta-dinov3") {
            // Nothing in such a file tells its size.
            let shape = expected(folder).get("prep.pixels").0;
            options.size = Some((shape[2], shape[3]));
        }
        let checkpoint = Checkpoint::open_with(&checkpoint_path(folder), &options).unwrap();
        let input = checkpoint.recipe.apply(&picture, checkpoint.config.patch_size).unwrap();
        let (shape, theirs) = expected(folder).get("prep.pixels");
        if shape[2..] != [input.rows, input.cols] {
            wrong.push(format!("{folder}: {} x {} pixels, not {shape:?}", input.rows, input.cols));
            continue;
        }
        let plane = input.rows * input.cols;
        for channel in 0..3 {
            let part = channel * plane..(channel + 1) * plane;
            let off = difference(&input.pixels[part.clone()], &theirs[part]) * checkpoint.recipe.std[channel];
            if off.is_nan() || off > PIXELS {
                wrong.push(format!("{folder}: channel {channel} is off by {off}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
