//! Every format: whole round trips, recorded files, and input that is cut, flipped, oversize or hostile.

mod common;

use common::{Random, fixture, read};
use serde_json::{Value, json};
use umbel_filter::format::native::{self, Compression};
use umbel_filter::format::{guava, redisbloom, redisson};
use umbel_filter::{Counter, Error, Family, Filter, Kind, Layout, Limits, Secret, Spec, block_sum};

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

fn filled(spec: &Spec, keys: u64) -> Filter {
    let filter = Filter::new(spec, &Limits::default()).unwrap();
    (0..keys).for_each(|i| {
        filter.insert(format!("item:{i}")).unwrap();
    });
    filter
}

fn written(filter: &Filter, compression: Compression) -> Vec<u8> {
    let mut bytes = Vec::new();
    native::write(filter, compression, &mut bytes).unwrap();
    bytes
}

fn specs() -> Vec<Spec> {
    let mut specs: Vec<Spec> = [Family::Murmur3, Family::RedisBloom, Family::Redisson, Family::Xxh3]
        .map(|family| Spec::bloom(1000, 0.001).family(family))
        .to_vec();
    specs.extend(
        [Counter::Nibble, Counter::Byte].map(|counter| Spec::bloom(1000, 1e-5).kind(Kind::Counting(counter))),
    );
    specs.push(Spec::bloom(300_000, 0.001));
    for layout in [
        Layout::Guava,
        Layout::Guava32,
        Layout::Redisson,
        Layout::RedisBloom { expansion: None },
        Layout::RedisBloom { expansion: Some(3) },
    ] {
        specs.push(Spec::hosted(layout, 1000, 0.001));
    }
    specs
}

#[test]
fn native_files_bring_every_filter_back() {
    for spec in specs() {
        for keys in [0, spec.capacity / 20, spec.capacity] {
            let filter = filled(&spec, keys);
            for compression in COMPRESSIONS {
                let bytes = written(&filter, compression);
                // Whatever follows the filter is left to be read.
                let mut input = &[bytes.as_slice(), b"next"].concat()[..];
                let back = native::read(&mut input, &Limits::default()).unwrap();
                assert_eq!(input, b"next");
                assert_eq!(back.spec(), filter.spec());
                assert_eq!(back.geometry(), filter.geometry());
                assert_eq!(back.digest(), filter.digest());
                assert_eq!(written(&back, compression), bytes);
            }
        }
    }
}

#[test]
fn compression_is_used_where_it_pays() {
    let spec = Spec::bloom(1_000_000, 0.001);
    let sizes = |keys| COMPRESSIONS.map(|compression| written(&filled(&spec, keys), compression).len());
    let empty = sizes(0);
    assert!(empty.iter().all(|size| *size < 1000), "{empty:?}");
    let [plain, lz4, zstd] = sizes(100_000);
    assert!(zstd < lz4 && lz4 < plain * 7 / 10 && zstd < plain / 2, "{plain} {lz4} {zstd}");
    let [plain, lz4, zstd] = sizes(1_000_000);
    assert!(zstd == plain && lz4 == plain, "{plain} {lz4} {zstd}");
}

#[test]
fn a_keyed_filter_opens_with_its_secret_only() {
    let secret = Secret(*b"0123456789abcdef");
    let filter = Filter::keyed(&Spec::bloom(1000, 0.001), &secret, &Limits::default()).unwrap();
    filter.insert("key").unwrap();
    let bytes = written(&filter, Compression::None);
    assert!(!bytes.windows(16).any(|window| window == secret.0));
    let open = |secret: Option<&Secret>| native::Reader::open(&bytes[..], &Limits::default())?.filter(secret);
    assert!(open(Some(&secret)).unwrap().contains("key"));
    assert!(open(None).unwrap_err().to_string().contains("secret"));
    assert!(open(Some(&Secret([0; 16]))).unwrap_err().to_string().contains("secret"));
}

const SECRET: Secret = Secret(*b"0123456789abcdef");

