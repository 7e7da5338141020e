//! Training data, batches and the training curve.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use image::{ImageFormat, Rgb, RgbImage};
use tempfile::TempDir;
use vit_attn::error::{Error, Result};
use vit_attn::picture::{Recipe, load};
use vit_attn::train::augment::{Augment, batch};
use vit_attn::train::curve::{self, Point};
use vit_attn::train::data::{Dataset, Split, open};
use vit_attn::train::random::{Epoch, Random, shuffle};

const CIFAR: (usize, usize) = (32, 32);

fn read(dir: &Path, size: (usize, usize)) -> Result<Split> {
    open(dir, size, 0.25, 7, &|_, _| {})
}

/// The message of the error that reading must end in, and the check that it is about data.
fn complaint(dir: &Path, size: (usize, usize)) -> String {
    let error = read(dir, size).unwrap_err();
    assert!(matches!(error, Error::Data { .. }), "{error:?}");
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

/// A record whose values tell channel, row and picture apart.
fn record(label: u8, mark: u8) -> Vec<u8> {
    let values = (0..3072).map(|at| (at / 1024 * 80 + at / 32 % 32) as u8 ^ mark);
    std::iter::once(label).chain(values).collect()
}

fn write_records(dir: &Path, name: &str, labels: impl IntoIterator<Item = u8>) {
    let bytes: Vec<u8> = labels.into_iter().enumerate().flat_map(|(at, label)| record(label, at as u8)).collect();
    fs::write(dir.join(name), bytes).unwrap();
}

/// A picture without two equal pixels beside each other, so that every shift and flip of it shows.
fn picture(width: u32, height: u32, mark: u8) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| Rgb([(x * 7 + 1) as u8, (y * 5 + 1) as u8, mark]))
}

fn write_picture(path: &Path, mark: u8) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    picture(20, 12, mark).save_with_format(path, ImageFormat::Png).unwrap();
}

/// Folders `cat` and `dog` below `root` with some pictures each.
fn write_cats_and_dogs(root: &Path, each: u8) {
    for (class, start) in [("cat", 0), ("dog", 100)] {
        for number in 0..each {
            write_picture(&root.join(class).join(format!("{number:03}.png")), start + number);
        }
    }
}

/// The third channel's first value of every picture, which [`picture`] marks it with.
fn marks(set: &Dataset) -> Vec<u8> {
    (0..set.len()).map(|index| set.picture(index)[2 * set.rows * set.cols]).collect()
}

fn one_of_each(rows: usize, cols: usize, pictures: usize) -> Dataset {
    let mut pixels = Vec::new();
    for index in 0..pictures {
        let image = picture(cols as u32, rows as u32, index as u8);
        (0..3).for_each(|channel| pixels.extend(image.pixels().map(|pixel| pixel.0[channel])));
    }
    Dataset { pixels, labels: (0..pictures).collect(), rows, cols }
}

#[test]
fn cifar_records_are_read_channel_first_with_the_test_batch_held_out() {
    let dir = TempDir::new().unwrap();
    write_records(dir.path(), "data_batch_1.bin", [3, 9]);
    write_records(dir.path(), "data_batch_2.bin", [0]);
    write_records(dir.path(), "test_batch.bin", [5, 1]);
    let split = read(dir.path(), CIFAR).unwrap();
    assert_eq!(split.train.labels, [3, 9, 0]);
    assert_eq!(split.train.picture(1), &record(9, 1)[1..]);
    assert_eq!(split.train.picture(2), &record(0, 0)[1..]);
    assert_eq!((split.held_out.labels.as_slice(), split.held_out_name), ([5, 1].as_slice(), "test"));
    assert_eq!(split.held_out.picture(1), &record(1, 1)[1..]);
    assert_eq!((split.classes.len(), split.classes[1].as_str(), split.classes[9].as_str()), (10, "car", "truck"));
    assert_eq!(split.notes.len(), 1);
    let missing = "is not all of CIFAR-10: data_batch_3.bin, data_batch_4.bin, data_batch_5.bin is missing";
    assert!(split.notes[0].ends_with(missing), "{:?}", split.notes);
    (3..=5).for_each(|number| write_records(dir.path(), &format!("data_batch_{number}.bin"), [1]));
    assert_eq!(read(dir.path(), CIFAR).unwrap().notes, Vec::<String>::new());
}

