//! What the renderers write, read back by decoders that are not ours.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failed unwrap is the failure")]

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;

use image::{Rgb, RgbImage};
use vit_attn::map::{Artifact, Map, MapSet, MapStats};
use vit_attn::picture::{Axis, Geometry};
use vit_attn::record::{AttentionRecord, LayerAttention, TokenLayout};
use vit_attn::render::colormap::{Colormap, NOT_A_NUMBER, Palette};
use vit_attn::render::draw::{self, Canvas, Rect};
use vit_attn::render::scale::{Clip, Scale, percentile};
use vit_attn::render::sheet::{self, Caption};
use vit_attn::render::text::{Anchor, TextStyle, shorten, text_width};
use vit_attn::render::upsample::Upsample;
use vit_attn::render::{Drawing, Format, Style, heatmap, input, npy, numbers, overlay, tensors};

/// Maps of `layers` x `heads` on a grid of `rows` x `cols`, with `value(layer, head, patch)`.
fn maps(
    (layers, heads): (usize, usize),
    (rows, cols): (usize, usize),
    value: impl Fn(usize, usize, usize) -> f32,
) -> MapSet {
    let stats = MapStats { min: 0.0, max: 0.0, mean: 0.0, patch_share: 0.0, top_share: 0.0, top: (0, 0), entropy: 0.0 };
    let map = |layer: usize, head: usize| {
        let values = (0..rows * cols).map(|patch| value(layer, head, patch)).collect();
        Map { layer: Some(layer), head, rows, cols, values, stats }
    };
    MapSet {
        view: "cls".into(),
        title: "attention of CLS to the patches".into(),
        layers: (0..layers).map(Some).collect(),
        heads: (0..heads).collect(),
        query: None,
        maps: (0..layers).flat_map(|layer| (0..heads).map(move |head| (layer, head))).map(|(l, h)| map(l, h)).collect(),
    }
}

/// Values that differ everywhere and look like nothing regular.
fn mixed(layer: usize, head: usize, patch: usize) -> f32 {
    ((layer * 31 + head * 17 + patch * 7) % 101) as f32 / 1000.0
}

fn style(scale: &str, upsample: Upsample) -> Style {
    Style { scale: scale.parse().unwrap(), upsample, ..Style::default() }
}

fn decode(artifact: &Artifact) -> RgbImage {
    image::load_from_memory(&artifact.bytes).unwrap().into_rgb8()
}

fn heatmaps(set: &MapSet, style: Style) -> Vec<Artifact> {
    heatmap::files(&Drawing::new(set, style).unwrap()).map(Result::unwrap).collect()
}

fn close(a: Rgb<u8>, b: Rgb<u8>, tolerance: u8) -> bool {
    a.0.iter().zip(b.0).all(|(a, b)| a.abs_diff(b) <= tolerance)
}

fn count(image: &RgbImage, colour: Rgb<u8>) -> usize {
    image.pixels().filter(|pixel| **pixel == colour).count()
}

#[test]
fn every_name_in_a_table_parses_to_its_value_and_prints_as_itself() {
    fn check<T: FromStr<Err = String> + Display + PartialEq + Copy + std::fmt::Debug>(names: &[(&str, T)]) {
        for (index, (name, value)) in names.iter().enumerate() {
            assert_eq!(name.parse(), Ok(*value));
            assert_eq!(value.to_string(), *name);
            assert!(names.iter().skip(index + 1).all(|(other, _)| other != name), "{name} is there twice");
        }
        let error = "jet?".parse::<T>().unwrap_err();
        assert!(names.iter().all(|(name, _)| error.contains(name)), "{error}");
        assert_eq!(names.iter().filter(|(name, _)| name.parse::<T>().is_ok()).count(), names.len());
    }
    check(Colormap::NAMES);
    check(Upsample::NAMES);
    check(Format::NAMES);
}

#[test]
fn scales_and_clips_print_as_they_parse() {
    for text in ["map", "layer", "all", "0,0.05", "-1,1", "0.0001,0.25"] {
        assert_eq!(text.parse::<Scale>().unwrap().to_string(), text);
    }
    for text in ["0,100", "1,99", "2.5,97.5"] {
        assert_eq!(text.parse::<Clip>().unwrap().to_string(), text);
    }
    assert_eq!(Scale::default().to_string(), "layer");
    assert_eq!(Clip::default().to_string(), "0,100");
}

