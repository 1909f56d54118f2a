//! Random commands for filters, against an oracle of what RedisBloom documents: exact sets and multisets.
//!
//! An answer 0 for what was added is a failure. An answer 1 for what was not is a mistake, which a filter may make as often as it was
//! asked to allow. Many items are sent once in the whole run, and the answers to them are counted, for each error rate.
//! `UMBEL_ORACLE_SEED` and `UMBEL_ORACLE_SEQUENCES` repeat a run.

mod common;

use std::collections::{BTreeMap, HashMap, HashSet};

use common::{Chance, Client, Value, encode, number_or, seed, start_in_memory};

const KEYS: u64 = 20;
const ITEMS: u64 = 200;
/// How seldom a right server may make more mistakes than the test allows.
const FAILURE: f64 = 1e-12;
/// What erasable filters are made with.
const CUCKOO_ERROR: f64 = 0.01;
/// Rates above it are taken for it.
const ERROR_MAX: f64 = 0.25;
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

type Command = Vec<String>;

#[derive(Debug)]
struct Bloom {
    added: HashSet<String>,
    /// Adds that were answered with 1.
    new: u64,
    capacity: u64,
    error: f64,
    /// None if it never grows.
    expansion: Option<u64>,
}

#[derive(Debug, Default)]
struct Cuckoo {
    counts: HashMap<String, u64>,
    /// Items that were taken out.
    deleted: u64,
}

#[derive(Debug)]
enum Filter {
    Bloom(Bloom),
    Cuckoo(Cuckoo),
}

#[derive(Default)]
struct Tally {
    commands: u64,
    refusals: u64,
    /// Answers for what was there.
    present: u64,
    /// Items that were sent before. The same item meets the same neighbours in filters of one shape, so only its first answer says
    /// something new.
    sent: HashSet<String>,
    /// By error rate, in parts of a million: first answers of filters that did not have the item, and how many were mistaken.
    trials: BTreeMap<u64, (u64, u64)>,
}

impl Tally {
    /// Counts the answer for an item that is not there, if it is the first for the item.
    fn judge(&mut self, item: &str, error: f64, is_mistaken: bool) {
        if self.sent.insert(item.to_owned()) {
            let (trials, mistaken) = self.trials.entry((error * 1e6).round() as u64).or_default();
            *trials += 1;
            *mistaken += u64::from(is_mistaken);
        }
    }
}

/// The least number of mistakes that so many trials make only with the probability [`FAILURE`] or less, if each is mistaken with
/// `error`: Chernoff's bound on the tail of the binomial distribution.
fn improbable_mistakes(trials: u64, error: f64) -> u64 {
    let divergence = |share: f64| {
        let part = |share: f64, error: f64| if share == 0.0 { 0.0 } else { share * (share / error).ln() };
        part(share, error) + part(1.0 - share, 1.0 - error)
    };
    let is_rare = |mistakes: u64| {
        let share = mistakes as f64 / trials as f64;
        share > error && (-divergence(share) * trials as f64).exp() < FAILURE
    };
    (0..=trials).find(|mistakes| is_rare(*mistakes)).unwrap_or(trials + 1)
}

#[derive(Default)]
struct Oracle {
    filters: HashMap<String, Filter>,
    tally: Tally,
}

impl Bloom {
    fn new(capacity: u64, error: f64, expansion: Option<u64>) -> Self {
        Self { added: HashSet::new(), new: 0, capacity, error: error.min(ERROR_MAX), expansion }
    }

    /// Checks the answer to an add. Nothing more is added after a refusal.
    fn add(&mut self, item: &str, answer: &Value, tally: &mut Tally) {
        let is_there = self.added.contains(item);
        if let Some(error) = answer.error() {
            assert_eq!(error, "ERR non scaling filter is full", "{item}");
            assert!(self.expansion.is_none() && !is_there, "a filter with room refuses {item}");
            assert!(self.new >= self.capacity, "full after {} of {}", self.new, self.capacity);
            // Who is refused was not taken for one that is there.
            tally.judge(item, self.error, false);
            return;
        }
        let is_new = answer.truth().expect("0 or 1");
        assert!(!(is_there && is_new), "{item} was added before");
        assert!(
            !is_new || self.expansion.is_some() || self.new < self.capacity,
            "a full filter takes {item}"
        );
        if !is_there {
            tally.judge(item, self.error, !is_new);
        }
        self.new += u64::from(is_new);
        self.added.insert(item.to_owned());
    }

