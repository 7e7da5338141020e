//! TorchScript archives, as OpenAI gives away its CLIP (`clip.load`): PyTorch's container, but its pickle holds a module
//! where a checkpoint has a dict.
//!
//! The pickle machine here knows what TorchScript writes and no more: an object is the dict of its attributes, of which
//! tensors are kept, and nothing is ever executed.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    io::Read as _,
    path::Path,
    rc::Rc,
};

use zip::{CompressionMethod, ZipArchive};

use super::tensors::{Dtype, Stream, Tensor, Values};
use crate::error::{Error, Result};

/// The largest pickle that is read, in bytes; CLIP's takes 200,000.
const MAX_PICKLE: u64 = 16 << 20;
/// The most items on the machine's stack.
const MAX_STACK: usize = 100_000;
/// The longest name of a tensor, in bytes.
const MAX_NAME: usize = 500;

/// Whether this is a TorchScript archive: it alone keeps constants for its code.
pub(super) fn is(stream: &mut dyn Stream) -> bool {
    let constants = |name: zip::result::ZipResult<Cow<str>>| name.is_ok_and(|name| name.ends_with("/constants.pkl"));
    ZipArchive::new(stream).is_ok_and(|archive| archive.file_names().any(constants))
}

/// Reads the tensors' descriptions.
pub(super) fn read(path: &Path, stream: &mut dyn Stream, length: u64) -> Result<BTreeMap<String, Tensor>> {
    let refuse = |reason: String| Error::checkpoint(path, format!("cannot be read as TorchScript: {reason}"));
    let broken = |error: zip::result::ZipError| refuse(error.to_string());
    let mut archive = ZipArchive::new(stream).map_err(broken)?;
    let names: Vec<String> = archive.file_names().filter_map(|name| Some(name.ok()?.into_owned())).collect();
    let root = names.iter().find_map(|name| name.strip_suffix("constants.pkl")).unwrap_or_default();
    let mut pickle = Vec::new();
    let data = archive.by_name(&format!("{root}data.pkl")).map_err(broken)?;
    data.take(MAX_PICKLE).read_to_end(&mut pickle).map_err(|error| refuse(error.to_string()))?;
    let module =
        Machine::new(&pickle).run().ok_or_else(|| refuse("its data.pkl is broken or holds no module".into()))?;
    let mut tensors = BTreeMap::new();
    for (name, described) in module {
        let member = archive.by_name(&format!("{root}data/{}", described.key)).map_err(broken)?;
        let start = member.data_start().filter(|_| member.compression() == CompressionMethod::Stored);
        let start = start.filter(|start| start.saturating_add(member.size()) <= length);
        let place = start
            .zip(described.bytes())
            .and_then(|(start, (before, bytes))| (before.checked_add(bytes)? <= member.size()).then(|| start + before));
        let place = place.ok_or_else(|| refuse(format!("the values of {name} are not where they should be")))?;
        let dtype = if described.contiguous() { described.dtype } else { Dtype::Other("strided values".to_owned()) };
        let (name, shape) = (name.clone(), described.shape);
        tensors.insert(name.clone(), Tensor { name, shape, dtype, fortran: false, values: Values::At(0, place) });
    }
    if tensors.is_empty() { Err(refuse("its module holds no tensors".to_owned())) } else { Ok(tensors) }
}

