//! The native format: a header with the full definition, then the array in blocks, each with its checksum and
//! compressed where that pays, then the digest of everything.

use std::io::{Read, Write};

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::{Fields, Source};
use crate::array::{BLOCK_BYTES, block_sum};
use crate::chain::{Chain, Link};
use crate::filter::{Body, Part, blocks_of};
use crate::sizing::Geometry;
use crate::{Error, Filter, Hasher, Layout, Limits, Result, Secret, Spec};

const FORMAT: &str = "native";
/// The high bit and both line ends show at once when a transfer treated the file as text.
const MAGIC: [u8; 8] = *b"\x89UMBEL\r\n";
const VERSION: u16 = 1;
const FIXED_BYTES: usize = 56;
const PART_BYTES: usize = 48;
const SUM_BYTES: usize = 8;
const BLOCK_HEADER_BYTES: usize = 16;

/// How blocks are compressed, where that saves a tenth or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Only blocks of zeros are shortened.
    #[default]
    None,
    /// LZ4: pays while less than a quarter of the cells are in use.
    Lz4,
    /// zstd at level 1: pays to about two thirds.
    Zstd,
}

/// How a block is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Codec {
    Zeros = 0, // persisted, as all tags here
    Raw = 1,
    Lz4 = 2,
    Zstd = 3,
}

const ZSTD_LEVEL: i32 = 1;

/// Writes a filter. Adds may go on meanwhile: the file has every element whose add returned before this call, and
/// its checksums hold whatever came in later.
pub fn write(filter: &Filter, compression: Compression, mut out: impl Write) -> Result<()> {
    filter.with_parts(|parts| {
        let header = header(filter, parts);
        out.write_all(&header)?;
        let mut digest = Xxh3Default::new();
        digest.update(&header);
        let mut encoder = Encoder::new(compression)?;
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        for (number, (array, index)) in (0..).zip(blocks_of(parts)) {
            array.copy_block(index, &mut block);
            let sum = block_sum(number, &block);
            digest.update(&sum.to_le_bytes());
            let (codec, stored) = encoder.encode(&block)?;
            let mut head = [0; BLOCK_HEADER_BYTES];
            head[0] = codec as u8;
            head[4..8].copy_from_slice(&(stored.len() as u32).to_le_bytes());
            head[8..].copy_from_slice(&sum.to_le_bytes());
            out.write_all(&head)?;
            out.write_all(stored)?;
        }
        out.write_all(&digest.digest128().to_le_bytes())?;
        Ok(())
    })
}

/// Reads a filter of any family but `keyed`.
pub fn read(input: impl Read, limits: &Limits) -> Result<Filter> {
    Reader::open(input, limits)?.filter(None)
}

/// Whether these are the first eight bytes of a native file.
pub fn is_native(start: &[u8; 8]) -> bool {
    *start == MAGIC
}

/// A native file whose header has been read and checked.
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    header: Header,
    limits: Limits,
}

/// A header that has been read and checked.
#[derive(Debug)]
struct Header {
    bytes: Vec<u8>,
    spec: Spec,
    secret_check: u64,
    parts: Vec<PartHeader>,
}

/// What the header says of one array: a filter has one, a chain one for each link.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartHeader {
    /// Size and shape.
    pub geometry: Geometry,
    /// Elements that it was made for.
    pub capacity: u64,
    /// Its error rate.
    pub error: f64,
    /// Elements that were added, where the layout counts them.
    pub items: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the header. No memory is taken for the array yet.
    pub fn open(input: R, limits: &Limits) -> Result<Self> {
        let mut source = Source::new(input, FORMAT);
        let header = Header::read(&mut source, limits)?;
        Ok(Self { source, header, limits: limits.clone() })
    }

    /// What the filter was made for.
    pub fn spec(&self) -> &Spec {
        &self.header.spec
    }

    /// The arrays that follow.
    pub fn parts(&self) -> &[PartHeader] {
        &self.header.parts
    }

    /// Reads the blocks and checks each; `secret` for a filter of the `keyed` family.
    pub fn filter(mut self, secret: Option<&Secret>) -> Result<Filter> {
        let mut filter = self.header.empty_filter(secret, &self.limits)?;
        let mut digest = Xxh3Default::new();
        digest.update(&self.header.bytes);
        let mut decoder = Decoder::new()?;
        let mut number = 0;
        for array in filter.arrays_mut() {
            for index in 0..array.blocks() {
                let length = array.block_bytes(index);
                let (block, sum) = decoder.decode(&mut self.source, number, length)?;
                array.load_block(index, block);
                digest.update(&sum.to_le_bytes());
                number += 1;
            }
        }
        if differ(&self.source.array::<16>()?, &digest.digest128().to_le_bytes()) {
            return Err(self.source.corrupt("the digest of the whole filter does not match"));
        }
        Ok(filter)
    }
}

