//! Help, devices and completions.

use serde_json::Value;
use vit_attn::{
    device::BACKENDS,
    render::{Format, colormap::Colormap, upsample::Upsample},
    views::VIEWS,
};

use super::{Place, asset};

const COMMANDS: [&str; 4] = ["run", "train", "devices", "completions"];

#[test]
fn the_help_of_every_command_fits_a_screen_and_has_an_example() {
    let place = Place::new();
    let listed = place.ok(&["--help"]).out;
    for command in COMMANDS {
        assert!(listed.lines().any(|line| line.trim_start().starts_with(command)), "{command} is not in {listed}");
    }
    for arguments in [vec!["--help"], vec!["-h"]].into_iter().chain(COMMANDS.map(|command| vec![command, "--help"])) {
        let help = place.ok(&arguments).out;
        assert!(help.lines().count() <= 40, "{arguments:?} has {} lines", help.lines().count());
        let widest = help.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{arguments:?} is {widest:?} columns wide");
        assert!(help.contains("\nExample: vit-attn "), "{arguments:?} has no example");
    }
}

#[test]
fn no_command_at_all_shows_the_help_as_a_usage_error() {
    let ended = Place::new().vit(&[]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    assert!(ended.err.contains("Usage: vit-attn <COMMAND>"), "{}", ended.err);
}

#[test]
fn the_version_is_the_packages() {
    assert_eq!(Place::new().ok(&["--version"]).out, format!("vit-attn {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_help_of_run_names_every_backend_view_format_colormap_and_method() {
    let help = Place::new().ok(&["run", "--help"]).out.split_whitespace().collect::<Vec<_>>().join(" ");
    let names = BACKENDS.map(|(_, name, _)| name).into_iter().chain(VIEWS.map(|(typed, _)| typed));
    let names = names.chain(Colormap::NAMES.iter().map(|(name, _)| *name));
    let names = names.chain(Format::NAMES.iter().map(|(name, _)| *name));
    for name in names.chain(Upsample::NAMES.iter().map(|(name, _)| *name)) {
        assert!(help.contains(name), "{name} is not in {help}");
    }
}

#[test]
fn every_shell_gets_a_completion_script_that_knows_the_commands() {
    let place = Place::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = place.ok(&["completions", shell]).out;
        assert!(script.contains("vit-attn") && script.contains("overlay"), "{shell}: {script}");
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}: {script}");
    }
    assert_eq!(place.vit(&["completions", "tcsh"]).code, Some(2));
}

#[test]
fn devices_lists_every_backend_and_what_auto_takes() {
    let place = Place::new();
    let text = place.ok(&["devices"]).out;
    let report: Value = serde_json::from_str(&place.ok(&["devices", "--json"]).out).unwrap();
    let auto = report["auto"]["backend"].as_str().unwrap();
    for (entry, (_, name, _)) in report["backends"].as_array().unwrap().iter().zip(BACKENDS) {
        assert_eq!((entry["name"].as_str(), entry["compiled"].as_bool()), (Some(name), Some(true)));
        assert!(text.lines().any(|line| line.trim_start().starts_with(name)), "{name} is not in {text}");
    }
    let adapters = report["adapters"].as_array().unwrap();
    for (index, adapter) in adapters.iter().enumerate() {
        assert_eq!(adapter["index"], index);
        for field in ["name", "kind", "api", "driver"] {
            assert!(text.contains(adapter[field].as_str().unwrap()), "{field} of adapter {index} is not in {text}");
        }
    }
    assert!(text.contains(&format!("auto takes {auto}, since ")), "{text}");
    // A software adapter is never taken for a GPU.
    assert_eq!(auto == "wgpu", adapters.iter().any(|adapter| adapter["software"] == false), "{report}");

    let ran: Value = serde_json::from_str(&place.ok(&["run", &asset("cat.png"), "--json"]).out).unwrap();
    assert_eq!(ran["backend"], auto, "auto takes something else than devices says");
}
