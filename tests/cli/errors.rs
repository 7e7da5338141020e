//! What cannot be done: one sentence, the right exit code, nothing half-written.

use std::{fs, process::Stdio};

use super::{Place, asset, fixture, set};

#[test]
fn a_command_line_that_cannot_be_read_is_a_usage_error_that_names_the_argument() {
    let place = Place::new();
    let cat = asset("cat.png");
    let bad: [(&[&str], &str); 17] = [
        (&["--heads-per-layer", "0"], "--heads-per-layer <N>': expected a number from 1"),
        (&["--layers", "x"], "--layers"),
        (&["--layers", ""], "--layers"),
        (&["--heads", "1,,2"], "--heads"),
        (&["--view", "cows"], "--view"),
        (&["--view", "patch=1"], "--view"),
        (&["--view", "patch=-1,0"], "--view"),
        (&["--view", "at=nan,1"], "--view"),
        (&["--view", "at=1,inf"], "--view"),
        (&["--backend", "cuda"], "--backend"),
        (&["--device", "-1"], "-1"),
        (&["--format", "jpg"], "--format"),
        (&["--colormap", "jet"], "--colormap"),
        (&["--scale", "1,0"], "--scale"),
        (&["--clip", "90,10"], "--clip"),
        (&["--upsample", "cubic"], "--upsample"),
        (&["--unknown"], "--unknown"),
    ];
    for (arguments, named) in bad {
        let ended = place.vit(&[&["run", &cat], arguments].concat());
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{arguments:?}: {}", ended.err);
        let first = ended.err.lines().next().unwrap();
        assert!(first.starts_with("error: ") && first.contains(named), "{arguments:?}: {}", ended.err);
    }
    assert_eq!(place.vit(&["run"]).code, Some(2));
    assert_eq!(place.vit(&["fly"]).code, Some(2));
    assert!(place.files(".").is_empty(), "nothing may be written");
}

#[test]
fn a_value_that_does_not_fit_the_model_or_picture_is_a_usage_error_that_tells_what_would() {
    let place = Place::new();
    let cat = asset("cat.png");
    let bad: [(&[&str], &[&str]); 11] = [
        (&["--heads-per-layer", "2"], &["--heads-per-layer 2: ", "a layer has 4 heads"]),
        (&["--layers", "4"], &["--layers 4: ", "0 to 3"]),
        (&["--layers", "2-1"], &["--layers 2-1: ", "backwards; write 1-2"]),
        (&["--heads", "0,-5"], &["--heads 0,-5: ", "4 heads, so 0 to 3"]),
        (&["--view", "patch=8,0"], &["--view patch=8,0: ", "8 rows and 8 columns"]),
        (&["--view", "probe"], &["--view probe: ", "no probe", "cls"]),
        (&["--view", "at=451,0"], &["--view at=451,0: ", "outside", "451x300"]),
        (&["--view", "at=-1,0"], &["--view at=-1,0: ", "outside"]),
        (&["--backend", "flex", "--device", "0"], &["--device 0: ", "flex"]),
        (&["--backend", "ndarray", "--device", "0"], &["--device 0: ", "ndarray"]),
        (&["--backend", "wgpu", "--device", "999"], &["--device 999: ", "adapter"]),
    ];
    for (arguments, parts) in bad {
        let error = place.refused(2, &[&["run", &cat], arguments].concat());
        assert!(parts.iter().all(|part| error.contains(part)), "{arguments:?}: {error}");
    }
    assert!(place.files(".").is_empty(), "nothing may be written");
}

#[test]
fn pictures_that_would_overwrite_each_other_are_refused_before_anything_is_written() {
    let place = Place::new();
    fs::create_dir(place.path("b")).unwrap();
    let cat = asset("cat.png");
    fs::copy(&cat, place.path("b/cat.png")).unwrap();
    for out in [&["-o", "maps"][..], &[]] {
        let error = place.refused(2, &[&["run", &cat, "b/cat.png"], out].concat());
        assert!(error.contains("cat-attention: ") && error.contains("b/cat.png"), "{error}");
    }
    assert_eq!(place.files("."), set(&["b"]));
}

