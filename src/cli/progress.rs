//! The one place for progress bars.

use std::{
    env,
    io::{self, IsTerminal as _},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::talk::say;
use crate::device::Backend;

/// How long a job may take before it gets a bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// A bar on stderr that appears only for jobs of more than half a second, and only on a terminal without `NO_COLOR`.
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
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what.to_owned());
        Self { bar, started: Instant::now(), shown: false }
    }

    /// Makes the bar longer by `steps`.
    pub fn extend(&mut self, steps: u64) {
        self.bar.inc_length(steps);
    }

    /// Changes the words before the bar.
    pub fn describe(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// One step further.
    pub fn step(&mut self) {
        self.bar.inc(1);
        self.show();
    }

    /// At step `done` of `all`.
    pub fn reach(&mut self, done: usize, all: usize) {
        self.bar.set_length(all as u64);
        self.bar.set_position(done as u64);
        self.show();
    }

    fn show(&mut self) {
        if !self.shown && self.started.elapsed() > PATIENCE && is_wanted() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
    }

    /// Takes the bar away while `body` writes to the terminal.
    pub fn pause<R>(&self, body: impl FnOnce() -> R) -> R {
        self.bar.suspend(body)
    }
}

/// Whether stderr is a terminal of somebody who has not asked for plain text (no-color.org).
fn is_wanted() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Whether a model has run on the GPU in this process.
static GPU_USED: AtomicBool = AtomicBool::new(false);

/// Runs a model. The first time on a GPU its kernels are compiled; if that keeps a person waiting, they are told.
pub fn run_on<T>(backend: Backend, work: impl FnOnce() -> T) -> T {
    if backend != Backend::Wgpu || GPU_USED.swap(true, Ordering::Relaxed) {
        return work();
    }
    let started = Instant::now();
    let (done, waiting) = mpsc::channel::<()>();
    let teller = thread::spawn(move || {
        let late = waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        if late {
            say("vit-attn: compiling kernels for the GPU, which the first run in a process needs ...");
        }
        late
    });
    let result = work();
    drop(done);
    if teller.join().unwrap_or(false) {
        say(format!(
            "vit-attn: the first run, with its kernels compiled, took {:.1} s",
            started.elapsed().as_secs_f64()
        ));
    }
    result
}
