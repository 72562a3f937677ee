// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

fn get(places: &mut Places, imports: &[&str]) -> (Arc<Place>, Option<Arc<Place>>) {
    let imports: Vec<String> = imports.iter().map(|&name| name.to_owned()).collect();
    let (found, gone) = places.get(Language::Python, &imports);
    (found.unwrap(), gone)
}

fn imports(place: &Place) -> String {
    place.imports.join(" ")
}

#[test]
fn functions_with_the_same_imports_share_a_runtime() {
    let mut places = Places::new();
    let (plain, _) = get(&mut places, &[]);
    let (numbers, _) = get(&mut places, &["numpy", "pandas"]);
    assert_eq!((imports(&plain), imports(&numbers)), (String::new(), "numpy pandas".to_owned()));
    assert_eq!(get(&mut places, &["numpy", "pandas"]).0.number, numbers.number);
    assert_ne!(get(&mut places, &["numpy"]).0.number, numbers.number);
    let (other, _) = places.get(Language::Node, &["numpy".to_owned()]);
    assert_eq!(other.unwrap().language, Language::Node);
}

#[test]
fn the_one_that_was_not_used_for_the_longest_time_goes() {
    let mut places = Places::new();
    let names = ["a", "b", "c", "d"];
    for name in names {
        get(&mut places, &[name]);
    }
    get(&mut places, &["a"]);
    let (_, gone) = get(&mut places, &["e"]);
    assert_eq!(gone.map(|place| imports(&place)), Some("b".to_owned()));
    // Its number is nobody's any more.
    let numbers: Vec<u64> = places.by_number.keys().copied().collect();
    assert_eq!(numbers, [0, 1, 2, 3, 5, 6, 7]);
    // It comes again, and another one goes.
    let (again, gone) = get(&mut places, &["b"]);
    assert_eq!((again.number, gone.map(|place| imports(&place))), (8, Some("c".to_owned())));
}

#[test]
fn one_that_is_in_use_stays() {
    let mut places = Places::new();
    let held: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| get(&mut places, &[name]).0).collect();
    // There is no room: its imports are its own matter.
    let (found, gone) = get(&mut places, &["e"]);
    assert!(found.imports.is_empty() && gone.is_none());
    drop(held);
    let (found, gone) = get(&mut places, &["e"]);
    assert_eq!((imports(&found), gone.map(|place| imports(&place))), ("e".to_owned(), Some("a".to_owned())));
}

#[test]
fn imports_that_have_no_template_are_tried_all_the_same() {
    let options = RuntimesOptions {
        init: Vec::new(),
        layers: PathBuf::new(),
        layers_bytes: 0,
        reactor: None,
        interpreters: Vec::new(),
        secrets: Arc::new(Secrets::open(None).unwrap()),
        outbound: Arc::default(),
    };
    let memory = store::Options { home: None, memory_bytes: 1 << 20, relations_bytes: 1 << 16 };
    let runtimes = Runtimes::new(options, Arc::new(Store::open(memory).unwrap()));
    let check = |name: &str| runtimes.check_imports(Language::Python, vec!["json".into(), name.into()]);
    let refused = check("no_such_module").unwrap_err();
    assert!(refused.detail.contains("`imports`") && refused.detail.contains("no_such_module"), "{refused}");
    assert!(runtimes.loadable.lock().is_empty());
    assert_eq!(check("decimal"), Ok(()));
    assert_eq!(runtimes.loadable.lock().len(), 1);
    assert_eq!(check("decimal"), Ok(()));
}
