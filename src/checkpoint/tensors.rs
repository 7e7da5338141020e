//! The tensors of a weights file: names, shapes and types at once, values when asked for.
//!
//! Safetensors are read here (the crate checks the header's arithmetic), PyTorch's pickles through `pytorch-reader`,
//! which never executes anything, TorchScript's in `torchscript.rs` and NumPy's archives in `npy.rs`. No allocation is larger than what the file can hold.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
    fs::{self, File},
    io::{self, Cursor, Read, Seek, SeekFrom},
    ops::Bound,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use half::{bf16, f16};
use pytorch_reader::PytorchReader;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use sha2::{Digest, Sha256};

use super::{Settings, npy, torchscript, wrappers::unchunked};
use crate::{
    error::{Error, Result},
    model::parameters::transpose,
};

/// The longest safetensors header that the format allows, in bytes.
const MAX_HEADER: u64 = 100_000_000;

/// Wrappers of an image tower that has a text tower beside it.
const TOWERS: [&str; 2] = ["visual.", "img."];

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 16;

/// A type of element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dtype {
    /// 32-bit floating point.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
    /// A type that no parameter has, by name.
    Other(String),
}

impl Dtype {
    /// Whether values of this type can be read as f32.
    pub fn is_float(&self) -> bool {
        !matches!(self, Self::Other(_))
    }

    fn from_name(name: String) -> Self {
        match name.as_str() {
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::BF16,
            _ => Self::Other(name),
        }
    }

    /// Bytes of an element; 0 for types that are not read.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Other(_) => 0,
        }
    }

    /// Appends the little-endian values in `bytes`, a whole number of them, as f32.
    fn decode(&self, bytes: &[u8], values: &mut Vec<f32>) {
        let pairs = || bytes.as_chunks::<2>().0.iter();
        match self {
            Self::F32 => values.extend(bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value))),
            Self::F16 => values.extend(pairs().map(|value| f16::from_le_bytes(*value).to_f32())),
            Self::BF16 => values.extend(pairs().map(|value| bf16::from_le_bytes(*value).to_f32())),
            Self::Other(_) => {}
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(name) => f.write_str(name),
            known => write!(f, "{known:?}"),
        }
    }
}

/// A tensor of the file.
#[derive(Debug)]
pub struct Tensor {
    /// Name in the file, with all wrappers.
    pub name: String,
    /// Shape, outermost dimension first.
    pub shape: Vec<usize>,
    /// Type of its elements in the file.
    pub dtype: Dtype,
    /// Whether the file has the values with the first index running fastest.
    pub(super) fortran: bool,
    pub(super) values: Values,
}

/// Where a tensor's values are.
#[derive(Debug)]
pub(super) enum Values {
    /// Contiguous in this file from this byte on.
    At(usize, u64),
    /// Contiguous in a compressed member of an archive.
    Deflated {
        /// Which file.
        file: usize,
        /// Number of the member.
        index: usize,
        /// The first byte in what the member holds.
        start: u64,
    },
    /// Wherever the pickle says.
    Pickled(pytorch_reader::Tensor),
}

/// What weights are read from: a file, or bytes inside the binary.
pub(super) trait Stream: Read + Seek + Send {}
impl<T: Read + Seek + Send> Stream for T {}

/// A weights file, or several shards of one, with headers read.
///
/// Names can be seen without their wrappers, see [`Tensors::strip`].
pub struct Tensors {
    path: PathBuf,
    files: Vec<Mutex<Box<dyn Stream>>>,
    tensors: BTreeMap<String, Tensor>,
}

impl fmt::Debug for Tensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensors").field("path", &self.path).field("tensors", &self.tensors).finish_non_exhaustive()
    }
}