/// A tensor as the pickle describes it: a view of a storage.
struct Described {
    key: Rc<str>,
    dtype: Dtype,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl Described {
    /// Bytes before the values in the storage, and of the values.
    fn bytes(&self) -> Option<(u64, u64)> {
        let values = self.shape.iter().try_fold(1, |product: usize, &size| product.checked_mul(size))?;
        let bytes = |count: usize| Some(count.checked_mul(self.dtype.size())? as u64);
        bytes(self.offset).zip(bytes(values))
    }

    /// Whether the values come in row-major order without gaps.
    fn contiguous(&self) -> bool {
        let mut stride = 1_usize;
        self.shape.len() == self.strides.len()
            && self.shape.iter().zip(&self.strides).rev().all(|(&size, &found)| {
                let right = size == 1 || found == stride;
                stride = stride.saturating_mul(size);
                right
            })
    }
}

/// What lies on the stack. Nothing holds anything of its own kind, so that no depth of nesting is any trouble.
enum Item {
    Mark,
    Int(i64),
    Text(Rc<str>),
    /// A class or function, its module and name joined by a dot.
    Class(Rc<str>),
    Storage(Rc<str>, Dtype),
    Ints(Vec<i64>),
    /// What a call is given.
    Arguments(Vec<Item>),
    Tensor(Described),
    /// The tensors of a dict, or of an object and those in it, by name.
    Dict(Vec<(String, Described)>),
    Other,
}

impl Item {
    /// A copy, of what TorchScript refers to a second time.
    fn again(&self) -> Self {
        match self {
            Self::Int(value) => Self::Int(*value),
            Self::Text(text) => Self::Text(Rc::clone(text)),
            Self::Class(name) => Self::Class(Rc::clone(name)),
            Self::Storage(key, dtype) => Self::Storage(Rc::clone(key), dtype.clone()),
            _ => Self::Other,
        }
    }

    fn tuple(items: Vec<Self>) -> Self {
        let int = |item: &Self| if let Self::Int(value) = item { Some(*value) } else { None };
        match items.iter().map(int).collect() {
            Some(ints) => Self::Ints(ints),
            None => {
                let flat = |item| if matches!(item, Self::Arguments(_)) { Self::Other } else { item };
                Self::Arguments(items.into_iter().map(flat).collect())
            }
        }
    }

    /// A storage, from what identifies it: `("storage", type, key, device, size)`.
    fn storage(self) -> Self {
        let Self::Arguments(parts) = self else { return Self::Other };
        let [Self::Text(_), Self::Class(class), Self::Text(key), ..] = parts.as_slice() else { return Self::Other };
        let dtype = match &**class {
            "torch.FloatStorage" => Dtype::F32,
            "torch.HalfStorage" => Dtype::F16,
            "torch.BFloat16Storage" => Dtype::BF16,
            other => Dtype::Other(other.trim_start_matches("torch.").to_owned()),
        };
        Self::Storage(Rc::clone(key), dtype)
    }

    /// What a call gives: of all functions, only the one that makes a tensor out of a storage is known.
    fn called(self, arguments: Self) -> Self {
        let known = matches!(&self, Self::Class(name) if &**name == "torch._utils._rebuild_tensor_v2");
        let Self::Arguments(arguments) = arguments else { return Self::Other };
        match arguments.as_slice() {
            [Self::Storage(key, dtype), Self::Int(offset), shape, strides, ..] if known => {
                let sizes = |item: &Self| match item {
                    Self::Ints(ints) => ints.iter().map(|&size| usize::try_from(size).ok()).collect(),
                    _ => None,
                };
                let (Some(shape), Some(strides), Ok(offset)) = (sizes(shape), sizes(strides), usize::try_from(*offset))
                else {
                    return Self::Other;
                };
                Self::Tensor(Described { key: Rc::clone(key), dtype: dtype.clone(), offset, shape, strides })
            }
            _ => Self::Other,
        }
    }
}

/// A pickle as it is being read. Every step answers `None` where the pickle is broken.
struct Machine<'a> {
    rest: &'a [u8],
    stack: Vec<Item>,
    memo: HashMap<u32, Item>,
}

impl<'a> Machine<'a> {
    fn new(pickle: &'a [u8]) -> Self {
        Self { rest: pickle, stack: Vec::new(), memo: HashMap::new() }
    }

    /// The module's tensors by name.
    fn run(mut self) -> Option<Vec<(String, Described)>> {
        loop {
            let [opcode] = self.take()?;
            if opcode == b'.' {
                return if let Item::Dict(tensors) = self.stack.pop()? { Some(tensors) } else { None };
            }
            if self.stack.len() > MAX_STACK {
                return None;
            }
            self.step(opcode)?;
        }
    }

