//! Certificates of a test.

/// An authority, a certificate for this machine and one for us, as files of a server.
pub(crate) fn certificates() -> Vec<(&'static str, String)> {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority_cert = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let mut files = vec![("ca.pem", authority_cert.pem())];
    let machine = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    for (cert, key, both, names) in [
        ("cert.pem", "key.pem", "both.pem", &machine[..]),
        ("client.pem", "client.key", "client-both.pem", &["umbel".to_owned()][..]),
    ] {
        let pair = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(names).unwrap();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, names[0].clone());
        let made = parameters.signed_by(&pair, &issuer).unwrap();
        // Java's servers want both in one file.
        files.push((both, format!("{}{}", pair.serialize_pem(), made.pem())));
        files.extend([(cert, made.pem()), (key, pair.serialize_pem())]);
    }
    files
}
