//! S3: objects of all formats.

use std::io::Write;

use object_store::ObjectStoreExt;
use object_store::aws::AmazonS3;
use object_store::path::Path;
use tokio::runtime::Runtime;
use umbel_core::url::Url;
use umbel_load::files::{Csv, Files, Format};
use umbel_load::{Bookmark, Error, Source};

use crate::common::{read, said, sorted};
use crate::services::{passed, service};

/// A bucket that tests may write to.
struct Place {
    /// Its address, without what stands before the parameters.
    address: String,
    parameters: String,
    store: AmazonS3,
    runtime: Runtime,
}

impl Place {
    fn new(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let store = umbel_adapters::connect::s3(&Url::parse(url).unwrap()).unwrap();
        let (address, parameters) = url.split_once('?').unwrap();
        Self { address: address.to_owned(), parameters: parameters.to_owned(), store, runtime }
    }

    fn put(&self, name: &str, bytes: Vec<u8>) {
        let path = Path::from(format!("some/prefix/{name}"));
        self.runtime.block_on(self.store.put(&path, bytes.into())).unwrap();
    }

    fn files(&self, name: &str, format: Format) -> umbel_load::Result<Files> {
        Files::new(&[format!("{}/{name}?{}", self.address, self.parameters)], format)
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn keys(beginning: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{beginning}-{number}")).collect()
}

/// Objects larger than what is asked for at once, so that lines stand across the pieces.
fn objects_are_read(place: &Place) {
    let (large, packed) = (keys("https://example.org/large", 300_000), keys("packed", 30_000));
    place.put("logs/a.txt", large.join("\n").into_bytes());
    place.put("logs/deep/b.txt.gz", gzip(&packed.join("\n")));
    place.put("logs/deep/nothing", Vec::new());
    let all = sorted([&*large, &*packed].concat());
    for (parts, is_resumed) in [(1, false), (4, true)] {
        let read = |name: &str| read(&place.files(name, Format::Lines).unwrap(), parts, is_resumed).unwrap();
        assert!(sorted(read("logs").0) == all, "a folder");
        assert!(sorted(read("logs/*.txt").0) == sorted(large.clone()), "a pattern");
        assert!(sorted(read("logs/**/*.gz").0) == sorted(packed.clone()), "a pattern over folders");
        assert!(sorted(read("logs/a.txt").0) == sorted(large.clone()), "an object");
    }
    let csv: String = (0..20_000).map(|number| format!("{number},\"u,{number}\"\n")).collect();
    place.put("rows.csv", format!("id,url\n{csv}").into_bytes());
    let format =
        Csv { columns: vec!["url".into()], separator: ":".into(), delimiter: b',', has_header: true };
    let source = place.files("rows.csv", Format::csv(format).unwrap()).unwrap();
    let (urls, ..) = read(&source, 3, true).unwrap();
    assert_eq!((urls.len(), &*urls[19_999]), (20_000, "u,19999"));
    let json: String = (0..20_000).map(|number| format!("{{\"url\": \"u{number}\"}}\n")).collect();
    place.put("rows.ndjson", json.into_bytes());
    let source = place.files("rows.ndjson", Format::json("url").unwrap()).unwrap();
    assert_eq!(read(&source, 3, true).unwrap().0.len(), 20_000);
}

#[cfg(feature = "parquet")]
fn columns_are_read(place: &Place) {
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    let schema = Arc::new(parse_message_type("message rows { required binary url (STRING); }").unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let urls = keys("https://example.org/column", 250_000);
    for group in urls.chunks(100_000) {
        let values: Vec<ByteArray> = group.iter().map(|url| ByteArray::from(url.as_str())).collect();
        let mut rows = writer.next_row_group().unwrap();
        let mut column = rows.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        rows.close().unwrap();
    }
    place.put("rows.parquet", writer.into_inner().unwrap());
    let source = place.files("rows.parquet", Format::Parquet { column: "url".into() }).unwrap();
    for (parts, is_resumed) in [(1, false), (3, true)] {
        let (found, _, count) = read(&source, parts, is_resumed).unwrap();
        assert!(found == urls && count == parts, "{parts} parts");
    }
}

fn what_cannot_be_read(place: &Place) {
    let missing = place.files("nothing/here", Format::Lines).unwrap();
    assert!(said(missing.parts(1)).contains("no such object"));
    let source = place.files("logs/a.txt", Format::Lines).unwrap();
    let part = &source.parts(1).unwrap()[0];
    assert!(source.open(part, Some(&Bookmark::new("5").unwrap())).is_ok());
    place.put("logs/a.txt", b"another one".to_vec());
    assert!(matches!(source.open(part, None), Err(Error::Corrupt(_))));
    let address = format!("{}?{}", place.address, place.parameters);
    let two = Files::new(&[address.clone(), address], Format::Lines);
    assert!(said(two).contains("one address"));
    let away = "s3://bucket/x?region=us-east-1&endpoint=http://127.0.0.1:1&timeout_ms=1000";
    let away = Files::new(&[away.into()], Format::Lines).unwrap();
    assert!(matches!(away.parts(1), Err(Error::Retry(_))));
}

fn on(name: &'static str) {
    let Some(service) = service(name) else { return };
    let place = Place::new(&service.bucket());
    objects_are_read(&place);
    #[cfg(feature = "parquet")]
    columns_are_read(&place);
    what_cannot_be_read(&place);
    let seen = "folders and patterns; lines, CSV, JSON, Parquet, gzip; an object that is replaced";
    passed(&service, "keys", "objects are read", seen);
}

#[test]
#[ignore = "needs real servers; cargo xtask services start"]
fn s3() {
    on("s3");
}

#[test]
#[ignore = "needs real servers; cargo xtask services start"]
fn ceph() {
    on("ceph");
}
