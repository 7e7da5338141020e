//! The one place for progress bars.

use std::{
    io::{self, IsTerminal as _},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How long a job may take before it gets a bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// A bar on stderr that appears only for jobs of more than half a second, and only on a terminal.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
}

impl Progress {
    /// A bar of `length` steps.
    pub fn new(length: u64, what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        // The template is a constant, so its only failure is a typing mistake that the fallback survives.
        let style = ProgressStyle::with_template("{msg} {bar:32} {pos}/{len} {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what.to_owned());
        Self { bar, started: Instant::now(), shown: false }
    }

    /// Starts further on.
    pub fn set(&mut self, position: u64) {
        self.bar.set_position(position);
    }

    /// Changes the words before the bar.
    pub fn say(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// One step further.
    pub fn step(&mut self) {
        self.bar.inc(1);
        if !self.shown && self.started.elapsed() > PATIENCE && io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
