//! Colours and scales, and models whose numbers are odd.

use std::{collections::BTreeSet, fs};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::Value;

use super::{Place, asset, fixture};

/// A tensor's name with its shape and values.
type Named = (String, (Vec<usize>, Vec<f32>));

/// The book-default checkpoint with its tensors changed by `edit`, in a folder of `place`, whose name is returned.
pub fn edited(place: &Place, name: &str, edit: impl FnOnce(&mut Vec<Named>)) -> String {
    let bytes = fs::read(fixture("book-default/model.safetensors")).unwrap();
    let named = |(name, view): (&str, TensorView)| {
        let values = view.data().as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
        (name.to_owned(), (view.shape().to_vec(), values))
    };
    let mut tensors: Vec<Named> = SafeTensors::deserialize(&bytes).unwrap().iter().map(named).collect();
    edit(&mut tensors);
    let raw: Vec<Vec<u8>> =
        tensors.iter().map(|t| t.1.1.iter().flat_map(|value| value.to_le_bytes()).collect()).collect();
    let views = tensors
        .iter()
        .zip(&raw)
        .map(|((name, (shape, _)), raw)| (name, TensorView::new(Dtype::F32, shape.clone(), raw).unwrap()));
    fs::create_dir(place.path(name)).unwrap();
    fs::write(place.path(name).join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    fs::copy(fixture("book-default/config.json"), place.path(name).join("config.json")).unwrap();
    name.to_owned()
}

/// Sets every value of the tensors whose names contain `part`.
fn fill(part: &'static str, value: f32) -> impl FnOnce(&mut Vec<Named>) {
    move |tensors| {
        let mut found = tensors.iter_mut().filter(|(name, _)| name.contains(part)).peekable();
        assert!(found.peek().is_some(), "no tensor is named {part}");
        found.for_each(|(_, (_, values))| values.fill(value));
    }
}

/// The ends of the colour scale of each map.
fn scales(place: &Place, out: &str) -> Vec<(f64, f64)> {
    let manifest = place.manifest(out);
    let ends = |map: &Value| (map["scale"][0].as_f64().unwrap(), map["scale"][1].as_f64().unwrap());
    manifest["maps"].as_array().unwrap().iter().map(ends).collect()
}

fn number(map: &Value, name: &str) -> f64 {
    map[name].as_f64().unwrap()
}

#[test]
fn maps_share_a_scale_as_asked() {
    let place = Place::new();
    let run = |out: &str, more: &[&str]| {
        let (cat, model) = (asset("cat.png"), fixture("book-default"));
        place.ok(&[&["run", &cat, "-m", &model, "-o", out, "--layers", "2,3"], more].concat());
        scales(&place, out)
    };
    let each = run("map", &["--scale", "map"]);
    for (map, scale) in place.manifest("map")["maps"].as_array().unwrap().iter().zip(&each) {
        assert_eq!(*scale, (number(map, "min"), number(map, "max")));
    }
    let span = |scales: &[(f64, f64)]| {
        scales.iter().fold((f64::MAX, f64::MIN), |(lo, hi), scale| (lo.min(scale.0), hi.max(scale.1)))
    };
    let layers = run("layer", &[]);
    assert_eq!(layers, [vec![span(&each[..4]); 4], vec![span(&each[4..]); 4]].concat(), "the default");
    assert_eq!(run("all", &["--scale", "all"]), vec![span(&each); 8]);
    assert_eq!(run("fixed", &["--scale", "-0.5,0.25"]), vec![(-0.5, 0.25); 8]);
    for (clipped, whole) in run("clip", &["--clip", "10,90"]).iter().zip(&layers) {
        assert!(clipped.0 > whole.0 && clipped.1 < whole.1, "{clipped:?} is not inside {whole:?}");
    }
}

#[test]
fn upsampling_and_colormap_change_the_pictures_and_not_the_numbers() {
    let place = Place::new();
    let run = |out: &str, more: &[&str]| {
        let (cat, model) = (asset("cat.png"), fixture("book-default"));
        place.ok(&[&["run", &cat, "-m", &model, "-o", out, "--heads", "0"], more].concat());
        place.image(&format!("{out}/cls-L03-H00.png"))
    };
    let colours = |image: &image::RgbImage| image.pixels().map(|pixel| pixel.0).collect::<BTreeSet<_>>().len();
    let (nearest, smooth) = (run("nearest", &[]), run("smooth", &["--upsample", "bilinear"]));
    assert!(colours(&nearest) <= 64 && colours(&smooth) > 64, "{} and {}", colours(&nearest), colours(&smooth));
    assert_eq!(place.manifest("nearest")["maps"], place.manifest("smooth")["maps"]);
    let gray = run("gray", &["--colormap", "gray"]);
    assert!(gray.pixels().all(|pixel| pixel.0[0] == pixel.0[1] && pixel.0[1] == pixel.0[2]));
    let mut seen = BTreeSet::from([nearest.into_raw(), gray.into_raw()]);
    for name in ["magma", "inferno", "plasma", "cividis", "turbo"] {
        assert!(seen.insert(run(name, &["--colormap", name]).into_raw()), "{name} looks like another");
    }
    assert!(!seen.insert(run("default", &["--colormap", "viridis"]).into_raw()), "viridis is the default");
}

#[test]
fn constant_maps_are_drawn_in_the_middle_colour_with_a_warning() {
    let place = Place::new();
    let model = edited(&place, "flat", fill(".query.", 0.0));
    let ended = place.ok(&["run", &asset("cat.png"), "-m", &model, "-o", "out", "--overlay"]);
    assert!(ended.err.contains("vit-attn: 4 of 4 maps are constant: drawn in the middle colour"), "{}", ended.err);
    let manifest = place.manifest("out");
    assert!(manifest["warnings"][0].as_str().unwrap().contains("are constant"), "{manifest}");
    for map in manifest["maps"].as_array().unwrap() {
        let uniform = [("min", 1.0 / 65.0), ("max", 1.0 / 65.0), ("patch_share", 64.0 / 65.0), ("entropy", 65f64.ln())];
        for (name, expected) in uniform {
            assert!((number(map, name) - expected).abs() <= 1e-5, "{name} of {map}");
        }
    }
    let image = place.image("out/cls-L03-H00.png");
    let middle = image.get_pixel(0, 0).0;
    assert!(image.pixels().all(|pixel| pixel.0 == middle));
    // The middle of viridis is a blue green.
    assert!(middle[0] < 60 && middle[1] > 120 && middle[2] > 120, "{middle:?}");
}

#[test]
fn attention_that_does_not_sum_to_one_is_an_error_and_writes_nothing() {
    let place = Place::new();
    let model = edited(&place, "broken", fill(".query.", f32::NAN));
    let error = place.refused(1, &["run", &asset("cat.png"), "-m", &model, "-o", "out"]);
    assert!(error.contains("layer 3 do not sum to one"), "{error}");
    assert!(!place.path("out").exists());
}

#[test]
fn class_scores_that_are_no_numbers_are_warned_of_and_give_no_prediction() {
    let place = Place::new();
    let model = edited(&place, "broken", fill("classifier.bias", f32::NAN));
    let ended = place.ok(&["run", &asset("cat.png"), "-m", &model, "-o", "out"]);
    assert!(ended.err.contains("the class scores are not finite"), "{}", ended.err);
    assert!(!ended.err.contains("prediction:"), "{}", ended.err);
    assert!(place.manifest("out")["prediction"].is_null());
}

#[test]
fn missing_and_misshapen_tensors_are_all_listed() {
    let place = Place::new();
    let model = edited(&place, "model", |tensors| {
        tensors.retain(|(name, _)| name != "embedding.cls_token");
        let bias = tensors.iter_mut().find(|(name, _)| name == "classifier.bias").unwrap();
        bias.1 = (vec![9], vec![0.0; 9]);
    });
    let ended = place.vit(&["run", &asset("cat.png"), "-m", &model]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    for part in [
        "vit-attn: error: model/model.safetensors: 2 of the model's tensors are missing or misshapen",
        "embedding.cls_token: missing, expected shape [1, 1, 48]",
        "classifier.bias: expected shape [10], found [9]",
    ] {
        assert!(ended.err.contains(part), "{part} is not in {}", ended.err);
    }
    assert!(place.files(".").len() == 1, "nothing is written");
}