impl Tensors {
    /// Opens a safetensors file, a PyTorch checkpoint, a NumPy archive or an index of shards, told apart by their content
    /// (an index by its name, `*.index.json`).
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is none of these, truncated, contradicts itself, or lacks a shard.
    pub fn open(path: &Path) -> Result<Self> {
        if path.to_str().is_some_and(|name| name.ends_with(".index.json")) {
            return Self::open_shards(path);
        }
        let unreadable = |error: io::Error| Error::checkpoint(path, format!("cannot be read: {error}"));
        let found = fs::metadata(path).map_err(unreadable)?;
        // Opening a pipe would wait for its other end.
        if !found.is_file() {
            return Err(Error::checkpoint(path, "is not a regular file: expected safetensors or a PyTorch checkpoint"));
        }
        let mut file = File::open(path).map_err(unreadable)?;
        let mut head = Vec::new();
        file.by_ref().take(512).read_to_end(&mut head).map_err(unreadable)?;
        let tensors = match container(path, &head, found.len()).map_err(|reason| Error::checkpoint(path, reason))? {
            Container::Safetensors => read_safetensors(path, &mut file, found.len())?,
            Container::Pickle if torchscript::is(&mut file) => torchscript::read(path, &mut file, found.len())?,
            Container::Pickle => read_pickle(path, found.len())?,
            Container::Npz => npy::read(path, &mut file, found.len())?,
        };
        Ok(Self { path: path.to_owned(), files: vec![Mutex::new(Box::new(file))], tensors })
    }

    /// Opens every shard that an index names; each tensor must be in the shard that the index says.
    fn open_shards(path: &Path) -> Result<Self> {
        let index = Settings::open(path)?;
        let places = index.map_of_words("weight_map")?;
        let names: BTreeSet<&String> = places.values().collect();
        let shards: Vec<PathBuf> = names.iter().map(|name| path.with_file_name(name)).collect();
        let missing = shards.iter().find(|shard| !shard.is_file() || shard.parent() != path.parent());
        if let Some(shard) = missing {
            return Err(Error::checkpoint(path, format!("names the shard {}, which is not there", shard.display())));
        }
        let mut whole = Self { path: path.to_owned(), files: Vec::new(), tensors: BTreeMap::new() };
        for (name, shard) in names.into_iter().zip(&shards) {
            let part = Self::open(shard)?;
            for (key, mut tensor) in part.tensors {
                if places.get(&key) != Some(name) {
                    continue;
                }
                if let Values::At(file, _) | Values::Deflated { file, .. } = &mut tensor.values {
                    *file += whole.files.len();
                }
                whole.tensors.insert(key, tensor);
            }
            whole.files.extend(part.files);
        }
        match places.iter().find(|(key, _)| !whole.tensors.contains_key(*key)) {
            Some((key, shard)) => {
                Err(Error::checkpoint(path, format!("says that {key} is in {shard}, which does not hold it")))
            }
            None => Ok(whole),
        }
    }

    /// Names every tensor without the wrappers in `chain`, each taken from the start of the name if it is there. What lies
    /// beside an image tower (`visual.`) gets `../` before its name, since a text tower may have the very names of the other; so
    /// does whatever would else have another's name.
    pub fn strip(self, chain: &[&str]) -> Self {
        let mut named: Vec<(usize, String, Tensor)> = Vec::new();
        for (_, tensor) in self.tensors {
            let (mut rest, mut left) = (tensor.name.as_str(), chain.len());
            for wrapper in chain {
                if let Some(inner) = rest.strip_prefix(wrapper) {
                    (rest, left) = (inner, left - 1);
                }
            }
            let beside = left > 0 && chain.iter().any(|wrapper| TOWERS.contains(wrapper));
            let key = if beside { format!("../{rest}") } else { unchunked(rest) };
            named.push((left, key, tensor));
        }
        // Those inside all wrappers have the first claim to a name.
        named.sort_by_key(|(left, ..)| *left);
        let mut tensors = BTreeMap::new();
        for (_, key, tensor) in named {
            let key = if tensors.contains_key(&key) { format!("../{}", tensor.name) } else { key };
            tensors.insert(key, tensor);
        }
        Self { tensors, ..self }
    }

