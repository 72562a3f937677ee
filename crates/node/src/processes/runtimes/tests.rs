// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;

use super::places::DEDICATED_IDLE;
use super::*;

fn wanted(imports: &[&str]) -> Wanted {
    Wanted::new(imports.iter().map(|&name| name.to_owned()).collect(), Vec::new(), "f")
}

/// The place, and the imports of those that went for it.
fn get(places: &mut Places, imports: &[&str]) -> (Arc<Place>, Vec<String>) {
    let (found, gone) = places.get(Language::Python, &wanted(imports));
    (found.unwrap(), all(&gone))
}

fn all(places: &[Arc<Place>]) -> Vec<String> {
    places.iter().map(|place| imports(place)).collect()
}

/// A place whose template has so many bytes; nothing holds it.
fn with_template(places: &mut Places, name: &str, bytes: u64) {
    get(places, &[name]).0.bytes.store(bytes, Ordering::Relaxed);
}

fn imports(place: &Place) -> String {
    place.wanted.imports.join(" ")
}

#[test]
fn functions_with_the_same_imports_share_a_runtime() {
    let mut places = Places::new(100);
    let (plain, _) = get(&mut places, &[]);
    let (numbers, _) = get(&mut places, &["numpy", "pandas"]);
    assert_eq!((imports(&plain), imports(&numbers)), (String::new(), "numpy pandas".to_owned()));
    assert_eq!(get(&mut places, &["numpy", "pandas"]).0.number, numbers.number);
    assert_ne!(get(&mut places, &["numpy"]).0.number, numbers.number);
    let (other, _) = places.get(Language::Node, &wanted(&["numpy"]));
    assert_eq!(other.unwrap().language, Language::Node);
}

#[test]
fn what_functions_bring_tells_runtimes_apart() {
    let mut places = Places::new(100);
    let layer = |name: &[u8]| Handle::literal(name).unwrap();
    let mut bringing_to = |function: &str, imports: &[&str], layers: &[&[u8]]| {
        let layers = layers.iter().map(|name| layer(name)).collect();
        let wanted = Wanted::new(imports.iter().map(|&name| name.to_owned()).collect(), layers, function);
        places.get(Language::Python, &wanted).0.unwrap().number
    };
    // A function's own template is nobody else's; what is the node's is for all.
    let own = bringing_to("f", &["numpy"], &[b"1.26"]);
    assert_ne!(own, bringing_to("g", &["numpy"], &[b"1.26"]));
    assert_eq!(bringing_to("f", &["numpy"], &[]), bringing_to("g", &["numpy"], &[]));
    let mut bringing = |imports: &[&str], layers: &[&[u8]]| bringing_to("f", imports, layers);
    let plain = bringing(&["numpy"], &[]);
    let one = bringing(&["numpy"], &[b"1.26"]);
    assert!(one != plain && one == bringing(&["numpy"], &[b"1.26"]));
    assert!(![plain, one].contains(&bringing(&["numpy"], &[b"2.3"])));
    // Without imports nothing of it is loaded before the fork.
    assert_eq!(bringing(&[], &[b"1.26"]), bringing(&[], &[]));
}

#[test]
fn the_one_that_was_not_used_for_the_longest_time_goes() {
    let mut places = Places::new(100);
    let names = ["a", "b", "c", "d"];
    for name in names {
        get(&mut places, &[name]);
    }
    get(&mut places, &["a"]);
    let (_, gone) = get(&mut places, &["e"]);
    assert_eq!(gone, ["b"]);
    // Its number is nobody's any more.
    let numbers: Vec<u64> = places.by_number.keys().copied().collect();
    assert_eq!(numbers, [0, 1, 2, 3, 5, 6, 7]);
    // It comes again, and another one goes.
    let (again, gone) = get(&mut places, &["b"]);
    assert_eq!((again.number, gone), (8, vec!["c".to_owned()]));
}

#[test]
fn one_that_is_in_use_stays() {
    let mut places = Places::new(100);
    let held: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| get(&mut places, &[name]).0).collect();
    // There is no room: its imports are its own matter.
    let (found, gone) = get(&mut places, &["e"]);
    assert!(found.wanted.imports.is_empty() && gone.is_empty());
    drop(held);
    let (found, gone) = get(&mut places, &["e"]);
    assert_eq!((imports(&found), gone), ("e".to_owned(), vec!["a".to_owned()]));
}

