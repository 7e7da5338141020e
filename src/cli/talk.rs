//! Lines for a person on stderr, and data on stdout. A reader that has gone is no failure: the files are there all the
//! same.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

use anyhow::bail;

/// Writes a line to stderr, in one piece, so that lines of several processes do not mix.
pub fn say(line: impl Display) {
    io::stderr().write_all(format!("{line}\n").as_bytes()).ok();
}

/// Writes data to stdout.
pub fn hand_out(data: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(data).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => bail!("standard output: cannot be written: {error}"),
        _ => Ok(()),
    }
}