    fn look_up(&mut self, item: &str, answer: &Value, tally: &mut Tally) {
        let maybe = answer.truth().expect("0 or 1");
        if self.added.contains(item) {
            assert!(maybe, "{item} was added, and is not there");
            tally.present += 1;
        } else {
            tally.judge(item, self.error, maybe);
        }
    }
}

impl Cuckoo {
    fn count(&self, item: &str) -> u64 {
        self.counts.get(item).copied().unwrap_or_default()
    }

    fn add(&mut self, item: &str, unique: bool, answer: &Value, tally: &mut Tally) {
        let there = self.count(item);
        let added = answer.truth().expect("0 or 1");
        if !unique {
            assert!(added, "{item} was not added");
            // The answer says nothing of the array, and the next one for this item is not the first.
            tally.sent.insert(item.to_owned());
        } else if there > 0 {
            assert!(!added, "{item} was there");
        } else {
            tally.judge(item, CUCKOO_ERROR, !added);
        }
        if added {
            *self.counts.entry(item.to_owned()).or_default() += 1;
        }
    }

    fn look_up(&mut self, item: &str, answer: &Value, tally: &mut Tally) {
        let maybe = answer.truth().expect("0 or 1");
        if self.count(item) > 0 {
            assert!(maybe, "{item} was added, and is not there");
            tally.present += 1;
        } else {
            tally.judge(item, CUCKOO_ERROR, maybe);
        }
    }
}

impl Oracle {
    fn drop_filter(&mut self, key: &str) -> bool {
        self.filters.remove(key).is_some()
    }

