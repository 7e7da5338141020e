//! Reading pictures and preparing them for a model, held against Pillow, torchvision and transformers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

use image::{Rgb, RgbImage};
use serde_json::Value;
use vit_attn::picture::{Crop, Filter, MAX_FILE, Middle, ModelInput, Picture, Recipe, Resize, load};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pictures").join(name)
}

fn asset(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(name)
}

/// The cases of one part of `expected.json`.
fn cases(part: &str) -> Vec<Value> {
    let text = fs::read_to_string(fixture("expected.json")).unwrap();
    let mut expected: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(expected[part].take()).unwrap()
}

fn expected(case: &Value) -> RgbImage {
    image::open(fixture(case["expected"].as_str().unwrap())).unwrap().into_rgb8()
}

/// The largest difference of two pictures in any channel, or 256 if their sizes differ.
fn distance(a: &RgbImage, b: &RgbImage) -> u64 {
    if a.dimensions() != b.dimensions() {
        return 256;
    }
    a.iter().zip(b.iter()).map(|(&a, &b)| u64::from(a.abs_diff(b))).max().unwrap()
}

/// The error of loading `path`, checked to be one sentence that names the file.
fn refusal(path: &Path) -> String {
    let message = load(path).expect_err(&format!("{} must be refused", path.display())).to_string();
    assert!(message.starts_with(&path.display().to_string()) && !message.contains('\n'), "{message:?}");
    message
}

fn picture(pixels: RgbImage) -> Picture {
    Picture { path: "made.png".into(), sha256: String::new(), pixels, notes: Vec::new() }
}

fn recipe(resize: Resize, crop: Option<Crop>) -> Recipe {
    Recipe { resize, crop, ..Recipe::book(1, 1) }
}

#[test]
fn every_format_and_colour_type_reads_as_pillow_reads_it() {
    for case in cases("read") {
        let name = case["file"].as_str().unwrap();
        let picture = load(&fixture("read").join(name)).unwrap();
        let off = distance(&picture.pixels, &expected(&case));
        assert!(off <= case["tolerance"].as_u64().unwrap(), "{name} is off by {off}");
    }
}

#[test]
fn what_cannot_be_read_right_is_refused_with_one_sentence() {
    for case in cases("refused") {
        let message = refusal(&fixture("refused").join(case["file"].as_str().unwrap()));
        assert!(message.contains(case["says"].as_str().unwrap()), "{message}");
    }
}

#[test]
fn a_file_cut_short_anywhere_is_refused_or_still_reads_right() {
    let dir = tempfile::tempdir().unwrap();
    for case in cases("read") {
        let name = case["file"].as_str().unwrap();
        let (whole, path) = (fixture("read").join(name), dir.path().join(name));
        let (bytes, pixels) = (fs::read(&whole).unwrap(), load(&whole).unwrap().pixels);
        let is_telling = |length: &usize| length.is_multiple_of(7) || length + 40 > bytes.len();
        for length in (0..bytes.len()).filter(is_telling) {
            fs::write(&path, &bytes[..length]).unwrap();
            if let Ok(cut) = load(&path) {
                assert_eq!(distance(&cut.pixels, &pixels), 0, "{name} cut to {length} of {} bytes", bytes.len());
            }
        }
    }
}

#[test]
fn damaged_bytes_never_make_it_panic() {
    let dir = tempfile::tempdir().unwrap();
    let mut seed = 1_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for case in cases("read") {
        let name = case["file"].as_str().unwrap();
        let whole = fs::read(fixture("read").join(name)).unwrap();
        for _ in 0..50 {
            let mut bytes = whole.clone();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            fs::write(dir.path().join(name), bytes).unwrap();
            let _ = load(&dir.path().join(name));
        }
    }
}

#[test]
fn directories_missing_files_and_devices_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    assert!(refusal(dir.path()).contains("directory"));
    assert!(refusal(&dir.path().join("missing.png")).contains("no such file"));
    let large = dir.path().join("large.png");
    fs::File::create(&large).unwrap().set_len(MAX_FILE + 1).unwrap();
    assert!(refusal(&large).contains("512 MiB"));
    if cfg!(unix) {
        let pipe = dir.path().join("pipe.png");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(refusal(&pipe).contains("not a regular file"));
        assert!(refusal(Path::new("/dev/zero")).contains("not a regular file"));
    }
}

