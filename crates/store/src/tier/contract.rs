// SPDX-License-Identifier: Apache-2.0
//! What every depot must do, as a test.
#![allow(clippy::unwrap_used)]

use super::depot::{Depot, LISTED_MAX};
use crate::Object;

fn object(len: usize) -> Object {
    Object::from_vec((0..len).map(|at| (at * 7 % 251) as u8).collect())
}

/// Holds a depot in which nothing is yet to its promises.
///
/// # Panics
/// At the first that it breaks.
pub fn check_depot(depot: &dyn Depot) {
    assert_eq!(depot.get("a/nothing", 0..10).unwrap(), None);
    assert_eq!(depot.list("", "").unwrap(), Vec::<String>::new());
    depot.remove("a/nothing").unwrap();
    let bytes = object(100_000);
    depot.put("a/one", &bytes).unwrap();
    assert_eq!(
        depot.get("a/one", 0..1 << 20).unwrap().unwrap(),
        bytes.bytes(),
        "what is past the end is left out"
    );
    assert_eq!(depot.get("a/one", 5..9).unwrap().unwrap(), bytes[5..9]);
    assert_eq!(depot.get("a/one", 99_990..100_010).unwrap().unwrap(), bytes[99_990..]);
    assert_eq!(depot.get("a/one", 100_000..100_010).unwrap().unwrap(), Vec::<u8>::new());
    depot.put("a/one", &object(10)).unwrap();
    assert_eq!(depot.get("a/one", 0..1 << 20).unwrap().unwrap(), object(10).bytes(), "the last one counts");
    depot.put("a/empty", &object(0)).unwrap();
    assert_eq!(depot.get("a/empty", 0..10).unwrap().unwrap(), Vec::<u8>::new());
    for number in 0..LISTED_MAX + 5 {
        depot.put(&format!("many/{number:05}"), &object(3)).unwrap();
    }
    let first = depot.list("many/", "").unwrap();
    assert_eq!((first.len(), first[0].as_str()), (LISTED_MAX, "many/00000"));
    let rest = depot.list("many/", first.last().unwrap()).unwrap();
    assert_eq!((rest.len(), rest[0].as_str()), (5, "many/01000"));
    assert_eq!(depot.list("a/", "").unwrap(), ["a/empty", "a/one"]);
    depot.remove("a/one").unwrap();
    assert_eq!(depot.get("a/one", 0..10).unwrap(), None);
    assert_eq!(depot.list("a/", "").unwrap(), ["a/empty"]);
    // More than one part of an upload in parts.
    let large = object(40 << 20);
    depot.put("a/large", &large).unwrap();
    let from = (33 << 20) + 1;
    assert_eq!(depot.get("a/large", from..from + 1000).unwrap().unwrap(), large[from as usize..][..1000]);
}