#[test]
fn cifar_class_names_come_from_the_meta_file_where_there_is_one() {
    let dir = TempDir::new().unwrap();
    write_records(dir.path(), "data_batch_1.bin", [0, 1, 1, 0]);
    fs::write(dir.path().join("batches.meta.txt"), "sun\r\nmoon\n\n").unwrap();
    assert_eq!(read(dir.path(), CIFAR).unwrap().classes, ["sun", "moon"]);
    write_records(dir.path(), "data_batch_2.bin", [0, 2]);
    assert!(
        complaint(dir.path(), CIFAR).contains("data_batch_2.bin: record 1 has label 2, and labels run from 0 to 1")
    );
    fs::write(dir.path().join("batches.meta.txt"), "\n").unwrap();
    assert!(complaint(dir.path(), CIFAR).contains("batches.meta.txt: names no class"));
}

#[test]
fn cifar_pictures_of_another_size_are_resized_like_any_picture() {
    let dir = TempDir::new().unwrap();
    write_records(dir.path(), "data_batch_1.bin", [0, 1]);
    write_records(dir.path(), "test_batch.bin", [0]);
    let split = read(dir.path(), (48, 40)).unwrap();
    let values = record(1, 1)[1..].to_vec();
    let image = RgbImage::from_fn(32, 32, |x, y| {
        Rgb([0, 1, 2].map(|channel: usize| values[channel * 1024 + y as usize * 32 + x as usize]))
    });
    let file = dir.path().join("one.png");
    image.save(&file).unwrap();
    let seen = Recipe::book(48, 40).apply(&load(&file).unwrap(), (8, 8)).unwrap().pixels;
    assert_eq!(batch(&split.train, &[1], None).pixels, seen);
}

#[test]
fn without_a_test_part_each_class_gives_its_share_chosen_by_the_seed() {
    let dir = TempDir::new().unwrap();
    let labels = (0..60).map(|at| if at < 40 { 2 } else { 6 });
    write_records(dir.path(), "data_batch_1.bin", labels);
    let split = read(dir.path(), CIFAR).unwrap();
    let of_class = |set: &Dataset, class| set.labels.iter().filter(|&&label| label == class).count();
    assert_eq!((of_class(&split.held_out, 2), of_class(&split.held_out, 6)), (10, 5));
    assert_eq!((of_class(&split.train, 2), of_class(&split.train, 6)), (30, 15));
    assert_eq!(split.held_out_name, "validation");
    assert!(split.notes[1].contains("15 of 60 pictures are held out"), "{:?}", split.notes);

    let first =
        |set: &Dataset| (0..set.len()).map(|index| (set.picture(index)[0], set.labels[index])).collect::<Vec<_>>();
    let mut all = [first(&split.train), first(&split.held_out)].concat();
    all.sort_unstable();
    assert_eq!(all, (0..60).map(|at| (at, if at < 40 { 2 } else { 6 })).collect::<Vec<_>>());
    assert_eq!(read(dir.path(), CIFAR).unwrap().held_out, split.held_out);
    let other = open(dir.path(), CIFAR, 0.25, 8, &|_, _| {}).unwrap();
    assert_ne!(other.held_out, split.held_out);
}

#[test]
fn a_share_keeps_one_picture_of_a_class_on_each_side() {
    let dir = TempDir::new().unwrap();
    write_cats_and_dogs(dir.path(), 3);
    write_picture(&dir.path().join("emu/only.png"), 50);
    for (share, held_out) in [(0.001, [0, 1]), (0.999, [0, 1])] {
        let split = open(dir.path(), (12, 20), share, 1, &|_, _| {}).unwrap();
        let mut classes = split.held_out.labels.clone();
        classes.dedup();
        assert_eq!(classes, held_out, "share {share}");
        assert_eq!(split.train.len() + split.held_out.len(), 7);
        assert!((0..3).all(|class| split.train.labels.contains(&class)), "share {share}: {:?}", split.train.labels);
    }
    for share in [0.0, 1.0, -0.1, f32::NAN, f32::INFINITY] {
        let error = open(dir.path(), (12, 20), share, 1, &|_, _| {}).unwrap_err();
        assert!(error.to_string().contains("--validation-share"), "{error}");
    }
}

