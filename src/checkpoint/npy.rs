//! NumPy's files: an array (`.npy`), and archives of arrays (`.npz`), as Google's checkpoints are.

use std::{
    collections::BTreeMap,
    io::{self, Read as _},
    path::Path,
};

use zip::{CompressionMethod, ZipArchive, read::ZipFile};

use super::{
    MAX_DEPTH,
    tensors::{Dtype, Stream, Tensor, Values},
};
use crate::error::{Error, Result};

/// The most that an archive's values may take in memory, in sizes of the file: weights are hardly compressible, but a
/// head that was never trained is all zeros.
const MAX_RATIO: u64 = 16;

/// What the header of a NumPy array says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader {
    /// Type of the elements as NumPy writes it, such as `<f4`.
    pub descr: String,
    /// Whether the first index runs fastest.
    pub fortran: bool,
    /// Shape, outermost dimension first.
    pub shape: Vec<usize>,
    /// Bytes before the values.
    pub length: usize,
}

impl NpyHeader {
    /// The longest header that is read, in bytes: it is a line of text.
    pub const LONGEST: u64 = 4096;

    /// Reads the header from a file's first [`LONGEST`](Self::LONGEST) bytes.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(start: &[u8]) -> Result<Self, String> {
        let (text, length) = match *start {
            [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, a, b, ..] => (10, usize::from(u16::from_le_bytes([a, b]))),
            [0x93, b'N', b'U', b'M', b'P', b'Y', _, _, a, b, c, d, ..] => {
                (12, u32::from_le_bytes([a, b, c, d]) as usize)
            }
            _ => return Err("is not a NumPy array (.npy)".to_owned()),
        };
        let length = length.saturating_add(text);
        let header = start.get(text..length).and_then(|header| std::str::from_utf8(header).ok());
        let header = header.and_then(|header| Self::read(header, length));
        header.ok_or_else(|| "has a broken NumPy header, or one of an array that is not plain numbers".to_owned())
    }

    /// Python's text for a dict, as NumPy always writes it.
    fn read(text: &str, length: usize) -> Option<Self> {
        let field = |name: &str| Some(text.split_once(&format!("'{name}':"))?.1.trim_start());
        let descr = field("descr")?.strip_prefix('\'')?.split_once('\'')?.0.to_owned();
        let fortran = field("fortran_order")?.starts_with("True");
        let sizes = field("shape")?.strip_prefix('(')?.split_once(')')?.0.split(',').map(str::trim);
        let shape: Vec<usize> = sizes.filter(|size| !size.is_empty()).map(str::parse).collect::<Result<_, _>>().ok()?;
        shape.iter().try_fold(1, |product: usize, &size| product.checked_mul(size))?;
        Some(Self { descr, fortran, shape, length })
    }

    /// Number of values.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn dtype(&self) -> Dtype {
        match self.descr.as_str() {
            "<f4" => Dtype::F32,
            "<f2" => Dtype::F16,
            // NumPy knows no bf16, so that JAX's is saved as two bytes of anything.
            "|V2" | "<V2" => Dtype::BF16,
            other => Dtype::Other(other.to_owned()),
        }
    }
}

/// Reads the headers of all arrays in an archive. Slashes in their names become dots, and arrays that hold a tensor of
/// every block (`encoderblock/`) become one tensor a block (`encoderblock_0.`).
pub(super) fn read(path: &Path, stream: &mut dyn Stream, length: u64) -> Result<BTreeMap<String, Tensor>> {
    let refuse = |reason: String| Error::checkpoint(path, reason);
    let broken = |error: &dyn std::fmt::Display| refuse(format!("cannot be read as a NumPy archive: {error}"));
    let mut archive = ZipArchive::new(stream).map_err(|error| broken(&error))?;
    let (mut tensors, mut claimed) = (BTreeMap::new(), 0_u64);
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(|error| broken(&error))?;
        let name = member.name().map_err(|error| broken(&error))?.into_owned();
        let Some(name) = name.strip_suffix(".npy") else { continue };
        let array = Array::open(&mut member, index, length).map_err(|reason| refuse(format!("its {name} {reason}")))?;
        claimed = claimed.saturating_add(array.bytes);
        if claimed > length.saturating_mul(MAX_RATIO) {
            return Err(refuse(format!("its arrays claim far more than the {length} bytes of the file")));
        }
        for tensor in array.tensors(&name.replace('/', ".")).map_err(|reason| refuse(format!("its {name} {reason}")))? {
            if let Some(first) = tensors.insert(tensor.name.clone(), tensor) {
                return Err(refuse(format!("the array {} appears twice", first.name)));
            }
        }
    }
    if tensors.is_empty() { Err(refuse("holds no arrays".to_owned())) } else { Ok(tensors) }
}

