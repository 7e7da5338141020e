//! Every family's checkpoints, saved by its own library, against what that library computes from them.

#![allow(clippy::unwrap_used, reason = "in a test a failed unwrap is the failure")]

mod common;

use std::{collections::BTreeSet, fs, path::PathBuf};

use common::{Expected, backends, difference, fixture};
use safetensors::SafeTensors;
use vit_attn::{
    checkpoint::{Checkpoint, Evidence, FAMILIES, Options, Settings, Tensors},
    device::{Backend, Opened},
    inspect::{Seen, Wanted, inspect},
    model::{Queries, ViT},
    picture,
};

/// Largest difference of an attention weight, which lies between 0 and 1.
const ATTENTION: f32 = 1e-5;
/// The same on a GPU, whose exponentials are less exact.
const ATTENTION_WGPU: f32 = 1e-4;
/// Largest difference of a value of a token, relative to the largest one there (tokens of CLIP and of models without a
/// final norm are far from 1), or to 1.
const TOKENS: f32 = 1e-4;
/// Largest difference of a pixel, of a range from 0 to 1.
const PIXELS: f32 = 2.0 / 255.0;

/// Beginnings of the names of fixtures whose families cannot be opened yet.
const NOT_YET: [&str; 3] = ["google", "open-clip-timm-trunk", "open-clip-siglip-trunk"];

/// Fixtures of models that compute something that is not supported, with a part of the refusal.
const REFUSED: [(&str, &str); 2] =
    [("timm-vit-rms-norm", "RMS norms"), ("timm-vit-scale-norm", "norms inside attention or MLP")];

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
    names.retain(|name| !NOT_YET.iter().any(|word| name.starts_with(word)));
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
    let wanted = Wanted { layers: (0..checkpoint.config.depth).collect(), queries: Queries::All };
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
    for layer in 0..checkpoint.config.depth {
        let ours: Vec<f32> = seen.attention.iter().flat_map(|record| record.layers[layer].weights.clone()).collect();
        compare(&format!("attention.{layer}"), &ours, attention, false);
    }
    compare("tokens", &seen.tokens.unwrap().concat(), TOKENS, true);
    compare("logits", &seen.logits.unwrap_or_default().concat(), TOKENS, true);
    compare("pool", &seen.probe.unwrap_or_default().concat(), attention, false);
    found
}

#[test]
fn every_checkpoint_gives_its_own_librarys_numbers_at_every_size_on_every_backend() {
    let mut wrong = Vec::new();
    for opened in backends() {
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
fn every_checkpoint_is_recognised_by_exactly_one_family() {
    for folder in folders() {
        let opened = Checkpoint::open_with(&checkpoint_path(&folder), &options(&folder)).unwrap();
        let path = &opened.path;
        let chain: Vec<&str> = opened.wrapper.split_inclusive('.').collect();
        let tensors = Tensors::open(path).unwrap().strip(&chain);
        let settings = Settings::open(&path.with_file_name("config.json")).ok();
        let evidence = Evidence { tensors: &tensors, settings: settings.as_ref(), processor: None, heads: None };
        let by: Vec<&str> = FAMILIES.iter().filter(|f| (f.recognise)(&evidence)).map(|f| f.name).collect();
        assert_eq!(by, [opened.family], "{folder}");
        assert!(opened.unused.is_empty(), "{folder} leaves unused {:?}", opened.unused);
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