    fn step(&mut self, opcode: u8) -> Option<()> {
        let item = match opcode {
            0x80 => return self.take::<1>().map(|_| ()),
            b'q' | b'r' => {
                let key = self.key(opcode == b'q')?;
                self.memo.insert(key, self.stack.last()?.again());
                return Some(());
            }
            b's' => {
                let pair = self.stack.split_off(self.stack.len().checked_sub(2)?);
                return self.set(pair);
            }
            b'u' => {
                let pairs = self.marked()?;
                return self.set(pairs);
            }
            b'h' | b'j' => {
                let key = self.key(opcode == b'h')?;
                self.memo.get(&key)?.again()
            }
            b'(' => Item::Mark,
            b'c' => Item::Class(format!("{}.{}", self.line()?, self.line()?).into()),
            b'X' => {
                let length = u32::from_le_bytes(self.take()?) as usize;
                Item::Text(self.text(length)?.into())
            }
            b'K' => Item::Int(self.take::<1>()?[0].into()),
            b'M' => Item::Int(u16::from_le_bytes(self.take()?).into()),
            b'J' => Item::Int(i32::from_le_bytes(self.take()?).into()),
            0x8a => Item::Int(self.long()?),
            b'G' => self.take::<8>().map(|_| Item::Other)?,
            b'N' | 0x88 | 0x89 | b']' => Item::Other,
            b'}' => Item::Dict(Vec::new()),
            b')' => Item::Ints(Vec::new()),
            b't' => Item::tuple(self.marked()?),
            0x85..=0x87 => {
                let items = self.stack.split_off(self.stack.len().checked_sub(usize::from(opcode) - 0x84)?);
                Item::tuple(items)
            }
            _ => self.combined(opcode)?,
        };
        self.stack.push(item);
        Some(())
    }

    /// What the operations make that take one or two items.
    fn combined(&mut self, opcode: u8) -> Option<Item> {
        if opcode == b'Q' {
            return Some(self.stack.pop()?.storage());
        }
        if opcode == b'e' {
            self.marked()?;
            return self.stack.pop();
        }
        let (last, first) = (self.stack.pop()?, self.stack.pop()?);
        match opcode {
            b'R' => Some(first.called(last)),
            // A new object, and what it becomes when it is given its attributes.
            0x81 => Some(Item::Dict(Vec::new())),
            b'b' => Some(last),
            b'a' => Some(first),
            _ => None,
        }
    }

    /// Puts pairs of keys and values into the dict below them: a tensor by its name, and those of a dict by both names.
    fn set(&mut self, pairs: Vec<Item>) -> Option<()> {
        let Some(Item::Dict(tensors)) = self.stack.last_mut() else { return Some(()) };
        let mut pairs = pairs.into_iter();
        while let (Some(key), Some(value)) = (pairs.next(), pairs.next()) {
            let Item::Text(key) = key else { continue };
            // Names that do not grow would let a dict be nested without end.
            if key.is_empty() {
                continue;
            }
            let within = match value {
                Item::Tensor(tensor) => vec![(String::new(), tensor)],
                Item::Dict(within) => within,
                _ => continue,
            };
            for (name, tensor) in within {
                let name = if name.is_empty() { key.to_string() } else { format!("{key}.{name}") };
                if name.len() <= MAX_NAME {
                    tensors.push((name, tensor));
                }
            }
        }
        Some(())
    }

