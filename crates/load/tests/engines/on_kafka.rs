//! Kafka: messages of a topic.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use umbel_load::engines::{MessagePart, Messages, open_kafka};
use umbel_load::{Bookmark, Error, Source};

use crate::common::{read, read_part, said, sorted};
use crate::services::{fresh, passed, service};

const PARTITIONS: i32 = 3;
const COUNT: usize = 40_000;
const PATIENCE: Duration = Duration::from_secs(60);

fn make_topic(config: &ClientConfig, topic: &str) {
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    let new = NewTopic::new(topic, PARTITIONS + 1, TopicReplication::Fixed(1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let made = runtime.block_on(admin.create_topics([&new], &AdminOptions::new())).unwrap();
    assert!(made.iter().all(Result::is_ok), "{made:?}");
}

/// Every tenth message has no key, every tenth no value; the last partition stays empty.
fn send(producer: &BaseProducer, topic: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let (key, value) = (format!("k{number}"), format!("{{\"at\": {{\"url\": \"u{number}\"}}}}"));
        let mut record = BaseRecord::<str, str>::to(topic).partition(number as i32 % PARTITIONS);
        if number % 10 != 3 {
            record = record.key(&key);
        }
        if number % 10 != 7 {
            record = record.payload(&value);
        }
        while let Err((_, back)) = producer.send(record) {
            producer.poll(Duration::from_millis(20));
            record = back;
        }
    }
    producer.flush(PATIENCE).unwrap();
}

fn expected(beginning: &str, without: usize) -> Vec<String> {
    let numbers = (0..COUNT).filter(|number| number % 10 != without);
    sorted(numbers.map(|number| format!("{beginning}{number}")).collect())
}

#[test]
#[ignore = "needs real servers; cargo xtask services start"]
fn kafka() {
    let Some(service) = service("kafka") else { return };
    let (host, topic, mut config) = (service.address(), fresh("keys"), ClientConfig::new());
    config.set("bootstrap.servers", &host);
    make_topic(&config, &topic);
    let producer: BaseProducer = config.create().unwrap();
    let address = format!("kafka://{host}/{topic}");
    let open = |part, field: &[&str]| {
        let field: Vec<_> = field.iter().map(|name| (*name).to_owned()).collect();
        let field = (!field.is_empty()).then_some(field);
        open_kafka(&address, Messages { part, field }).unwrap()
    };
    let by_key = open(MessagePart::Key, &[]);
    let end = Instant::now() + PATIENCE;
    // It takes a moment until a new topic's partitions have leaders.
    while let Err(error) = by_key.parts(1) {
        assert!(matches!(error, Error::Retry(_)) && Instant::now() < end, "{error}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(read(&*by_key, 4, false).unwrap(), (vec![], 0, 0), "nothing is there yet");
    send(&producer, &topic, 0..COUNT);
    for is_resumed in [false, true] {
        let (keys, nulls, parts) = read(&*by_key, 1, is_resumed).unwrap();
        assert!(sorted(keys) == expected("k", 3) && nulls == 4_000, "{nulls} without a key");
        assert_eq!(parts as i32, PARTITIONS);
        let (urls, nulls, _) = read(&*open(MessagePart::Value, &["at", "url"]), 9, is_resumed).unwrap();
        assert!(sorted(urls) == expected("u", 7) && nulls == 4_000, "{nulls} without a value");
    }
    let (values, ..) = read(&*open(MessagePart::Value, &[]), 1, false).unwrap();
    assert!(values.contains(&"{\"at\": {\"url\": \"u5\"}}".to_owned()));
    ends_are_those_that_were_seen(&*by_key, || send(&producer, &topic, COUNT..COUNT + 1_000));
    what_cannot_be_read(&address, &*by_key, &*open(MessagePart::Value, &["url"]));
    let seen = "keys, values and fields of them; an end that stays where it was";
    passed(&service, "keys", "messages are read", seen);
}

fn ends_are_those_that_were_seen(source: &dyn Source, send_more: impl FnOnce()) {
    let parts = source.parts(1).unwrap();
    assert_eq!(parts.iter().map(|part| part.rows.unwrap()).sum::<u64>(), COUNT as u64);
    send_more();
    let read = parts.iter().map(|part| read_part(source, part, true).unwrap().0.len());
    assert_eq!(read.sum::<usize>(), expected("k", 3).len());
}

fn what_cannot_be_read(address: &str, source: &dyn Source, wrong_field: &dyn Source) {
    let part = &source.parts(1).unwrap()[0];
    for bad in ["", "x", "-1", "999999999"] {
        let outcome = source.open(part, Some(&Bookmark::new(bad).unwrap()));
        assert!(matches!(outcome, Err(Error::Corrupt(_))), "{bad}");
    }
    let said_of_field = said(read(wrong_field, 1, false));
    assert!(said_of_field.contains("no object has a field url; the first one has at"), "{said_of_field}");
    let messages = || Messages { part: MessagePart::Key, field: None };
    let missing = open_kafka(&format!("{address}x"), messages()).unwrap();
    assert!(said(missing.parts(1)).contains("there is no topic"));
    let (host, _) = address.rsplit_once('/').unwrap();
    assert!(said(open_kafka(host, messages())).contains("names no topic"));
    let away = open_kafka("kafka://127.0.0.1:1/t?timeout_ms=1000", messages()).unwrap();
    assert!(matches!(away.parts(1), Err(Error::Retry(_))));
}
