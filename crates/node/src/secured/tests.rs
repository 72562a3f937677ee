// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

fn options(listen: &str) -> Options {
    Options { listen: Some(listen.parse().unwrap()), ..Options::default() }
}

#[test]
fn what_others_can_reach_has_tls_or_is_asked_for_by_name() {
    let open = options("0.0.0.0:0");
    let refused = Security::of(&open).unwrap_err().to_string();
    assert!(refused.contains("--tls-cert") && refused.contains("--insecure-http"), "{refused}");
    assert!(Security::of(&Options { insecure_http: true, ..open.clone() }).unwrap().is_none());
    assert!(Security::of(&options("127.0.0.1:0")).unwrap().is_none());
    let home = tempfile::tempdir().unwrap();
    let own = Options { tls_self_signed: true, home: Some(home.path().to_owned()), ..open };
    let made = Security::of(&own).unwrap().unwrap().own_certificate().unwrap();
    assert_eq!(made, home.path().join("tls/certificate.pem"));
    // The same files, given as somebody else's.
    let given = Options {
        tls_cert: Some(made.clone()),
        tls_key: Some(made.with_file_name("key.pem")),
        tls_self_signed: false,
        ..own.clone()
    };
    assert_eq!(Security::of(&given).unwrap().unwrap().own_certificate(), None);
    for wrong in [
        Options { tls_self_signed: true, ..given.clone() },
        Options { tls_key: None, ..given.clone() },
        Options { tls_cert: None, ..given.clone() },
        Options { listen: None, ..given.clone() },
        Options { home: None, ..own.clone() },
    ] {
        assert!(matches!(Security::of(&wrong), Err(Error::TlsSettings(_))), "{wrong:?}");
    }
    let exchanged = Options { tls_cert: given.tls_key.clone(), tls_key: given.tls_cert.clone(), ..given };
    assert!(matches!(Security::of(&exchanged), Err(Error::Tls(_))));
}

#[test]
fn a_certificate_of_our_own_has_the_names_that_clients_may_use() {
    let listen = Some("10.0.0.7:443".parse().unwrap());
    let names = |host: &str| names(listen, &["node.lan".to_owned(), "localhost".to_owned()], host.to_owned());
    assert_eq!(names("box"), ["localhost", "127.0.0.1", "::1", "10.0.0.7", "box", "node.lan"]);
    assert_eq!(names("not a name"), ["localhost", "127.0.0.1", "::1", "10.0.0.7", "node.lan"]);
}