    /// Only the tensors under a top-level entry, such as `teacher`.
    ///
    /// # Errors
    /// [`Error::Selection`] naming the entries there are.
    pub fn under(self, entry: &str) -> Result<Self> {
        let entries: BTreeSet<&str> = self.keys().filter_map(|key| key.split('.').next()).collect();
        if !entries.contains(entry) {
            let few: Vec<&str> = entries.into_iter().take(8).collect();
            return Err(Error::selection("--checkpoint-key", entry, format!("this file holds {}", few.join(", "))));
        }
        let prefix = format!("{entry}.");
        let tensors = self.tensors.into_iter().filter(|(key, _)| key.starts_with(&prefix)).collect();
        Ok(Self { tensors, ..self })
    }

    /// Opens the bytes of a safetensors file; `path` is for error messages.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if they are truncated or contradict themselves.
    pub fn from_bytes(path: &Path, bytes: &'static [u8]) -> Result<Self> {
        let mut stream = Cursor::new(bytes);
        let tensors = read_safetensors(path, &mut stream, bytes.len() as u64)?;
        Ok(Self { path: path.to_owned(), files: vec![Mutex::new(Box::new(stream))], tensors })
    }

    /// The weights file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of tensors, at least one.
    pub fn count(&self) -> usize {
        self.tensors.len()
    }

    /// A tensor by its name in the file.
    pub fn get(&self, key: &str) -> Option<&Tensor> {
        self.tensors.get(key)
    }

    /// All names, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> + Clone {
        self.tensors.keys().map(String::as_str)
    }

    /// The names that begin with `prefix`, sorted.
    pub fn keys_under(&self, prefix: &str) -> impl Iterator<Item = &str> + Clone {
        let from = self.tensors.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.map(|(key, _)| key.as_str()).take_while(move |key| key.starts_with(prefix))
    }

    /// Appends a tensor's values, row-major, as f32.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if there is no such tensor of floating-point numbers, or the file cannot be read any more.
    pub fn read(&self, key: &str, values: &mut Vec<f32>) -> Result<()> {
        let Some(tensor) = self.tensors.get(key).filter(|tensor| tensor.dtype.is_float()) else {
            return Err(self.refuse(format!("there is no tensor {key} of floating-point numbers")));
        };
        let failed = |error| self.refuse(format!("the values of {key} cannot be read: {error}"));
        let before = values.len();
        self.read_stored(tensor, values).map_err(failed)?;
        if tensor.fortran {
            // Turning ever more of the last dimensions around, each against those behind it.
            for dimension in 1..tensor.shape.len() {
                let cols = tensor.shape[..dimension].iter().product();
                transpose_each(values, before, (tensor.shape[dimension], cols));
            }
        }
        Ok(())
    }

    /// Appends a tensor's values in the file's order.
    fn read_stored(&self, tensor: &Tensor, values: &mut Vec<f32>) -> io::Result<()> {
        let stream = |file: usize| Ok::<_, io::Error>(lock(self.files.get(file).ok_or(io::ErrorKind::NotFound)?));
        match &tensor.values {
            Values::Pickled(pickled) => {
                tensor.dtype.decode(&pickled.read()?, values);
                Ok(())
            }
            Values::At(file, start) => {
                let mut stream = stream(*file)?;
                stream.seek(SeekFrom::Start(*start))?;
                tensor.decode(&mut *stream, values)
            }
            Values::Deflated { file, index, start } => {
                npy::inflate(&mut **stream(*file)?, *index, *start, |member| tensor.decode(member, values))
            }
        }
    }

    /// SHA-256 of the whole file in lower-case hex; of shards, one after the other in the order of their names.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if a file cannot be read.
    pub fn sha256(&self) -> Result<String> {
        let mut hasher = Sha256::new();
        for file in &self.files {
            let mut stream = lock(file);
            let copied = stream.rewind().and_then(|()| io::copy(&mut *stream, &mut hasher));
            copied.map_err(|error| self.refuse(format!("cannot be read: {error}")))?;
        }
        Ok(format!("{:x}", hasher.finalize()))
    }

    fn refuse(&self, reason: String) -> Error {
        Error::checkpoint(&self.path, reason)
    }
}

