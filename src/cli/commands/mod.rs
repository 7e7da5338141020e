//! One subcommand a file, each a straight line of calls.

pub mod devices;
pub mod run;
pub mod train;
