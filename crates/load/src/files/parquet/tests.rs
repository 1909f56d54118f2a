//! Files that the library writes, read back by rows.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::*;
use crate::Source;
use crate::files::{Files, Format};
use crate::limits::{BATCH_BYTES_MAX, KEY_BYTES_MAX};

const SCHEMA: &str = "message rows { required int64 id (INTEGER(64, false)); optional binary url (STRING); \
    repeated int32 tags; optional double price; }";

/// Row groups of so many rows; every seventh row has no url.
fn write(path: &Path, groups: &[usize]) -> Vec<String> {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_data_page_row_count_limit(500).build());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    let (mut expected, mut next) = (Vec::new(), 0_i64);
    for rows in groups {
        let mut group = writer.next_row_group().unwrap();
        let ids: Vec<i64> = (next..next + *rows as i64).collect();
        next += *rows as i64;
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
        column.close().unwrap();
        let levels: Vec<i16> = ids.iter().map(|id| i16::from(id % 7 != 0)).collect();
        let urls: Vec<String> = ids.iter().filter(|id| *id % 7 != 0).map(|id| format!("u{id}")).collect();
        let values: Vec<ByteArray> = urls.iter().map(|url| ByteArray::from(url.as_str())).collect();
        expected.extend(urls);
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let zeros = vec![0; *rows];
        column.typed::<parquet::data_type::Int32Type>().write_batch(&[], Some(&zeros), Some(&zeros)).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<parquet::data_type::DoubleType>().write_batch(&[], Some(&zeros), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
    expected
}

fn read(source: &Files, wanted: usize, is_resumed: bool) -> (Vec<String>, u64) {
    let (mut keys, mut nulls, mut batch) = (Vec::new(), 0, Batch::default());
    for part in source.parts(wanted).unwrap() {
        let mut cursor = source.open(&part, None).unwrap();
        loop {
            batch.clear();
            let Some(after) = cursor.next(&mut batch).unwrap() else { break };
            keys.extend(batch.keys().map(|key| String::from_utf8_lossy(key).into_owned()));
            nulls += batch.nulls();
            if is_resumed {
                cursor = source.open(&part, Some(&after)).unwrap();
            }
        }
    }
    (keys, nulls)
}

#[test]
fn every_row_is_read_wherever_it_goes_on() {
    let path = std::env::temp_dir().join(format!("umbel-{}.parquet", std::process::id()));
    let groups = [12_345, 1, 30_000, 7];
    let expected = write(&path, &groups);
    let rows = groups.iter().sum::<usize>();
    let source = |column: &str| {
        let format = Format::Parquet { column: column.to_owned() };
        Files::new(&[path.to_str().unwrap().to_owned()], format).unwrap()
    };
    for (wanted, is_resumed) in [(1, false), (1, true), (3, true), (9, false)] {
        let (keys, nulls) = read(&source("url"), wanted, is_resumed);
        assert!(keys == expected && nulls as usize == rows - expected.len(), "{wanted} {is_resumed}");
    }
    let (ids, nulls) = read(&source("id"), 2, true);
    assert_eq!((ids.len(), nulls, &*ids[rows - 1]), (rows, 0, &*(rows - 1).to_string()));
    for (column, word) in [("uri", "id, url, tags, price"), ("tags", "lists"), ("price", "DOUBLE")] {
        let said = source(column).parts(1).unwrap_err().to_string();
        assert!(said.contains(word), "{said}");
    }
    let part = source("url").parts(1).unwrap().remove(0);
    for bad in ["", "1", "9/0", "1/5", "x/y"] {
        let outcome = source("url").open(&part, Some(&Bookmark::new(bad).unwrap()));
        assert!(matches!(outcome, Err(Error::Corrupt(_))), "{bad}");
    }
    std::fs::write(&path, b"PAR1 no").unwrap();
    assert!(source("url").parts(1).is_err());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn long_values_make_no_batch_longer_than_others() {
    let path = std::env::temp_dir().join(format!("umbel-long-{}.parquet", std::process::id()));
    let schema = Arc::new(parse_message_type("message rows { required binary url (STRING); }").unwrap());
    let mut writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let urls: Vec<String> = (0..100).map(|row| format!("{row}").repeat(100_000)).collect();
    let values: Vec<ByteArray> = urls.iter().map(|url| ByteArray::from(url.as_str())).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let source =
        Files::new(&[path.to_str().unwrap().to_owned()], Format::Parquet { column: "url".to_owned() })
            .unwrap();
    assert!(read(&source, 1, false).0 == urls && read(&source, 1, true).0 == urls);
    let mut cursor = source.open(&source.parts(1).unwrap()[0], None).unwrap();
    let (mut batch, mut batches) = (Batch::default(), 0);
    while cursor.next(&mut batch).unwrap().is_some() {
        let bytes = batch.keys().map(<[u8]>::len).sum::<usize>();
        assert!(bytes <= BATCH_BYTES_MAX + KEY_BYTES_MAX, "{bytes} bytes");
        batch.clear();
        batches += 1;
    }
    assert!(batches > 4, "{batches} batches");
    std::fs::remove_file(&path).unwrap();
}