#[test]
fn damaged_cifar_data_gets_one_sentence_that_names_the_file() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    write("test_batch.bin", &record(0, 0));
    assert!(complaint(dir.path(), CIFAR).contains("test_batch.bin: stands alone"));
    write("data_batch_1.bin", &[record(0, 0), vec![1; 3000]].concat());
    let message = complaint(dir.path(), CIFAR);
    assert!(message.contains("data_batch_1.bin: has 6073 bytes, not a multiple of the 3073"), "{message}");
    write("data_batch_1.bin", &[]);
    assert!(complaint(dir.path(), CIFAR).contains("data_batch_1.bin: is empty"));
    write("data_batch_1.bin", &[record(0, 0), record(10, 0)].concat());
    let message = complaint(dir.path(), CIFAR);
    assert!(message.contains("data_batch_1.bin: record 1 has label 10, and labels run from 0 to 9"), "{message}");
    write("data_batch_1.bin", &[record(4, 0), record(4, 1)].concat());
    assert!(complaint(dir.path(), CIFAR).contains("one class only, deer"));
    write("data_batch_1.bin", &[record(4, 0), record(5, 1)].concat());
    write("test_batch.bin", &[1; 10]);
    assert!(complaint(dir.path(), CIFAR).contains("test_batch.bin: has 10 bytes"));
    fs::remove_file(dir.path().join("test_batch.bin")).unwrap();
    fs::create_dir(dir.path().join("test_batch.bin")).unwrap();
    assert!(complaint(dir.path(), CIFAR).contains("test_batch.bin: is not a regular file"));
}

#[test]
fn folder_names_in_order_are_the_classes_and_pictures_are_what_the_model_will_see() {
    let dir = TempDir::new().unwrap();
    write_cats_and_dogs(dir.path(), 4);
    let split = read(dir.path(), (8, 6)).unwrap();
    assert_eq!(split.classes, ["cat", "dog"]);
    assert_eq!((split.train.len(), split.held_out.len(), split.held_out_name), (6, 2, "validation"));
    for set in [&split.train, &split.held_out] {
        for (index, mark) in marks(set).into_iter().enumerate() {
            let class = if mark < 100 { "cat" } else { "dog" };
            assert_eq!(split.classes[set.labels[index]], class);
            let file = dir.path().join(class).join(format!("{:03}.png", mark % 100));
            let seen = Recipe::book(8, 6).apply(&load(&file).unwrap(), (2, 2)).unwrap().pixels;
            assert_eq!(batch(set, &[index], None).pixels, seen);
        }
    }
}

#[test]
fn train_and_validation_folders_are_kept_apart_as_they_are() {
    for (folder, name) in
        [("val", "validation"), ("validation", "validation"), ("valid", "validation"), ("test", "test")]
    {
        let dir = TempDir::new().unwrap();
        write_cats_and_dogs(&dir.path().join("train"), 3);
        write_picture(&dir.path().join(folder).join("dog/a.png"), 200);
        let split = read(dir.path(), (12, 20)).unwrap();
        assert_eq!((split.train.len(), split.held_out_name), (6, name));
        assert_eq!((split.held_out.labels.as_slice(), marks(&split.held_out)), ([1].as_slice(), vec![200]));
    }
}

#[test]
fn validation_is_preferred_to_test_so_that_the_test_stays_unseen() {
    let dir = TempDir::new().unwrap();
    for (part, each) in [("train", 3), ("val", 2), ("test", 1)] {
        write_cats_and_dogs(&dir.path().join(part), each);
    }
    let split = read(dir.path(), (12, 20)).unwrap();
    assert_eq!((split.held_out.len(), split.held_out_name), (4, "validation"));
    assert_eq!(split.notes, [format!("{} is not used", dir.path().join("test").display())]);
}