/// A filter of every layout, kind and family; the chain that may grow has three links.
fn outlined() -> Vec<(Filter, Option<&'static Secret>)> {
    let keys = |spec: &Spec| match spec.layout {
        Layout::RedisBloom { expansion: Some(_) } => spec.capacity * 5,
        _ => spec.capacity,
    };
    let keyed = Filter::keyed(&Spec::counting(1000, 0.001), &SECRET, &Limits::default()).unwrap();
    (0..500).for_each(|i| assert!(keyed.insert(format!("item:{i}")).is_ok()));
    let mut all: Vec<_> = specs().iter().map(|spec| (filled(spec, keys(spec)), None)).collect();
    all.push((keyed, Some(&SECRET)));
    all
}

#[test]
fn an_outline_and_the_blocks_bring_every_filter_back() {
    let mut chain_blocks_max = 0;
    for (filter, secret) in outlined() {
        let outline = filter.outline();
        assert!(written(&filter, Compression::None).starts_with(&outline));
        let mut back = Filter::from_outline(&outline, secret, &Limits::default()).unwrap();
        assert_eq!(back.outline(), outline);
        assert_eq!(
            (back.spec(), back.geometry(), back.blocks(), back.bytes(), back.items()),
            (filter.spec(), filter.geometry(), filter.blocks(), filter.bytes(), filter.items())
        );
        assert_eq!((filter.bytes(), back.stats().fill), (filter.stats().bytes, 0.0));
        let is_chain = matches!(filter.spec().layout, Layout::RedisBloom { .. });
        assert_eq!(filter.items().is_some(), is_chain);
        if is_chain {
            chain_blocks_max = chain_blocks_max.max(filter.blocks());
        }
        let mut bytes = Vec::new();
        for block in (0..filter.blocks()).rev() {
            filter.copy_block(block, &mut bytes);
            back.load_block(block, &bytes).unwrap();
        }
        assert_eq!(back.digest(), filter.digest());
        assert!(back.take_dirty().is_empty(), "a restore is no change");
        // It goes on as the other does, which a chain could not without its items.
        if filter.spec().layout != (Layout::RedisBloom { expansion: None }) {
            for i in 0..10_000 {
                let key = format!("later:{i}");
                assert_eq!(back.insert(&key).unwrap(), filter.insert(&key).unwrap());
            }
            assert_eq!(back.digest(), filter.digest());
        }
    }
    assert!(chain_blocks_max >= 3, "each link has a block of its own");
}

#[test]
fn items_are_known_to_chains() {
    let chain = Spec::hosted(Layout::RedisBloom { expansion: Some(2) }, 100, 0.001);
    assert_eq!(filled(&chain, 0).items(), Some(0));
    let items = filled(&chain, 500).items().unwrap();
    assert!((490..=500).contains(&items), "{items}");
    assert_eq!(filled(&Spec::bloom(100, 0.001), 50).items(), None);
}

#[test]
fn a_damaged_outline_is_refused() {
    for (filter, secret) in outlined() {
        let outline = filter.outline();
        let open = |outline: &[u8]| Filter::from_outline(outline, secret, &Limits::default());
        for bit in 0..outline.len() * 8 {
            let mut damaged = outline.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&damaged).is_err(), "{:?}, bit {bit}", filter.spec());
        }
        for length in 0..outline.len() {
            let error = open(&outline[..length]).unwrap_err();
            assert!(matches!(error, Error::Truncated { .. }), "cut to {length}: {error}");
        }
        let error = open(&[&outline[..], b"."].concat()).unwrap_err().to_string();
        assert!(error.contains("1 bytes follow"), "{error}");
        let tight = Limits { filter_bytes_max: filter.bytes() - 1, ..Limits::default() };
        let error = Filter::from_outline(&outline, secret, &tight).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    }
}

#[test]
fn the_outline_of_a_keyed_filter_opens_with_its_secret_only() {
    let keyed = Filter::keyed(&Spec::bloom(1000, 0.001), &SECRET, &Limits::default()).unwrap();
    let open = |secret| Filter::from_outline(&keyed.outline(), secret, &Limits::default());
    assert!(open(Some(&SECRET)).is_ok());
    for secret in [None, Some(&Secret([0; 16]))] {
        assert!(open(secret).unwrap_err().to_string().contains("secret"));
    }
}

