//! One filter in several languages: Guava itself writes what we read and reads what we write, and so do Python and Go.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{family_keys, fixture};
use umbel_filter::format::guava;
use umbel_filter::{Family, Filter, Hasher, Layout, Limits, Spec};

const GUAVA: &str = "/usr/share/java/guava.jar";

/// Runs a program of another language and returns what it prints.
fn run(command: &mut Command, arguments: &[&str]) -> String {
    let output = command.args(arguments).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn java(arguments: &[&str]) -> String {
    let program = fixture("programs/GuavaPeer.java");
    run(Command::new("java").args(["-cp", GUAVA]).arg(program), arguments)
}

/// A Python that has bloomfilter-py.
fn python(arguments: &[&str]) -> String {
    let python = std::env::var("UMBEL_PYTHON").expect("UMBEL_PYTHON names a Python with bloomfilter-py");
    run(Command::new(python).arg(fixture("programs/guava_reader.py")), arguments)
}

fn go(arguments: &[&str]) -> String {
    run(Command::new("go").arg("run").arg(fixture("programs/guava_reader.go")), arguments)
}

/// A file that is gone when the test ends.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("umbel-{}-{name}", std::process::id())))
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn write_hex(path: &Path, keys: &[Vec<u8>]) {
    let line = |key: &Vec<u8>| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    std::fs::write(path, keys.iter().map(line).collect::<String>()).unwrap();
}

#[test]
#[ignore = "needs Java, Python and Go; `cargo xtask test` installs what they need"]
fn fingerprints_are_guavas() {
    let hasher = Hasher::new(Family::Murmur3, None).unwrap();
    let printed = java(&["fingerprints", fixture("families/keys.hex").to_str().unwrap()]);
    let keys = family_keys();
    assert_eq!(keys.len(), printed.lines().count());
    for (key, line) in keys.iter().zip(printed.lines()) {
        let ours = hasher.fingerprint(key);
        assert_eq!(format!("{:016x} {:016x}", ours.first, ours.second), line);
    }
    println!("Java: {} fingerprints, all the same", keys.len());
}

#[test]
#[ignore = "needs Java, Python and Go; `cargo xtask test` installs what they need"]
fn filters_go_both_ways() {
    let mut asked = family_keys();
    asked.dedup();
    let added: Vec<Vec<u8>> = asked.iter().step_by(2).cloned().collect();
    asked.extend((0..20_000).map(|i| format!("absent:{i}").into_bytes()));
    let [added_hex, asked_hex] = ["added.hex", "asked.hex"].map(Temporary::new);
    write_hex(&added_hex.0, &added);
    write_hex(&asked_hex.0, &asked);

    for error in [0.2, 0.01, 0.0001] {
        let [from_java, from_rust] = ["java.bin", "rust.bin"].map(Temporary::new);
        let capacity = added.len() as u64;
        java(&["write", from_java.text(), added_hex.text(), &capacity.to_string(), &error.to_string()]);
        let theirs = std::fs::read(&from_java.0).unwrap();

        let ours = Filter::new(&Spec::hosted(Layout::Guava, capacity, error), &Limits::default()).unwrap();
        ours.insert_batch(&added, &mut Vec::new()).unwrap();
        let mut bytes = Vec::new();
        guava::write(&ours, &mut bytes).unwrap();
        std::fs::write(&from_rust.0, &bytes).unwrap();
        assert_eq!(bytes, theirs, "the same keys give the same bytes");

        let read = guava::read(&theirs[..], &Limits::default()).unwrap();
        let mut answers = Vec::new();
        read.contains_batch(&asked, &mut answers);
        let answers: String = answers.iter().map(|answer| if *answer { '1' } else { '0' }).collect();
        let question = [from_rust.text(), asked_hex.text()];
        assert_eq!(java(&[&["answers"][..], &question].concat()).trim(), answers, "Java");
        assert_eq!(python(&question).trim(), answers, "Python");
        assert_eq!(go(&question).trim(), answers, "Go");
        let maybe = answers.bytes().filter(|answer| *answer == b'1').count();
        println!(
            "error {error}: {} keys, the same {} bytes from Java and from us; {} answers the same in Java, Python, Go and here: \
             {} maybe, of which {} false",
            added.len(),
            bytes.len(),
            asked.len(),
            maybe,
            maybe - added.len()
        );
    }
}