    /// The filter of a command, made if there is none; or the refusal that has to come.
    fn filter(
        &mut self,
        key: &str,
        make: Option<Filter>,
        is_cuckoo: bool,
    ) -> Result<&mut Filter, &'static str> {
        self.filter_and_tally(key, make, is_cuckoo).map(|(filter, _)| filter)
    }

    fn filter_and_tally(
        &mut self,
        key: &str,
        make: Option<Filter>,
        is_cuckoo: bool,
    ) -> Result<(&mut Filter, &mut Tally), &'static str> {
        if !self.filters.contains_key(key) {
            let made = make.ok_or("ERR not found")?;
            self.filters.insert(key.to_owned(), made);
        }
        match self.filters.get_mut(key) {
            Some(filter) if matches!(filter, Filter::Cuckoo(_)) == is_cuckoo => Ok((filter, &mut self.tally)),
            _ => Err(WRONG_TYPE),
        }
    }

    fn check(&mut self, command: &Command, reply: &Value) {
        self.tally.commands += 1;
        if let Err(refusal) = self.follow(command, reply) {
            self.tally.refusals += 1;
            assert_eq!(reply.error(), Some(refusal.as_str()), "{command:?}");
        }
    }

    /// Follows a command, and checks its reply; gives the refusal that has to come instead.
    fn follow(&mut self, command: &Command, reply: &Value) -> Result<(), String> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let name = words[0].to_lowercase();
        let wrong_arity = Err(format!("ERR wrong number of arguments for '{name}' command"));
        let least = match name.as_str() {
            "bf.info" | "bf.card" | "cf.info" | "del" | "type" | "exists" => 2,
            "bf.reserve" | "bf.insert" | "cf.insert" | "cf.insertnx" => 4,
            _ => 3,
        };
        let most = match name.as_str() {
            "bf.add" | "bf.exists" | "cf.add" | "cf.addnx" | "cf.exists" | "cf.del" | "cf.count" => 3,
            "bf.card" | "cf.info" | "type" => 2,
            _ => usize::MAX,
        };
        if words.len() < least || words.len() > most {
            return wrong_arity;
        }
        let key = words[1];
        let bloom = || Some(Filter::Bloom(Bloom::new(100, 0.01, Some(2))));
        let cuckoo = || Some(Filter::Cuckoo(Cuckoo::default()));
        match name.as_str() {
            "bf.reserve" => {
                let made = parse_reserve(&words)?;
                if self.filters.contains_key(key) {
                    self.filter(key, None, false)?;
                    return Err("ERR item exists".into());
                }
                assert_eq!(reply, &Value::Simple("OK".into()), "{command:?}");
                self.filters.insert(key.to_owned(), Filter::Bloom(made));
            }
            "bf.add" => {
                let (filter, tally) = self.filter_and_tally(key, bloom(), false)?;
                let Filter::Bloom(bloom) = filter else { unreachable!() };
                bloom.add(words[2], reply, tally);
            }
            "bf.madd" => self.bloom_adds(key, bloom(), &words[2..], reply)?,
            "bf.insert" => {
                let (made, first) = parse_insert(&words)?;
                let Some(first) = first else { return wrong_arity };
                self.bloom_adds(key, made.map(Filter::Bloom), &words[first..], reply)?;
            }
            "bf.exists" | "bf.mexists" | "cf.exists" | "cf.mexists" => {
                self.look_up(key, &words[2..], name.starts_with("cf"), name.contains('m'), reply)?;
            }
            "bf.card" | "bf.info" => self.bloom_info(key, &name, reply)?,
            "cf.reserve" => {
                parse_cuckoo(&words)?;
                if self.filters.contains_key(key) {
                    self.filter(key, None, true)?;
                    return Err("ERR item exists".into());
                }
                assert_eq!(reply, &Value::Simple("OK".into()), "{command:?}");
                self.filters.insert(key.to_owned(), Filter::Cuckoo(Cuckoo::default()));
            }
            "cf.add" | "cf.addnx" => {
                let (filter, tally) = self.filter_and_tally(key, cuckoo(), true)?;
                let Filter::Cuckoo(cuckoo) = filter else { unreachable!() };
                cuckoo.add(words[2], name == "cf.addnx", reply, tally);
            }
            "cf.insert" | "cf.insertnx" => {
                let creates = words[2] != "NOCREATE";
                let made = if creates { cuckoo() } else { None };
                let first = words.iter().position(|word| *word == "ITEMS").map_or(words.len(), |at| at + 1);
                if first == words.len() {
                    return wrong_arity;
                }
                let (filter, tally) = self.filter_and_tally(key, made, true)?;
                let Filter::Cuckoo(cuckoo) = filter else { unreachable!() };
                let Value::Array(answers) = reply else { panic!("{command:?}: {reply:?}") };
                assert_eq!(answers.len(), words.len() - first);
                words[first..].iter().zip(answers).for_each(|(item, answer)| {
                    cuckoo.add(item, name == "cf.insertnx", answer, tally);
                });
            }
            "cf.del" => {
                if !self.filters.contains_key(key) {
                    return Err("Not found".into());
                }
                let Filter::Cuckoo(cuckoo) = self.filter(key, None, true)? else { unreachable!() };
                let there = cuckoo.count(words[2]);
                assert_eq!(reply.truth(), Some(there > 0), "{command:?}");
                if there > 0 {
                    cuckoo.counts.insert(words[2].to_owned(), there - 1);
                    cuckoo.deleted += 1;
                }
            }
            "cf.count" => {
                let count = if self.filters.contains_key(key) {
                    let Filter::Cuckoo(cuckoo) = self.filter(key, None, true)? else { unreachable!() };
                    cuckoo.count(words[2])
                } else {
                    0
                };
                assert_eq!(reply, &Value::Integer(count as i64), "{command:?}");
            }
            "cf.info" => {
                let Filter::Cuckoo(cuckoo) = self.filter(key, None, true)? else { unreachable!() };
                let items: u64 = cuckoo.counts.values().sum();
                let told = ["inserted", "deleted"]
                    .map(|what| reply.field(&format!("Number of items {what}")).cloned());
                let counted = [items, cuckoo.deleted].map(|count| Some(Value::Integer(count as i64)));
                assert_eq!(told, counted, "{command:?}");
            }
            "del" => {
                let dropped = words[1..].iter().filter(|key| self.drop_filter(key)).count();
                assert_eq!(reply, &Value::Integer(dropped as i64), "{command:?}");
            }
            "exists" => {
                let there = words[1..].iter().filter(|key| self.filters.contains_key(**key)).count();
                assert_eq!(reply, &Value::Integer(there as i64), "{command:?}");
            }
            "type" => {
                let kind = match self.filters.get(key) {
                    None => "none",
                    Some(Filter::Bloom(_)) => "MBbloom--",
                    Some(Filter::Cuckoo(_)) => "MBbloomCF",
                };
                assert_eq!(reply, &Value::Simple(kind.into()), "{command:?}");
            }
            other => panic!("the oracle does not know {other}"),
        }
        Ok(())
    }

    fn bloom_adds(
        &mut self,
        key: &str,
        made: Option<Filter>,
        items: &[&str],
        reply: &Value,
    ) -> Result<(), String> {
        let (filter, tally) = self.filter_and_tally(key, made, false)?;
        let Filter::Bloom(bloom) = filter else { unreachable!() };
        let Value::Array(answers) = reply else { panic!("{key} {items:?}: {reply:?}") };
        items.iter().zip(answers).for_each(|(item, answer)| bloom.add(item, answer, tally));
        let refused = answers.iter().position(|answer| answer.error().is_some());
        assert_eq!(
            answers.len(),
            refused.map_or(items.len(), |refused| refused + 1),
            "{key} {items:?}: {reply:?}"
        );
        Ok(())
    }

    fn look_up(
        &mut self,
        key: &str,
        items: &[&str],
        is_cuckoo: bool,
        is_many: bool,
        reply: &Value,
    ) -> Result<(), String> {
        let one = [reply.clone()];
        let answers = match reply {
            Value::Array(answers) if is_many => answers,
            Value::Error(_) => &Vec::new(),
            _ => &one.to_vec(),
        };
        if !self.filters.contains_key(key) {
            assert!(
                answers.iter().all(|answer| answer.truth() == Some(false)),
                "{key} is not there: {reply:?}"
            );
            assert_eq!(answers.len(), items.len(), "{key} {items:?}: {reply:?}");
            return Ok(());
        }
        let (filter, tally) = self.filter_and_tally(key, None, is_cuckoo)?;
        assert_eq!(answers.len(), items.len(), "{key} {items:?}: {reply:?}");
        for (item, answer) in items.iter().zip(answers) {
            match filter {
                Filter::Bloom(bloom) => bloom.look_up(item, answer, tally),
                Filter::Cuckoo(cuckoo) => cuckoo.look_up(item, answer, tally),
            }
        }
        Ok(())
    }

    fn bloom_info(&mut self, key: &str, name: &str, reply: &Value) -> Result<(), String> {
        if name == "bf.card" && !self.filters.contains_key(key) {
            assert_eq!(reply, &Value::Integer(0));
            return Ok(());
        }
        let Filter::Bloom(bloom) = self.filter(key, None, false)? else { unreachable!() };
        let items = Value::Integer(bloom.new as i64);
        if name == "bf.card" {
            assert_eq!(reply, &items, "{key}");
            return Ok(());
        }
        assert_eq!(reply.field("Number of items inserted"), Some(&items), "{key}");
        let expansion = bloom.expansion.map_or(Value::Null, |expansion| Value::Integer(expansion as i64));
        assert_eq!(reply.field("Expansion rate"), Some(&expansion), "{key}");
        let Some(Value::Integer(capacity)) = reply.field("Capacity") else { panic!("{reply:?}") };
        assert!(*capacity as u64 >= bloom.capacity, "{key}: {capacity} of {}", bloom.capacity);
        Ok(())
    }
}

