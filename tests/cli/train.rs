//! `vit-attn train`: what it writes, how it goes on after an interruption, and what it refuses.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use image::{Rgb, RgbImage};
use safetensors::SafeTensors;
use serde_json::Value;

use super::{Place, set};

/// Sizes of a model that learns in milliseconds.
const TINY: [&str; 10] = ["--image-size", "8", "--patch", "4", "--width", "8", "--heads", "2", "--backend", "flex"];

/// Writes a folder `photos` with a folder for each of `classes`, each of 20 pictures of 8 x 8 pixels in its own colour.
fn photos(place: &Place, classes: &[&str]) {
    for (class, name) in classes.iter().enumerate() {
        let folder = place.path("photos").join(name);
        fs::create_dir_all(&folder).unwrap();
        for index in 0..20u32 {
            let noise = |x: u32, y: u32| (x * 7 + y * 13 + index * 29) % 60;
            let picture = RgbImage::from_fn(8, 8, |x, y| {
                let mut pixel = [60 + noise(x, y) as u8; 3];
                pixel[class % 3] += 100;
                Rgb(pixel)
            });
            picture.save(folder.join(format!("{index:02}.png"))).unwrap();
        }
    }
}

fn arguments<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["train", "--data", "photos", "--out", out], &TINY[..], &["--depth", "1", "--batch-size", "4"], more].concat()
}

/// The weights of a checkpoint, every value as bits.
fn weights(place: &Place, out: &str) -> Vec<(String, Vec<u8>)> {
    let bytes = fs::read(place.path(out).join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut named: Vec<_> = tensors.iter().map(|(name, view)| (name.to_owned(), view.data().to_vec())).collect();
    named.sort();
    named
}

fn metrics(place: &Place, out: &str) -> Value {
    serde_json::from_slice(&fs::read(place.path(out).join("metrics.json")).unwrap()).unwrap()
}

#[test]
fn training_writes_a_checkpoint_that_run_takes_with_metrics_and_a_curve() {
    let place = Place::new();
    photos(&place, &["blue", "red"]);
    let ended = place.ok(&arguments("vit", &["--epochs", "6", "--warmup", "1", "--learning-rate", "0.02"]));
    assert_eq!(ended.out, "vit\n");
    assert_eq!(ended.err.lines().filter(|line| line.starts_with("epoch ")).count(), 6, "{}", ended.err);
    assert!(ended.err.contains("epoch 6/6  loss "), "{}", ended.err);
    let files = ["config.json", "model.safetensors", "metrics.json", "curve.png", "training.safetensors"];
    assert_eq!(place.files("vit"), set(&files));
    assert!(place.image("vit/curve.png").width() > 100);
    let metrics = metrics(&place, "vit");
    assert_eq!((&metrics["train_pictures"], &metrics["held_out_pictures"]), (&36.into(), &4.into()));
    let epochs = metrics["epochs"].as_array().unwrap();
    assert_eq!(epochs.len(), 6);
    let loss = |epoch: &Value| epoch["train_loss"].as_f64().unwrap();
    assert!(loss(&epochs[5]) < 0.7 * loss(&epochs[0]), "nothing was learnt: {metrics}");

    let ended = place.ok(&["run", "photos/red/00.png", "--model", "vit", "-o", "maps"]);
    assert!(ended.err.contains("prediction: red"), "{}", ended.err);
    assert_eq!(place.manifest("maps")["tokens"]["grid"], Value::from([2, 2]));
}

#[test]
fn the_same_seed_gives_the_same_weights_and_another_seed_others() {
    let place = Place::new();
    photos(&place, &["blue", "red"]);
    for (out, seed) in [("a", "5"), ("b", "5"), ("c", "6")] {
        place.ok(&arguments(out, &["--epochs", "2", "--seed", seed]));
    }
    assert_eq!(weights(&place, "a"), weights(&place, "b"));
    assert_ne!(weights(&place, "a"), weights(&place, "c"));
}

/// Starts training, sends the interrupt of Ctrl-C after the line of epoch `after`, and returns whether it came in time
/// and what was said.
#[cfg(unix)]
fn interrupt(place: &Place, arguments: &[&str], after: usize) -> (bool, String) {
    let mut child = place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let epoch = format!("epoch {after}/");
    for line in lines.by_ref() {
        said.push_str(&line);
        if line.starts_with(&epoch) {
            break;
        }
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success() || child.try_wait().unwrap().is_some());
    lines.for_each(|line| said.push_str(&line));
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(0 | 1)), "ended with {code:?}: {said}");
    (code == Some(1), said)
}