/// A checksum keeps accidents out, not a forger: each field has to be possible in itself.
#[test]
fn a_forged_outline_is_refused() {
    let blocked = filled(&Spec::bloom(1000, 0.001), 0).outline();
    let chain = filled(&Spec::hosted(Layout::RedisBloom { expansion: None }, 1000, 0.01), 0).outline();
    let forge = |outline: &[u8], change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = outline[..outline.len() - 8].to_vec();
        change(&mut bytes);
        // With 0 as its seed it is the sum that a header has.
        let sum = block_sum(0, &bytes);
        bytes.extend(sum.to_le_bytes());
        Filter::from_outline(&bytes, None, &Limits::default())
    };
    assert!(forge(&blocked, &|_| ()).is_ok() && forge(&chain, &|_| ()).is_ok());
    let twice = |b: &mut Vec<u8>| {
        b[48] = 2;
        b.extend_from_within(56..104);
    };
    assert!(forge(&chain, &twice).is_ok());
    let refused = |outline: &[u8], says: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let error = forge(outline, change).unwrap_err().to_string();
        assert!(error.contains(says), "{error:?} should say {says:?}");
    };
    refused(&blocked, "2 arrays where one is due", &twice);
    refused(&chain, "a chain has one or more", &|b| {
        b[48] = 0;
        b.truncate(56);
    });
    refused(&blocked, "reserved", &|b| b[10] = 1);
    refused(&blocked, "reserved", &|b| b[103] = 1);
    refused(&blocked, "geometry", &|b| b[56] = 0);
    refused(&blocked, "geometry", &|b| b[64..72].fill(0));
    refused(&blocked, "over the limit", &|b| b[64..72].fill(0xff));
    refused(&blocked, "blocks of", &|b| b[52] = 1);
}

/// Each decoder behind one face, for input that is not to be trusted.
fn decode(format: &str, bytes: &[u8], limits: &Limits) -> Result<Filter, Error> {
    match format {
        "native" => native::read(bytes, limits),
        "guava" => guava::read(bytes, limits),
        "redisson" => redisson::read(&redisson_config(), bytes, limits),
        "redisbloom" => {
            // Header, then one chunk for all the rest.
            let header = bytes.len().min(HEADER_BYTES);
            let mut loader = redisbloom::Loader::new(&bytes[..header], limits)?;
            loader.load(1 + (bytes.len() - header) as u64, &bytes[header..])?;
            loader.finish()
        }
        other => panic!("{other}"),
    }
}

/// A chain of one link.
const HEADER_BYTES: usize = 20 + 53;

fn redisson_config() -> redisson::Config {
    redisson::Config { size: 9585, hash_iterations: 7, expected_insertions: 1000, false_probability: 0.01 }
}

