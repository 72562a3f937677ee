// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use axum::http::HeaderValue;
use proptest::prelude::*;

use super::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
    let mut all = HeaderMap::new();
    pairs.for_each(|(name, value)| _ = all.append(name, value));
    all
}

fn asked(peer: &str, is_secure: bool, pairs: &[(&'static str, &str)]) -> (Client, HeaderMap) {
    let trusted = TrustedProxies::and(["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()]);
    let peer = Peer { address: (!peer.is_empty()).then(|| peer.parse().unwrap()), is_secure };
    let mut headers = headers(pairs);
    (Client::of(Some(peer), &mut headers, &trusted), headers)
}

fn client(address: &str, is_secure: bool) -> Client {
    Client { address: (!address.is_empty()).then(|| address.parse().unwrap()), is_secure }
}

#[test]
fn a_client_is_who_is_connected() {
    for (address, is_secure) in
        [("192.0.2.7", false), ("192.0.2.7", true), ("2001:db8::1", false), ("127.0.0.1", true)]
    {
        assert_eq!(asked(address, is_secure, &[]).0, client(address, is_secure));
    }
    // As a listener of both versions tells an older address.
    assert_eq!(asked("::ffff:192.0.2.7", false, &[]).0, client("192.0.2.7", false));
    assert_eq!(asked("", false, &[]).0, client("", false));
    assert_eq!(Client::of(None, &mut HeaderMap::new(), &TrustedProxies::default()), Client::default());
}

#[test]
fn what_trusted_proxies_say_counts_and_stays() {
    let said =
        [("x-forwarded-for", "203.0.113.9"), ("x-forwarded-proto", "https"), ("x-forwarded-host", "a")];
    for proxy in ["10.1.2.3", "127.0.0.1", "::1", "fd12::1", "::ffff:10.1.2.3", ""] {
        let (told, left) = asked(proxy, false, &said);
        assert_eq!((told, left.len()), (client("203.0.113.9", true), 3), "{proxy}");
    }
}

#[test]
fn what_others_say_neither_counts_nor_stays() {
    let said = [
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "a"),
        ("x-forwarded-port", "1"),
        ("x-real-ip", "203.0.113.9"),
        ("forwarded", "for=203.0.113.9"),
        ("x-other", "b"),
    ];
    for other in ["192.0.2.7", "11.0.0.1", "fe80::1", "128.0.0.1"] {
        let (told, left) = asked(other, false, &said);
        assert_eq!(told, client(other, false));
        assert_eq!(left.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-other"]);
    }
}

#[test]
fn of_several_proxies_the_first_that_is_not_trusted_is_the_client() {
    let cases: [(&[(&'static str, &str)], &str); 10] = [
        // The client's own lie comes first, and is not reached.
        (&[("x-forwarded-for", "1.1.1.1, 203.0.113.9, 10.0.0.2")], "203.0.113.9"),
        (&[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "203.0.113.9,10.0.0.2")], "203.0.113.9"),
        (&[("x-forwarded-for", "10.0.0.5, 10.0.0.4")], "10.0.0.5"),
        (&[("x-forwarded-for", "203.0.113.9:4711")], "203.0.113.9"),
        (&[("x-forwarded-for", "[2001:db8::5]:4711")], "2001:db8::5"),
        (&[("x-forwarded-for", "[2001:db8::5]")], "2001:db8::5"),
        // Whom the nearest proxy does not name is unknown, and not the proxy.
        (&[("x-forwarded-for", "1.1.1.1, unknown")], ""),
        (&[("x-forwarded-for", "1.1.1.1, nonsense, 10.0.0.4")], "10.0.0.4"),
        (&[("x-forwarded-for", "")], "10.1.1.1"),
        (&[("x-forwarded-for", " , ")], "10.1.1.1"),
    ];
    for (said, expected) in cases {
        assert_eq!(asked("10.1.1.1", false, said).0, client(expected, false), "{said:?}");
    }
    // The nearest proxy knows best how it was asked.
    for (said, is_secure) in [("http, https", true), ("https, http", false), ("HTTPS", false), ("", false)] {
        assert_eq!(asked("10.1.1.1", false, &[("x-forwarded-proto", said)]).0.is_secure, is_secure, "{said}");
    }
}

#[test]
fn a_client_cannot_silence_its_proxy() {
    let trusted = TrustedProxies::default();
    let peer = Some(Peer { address: Some(Ipv4Addr::LOCALHOST.into()), is_secure: false });
    let mut headers = HeaderMap::new();
    headers.insert(FORWARDED_FOR, HeaderValue::from_bytes(b"\xff\x80, 203.0.113.9").unwrap());
    headers.insert(FORWARDED_PROTO, HeaderValue::from_bytes(b"\xff,https").unwrap());
    assert_eq!(Client::of(peer, &mut headers, &trusted), client("203.0.113.9", true));
    headers.insert(FORWARDED_FOR, HeaderValue::from_bytes(b"127.0.0.1, \xff").unwrap());
    assert_eq!(Client::of(peer, &mut headers, &trusted).address, None);
}

#[test]
fn networks_are_read_and_written() {
    let older: Network = "::ffff:10.0.0.0/104".parse().unwrap();
    assert_eq!(older.to_string(), "10.0.0.0/8");
    assert!("::ffff:10.0.0.0/95".parse::<Network>().is_err());
    for text in ["10.0.0.0/8", "0.0.0.0/0", "fd00::/8", "::/0", "192.0.2.1/32"] {
        let network: Network = text.parse().unwrap();
        assert_eq!(network.to_string(), text);
    }
    let one: Network = "192.0.2.1".parse().unwrap();
    assert!(one.has("192.0.2.1".parse().unwrap()) && !one.has("192.0.2.2".parse().unwrap()));
    let all: Network = "0.0.0.0/0".parse().unwrap();
    assert!(all.has("192.0.2.1".parse().unwrap()) && !all.has("::1".parse().unwrap()));
    for text in ["", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "host"] {
        assert!(text.parse::<Network>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn a_network_has_what_begins_as_it_does(base: u128, other: u128, bits in 0_u32..=128, narrow in 0_u32..=32) {
        let network = Network { base: Ipv6Addr::from(base).into(), bits };
        let begins_alike = bits == 0 || base >> (128 - bits) == other >> (128 - bits);
        let address = IpAddr::from(Ipv6Addr::from(other));
        if address.to_canonical().is_ipv6() {
            prop_assert_eq!(network.has(address), begins_alike);
        }
        let (base, other) = (base as u32, other as u32);
        let network = Network { base: Ipv4Addr::from(base).into(), bits: narrow };
        let begins_alike = narrow == 0 || base >> (32 - narrow) == other >> (32 - narrow);
        prop_assert_eq!(network.has(Ipv4Addr::from(other).into()), begins_alike);
    }

    #[test]
    fn whatever_is_said_a_client_that_is_not_trusted_stays_itself(said: String) {
        let Ok(value) = HeaderValue::from_bytes(said.as_bytes()) else { return Ok(()) };
        let mut headers = HeaderMap::new();
        headers.insert(FORWARDED_FOR, value.clone());
        headers.insert(FORWARDED_PROTO, value);
        let address: IpAddr = Ipv4Addr::new(192, 0, 2, 7).into();
        let peer = Peer { address: Some(address), is_secure: false };
        let told = Client::of(Some(peer), &mut headers, &TrustedProxies::default());
        prop_assert_eq!(told, Client { address: Some(address), is_secure: false });
        prop_assert!(headers.is_empty());
    }
}
