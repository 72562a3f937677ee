// SPDX-License-Identifier: Apache-2.0
//! Templates start alike, and their death is noticed.
#![allow(clippy::unwrap_used)]

use std::os::fd::AsFd as _;

use super::*;
use crate::process::place::Nowhere;

fn options(imports: &[&str]) -> TemplateOptions {
    TemplateOptions {
        language: Language::Python,
        interpreter: "python3".into(),
        packages: Vec::new(),
        imports: imports.iter().map(|&name| name.to_owned()).collect(),
        start_timeout: Duration::from_secs(60),
        is_to_fork: true,
        realm: None,
    }
}

#[test]
fn every_start_has_the_same_layout() {
    let digest = |imports: &[&str]| Template::start(&options(imports)).unwrap().hello.layout;
    let first = digest(&["json", "decimal"]);
    assert_eq!(first, digest(&["json", "decimal"]));
    assert_ne!(first, digest(&["json", "sqlite3"]), "other libraries are mapped");
}

fn node(imports: &[&str]) -> TemplateOptions {
    TemplateOptions { language: Language::Node, interpreter: "node".into(), ..options(imports) }
}

#[test]
fn every_start_of_node_has_the_same_layout() {
    let digest = |imports: &[&str]| Template::start(&node(imports)).unwrap().hello.layout;
    let first = digest(&["http", "zlib"]);
    for _ in 0..3 {
        assert_eq!(first, digest(&["http", "zlib"]));
    }
}

#[test]
fn node_says_why_it_cannot_serve() {
    let missing = Template::start(&node(&["no-such-module"])).err().unwrap();
    assert!(matches!(&missing, Refusal::Serve(why) if why.contains("no-such-module")), "{missing:?}");
    let other = Template::start(&TemplateOptions { interpreter: "/bin/true".into(), ..node(&[]) });
    assert!(other.err().unwrap().reason().contains("Node.js 20"));
}

#[test]
fn what_cannot_serve_says_why() {
    let missing = Template::start(&options(&["no_such_module"])).err().unwrap().reason();
    assert!(missing.contains("no_such_module"), "{missing}");
    let none = Template::start(&TemplateOptions { interpreter: "/no/such/python".into(), ..options(&[]) });
    assert!(none.err().unwrap().reason().contains("/no/such/python"));
    let other = Template::start(&TemplateOptions { interpreter: "/bin/true".into(), ..options(&[]) });
    assert!(other.err().unwrap().reason().contains("ended before"));
}