fn parse_reserve(words: &[&str]) -> Result<Bloom, String> {
    let error: f64 = words[2].parse().map_err(|_| "ERR bad error rate")?;
    if error <= 0.0 || error >= 1.0 {
        return Err("ERR error rate must be in the range (0.000000, 1.000000)".into());
    }
    let capacity: i64 = words[3].parse().map_err(|_| "ERR bad capacity")?;
    if capacity <= 0 {
        return Err("ERR (capacity should be larger than 0)".into());
    }
    let expansion = match words[4..] {
        [] => Some(2),
        ["NONSCALING"] => None,
        ["EXPANSION"] => return Err("ERR no expansion".into()),
        ["EXPANSION", expansion] => {
            let expansion: i64 = expansion.parse().map_err(|_| "ERR bad expansion")?;
            if !(0..=32_768).contains(&expansion) {
                return Err("ERR expansion must be in the range [0, 32768]".into());
            }
            (expansion > 0).then_some(expansion as u64)
        }
        _ => return Err("Nonscaling filters cannot expand".into()),
    };
    Ok(Bloom::new(capacity as u64, error, expansion))
}

/// What is to be made, if anything is, and where the items begin.
fn parse_insert(words: &[&str]) -> Result<(Option<Bloom>, Option<usize>), String> {
    let mut made = Bloom::new(100, 0.01, Some(2));
    let mut creates = true;
    let mut at = 2;
    while at < words.len() {
        match words[at] {
            "ITEMS" => {
                return Ok((creates.then_some(made), Some(at + 1).filter(|first| *first < words.len())));
            }
            "NOCREATE" => creates = false,
            "NONSCALING" => made.expansion = None,
            "CAPACITY" => {
                at += 1;
                made.capacity = words[at].parse().map_err(|_| "Bad capacity")?;
            }
            "ERROR" => {
                at += 1;
                made.error = words[at].parse().map_err(|_| "Bad error rate")?;
            }
            _ => return Err("Unknown argument received".into()),
        }
        at += 1;
    }
    Ok((None, None))
}