#[test]
fn scales_and_clips_that_make_no_sense_are_refused() {
    for text in ["", "maps", "0", "1,0", "0,0", "0,nan", "0,inf", "0,1,2", "a,b", ","] {
        assert!(text.parse::<Scale>().is_err(), "{text}");
    }
    for text in ["", "5", "99,1", "-1,50", "0,101", "50,50", "nan,99", "0,nan", "1,2,3"] {
        assert!(text.parse::<Clip>().is_err(), "{text}");
    }
}

#[test]
fn colormaps_begin_and_end_as_matplotlib_draws_them() {
    // First and last of matplotlib 3.11's tables. Its turbo and cividis are tables, ours polynomials through them.
    for (name, first, last) in [
        ("viridis", [68, 1, 84], [253, 231, 37]),
        ("magma", [0, 0, 4], [252, 253, 191]),
        ("inferno", [0, 0, 4], [252, 255, 164]),
        ("plasma", [13, 8, 135], [240, 249, 33]),
        ("cividis", [0, 34, 78], [254, 232, 56]),
        ("turbo", [48, 18, 59], [122, 4, 3]),
        ("gray", [0, 0, 0], [255, 255, 255]),
        // Matplotlib's RdBu_r.
        ("blue-red", [5, 48, 97], [103, 0, 31]),
    ] {
        let palette = Palette::new(name.parse().unwrap());
        let ends = (palette.colour(0.0), palette.colour(1.0));
        let tolerance = if matches!(name, "cividis" | "turbo") { 32 } else { 1 };
        assert!(close(ends.0, Rgb(first), tolerance) && close(ends.1, Rgb(last), tolerance), "{name} {ends:?}");
    }
}

