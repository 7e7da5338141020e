//! Who may import whom, and who may touch the world: the table of the architecture, held against the source.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failed unwrap is the failure")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Every module of the library with the modules and the crates that it may use; `std`, `serde` and `thiserror` are free.
const MODULES: [(&str, &[&str], &[&str]); 15] = [
    ("error", &[], &[]),
    ("select", &["error"], &[]),
    ("map", &[], &[]),
    ("record", &["error"], &["rayon"]),
    ("picture", &["error"], &["image", "sha2"]),
    ("device", &["error"], &["burn", "burn_wgpu", "pollster"]),
    ("model", &["error", "record"], &["burn", "burn_flex", "pulp", "rand", "rand_distr", "rayon"]),
    (
        "checkpoint",
        &["error", "map", "model", "picture"],
        &["half", "pytorch_reader", "safetensors", "serde_json", "sha2", "zip"],
    ),
    ("inspect", &["device", "error", "model", "record"], &["burn", "rayon"]),
    ("reference", &["checkpoint", "error", "record"], &[]),
    ("compare", &["error", "map", "record"], &[]),
    ("views", &["error", "map", "picture", "record"], &[]),
    (
        "render",
        &["device", "error", "map", "model", "picture", "record"],
        &["ab_glyph", "colorous", "image", "npyz", "safetensors", "serde_json"],
    ),
    (
        "train",
        &["error", "inspect", "map", "model", "picture", "render"],
        &["burn", "image", "safetensors", "serde_json"],
    ),
    (
        "cli",
        &[
            "checkpoint",
            "compare",
            "device",
            "error",
            "inspect",
            "map",
            "model",
            "picture",
            "record",
            "reference",
            "render",
            "select",
            "train",
            "views",
        ],
        &["anyhow", "clap", "clap_complete", "ctrlc", "indicatif", "rayon", "serde_json", "sha2", "tempfile", "ureq"],
    ),
];

/// What only the named files and folders of `src/` may say.
const RESERVED: [(&str, &[&str]); 18] = [
    ("fs::write", &["cli"]),
    ("fs::create_dir", &["cli"]),
    ("fs::remove", &["cli"]),
    ("fs::rename", &["cli"]),
    ("fs::copy", &["cli"]),
    ("File::create", &["cli"]),
    ("File::options", &["cli"]),
    ("OpenOptions", &["cli"]),
    ("stdout(", &["cli"]),
    ("stderr(", &["cli"]),
    ("process::exit", &[]),
    // These panic where nobody reads; `cli/talk.rs` does not.
    ("print!(", &[]),
    ("println!(", &[]),
    // In ndarray's name only: burn has deprecated that backend.
    ("allow(deprecated", &["device.rs", "model/kernels.rs"]),
    ("cfg(feature", &["device.rs", "cli/hub.rs"]),
    // It panics where an environment variable is wrong.
    ("Device::default()", &[]),
    (".unwrap()", &[]),
    (".expect(", &[]),
];

/// One file of `src/`, with comments and tests left out.
struct Source {
    /// Path below `src/`.
    name: String,
    code: String,
}

impl Source {
    fn read(path: &Path, root: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        let code = text.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line });
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
        Self { name, code: code.collect::<Vec<_>>().join("\n") }
    }

    /// The module of the library that the file belongs to; none for `lib.rs` and `main.rs`.
    fn module(&self) -> Option<&str> {
        let module = self.name.split('/').next().unwrap().trim_end_matches(".rs");
        (!["lib", "main"].contains(&module)).then_some(module)
    }

    /// Whether the file is `place`, or lies in the folder `place`.
    fn is_in(&self, place: &str) -> bool {
        self.name.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Where `word` begins, other than inside a longer name or path.
    fn find<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let is_alone = |&at: &usize| !self.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        self.code.match_indices(word).map(|(at, _)| at).filter(is_alone)
    }

    /// `src/name.rs:line` of a place in the code.
    fn place(&self, at: usize) -> String {
        format!("src/{}:{}", self.name, self.code[..at].matches('\n').count() + 1)
    }

    /// The modules of our own that the file names after `crate::`, and where.
    fn own_imports(&self) -> Vec<(usize, &str)> {
        let mut found = Vec::new();
        for at in self.find("crate::") {
            let start = at + "crate::".len();
            let rest = &self.code[start..];
            if !rest.starts_with('{') {
                found.push((at, name(rest)));
                continue;
            }
            // A group: the names at its top level.
            let (mut depth, mut is_next) = (0, false);
            for (offset, c) in rest.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ if is_next && c.is_alphabetic() => found.push((start + offset, name(&rest[offset..]))),
                    _ => {}
                }
                is_next = depth == 1 && (matches!(c, '{' | ',') || is_next && c.is_whitespace());
                if depth == 0 {
                    break;
                }
            }
        }
        found
    }
}

