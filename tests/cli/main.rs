//! The program as a person at a shell meets it: what it prints, what it writes, how it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failed unwrap is the failure")]

#[path = "../common/mod.rs"]
mod common;

mod errors;
mod help;
mod hub;
mod looks;
mod run;
mod train;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// A file of `assets/`.
fn asset(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(name).to_str().unwrap().to_owned()
}

/// A file of `tests/fixtures/`.
fn fixture(name: &str) -> String {
    common::fixture(name).to_str().unwrap().to_owned()
}

/// An empty folder to work in.
struct Place(TempDir);

/// How a command ended.
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Place {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program, to be started here.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vit-attn"));
        command.args(arguments).current_dir(self.0.path());
        for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS"] {
            command.env_remove(variable);
        }
        // Drivers look for a display here, and say so on stderr where the variable is not set.
        command.env("XDG_RUNTIME_DIR", self.0.path()).stdin(Stdio::null());
        command
    }

    fn vit(&self, arguments: &[&str]) -> Ended {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs what should go well.
    fn ok(&self, arguments: &[&str]) -> Ended {
        let ended = self.vit(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.err);
        ended
    }

    /// Runs what should be refused with exit code `code` and exactly one `vit-attn: error:` line, which is returned.
    fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let ended = self.vit(arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.err);
        assert_eq!(ended.out, "", "{arguments:?}");
        let mut errors = ended.err.lines().filter_map(|line| line.strip_prefix("vit-attn: error: "));
        let error = errors.next().unwrap_or_else(|| panic!("{arguments:?}: no error line in {}", ended.err));
        assert_eq!(errors.next(), None, "{arguments:?}: {}", ended.err);
        assert!(ended.err.ends_with(&format!("{error}\n")), "{arguments:?}: the error is not the last line");
        error.to_owned()
    }

    /// The names of what lies in a folder, hidden files too.
    fn files(&self, folder: &str) -> BTreeSet<String> {
        let names = fs::read_dir(self.path(folder)).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn manifest(&self, folder: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(folder).join("manifest.json")).unwrap()).unwrap()
    }

    fn image(&self, file: &str) -> image::RgbImage {
        image::open(self.path(file)).unwrap().into_rgb8()
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
