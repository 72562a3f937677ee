// SPDX-License-Identifier: Apache-2.0
//! Proxies on this machine's loopback, to a network that is made up: what it
//! says of names can change, and each address leads to a server here.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener as Listener, TcpStream as Stream};
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::net::Answer;

const PUBLIC: &str = "93.184.216.34";
const OTHER: &str = "93.184.216.35";

/// Names, and what the resolver answers at the first question and later.
#[derive(Default)]
struct MadeUp {
    names: HashMap<String, Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
    /// Where each address leads, whatever the port.
    servers: HashMap<IpAddr, SocketAddr>,
    connected: Arc<Mutex<Vec<SocketAddr>>>,
}

impl MadeUp {
    fn name(mut self, name: &str, answers: &[&[&str]]) -> Self {
        let read = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        self.names.insert(name.to_owned(), answers.iter().map(read).collect());
        self
    }

    fn server(mut self, address: &str, server: SocketAddr) -> Self {
        self.servers.insert(address.parse().unwrap(), server);
        self
    }
}

impl Net for MadeUp {
    fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = self.names.get(name).map(|answers| answers[asked.min(answers.len() - 1)].clone());
        let answer = answer.ok_or_else(|| io::Error::other("no such name"))?;
        Ok(answer.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    fn connect(&self, address: SocketAddr) -> Answer<'_, TcpStream> {
        self.connected.lock().push(address);
        let server = self.servers.get(&address.ip()).copied();
        Box::pin(async move { TcpStream::connect(server.ok_or(io::ErrorKind::ConnectionRefused)?).await })
    }
}

/// Answers every connection with what it was asked, after `hello `, and closes it.
fn server(hello: &'static str) -> SocketAddr {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut asked = [0; 4096];
                let read = stream.read(&mut asked).unwrap_or(0);
                _ = stream.write_all(&[hello.as_bytes(), &asked[..read]].concat());
            });
        }
    });
    address
}

struct World {
    _egress: Egress,
    outlet: Outlet,
    traffic: Arc<Traffic>,
    proxy: SocketAddr,
    connected: Arc<Mutex<Vec<SocketAddr>>>,
}

impl World {
    fn new(net: MadeUp, allowed: &[&str]) -> Self {
        Self::with(EgressOptions::default(), net, allowed)
    }

    fn with(options: EgressOptions, net: MadeUp, allowed: &[&str]) -> Self {
        let connected = Arc::clone(&net.connected);
        let egress = Egress::with_net(options, net).unwrap();
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let traffic = Arc::new(Traffic::default());
        let allowed = AllowList::read(allowed.iter().copied()).unwrap();
        let outlet = egress.open(listener, allowed, Arc::clone(&traffic)).unwrap();
        Self { _egress: egress, outlet, traffic, proxy, connected }
    }

    /// What is answered, until the end.
    fn ask(&self, words: &str) -> String {
        let mut stream = Stream::connect(self.proxy).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(words.as_bytes()).unwrap();
        let mut answer = String::new();
        _ = stream.read_to_string(&mut answer);
        answer
    }

    /// Asks for a tunnel, and if there is one says hello through it.
    fn tunnel(&self, target: &str) -> String {
        let mut stream = Stream::connect(self.proxy).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        let mut answer = [0; 1024];
        let read = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
        if !answer.starts_with("HTTP/1.1 200") {
            return answer;
        }
        stream.write_all(b"through the tunnel").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    fn counts(&self) -> (u64, u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.traffic.connected), count(&self.traffic.refused), count(&self.traffic.failed))
    }
}

fn net() -> MadeUp {
    MadeUp::default()
        .name("good.example", &[&[PUBLIC]])
        .name("evil.example", &[&[OTHER]])
        .server(PUBLIC, server("good: "))
        .server(OTHER, server("evil: "))
}