/// A whole filter in each format.
fn samples() -> [(&'static str, Filter, Vec<u8>); 5] {
    let native = filled(&Spec::bloom(2000, 0.001), 700);
    let counting = filled(&Spec::counting(1000, 0.001), 100);
    let guava = filled(&Spec::hosted(Layout::Guava, 1000, 0.01), 1000);
    let redisson = filled(&Spec::hosted(Layout::Redisson, 1000, 0.01), 1000);
    let redisbloom = filled(&Spec::hosted(Layout::RedisBloom { expansion: None }, 1000, 0.01), 900);
    let mut bytes: [Vec<u8>; 5] = Default::default();
    native::write(&native, Compression::None, &mut bytes[0]).unwrap();
    native::write(&counting, Compression::Zstd, &mut bytes[1]).unwrap();
    guava::write(&guava, &mut bytes[2]).unwrap();
    redisson::write(&redisson, &mut bytes[3]).unwrap();
    redisbloom::chunks(&redisbloom).for_each(|chunk| bytes[4].extend(chunk.unwrap().1));
    let [a, b, c, d, e] = bytes;
    [
        ("native", native, a),
        ("native", counting, b),
        ("guava", guava, c),
        ("redisson", redisson, d),
        ("redisbloom", redisbloom, e),
    ]
}

#[test]
fn every_truncation_is_noticed() {
    for (format, filter, bytes) in samples() {
        let whole = decode(format, &bytes, &Limits::default()).unwrap();
        assert_eq!(whole.stats(), filter.stats());
        if format == "redisson" {
            continue; // Redis itself cuts zeros off a bitmap's end.
        }
        for length in 0..bytes.len() {
            let error = decode(format, &bytes[..length], &Limits::default()).unwrap_err();
            let named = matches!(&error, Error::Truncated { .. } | Error::Invalid { what: "chunk", .. });
            assert!(named, "{format} cut to {length}: {error}");
        }
    }
}

#[test]
fn flipped_bits_are_noticed_where_there_are_checksums_and_harmless_elsewhere() {
    let limits = Limits { filter_bytes_max: 1 << 20, ..Limits::default() };
    let mut random = Random(2026);
    for (format, filter, bytes) in samples() {
        let (mut refused, mut without_effect, mut accepted) = (0, 0, 0);
        for _ in 0..100_000 {
            let mut damaged = bytes.clone();
            let bit = random.below(bytes.len() as u64 * 8) as usize;
            damaged[bit / 8] ^= 1 << (bit % 8);
            match decode(format, &damaged, &limits) {
                Err(_) => refused += 1,
                // A few bits of compressed data mean nothing.
                Ok(other) if format == "native" => {
                    assert_eq!(other.digest(), filter.digest(), "bit {bit}");
                    without_effect += 1;
                }
                // The foreign formats have no checksums: what they cannot show must still be a whole filter.
                Ok(other) => {
                    assert!(other.stats().bytes <= 1 << 20);
                    other.contains("any key");
                    accepted += 1;
                }
            }
        }
        println!(
            "{format}: of 100000 flips {refused} refused, {without_effect} without effect, {accepted} accepted"
        );
    }
}

#[test]
fn random_bytes_are_refused() {
    let limits = Limits { filter_bytes_max: 1 << 20, ..Limits::default() };
    let mut random = Random(7);
    for (format, _, bytes) in samples() {
        for round in 0..2000 {
            // Noise after a true beginning of any length gets further than noise alone.
            let mut noise = bytes[..random.below(120.min(bytes.len() as u64)) as usize].to_vec();
            noise.extend((0..random.below(300)).map(|_| random.word() as u8));
            if let Ok(filter) = decode(format, &noise, &limits) {
                assert!(format != "native", "round {round}");
                filter.contains("any key");
            }
        }
    }
}

/// Decoders that are handed sizes never take memory for more than their limit.
#[test]
fn sizes_in_headers_are_checked_against_the_limits() {
    let limits = Limits { filter_bytes_max: 1000, chain_links_max: 1 };
    for (format, _, bytes) in samples() {
        let error = decode(format, &bytes, &limits).unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit: 1000, .. }), "{format}: {error}");
    }
    let chain = filled(&Spec::hosted(Layout::RedisBloom { expansion: Some(2) }, 100, 0.01), 500);
    let (_, header) = redisbloom::scan_dump(&chain, 0).unwrap();
    let error = redisbloom::Loader::new(&header, &limits).unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: 1, .. }), "{error}");
}

#[test]
fn chunks_out_of_place_are_refused() {
    let chain = filled(&Spec::hosted(Layout::RedisBloom { expansion: Some(2) }, 1000, 0.01), 2500);
    let chunks: Vec<_> = redisbloom::chunks(&chain).map(Result::unwrap).collect();
    assert_eq!(chunks.len(), 3, "a header and two links");
    let loader = || redisbloom::Loader::new(&chunks[0].1, &Limits::default()).unwrap();
    let (cursor, chunk) = &chunks[1];
    for (cursor, chunk) in [
        (0, &chunk[..]),
        (1, &chunk[..]),
        (cursor - 1, &chunk[..]),
        (cursor + 8, &chunk[..]),
        (*cursor, &chunk[4..]),
        (u64::MAX, &chunk[..]),
        (*cursor, &[]),
        (chunks[2].0 + 8, &chunk[..8]),
        (chunks[2].0 + 1_000_000, &chunk[..8]),
    ] {
        let mut loader = loader();
        assert!(loader.load(cursor, chunk).is_err(), "{cursor} {}", chunk.len());
        assert_eq!(loader.filter().stats().fill, 0.0, "nothing was written");
    }
    for cursor in [2, 8, 10, chunks[1].0 + 1] {
        assert!(redisbloom::scan_dump(&chain, cursor).is_err(), "{cursor}");
    }
    assert_eq!(redisbloom::scan_dump(&chain, (1 << 40) + 1).unwrap(), (0, Vec::new()), "behind the end");
    let mut partial = loader();
    partial.load(*cursor, chunk).unwrap();
    assert!(matches!(partial.finish(), Err(Error::Truncated { .. })));

    // The order does not matter.
    let mut backwards = loader();
    for (cursor, chunk) in chunks[1..].iter().rev() {
        backwards.load(*cursor, chunk).unwrap();
    }
    assert_eq!(backwards.finish().unwrap().digest(), chain.digest());
}