#[test]
fn every_bad_picture_gets_one_sentence_that_names_it_and_leaves_no_folder_behind() {
    let place = Place::new();
    let refused = fs::read_dir(fixture("pictures/refused")).unwrap();
    let mut bad: Vec<(String, &str)> =
        refused.map(|entry| (entry.unwrap().path().to_str().unwrap().to_owned(), "")).collect();
    let whole = fs::read(asset("rocket.jpg")).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        fs::write(place.path(name), bytes).unwrap();
        name.to_owned()
    };
    bad.push((write("cut.jpg", &whole[..whole.len() / 2]), "is cut short"));
    bad.push((write("cut.png", &fs::read(asset("cat.png")).unwrap()[..10_000]), "is cut short"));
    bad.push((write("zero.gif", b""), "is empty"));
    bad.push((write("text.jpg", b"Dear diary"), "is not a picture"));
    bad.push(("missing.png".to_owned(), "no such file"));
    fs::create_dir(place.path("folder.png")).unwrap();
    bad.push(("folder.png".to_owned(), "is a directory"));
    bad.push((".".to_owned(), "is a directory"));
    assert!(bad.len() >= 20, "only {} bad pictures", bad.len());
    for (path, part) in bad {
        let error = place.refused(1, &["run", &path, "-o", "out"]);
        assert!(error.starts_with(&format!("{path}: ")) && error.contains(part), "{error}");
        assert!(!error.to_lowercase().contains("panic") && error.len() < path.len() + 250, "{error}");
        assert!(!place.path("out").exists(), "{path} left a folder");
    }
}

#[test]
fn a_model_that_cannot_be_opened_gets_one_sentence_that_names_it() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).unwrap();
    fs::write(place.path("notes.txt"), "no weights").unwrap();
    for (model, part) in [("missing", "cannot be opened"), ("empty", "holds no weights"), ("notes.txt", "")] {
        let error = place.refused(1, &["run", &asset("cat.png"), "-m", model]);
        assert!(error.starts_with(model) && error.contains(part), "{error}");
    }
}

#[test]
fn an_output_folder_that_cannot_be_is_refused_with_its_name() {
    let place = Place::new();
    fs::write(place.path("file"), "mine").unwrap();
    for out in ["file", "file/below"] {
        let error = place.refused(1, &["run", &asset("cat.png"), "-o", out]);
        assert!(error.starts_with(&format!("{out}: ")), "{error}");
    }
    assert_eq!(fs::read_to_string(place.path("file")).unwrap(), "mine");
}

#[test]
fn a_run_that_cannot_finish_leaves_no_manifest_and_nothing_half_written() {
    let place = Place::new();
    place.ok(&["run", &asset("cat.png"), "-o", "out"]);
    // What a forced run must write is now a folder that cannot be replaced.
    fs::remove_file(place.path("out/cls-L03-H01.png")).unwrap();
    fs::create_dir_all(place.path("out/cls-L03-H01.png/full")).unwrap();
    let error = place.refused(1, &["run", &asset("cat.png"), "-o", "out", "--force"]);
    assert!(error.starts_with("out/cls-L03-H01.png: cannot be written"), "{error}");
    let files = place.files("out");
    assert!(!files.contains("manifest.json"), "the earlier manifest would vouch for a mixture: {files:?}");
    assert!(!files.iter().any(|name| name.starts_with('.')), "a temporary file is left: {files:?}");
    for file in files.iter().filter(|name| *name != "cls-L03-H01.png") {
        assert!(place.image(&format!("out/{file}")).width() > 0, "{file} is not whole");
    }
}