    /// The items above the last mark, which is taken away.
    fn marked(&mut self) -> Option<Vec<Item>> {
        let mark = self.stack.iter().rposition(|item| matches!(item, Item::Mark))?;
        let items = self.stack.split_off(mark + 1);
        self.stack.pop();
        Some(items)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*bytes)
    }

    /// The number of a place in the memo, of one byte or four.
    fn key(&mut self, short: bool) -> Option<u32> {
        if short { self.take().map(|[byte]: [u8; 1]| byte.into()) } else { self.take().map(u32::from_le_bytes) }
    }

    fn text(&mut self, length: usize) -> Option<&'a str> {
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        std::str::from_utf8(text).ok()
    }

    fn line(&mut self) -> Option<&'a str> {
        let end = self.rest.iter().position(|&byte| byte == b'\n')?;
        let line = self.text(end)?;
        self.take::<1>()?;
        Some(line)
    }

    /// A whole number of as many bytes as the first one says.
    fn long(&mut self) -> Option<i64> {
        let [length] = self.take()?;
        let (bytes, rest) = self.rest.split_at_checked(length.into()).filter(|(bytes, _)| bytes.len() <= 8)?;
        self.rest = rest;
        let sign = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
        let mut whole = [sign; 8];
        whole.iter_mut().zip(bytes).for_each(|(whole, byte)| *whole = *byte);
        Some(i64::from_le_bytes(whole))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a failed unwrap is the failure")]
mod tests {
    use super::Machine;

    fn text(word: &str) -> Vec<u8> {
        [b"X", &(word.len() as u32).to_le_bytes()[..], word.as_bytes()].concat()
    }

    /// A tensor of shape (2, 3) with these strides.
    fn tensor(strides: [u8; 2]) -> Vec<u8> {
        let storage =
            [&b"(("[..], &text("storage"), b"ctorch\nHalfStorage\n", &text("7"), &text("cpu"), b"K\x06tQ"].concat();
        let view = [b'K', 1, b'K', 2, b'K', 3, 0x86, b'K', strides[0], b'K', strides[1], 0x86, b't', b'R'];
        [b"ctorch._utils\n_rebuild_tensor_v2\n", storage.as_slice(), &view].concat()
    }

    /// An object with these attributes.
    fn object(attributes: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let pairs = attributes.iter().flat_map(|(name, value)| [text(name), value.clone()].concat());
        [&b"c__torch__.Net\nNet\n)\x81}("[..], &pairs.collect::<Vec<u8>>(), b"ub"].concat()
    }

    #[test]
    fn tensors_of_an_object_are_named_by_the_way_to_them() {
        let inner = object(&[("weight", tensor([3, 1])), ("training", b"\x89".to_vec())]);
        let outer = object(&[("scale", tensor([1, 2])), ("layer", inner)]);
        let found = Machine::new(&[b"\x80\x02", outer.as_slice(), b"."].concat()).run().unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["scale", "layer.weight"]);
        let (scale, weight) = (&found[0].1, &found[1].1);
        assert_eq!((weight.shape.as_slice(), weight.bytes(), &*weight.key), (&[2, 3][..], Some((2, 12)), "7"));
        assert!(weight.contiguous() && !scale.contiguous());
    }

    #[test]
    fn functions_are_not_called_and_what_they_would_give_is_left_out() {
        let call = [&b"cos\nsystem\n"[..], &text("true"), b"\x85R"].concat();
        let found =
            Machine::new(&[object(&[("a", call), ("b", tensor([3, 1]))]), b".".to_vec()].concat()).run().unwrap();
        assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn nesting_without_end_is_no_trouble() {
        let tuples = [b")".to_vec(), vec![0x85; 1_000_000], b".".to_vec()].concat();
        assert!(Machine::new(&tuples).run().is_none());
        for (levels, name) in [(40_000, ""), (40_000, "a"), (1_000_000, "a")] {
            let down = [&b"}"[..], &text(name)].concat().repeat(levels);
            let pickle = [down, tensor([3, 1]), vec![b's'; levels], b".".to_vec()].concat();
            assert!(Machine::new(&pickle).run().is_none_or(|tensors| tensors.is_empty()), "{levels}");
        }
        assert!(Machine::new(b"c__torch__\nNet").run().is_none() && Machine::new(b"").run().is_none());
    }
}