#[test]
#[cfg(unix)]
fn a_run_that_was_interrupted_goes_on_to_the_same_weights() {
    let place = Place::new();
    photos(&place, &["blue", "red"]);
    // On a busy machine a short run can be over before the signal comes, so each try is longer than the one before.
    for epochs in ["12", "48", "192", "768"] {
        let (in_time, said) = interrupt(&place, &arguments("parts", &["--force", "--epochs", epochs]), 1);
        if !in_time {
            continue;
        }
        assert!(said.contains("vit-attn: error: interrupted at epoch ") && said.contains("--resume"), "{said}");
        let resume = ["train", "--data", "photos", "--out", "parts", "--resume", "--backend", "flex"];
        // Once more, if it comes in time.
        interrupt(&place, &resume, 3);
        place.ok(&resume);
        place.ok(&arguments("whole", &["--epochs", epochs]));
        assert_eq!(weights(&place, "parts"), weights(&place, "whole"));
        assert_eq!(metrics(&place, "parts"), metrics(&place, "whole"));
        return;
    }
    panic!("no run could be interrupted in time");
}

#[test]
fn an_earlier_run_is_never_lost_by_mistake() {
    let place = Place::new();
    photos(&place, &["blue", "red"]);
    place.ok(&arguments("vit", &["--epochs", "1"]));
    let before = weights(&place, "vit");
    let error = place.refused(1, &arguments("vit", &["--epochs", "2"]));
    assert!(error.contains("vit: holds an earlier run") && error.contains("--resume"), "{error}");
    // A finished run has nothing left to do.
    place.ok(&["train", "--data", "photos", "--out", "vit", "--resume"]);
    assert_eq!(weights(&place, "vit"), before);
    for changed in [["--epochs", "9"], ["--validation-share", "0.5"], ["--width", "16"]] {
        let ended = place.vit(&[&["train", "--data", "photos", "--out", "vit", "--resume"], &changed[..]].concat());
        assert_eq!(ended.code, Some(2), "a run goes on under its own settings: {}", ended.err);
    }
    place.ok(&arguments("vit", &["--epochs", "2", "--force"]));
    assert_ne!(weights(&place, "vit"), before);
}

#[test]
fn a_resumed_run_keeps_its_share_of_held_out_pictures_and_wants_its_own_classes() {
    let place = Place::new();
    photos(&place, &["blue", "red"]);
    place.ok(&arguments("vit", &["--epochs", "1", "--validation-share", "0.3"]));
    let ended = place.ok(&["train", "--data", "photos", "--out", "vit", "--resume"]);
    assert!(ended.err.contains("28 pictures to learn from, 12 held out"), "{}", ended.err);
    photos(&place, &["green"]);
    let error = place.refused(1, &["train", "--data", "photos", "--out", "vit", "--resume"]);
    assert!(error.contains("photos: has 3 classes, and the run to resume has 2"), "{error}");
    let error = place.refused(1, &["train", "--data", "photos", "--out", "none", "--resume"]);
    assert!(error.contains("none/training.safetensors: no such file"), "{error}");
    fs::create_dir(place.path("broken")).unwrap();
    fs::write(place.path("broken/training.safetensors"), "nonsense").unwrap();
    let error = place.refused(1, &["train", "--data", "photos", "--out", "broken", "--resume"]);
    assert!(error.contains("broken/training.safetensors: is not a run that can be resumed"), "{error}");
}

#[test]
fn a_loss_that_is_no_number_stops_with_advice_and_keeps_what_was_saved() {
    let place = Place::new();
    photos(&place, &["blue", "red"]);
    place.ok(&arguments("vit", &["--epochs", "1"]));
    let before = weights(&place, "vit");
    // In steps of an epoch each, the weights are broken only by the last step before the checkpoint.
    for batch in ["4", "36"] {
        let mut wild = arguments("vit", &["--epochs", "3", "--learning-rate", "1e30", "--warmup", "0", "--force"]);
        let size = wild.iter().position(|argument| *argument == "--batch-size").unwrap();
        wild[size + 1] = batch;
        let error = place.refused(1, &wild);
        assert!(error.contains("no longer a number at epoch 1") && error.contains("--learning-rate"), "{error}");
        assert_eq!(weights(&place, "vit"), before, "a broken model took the place of a good one");
    }
    place.ok(&["run", "photos/red/00.png", "--model", "vit"]);
}