#[test]
fn content_decides_the_format_and_a_wrong_name_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("really-a-gif.jpg");
    fs::copy(fixture("read/still.gif"), &path).unwrap();
    let picture = load(&path).unwrap();
    assert_eq!(picture.pixels, load(&fixture("read/still.gif")).unwrap().pixels);
    assert!(picture.notes.len() == 1 && picture.notes[0].contains("is read as GIF"), "{:?}", picture.notes);
}

#[test]
fn an_animation_is_noted_and_a_still_is_not() {
    for name in ["animated.gif", "animated.png", "animated.webp"] {
        let notes = load(&fixture("read").join(name)).unwrap().notes;
        assert!(notes.len() == 1 && notes[0].contains("only its first frame"), "{name}: {notes:?}");
    }
    for name in ["still.gif", "rgb.png", "lossless.webp", "rgb.jpg"] {
        assert!(load(&fixture("read").join(name)).unwrap().notes.is_empty(), "{name}");
    }
}

#[test]
fn the_sample_pictures_load_and_carry_their_hash() {
    for (name, size) in [("astronaut.jpg", (512, 512)), ("coffee.jpg", (600, 400)), ("rocket.jpg", (640, 427))] {
        assert_eq!(load(&asset(name)).unwrap().pixels.dimensions(), size);
    }
    let cat = load(&asset("cat.png")).unwrap();
    assert_eq!(cat.pixels.dimensions(), (451, 300));
    assert_eq!(cat.sha256, "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb");
}

/// The recipe of a case in `expected.json`.
fn recipe_of(case: &Value) -> Recipe {
    let sizes = |key: &str| -> Option<(usize, usize)> { serde_json::from_value(case[key].clone()).ok() };
    let filter = match case["filter"].as_str().unwrap() {
        "bilinear" => Filter::Bilinear,
        "bicubic" => Filter::Bicubic,
        _ => Filter::Lanczos,
    };
    let middle = if case["middle"] == "even" { Middle::Even } else { Middle::Down };
    let resize = match sizes("squash") {
        Some((rows, cols)) => Resize::Squash { rows, cols },
        None => Resize::ShortestEdge(case["edge"].as_u64().unwrap() as usize),
    };
    Recipe { filter, ..recipe(resize, sizes("crop").map(|(rows, cols)| Crop { rows, cols, middle })) }
}

#[test]
fn resizing_and_cropping_equal_pillow() {
    for case in cases("resized") {
        let picture = load(&fixture("resize").join(case["file"].as_str().unwrap())).unwrap();
        let input = recipe_of(&case).apply(&picture, (1, 1)).unwrap();
        let off = distance(&input.seen, &expected(&case));
        assert_eq!(off, 0, "{case}");
    }
}

#[test]
fn the_built_in_recipe_makes_the_cat_what_pillow_makes_it() {
    let small = load(&asset("cat-32.png")).unwrap();
    let input = Recipe::book(32, 32).apply(&load(&asset("cat.png")).unwrap(), (4, 4)).unwrap();
    assert_eq!(input.seen, small.pixels);
    let same = Recipe::book(32, 32).apply(&small, (4, 4)).unwrap();
    assert_eq!(same.seen, small.pixels);
}

#[test]
fn normalised_values_equal_torchvision() {
    let text = fs::read_to_string(fixture("expected.json")).unwrap();
    let expected = &serde_json::from_str::<Value>(&text).unwrap()["normalised"];
    let picture = load(&fixture("resize").join(expected["file"].as_str().unwrap())).unwrap();
    let imagenet = Recipe { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], ..Recipe::book(32, 32) };
    for (name, recipe) in [("book", Recipe::book(32, 32)), ("imagenet", imagenet)] {
        let ModelInput { pixels, rows, cols, .. } = recipe.apply(&picture, (4, 4)).unwrap();
        assert_eq!((pixels.len(), rows, cols), (3 * 32 * 32, 32, 32));
        for channel in 0..3 {
            for col in 0..6 {
                let want = expected[name][channel][col].as_f64().unwrap();
                let got = f64::from(pixels[(channel * 32 + 5) * 32 + col]);
                assert!((want - got).abs() < 1e-6, "{name}: {want} {got}");
            }
        }
    }
}

/// A picture whose red says how far right a pixel lies and whose green how far down, both from 0 to 255.
fn map(width: u32, height: u32) -> Picture {
    let share = |at: u32, length: u32| ((f64::from(at) + 0.5) / f64::from(length) * 255.0).round() as u8;
    picture(RgbImage::from_fn(width, height, |x, y| Rgb([share(x, width), share(y, height), 0])))
}