impl Tensor {
    /// Streams values into place, so that a tensor is never held twice.
    fn decode(&self, mut stream: impl Read, values: &mut Vec<f32>) -> io::Result<()> {
        let mut left = self.shape.iter().product::<usize>() * self.dtype.size();
        let mut chunk = vec![0; CHUNK.min(left)];
        while left > 0 {
            let part = &mut chunk[..left.min(CHUNK)];
            stream.read_exact(part)?;
            self.dtype.decode(part, values);
            left -= part.len();
        }
        Ok(())
    }
}

/// Transposes every matrix of (rows, cols) values, one after the other, from a place in `values` on.
pub(super) fn transpose_each(values: &mut [f32], from: usize, (rows, cols): (usize, usize)) {
    for matrix in values.get_mut(from..).unwrap_or_default().chunks_exact_mut(rows.saturating_mul(cols).max(1)) {
        matrix.copy_from_slice(&transpose(matrix, rows, cols));
    }
}

fn lock(file: &Mutex<Box<dyn Stream>>) -> MutexGuard<'_, Box<dyn Stream>> {
    // Every reader seeks first, so what another left behind does not matter.
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Container {
    Safetensors,
    Pickle,
    Npz,
}

/// What files that hold no tensors this tool reads begin with, what they are, and what to do.
const FOREIGN: [(&[u8], &str); 9] = [
    (
        b"version https://git-lfs",
        "a Git LFS pointer, not the weights themselves: run `git lfs pull` where it was cloned",
    ),
    (b"GGUF", "a GGUF file, made for language models: name the safetensors that it was made from"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras saves them: name the safetensors or PyTorch weights of the model"),
    (b"\x1f\x8b", "compressed (gzip): unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "compressed (7z): unpack it"),
    (b"\xfd7zXZ", "compressed (xz): unpack it"),
    (b"\x28\xb5\x2f\xfd", "compressed (zstd): unpack it"),
    (b"\x93NUMPY", "a NumPy array, not a checkpoint: expected safetensors, a PyTorch checkpoint or .npz"),
    (b"PK\x05\x06", "an empty archive: the download or the saving went wrong"),
];

/// Tells from its first bytes what kind of file this is, or in words what else it is.
fn container(path: &Path, head: &[u8], length: u64) -> Result<Container, String> {
    let text = head.trim_ascii_start();
    let braces = head.get(8) == Some(&b'{');
    let header_fits = head.first_chunk::<8>().is_some_and(|size| u64::from_le_bytes(*size) <= length);
    let named = |ending: &str| path.extension().is_some_and(|found| found == ending);
    if head.is_empty() {
        Err("is empty (0 bytes): expected safetensors or a PyTorch checkpoint".to_owned())
    } else if let Some((_, what)) = FOREIGN.iter().find(|(start, _)| head.starts_with(start)) {
        Err(format!("is {what}"))
    } else if text.starts_with(b"<") {
        Err("is an HTML or XML page, not weights: the download went wrong".to_owned())
    } else if text.starts_with(b"{") {
        Err("is JSON, not weights: name the directory, or the weights file beside it".to_owned())
    } else if head.get(257..262) == Some(b"ustar") {
        Err("is a tar archive: unpack it, or save a checkpoint this old again with a newer PyTorch".to_owned())
    } else if named("safetensors") || (braces && header_fits) {
        Ok(Container::Safetensors)
    } else if named("onnx") || (head.starts_with(b"\x08") && head.windows(7).any(|word| word == b"pytorch")) {
        Err("is an ONNX graph, not weights by name: name the PyTorch model that it was exported from".to_owned())
    } else if named("msgpack") {
        Err("is a Flax msgpack file: name the safetensors or PyTorch weights of the model".to_owned())
    } else if head.starts_with(b"PK\x03\x04") && head.windows(4).any(|name| name == b".npy") {
        Ok(Container::Npz)
    } else if head.starts_with(b"PK\x03\x04") || head.starts_with(b"\x80") {
        Ok(Container::Pickle)
    } else {
        let start = head.get(..8).unwrap_or(head).escape_ascii();
        Err(format!("is neither safetensors nor a PyTorch checkpoint: it starts with \"{start}\""))
    }
}

/// Reads the header of a safetensors file: 8 bytes of length, JSON, then the values back to back to the end.
fn read_safetensors(path: &Path, stream: &mut impl Stream, length: u64) -> Result<BTreeMap<String, Tensor>> {
    let refuse = |reason: String| Error::checkpoint(path, reason);
    let mut size = [0; 8];
    let read = stream.rewind().and_then(|()| stream.read_exact(&mut size));
    read.map_err(|error| refuse(format!("is not safetensors or is truncated after {length} bytes: {error}")))?;
    let size = u64::from_le_bytes(size);
    let Some(data) = length.checked_sub(8).and_then(|rest| rest.checked_sub(size)).filter(|_| size <= MAX_HEADER)
    else {
        return Err(refuse(format!(
            "claims a header of {size} bytes in a file of {length}: truncated, or not safetensors"
        )));
    };
    let mut json = Vec::new();
    stream.take(size).read_to_end(&mut json).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let Entries(mut entries) =
        serde_json::from_slice(&json).map_err(|error| refuse(format!("its safetensors header is broken: {error}")))?;
    if entries.is_empty() {
        return Err(refuse("holds no tensors".to_owned()));
    }
    entries.sort_by_key(|(_, info)| info.data_offsets);
    let metadata = Metadata::new(None, entries)
        .map_err(|error| refuse(format!("its safetensors header contradicts itself: {error}")))?;
    if metadata.data_len() as u64 != data {
        let described = metadata.data_len();
        return Err(refuse(format!(
            "its header describes {described} bytes of values, the file holds {data}: truncated?"
        )));
    }
    let tensor = |name: &str, info: &TensorInfo| Tensor {
        name: name.to_owned(),
        shape: info.shape.clone(),
        dtype: Dtype::from_name(info.dtype.to_string()),
        fortran: false,
        values: Values::At(0, 8 + size + info.data_offsets.0 as u64),
    };
    Ok(metadata.tensors().into_iter().map(|(key, info)| (key.clone(), tensor(&key, info))).collect())
}

/// A safetensors header's entries. A map would silently keep the last of two tensors with one name.
struct Entries(Vec<(String, TensorInfo)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            match entries.entry(key) {
                Entry::Occupied(first) => {
                    return Err(A::Error::custom(format!("the tensor {} appears twice", first.key())));
                }
                Entry::Vacant(place) => place.insert(map.next_value()?),
            };
        }
        Ok(Entries(entries.into_iter().collect()))
    }
}