fn parse_cuckoo(words: &[&str]) -> Result<(), String> {
    let capacity: i64 = words[2].parse().map_err(|_| "Bad capacity")?;
    let mut bucket_size = 2;
    for pair in words[3..].chunks(2) {
        let (most, into) = match pair[0] {
            "BUCKETSIZE" => (255, Some(&mut bucket_size)),
            "MAXITERATIONS" => (65_535, None),
            _ => return Err("Unknown argument received".into()),
        };
        let value: i64 = pair[1].parse().map_err(|_| format!("Couldn't parse {}", pair[0]))?;
        if value < 1 || value > most {
            return Err(format!("{}: value must be an integer between 1 and {most}, inclusive.", pair[0]));
        }
        if let Some(into) = into {
            *into = value;
        }
    }
    if capacity < bucket_size * 2 {
        return Err("Capacity must be at least (BucketSize * 2)".into());
    }
    Ok(())
}

/// A command for some filter. Even keys are mostly Bloom filters and odd ones erasable, so that wrong types come, but seldom.
fn command(chance: &mut Chance) -> Command {
    let number = chance.below(KEYS);
    let is_cuckoo = (number % 2 == 1) ^ chance.one_in(25);
    let key = format!("key:{number}");
    // Some are sent again and again, also in one command, and some never before.
    let item = |chance: &mut Chance| {
        if chance.one_in(3) {
            format!("once:{:x}", chance.next())
        } else {
            format!("item:{}", chance.below(ITEMS))
        }
    };
    let items = |chance: &mut Chance, most: u64| -> Vec<String> {
        (0..=chance.below(most)).map(|_| item(chance)).collect()
    };
    let mut words: Vec<String> = Vec::new();
    let mut say = |text: &str| words.extend(text.split(' ').map(str::to_owned));
    match (chance.below(100), is_cuckoo) {
        (0..=3, _) => say(&format!("DEL {key}")),
        (4, _) => say(&format!("DEL {key} key:{} nothing", chance.below(KEYS))),
        (5, _) => say(&format!("TYPE {key}")),
        (6, _) => say(&format!("EXISTS {key} nothing {key}")),
        (7..=16, false) => {
            let error = chance.of(&["0.1", "0.01", "0.001", "0.00001", "0.5", "1", "0", "-1", "x"]);
            let capacity = chance.of(&["1", "5", "20", "50", "100", "1000", "0", "-3", "many"]);
            let tail = chance.of(&[
                "",
                "",
                " NONSCALING",
                " NONSCALING",
                " EXPANSION 2",
                " EXPANSION 4",
                " EXPANSION",
                " EXPANSION -1",
                " EXPANSION x",
                " NONSCALING EXPANSION 3",
            ]);
            say(&format!("BF.RESERVE {key} {error} {capacity}{tail}"));
        }
        (17..=31, false) => say(&format!("BF.ADD {key} {}", item(chance))),
        (32..=45, false) => say(&format!("BF.MADD {key} {}", items(chance, 30).join(" "))),
        (46..=53, false) => {
            let options = chance.of(&[
                "",
                "NOCREATE ",
                "CAPACITY 30 ERROR 0.001 ",
                "CAPACITY 10 NONSCALING ",
                "WHAT ",
                "CAPACITY x ",
                "ERROR x ",
            ]);
            say(&format!("BF.INSERT {key} {options}ITEMS {}", items(chance, 20).join(" ")));
        }
        (54..=70, false) => say(&format!("BF.EXISTS {key} {}", item(chance))),
        (71..=87, false) => say(&format!("BF.MEXISTS {key} {}", items(chance, 40).join(" "))),
        (88..=91, false) => say(&format!("BF.CARD {key}")),
        (92..=95, false) => say(&format!("BF.INFO {key}")),
        (_, false) => {
            let short = [
                "BF.ADD",
                "BF.MADD",
                "BF.EXISTS",
                "BF.MEXISTS",
                "BF.INFO",
                "BF.CARD",
                "BF.RESERVE",
                "BF.INSERT",
            ];
            let name = chance.of(&short);
            say(&if chance.one_in(2) { (*name).to_owned() } else { format!("{name} {key} ITEMS") });
            if words[0] == "BF.MADD" || words[0] == "BF.MEXISTS" || words[0] == "BF.INFO" {
                words.truncate(1);
            }
            if words.len() > 1 && matches!(words[0].as_str(), "BF.ADD" | "BF.EXISTS") {
                words.push("one too many".into());
            }
        }
        (7..=11, true) => {
            let tail = chance.of(&[
                "",
                " BUCKETSIZE 4",
                " MAXITERATIONS 9",
                " BUCKETSIZE 0",
                " BUCKETSIZE x",
                " WHAT 1",
            ]);
            let capacity = chance.of(&["4", "16", "100", "1000", "1", "0", "many"]);
            say(&format!("CF.RESERVE {key} {capacity}{tail}"));
        }
        (12..=24, true) => say(&format!("CF.ADD {key} {}", item(chance))),
        (25..=33, true) => say(&format!("CF.ADDNX {key} {}", item(chance))),
        (34..=41, true) => say(&format!("CF.INSERT {key} ITEMS {}", items(chance, 20).join(" "))),
        (42..=47, true) => say(&format!("CF.INSERTNX {key} ITEMS {}", items(chance, 20).join(" "))),
        (48..=49, true) => say(&format!("CF.INSERT {key} NOCREATE ITEMS {}", items(chance, 5).join(" "))),
        (50..=59, true) => say(&format!("CF.EXISTS {key} {}", item(chance))),
        (60..=69, true) => say(&format!("CF.MEXISTS {key} {}", items(chance, 40).join(" "))),
        (70..=84, true) => say(&format!("CF.DEL {key} {}", item(chance))),
        (85..=92, true) => say(&format!("CF.COUNT {key} {}", item(chance))),
        (93..=96, true) => say(&format!("CF.INFO {key}")),
        (_, true) => {
            let short = [
                "CF.ADD",
                "CF.ADDNX",
                "CF.DEL",
                "CF.COUNT",
                "CF.EXISTS",
                "CF.INFO",
                "CF.INSERT",
                "CF.RESERVE",
            ];
            let word = *chance.of(&short);
            say(word);
        }
    }
    words
}

