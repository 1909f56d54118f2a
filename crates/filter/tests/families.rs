//! Every family against an implementation that is not ours.

mod common;

use umbel_filter::{Family, Fingerprint, Hasher, Secret};

fn check(family: Family, secret: Option<&Secret>) {
    let hasher = Hasher::new(family, secret).unwrap();
    let recorded = String::from_utf8(common::read(&format!("families/{family}.hex"))).unwrap();
    let keys = common::family_keys();
    assert_eq!(keys.len(), recorded.lines().count());
    assert!(keys.len() > 2000);
    for (key, line) in keys.iter().zip(recorded.lines()) {
        let (first, second) = line.split_once(' ').unwrap();
        let [first, second] = [first, second].map(|word| u64::from_str_radix(word, 16).unwrap());
        assert_eq!(
            hasher.fingerprint(key),
            Fingerprint { first, second },
            "{family}, a key of {} bytes: {key:02x?}",
            key.len()
        );
    }
}

#[test]
fn murmur3_is_guavas() {
    check(Family::Murmur3, None);
}

#[test]
fn redisbloom_is_murmur_hash_64a_twice() {
    check(Family::RedisBloom, None);
    let hello = Hasher::new(Family::RedisBloom, None).unwrap().fingerprint(b"hello");
    assert_eq!(hello, Fingerprint { first: 0x5ba5_b8a5_9803_e699, second: 0xa7d4_51d5_88a0_c2a4 });
}

#[test]
fn redisson_is_redissons_highway_hash() {
    check(Family::Redisson, None);
}

#[test]
fn xxh3_is_xxh3() {
    check(Family::Xxh3, None);
}

#[test]
fn keyed_is_openssls_siphash() {
    check(Family::Keyed, Some(&Secret(std::array::from_fn(|i| i as u8))));
}

#[test]
fn secrets_are_demanded_refused_and_never_printed() {
    let secret = Secret(*b"sixteen secrets!");
    assert!(Hasher::new(Family::Keyed, None).is_err());
    assert!(Hasher::new(Family::Murmur3, Some(&secret)).is_err());
    let hasher = Hasher::new(Family::Keyed, Some(&secret)).unwrap();
    let printed = format!("{hasher:?} {secret:?}");
    assert!(!printed.contains("sixteen") && !printed.contains("115"), "{printed}");
}

#[test]
fn names_are_read_back() {
    for family in Family::ALL {
        assert_eq!(family.name().parse::<Family>().unwrap(), family);
    }
    let error = "md5".parse::<Family>().unwrap_err().to_string();
    assert!(error.contains("md5") && error.contains("murmur3"), "{error}");
}

#[test]
fn a_fingerprint_survives_its_bytes() {
    let key = Fingerprint { first: 0x0102_0304_0506_0708, second: 0x1112_1314_1516_1718 };
    assert_eq!(key.to_bytes()[..2], [8, 7]);
    assert_eq!(Fingerprint::from_bytes(key.to_bytes()), key);
}

#[test]
fn slots_are_even() {
    let hasher = Hasher::new(Family::Murmur3, None).unwrap();
    let mut counts = [0_u32; 256];
    let keys = 256 * 1000;
    for i in 0..keys {
        counts[hasher.fingerprint(format!("item:{i}").as_bytes()).slot(256) as usize] += 1;
    }
    // Chi-squared with 255 degrees of freedom: mean 255, deviation 22.6.
    let chi: f64 = counts.iter().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0).sum();
    assert!((255.0 - 4.0 * 22.6..255.0 + 4.0 * 22.6).contains(&chi), "{chi}");
}
