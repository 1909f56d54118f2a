//! Files of all formats and packings, compared with what was written into them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use umbel_core::random::{Random, SeededRandom};

use super::*;
use crate::Batch;
use crate::limits::{BATCH_KEYS_MAX, RECORD_BYTES_MAX};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("umbel-load-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    // Two members, as files that were put together have them.
    let (first, second) = bytes.split_at(bytes.len() / 3);
    let pack = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    [pack(first), pack(second)].concat()
}

fn plain(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// Reads all parts, each from the beginning to the end.
fn read(source: &Files, wanted: usize) -> Result<(Vec<String>, u64)> {
    let (mut keys, mut nulls, mut batch) = (Vec::new(), 0, Batch::default());
    for part in source.parts(wanted)? {
        let mut cursor = source.open(&part, None)?;
        batch.clear();
        while cursor.next(&mut batch)?.is_some() {
            keys.extend(batch.keys().map(|key| String::from_utf8_lossy(key).into_owned()));
            nulls += batch.nulls();
            batch.clear();
        }
    }
    Ok((keys, nulls))
}

/// The same, but every batch is read by a cursor of its own that begins at the bookmark of the one before.
fn read_resumed(source: &Files, wanted: usize) -> Vec<String> {
    let (mut keys, mut batch) = (Vec::new(), Batch::default());
    for part in source.parts(wanted).unwrap() {
        let mut after: Option<Bookmark> = None;
        loop {
            batch.clear();
            let next = source.open(&part, after.as_ref()).unwrap().next(&mut batch).unwrap();
            keys.extend(batch.keys().map(|key| String::from_utf8_lossy(key).into_owned()));
            let Some(next) = next else { break };
            after = Some(Bookmark::new(next.as_str()).unwrap());
        }
    }
    keys
}

fn keys(count: usize, seed: u64) -> Vec<String> {
    let random = SeededRandom::new(seed);
    (0..count).map(|number| format!("https://example.org/{:x}/{number}", random.next() >> 40)).collect()
}

fn csv_of(columns: &[&str]) -> Csv {
    let columns = columns.iter().map(|column| (*column).to_owned()).collect();
    Csv { columns, separator: ":".into(), delimiter: b',', has_header: true }
}

fn message<T>(result: Result<T>) -> String {
    result.err().expect("this fails").to_string()
}

#[test]
fn every_format_gives_every_key_however_it_is_packed_and_wherever_it_goes_on() {
    let (folder, keys) = (Folder::new("formats"), keys(3 * BATCH_KEYS_MAX + 7, 1));
    let lines = keys.join("\n");
    let json: String =
        keys.iter().map(|key| format!("{{\"id\": 1, \"request\": {{\"url\": \"{key}\"}}}}\r\n")).collect();
    let csv: String = std::iter::once("id,\"the url\"\n".to_owned())
        .chain(keys.iter().enumerate().map(|(number, key)| format!("\"{number}\n\",\"{key}\"\n")))
        .collect();
    let formats = [
        (lines, Format::Lines),
        (json, Format::json("request.url").unwrap()),
        (csv, Format::csv(csv_of(&["the url"])).unwrap()),
    ];
    for (number, (text, format)) in formats.into_iter().enumerate() {
        for (packing, pack) in [("plain", plain as fn(&[u8]) -> Vec<u8>), ("gz", gzip), ("zst", zstandard)] {
            let path = folder.write(&format!("{number}.{packing}"), &pack(text.as_bytes()));
            let source = Files::new(&[path], format.clone()).unwrap();
            assert_eq!(read(&source, 1).unwrap(), (keys.clone(), 0), "{format:?} {packing}");
            assert_eq!(read_resumed(&source, 1), keys, "{format:?} {packing}");
        }
    }
}

#[test]
fn keys_are_estimated_by_what_comes_of_packed_bytes() {
    let (folder, keys) = (Folder::new("estimates"), keys(600_000, 3));
    let json = |numbers: &[String]| -> String {
        numbers
            .iter()
            .map(|key| format!("{{\"request\":{{\"method\":\"GET\",\"url\":\"{key}\"}}}}\n"))
            .collect()
    };
    let random = SeededRandom::new(4);
    let short: String = (0..600_000).map(|_| format!("{}\n", random.next() % 100_000)).collect();
    let csv: String =
        std::iter::once("url\n".to_owned()).chain(keys.iter().map(|key| format!("{key}\n"))).collect();
    let texts = [
        (json(&keys), Format::json("request.url").unwrap()),
        (keys.join("\n"), Format::Lines),
        (short, Format::Lines),
        (csv, Format::csv(csv_of(&["url"])).unwrap()),
    ];
    for (number, (text, format)) in texts.into_iter().enumerate() {
        for (packing, pack) in [("plain", plain as fn(&[u8]) -> Vec<u8>), ("gz", gzip), ("zst", zstandard)] {
            let path = folder.write(&format!("{number}.{packing}"), &pack(text.as_bytes()));
            let source = Files::new(&[path], format.clone()).unwrap();
            let parts = source.parts(4).unwrap();
            let told = crate::size::estimate(&source, &parts).unwrap().unwrap();
            assert!(told.abs_diff(600_000) < 60_000, "{format:?} {packing}: {told}");
            let read = |part: &Part| -> u64 {
                let (mut cursor, mut batch, mut bytes) =
                    (source.open(part, None).unwrap(), Batch::default(), 0);
                while cursor.next(&mut batch).unwrap().is_some() {
                    bytes += batch.source_bytes();
                    batch.clear();
                }
                bytes + batch.source_bytes()
            };
            let (read, all) =
                (parts.iter().map(read).sum::<u64>(), parts.iter().filter_map(|part| part.bytes).sum());
            // A line that a cut goes through is read from both sides.
            assert!(read.abs_diff(all) < 512, "{format:?} {packing}: {read} of {all}");
        }
    }
}

#[test]
fn a_large_file_is_cut_and_no_line_is_lost_or_doubled() {
    let (folder, keys) = (Folder::new("cut"), keys(900_000, 2));
    let path = folder.write("keys.txt", keys.join("\r\n").as_bytes());
    let source = Files::new(&[path], Format::Lines).unwrap();
    let parts = source.parts(4).unwrap();
    assert!(parts.len() > 2, "{} parts", parts.len());
    assert_eq!(parts.iter().map(|part| part.bytes.unwrap()).sum::<u64>(), {
        keys.iter().map(|key| key.len() as u64 + 2).sum::<u64>() - 2
    });
    assert!(read(&source, 4).unwrap().0 == keys);
    assert!(read_resumed(&source, 4) == keys);
}

#[test]
fn wherever_a_file_is_cut_every_line_is_in_one_piece() {
    let (folder, text) = (Folder::new("cuts"), "a\n\nbcd\r\ne\nfghij\n\nk");
    let path = folder.write("few", text.as_bytes());
    let expected: Vec<&str> = text.split('\n').map(|line| line.trim_end_matches('\r')).collect();
    for first in 0..=text.len() as u64 {
        for second in first..=text.len() as u64 {
            let mut found = Vec::new();
            for (from, to) in [(0, Some(first)), (first, Some(second)), (second, None)] {
                let opened = Opened::file(Path::new(&path)).unwrap();
                let mut records = records::Records::open(opened, from, to, None, path.clone()).unwrap();
                while let Some(line) = records.next().unwrap() {
                    found.push(String::from_utf8_lossy(line).into_owned());
                }
            }
            assert_eq!(found, expected, "{first} {second}");
        }
    }
}

#[test]
fn rows_without_a_key_are_counted() {
    let folder = Folder::new("nulls");
    let lines = folder.write("a.txt", b"\na\n\r\n\nb\n");
    let found = read(&Files::new(&[lines], Format::Lines).unwrap(), 1).unwrap();
    assert_eq!(found, (vec!["a".to_owned(), "b".to_owned()], 3));
    let json = folder.write("a.json", b"{\"k\": 1}\n\n{\"k\": null}\n{}\n{\"k\": \"x\"}");
    let found = read(&Files::new(&[json], Format::json("k").unwrap()).unwrap(), 1).unwrap();
    assert_eq!(found, (vec!["1".to_owned(), "x".to_owned()], 2));
    let csv = folder.write("a.csv", b"\xef\xbb\xbfa,b\n1,2\n,3\n4\n5,6,7\n");
    let both = Format::csv(csv_of(&["a", "b"])).unwrap();
    let found = read(&Files::new(std::slice::from_ref(&csv), both).unwrap(), 1).unwrap();
    assert_eq!(found, (vec!["1:2".to_owned(), "5:6".to_owned()], 2));
    let numbers = Csv { has_header: false, ..csv_of(&["2"]) };
    let found = read(&Files::new(&[csv], Format::csv(numbers).unwrap()).unwrap(), 1).unwrap();
    assert_eq!(found, (vec!["b".to_owned(), "2".to_owned(), "3".to_owned(), "6".to_owned()], 1));
}

#[test]
fn patterns_find_files_once_and_in_order() {
    let folder = Folder::new("globs");
    for name in ["b.log", "a.log", "c.txt"] {
        folder.write(name, format!("{name}\n").as_bytes());
    }
    fs::create_dir_all(folder.0.join("d.log")).unwrap();
    let path = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();
    let found = |patterns: &[&str]| {
        let patterns = patterns.iter().map(|pattern| path(pattern)).collect::<Vec<_>>();
        read(&Files::new(&patterns, Format::Lines)?, 1).map(|(keys, _)| keys.join(" "))
    };
    assert_eq!(found(&["c.txt", "*.log", "a.log"]).unwrap(), "c.txt a.log b.log");
    assert!(message(found(&["*.log", "*.none"])).contains("*.none"));
    assert!(Files::new(&[], Format::Lines).is_err());
    assert!(Files::new(&["a".into(), STDIN.into()], Format::Lines).is_err());
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let folder = Folder::new("wrong");
    let check = |name: &str, bytes: &[u8], format: Format, words: &[&str]| {
        let path = folder.write(name, bytes);
        let said = message(Files::new(&[path], format).and_then(|source| read(&source, 1)));
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        assert!(said.contains(name), "{said}");
    };
    let json = |field: &str| Format::json(field).unwrap();
    check("a.csv", b"id,url\n1,x\n", Format::csv(csv_of(&["uri"])).unwrap(), &["\"uri\"", "id, url"]);
    check("a.json", b"{\"id\":1}\n{\"id\":2}\n", json("uri"), &["uri", "id"]);
    check("b.json", b"{\"id\":1}\n{\"id\":\n", json("id"), &["byte 9"]);
    check("c.json", b"{\"id\":[1]}\n", json("id"), &["byte 0", "no text"]);
    let damaged = &zstandard(keys(1_000, 4).join("\n").as_bytes())[..200];
    check("a.zst", damaged, Format::Lines, &["behind byte 0"]);
    check("a.gz", &gzip(keys(100, 3).join("\n").as_bytes())[..300], Format::Lines, &["behind byte"]);
    let endless = vec![b'x'; RECORD_BYTES_MAX + (4 << 20)];
    check("a.bin", &endless, Format::Lines, &["is this text?"]);
    let quote = [b"a\n\"", &endless[..]].concat();
    check("q.csv", &quote, Format::csv(csv_of(&["a"])).unwrap(), &["never closed"]);
    for bad in ["", ".", "a.", "a..b", &"a.".repeat(40)] {
        assert!(Format::json(bad).is_err(), "{bad}");
    }
}

#[test]
fn bookmarks_are_refused_by_files_that_were_changed() {
    let folder = Folder::new("changed");
    let path = folder.write("keys", b"a\nb\nc\n");
    let source = Files::new(std::slice::from_ref(&path), Format::Lines).unwrap();
    let part = source.parts(1).unwrap().remove(0);
    let after = Bookmark::new("2").unwrap();
    let next = |after: &Bookmark| {
        let mut batch = Batch::default();
        let _ = source.open(&part, Some(after))?.next(&mut batch)?;
        Ok(batch.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>())
    };
    assert_eq!(next(&after).unwrap(), ["b", "c"]);
    // A log that was written on is what it was.
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"d\n").unwrap();
    assert_eq!(next(&after).unwrap(), ["b", "c", "d"]);
    for bad in ["x", "-1", "99"] {
        assert!(matches!(next(&Bookmark::new(bad).unwrap()), Err(Error::Corrupt(_))), "{bad}");
    }
    fs::write(&path, b"a\n").unwrap();
    assert!(matches!(next(&after), Err(Error::Corrupt(_))));
}

#[test]
fn names_say_what_is_in_files() {
    for (name, format) in
        [("a.CSV.gz", "csv"), ("a.tsv", "tsv"), ("x/a.ndjson.zst", "json"), ("a.gz", "lines"), ("a", "lines")]
    {
        assert_eq!(Format::guess(name), format, "{name}");
    }
}