#[test]
fn imports_that_have_no_template_are_tried_all_the_same() {
    let options = RuntimesOptions {
        init: Vec::new(),
        layers: None,
        layers_bytes: 0,
        reactor: None,
        interpreters: Vec::new(),
        secrets: Arc::new(Secrets::open(None).unwrap()),
        outbound: Arc::default(),
        values: sandbox::process::Plan::new(1 << 30),
        debuggers: None,
        templates_bytes: 1 << 20,
        stored_bytes: 0,
    };
    let memory = store::Options { home: None, memory_bytes: 1 << 20, relations_bytes: 1 << 16 };
    let runtimes = Runtimes::new(options, Arc::new(Store::open(memory).unwrap()));
    let check = |name: &str| runtimes.check_imports(Language::Python, wanted(&["json", name]));
    let refused = check("no_such_module").unwrap_err();
    assert!(refused.detail.contains("`imports`") && refused.detail.contains("no_such_module"), "{refused}");
    assert!(runtimes.loadable.lock().is_empty());
    // It is not tried again at once: what is remembered is what is told.
    let told = Fault::new(FailureCode::Resources, "as was found before");
    for (_, fault) in runtimes.unloadable.lock().values_mut() {
        *fault = told.clone();
    }
    assert_eq!(check("no_such_module").unwrap_err(), told);
    assert_eq!(check("decimal"), Ok(()));
    assert_eq!(runtimes.loadable.lock().len(), 1);
    assert_eq!(check("decimal"), Ok(()));
}

#[test]
fn templates_have_a_share_of_the_memory() {
    let mut places = Places::new(100);
    let (large, _) = get(&mut places, &["large"]);
    large.bytes.store(100, Ordering::Relaxed);
    assert_eq!(places.bytes(), 100);
    // While it is in use there is no room for another one, and then it goes for that.
    assert!(get(&mut places, &["other"]).0.wanted.imports.is_empty());
    drop(large);
    let (other, gone) = get(&mut places, &["other"]);
    assert_eq!((imports(&other), gone), ("other".to_owned(), vec!["large".to_owned()]));
    assert_eq!(places.bytes(), 0);
}

#[test]
fn as_many_templates_go_as_make_room_or_none() {
    let mut places = Places::new(100);
    with_template(&mut places, "small", 10);
    with_template(&mut places, "large", 110);
    let (found, gone) = get(&mut places, &["other"]);
    assert_eq!((imports(&found), gone), ("other".to_owned(), vec!["small".to_owned(), "large".to_owned()]));
    // What is in use has too much: the others would go for nothing.
    found.bytes.store(100, Ordering::Relaxed);
    with_template(&mut places, "small", 10);
    let (plain, gone) = get(&mut places, &["late"]);
    assert_eq!((imports(&plain), gone), (String::new(), Vec::new()));
}

#[test]
fn templates_go_that_grew_beyond_their_share_but_for_the_last() {
    let mut places = Places::new(100);
    // All were begun before the memory of any was known.
    for name in ["a", "b", "c"] {
        with_template(&mut places, name, 0);
    }
    for (name, bytes) in [("a", 60), ("b", 10), ("c", 200)] {
        with_template(&mut places, name, bytes);
    }
    assert_eq!(all(&places.take_unneeded(Instant::now())), ["a", "b"]);
    assert_eq!((places.bytes(), places.take_unneeded(Instant::now()).len()), (200, 0));
}

#[test]
fn templates_go_that_nothing_was_forked_from_for_long() {
    let mut places = Places::new(100);
    let (held, _) = get(&mut places, &["a"]);
    let later = Instant::now() + DEDICATED_IDLE;
    // One that is held stays however long that is; those without imports always do.
    assert!(places.take_unneeded(later).is_empty());
    drop(held);
    assert!(places.take_unneeded(later - Duration::from_secs(60)).is_empty());
    assert_eq!(all(&places.take_unneeded(later)), ["a"]);
    assert_eq!(places.by_number.len(), Language::ALL.len());
}