#[test]
fn large_chains_are_dumped_in_bounded_chunks() {
    let spec = Spec::hosted(Layout::RedisBloom { expansion: None }, 20_000_000, 0.001);
    let filter = filled(&spec, 1000);
    let mut loader = None;
    let mut sizes = Vec::new();
    for chunk in redisbloom::chunks(&filter) {
        let (cursor, chunk) = chunk.unwrap();
        match &mut loader {
            None => loader = Some(redisbloom::Loader::new(&chunk, &Limits::default()).unwrap()),
            Some(loader) => {
                sizes.push(chunk.len());
                loader.load(cursor, &chunk).unwrap();
            }
        }
    }
    assert!(sizes.len() > 2 && sizes.iter().all(|size| *size <= redisbloom::CHUNK_BYTES_MAX), "{sizes:?}");
    assert_eq!(loader.unwrap().finish().unwrap().digest(), filter.digest());
}

#[test]
fn other_layouts_cannot_be_written_in_a_foreign_format() {
    let native = filled(&Spec::bloom(1000, 0.001), 1);
    let guava = filled(&Spec::hosted(Layout::Guava, 1000, 0.001), 1);
    assert!(guava::write(&native, Vec::new()).unwrap_err().to_string().contains("blocked"));
    assert!(redisson::write(&guava, Vec::new()).unwrap_err().to_string().contains("guava"));
    assert!(redisbloom::scan_dump(&guava, 0).unwrap_err().to_string().contains("guava"));
}

#[test]
fn redisson_settings_are_checked() {
    let good = redisson_config();
    for config in [
        redisson::Config { size: 0, ..good },
        redisson::Config { size: u64::MAX, ..good },
        redisson::Config { hash_iterations: 0, ..good },
        redisson::Config { hash_iterations: u32::MAX, ..good },
        redisson::Config { expected_insertions: 0, ..good },
        redisson::Config { false_probability: f64::NAN, ..good },
    ] {
        assert!(redisson::read(&config, &b""[..], &Limits::default()).is_err(), "{config:?}");
    }
    assert_eq!(redisson::read(&good, &b""[..], &Limits::default()).unwrap().stats().fill, 0.0);
    let long = vec![0; 1200];
    assert!(redisson::read(&good, &long[..], &Limits::default()).is_err());
    let mut stray = vec![0; 1199];
    stray[1198] = 0x40; // Bit 9585, the first past the size.
    assert!(redisson::read(&good, &stray[..], &Limits::default()).is_err());
    stray[1198] = 0x80; // Bit 9584, the last one.
    assert!(redisson::read(&good, &stray[..], &Limits::default()).is_ok());
}

/// Files of the first release of the native format. A later release must read them; to record new ones, run this test with
/// `UMBEL_RECORD=1`.
#[test]
fn recorded_native_files_are_read_and_written_the_same() {
    let recording = std::env::var_os("UMBEL_RECORD").is_some();
    let cases = [
        ("bloom", filled(&Spec::bloom(1000, 0.001), 1000), Compression::None),
        ("strict_lz4", filled(&Spec::bloom(1000, 1e-6), 100), Compression::Lz4),
        ("counting_zstd", filled(&Spec::counting(1000, 0.01), 100), Compression::Zstd),
        (
            "chain",
            filled(&Spec::hosted(Layout::RedisBloom { expansion: Some(2) }, 100, 0.01), 250),
            Compression::None,
        ),
        ("guava", filled(&Spec::hosted(Layout::Guava, 1000, 0.01), 500), Compression::None),
    ];
    for (name, filter, compression) in cases {
        let path = fixture(&format!("native/v1/{name}.umbel"));
        if recording {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, written(&filter, compression)).unwrap();
        }
        let recorded = std::fs::read(&path).unwrap();
        assert_eq!(
            native::read(&recorded[..], &Limits::default()).unwrap().digest(),
            filter.digest(),
            "{name}"
        );
        if compression == Compression::None {
            assert_eq!(written(&filter, compression), recorded, "{name}");
        }
    }
}