#[test]
#[cfg(unix)]
fn a_folder_without_permission_to_write_stays_as_it_is() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    fs::create_dir(place.path("out")).unwrap();
    fs::set_permissions(place.path("out"), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(place.path("out/probe"), "").is_ok() {
        eprintln!("SKIPPED: this user may write everywhere");
        return;
    }
    let error = place.refused(1, &["run", &asset("cat.png"), "-o", "out"]);
    assert!(error.starts_with("out: no file can be written into this directory"), "{error}");
    assert!(place.files("out").is_empty());
    let error = place.refused(1, &["run", &asset("cat.png"), "-o", "out/below"]);
    assert!(error.starts_with("out/below: the directory cannot be made"), "{error}");
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let place = Place::new();
    let (cat, coffee) = (asset("cat.png"), asset("coffee.jpg"));
    let commands: [&[&str]; 6] = [
        &["run", &cat, &coffee],
        &["run", &cat, "--json", "-o", "json"],
        &["devices"],
        &["devices", "--json"],
        &["completions", "bash"],
        &["--help"],
    ];
    for arguments in commands {
        let mut child = place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Closed before the program can have written, as by `| head -0`; stderr too, as by `2>&1 | head -0`.
        drop((child.stdout.take(), child.stderr.take()));
        assert_eq!(child.wait().unwrap().code(), Some(0), "{arguments:?}");
    }
    for folder in ["cat-attention", "coffee-attention", "json"] {
        assert!(place.path(folder).join("manifest.json").is_file(), "{folder} was not finished");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_behind_stdout_is_a_failure() {
    let place = Place::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = place.command(&["completions", "zsh"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("vit-attn: error: standard output: cannot be written"), "{error}");
}

#[test]
fn nothing_but_plain_text_is_printed_when_nobody_sits_at_a_terminal() {
    let place = Place::new();
    let (cat, coffee) = (asset("cat.png"), asset("coffee.jpg"));
    let commands: [&[&str]; 5] = [
        &["run", &cat, &coffee, "--layers", "all", "--overlay"],
        &["run", "missing.png"],
        &["run", &cat, "--view", "cows"],
        &["run", "--help"],
        &["devices"],
    ];
    for arguments in commands {
        let ended = place.vit(arguments);
        for text in [ended.out, ended.err] {
            let control = |c: char| c.is_control() && c != '\n';
            assert!(!text.contains(control), "{arguments:?}: {text:?}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn without_a_graphics_driver_auto_takes_the_cpu_and_wgpu_says_what_to_install() {
    let place = Place::new();
    let vit = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        // Neither Vulkan nor OpenGL finds a driver then.
        for variable in ["VK_ICD_FILENAMES", "VK_DRIVER_FILES", "__EGL_VENDOR_LIBRARY_FILENAMES"] {
            command.env(variable, "/nonexistent");
        }
        let output = command.env("LIBGL_DRIVERS_PATH", "/nonexistent").output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (_, listed, _) = vit(&["devices"]);
    if !listed.contains("  none; install") {
        eprintln!("SKIPPED: this machine finds an adapter all the same: {listed}");
        return;
    }
    assert!(listed.contains("auto takes flex, since there is no graphics adapter"), "{listed}");
    let (code, _, err) = vit(&["run", &asset("cat.png")]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("vit-attn: no GPU found, so using the CPU (flex)\n"), "{err}");
    let (code, out, err) = vit(&["run", &asset("cat.png"), "--backend", "wgpu", "-o", "out"]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("vit-attn: error: backend wgpu: no graphics adapter found; install"), "{err}");
}

#[test]
fn a_file_that_is_no_earlier_runs_is_never_written_over() {
    let place = Place::new();
    let photo = fs::read(asset("cat.png")).unwrap();
    for (name, arguments) in [
        ("input.png", &["run", "out/input.png", "-o", "out"][..]),
        ("input.png", &["run", "out/input.png", "-o", "out", "--force"]),
        ("cls-L03-H03.png", &["run", "out/cls-L03-H03.png", "-o", "out"]),
        ("differences.png", &["compare", "out/differences.png", "--backends", "flex,ndarray", "-o", "out"]),
    ] {
        let out = place.path("out");
        fs::remove_dir_all(&out).ok();
        fs::create_dir(&out).unwrap();
        fs::write(out.join(name), &photo).unwrap();
        let error = place.refused(1, arguments);
        assert!(error.contains(name) && error.contains("already"), "{error}");
        assert!(fs::read(out.join(name)).unwrap() == photo, "{name} was written over");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 1, "a run that failed left files");
    }
}

#[test]
fn a_picture_that_an_earlier_run_wrote_is_not_taken_away_to_be_shown() {
    let place = Place::new();
    place.ok(&["run", &asset("cat.png"), "-o", "out"]);
    let (files, input) = (place.files("out"), fs::read(place.path("out/input.png")).unwrap());
    let error = place.refused(1, &["run", "out/input.png", "-o", "out", "--force"]);
    assert!(error.contains("input.png") && error.contains("--out"), "{error}");
    assert!(place.files("out") == files && fs::read(place.path("out/input.png")).unwrap() == input);
}

#[test]
fn attention_that_no_memory_holds_is_refused_before_it_is_computed() {
    let place = Place::new();
    let error = place.refused(1, &["run", &asset("cat.png"), "-o", "out", "--size", "2048", "--view", "mean"]);
    assert!(error.contains("GB of memory are free") && error.contains("--size"), "{error}");
    assert!(!place.path("out").exists());
    let error = place.refused(1, &["compare", &asset("cat.png"), "--size", "2048", "--backends", "flex,ndarray"]);
    assert!(error.contains("GB of memory are free"), "{error}");
}