#[test]
fn one_that_says_nothing_is_not_waited_for() {
    let begun = Instant::now();
    let slow = TemplateOptions { start_timeout: Duration::from_millis(1), ..options(&["decimal"]) };
    assert!(Template::start(&slow).is_err());
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn one_that_was_given_up_is_replaced() {
    let nursery = Nursery::new(options(&[])).unwrap();
    let template = nursery.template().unwrap();
    let pid = template.pid().unwrap();
    template.give_up();
    assert!(!template.is_alive());
    let next = nursery.template().unwrap();
    assert_ne!(next.pid().unwrap(), pid);
    let (own, other) = UnixStream::pair().unwrap();
    let watch = Watch::new(own);
    assert!(template.fork(other.as_fd(), &Nowhere, &watch).is_err());
    assert!(next.fork(other.as_fd(), &Nowhere, &watch).is_ok());
    drop(other);
    watch.shut();
    assert_eq!(watch.wait(Duration::from_secs(10)), Some(Ended::Exited(0)));
}

/// Each ends while the next one is forked, and nothing else happens until that is told.
fn ends_while_others_are_forked_are_told(options: &TemplateOptions) {
    const ROUNDS: usize = 100;
    let template = Template::start(options).unwrap();
    let fork = || {
        let (own, other) = UnixStream::pair().unwrap();
        let watch = Watch::new(own.try_clone().unwrap());
        template.fork(other.as_fd(), &Nowhere, &watch).unwrap();
        (own, watch)
    };
    let mut before = fork();
    for round in 0..ROUNDS {
        let (mut own, watch) = before;
        // Its first word: from then on it waits for orders, or the end of its channel.
        std::io::Read::read_exact(&mut own, &mut [0]).unwrap();
        watch.shut();
        before = fork();
        let ended = watch.wait(Duration::from_secs(10));
        assert_eq!(ended, Some(Ended::Exited(0)), "in round {round}");
    }
}

#[test]
fn an_end_while_python_forks_is_told() {
    ends_while_others_are_forked_are_told(&options(&[]));
}

#[test]
fn an_end_while_node_forks_is_told() {
    ends_while_others_are_forked_are_told(&node(&[]));
}

/// What looks at the environment of whoever starts it is another node.
#[test]
fn a_node_with_another_environment_and_other_descriptors_has_the_same_layout() {
    let first = Template::start(&options(&["json", "asyncio"])).unwrap().hello.layout;
    let js = Template::start(&node(&["http"])).unwrap().hello.layout;
    // Numbers of descriptors with more digits than before.
    let held: Vec<_> = (0..120).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    assert_eq!(first, Template::start(&options(&["json", "asyncio"])).unwrap().hello.layout);
    assert_eq!(js, Template::start(&node(&["http"])).unwrap().hello.layout);
    drop(held);
    // The control: a name that is longer moves what comes after it.
    let other = Template::start(&options(&["json", "asyncio", "asyncio.subprocess"])).unwrap().hello.layout;
    assert_ne!(first, other);
}

#[test]
fn a_template_that_comes_back_with_another_layout_is_told() {
    let folder = std::env::temp_dir().join(format!("sinew-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let module = |text: &str| std::fs::write(folder.join("changing.py"), text).unwrap();
    module("class Kind: pass\n");
    let options = TemplateOptions { packages: vec![folder.clone()], ..options(&["changing"]) };
    let nursery = Nursery::new(options).unwrap();
    let layout = nursery.layout().unwrap();
    let again = || {
        nursery.template().unwrap().give_up();
        nursery.template().unwrap()
    };
    assert_eq!(again().hello.layout, layout, "started again it is the same");
    assert_eq!(nursery.layout(), Ok(layout));
    module("import sqlite3\nclass Kind: pass\n");
    let strange = again();
    assert_ne!(strange.hello.layout, layout);
    let why = nursery.layout().unwrap_err();
    assert!(why.contains("laid out differently") && why.contains("start the node again"), "{why}");
    // Functions are served all the same.
    let (own, other) = UnixStream::pair().unwrap();
    assert!(strange.fork(other.as_fd(), &Nowhere, &Watch::new(own)).is_ok());
    // Instances of the strange one may live on: one that is as before changes nothing.
    module("class Kind: pass\n");
    assert_eq!(again().hello.layout, layout);
    assert_eq!(nursery.layout(), Err(why));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What it imports fills some, where the kernel has them.
#[test]
fn the_heap_is_in_huge_pages_where_there_are_any() {
    let folder = std::env::temp_dir().join(format!("sinew-huge-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(
        folder.join("large.py"),
        "kept = [bytes(1000) + bytes([n % 256]) for n in range(20000)]\n",
    )
    .unwrap();
    let options = TemplateOptions { packages: vec![folder.clone()], ..options(&["large"]) };
    let template = Template::start(&options).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    // The memory that a node counts for it.
    assert!(linux::anonymous_bytes(template.hello.pid).unwrap() > 20 << 20);
    let count = template.hello.huge_pages;
    if count <= 0 {
        eprintln!("skipped: no huge pages: {}", io::Error::from_raw_os_error(-count));
        return;
    }
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", template.pid().unwrap())).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
    let kib: i32 = line.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(count >= 5 && kib >= count * 2048, "{count} pages, {kib} KiB");
}

#[test]
fn one_that_only_says_what_nobody_asked_is_given_up() {
    let (socket, other) = linux::message_pair().unwrap();
    let orders = Arc::new(Orders { socket, state: Mutex::default(), changed: Condvar::new() });
    let (own, _peer) = UnixStream::pair().unwrap();
    let watch = Watch::new(own);
    {
        let mut state = orders.state.lock();
        state.answers.insert(7, None);
        state.watches.insert(7, watch.clone());
    }
    let listening = orders.clone();
    let reader = std::thread::spawn(move || listening.listen());
    let word = |kind: u8, id: u64| [&[kind][..], &id.to_le_bytes(), &[0; 4]].concat();
    let say = |word: &[u8]| linux::send_message(&other, word, &[]).is_ok();
    assert!(say(&word(b'R', 7)));
    assert_eq!(orders.answer(7), Ok(()));
    // Late words, and words about others, are few.
    for id in 0..100 {
        assert!(say(&word(b'X', 1000 + id)) && say(&word(b'E', 7)));
    }
    assert!(!orders.state.lock().over && watch.ended().is_none());
    assert_eq!(orders.answer(7), Ok(()), "an answer stands");
    // Who is given up is not read any more.
    linux::limit_sending(&other, Duration::from_millis(100)).unwrap();
    while !orders.state.lock().over {
        say(&word(b'R', 7));
    }
    reader.join().unwrap();
}