/// Files with one fault each, and what a reader must say about it.
#[test]
fn recorded_corrupt_files_are_refused_by_name() {
    if std::env::var_os("UMBEL_RECORD").is_some() {
        record_corrupt_files();
    }
    let manifest: Vec<Value> = serde_json::from_slice(&read("corrupt/manifest.json")).unwrap();
    assert!(manifest.len() >= 15);
    for entry in manifest {
        let [file, format, says] = ["file", "format", "says"].map(|field| entry[field].as_str().unwrap());
        let bytes = read(&format!("corrupt/{file}"));
        let error = decode(format, &bytes, &Limits::default()).unwrap_err().to_string();
        assert!(error.contains(says), "{file}: {error:?} should say {says:?}");
    }
}

fn record_corrupt_files() {
    let samples = samples();
    let bytes = |format: &str| samples.iter().find(|sample| sample.0 == format).unwrap().2.clone();
    let mut manifest = Vec::new();
    let folder = fixture("corrupt");
    std::fs::create_dir_all(&folder).unwrap();
    let mut record = |name: &str, format: &str, says: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes(format);
        change(&mut bytes);
        let file = format!("{format}_{name}.bin");
        std::fs::write(folder.join(&file), bytes).unwrap();
        manifest.push(json!({"file": file, "format": format, "says": says}));
    };
    record("magic", "native", "does not begin", &|b| b[0] = b'U');
    record("version", "native", "version 2", &|b| b[8] = 2);
    record("header_sum", "native", "checksum of the header", &|b| b[24] ^= 1);
    record("parts", "native", "number of sub-filters is 4294967295", &|b| b[48..52].fill(0xff));
    record("no_parts", "native", "checksum of the header", &|b| b[48..52].fill(0));
    record("block_sum", "native", "checksum of block 0", &|b| b[200] ^= 1);
    record("block_codec", "native", "unknown codec 9", &|b| b[112] = 9);
    record("block_length", "native", "impossible header", &|b| b[116..120].fill(0xff));
    record("digest", "native", "digest of the whole", &|b| *b.last_mut().unwrap() ^= 1);
    record("cut", "native", "truncated", &|b| b.truncate(1000));
    record("strategy", "guava", "unknown strategy 2", &|b| b[0] = 2);
    record("no_hashes", "guava", "no hash functions", &|b| b[1] = 0);
    record("negative_words", "guava", "-1 words", &|b| b[2..6].fill(0xff));
    record("no_words", "guava", "0 words", &|b| b[2..6].fill(0));
    record("many_words", "guava", "truncated", &|b| b[2] = 1);
    record("links", "redisbloom", "number of sub-filters is 4294967295", &|b| b[8..12].fill(0xff));
    record("no_links", "redisbloom", "after 0 links", &|b| b[8..12].fill(0));
    record("old_hashes", "redisbloom", "32-bit", &|b| b[12] = 1);
    record("bytes", "redisbloom", "bits in", &|b| b[20] ^= 8);
    record("huge", "redisbloom", "over the limit", &|b| {
        b[20..28].copy_from_slice(&(1_u64 << 60).to_le_bytes());
        b[28..36].copy_from_slice(&(1_u64 << 63).to_le_bytes());
    });
    record("items", "redisbloom", "items in all", &|b| b[0] ^= 1);
    record("error", "redisbloom", "error rate of NaN", &|b| b[44..52].fill(0xff));
    record("hashes", "redisbloom", "hash functions", &|b| b[60..64].fill(0xff));
    record("capacity", "redisbloom", "a capacity of 0", &|b| b[64..72].fill(0));
    record("power", "redisbloom", "2^200", &|b| b[72] = 200);
    record("long", "redisson", "past the size", &|b| b.push(0));
    record("stray", "redisson", "past the size", &|b| *b.last_mut().unwrap() |= 1);
    let text = serde_json::to_string_pretty(&manifest).unwrap();
    std::fs::write(folder.join("manifest.json"), text + "\n").unwrap();
}