#[test]
fn colormaps_that_claim_even_steps_grow_lighter_all_the_way() {
    for (name, colormap) in Colormap::NAMES.iter().filter(|(name, _)| !matches!(*name, "turbo" | "blue-red")) {
        let palette = Palette::new(*colormap);
        let light = |step: usize| {
            let [r, g, b] = palette.colour(step as f32 / 16.0).0.map(f32::from);
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        assert!((1..=16).all(|step| light(step) > light(step - 1)), "{name}");
    }
}

#[test]
fn the_colormap_around_zero_is_pale_in_the_middle_and_as_dark_on_both_sides() {
    let palette = Palette::new(Colormap::BlueRed);
    let light = |place: f32| palette.colour(place).0.iter().map(|&channel| i32::from(channel)).sum::<i32>();
    assert!(light(0.5) > 3 * 230);
    for place in [0.0, 0.1, 0.2, 0.3, 0.4] {
        assert!(light(place) < light(place + 0.1) && light(1.0 - place) < light(0.9 - place), "at {place}");
        let (blue, red) = (palette.colour(place).0, palette.colour(1.0 - place).0);
        assert!(blue[2] > blue[0] && red[0] > red[2], "at {place}");
    }
}

#[test]
fn percentiles_are_those_of_numpy() {
    // numpy.percentile(values, percent), numpy 2.4.
    let mut values = [0.3_f32, 0.1, 0.25, 0.9, 0.0, 0.7, 0.05];
    values.sort_by(f32::total_cmp);
    for (percent, expected) in
        [(0.0, 0.0), (1.0, 0.003), (10.0, 0.03), (50.0, 0.25), (90.0, 0.78), (99.0, 0.888), (100.0, 0.9)]
    {
        assert!((percentile(&values, percent) - expected).abs() < 1e-6, "{percent}");
    }
    assert_eq!(percentile(&[], 50.0), 0.0);
    assert_eq!(percentile(&[4.0], 99.0), 4.0);
}

#[test]
fn maps_share_a_range_as_the_scale_says() {
    // Map (layer, head) runs from 0 to 1 + 2 * layer + head.
    let set = maps((2, 2), (1, 2), |layer, head, patch| (patch * (1 + 2 * layer + head)) as f32);
    for (scale, expected) in [
        ("map", [(0.0, 1.0), (0.0, 2.0), (0.0, 3.0), (0.0, 4.0)]),
        ("layer", [(0.0, 2.0), (0.0, 2.0), (0.0, 4.0), (0.0, 4.0)]),
        ("all", [(0.0, 4.0); 4]),
        ("-1,2.5", [(-1.0, 2.5); 4]),
        ("-3e38,3e38", [(-3e38, 3e38); 4]),
    ] {
        let drawing = Drawing::new(&set, style(scale, Upsample::Nearest)).unwrap();
        let ranges: Vec<_> = drawing.ranges().iter().map(|range| (range.lo, range.hi)).collect();
        assert_eq!(ranges, expected, "{scale}");
        assert_eq!(drawing.ranges()[3].above, scale == "-1,2.5");
        let (lo, hi) = expected[0];
        assert_eq!(drawing.ranges()[0].place(lo / 2.0 + hi / 2.0), 0.5);
        assert!(drawing.warnings().is_empty(), "{:?}", drawing.warnings());
    }
}

#[test]
fn clipping_takes_percentiles_of_the_values_that_share_a_range() {
    let set = maps((1, 2), (1, 50), |_, head, patch| (head * 50 + patch) as f32);
    let style = Style { clip: "10,90".parse().unwrap(), ..Style::default() };
    let drawing = Drawing::new(&set, style).unwrap();
    let range = drawing.ranges()[0];
    // numpy.percentile(range(100), [10, 90])
    assert!((range.lo - 9.9).abs() < 1e-4 && (range.hi - 89.1).abs() < 1e-4, "{range:?}");
    assert!(range.below && range.above);
    assert_eq!((range.place(0.0), range.place(99.0)), (0.0, 1.0));
}

#[test]
fn a_constant_map_is_drawn_in_the_middle_colour_with_a_warning() {
    let middle = Palette::new(Colormap::Viridis).colour(0.5);
    for scale in ["map", "layer", "all"] {
        for upsample in [Upsample::Nearest, Upsample::Bilinear] {
            for value in [0.0, 1.0 / 64.0, 1.0, f32::MAX] {
                let set = maps((1, 2), (8, 8), |_, _, _| value);
                let drawing = Drawing::new(&set, style(scale, upsample)).unwrap();
                assert!(matches!(drawing.warnings(), [only] if only.contains("2 of 2 maps are constant")));
                for file in heatmaps(&set, style(scale, upsample)) {
                    assert!(decode(&file).pixels().all(|pixel| *pixel == middle), "{scale} {value}");
                }
            }
        }
    }
}

#[test]
fn a_map_that_differs_by_rounding_only_counts_as_constant() {
    let set = maps((1, 1), (8, 8), |_, _, patch| 0.015625 + (patch % 2) as f32 * 1e-9);
    let drawing = Drawing::new(&set, Style::default()).unwrap();
    assert!(matches!(drawing.warnings(), [only] if only.contains("constant")), "{:?}", drawing.warnings());
}

#[test]
fn a_constant_map_beside_others_keeps_the_colour_of_its_value() {
    let set = maps((1, 2), (1, 2), |_, head, patch| if head == 0 { 0.25 } else { patch as f32 });
    let drawing = Drawing::new(&set, Style::default()).unwrap();
    assert!(matches!(drawing.warnings(), [only] if only.contains("1 of 2 maps are constant")));
    let pixel = *decode(&heatmaps(&set, Style::default())[0]).get_pixel(0, 0);
    assert_eq!(pixel, Palette::new(Colormap::Viridis).colour(0.25));
}

#[test]
fn values_that_are_not_finite_are_drawn_and_named_and_hurt_nothing_else() {
    let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, 0.5, 1.0];
    for upsample in [Upsample::Nearest, Upsample::Bilinear] {
        let set = maps((1, 1), (1, 6), |_, _, patch| values[patch]);
        let drawing = Drawing::new(&set, style("layer", upsample)).unwrap();
        assert!(matches!(drawing.warnings(), [only] if only.contains("not finite")));
        let image = decode(&heatmaps(&set, style("layer", upsample))[0]);
        let palette = Palette::new(Colormap::Viridis);
        assert_eq!(*image.get_pixel(0, 0), NOT_A_NUMBER);
        assert_eq!(*image.get_pixel(image.width() - 1, 0), palette.colour(1.0));
    }
    let set = maps((1, 2), (2, 2), |_, _, _| f32::NAN);
    assert!(heatmaps(&set, Style::default()).iter().all(|file| count(&decode(file), NOT_A_NUMBER) == 256 * 256));
}

#[test]
fn a_heat_map_is_a_whole_multiple_of_its_grid_and_at_least_256_pixels_on_its_short_side() {
    for (rows, cols) in [(1, 1), (8, 8), (14, 14), (16, 12), (7, 20), (37, 37), (1, 9), (256, 256), (300, 310)] {
        for upsample in [Upsample::Nearest, Upsample::Bilinear] {
            let set = maps((1, 1), (rows, cols), mixed);
            let image = decode(&heatmaps(&set, style("layer", upsample))[0]);
            let factor = image.width() / cols as u32;
            assert_eq!(image.dimensions(), (cols as u32 * factor, rows as u32 * factor), "{rows} x {cols}");
            assert!(image.width().min(image.height()) >= 256);
            assert!(factor == 1 || (factor - 1) * (rows.min(cols) as u32) < 256, "larger than needed");
        }
    }
}