#[test]
fn answers_as_the_oracle_does() {
    let mut chance = Chance::new(seed("UMBEL_ORACLE_SEED"));
    let sequences = number_or("UMBEL_ORACLE_SEQUENCES", 3000);
    let server = start_in_memory(2);
    let mut oracle = Oracle::default();
    let mut in_resp3 = 0;
    for number in 0..sequences {
        let mut client = server.connect();
        in_resp3 += u64::from(number % 2 == 1 && client.speak_resp3());
        sequence(&mut chance, &mut client, &mut oracle);
    }
    let Tally { commands, refusals, present, trials, .. } = &oracle.tally;
    println!("{sequences} sequences ({in_resp3} in RESP3), {commands} commands, {refusals} refusals");
    println!("{present} answers for items that were there, all right");
    for (millionths, (trials, mistaken)) in trials {
        let error = *millionths as f64 / 1e6;
        let most = improbable_mistakes(*trials, error);
        println!(
            "error rate {error}: {trials} items that were not there, {mistaken} mistaken, {:.1} allowed on average, \
             less than {most} with a probability of 1 - {FAILURE:e}",
            *trials as f64 * error
        );
        assert!(*mistaken < most, "{mistaken} of {trials} answers are mistaken, at an error rate of {error}");
    }
    let trials: u64 = trials.values().map(|(trials, _)| trials).sum();
    assert!(*refusals > sequences / 10 && *present > sequences && trials > sequences);
}

