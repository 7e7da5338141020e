//! From a backend's name to a burn device that really works here.
//!
//! wgpu panics on its first use when there is no adapter, so adapters are probed before it is touched. A software
//! rasteriser enumerates as a CPU adapter: `auto` never takes it for a GPU.

use std::{fmt, str::FromStr, sync::Mutex};

use burn::tensor::{
    Device, DeviceKind,
    wgpu::{WgpuBackend, WgpuInitError, wgpu},
};
use burn_wgpu::graphics::AutoGraphicsApi;

use crate::error::{Error, Result};

/// The backends a model can run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The GPU, through wgpu.
    Wgpu,
    /// The CPU, through burn-flex, which chooses its SIMD kernels at run time.
    Flex,
    /// The CPU, through the ndarray crate.
    NdArray,
}

/// Every backend, with its name and what it is; the fastest CPU backend stands before the other.
pub const BACKENDS: [(Backend, &str, &str); 3] = [
    (Backend::Wgpu, "wgpu", "GPU through Vulkan, Metal, DirectX 12 or OpenGL"),
    (Backend::Flex, "flex", "CPU, the fastest here"),
    (Backend::NdArray, "ndarray", "CPU, through the ndarray crate"),
];

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(BACKENDS.iter().find(|(backend, ..)| backend == self).map_or("?", |(_, name, _)| name))
    }
}

/// The backend as asked for: one by name, or the best that runs here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// wgpu on a real GPU, else the fastest CPU backend.
    Auto,
    /// This one or an error.
    Only(Backend),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let found = BACKENDS.iter().find(|(_, name, _)| *name == text);
        found
            .map(|(backend, ..)| Self::Only(*backend))
            .ok_or_else(|| format!("expected one of auto, {}", BACKENDS.map(|(_, name, _)| name).join(", ")))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(backend) => backend.fmt(f),
        }
    }
}

/// A graphics adapter that wgpu can reach.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Adapter {
    /// Its number for `--device`.
    pub index: usize,
    /// The vendor's name for it.
    pub name: String,
    /// `discrete GPU`, `integrated GPU`, `virtual GPU`, `CPU` or `other`.
    pub kind: &'static str,
    /// Graphics API, such as `Vulkan`.
    pub api: String,
    /// Driver name and version.
    pub driver: String,
    /// Whether it is a program that pretends to be a GPU.
    pub software: bool,
    #[serde(skip)]
    selector: Option<(DeviceKind, WgpuBackend)>,
}

/// A device ready for tensors.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The backend it belongs to.
    pub backend: Backend,
    /// burn's handle.
    pub device: Device,
    /// The adapter, on wgpu.
    pub adapter: Option<Adapter>,
    /// Most elements of one f32 tensor that the device can or should hold.
    pub max_elements: usize,
    /// Elements of a tensor of scores that are best made at a time where only the tokens are wanted.
    pub block_elements: usize,
    /// Why `auto` settled on this, where that is worth a line.
    pub note: Option<String>,
}

/// The adapters wgpu can reach, on the first graphics API that has a GPU, or else the first that has anything.
pub fn adapters() -> Vec<Adapter> {
    let mut software = Vec::new();
    for api in AutoGraphicsApi::chain() {
        let found = probe(api);
        if found.iter().any(|adapter| !adapter.software) {
            return found;
        }
        if software.is_empty() {
            software = found;
        }
        // Where there is no GPU on any API, asking OpenGL too only makes its libraries complain about the display.
        if !software.is_empty() && !gpu_possible() {
            break;
        }
    }
    software
}

/// Whether this machine can have a GPU at all. On Linux every driver for one has a device file, and looking for it takes
/// microseconds where loading a Vulkan driver takes a tenth of a second.
fn gpu_possible() -> bool {
    const DEVICES: [&str; 8] = ["dri", "nvidia", "kfd", "dxg", "mali", "kgsl", "nvhost", "pvr"];
    if !cfg!(target_os = "linux") {
        return true;
    }
    let Ok(devices) = std::fs::read_dir("/dev") else { return true };
    let known = |name: &str| DEVICES.iter().any(|device| name.starts_with(device));
    devices.flatten().any(|entry| entry.file_name().to_str().is_some_and(known))
}

fn probe(api: wgpu::Backend) -> Vec<Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: api.into(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let found = pollster::block_on(instance.enumerate_adapters(api.into()));
    let mut counts = [0usize; 4];
    let adapter = |(index, adapter): (usize, wgpu::Adapter)| {
        let info = adapter.get_info();
        // burn counts the adapters of each kind on their own.
        let mut next = |kind: usize| {
            counts[kind] += 1;
            counts[kind] - 1
        };
        let (kind, device) = match info.device_type {
            wgpu::DeviceType::DiscreteGpu => ("discrete GPU", Some(DeviceKind::DiscreteGpu(next(0)))),
            wgpu::DeviceType::IntegratedGpu => ("integrated GPU", Some(DeviceKind::IntegratedGpu(next(1)))),
            wgpu::DeviceType::VirtualGpu => ("virtual GPU", Some(DeviceKind::VirtualGpu(next(2)))),
            // Only the first of these can be named to burn.
            wgpu::DeviceType::Cpu => ("CPU", (next(3) == 0).then_some(DeviceKind::Cpu)),
            wgpu::DeviceType::Other => ("other", None),
        };
        let driver = format!("{} {}", info.driver, info.driver_info).trim().to_owned();
        let software = info.device_type == wgpu::DeviceType::Cpu;
        let selector = device.zip(pinned(info.backend));
        Adapter { index, name: info.name, kind, api: format!("{:?}", info.backend), driver, software, selector }
    };
    found.into_iter().enumerate().map(adapter).collect()
}