/// An empty filter for a header that stands alone.
pub(crate) fn from_outline(outline: &[u8], secret: Option<&Secret>, limits: &Limits) -> Result<Filter> {
    let mut source = Source::new(outline, FORMAT);
    let header = Header::read(&mut source, limits)?;
    match source.reader.len() {
        0 => header.empty_filter(secret, limits),
        more => Err(source.corrupt(format!("{more} bytes follow the outline"))),
    }
}

impl Header {
    fn read(source: &mut Source<impl Read>, limits: &Limits) -> Result<Self> {
        let fixed: [u8; FIXED_BYTES] = source.array()?;
        if fixed[..8] != MAGIC {
            return Err(source.corrupt("it does not begin as a native filter file does"));
        }
        let version = u16::from_le_bytes([fixed[8], fixed[9]]);
        if version != VERSION {
            return Err(Error::unsupported("reading", format!("version {version} of the native format")));
        }
        let mut fields = Fields(&fixed[48..52]);
        let count = limits.check_links(fields.u32())?;
        let mut bytes = fixed.to_vec();
        bytes.resize(FIXED_BYTES + count as usize * PART_BYTES + SUM_BYTES, 0);
        source.exact(&mut bytes[FIXED_BYTES..])?;
        let (body, sum) = bytes.split_at(bytes.len() - SUM_BYTES);
        if differ(&xxh3_64(body).to_le_bytes(), sum) {
            return Err(source.corrupt("the checksum of the header does not match"));
        }
        let (spec, secret_check, parts) = parse(body).map_err(|why| source.corrupt(why))?;
        limits.check_bytes(parts.iter().map(|part| part.geometry.bytes()).sum())?;
        Ok(Self { bytes, spec, secret_check, parts })
    }

    /// A filter of this shape, with nothing in its arrays.
    fn empty_filter(&self, secret: Option<&Secret>, limits: &Limits) -> Result<Filter> {
        let hasher = Hasher::new(self.spec.family, secret)?;
        if hasher.secret_check() != self.secret_check {
            return Err(Error::mismatch("secret", "the one given", "the one that the filter was made with"));
        }
        Ok(Filter::of(self.spec, hasher, self.body(limits)?))
    }

    fn body(&self, limits: &Limits) -> Result<Body> {
        match (self.spec.layout, &*self.parts) {
            (Layout::RedisBloom { expansion }, links) => {
                let links = links.iter().map(|part| {
                    Link::with_geometry(part.geometry, part.capacity, part.error, part.items, limits)
                });
                Ok(Body::Chain(Chain::of(links.collect::<Result<_>>()?, expansion, limits)?))
            }
            (layout, [part]) => Body::with_geometry(layout, part.geometry, limits),
            (_, parts) => Err(Error::Corrupt {
                format: FORMAT,
                offset: self.bytes.len() as u64,
                why: format!("{} arrays where one is due", parts.len()),
            }),
        }
    }
}

/// Whether a checksum does not match. A fuzzer would hardly ever get past one, so there they all do.
fn differ(computed: &[u8], stored: &[u8]) -> bool {
    computed != stored && !cfg!(fuzzing)
}

