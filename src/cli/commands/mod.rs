//! One subcommand a file, each a straight line of calls.

pub mod bench;
mod common;
pub mod compare;
pub mod devices;
pub mod info;
pub mod run;
pub mod train;