/// The identifier that `text` begins with.
fn name(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap()
}

/// Every file of `src/`.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut files = Vec::<PathBuf>::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files.iter().map(|path| Source::read(path, &root)).collect()
}

/// The crates that `Cargo.toml` names, as code spells them.
fn dependencies() -> Vec<String> {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let table = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let names = table.lines().filter_map(|line| Some(line.split_once(" = ")?.0.replace('-', "_")));
    names.filter(|name| !name.starts_with('#') && !["serde", "thiserror"].contains(&name.as_str())).collect()
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn modules_use_only_the_modules_and_crates_that_the_architecture_gives_them() {
    let crates = dependencies();
    let mut faults = Vec::new();
    for source in sources() {
        let Some(module) = source.module() else { continue };
        let Some((_, modules, may_use)) = MODULES.iter().find(|(name, ..)| *name == module) else {
            faults.push(format!("src/{}: module {module} is not in this test's table", source.name));
            continue;
        };
        for (at, other) in source.own_imports() {
            if other != module && !modules.contains(&other) {
                faults.push(format!("{}: {module} may not use crate::{other}", source.place(at)));
            }
        }
        for name in crates.iter().filter(|name| !may_use.contains(&name.as_str())) {
            let path = format!("{name}::");
            faults.extend(source.find(&path).map(|at| format!("{}: {module} may not use {name}", source.place(at))));
        }
        // Two of them would reach a module past this test.
        faults.extend(source.find("super::super").map(|at| format!("{}: say crate:: instead", source.place(at))));
    }
    assert_none(&faults);
}

#[test]
fn the_table_is_no_wider_than_the_code() {
    let sources = sources();
    let mut faults = Vec::new();
    for (module, modules, crates) in MODULES {
        let own: Vec<&Source> = sources.iter().filter(|source| source.module() == Some(module)).collect();
        let imports: Vec<&str> =
            own.iter().flat_map(|source| source.own_imports()).map(|(_, imported)| imported).collect();
        faults.extend(modules.iter().filter(|name| !imports.contains(name)).map(|name| format!("{module}: {name}")));
        let is_used = |name: &str| own.iter().any(|source| source.find(&format!("{name}::")).next().is_some());
        faults.extend(crates.iter().filter(|name| !is_used(name)).map(|name| format!("{module}: {name}")));
    }
    assert_none(&faults);
}

#[test]
fn only_the_command_line_touches_the_world_and_nothing_panics_on_purpose() {
    let mut faults = Vec::new();
    for source in sources() {
        for (words, places) in RESERVED {
            if places.iter().any(|place| source.is_in(place)) {
                continue;
            }
            let found = source.code.match_indices(words);
            faults.extend(found.map(|(at, _)| format!("{}: {words} is not for this file", source.place(at))));
        }
    }
    assert_none(&faults);
}

#[test]
fn the_library_lists_its_modules_so_that_each_uses_only_those_above_it() {
    let library = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let order: Vec<&str> =
        library.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    let place = |name: &str| order.iter().position(|module| *module == name);
    for (module, modules, _) in MODULES {
        assert!(place(module).is_some(), "{module} is not in src/lib.rs");
        for other in modules {
            assert!(place(other) < place(module), "src/lib.rs: {module} uses {other}, which stands below it");
        }
    }
}