/// The header of a filter: definition, arrays and the checksum of both.
pub(crate) fn header(filter: &Filter, parts: &[Part<'_>]) -> Vec<u8> {
    let spec = filter.spec();
    let mut bytes = Vec::with_capacity(FIXED_BYTES + parts.len() * PART_BYTES + SUM_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 6]);
    bytes.extend(spec.to_bytes());
    bytes.extend(filter.hasher().secret_check().to_le_bytes());
    bytes.extend((parts.len() as u32).to_le_bytes());
    bytes.extend((BLOCK_BYTES as u32).to_le_bytes());
    debug_assert_eq!(bytes.len(), FIXED_BYTES);
    for part in parts {
        let (touched, size) = match part.geometry {
            Geometry::Blocked { banks, lines, .. } => (banks, lines),
            Geometry::Classic { bits, hashes } => (hashes, bits),
        };
        bytes.extend(touched.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(size.to_le_bytes());
        bytes.extend(part.capacity.to_le_bytes());
        bytes.extend(part.error.to_le_bytes());
        bytes.extend(part.items.to_le_bytes());
        bytes.extend([0; 8]);
    }
    let sum = xxh3_64(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Reads what [`header`] wrote, without the checksum, or says what is wrong with it.
fn parse(header: &[u8]) -> Result<(Spec, u64, Vec<PartHeader>), String> {
    let mut fields = Fields(&header[MAGIC.len() + 2..]);
    let mut reserved = fields.take::<6>().to_vec();
    let spec = Spec::from_bytes(fields.take()).map_err(|error| error.to_string())?;
    let (secret_check, count, block_bytes) = (fields.u64(), fields.u32(), fields.u32());
    if block_bytes as usize != BLOCK_BYTES {
        return Err(format!("blocks of {block_bytes} bytes; this version has {BLOCK_BYTES}"));
    }
    let mut parts = Vec::new();
    for _ in 0..count {
        let touched = fields.u32();
        reserved.extend(fields.take::<4>());
        let size = fields.u64();
        let geometry = geometry_of(&spec, touched, size)?;
        let (capacity, error, items) = (fields.u64(), fields.f64(), fields.u64());
        reserved.extend(fields.take::<8>());
        parts.push(PartHeader { geometry, capacity, error, items });
    }
    if reserved.iter().any(|byte| *byte != 0) {
        return Err("a reserved byte of the header is not zero".into());
    }
    Ok((spec, secret_check, parts))
}

fn geometry_of(spec: &Spec, touched: u32, size: u64) -> Result<Geometry, String> {
    let geometry = match spec.layout {
        Layout::Blocked => {
            Geometry::Blocked { cell_bits: spec.kind.cell_bits(), banks: touched, lines: size }
        }
        _ => Geometry::Classic { bits: size, hashes: touched },
    };
    geometry.check().map_err(|error| error.to_string())?;
    Ok(geometry)
}

struct Encoder {
    compression: Compression,
    zstd: zstd::bulk::Compressor<'static>,
    packed: Vec<u8>,
}

impl Encoder {
    fn new(compression: Compression) -> Result<Self> {
        let zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
        let most = zstd::zstd_safe::compress_bound(BLOCK_BYTES)
            .max(lz4_flex::block::get_maximum_output_size(BLOCK_BYTES));
        Ok(Self { compression, zstd, packed: vec![0; most] })
    }

    /// The shortest form of a block, but plain unless another saves a tenth.
    fn encode<'a>(&'a mut self, block: &'a [u8]) -> Result<(Codec, &'a [u8])> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok((Codec::Zeros, &[]));
        }
        let (codec, length) = match self.compression {
            Compression::None => return Ok((Codec::Raw, block)),
            Compression::Lz4 => {
                let length = lz4_flex::block::compress_into(block, &mut self.packed);
                (Codec::Lz4, length.map_err(std::io::Error::other)?)
            }
            Compression::Zstd => (Codec::Zstd, self.zstd.compress_to_buffer(block, &mut self.packed[..])?),
        };
        if length * 10 <= block.len() * 9 {
            Ok((codec, &self.packed[..length]))
        } else {
            Ok((Codec::Raw, block))
        }
    }
}

struct Decoder {
    zstd: zstd::bulk::Decompressor<'static>,
    stored: Vec<u8>,
    block: Vec<u8>,
}

impl Decoder {
    fn new() -> Result<Self> {
        let zstd = zstd::bulk::Decompressor::new()?;
        Ok(Self { zstd, stored: vec![0; BLOCK_BYTES], block: vec![0; BLOCK_BYTES] })
    }

    /// Reads block `number`, of `length` bytes, and its checksum.
    fn decode(&mut self, source: &mut Source<impl Read>, number: u64, length: usize) -> Result<(&[u8], u64)> {
        let head: [u8; BLOCK_HEADER_BYTES] = source.array()?;
        let mut fields = Fields(&head);
        let (codec, reserved) = (fields.u8(), fields.take::<3>());
        let (stored_bytes, sum) = (fields.u32() as usize, fields.u64());
        if reserved != [0; 3] || stored_bytes > length {
            return Err(source.corrupt(format!("block {number} has an impossible header")));
        }
        let Self { zstd, stored, block } = self;
        let (stored, block) = (&mut stored[..stored_bytes], &mut block[..length]);
        source.exact(stored)?;
        let unpacked = match codec {
            code if code == Codec::Zeros as u8 && stored_bytes == 0 => {
                block.fill(0);
                Some(length)
            }
            code if code == Codec::Raw as u8 => {
                block[..stored_bytes].copy_from_slice(stored);
                Some(stored_bytes)
            }
            code if code == Codec::Lz4 as u8 => lz4_flex::block::decompress_into(stored, block).ok(),
            code if code == Codec::Zstd as u8 => zstd.decompress_to_buffer(stored, block).ok(),
            _ => return Err(source.corrupt(format!("block {number} has the unknown codec {codec}"))),
        };
        if unpacked != Some(length) {
            return Err(source.corrupt(format!("block {number} does not unpack to its {length} bytes")));
        }
        if differ(&block_sum(number, block).to_le_bytes(), &sum.to_le_bytes()) {
            return Err(source.corrupt(format!("the checksum of block {number} does not match")));
        }
        Ok((block, sum))
    }
}
