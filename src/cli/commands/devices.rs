//! `vit-attn devices`: what can run here, and what `auto` takes.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::{
    cli::{args::DevicesArgs, talk},
    device::{self, Adapter, BACKENDS, Backend},
};

#[derive(Serialize)]
struct Report<'a> {
    backends: Vec<Entry>,
    adapters: &'a [Adapter],
    auto: Auto,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    what: &'static str,
    compiled: bool,
    runs: bool,
}

#[derive(Serialize)]
struct Auto {
    backend: Backend,
    device: Option<usize>,
    why: String,
}

/// Lists backends and adapters.
pub fn run(args: &DevicesArgs) -> anyhow::Result<()> {
    let adapters = device::adapters();
    let entry = |(backend, name, what)| Entry {
        name,
        what,
        // All three are always built in; the adapters decide about wgpu.
        compiled: true,
        runs: backend != Backend::Wgpu || !adapters.is_empty(),
    };
    let auto = match device::best_gpu(&adapters) {
        Some(gpu) => Auto { backend: Backend::Wgpu, device: Some(gpu.index), why: format!("{} is a GPU", gpu.name) },
        None if adapters.is_empty() => {
            Auto { backend: Backend::Flex, device: None, why: "there is no graphics adapter".to_owned() }
        }
        None => Auto {
            backend: Backend::Flex,
            device: None,
            why: "the only adapters are software, slower than the CPU backends".to_owned(),
        },
    };
    let report = Report { backends: BACKENDS.map(entry).into(), adapters: &adapters, auto };
    let mut out = Vec::new();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        print(&mut out, &report)?;
    }
    talk::hand_out(&out)
}

fn print(out: &mut impl io::Write, report: &Report) -> io::Result<()> {
    writeln!(out, "Backends")?;
    for backend in &report.backends {
        let state =
            if backend.runs { "compiled in, runs here" } else { "compiled in, but no graphics adapter was found" };
        writeln!(out, "  {:8} {:48} {state}", backend.name, backend.what)?;
    }
    writeln!(out, "Graphics adapters (--device N)")?;
    for adapter in report.adapters {
        writeln!(
            out,
            "  {}  {}: {}, {}, driver {}",
            adapter.index, adapter.name, adapter.kind, adapter.api, adapter.driver
        )?;
    }
    if report.adapters.is_empty() {
        writeln!(out, "  none; install your GPU's Vulkan driver and the Vulkan loader (Debian: libvulkan1)")?;
    }
    writeln!(out, "auto takes {}, since {}", report.auto.backend, report.auto.why)
}