#[test]
fn what_is_allowed_is_reached_by_tunnel_and_by_request() {
    let world = World::new(net(), &["good.example"]);
    assert_eq!(world.tunnel("good.example:443"), "good: through the tunnel");
    let answer = world.ask("GET http://good.example/path HTTP/1.1\r\nHost: x\r\nX-Own: 1\r\n\r\n");
    assert_eq!(
        answer,
        "good: GET /path HTTP/1.1\r\nHost: good.example\r\nX-Own: 1\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(world.counts(), (2, 0, 0));
    assert!(world.traffic.received_bytes.load(Ordering::Relaxed) > 20);
    assert_eq!(world.traffic.sent_bytes.load(Ordering::Relaxed), "through the tunnel".len() as u64);
    assert_eq!(world.outlet.take_notes(), [""; 0]);
}

#[test]
fn what_is_not_in_the_list_is_refused_and_told() {
    let world = World::new(net(), &["good.example"]);
    let answer = world.tunnel("evil.example:443");
    assert!(answer.starts_with("HTTP/1.1 403 evil.example:443 is not in allow-hosts"), "{answer}");
    let answer = world.ask("GET http://evil.example:81/ HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403 evil.example:81 is not in allow-hosts"), "{answer}");
    assert!(world.tunnel("good.example:22").starts_with("HTTP/1.1 403"));
    assert!(world.tunnel(&format!("{PUBLIC}:443")).starts_with("HTTP/1.1 403"));
    assert_eq!(world.counts(), (0, 4, 0));
    assert_eq!(*world.connected.lock(), []);
    let notes = world.outlet.take_notes();
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("add \"evil.example:81\" to allow-hosts")), "{notes:?}");
    assert_eq!(world.outlet.take_notes(), [""; 0]);
    // The control: with the name in the list the same is reached.
    let world = World::new(net(), &["good.example", "evil.example"]);
    assert_eq!(world.tunnel("evil.example:443"), "evil: through the tunnel");
}

#[test]
fn private_addresses_are_refused_but_by_themselves() {
    for address in ["127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "::1", "fd00:ec2::254"] {
        let net = || {
            let net = MadeUp::default().name("inside.example", &[&[address]]);
            net.server(address, server("secret: "))
        };
        let world = World::new(net(), &["inside.example"]);
        let answer = world.tunnel("inside.example:443");
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("private address"), "{answer}");
        assert_eq!((world.counts(), world.connected.lock().len()), ((0, 1, 0), 0));
        let quoted = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        assert!(world.tunnel(&format!("{quoted}:443")).starts_with("HTTP/1.1 403"));
        // The control: whoever names the address may reach it.
        let world = World::new(net(), &["inside.example", &quoted]);
        assert_eq!(world.tunnel("inside.example:443"), "secret: through the tunnel");
        assert_eq!(world.tunnel(&format!("{quoted}:443")), "secret: through the tunnel");
        assert!(world.tunnel("inside.example:22").starts_with("HTTP/1.1 403"));
    }
}

#[test]
fn a_name_that_changes_gains_nothing() {
    // The first answer is public, every later one is not: what is connected to
    // is what was checked.
    let rebinding = || MadeUp::default().name("rebind.example", &[&[PUBLIC], &["127.0.0.1"]]);
    let net = rebinding().server(PUBLIC, server("good: ")).server("127.0.0.1", server("secret: "));
    let world = World::new(net, &["rebind.example"]);
    assert_eq!(world.tunnel("rebind.example:443"), "good: through the tunnel");
    assert!(world.tunnel("rebind.example:443").starts_with("HTTP/1.1 403"));
    let public: SocketAddr = format!("{PUBLIC}:443").parse().unwrap();
    assert_eq!(*world.connected.lock(), [public]);
    // Of several addresses the private ones are left out.
    let mixed = MadeUp::default().name("mixed.example", &[&["127.0.0.1", PUBLIC, "10.0.0.1"]]);
    let world = World::new(
        mixed.server(PUBLIC, server("good: ")).server("127.0.0.1", server("secret: ")),
        &["*.example"],
    );
    assert_eq!(world.tunnel("mixed.example:443"), "good: through the tunnel");
    assert_eq!(*world.connected.lock(), [public]);
}