/// Commands in pipelines of many lengths, so that some are answered as runs and some alone.
fn sequence(chance: &mut Chance, client: &mut Client, oracle: &mut Oracle) {
    for _ in 0..4 {
        let length = if chance.one_in(3) { 1 } else { 2 + chance.below(18) };
        let mut commands: Vec<Command> = Vec::new();
        while commands.len() < length as usize {
            let next = command(chance);
            // The same command again makes a run.
            let times = if chance.one_in(4) { 3 } else { 1 };
            commands.extend((0..times).map(|_| next.clone()));
        }
        client.write(&commands.iter().flat_map(|words| encode(words)).collect::<Vec<_>>());
        for command in &commands {
            let reply = client.value();
            oracle.check(command, &reply);
        }
    }
}

/// Random filters are seldom full, and err more seldom than they may. Fixed ones that hold all that they take show what they were made
/// for; those that grow have room to spare.
#[test]
fn full_filters_err_as_seldom_as_they_were_made_to() {
    const MISTAKES: f64 = 200.0;
    const SMALL: usize = 1000;
    const LARGE: usize = 20_000;
    let mut chance = Chance::new(seed("UMBEL_ORACLE_SEED"));
    let server = start_in_memory(1);
    let mut client = server.connect();
    let mut call = |words: &[&str], items: usize| {
        let items: Vec<String> = (0..items).map(|_| format!("once:{:x}", chance.next())).collect();
        let words: Vec<&str> = words.iter().copied().chain(items.iter().map(String::as_str)).collect();
        match client.call(&words) {
            Value::Array(answers) => answers,
            other => vec![other],
        }
    };
    let blooms = [("NONSCALING", 1), ("EXPANSION 2", 3)].into_iter().flat_map(|(growth, times)| {
        let rates = ["0.1", "0.01", "0.001"].into_iter();
        rates.flat_map(move |error| [SMALL, LARGE].map(|capacity| ("BF", growth, error, capacity, times)))
    });
    let cuckoos = [("EXPANSION 0", 1), ("EXPANSION 2", 3)]
        .into_iter()
        .flat_map(|(growth, times)| [SMALL, LARGE].map(|capacity| ("CF", growth, "0.01", capacity, times)));
    for (family, growth, error, capacity, times) in blooms.chain(cuckoos) {
        let is_fixed = times == 1;
        let shape = format!("{family} {growth} {error} {capacity}");
        let [reserve, insert, exists] =
            ["RESERVE", "INSERT", "MEXISTS"].map(|name| format!("{family}.{name}"));
        let size = capacity.to_string();
        let rate: f64 = error.parse().expect("a rate");
        let trials = (MISTAKES / rate) as usize;
        // Some small filters are luckier than others, so there are as many as hold together what a large one does.
        let filters = LARGE / capacity;
        let mut mistaken = 0;
        for number in 0..filters {
            let key = format!("{shape} {number}");
            let mut words = vec![reserve.as_str(), &key];
            words.extend(if family == "BF" { vec![error, size.as_str()] } else { vec![size.as_str()] });
            words.extend(growth.split(' '));
            assert_eq!(call(&words, 0), [Value::Simple("OK".into())], "{key}");
            for _ in 0..capacity * times / 500 {
                call(&[&insert, &key, "ITEMS"], 500);
            }
            if is_fixed {
                // Those that were mistaken for others took no room.
                while call(&[&insert, &key, "ITEMS"], 1).iter().all(|answer| answer.truth().is_some()) {}
            }
            for _ in 0..trials / filters / 100 {
                let answers = call(&[&exists, &key], 100);
                mistaken += answers.iter().filter(|answer| answer.truth() == Some(true)).count() as u64;
            }
        }
        let most = improbable_mistakes(trials as u64, rate);
        println!("{shape}: {mistaken} of {trials} mistaken, {MISTAKES} allowed on average, {most} never");
        assert!(mistaken < most, "{shape}: {mistaken} of {trials} mistaken, {most} never are");
        // Else the filters were not full, and the test would find nothing.
        assert!(!is_fixed || mistaken as f64 > MISTAKES / 4.0, "{shape}: {mistaken} mistaken");
    }
}

/// RedisBloom answers 0 for the second of them, and takes what follows.
#[test]
fn an_item_twice_in_one_command_needs_room_once() {
    let server = start_in_memory(1);
    let mut client = server.connect();
    client.value_of("BF.RESERVE fixed 0.0001 2 NONSCALING");
    let answers = client.value_of("BF.MADD fixed a a b");
    let Value::Array(answers) = answers else { panic!("{answers:?}") };
    let truths: Vec<_> = answers.iter().map(Value::truth).collect();
    assert_eq!(truths, [Some(true), Some(false), Some(true)]);
}
