use std::path::Path;
use std::time::Duration;

use umbel_core::log::Durability;

use super::*;

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn load(environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, Error> {
    Config::load(&Sources { file: None, environment: pairs(environment), flags: pairs(flags) })
}

fn complaint(flags: &[(&str, &str)]) -> String {
    load(&[], flags).unwrap_err().to_string()
}

fn toml(text: &str) -> Result<Config, Error> {
    let mut config = Config::default();
    config.read_toml(text, Path::new("umbel.toml")).map(|()| config)
}

#[test]
fn every_default_is_read_and_printed_as_it_stands() {
    let config = Config::default();
    for row in ROWS {
        let mut again = Config::default();
        (row.set)(&mut again, row.default).unwrap_or_else(|error| panic!("{}: {error}", row.name));
        assert_eq!((row.print)(&config), row.default, "{}", row.name);
        // What is printed for Redis can be given back through CONFIG SET.
        (row.set)(&mut again, &(row.print_redis)(&config))
            .unwrap_or_else(|error| panic!("{}: {error}", row.name));
    }
    config.check().unwrap();
    assert_eq!((config.port, config.http_port, config.slots), (6380, 6381, 256));
    assert_eq!(config.bulk_bytes_max, 512 << 20);
    assert_eq!(config.durability, Durability::Interval(Duration::from_millis(200)));
    assert_eq!(config.engine().unwrap().memory_bytes, 4 << 30);
}

#[test]
fn names_are_told_apart() {
    for (index, row) in ROWS.iter().enumerate() {
        for name in [row.name, &row.flag(), &row.redis_name()] {
            assert_eq!(find(name).unwrap().0, index, "{name}");
        }
        assert!(!row.meaning.ends_with('.') && !row.meaning.contains('|'), "{}", row.name);
    }
}

#[test]
fn the_later_source_wins_and_is_remembered() {
    let mut config = toml("port = 1\nbind = [\"127.0.0.1\", \"::1\"]\nmemory = \"2GB\"\ncapacity = 1_000\nprotected_mode = false")
        .unwrap();
    assert_eq!((config.port, config.bind.len(), config.memory), (1, 2, 2 << 30));
    assert_eq!((config.capacity, config.protected_mode), (1000, false));
    assert_eq!(config.source("port").unwrap().to_string(), "file umbel.toml");
    config.set(find("port").unwrap().0, "2", Source::Command).unwrap();
    assert_eq!((config.port, config.source("port")), (2, Some(&Source::Command)));

    let config =
        load(&[("UMBEL_PORT", "7"), ("UMBEL_SLOTS", "8"), ("PORT", "9")], &[("port", "10")]).unwrap();
    assert_eq!((config.port, config.slots), (10, 8));
    let sources: Vec<_> =
        ["port", "slots", "data"].map(|name| config.source(name).unwrap().to_string()).into();
    assert_eq!(sources, ["flag --port", "environment UMBEL_SLOTS", "default"]);
}

#[test]
fn files_are_read_strictly() {
    for (text, expected) in [
        ("\nprot = 1", "umbel.toml:2: \"prot\" is no setting; did you mean \"port\"?"),
        ("whatever_this_is = 1", "`umbel config` lists all settings"),
        ("password = \"a\"\nrequirepass = \"b\"", "are the same setting"),
        ("[server]\nport = 1", "\"server\" is no setting"),
        ("port = { a = 1 }", "it must be a plain value"),
        (
            "port = 70000",
            "umbel.toml:1: port is \"70000\" (file umbel.toml): it must be a whole number from 0 to 65535",
        ),
        ("port = ", "umbel.toml:1: "),
        ("port = 1\nport = 2", "umbel.toml:2: duplicate key"),
        ("memory = \"4 parsecs\"", "it must be a size from 1MiB to 1024TiB"),
    ] {
        let error = toml(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let missing = Sources { file: Some("/nonexistent/umbel.toml".into()), ..Sources::default() };
    assert!(Config::load(&missing).unwrap_err().to_string().starts_with("/nonexistent/umbel.toml: "));
}

#[test]
fn values_are_refused_with_their_limit() {
    for (name, value, expected) in [
        ("port", "-1", "from 0 to 65535"),
        ("prot", "1", "did you mean \"port\"?"),
        ("error-rate", "NaN", "1e-9 to 0.5"),
        ("durability", "interval 2h", "1ms to 1h"),
        ("durability", "sometimes", "always"),
        ("bind", "example.org", "IP addresses"),
        ("family", "md5", "murmur3"),
        ("idle-timeout", "3 weeks", "1h"),
        ("log-level", "loud", "one of error, warn"),
        ("redis-version", "8", "8.2.0"),
        ("slowlog-threshold-us", "-2", "-1 for never"),
        ("checkpoint-every", "0", "from 1s"),
        ("arguments-max", "99999999999999999999", "from 16"),
    ] {
        let error = complaint(&[(name, value)]);
        assert!(error.contains(expected) && error.contains(name.split('-').next().unwrap()), "{error}");
    }
    let long = "x".repeat(5000);
    let error = complaint(&[("password", &long)]);
    assert!(!error.contains("xxx") && error.contains("4096"), "{error}");
}

#[test]
fn sizes_and_times_have_units() {
    let sizes = Bytes(0, u64::MAX);
    for (text, bytes) in
        [("1k", 1000), ("1kb", 1024), ("1 KiB", 1024), ("4GB", 4 << 30), ("7", 7), ("1e3", 1000), ("5b", 5)]
    {
        assert_eq!(sizes.parse(text), Ok(bytes), "{text}");
    }
    for text in ["", "GB", "-1", "1.5GB", "99999999TiB", "1 x"] {
        assert!(sizes.parse(text).is_err(), "{text}");
    }
    assert_eq!((sizes.print(&(3 << 20)), sizes.print(&1000)), ("3MiB".to_owned(), "1000".to_owned()));
    let times = Period(Duration::ZERO, DAY);
    for (text, milliseconds) in
        [("200ms", 200), ("3", 3000), ("3s", 3000), ("5m", 300_000), ("1 h", 3_600_000)]
    {
        assert_eq!(times.parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (flags, expected) in [
        (&[("port", "5"), ("http-port", "5")][..], "port and http_port are both 5"),
        (&[("port", "0"), ("http-port", "0")], "all 0"),
        (&[("tls-port", "5")], "tls_cert"),
        (&[("tls-client-auth", "required")], "tls_client_ca"),
        (&[("bind", "127.0.0.1 0.0.0.0")], "0.0.0.0"),
        (&[("family", "keyed")], "secret_file"),
        (&[("input-bytes-max", "1MiB")], "bulk_bytes_max"),
        (&[("password", "a"), ("password-file", "b")], "both set"),
        (&[("password-file", "/nonexistent")], "/nonexistent"),
    ] {
        let error = complaint(flags);
        assert!(error.contains(expected), "{error}");
    }
    load(&[], &[("bind", "0.0.0.0"), ("requirepass", "secret")]).unwrap();
    for meant in [("allow-public-without-password", "yes"), ("protected-mode", "no")] {
        load(&[], &[("bind", "*"), meant]).unwrap();
    }
}

#[test]
fn both_loopbacks_are_bound_where_there_are_two() {
    let addresses = |flags: &[(&str, &str)]| load(&[], flags).unwrap().addresses(6380);
    let (four, six) = ("127.0.0.1:6380".parse().unwrap(), "[::1]:6380".parse().unwrap());
    let expected = if has_ipv6() { vec![four, six] } else { vec![four] };
    assert_eq!(addresses(&[]), expected);
    assert_eq!(addresses(&[("bind", "127.0.0.1")]), [four]);
    // If there is no IPv6, the server says that it cannot listen there.
    assert_eq!(addresses(&[("bind", "::1")]), [six]);
    assert_eq!(load(&[], &[]).unwrap().addresses(0), []);
}

#[test]
fn secrets_come_from_files_and_are_not_shown() {
    let folder = std::env::temp_dir().join(format!("umbel-config-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (password, secret) = (folder.join("password"), folder.join("secret"));
    fs::write(&password, "hunter2\nnot this\n").unwrap();
    fs::write(&secret, "000102030405060708090a0b0c0d0e0f\n").unwrap();
    let flags = [("password-file", password.to_str().unwrap()), ("secret-file", secret.to_str().unwrap())];
    let config = load(&[], &flags).unwrap();
    assert_eq!(config.password, Some(Digest::of(b"hunter2")));
    assert_eq!(config.source("password").unwrap().to_string(), "flag --password-file");
    assert_eq!(config.engine().unwrap().secret, Some(Secret(std::array::from_fn(|index| index as u8))));
    assert!(!format!("{config:?}").contains("hunter2"));
    assert!(config.show().any(|shown| shown.row.name == "password" && shown.value == "(hidden)"));
    fs::write(&secret, "short").unwrap();
    assert!(config.engine().unwrap_err().to_string().contains("32 hexadecimal digits"));
    fs::write(&password, "\n").unwrap();
    assert!(load(&[], &flags).unwrap_err().to_string().contains("first line"));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn addresses_of_engines_are_shown_without_their_secrets() {
    let text = "redis://me:hunter2@h1/umbel?partitions=4&token=hunter2";
    let config = load(&[("UMBEL_LOG", text)], &[("registry", "etcd://root:hunter2@h1,h2")]).unwrap();
    assert_eq!(config.log.as_ref().unwrap().credentials(), Some(("me", "hunter2")));
    let shown: Vec<_> = config.show().map(|shown| shown.value).collect();
    assert!(shown.contains(&"redis://***@h1/umbel?partitions=4&token=***".to_owned()), "{shown:?}");
    let live = Live::new(config.clone());
    for said in [format!("{config:?}"), shown.join(" "), format!("{:?}", live.get(&[b"*"]))] {
        assert!(!said.contains("hunter2"), "{said}");
    }
    for flags in [&[("log", "hunter2")][..], &[("blobs", "s3://")], &[("registry", "Redis://:hunter2@h")]] {
        let error = complaint(flags);
        assert!(!error.contains("hunter2") && error.contains("it must be a URL"), "{error}");
    }
    let twice = complaint(&[("log", "redis://:hunter2@h?partitions=4"), ("partitions", "8")]);
    assert!(twice.contains("partitions is 8, and log says 4") && !twice.contains("hunter2"), "{twice}");
}

#[test]
fn what_the_deployment_was_made_with_is_taken_unless_somebody_says_otherwise() {
    let mut config = load(&[], &[("slots", "8")]).unwrap();
    config.adopt(16, 4);
    assert_eq!((config.slots, config.partitions), (8, 4));
    let sources = ["slots", "partitions"].map(|name| config.source(name).unwrap().to_string());
    assert_eq!(sources, ["flag --slots", "registry"]);
}

#[test]
fn redis_clients_read_and_change_settings() {
    let live = Live::new(load(&[], &[("requirepass", "a")]).unwrap());
    assert_eq!(live.get(&[b"maxclients"]), pairs(&[("maxclients", "10000")]));
    assert_eq!(live.get(&[b"max_clients"]), pairs(&[("max_clients", "10000")]));
    assert_eq!(
        live.get(&[b"SAVE", b"append*"]),
        pairs(&[("appendfsync", "everysec"), ("appendonly", "yes"), ("save", "")])
    );
    assert_eq!(live.get(&[b"requirepass"]), pairs(&[("requirepass", "(hidden)")]));
    assert_eq!(live.get(&[b"proto-max-bulk-len"])[0].1, (512 << 20).to_string());
    assert_eq!(live.get(&[b"nothing"]), []);
    assert!(live.get(&[b"*"]).len() >= ROWS.len());

    let rows = live.set(&[("maxclients", "5"), ("timeout", "300"), ("bf-error-rate", "0.001")]).unwrap();
    assert_eq!(
        rows.iter().map(|row| row.name).collect::<Vec<_>>(),
        ["max_clients", "idle_timeout", "error_rate"]
    );
    assert_eq!((live.load().max_clients, live.load().idle_timeout), (5, Duration::from_secs(300)));
    assert_eq!(live.load().source("maxclients"), Some(&Source::Command));
    live.set(&[("appendonly", "yes"), ("save", "")]).unwrap();

    for (pairs, expected) in [
        (
            &[("maxclients", "6"), ("port", "1")][..],
            "CONFIG SET failed (possibly related to argument 'port') - can't set immutable config",
        ),
        (
            &[("maxclients", "6"), ("foo", "1")],
            "Unknown option or number of arguments for CONFIG SET - 'foo'",
        ),
        (&[("maxclients", "6"), ("timeout", "x")], "possibly related to argument 'timeout'"),
        (&[("maxclients", "6"), ("max_clients", "7")], "duplicate parameter"),
        (&[("appendonly", "no")], "immutable"),
    ] {
        let error = live.set(pairs).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(live.load().max_clients, 5, "all or nothing");
    }
}

#[test]
fn strange_variables_are_noticed() {
    let environment =
        pairs(&[("UMBEL_PROT", "1"), ("UMBEL_PORT", "1"), ("UMBEL_CONFIG", "x"), ("HOME", "/")]);
    assert_eq!(unknown_environment(&environment), ["UMBEL_PROT is no setting; did you mean \"port\"?"]);
}
