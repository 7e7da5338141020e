//! `vit-attn`: see where a Vision Transformer looks, from the shell.

use std::process::ExitCode;

/// Training frees and takes tensors of megabytes thousands of times a second; the system's allocator gives them back to
/// the kernel each time, which costs a third of a step.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    vit_attn::cli::main()
}