/// An array of an archive.
struct Array {
    header: NpyHeader,
    /// Number of the member.
    index: usize,
    /// Where in the file its bytes start; `None` if they are compressed.
    stored: Option<u64>,
    /// Bytes of the values.
    bytes: u64,
}

impl Array {
    fn open<R: io::Read + ?Sized>(member: &mut ZipFile<R>, index: usize, length: u64) -> Result<Self, String> {
        let mut start = Vec::new();
        let read = member.by_ref().take(NpyHeader::LONGEST).read_to_end(&mut start);
        // The checksum of a small member is checked here.
        read.map_err(|error| format!("cannot be read: {error}"))?;
        let header = NpyHeader::parse(&start)?;
        let dtype = header.dtype();
        let held = member.size().saturating_sub(header.length as u64);
        let bytes = (header.elements() as u64).saturating_mul(dtype.size() as u64);
        if dtype.is_float() && bytes != held {
            return Err(format!("holds {held} bytes of values where its header promises {bytes}"));
        }
        let stored = match member.compression() {
            CompressionMethod::Stored => {
                let start = member.data_start().ok_or("has no place in the file")?;
                let end = start.saturating_add(member.size());
                if end > length || member.size() != member.compressed_size() {
                    return Err(format!("ends at byte {end} of a file of {length}: truncated?"));
                }
                Some(start)
            }
            _ => None,
        };
        Ok(Self { header, index, stored, bytes })
    }

    /// The array as a tensor, or as one for each block.
    fn tensors(&self, name: &str) -> Result<Vec<Tensor>, String> {
        let tensor = |name: String, shape: &[usize], skipped: usize| {
            let before = (self.header.length + skipped) as u64;
            let values = match self.stored {
                Some(start) => Values::At(0, start + before),
                None => Values::Deflated { file: 0, index: self.index, start: before },
            };
            let (dtype, fortran) = (self.header.dtype(), self.header.fortran && shape.len() > 1);
            Tensor { name, shape: shape.to_vec(), dtype, fortran, values }
        };
        let shape = &self.header.shape;
        let stacked = name.split_once("encoderblock.").zip(shape.split_first());
        let Some(((before, after), (&blocks, one))) = stacked else {
            return Ok(vec![tensor(name.to_owned(), shape, 0)]);
        };
        if blocks > MAX_DEPTH {
            return Err(format!("is of shape {shape:?}, {blocks} blocks: expected at most {MAX_DEPTH}"));
        }
        if self.header.fortran {
            return Err("is of several blocks in Fortran order: save numpy.ascontiguousarray(...) of it".to_owned());
        }
        let size = one.iter().product::<usize>() * self.header.dtype().size();
        let block = |block: usize| tensor(format!("{before}encoderblock_{block}.{after}"), one, block * size);
        Ok((0..blocks).map(block).collect())
    }
}

/// Gives `read` a compressed member of an archive from byte `start` on.
pub(super) fn inflate(
    stream: &mut dyn Stream,
    index: usize,
    start: u64,
    read: impl FnOnce(&mut dyn io::Read) -> io::Result<()>,
) -> io::Result<()> {
    stream.rewind()?;
    let mut archive = ZipArchive::new(stream)?;
    let mut member = archive.by_index(index)?;
    io::copy(&mut member.by_ref().take(start), &mut io::sink())?;
    read(&mut member)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a failed unwrap is the failure")]
mod tests {
    use super::NpyHeader;

    fn parse(text: &str) -> Result<NpyHeader, String> {
        let mut start = b"\x93NUMPY\x01\x00".to_vec();
        start.extend((text.len() as u16).to_le_bytes());
        start.extend(text.as_bytes());
        NpyHeader::parse(&start)
    }

    #[test]
    fn headers_are_read_as_numpy_writes_them() {
        let header = parse("{'descr': '<f4', 'fortran_order': True, 'shape': (30, 12), }      \n").unwrap();
        assert_eq!((header.descr.as_str(), header.fortran, header.shape), ("<f4", true, vec![30, 12]));
        let scalar = parse("{'descr': '|V2', 'fortran_order': False, 'shape': (), }\n").unwrap();
        assert_eq!((scalar.elements(), scalar.fortran), (1, false));
        assert_eq!(parse("{'descr': '<f2', 'fortran_order': False, 'shape': (7,), }").unwrap().shape, [7]);
    }

    #[test]
    fn headers_that_no_array_of_numbers_has_are_refused() {
        for text in [
            "",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }",
            "{'descr': '<f4', 'shape': (3,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4",
        ] {
            assert!(parse(text).unwrap_err().contains("header"), "{text}");
        }
        assert!(NpyHeader::parse(b"\x93NUMPY\x01\x00\xff\xff{}").unwrap_err().contains("header"));
        assert!(NpyHeader::parse(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").unwrap_err().contains("header"));
        assert!(NpyHeader::parse(b"PK\x03\x04").unwrap_err().contains("not a NumPy array"));
    }
}
