use std::sync::Arc;

use super::*;

/// A small table with subcommands and categories.
struct Table;

const TABLE: [(&str, &[&str]); 8] = [
    ("get", &["read", "string", "fast"]),
    ("set", &["write", "string", "slow"]),
    ("bf.add", &["write", "bloom", "fast"]),
    ("bf.exists", &["read", "bloom", "fast"]),
    ("config", &["slow"]),
    ("config|get", &["admin", "slow", "dangerous"]),
    ("config|set", &["admin", "slow", "dangerous"]),
    ("getdel", &["write", "string", "fast"]),
];

impl Commands for Table {
    fn len(&self) -> usize {
        TABLE.len()
    }

    fn name(&self, index: usize) -> &str {
        TABLE[index].0
    }

    fn categories(&self, index: usize) -> &[&str] {
        TABLE[index].1
    }
}

fn acl() -> Acl {
    Acl::new(Arc::new(Table), None)
}

fn lines(acl: &Acl) -> Vec<String> {
    acl.users_within(None).iter().map(|user| user.line()).collect()
}

fn names(acl: &Acl) -> Vec<String> {
    acl.users_within(None).iter().map(|user| user.name().to_owned()).collect()
}

fn set(acl: &Acl, rules: &str) -> Result<(), String> {
    let rules: Vec<_> = rules.split(' ').collect();
    acl.set_user(None, "alice", &rules).map_err(|error| error.to_string())
}

/// What alice's line comes to, without `user alice`.
fn line(rules: &str) -> String {
    let acl = acl();
    set(&acl, rules).unwrap();
    acl.user("alice").unwrap().line().strip_prefix("user alice ").unwrap().to_owned()
}

fn index(name: &str) -> u16 {
    TABLE.iter().position(|(ours, _)| *ours == name).unwrap() as u16
}

fn can(acl: &Acl, command: &str, keys: &[&str], access: Access) -> Result<(), Denied> {
    acl.user("alice").unwrap().can(index(command), keys.iter().map(|key| key.as_bytes()), access)
}

const PW: &str = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";

#[test]
fn lines_are_those_of_redis() {
    assert_eq!(lines(&acl()), ["user default on nopass sanitize-payload ~* &* +@all"]);
    for (rules, expected) in [
        ("off", "off sanitize-payload resetchannels -@all".to_owned()),
        (
            "on >pw ~a:* +@read -get",
            format!("on sanitize-payload #{PW} ~a:* resetchannels -@all +@read -get"),
        ),
        (
            "on nopass allkeys allchannels allcommands -set",
            "on nopass sanitize-payload ~* &* +@all -set".into(),
        ),
        ("+get +set -get", "off sanitize-payload resetchannels -@all +set -get".into()),
        ("+config|get +config", "off sanitize-payload resetchannels -@all +config".into()),
        ("+config -config|set", "off sanitize-payload resetchannels -@all +config -config|set".into()),
        ("+GET -@all", "off sanitize-payload resetchannels -@all".into()),
        ("~r %R~x %W~y %RW~z ~r", "off sanitize-payload ~r %R~x %W~y ~z resetchannels -@all".into()),
        ("%R~x %W~x", "off sanitize-payload ~x resetchannels -@all".into()),
        (
            "+@all -set (+get ~b* %R~c* &ch)",
            "off sanitize-payload resetchannels +@all -set (~b* %R~c* resetchannels &ch -@all +get)".into(),
        ),
        ("(+get) clearselectors", "off sanitize-payload resetchannels -@all".into()),
        ("on >pw +get ~a reset", "off sanitize-payload resetchannels -@all".into()),
        ("skip-sanitize-payload nopass >pw <pw", "off skip-sanitize-payload resetchannels -@all".into()),
        (">pw >pw", format!("off sanitize-payload #{PW} resetchannels -@all")),
        (&format!("#{PW} !{PW}"), "off sanitize-payload resetchannels -@all".into()),
    ] {
        assert_eq!(line(rules), expected, "{rules}");
        // A line is a list of rules that come to itself.
        assert_eq!(line(&expected), expected);
    }
}