#[test]
fn a_train_folder_alone_is_split_and_among_others_it_is_a_class() {
    let dir = TempDir::new().unwrap();
    write_cats_and_dogs(&dir.path().join("train"), 4);
    let split = read(dir.path(), (12, 20)).unwrap();
    assert_eq!((split.classes.as_slice(), split.held_out.len()), (["cat".into(), "dog".into()].as_slice(), 2));

    let dir = TempDir::new().unwrap();
    for class in ["train", "plane"] {
        (0..4).for_each(|mark| write_picture(&dir.path().join(class).join(format!("{mark}.png")), mark));
    }
    assert_eq!(read(dir.path(), (12, 20)).unwrap().classes, ["plane", "train"]);
}

#[test]
fn hidden_files_are_ignored_and_others_skipped_with_a_note() {
    let dir = TempDir::new().unwrap();
    write_cats_and_dogs(dir.path(), 4);
    for name in ["cat/.DS_Store", ".hidden.png"] {
        fs::write(dir.path().join(name), "x").unwrap();
    }
    fs::create_dir(dir.path().join(".git")).unwrap();
    assert_eq!(read(dir.path(), CIFAR).unwrap().notes.len(), 1);
    for name in ["README.md", "cat/boxes.xml"] {
        fs::write(dir.path().join(name), "x").unwrap();
    }
    let notes = read(dir.path(), CIFAR).unwrap().notes;
    assert!(notes[0].contains("2 entries") && notes[0].contains("README.md"), "{notes:?}");
}

#[test]
fn progress_counts_every_picture_once() {
    let dir = TempDir::new().unwrap();
    write_cats_and_dogs(&dir.path().join("train"), 5);
    write_cats_and_dogs(&dir.path().join("test"), 2);
    let calls = std::sync::Mutex::new(Vec::new());
    open(dir.path(), CIFAR, 0.1, 0, &|done, all| calls.lock().unwrap().push((done, all))).unwrap();
    let mut calls = calls.into_inner().unwrap();
    calls.sort_unstable();
    assert_eq!(calls, (1..=14).map(|done| (done, 14)).collect::<Vec<_>>());
}

#[test]
fn damaged_folders_get_one_sentence_that_names_the_file() {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    assert!(complaint(&root.join("nowhere"), CIFAR).contains("nowhere: no such directory"));
    assert!(complaint(root, CIFAR).contains("holds neither CIFAR-10's binary version"));
    write_picture(&root.join("loose.png"), 0);
    assert!(complaint(root, CIFAR).contains("holds neither CIFAR-10's binary version"));
    assert!(complaint(&root.join("loose.png"), CIFAR).contains("loose.png: is not a directory"));
    write_picture(&root.join("cat/a.png"), 0);
    assert!(complaint(root, CIFAR).contains("one class only, cat"));
    fs::create_dir(root.join("dog")).unwrap();
    assert!(complaint(root, CIFAR).contains("dog: this class folder holds no pictures"));
    write_picture(&root.join("dog/a.png"), 0);
    assert!(complaint(root, CIFAR).contains("has one picture a class"));

    let whole = fs::read(root.join("cat/a.png")).unwrap();
    fs::write(root.join("cat/b.png"), &whole[..whole.len() / 2]).unwrap();
    let message = complaint(root, CIFAR);
    assert!(message.contains("b.png") && message.contains("take it out of the data set"), "{message}");
    fs::write(root.join("cat/b.png"), "not a picture").unwrap();
    assert!(complaint(root, CIFAR).contains("b.png: is not a picture"));
}

#[test]
fn a_held_out_class_that_is_never_learnt_is_refused() {
    let dir = TempDir::new().unwrap();
    write_cats_and_dogs(&dir.path().join("train"), 1);
    write_picture(&dir.path().join("test/cow/a.png"), 0);
    let message = complaint(dir.path(), CIFAR);
    assert!(message.contains("cow: this class has no folder among the training pictures"), "{message}");
}

#[test]
fn sizes_that_no_memory_holds_are_refused_before_any_picture_is_decoded() {
    let dir = TempDir::new().unwrap();
    write_cats_and_dogs(dir.path(), 11);
    fs::write(dir.path().join("cat/000.png"), "never looked at").unwrap();
    let message = complaint(dir.path(), (8192, 8192));
    assert!(message.contains("22 pictures") && message.contains("4 GiB is the most"), "{message}");
    for size in [(0, 32), (32, 0), (8193, 32), (usize::MAX, usize::MAX)] {
        assert!(read(dir.path(), size).unwrap_err().to_string().contains("--image-size"));
    }
}

