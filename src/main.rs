//! `vit-attn`: see where a Vision Transformer looks, from the shell.

use std::process::ExitCode;

fn main() -> ExitCode {
    vit_attn::cli::main()
}