#[test]
fn a_point_of_the_original_finds_the_patch_that_sees_it() {
    let crop = |rows, cols| Some(Crop { rows, cols, middle: Middle::Even });
    let recipes = [
        recipe(Resize::Squash { rows: 48, cols: 80 }, None),
        recipe(Resize::ShortestEdge(96), crop(80, 64)),
        recipe(Resize::ShortestEdge(64), None),
    ];
    for (recipe, (width, height)) in recipes.iter().flat_map(|r| [(r, (451, 300)), (r, (100, 170)), (r, (33, 32))]) {
        let input = recipe.apply(&map(width, height), (16, 16)).unwrap();
        let (rows, cols) = input.geometry.grid();
        assert_eq!((rows * 16, cols * 16), (input.rows, input.cols));
        for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
            // What the middle of the patch shows says where in the original it lies.
            let [red, green, _] = input.seen.get_pixel(col as u32 * 16 + 8, row as u32 * 16 + 8).0;
            let (x, y) = (f64::from(red) / 255.0 * f64::from(width), f64::from(green) / 255.0 * f64::from(height));
            assert_eq!(input.geometry.patch_at(x, y), Some((row, col)), "{recipe:?} on {width} x {height}");
        }
    }
}

#[test]
fn a_point_that_the_model_does_not_see_has_no_patch() {
    // 640 x 427 becomes 383 x 256; the crop of 224 starts at 80 and 16, which is 133.7 and 26.7 in the original.
    let crop = Some(Crop { rows: 224, cols: 224, middle: Middle::Even });
    let input = recipe(Resize::ShortestEdge(256), crop).apply(&map(640, 427), (16, 16)).unwrap();
    let at = |x, y| input.geometry.patch_at(x, y);
    assert_eq!(at(133.8, 26.8), Some((0, 0)));
    assert_eq!(at(133.6, 26.8), None);
    assert_eq!(at(133.8, 26.6), None);
    assert_eq!(at(507.9, 400.2), Some((13, 13)));
    assert_eq!(at(508.1, 400.2), None);
    assert_eq!(at(f64::NAN, 100.0), None);
    assert_eq!(
        input.geometry.x.grid_at(133.68 + 1.5 * 16.0 * 640.0 / 383.0).map(|place| (place * 100.0).round()),
        Some(150.0)
    );
}

#[test]
fn pixels_beyond_the_last_whole_patch_are_left_out() {
    let input = Recipe::book(37, 50).apply(&map(50, 37), (8, 16)).unwrap();
    assert_eq!(input.geometry.grid(), (4, 3));
    assert_eq!((input.rows, input.cols, input.pixels.len()), (32, 48, 3 * 32 * 48));
    assert_eq!(input.geometry.patch_at(47.9, 31.9), Some((3, 2)));
    assert_eq!(input.geometry.patch_at(48.1, 31.9), None);
}

#[test]
fn a_thread_of_pixels_costs_no_more_than_what_the_model_sees() {
    // Resized as a whole it would be 224 x 14,679,840.
    let crop = Some(Crop { rows: 224, cols: 224, middle: Middle::Down });
    let input = recipe(Resize::ShortestEdge(224), crop).apply(&map(1, 65_535), (16, 16)).unwrap();
    assert_eq!((input.seen.dimensions(), input.geometry.grid()), ((224, 224), (14, 14)));
}

#[test]
fn a_size_that_no_model_can_take_is_refused_with_one_sentence() {
    let crop = Some(Crop { rows: 64, cols: 64, middle: Middle::Down });
    for (recipe, patch, says) in [
        (recipe(Resize::ShortestEdge(48), crop), (16, 16), "smaller than the crop of 64 x 64"),
        (recipe(Resize::ShortestEdge(8), None), (16, 16), "smaller than one patch of 16 x 16"),
        (recipe(Resize::ShortestEdge(0), None), (16, 16), "smaller than one patch"),
        (Recipe::book(32, 32), (0, 4), "smaller than one patch"),
        (recipe(Resize::ShortestEdge(usize::MAX), None), (16, 16), "more than 8192 pixels a side"),
        (Recipe::book(32, 9000), (4, 4), "more than 8192 pixels a side"),
    ] {
        let message = recipe.apply(&map(60, 40), patch).expect_err(says).to_string();
        assert!(message.starts_with("made.png: ") && message.contains(says), "{message}");
    }
}