/// Reads the tensors' descriptions in a PyTorch checkpoint.
fn read_pickle(path: &Path, length: u64) -> Result<BTreeMap<String, Tensor>> {
    let reader = PytorchReader::new(path).map_err(|error| {
        // Some of its messages quote whole objects.
        let reason: String = error.to_string().chars().take(200).collect();
        Error::checkpoint(path, format!("cannot be read as a PyTorch checkpoint: {reason}"))
    })?;
    let mut tensors = BTreeMap::new();
    let mut claimed = 0_u64;
    for (key, pickled) in reader.into_tensors() {
        // A view can claim any shape over few values, and a compressed entry any length. Shared weights count twice.
        claimed = claimed.saturating_add(pickled.byte_len() as u64);
        if claimed > length.saturating_mul(2) {
            return Err(Error::checkpoint(
                path,
                format!("its tensors claim far more than the {length} bytes of the file"),
            ));
        }
        let dtype = Dtype::from_name(format!("{:?}", pickled.dtype()));
        let (name, shape) = (key.clone(), pickled.shape().to_vec());
        tensors.insert(key, Tensor { name, shape, dtype, fortran: false, values: Values::Pickled(pickled) });
    }
    if tensors.is_empty() {
        return Err(Error::checkpoint(path, "holds no tensors: expected a state dict"));
    }
    Ok(tensors)
}