#[test]
fn a_batch_without_augmentation_holds_the_normalised_pictures_in_the_asked_order() {
    let data = one_of_each(4, 6, 5);
    let found = batch(&data, &[3, 0], None);
    assert_eq!(found.labels, [3, 0]);
    let expected = [data.picture(3), data.picture(0)].concat();
    let expected: Vec<f32> = expected.into_iter().map(|value| (f32::from(value) / 255.0 - 0.5) / 0.5).collect();
    assert_eq!(found.pixels, expected);
    assert!(batch(&data, &[], None).pixels.is_empty());
}

/// The picture shifted by `(down, right)` over zeros, then perhaps mirrored: the plain way, to compare with.
fn shifted(values: &[f32], (rows, cols): (usize, usize), (down, right): (i64, i64), flip: bool) -> Vec<f32> {
    let mut result = Vec::new();
    for plane in values.chunks(rows * cols) {
        for row in 0..rows as i64 {
            for col in 0..cols as i64 {
                let (row, col) = (row + down, if flip { cols as i64 - 1 - col } else { col } + right);
                let inside = (0..rows as i64).contains(&row) && (0..cols as i64).contains(&col);
                result.push(if inside { plane[(row * cols as i64 + col) as usize] } else { 0.0 });
            }
        }
    }
    result
}

#[test]
fn augmented_pictures_are_all_shifts_and_flips_over_zeros_and_nothing_else() {
    let (size, padding) = ((5, 7), 2);
    let data = one_of_each(size.0, size.1, 1500);
    let augment = Augment { crop_padding: padding, flip: true };
    let indices: Vec<usize> = (0..data.len()).collect();
    let plain = batch(&data, &indices, None).pixels;
    let changed = batch(&data, &indices, Some((augment, Epoch { seed: 3, number: 1 }))).pixels;
    let padding = i64::from(padding);
    let mut seen = std::collections::BTreeMap::new();
    for (plain, changed) in plain.chunks(data.stride()).zip(changed.chunks(data.stride())) {
        let places = (-padding..=padding).flat_map(|down| (-padding..=padding).map(move |right| (down, right)));
        let mut choices = places.flat_map(|place| [(place, false), (place, true)]);
        let found = choices.find(|&(place, flip)| shifted(plain, size, place, flip) == changed);
        *seen.entry(found.expect("neither a shift nor a flip")).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 50, "every shift with and without flip occurs");
    assert!(seen.values().all(|&times| (10..=60).contains(&times)), "about 30 times each: {seen:?}");
}

#[test]
fn padding_and_flip_can_be_turned_off_and_padding_may_exceed_the_picture() {
    let data = one_of_each(5, 7, 200);
    let indices: Vec<usize> = (0..data.len()).collect();
    let epoch = Epoch { seed: 3, number: 1 };
    let nothing = Augment { crop_padding: 0, flip: false };
    assert_eq!(batch(&data, &indices, Some((nothing, epoch))), batch(&data, &indices, None));
    for crop_padding in [20, u32::MAX] {
        let far = batch(&data, &indices, Some((Augment { crop_padding, flip: true }, epoch))).pixels;
        assert!(far.chunks(data.stride()).any(|picture| picture.iter().all(|&value| value == 0.0)));
    }
}

#[test]
fn what_happens_to_a_picture_depends_on_seed_epoch_and_index_only() {
    let data = one_of_each(9, 9, 40);
    let at =
        |indices: &[usize], seed, number| batch(&data, indices, Some((Augment::default(), Epoch { seed, number })));
    let all: Vec<usize> = (0..40).collect();
    let whole = at(&all, 5, 2);
    assert_eq!(at(&[17], 5, 2).pixels, whole.pixels[17 * data.stride()..][..data.stride()]);
    assert_eq!(at(&all, 5, 2), whole);
    assert_ne!(at(&all, 5, 3), whole);
    assert_ne!(at(&all, 6, 2), whole);
}