#[test]
fn settings_that_make_no_model_are_usage_errors_before_any_picture_is_read() {
    let place = Place::new();
    // `photos` does not exist, and that is not what the errors are about.
    let bad: [(&[&str], &str); 13] = [
        (&["--epochs", "4", "--warmup", "5"], "--warmup 5: the run has 4 epochs"),
        (&["--heads", "5"], "--heads 5: the width 48 must be a multiple"),
        (&["--patch", "5"], "--patch 5: the image size 32 must be a multiple"),
        (&["--patch", "0"], "--patch 0: expected a number from 1"),
        (&["--width", "0"], "--width 0: expected a number from 1"),
        (&["--width", "4000000000"], "--width 4000000000: expected a number from 1 to"),
        (&["--depth", "100000"], "--depth 100000: expected a number from 1 to 1000"),
        (&["--image-size", "100000"], "--image-size 100000: expected a number from 1 to"),
        (&["--learning-rate", "0"], "--learning-rate 0: expected a number above 0"),
        (&["--learning-rate", "nan"], "--learning-rate NaN: expected a number above 0"),
        (&["--label-smoothing", "1"], "--label-smoothing 1: expected a share"),
        (&["--weight-decay", "inf"], "--weight-decay inf: expected 0 or more"),
        (&["--backend", "flex", "--device", "3"], "--device 3: backend flex has no adapters"),
    ];
    for (more, part) in bad {
        let error = place.refused(2, &[&["train", "--data", "photos", "--out", "vit"], more].concat());
        assert!(error.starts_with(part), "{more:?}: {error}");
    }
    for more in [["--epochs", "0"], ["--batch-size", "0"], ["--seed", "x"]] {
        assert_eq!(place.vit(&[&["train", "--data", "photos", "--out", "vit"], &more[..]].concat()).code, Some(2));
    }
    assert!(place.files(".").is_empty());
}

#[test]
fn a_model_that_no_memory_holds_is_refused() {
    let place = Place::new();
    photos(&place, &["blue", "red"]);
    for more in [&["--width", "1000000"][..], &["--patch", "1", "--image-size", "2048"]] {
        let error = place.refused(2, &[&["train", "--data", "photos", "--out", "vit"], more].concat());
        assert!(error.contains("GiB of memory") && error.contains("choose smaller sizes"), "{error}");
    }
    assert!(!place.path("vit").exists());
}

#[test]
fn data_that_cannot_be_learnt_from_gets_one_sentence_that_names_the_file() {
    let place = Place::new();
    let refused = |part: &str| {
        let error = place.refused(1, &arguments("vit", &["--epochs", "1"]));
        assert!(error.contains(part), "{error}");
    };
    refused("photos: no such directory");
    fs::create_dir(place.path("photos")).unwrap();
    refused("photos: holds neither CIFAR-10's binary version");
    photos(&place, &["blue"]);
    refused("photos: has pictures of one class only, blue");
    photos(&place, &["blue", "red"]);
    fs::write(place.path("photos/red/bad.jpg"), "no picture").unwrap();
    refused("photos/red/bad.jpg: is not a picture");
    fs::remove_file(place.path("photos/red/bad.jpg")).unwrap();
    fs::create_dir(place.path("photos/empty")).unwrap();
    refused("photos/empty: this class folder holds no pictures");
    fs::write(place.path("photos/data_batch_1.bin"), [0; 3000]).unwrap();
    refused("photos/data_batch_1.bin: has 3000 bytes, not a multiple of the 3073");
    assert!(!place.path("vit").exists(), "bad data leaves no folder behind");
}

#[test]
fn an_output_folder_that_cannot_be_is_refused_before_the_first_epoch() {
    let place = Place::new();
    photos(&place, &["blue", "red"]);
    fs::write(place.path("file"), "mine").unwrap();
    let error = place.refused(1, &arguments("file", &["--epochs", "1"]));
    assert!(error.starts_with("file: the directory cannot be made"), "{error}");
}

#[test]
fn an_output_folder_among_the_pictures_is_refused() {
    let place = Place::new();
    photos(&place, &["blue", "red"]);
    for out in ["photos", "photos/new/vit", "./photos/../photos/red"] {
        let error = place.refused(2, &arguments(out, &["--epochs", "1"]));
        assert!(error.starts_with(&format!("--out {out}: lies in the data photos")), "{error}");
    }
    assert_eq!(place.files("photos"), set(&["blue", "red"]));
    assert_eq!(place.files("photos/red").len(), 20);
}

#[test]
fn a_reader_that_has_gone_does_not_stop_the_training() {
    let place = Place::new();
    photos(&place, &["blue", "red"]);
    let mut command = place.command(&arguments("vit", &["--epochs", "2"]));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(metrics(&place, "vit")["epochs"].as_array().unwrap().len(), 2);
}