#[test]
fn an_absurdly_long_grid_gets_a_picture_of_bounded_size() {
    let set = maps((1, 1), (1, 20_000), mixed);
    let image = decode(&heatmaps(&set, Style::default())[0]);
    assert_eq!(image.width() / 20_000, image.height());
    assert!(u64::from(image.width()) * u64::from(image.height()) <= 1 << 26);
}

#[test]
fn heat_maps_are_named_by_view_layer_and_head_with_two_digits_or_more() {
    let mut set = maps((1, 2), (1, 2), mixed);
    set.view = "patch-3-5".into();
    (set.maps[0].layer, set.maps[0].head) = (Some(3), 0);
    (set.maps[1].layer, set.maps[1].head) = (Some(3), 117);
    let names: Vec<_> = heatmaps(&set, Style::default()).into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["patch-3-5-L03-H00.png", "patch-3-5-L03-H117.png"]);
}

#[test]
fn nearest_gives_each_patch_one_flat_square_of_its_colour() {
    for (name, colormap) in Colormap::NAMES {
        let set = maps((1, 1), (3, 4), |_, _, patch| patch as f32 / 11.0);
        let image = decode(&heatmaps(&set, Style { colormap: *colormap, ..Style::default() })[0]);
        let (side, palette) = (image.width() / 4, Palette::new(*colormap));
        for (x, y, pixel) in image.enumerate_pixels() {
            let patch = (y / side) * 4 + x / side;
            assert_eq!(*pixel, palette.colour(patch as f32 / 11.0), "{name} at {x},{y}");
        }
    }
}

#[test]
fn bilinear_meets_the_values_at_patch_centres_and_holds_them_at_the_edges() {
    // A plane, so that every value between centres is known; 3 rows of 2 become 768 x 512, 128 to a patch... of gray.
    let set = maps((1, 1), (3, 2), |_, _, patch| (patch / 2) as f32 / 4.0 + (patch % 2) as f32 / 2.0);
    let style = Style {
        colormap: Colormap::Gray,
        scale: Scale::Fixed(0.0, 1.0),
        upsample: Upsample::Bilinear,
        ..Style::default()
    };
    let image = decode(&heatmaps(&set, style)[0]);
    let side = image.width() as f32 / 2.0;
    for (x, y, pixel) in image.enumerate_pixels() {
        let place = |pixel: u32, last: f32| ((pixel as f32 + 0.5) / side - 0.5).clamp(0.0, last);
        let value = place(y, 2.0) / 4.0 + place(x, 1.0) / 2.0;
        assert!((f32::from(pixel.0[0]) - value * 255.0).abs() <= 0.51, "at {x},{y}");
    }
}