#[test]
fn errors_are_those_of_redis() {
    for (rules, expected) in [
        ("wat", "Error in ACL SETUSER modifier 'wat': Syntax error"),
        ("+foo", "Error in ACL SETUSER modifier '+foo': Unknown command or category name in ACL"),
        ("+@foo", "Error in ACL SETUSER modifier '+@foo': Unknown command or category name in ACL"),
        (
            "+config|foo",
            "Error in ACL SETUSER modifier '+config|foo': Unknown command or category name in ACL",
        ),
        ("(+foo)", "Error in ACL SETUSER modifier '(+foo)': Unknown command or category name in ACL"),
        ("(on)", "Error in ACL SETUSER modifier '(on)': Syntax error"),
        ("(+get", "Unmatched parenthesis in acl selector starting at '(+get'."),
        ("%X~a", "Error in ACL SETUSER modifier '%X~a': Syntax error"),
        ("%~a", "Error in ACL SETUSER modifier '%~a': Syntax error"),
        (
            "#zz",
            "Error in ACL SETUSER modifier '#zz': The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters",
        ),
        (
            "<pw",
            "Error in ACL SETUSER modifier '<(hidden)': The password you are trying to remove from the user does not exist",
        ),
        ("", "Error in ACL SETUSER modifier '': Syntax error"),
        ("+", "Error in ACL SETUSER modifier '+': Unknown command or category name in ACL"),
        ("é", "Error in ACL SETUSER modifier 'é': Syntax error"),
    ] {
        let acl = acl();
        assert_eq!(set(&acl, rules), Err(expected.to_owned()));
        assert!(acl.user("alice").is_none(), "nothing is made of a bad rule");
    }
    let acl = acl();
    assert!(set(&acl, "allkeys ~x").unwrap_err().contains("Try 'resetkeys'"));
    assert!(set(&acl, "allchannels &x").unwrap_err().contains("Try 'resetchannels'"));
    set(&acl, "on +get").unwrap();
    set(&acl, "+set off wat").unwrap_err();
    assert!(lines(&acl)[0].contains("alice on sanitize-payload resetchannels -@all +get"), "all or nothing");
    let error = acl.set_user(None, "a b", &[]).unwrap_err().to_string();
    assert_eq!(error, "Usernames can't contain spaces or null characters");
    assert_eq!(acl.delete_users(None, &["alice", "bob"]), Ok(1));
    assert_eq!(
        acl.delete_users(None, &["default"]).unwrap_err().to_string(),
        "The 'default' user cannot be removed"
    );
}

#[test]
fn commands_and_keys_are_checked() {
    let acl = acl();
    set(&acl, "on +@read -get +config|get ~user:* %R~shared:*").unwrap();
    can(&acl, "bf.exists", &["user:1", "shared:1"], Access::READ).unwrap();
    assert_eq!(can(&acl, "bf.exists", &["user:1", "x"], Access::READ), Err(Denied::Key(b"x".to_vec())));
    let denied = can(&acl, "bf.exists", &["shared:1"], Access::READ_WRITE).unwrap_err();
    assert_eq!(denied.reply("alice", "bf.exists"), "NOPERM No permissions to access a key");
    for command in ["get", "set", "config", "config|set", "getdel"] {
        assert_eq!(can(&acl, command, &[], Access::READ), Err(Denied::Command), "{command}");
    }
    can(&acl, "config|get", &[], Access::READ).unwrap();
    let reply = Denied::Command.reply("alice", "bf.add");
    assert_eq!(reply, "NOPERM User alice has no permissions to run the 'bf.add' command");

    // One selector has to allow the command and all of its keys.
    set(&acl, "(+bf.add %W~log:*) (+bf.add ~other)").unwrap();
    can(&acl, "bf.add", &["log:1"], Access::WRITE).unwrap();
    can(&acl, "bf.add", &["other"], Access::READ_WRITE).unwrap();
    assert!(matches!(can(&acl, "bf.add", &["log:1", "other"], Access::WRITE), Err(Denied::Key(_))));
    assert!(matches!(can(&acl, "bf.add", &["user:1"], Access::WRITE), Err(Denied::Key(_))));

    let default = acl.user(DEFAULT).unwrap();
    default.can(9999, [&b"any"[..]], Access::READ_WRITE).unwrap();
    assert!(acl.user("alice").unwrap().can(9999, [], Access::READ).is_err());
    set(&acl, "reset +config -config|set").unwrap();
    assert!(
        can(&acl, "config", &[], Access::READ).is_ok() && can(&acl, "config|set", &[], Access::READ).is_err()
    );
    assert!(can(&acl, "config|get", &[], Access::READ).is_ok());
}