/// burn's name for an API, so that it opens the adapter that was listed and no other.
fn pinned(api: wgpu::Backend) -> Option<WgpuBackend> {
    match api {
        wgpu::Backend::Vulkan => Some(WgpuBackend::Vulkan),
        wgpu::Backend::Metal => Some(WgpuBackend::Metal),
        wgpu::Backend::Dx12 => Some(WgpuBackend::Dx12),
        wgpu::Backend::Gl => Some(WgpuBackend::Gl),
        wgpu::Backend::BrowserWebGpu => Some(WgpuBackend::WebGpu),
        wgpu::Backend::Noop => None,
    }
}

/// The adapter that `auto` takes: the first real GPU, discrete before integrated.
pub fn best_gpu(adapters: &[Adapter]) -> Option<&Adapter> {
    let rank = |adapter: &&Adapter| match adapter.selector {
        Some((DeviceKind::DiscreteGpu(_), _)) => 0,
        Some((DeviceKind::IntegratedGpu(_), _)) => 1,
        _ => 2,
    };
    adapters.iter().filter(|adapter| !adapter.software && adapter.selector.is_some()).min_by_key(rank)
}

/// Opens a device: the backend asked for, on adapter number `index` if one is named.
///
/// # Errors
/// [`Error::Backend`] where the backend cannot run here, with what to install;
/// [`Error::Selection`] where there is no such adapter.
pub fn open(choice: Choice, index: Option<usize>) -> Result<Opened> {
    match choice {
        Choice::Only(Backend::Wgpu) => open_wgpu(index),
        Choice::Only(backend) if index.is_some() => {
            let given = index.unwrap_or_default().to_string();
            Err(Error::selection("--device", given, format!("backend {backend} has no adapters to choose from")))
        }
        Choice::Only(backend) => Ok(cpu(backend, None)),
        Choice::Auto if index.is_some() => open_wgpu(index),
        Choice::Auto if !gpu_possible() => Ok(cpu(Backend::Flex, Some(NO_GPU.to_owned()))),
        Choice::Auto => match best_gpu(&adapters()).map(|gpu| open_wgpu(Some(gpu.index))) {
            Some(Ok(opened)) => Ok(opened),
            Some(Err(error)) => Ok(cpu(Backend::Flex, Some(format!("{error}; using the CPU (flex) instead")))),
            None => Ok(cpu(Backend::Flex, Some(NO_GPU.to_owned()))),
        },
    }
}

/// Most elements of a tensor of scores on the CPU, 1 GiB: more tokens than any usual model has are attended in blocks,
/// so that they take time but not all of the memory.
const CPU_ELEMENTS: usize = 1 << 28;

/// Scores that nobody asked for are made and used up while they are in the cache: 8 MiB. Of 0.5 MiB to 64 MiB, this is the
/// fastest for 3,601 tokens, and faster than burn's fused attention.
const FLEX_BLOCK: usize = 1 << 21;

/// The same for ndarray, whose products take longer to start.
const NDARRAY_BLOCK: usize = 1 << 22;

const NO_GPU: &str = "no GPU found, so using the CPU (flex)";

fn cpu(backend: Backend, note: Option<String>) -> Opened {
    #[allow(deprecated, reason = "burn prefers flex to its ndarray backend; it stays for those who compare the two")]
    let device = if backend == Backend::NdArray { Device::ndarray() } else { Device::flex() };
    let block_elements = if backend == Backend::NdArray { NDARRAY_BLOCK } else { FLEX_BLOCK };
    Opened { backend, device, adapter: None, max_elements: CPU_ELEMENTS, block_elements, note }
}

/// wgpu devices that this process has opened: burn refuses to open one twice.
static OPEN: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

fn open_wgpu(index: Option<usize>) -> Result<Opened> {
    let found = adapters();
    let adapter = match index {
        Some(index) => found.get(index).ok_or_else(|| {
            let valid = match found.len() {
                0 => NO_ADAPTER.to_owned(),
                count => format!("there are adapters 0 to {} (see `vit-attn devices`)", count - 1),
            };
            Error::selection("--device", index.to_string(), valid)
        })?,
        None => best_gpu(&found).or(found.first()).ok_or_else(|| Error::backend(Backend::Wgpu, NO_ADAPTER))?,
    };
    let mut open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(opened) = open.iter().find(|opened| opened.adapter.as_ref() == Some(adapter)) {
        return Ok(opened.clone());
    }
    let opened = init_wgpu(adapter)?;
    open.push(opened.clone());
    Ok(opened)
}

const NO_ADAPTER: &str = "no graphics adapter found; install your GPU's Vulkan driver and the Vulkan loader \
     (on Debian: libvulkan1, and mesa-vulkan-drivers for a software adapter)";

fn init_wgpu(adapter: &Adapter) -> Result<Opened> {
    let refuse = |reason: String| Error::backend(Backend::Wgpu, format!("adapter {}: {reason}", adapter.name));
    let unknown = || refuse("wgpu cannot select this kind of adapter".to_owned());
    let (kind, api) = adapter.selector.clone().ok_or_else(unknown)?;
    let (device, setup) = Device::wgpu_options()
        .device_kind(kind)
        .graphics_api(api)
        .init_with_setup()
        .map_err(|error: WgpuInitError| refuse(format!("{error}; update its driver")))?;
    let limits = setup.adapter.limits();
    let bytes = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
    let max_elements = usize::try_from(bytes / 4).unwrap_or(usize::MAX);
    let adapter = Some(adapter.clone());
    Ok(Opened { backend: Backend::Wgpu, device, adapter, max_elements, block_elements: max_elements, note: None })
}
