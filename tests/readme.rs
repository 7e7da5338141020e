//! Every command of the README, run as it stands.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failed unwrap is the failure")]

use std::{fs, path::Path, process::Command};

/// The shell lines of the README, in order, without their comments.
fn commands() -> Vec<String> {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(|block| block.lines().map(|line| line.split(" #").next().unwrap_or_default().trim()));
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// A folder with what the commands name: a photo, a few classes of pictures, the assets and fixtures.
fn workplace() -> tempfile::TempDir {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = tempfile::tempdir().unwrap();
    fs::copy(root.join("assets/rocket.jpg"), place.path().join("photo.jpg")).unwrap();
    for (class, value) in [("dark", 40), ("light", 200)] {
        let folder = place.path().join("photos").join(class);
        fs::create_dir_all(&folder).unwrap();
        for index in 0..6 {
            let picture = image::RgbImage::from_pixel(20, 16, image::Rgb([value + index, value, value]));
            picture.save(folder.join(format!("{index}.png"))).unwrap();
        }
    }
    #[cfg(unix)]
    for folder in ["assets", "tests"] {
        std::os::unix::fs::symlink(root.join(folder), place.path().join(folder)).unwrap();
    }
    place
}

#[test]
fn the_readme_opens_with_the_command_that_runs_and_the_command_that_tests() {
    assert_eq!(commands()[..2], ["cargo run --release -- run assets/cat.png", "cargo test --release"]);
}

#[test]
#[cfg(unix)]
fn every_command_of_the_readme_does_its_job() {
    let place = workplace();
    let mut ran = 0;
    for command in commands() {
        let arguments = match command.split_once(' ') {
            Some(("vit-attn", arguments)) => arguments,
            // `cargo run` is this binary, `cargo test` is what runs just now, and installing is a build of its own.
            Some(("cargo", rest)) => match rest.strip_prefix("run --release -- ") {
                Some(arguments) => arguments,
                None => {
                    assert!(["test --release", "install --path ."].contains(&rest), "untested command: {command}");
                    continue;
                }
            },
            _ => panic!("untested command: {command}"),
        };
        let output = Command::new(env!("CARGO_BIN_EXE_vit-attn"))
            .args(arguments.split_whitespace())
            .current_dir(place.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        ran += 1;
    }
    assert!(ran >= 10, "only {ran} commands were found");
    assert!(place.path().join("cat-attention/cls-grid.png").is_file());
    assert!(place.path().join("my-vit/model.safetensors").is_file());
}