#[test]
fn logins_follow_their_users() {
    let acl = acl();
    assert!(acl.is_open() && acl.greet().is_some());
    set(&acl, "on >pw >other +get").unwrap();
    for (name, password) in [("alice", "no"), ("bob", "pw"), ("alice", "")] {
        assert_eq!(acl.authenticate(name, password.as_bytes()).unwrap_err(), WRONG_PASSWORD);
    }
    acl.authenticate("default", b"anything").unwrap();
    let mut login = acl.authenticate("alice", b"other").unwrap();
    assert_eq!(acl.current(&mut login).unwrap().can(index("set"), [], Access::READ), Err(Denied::Command));
    set(&acl, "+set").unwrap();
    acl.current(&mut login).unwrap().can(index("set"), [], Access::READ).unwrap();
    set(&acl, "off").unwrap();
    acl.authenticate("alice", b"pw").unwrap_err();
    acl.delete_users(None, &["alice"]).unwrap();
    assert!(acl.current(&mut login.clone()).is_none());
    set(&acl, "on nopass allcommands").unwrap();
    assert!(acl.current(&mut login).is_none(), "another alice");

    let mut login = acl.authenticate("alice", b"").unwrap();
    let text = lines(&acl).join("\n");
    acl.load_text(None, &text, "").unwrap();
    assert!(acl.current(&mut login).is_some(), "nothing has changed");
    acl.load_text(None, &text.replace("+@all", "-@all"), "").unwrap();
    assert!(acl.current(&mut login).is_none());
    acl.load_text(None, &text, "").unwrap();

    acl.set_password(Some(Digest::of(b"new"))).unwrap();
    assert!(!acl.is_open());
    acl.authenticate(DEFAULT, b"new").unwrap();
    acl.authenticate(DEFAULT, b"old").unwrap_err();
    acl.set_password(None).unwrap();
    assert!(acl.is_open());
}

#[test]
fn users_are_described() {
    let acl = acl();
    set(&acl, "on >pw ~a +get (%R~b &c +set)").unwrap();
    let described = acl.user("alice").unwrap().describe();
    assert_eq!(described.flags, ["on", "sanitize-payload"]);
    assert_eq!(described.passwords, [PW]);
    let root = Permissions { commands: "-@all +get".into(), keys: "~a".into(), channels: String::new() };
    assert_eq!(described.root, root);
    let selector = Permissions { commands: "-@all +set".into(), keys: "%R~b".into(), channels: "&c".into() };
    assert_eq!(described.selectors, [selector]);
    assert_eq!(names(&acl), ["alice", "default"]);
}