#[test]
fn what_cannot_be_reached_is_told() {
    let world = World::new(
        MadeUp::default().name("gone.example", &[&[PUBLIC]]).name("empty.example", &[&[]]),
        &["*.example"],
    );
    for (name, why) in [("none", "no such name"), ("gone", "refused"), ("empty", "no address")] {
        let answer = world.tunnel(&format!("{name}.example:443"));
        assert!(answer.starts_with("HTTP/1.1 502") && answer.contains(why), "{answer}");
    }
    assert_eq!(world.counts(), (0, 0, 3));
    assert_eq!(world.outlet.take_notes().len(), 3);
}

#[test]
fn nonsense_is_answered_and_reaches_nobody() {
    let world = World::new(net(), &["good.example"]);
    for words in ["GET / HTTP/1.1\r\n\r\n", "\u{1}\r\n\r\n", "CONNECT good.example HTTP/1.1\r\n\r\n"] {
        assert!(world.ask(words).starts_with("HTTP/1.1 400 this is no request to a proxy"), "{words}");
    }
    // A head without an end, and one that is too long.
    let long = format!("GET http://good.example/ HTTP/1.1\r\nA: {}", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(world.ask(&long), "");
    assert_eq!(*world.connected.lock(), []);
}

#[test]
fn waits_and_bytes_have_limits() {
    let options = EgressOptions {
        head_timeout: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(300),
        bytes_max: 1 << 20,
        ..EgressOptions::default()
    };
    // Takes everything and says nothing.
    let silent = Listener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in silent.incoming() {
            std::thread::spawn(move || _ = io::copy(&mut stream.unwrap(), &mut io::sink()));
        }
    });
    let net = net().name("silent.example", &[&["1.1.1.1"]]).server("1.1.1.1", address);
    let world = World::with(options, net, &["*.example"]);
    // Nothing is said: the connection ends. So does one that was made.
    assert_eq!(world.ask(""), "");
    assert_eq!(world.tunnel("silent.example:443"), "");
    // Endless bytes end too.
    let mut stream = Stream::connect(world.proxy).unwrap();
    stream.write_all(b"CONNECT silent.example:443 HTTP/1.1\r\n\r\n").unwrap();
    let piece = vec![0; 64 << 10];
    while stream.write_all(&piece).is_ok() {}
}

#[test]
fn connections_are_bounded_and_end_with_the_outlet() {
    let options = EgressOptions { connections_max: 2, ..EgressOptions::default() };
    let world = World::with(options, net(), &["good.example"]);
    let hold = || {
        let mut stream = Stream::connect(world.proxy).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        stream.write_all(b"CONNECT good.example:443 HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = [0; 64];
        let is_answered = stream.read(&mut answer).is_ok_and(|read| read > 0);
        (stream, is_answered)
    };
    let held = [hold(), hold(), hold()];
    assert_eq!(held.each_ref().map(|(_, is_answered)| *is_answered), [true, true, false]);
    // The third is served as soon as another one has ended.
    let [first, second, (mut third, _)] = held;
    drop(first);
    third.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = [0; 64];
    assert!(third.read(&mut answer).unwrap() > 0);
    // All end with the instance.
    let World { outlet, _egress, proxy, .. } = world;
    drop(outlet);
    let (mut second, _) = second;
    second.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(matches!(second.read(&mut answer), Ok(0) | Err(_)));
    assert!(!matches!(third.read(&mut answer), Ok(1..)));
    let mut late = Stream::connect(proxy);
    let is_closed = late.as_mut().map_or(true, |late| !matches!(late.read(&mut answer), Ok(1..)));
    assert!(is_closed);
}

#[test]
fn all_instances_together_are_bounded() {
    let options = EgressOptions { connections_total_max: 0, ..EgressOptions::default() };
    let world = World::with(options, net(), &["good.example"]);
    assert!(world.tunnel("good.example:443").starts_with("HTTP/1.1 503"));
}