#[test]
fn an_epoch_visits_every_picture_once_in_an_order_of_its_own() {
    let order = shuffle(1000, Epoch { seed: 1, number: 0 });
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
    assert_ne!(order, sorted);
    assert_eq!(order, shuffle(1000, Epoch { seed: 1, number: 0 }));
    assert_ne!(order, shuffle(1000, Epoch { seed: 1, number: 1 }));
    assert_ne!(order, shuffle(1000, Epoch { seed: 2, number: 0 }));
    assert_eq!(shuffle(0, Epoch { seed: 1, number: 0 }), Vec::<usize>::new());
    assert_eq!(shuffle(1, Epoch { seed: 1, number: 0 }), [0]);
}

#[test]
fn random_numbers_are_those_of_the_published_generator_and_fill_their_range() {
    // The first outputs of SplitMix64 from state 0 are 0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f.
    let mut random = Random::new(&[]);
    let high = [0xe220_a839_u64, 0x6e78_9e6a, 0x06c4_5d18];
    assert_eq!([0; 3].map(|_: u64| random.below(1 << 32)), high);
    let mut counts = [0; 7];
    (0..7000).for_each(|_| counts[random.below(7) as usize] += 1);
    assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    assert_eq!(random.below(0), 0);
}

/// The two inks of the curve.
const INKS: [Rgb<u8>; 2] = [Rgb([0, 114, 178]), Rgb([213, 94, 0])];

fn decoded(points: &[Point]) -> RgbImage {
    let bytes = curve::png(points, "test").unwrap();
    image::load_from_memory_with_format(&bytes, ImageFormat::Png).unwrap().into_rgb8()
}

/// Mean row of the pixels of one ink inside `columns` and below the legend.
fn height(image: &RgbImage, ink: Rgb<u8>, columns: std::ops::Range<u32>) -> f64 {
    let rows: Vec<f64> = image
        .enumerate_pixels()
        .filter(|(x, y, pixel)| columns.contains(x) && *y > 40 && **pixel == ink)
        .map(|(_, y, _)| f64::from(y))
        .collect();
    assert!(!rows.is_empty(), "no {ink:?} in columns {columns:?}");
    rows.iter().sum::<f64>() / rows.len() as f64
}

#[test]
fn the_curve_falls_with_the_loss_and_rises_with_the_accuracy() {
    let points: Vec<Point> = (1..=30)
        .map(|epoch| Point {
            epoch,
            train_loss: 2.2 / (epoch as f32).sqrt(),
            held_out_loss: 2.4 / (epoch as f32).sqrt(),
            train_accuracy: epoch as f32 / 40.0,
            held_out_accuracy: epoch as f32 / 50.0,
        })
        .collect();
    let image = decoded(&points);
    let half = image.width() / 2;
    for ink in INKS {
        assert!(height(&image, ink, 70..120) + 50.0 < height(&image, ink, half - 130..half - 90));
        assert!(height(&image, ink, half + 70..half + 120) > height(&image, ink, half * 2 - 130..half * 2 - 90) + 50.0);
    }
    let end = half - 130..half - 90;
    assert!(height(&image, INKS[0], end.clone()) > height(&image, INKS[1], end), "the lower loss is drawn lower");
}

#[test]
fn a_curve_of_few_or_odd_values_is_still_a_picture() {
    let point = |epoch, value| Point {
        epoch,
        train_loss: value,
        held_out_loss: value,
        train_accuracy: value,
        held_out_accuracy: value,
    };
    let size = decoded(&[]).dimensions();
    let one = decoded(&[point(1, 0.5)]);
    assert!(one.pixels().filter(|pixel| **pixel == INKS[1]).count() > 100, "a lone epoch is a dot");
    for values in
        [[0.0, 0.0], [f32::NAN, 1.0], [1.0, f32::INFINITY], [f32::NAN; 2], [f32::MAX, f32::MIN], [1e-30, 2e-30]]
    {
        let points: Vec<Point> = (1..).zip(values).map(|(epoch, value)| point(epoch, value)).collect();
        assert_eq!(decoded(&points).dimensions(), size, "{values:?}");
    }
    assert_eq!(decoded(&[point(usize::MAX - 1, 1.0), point(usize::MAX, 2.0)]).dimensions(), size);
}