#[test]
fn files_are_taken_as_a_whole() {
    let acl = acl();
    set(&acl, "on >pw +get ~a (+set ~b c)").unwrap_err();
    set(&acl, "on >pw +get ~a (+set ~b)").unwrap();
    let path = std::env::temp_dir().join(format!("umbel-acl-{}", std::process::id()));
    acl.save(&path).unwrap();
    let before = lines(&acl);
    let text = "user bob on\n\n# a comment\nuser carol +foo\nalice\nuser bob off\nuser d (+get\n";
    let error = acl.load_text(None, text, "users.acl").unwrap_err().to_string();
    for part in [
        "users.acl:4: Error in modifier '+foo'",
        "users.acl:5: ",
        "users.acl:6: user 'bob' is there twice",
        "users.acl:7: Unmatched",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(lines(&acl), before);
    acl.load_text(None, "user bob on nopass +@all ~*\r\n", "users.acl").unwrap();
    assert_eq!(names(&acl), ["bob", "default"]);
    acl.load(None, &path).unwrap();
    assert_eq!(lines(&acl), before);
    std::fs::remove_file(&path).unwrap();
    assert!(acl.load(None, &path).unwrap_err().to_string().contains("umbel-acl-"));
    assert_eq!(lines(&acl), before);
}

#[test]
fn refusals_are_logged_within_bounds() {
    let acl = acl();
    let mut log = acl.log();
    log.record(Reason::Auth, "toplevel", b"AUTH", "alice", "id=1".into(), 1000);
    log.record(Reason::Key, "toplevel", &[b'x'; 1000], "alice", "id=1".into(), 2000);
    log.record(Reason::Auth, "toplevel", b"AUTH", "alice", "id=2".into(), 3000);
    let counts: Vec<_> = log.entries().map(|entry| (entry.reason.name(), entry.count, entry.id)).collect();
    assert_eq!(counts, [("auth", 2, 0), ("key", 1, 1)]);
    let first = log.entries().next().unwrap();
    assert_eq!((first.client.as_str(), first.age(5000)), ("id=2", 4.0));
    assert_eq!(log.entries().nth(1).unwrap().object.len(), 256);
    log.record(Reason::Auth, "toplevel", b"AUTH", "alice", String::new(), 100_000);
    assert_eq!(log.entries().len(), 3, "too late to be counted with the others");
    for number in 0..1000_u32 {
        log.record(Reason::Command, "toplevel", &number.to_le_bytes(), "eve", String::new(), 100_000);
    }
    assert_eq!(log.entries().len(), 128);
    log.resize(5);
    assert_eq!(log.entries().len(), 5);
    log.clear();
    assert_eq!(log.entries().len(), 0);
}

#[test]
fn smaller_commands() {
    let acl = acl();
    assert!(acl.categories().starts_with(&["keyspace".to_owned(), "read".to_owned()]));
    assert_eq!(acl.category("BLOOM").unwrap(), ["bf.add", "bf.exists"]);
    assert_eq!(acl.category("foo").unwrap_err().to_string(), "Unknown category 'foo'");
    assert_eq!((generate_password(256).unwrap().len(), generate_password(5).unwrap().len()), (64, 2));
    assert_ne!(generate_password(256), generate_password(256));
    assert!(generate_password(0).is_err() && generate_password(4097).is_err());
    set(&acl, "on +get ~a").unwrap();
    let dry = |command: &str, key: &str| {
        acl.dry_run("alice", index(command), &[key.as_bytes()], Access::READ).unwrap()
    };
    assert_eq!(dry("get", "a"), None);
    assert_eq!(dry("set", "a").unwrap(), "User alice has no permissions to run the 'set' command");
    assert_eq!(dry("get", "b").unwrap(), "User alice has no permissions to access the 'b' key");
    assert_eq!(acl.dry_run("bob", 0, &[], Access::READ).unwrap_err().to_string(), "User 'bob' not found");
}

fn user(rules: &str) -> User {
    let rules: Vec<_> = rules.split(' ').collect();
    User::new("someone", &Table).and_then(|user| user.with(&rules, &Table)).unwrap()
}

#[test]
fn rights_include_others() {
    for (ours, theirs, expected) in [
        // Everything, and nothing.
        ("~* +@all", "~* +@all", true),
        ("~* +@all", "~* &* +@all (~a +get)", true),
        ("~public:* +@all", "~* +@all", false),
        ("reset", "~a", true),
        ("reset", "+get", false),
        ("~* +@all -set", "~* +@all", false),
        ("~* +@all", "~* +@all -set", true),
        ("~* +@all -set", "~* +@all -set -get", true),
        // All commands of today are not those to come.
        ("~* +@read +@write +@admin +@slow", "~* +@all", false),
        ("~* +@read +@write +@admin +@slow", "~* +@read +config", true),
        // Keys.
        ("~public:* +@all", "~public:* +@all", true),
        ("~public:* +@all", "~public:news:* +@read", true),
        ("~public:* +@all", "~public* +@read", false),
        ("~public:* +@all", "~public:* ~private +get", false),
        ("~a* ~b* +@all", "~b1 ~a? +@all", true),
        ("~** +@all", "~* +@all", true),
        ("~public:* +@all", "+@all", true),
        // What may be done with them.
        ("%R~a* +@all", "%R~a1 +@all", true),
        ("%R~a* +@all", "~a1 +@all", false),
        ("%R~a* +@all", "%W~a1 +@all", false),
        ("~a* +@all", "%W~a1 +@all", true),
        ("%R~* +@all", "~* +@all", false),
        // Commands.
        ("~* +@read", "~* +get +bf.exists", true),
        ("~* +@read", "~* +get +set", false),
        ("~* -@all +@admin", "~* +@all", false),
        ("~* +config", "~* +config|get", true),
        ("~* +config|get", "~* +config", false),
        // Selectors: each side's count.
        ("~* +get", "(~a +set)", false),
        ("+get (~a* +set)", "(~a1 +set)", true),
        ("~a* +get (~b* +set)", "~a1 +get (~b1 +set)", true),
        ("~a* +get (~b* +set)", "~b1 +get", false),
        ("~a* +get (~a* +set)", "~a1 +get +set", true),
        // A command may name both keys.
        ("~a* +get (~b* +get)", "~a1 ~b1 +get", false),
        // Neither passwords nor being off are rights.
        ("off ~a +get", "on nopass ~a +get", true),
    ] {
        assert_eq!(user(ours).includes(&user(theirs)), expected, "{ours} includes {theirs}");
    }
}

#[test]
fn users_change_what_is_within_their_rights() {
    let acl = acl();
    let by = user("~public:* +@all");
    let by = Some(&by);
    acl.set_user(None, "root", &["~*", "+@all"]).unwrap();
    let beyond = |name: &str| Err(Error::Beyond(name.to_owned()));
    for rules in [&["~*", "+@all"][..], &["~private", "+get"], &["(~* +get)"], &["~public*", "+get"]] {
        assert_eq!(acl.set_user(by, "new", rules), beyond("new"), "{rules:?}");
    }
    // Nor is anything taken from those who have more, or their password set.
    for rules in [&[">mine"][..], &["off"], &["reset"], &["resetkeys", "~public:*"]] {
        assert_eq!(acl.set_user(by, "root", rules), beyond("root"), "{rules:?}");
        assert_eq!(acl.set_user(by, DEFAULT, rules), beyond(DEFAULT), "{rules:?}");
    }
    assert_eq!(acl.delete_users(by, &["root"]).map(drop), beyond("root"));
    assert_eq!(acl.load_text(by, "user default on nopass ~public:* +@all", ""), beyond(DEFAULT));
    assert_eq!(acl.load_text(by, "user root ~* +@all\nuser new ~* +@all", ""), beyond("new"));
    acl.set_user(by, "new", &["on", ">pw", "~public:a*", "+@read"]).unwrap();
    let names: Vec<_> = acl.users_within(by).iter().map(|user| user.name().to_owned()).collect();
    assert_eq!(names, ["new"]);
    assert_eq!(acl.delete_users(by, &["new"]), Ok(1));
    assert!(acl.user("root").unwrap().includes(&user("~* +@all")), "as it was");
}
