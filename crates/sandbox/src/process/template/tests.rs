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
        may_fork: true,
    }
}

#[test]
fn every_start_has_the_same_layout() {
    let digest = |imports: &[&str]| Template::start(&options(imports)).unwrap().hello.digest;
    let first = digest(&["json", "decimal"]);
    assert_eq!(first, digest(&["json", "decimal"]));
    assert_ne!(first, digest(&["json", "sqlite3"]), "other libraries are mapped");
}

fn node(imports: &[&str]) -> TemplateOptions {
    TemplateOptions { language: Language::Node, interpreter: "node".into(), ..options(imports) }
}

#[test]
fn every_start_of_node_has_the_same_layout() {
    let digest = |imports: &[&str]| Template::start(&node(imports)).unwrap().hello.digest;
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
    let pid = template.pid();
    template.give_up();
    assert!(!template.is_alive());
    let next = nursery.template().unwrap();
    assert_ne!(next.pid(), pid);
    let (own, other) = UnixStream::pair().unwrap();
    let watch = Watch::new(own);
    assert!(template.fork(other.as_fd(), &Nowhere, &watch).is_err());
    assert!(next.fork(other.as_fd(), &Nowhere, &watch).is_ok());
    drop(other);
    watch.shut();
    assert_eq!(watch.wait(Duration::from_secs(10)), Some(Ended::Exited(0)));
}
