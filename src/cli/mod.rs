//! The command line: parse, dispatch, and turn results into exit codes. Only here are files written and lines printed.

mod args;
mod commands;
mod hub;
mod output;
mod progress;
mod talk;

use std::{panic, process::ExitCode};

use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command};
use talk::say;

/// Exit code where some input failed and the others were written.
const FAILED: u8 = 1;
/// Exit code for a command line that cannot be carried out.
const USAGE: u8 = 2;

/// Runs the program on the process's arguments.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // Drivers and burn itself panic where a GPU misbehaves; a person gets one sentence, not a backtrace.
    panic::set_hook(Box::new(|_| {}));
    match panic::catch_unwind(|| dispatch(cli.command)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => report(&error),
        Err(cause) => {
            let text = cause.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("unknown cause");
            let line = text.lines().next().unwrap_or_default();
            say(format_args!(
                "vit-attn: error: stopped unexpectedly ({line}); try another --backend, and please report it"
            ));
            ExitCode::from(FAILED)
        }
    }
}

fn dispatch(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => commands::run::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Train(args) => commands::train::run(&args),
        Command::Info(args) => commands::info::run(&args),
        Command::Devices(args) => commands::devices::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "vit-attn", &mut script);
            talk::hand_out(&script)
        }
    }
}

/// Says what went wrong in one line, and picks the exit code.
fn report(error: &anyhow::Error) -> ExitCode {
    say(format_args!("vit-attn: error: {error:#}"));
    let usage = matches!(error.downcast_ref(), Some(crate::error::Error::Selection { .. }));
    ExitCode::from(if usage { USAGE } else { FAILED })
}