#[test]
fn maps_that_do_not_fill_their_grid_are_refused() {
    let good = maps((2, 2), (2, 2), mixed);
    type Break = fn(&mut MapSet);
    let broken: [(&str, Break); 5] = [
        ("no map", |set| set.maps.clear()),
        ("3 maps for 2 layers of 2 heads", |set| set.maps.truncate(3)),
        ("map L00-H01 has 3 values", |set| set.maps[1].values.truncate(3)),
        ("grid of 4 x 1", |set| (set.maps[2].rows, set.maps[2].cols) = (4, 1)),
        ("0 values", |set| set.maps.iter_mut().for_each(|map| (map.rows, map.values) = (0, vec![]))),
    ];
    for (says, break_it) in broken {
        let mut set = good.clone();
        break_it(&mut set);
        for error in [Drawing::new(&set, Style::default()).err(), npy::file(&set).err()] {
            let error = error.expect(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}

#[test]
fn the_input_is_enlarged_by_a_whole_factor_with_its_colours_unchanged() {
    for (width, height) in [(32, 32), (224, 224), (48, 64), (300, 256)] {
        let seen = RgbImage::from_fn(width, height, |x, y| Rgb([x as u8, y as u8, (x * y) as u8]));
        let file = input::file(&seen).unwrap();
        let image = decode(&file);
        let factor = image.width() / width;
        assert_eq!((file.name.as_str(), image.height()), ("input.png", height * factor));
        assert!(image.width().min(image.height()) >= 256);
        assert!(image.enumerate_pixels().all(|(x, y, pixel)| pixel == seen.get_pixel(x / factor, y / factor)));
    }
}

#[test]
fn an_overlay_lies_where_the_patch_lies_in_the_original() {
    // 400 x 300, shrunk by a half, the middle 128 x 128 seen in 4 x 4 patches of 32: 64 pixels each in the original.
    let axis = |original: usize| Axis {
        original,
        resized: original / 2,
        start: (original / 2 - 128) / 2,
        seen: 128,
        patch: 32,
        patches: 4,
    };
    let geometry = Geometry { x: axis(400), y: axis(300) };
    let photo = RgbImage::from_pixel(400, 300, Rgb([200, 60, 20]));
    let set = maps((1, 1), (4, 4), |_, _, patch| if patch == 6 { 1.0 } else { 0.0 });
    let drawing = Drawing::new(&set, Style::default()).unwrap();
    let file = overlay::files(&drawing, &photo, &geometry).next().unwrap().unwrap();
    let image = decode(&file);
    assert_eq!((file.name.as_str(), image.dimensions()), ("cls-overlay-L00-H00.png", (400, 300)));
    let palette = Palette::new(Colormap::Viridis);
    let over = |place: f32| {
        let colour = palette.colour(place).0;
        Rgb(std::array::from_fn(|c| (f32::from(photo.get_pixel(0, 0).0[c]) * 0.45 + f32::from(colour[c]) * 0.55) as u8))
    };
    for (x, y, pixel) in image.enumerate_pixels() {
        // The crop begins at 72, 22 in the original.
        let (col, row) = ((x as i32 - 72).div_euclid(64), (y as i32 - 22).div_euclid(64));
        if (0..4).contains(&row) && (0..4).contains(&col) {
            assert!(close(*pixel, over(if (row, col) == (1, 2) { 1.0 } else { 0.0 }), 1), "at {x},{y}: {pixel:?}");
        } else {
            assert!(pixel.0[0] == pixel.0[1] && pixel.0[1] == pixel.0[2], "seen at {x},{y}: {pixel:?}");
        }
    }
}

#[test]
fn a_bilinear_overlay_peaks_at_the_middle_of_its_patch() {
    let axis = Axis { original: 90, resized: 30, start: 0, seen: 30, patch: 10, patches: 3 };
    let geometry = Geometry { x: axis.clone(), y: axis };
    let set = maps((1, 1), (3, 3), |_, _, patch| if patch == 4 { 1.0 } else { 0.0 });
    let style = Style { colormap: Colormap::Gray, upsample: Upsample::Bilinear, ..Style::default() };
    let drawing = Drawing::new(&set, style).unwrap();
    let photo = RgbImage::new(90, 90);
    let image = decode(&overlay::files(&drawing, &photo, &geometry).next().unwrap().unwrap());
    let value = |x: u32, y: u32| image.get_pixel(x, y).0[0];
    let most = image.pixels().map(|pixel| pixel.0[0]).max().unwrap();
    assert_eq!((value(44, 44), value(45, 45)), (most, most));
    assert!((0..45).all(|x| value(x, 40) == value(89 - x, 40) && (x == 0 || value(x, 40) >= value(x - 1, 40))));
    assert_eq!(value(14, 44), 0);
}

#[test]
fn the_patch_that_asks_is_outlined_on_overlays_and_the_sheet_but_not_on_heat_maps() {
    let axis = |original, start| Axis { original, resized: original, start, seen: 64, patch: 16, patches: 4 };
    let geometry = Geometry { x: axis(100, 18), y: axis(64, 0) };
    let set = |query| MapSet { query, ..maps((1, 2), (4, 4), mixed) };
    let (plain, asked) = (set(None), set(Some((1, 3))));
    assert_eq!(heatmaps(&plain, Style::default()), heatmaps(&asked, Style::default()));

    let photo = RgbImage::from_pixel(100, 64, Rgb([200, 60, 20]));
    let over = |set: &MapSet| {
        let drawing = Drawing::new(set, Style::default()).unwrap();
        decode(&overlay::files(&drawing, &photo, &geometry).next().unwrap().unwrap())
    };
    let (before, after) = (over(&plain), over(&asked));
    // The patch is 66..82 x 16..32; around it run a white frame and a dark one, a pixel each.
    for (x, y, pixel) in after.enumerate_pixels() {
        let inside = |by: u32| (66 - by..82 + by).contains(&x) && (16 - by..32 + by).contains(&y);
        match (inside(0), inside(1), inside(2)) {
            (false, true, _) => assert_eq!(*pixel, Rgb([255; 3]), "at {x},{y}"),
            (false, false, true) => assert_eq!(*pixel, draw::INK, "at {x},{y}"),
            _ => assert_eq!(pixel, before.get_pixel(x, y), "at {x},{y}"),
        }
    }

    let (before, after) = (draw_sheet(&plain, Style::default(), &photo), draw_sheet(&asked, Style::default(), &photo));
    assert_eq!(before.width(), after.width());
    let changed: Vec<u32> =
        (0..before.width()).filter(|&x| (100..300).any(|y| before.get_pixel(x, y) != after.get_pixel(x, y))).collect();
    // A cell of each of the two maps, of 64 pixels with frames of two pixels on both sides.
    assert_eq!(changed.len(), 2 * 68, "{changed:?}");
}

/// A red input: red is in no colormap's sheet.
fn red(width: u32, height: u32) -> RgbImage {
    RgbImage::from_pixel(width, height, Rgb([255, 0, 0]))
}

fn draw_sheet(set: &MapSet, style: Style, seen: &RgbImage) -> RgbImage {
    let drawing = Drawing::new(set, style).unwrap();
    let file = sheet::file(&drawing, &Caption { seen, picture: "cat.png", model: "book" }).unwrap();
    assert_eq!(file.name, format!("{}-grid.png", set.view));
    decode(&file)
}

#[test]
fn a_sheet_shows_the_input_and_every_map_at_any_size_within_its_margins() {
    for (layers, heads, rows, cols, most) in [
        (1, 1, 8, 8, 1000),
        (1, 4, 8, 8, 1600),
        (12, 12, 14, 14, 2000),
        (32, 32, 14, 14, 4000),
        (24, 16, 37, 37, 4000),
        (2, 6, 7, 20, 4000),
        (6, 1, 20, 7, 4000),
        (3, 40, 100, 100, 4000),
        (1, 3, 1, 1, 4000),
    ] {
        let total = (layers * heads) as f32;
        let place = |layer: usize, head: usize| (layer * heads + head) as f32 / total;
        let set = maps((layers, heads), (rows, cols), |layer, head, _| place(layer, head));
        for scale in ["map", "layer", "all", "0,1"] {
            let image = draw_sheet(&set, style(scale, Upsample::Nearest), &red(32, 32));
            let name = format!("{layers} x {heads} of {rows} x {cols}, {scale}: {:?}", image.dimensions());
            assert!(image.width() < most, "{name}");
            assert!(count(&image, Rgb([255, 0, 0])) >= 160 * 160, "{name}");
            let (right, bottom) = (image.width() - 12, image.height() - 12);
            let in_margin = |x, y| x < 12 || y < 12 || x >= right || y >= bottom;
            let white = Rgb([255; 3]);
            assert!(image.enumerate_pixels().all(|(x, y, pixel)| !in_margin(x, y) || *pixel == white), "{name}");
            if scale == "0,1" {
                let palette = Palette::new(Colormap::Viridis);
                let mut counts = HashMap::new();
                image.pixels().for_each(|pixel| *counts.entry(pixel.0).or_insert(0) += 1);
                let all = (0..layers).flat_map(|layer| (0..heads).map(move |head| (layer, head)));
                for (layer, head) in all {
                    let colour = palette.colour(place(layer, head));
                    assert!(
                        counts.get(&colour.0).is_some_and(|count| *count >= 20 * 20),
                        "{name}: layer {layer} head {head} is missing"
                    );
                }
            }
        }
    }
}

#[test]
fn a_sheet_keeps_the_shape_of_an_input_that_is_not_square() {
    for (width, height) in [(64, 32), (32, 64), (640, 320), (1, 500), (2000, 2)] {
        let set = maps((2, 2), (8, 8), mixed);
        let image = draw_sheet(&set, Style::default(), &red(width, height));
        let inside: Vec<_> = image.enumerate_pixels().filter(|(.., pixel)| **pixel == Rgb([255, 0, 0])).collect();
        let extent = |of: fn(&(u32, u32, &Rgb<u8>)) -> u32| {
            let (low, high) = (inside.iter().map(of).min().unwrap(), inside.iter().map(of).max().unwrap());
            high - low + 1
        };
        let (shown, long) = ((extent(|p| p.0), extent(|p| p.1)), width.max(height));
        assert_eq!(inside.len() as u32, shown.0 * shown.1);
        assert!((160..=256).contains(&shown.0.max(shown.1)));
        assert!((shown.0 * height).abs_diff(shown.1 * width) <= long, "{width} x {height} became {shown:?}");
    }
}

#[test]
fn a_sheet_survives_names_of_any_length_and_script() {
    let mut set = maps((1, 1), (8, 8), mixed);
    let seen = red(32, 32);
    let width = draw_sheet(&set, Style::default(), &seen).width();
    let long = "x".repeat(5000);
    for text in ["", "ネコ.png", "e\u{301}\u{0}\n\t", &long] {
        set.title = text.to_owned();
        let drawing = Drawing::new(&set, Style::default()).unwrap();
        let file = sheet::file(&drawing, &Caption { seen: &seen, picture: text, model: text }).unwrap();
        assert_eq!(decode(&file).width(), width);
    }
}

#[test]
fn a_sheet_of_absurdly_many_maps_is_refused_in_one_sentence() {
    let set = maps((40_000, 1), (2, 2), mixed);
    let drawing = Drawing::new(&set, Style::default()).unwrap();
    let error = sheet::file(&drawing, &Caption { seen: &red(2, 2), picture: "", model: "" }).unwrap_err().to_string();
    assert!(error.contains("cls-grid.png") && error.contains("fewer layers"), "{error}");
}

#[test]
fn strokes_are_cut_off_at_the_edge_of_the_canvas() {
    let black = Rgb([0; 3]);
    let mut canvas = Canvas::new(20, 10);
    canvas.fill_rect(Rect { x: -5, y: -5, width: 7, height: 8 }, black);
    canvas.fill_rect(Rect { x: 18, y: 8, width: u32::MAX, height: u32::MAX }, black);
    canvas.frame(Rect { x: 100, y: 100, width: 5, height: 5 }, black);
    canvas.blit(-3, 9, &RgbImage::from_pixel(5, 5, black));
    canvas.text((15, 0), "xyz", TextStyle { size: 1000.0, colour: Rgb([255; 3]), anchor: Anchor::Left });
    assert_eq!(count(&canvas.into_image(), black), 2 * 3 + 2 * 2 + 2);
}

#[test]
fn a_line_covers_its_own_pixels_and_fades_at_its_sides() {
    let mut canvas = Canvas::new(30, 30);
    canvas.line((5.0, 10.0), (24.0, 10.0), (3.0, Rgb([0; 3])));
    canvas.line((-50.0, -50.0), (80.0, 80.0), (1.0, Rgb([255, 0, 0])));
    canvas.line((2.0, 25.0), (2.0, 25.0), (2.0, Rgb([0, 0, 255])));
    let image = canvas.into_image();
    assert!((17..24).all(|x| (9..=11).all(|y| image.get_pixel(x, y).0 == [0; 3])));
    assert!((17..24).all(|x| image.get_pixel(x, 7).0 == [255; 3] && image.get_pixel(x, 13).0 == [255; 3]));
    assert!((0..30).all(|at| image.get_pixel(at, at).0 == [255, 0, 0]));
    assert_eq!(image.get_pixel(2, 25).0, [0, 0, 255]);
}

#[test]
fn numbers_on_a_scale_are_short_and_tell_its_marks_apart() {
    for (values, expected) in [
        (&[0.0021, 0.31][..], &["0.0021", "0.31"][..]),
        (&[0.0, 0.25, 0.5, 0.75, 1.0], &["0", "0.25", "0.50", "0.75", "1.0"]),
        (&[0.0, 1.0], &["0", "1.0"]),
        (&[1.0e-6, 1.2e-5], &["1.0e-6", "1.2e-5"]),
        (&[0.01550, 0.01575], &["0.01550", "0.01575"]),
        (&[0.0996, 0.2], &["0.10", "0.20"]),
        (&[-1.0, 1.0], &["-1.0", "1.0"]),
        (&[0.0, 2.0e9], &["0", "2.0e9"]),
        (&[0.5, 0.5], &["0.50", "0.50"]),
        (&[], &[]),
    ] {
        assert_eq!(numbers::labels(values), expected);
    }
    assert_eq!(numbers::short(1.0 / 197.0), "0.0051");
    assert_eq!(numbers::short(1.234e-5), "1.2e-5");
    assert_eq!(numbers::short(f32::NAN), "NaN");
}

#[test]
fn text_is_drawn_where_its_anchor_says_and_is_as_wide_as_measured() {
    let ink = |text: &str, anchor: Anchor| {
        let mut canvas = Canvas::new(200, 40);
        canvas.text((100, 20), text, TextStyle { size: 16.0, colour: Rgb([0; 3]), anchor });
        let image = canvas.into_image();
        let dark: Vec<_> = image.enumerate_pixels().filter(|(.., p)| p.0[0] < 128).map(|(x, y, _)| (x, y)).collect();
        let span =
            |of: fn(&(u32, u32)) -> u32| (dark.iter().map(of).min().unwrap(), dark.iter().map(of).max().unwrap());
        (span(|p| p.0), span(|p| p.1))
    };
    let width = text_width("HHHH", 16.0);
    let (left, up_down) = ink("HHHH", Anchor::Left);
    let (right, _) = ink("HHHH", Anchor::Right);
    let (centre, _) = ink("HHHH", Anchor::Centre);
    assert!((100..104).contains(&left.0) && (95 + width..=100 + width).contains(&left.1), "{left:?} {width}");
    assert!((96..100).contains(&right.1) && (centre.0 + centre.1).abs_diff(199) <= 3, "{right:?} {centre:?}");
    assert!(
        (up_down.0 + up_down.1).abs_diff(39) <= 2 && (11..=13).contains(&(up_down.1 - up_down.0 + 1)),
        "{up_down:?}"
    );
}

#[test]
fn the_font_has_every_sign_that_the_figures_write() {
    // A missing sign is drawn as a question mark, so it would be exactly as wide.
    let unknown = text_width(&"\u{2603}".repeat(64), 16.0);
    assert_eq!(unknown, text_width(&"?".repeat(64), 16.0));
    for sign in (' '..='~').chain("×·–…≤≥°±→−".chars()).filter(|sign| *sign != '?') {
        let width = text_width(&sign.to_string().repeat(64), 16.0);
        let like_unknown = ['$', '0'];
        assert!(width > 0 && (width != unknown || like_unknown.contains(&sign)), "{sign} is missing");
    }
}

#[test]
fn a_text_that_is_too_long_ends_in_an_ellipsis() {
    assert_eq!(shorten("short", 14.0, 100), "short");
    let cut = shorten("a name that goes on and on", 14.0, 100);
    assert!(cut.ends_with('…') && cut.starts_with("a name") && text_width(&cut, 14.0) <= 100, "{cut}");
    assert_eq!(shorten("anything", 14.0, 0), "…");
}

#[test]
fn the_npy_file_holds_the_raw_weights_of_all_maps() {
    let mut set = maps((2, 3), (4, 5), mixed);
    set.view = "mean".into();
    let file = npy::file(&set).unwrap();
    assert_eq!(file.name, "mean.npy");
    let array = npyz::NpyFile::new(file.bytes.as_slice()).unwrap();
    assert_eq!((array.shape(), array.order()), (&[2, 3, 4, 5][..], npyz::Order::C));
    let values: Vec<f32> = array.into_vec().unwrap();
    let expected: Vec<f32> = set.maps.iter().flat_map(|map| map.values.clone()).collect();
    assert_eq!(values, expected);
}

/// Attention of 2 heads over CLS, a register and 2 x 3 patches, in layers 1 and 3.
fn record() -> AttentionRecord {
    let layer = |layer: usize| LayerAttention {
        layer,
        queries: (0..8).collect(),
        keys: 8,
        weights: (0..2 * 8 * 8).map(|index| (layer * 1000 + index) as f32).collect(),
    };
    let tokens = TokenLayout { prefix: vec!["CLS".into(), "REG0".into()], grid: (2, 3) };
    AttentionRecord { tokens, layers: vec![layer(1), layer(3)] }
}

#[test]
fn the_safetensors_file_holds_one_whole_tensor_a_layer_and_says_what_the_tokens_are() {
    let file = tensors::file(&record(), None).unwrap();
    assert_eq!(file.name, "attention.safetensors");
    let parsed = safetensors::SafeTensors::deserialize(&file.bytes).unwrap();
    assert_eq!(parsed.len(), 2);
    for layer in &record().layers {
        let tensor = parsed.tensor(&format!("attention.{}", layer.layer)).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (safetensors::Dtype::F32, &[2, 8, 8][..]));
        let numbers = tensor.data().chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        assert!(numbers.eq(layer.weights.iter().copied()));
    }
    let (_, header) = safetensors::SafeTensors::read_metadata(&file.bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    for (key, value) in
        [("axes", "head,query,key"), ("prefix_tokens", "CLS,REG0"), ("grid_rows", "2"), ("grid_cols", "3")]
    {
        assert_eq!(metadata.get(key).map(String::as_str), Some(value));
    }
}

#[test]
fn the_safetensors_file_is_refused_when_query_rows_were_dropped() {
    let mut partial = record();
    partial.layers[1].queries = vec![0];
    partial.layers[1].weights.truncate(2 * 8);
    let error = tensors::file(&partial, None).unwrap_err().to_string();
    assert!(error.contains("layer 3") && error.contains("1 x 8"), "{error}");
    let mut ragged = record();
    ragged.layers[0].weights.pop();
    assert!(tensors::file(&ragged, None).unwrap_err().to_string().contains("layer 1"));
}
