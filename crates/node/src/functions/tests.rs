// SPDX-License-Identifier: Apache-2.0
//! Deployments without processes: codelets are functions too.
#![allow(clippy::unwrap_used)]

use gateway::FunctionError;
use objects::TreeBuilder;

use super::*;
use crate::{Node, Options};

const ECHO: &str = r#"(module (func (export "apply") (param i32) (result i32) (i32.const 3)))"#;

fn node(home: Option<&std::path::Path>) -> Arc<Node> {
    let options = Options {
        home: home.map(Into::into),
        workers: Some(1),
        memory_bytes: Some(256 << 20),
        ..Options::default()
    };
    Node::start(&options).unwrap()
}

fn tree(node: &Node, entries: &[Handle]) -> Handle {
    node.store().put_tree(entries.iter().copied().collect::<TreeBuilder>().view()).unwrap()
}

fn pairs(node: &Node, pairs: &[(&str, &str)]) -> Handle {
    let put = |text: &str| node.store().put_blob(text.as_bytes()).unwrap();
    let entries: Vec<Handle> = pairs.iter().flat_map(|(name, value)| [put(name), put(value)]).collect();
    tree(node, &entries)
}

fn deployment(node: &Node, procedure: Handle, serving: &[(&str, &str)]) -> Handle {
    let mark = Handle::literal(b"sinew:function/1").unwrap();
    let limits = Handle::literal(b"").unwrap();
    let serving = pairs(node, serving);
    tree(node, &[mark, procedure, limits, serving])
}

/// A codelet's deployment; `number` makes it another one.
fn codelet(node: &Node, number: usize) -> Handle {
    let module = node.store().put_blob(&wat::parse_str(ECHO).unwrap()).unwrap();
    deployment(node, module, &[("concurrency", &(number + 1).to_string()), ("runtime", "wasm")])
}

fn reason<T: std::fmt::Debug>(result: Result<T, FunctionError>) -> String {
    match result.unwrap_err() {
        FunctionError::Invalid(reason) | FunctionError::NotFound(reason) => reason,
        FunctionError::Store(error) => panic!("{error}"),
        FunctionError::Failed(error) => panic!("{error}"),
    }
}

#[test]
fn versions_grow_and_labels_move() {
    let home = tempfile::tempdir().unwrap();
    let first;
    {
        let node = node(Some(home.path()));
        let functions = &node.deployments;
        first = codelet(&node, 0);
        assert!(functions.deploy("echo", first, true).unwrap().is_changed);
        assert!(!functions.deploy("echo", first, true).unwrap().is_changed, "the same again");
        let second = functions.deploy("echo", codelet(&node, 1), true).unwrap();
        assert_eq!((second.served.version, second.is_changed), (2, true));
        let back = functions.roll_back("echo", None).unwrap();
        assert_eq!((back.served.version, back.served.deployment), (1, first));
        assert!(reason(functions.roll_back("echo", None)).contains("no such version"));
        assert_eq!(functions.roll_back("echo", Some(2)).unwrap().served.version, 2);
        functions.roll_back("echo", Some(1)).unwrap();
        // The number of a version is never given again.
        assert_eq!(functions.deploy("echo", codelet(&node, 2), true).unwrap().served.version, 3);
        functions.roll_back("echo", Some(1)).unwrap();
        node.shut_down();
    }
    let node = node(Some(home.path()));
    let served = node.deployments.served("echo", None, 0).unwrap();
    assert_eq!((served.version, served.deployment, served.is_codelet), (1, first, true));
    let versions: Vec<u64> =
        node.deployments.details("echo").unwrap().versions.iter().map(|version| version.version).collect();
    assert_eq!(versions, [3, 2, 1]);
    node.deployments.remove("echo").unwrap();
    assert!(node.deployments.served("echo", None, 0).is_none());
    assert!(reason(node.deployments.remove("echo")).contains("echo"));
    // Of one that was removed, only where its numbers go on.
    let left: Vec<String> = node.store().labels().unwrap().into_iter().map(|(label, _)| label).collect();
    assert_eq!(left, ["function/echo/newest"]);
    assert_eq!(node.deployments.deploy("echo", codelet(&node, 0), true).unwrap().served.version, 4);
}

#[test]
fn when_versions_came_and_why_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let told = |node: &Node| -> Vec<(u64, Option<String>)> {
        let versions = node.deployments.details("echo").unwrap().versions;
        let note = |origin: &gateway::Origin| origin.note.clone();
        versions.iter().map(|version| (version.version, version.origin.as_ref().map(note))).collect()
    };
    {
        let node = node(Some(home.path()));
        let deploy = |number, note| {
            let wanted = [("echo".to_owned(), codelet(&node, number))];
            node.deployments.deploy_all(&wanted, true, note).unwrap()
        };
        deploy(0, "first");
        deploy(1, "");
        // What is there already keeps what was said of it.
        deploy(1, "again");
        deploy(2, "third");
        assert_eq!(told(&node)[1], (2, Some(String::new())));
        let at: Vec<u64> = node
            .deployments
            .details("echo")
            .unwrap()
            .versions
            .iter()
            .map(|it| it.origin.as_ref().unwrap().at_ms)
            .collect();
        assert!(at.is_sorted_by(|later, earlier| later >= earlier) && at[2] > 1_700_000_000_000, "{at:?}");
        node.shut_down();
    }
    let node = node(Some(home.path()));
    let third = (3, Some("third".to_owned()));
    assert_eq!(told(&node), [third.clone(), (2, Some(String::new())), (1, Some("first".to_owned()))]);
    // One that cannot be read, and one of a version that an older node has made, say nothing.
    let label = |number: u64| format!("function/echo/origins/{number:08}");
    let wrong = node.store().put_blob(br#"{"at_ms": "yesterday", "note": "a longer one"}"#).unwrap();
    node.store().set_label(&label(2), wrong).unwrap();
    node.store().remove_label(&label(1)).unwrap();
    node.shut_down();
    drop(node);
    let node = self::node(Some(home.path()));
    assert_eq!(told(&node), [third, (2, None), (1, None)]);
    for number in 3..VERSIONS_MAX + 5 {
        node.deployments.deploy("echo", codelet(&node, number), true).unwrap();
    }
    let labels = node.store().labels().unwrap();
    let origins = labels.iter().filter(|(label, _)| label.contains("/origins/")).count();
    assert_eq!(origins, VERSIONS_MAX, "of versions that went nothing is left");
}

/// Ends at once.
const PROGRAM: &str = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;

#[test]
fn programs_are_told_what_they_can_be_told() {
    let node = node(None);
    let put = |bytes: &[u8]| node.store().put_blob(bytes).unwrap();
    let program = put(&wat::parse_str(PROGRAM).unwrap());
    let echo = put(&wat::parse_str(ECHO).unwrap());
    let (arg, lib, long) = (put(b"arg"), put(b"lib"), put(&[b'x'; 99]));
    let directory = tree(&node, &[put(b"f a\n"), long]);
    let deploy = |procedure, serving: &[(&str, &str)]| {
        node.deployments.deploy("program", deployment(&node, procedure, serving), true)
    };
    let served = deploy(program, &[]).unwrap().served;
    assert_eq!((served.is_program, served.is_codelet, served.is_pure), (true, true, true));
    assert_eq!((&served.prefix[1..], served.procedure), (&[program, put(b"stdin")][..], program));

    let told = tree(&node, &[program, arg, long, lib, put(b"/x"), directory]);
    let serving = [("content-type", "text/html"), ("timeout-ms", "1500")];
    let served = deploy(told, &serving).unwrap().served;
    assert_eq!(served.content_type.as_ref().unwrap(), "text/html");
    assert_eq!(served.timeout, std::time::Duration::from_millis(1500));
    let refs = [long.lowered().unwrap(), directory.lowered().unwrap()];
    assert_eq!((served.prefix[3], served.prefix[6]), (refs[0], refs[1]), "nothing is brought for each call");
    for (procedure, serving, why) in [
        (tree(&node, &[program, arg]), ("concurrency", "1"), "\"arg\" is the last entry"),
        (tree(&node, &[program, lib, put(b"/"), arg]), ("concurrency", "1"), "a directory is no tree"),
        (tree(&node, &[program, put(b"snapshot")]), ("concurrency", "1"), "a snapshot is no answer"),
        (tree(&node, &[echo, arg, arg]), ("concurrency", "1"), "its module is a codelet"),
        (tree(&node, &[long, arg, arg]), ("concurrency", "1"), "no Wasm module"),
        (tree(&node, &[Handle::blob(&[7; 99]), arg, arg]), ("concurrency", "1"), "not on this node"),
        (told, ("timeout-ms", "0"), "timeout-ms"),
        (told, ("content-type", "html"), "content-type"),
        (told, ("content-type", "text/html\r\nx: y"), "content-type"),
    ] {
        let told = reason(deploy(procedure, &[serving]));
        assert!(told.contains(why), "{why:?} is not in {told:?}");
    }
    assert_eq!(
        node.deployments.served("program", None, 0).unwrap().version,
        2,
        "what was refused changed nothing"
    );
}

#[test]
fn old_versions_go_when_there_are_too_many() {
    let node = node(None);
    for number in 0..VERSIONS_MAX + 5 {
        node.deployments.deploy("echo", codelet(&node, number), true).unwrap();
    }
    let versions = node.deployments.details("echo").unwrap().versions;
    assert_eq!(versions.len(), VERSIONS_MAX);
    assert_eq!((versions[0].version, versions.last().unwrap().version), (25, 6));
}

#[test]
fn what_breaks_the_specification_is_refused_and_changes_nothing() {
    let node = node(None);
    let good = codelet(&node, 0);
    node.deployments.deploy("echo", good, true).unwrap();
    let module = node.store().put_blob(&wat::parse_str(ECHO).unwrap()).unwrap();
    let text = node.store().put_blob(b"this is no module, but text that is long enough").unwrap();
    let mark = Handle::literal(b"sinew:function/1").unwrap();
    let none = Handle::literal(b"").unwrap();
    let empty = tree(&node, &[]);
    let python = Handle::literal(b"sinew:python").unwrap();
    let cobol = Handle::literal(b"sinew:cobol").unwrap();
    let image = |runtime, settings| tree(&node, &[runtime, empty, empty, settings]);
    for (wrong, why) in [
        (text, "no tree"),
        (empty, "[mark"),
        (tree(&node, &[mark, module, none]), "[mark"),
        (tree(&node, &[none, module, none, empty]), "first entry"),
        (tree(&node, &[mark, module, mark, empty]), "limits"),
        (tree(&node, &[mark, module, none, none]), "no tree"),
        (deployment(&node, text, &[]), "no Wasm module"),
        (deployment(&node, Handle::blob(&[7; 99]), &[]), "not on this node"),
        (deployment(&node, module, &[("concurrency", "0")]), "concurrency"),
        (deployment(&node, module, &[("concurrency", "many")]), "concurrency"),
        (deployment(&node, module, &[("min-instances", "1")]), "min-instances"),
        (deployment(&node, image(python, empty), &[("min-instances", "17")]), "allows 16"),
        (deployment(&node, module, &[("pure", "maybe")]), "pure"),
        (deployment(&node, module, &[("runtime", "python")]), "runtime"),
        (deployment(&node, module, &[("colour", "red")]), "colour"),
        (deployment(&node, module, &[("route.0", "GET x")]), "no route"),
        (deployment(&node, module, &[("route.first", "GET /x")]), "route.first"),
        (deployment(&node, module, &[("route.0", "GET /v1/functions")]), "belongs to the node"),
        (deployment(&node, image(cobol, empty), &[]), "cobol"),
        (deployment(&node, image(python, pairs(&node, &[("timeout-ms", "0")])), &[]), "timeout-ms"),
        (deployment(&node, image(python, none), &[]), "trees"),
        (deployment(&node, image(none, empty), &[]), "names no runtime"),
    ] {
        let said = reason(node.deployments.deploy("echo", wrong, true));
        assert!(said.contains(why), "{why}: {said}");
    }
    for name in ["", "Echo", "1st", "a_b", "a/b", "-a", &"a".repeat(64)] {
        assert!(reason(node.deployments.deploy(name, good, true)).contains("no name"), "{name}");
    }
    assert_eq!(node.deployments.served("echo", None, 0).unwrap().deployment, good);
    let labels: Vec<String> = node.store().labels().unwrap().into_iter().map(|(label, _)| label).collect();
    assert_eq!(
        labels,
        [
            "function/echo",
            "function/echo/aliases/live",
            "function/echo/origins/00000001",
            "function/echo/versions/00000001"
        ]
    );
}

#[test]
fn a_module_that_does_not_compile_is_refused() {
    let node = node(None);
    let module = node.store().put_blob(b"\0asm\x01\0\0\0 and then nothing that is right").unwrap();
    let refused = node.deployments.deploy("echo", deployment(&node, module, &[]), true);
    assert!(reason(refused).contains("does not load"));
    assert!(node.deployments.served("echo", None, 0).is_none() && node.store().labels().unwrap().is_empty());
}

#[test]
fn going_back_and_forth_keeps_the_numbers_also_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let (a, b);
    {
        let node = node(Some(home.path()));
        (a, b) = (codelet(&node, 0), codelet(&node, 1));
        for deployment in [a, b, a] {
            node.deployments.deploy("echo", deployment, true).unwrap();
        }
        assert_eq!(node.deployments.roll_back("echo", Some(1)).unwrap().served.version, 1);
        node.shut_down();
    }
    let node = node(Some(home.path()));
    let served = node.deployments.served("echo", None, 0).unwrap();
    assert_eq!((served.version, served.deployment), (1, a), "3 is the same deployment");
    assert_eq!(node.deployments.served("echo", Some("2"), 0).unwrap().deployment, b);
}

#[test]
fn an_alias_shares_requests_and_survives_a_restart() {
    let home = tempfile::tempdir().unwrap();
    {
        let node = node(Some(home.path()));
        let functions = &node.deployments;
        assert!(reason(functions.deploy("echo", codelet(&node, 0), false)).contains("first version"));
        functions.deploy("echo", codelet(&node, 0), true).unwrap();
        let second = functions.deploy("echo", codelet(&node, 1), false).unwrap();
        assert_eq!((second.served.version, second.is_changed), (2, true));
        assert_eq!(functions.served("echo", None, 0).unwrap().version, 1, "it does not serve");
        assert_eq!(functions.served("echo", Some("2"), 0).unwrap().version, 2, "but under its number");
        functions.set_alias("echo", "live", &[(1, 90), (2, 10)]).unwrap();
        functions.set_alias("echo", "next", &[(2, 100)]).unwrap();
        assert!(reason(functions.set_alias("echo", "live", &[(1, 90), (3, 10)])).contains("no such version"));
        assert!(reason(functions.set_alias("echo", "7", &[(1, 100)])).contains("no name"));
        assert!(reason(functions.remove_alias("echo", "live")).contains("serves"));
        node.shut_down();
    }
    let node = node(Some(home.path()));
    let functions = &node.deployments;
    let of = |lot| functions.served("echo", None, lot).unwrap().version;
    assert_eq!((of(0), of(999), of(1000), of(9999)), (2, 2, 1, 1));
    assert_eq!(functions.served("echo", Some("next"), 5000).unwrap().version, 2);
    assert!(functions.served("echo", Some("nothing"), 0).is_none());
    // Back from a canary is to the version before it; forward, all to the newest.
    assert_eq!(functions.roll_back("echo", None).unwrap().served.version, 1);
    assert_eq!(of(0), 1);
    let again = functions.deploy("echo", codelet(&node, 1), true).unwrap();
    assert_eq!((again.served.version, again.is_changed, of(9999)), (2, true, 2));
    functions.remove_alias("echo", "next").unwrap();
    assert!(functions.served("echo", Some("next"), 0).is_none());
}

#[test]
fn of_versions_with_one_procedure_the_one_that_serves_says_how_it_runs() {
    let node = node(None);
    let concurrency = || {
        let served = node.deployments.served("echo", None, 0).unwrap();
        node.processes.expected(served.procedure).concurrency
    };
    node.deployments.deploy("echo", codelet(&node, 0), true).unwrap();
    assert_eq!(concurrency(), 1);
    node.deployments.deploy("echo", codelet(&node, 1), true).unwrap();
    assert_eq!(concurrency(), 2);
    node.deployments.roll_back("echo", Some(1)).unwrap();
    assert_eq!(concurrency(), 1, "also where a later version has the same module");
    node.deployments.deploy("echo", codelet(&node, 2), false).unwrap();
    assert_eq!(concurrency(), 1, "what does not serve says nothing");
    node.deployments.set_alias("echo", "live", &[(1, 10), (3, 90)]).unwrap();
    assert_eq!(concurrency(), 3, "most requests are its");
}

#[test]
fn a_version_that_an_alias_names_is_kept() {
    let node = node(None);
    node.deployments.deploy("echo", codelet(&node, 0), true).unwrap();
    node.deployments.set_alias("echo", "first", &[(1, 100)]).unwrap();
    for number in 1..VERSIONS_MAX + 5 {
        node.deployments.deploy("echo", codelet(&node, number), true).unwrap();
    }
    let versions = node.deployments.details("echo").unwrap().versions;
    assert_eq!((versions.len(), versions.last().unwrap().version), (VERSIONS_MAX, 1));
}

#[test]
fn routes_of_two_functions_are_not_in_each_others_way() {
    let node = node(None);
    let functions = &node.deployments;
    let routed = |number: &str, route: &str| {
        let module = node.store().put_blob(&wat::parse_str(ECHO).unwrap()).unwrap();
        deployment(&node, module, &[("concurrency", number), ("route.0", route)])
    };
    functions.deploy("users", routed("1", "GET /users/{id}"), true).unwrap();
    let said = reason(functions.deploy("people", routed("1", "GET /users/{name}"), true));
    assert!(said.contains("people") && said.contains("users") && said.contains("GET /users/{id}"), "{said}");
    assert!(functions.served("people", None, 0).is_none());
    assert_eq!(functions.route("GET", "/users/7").unwrap().function, "users");
    // A new version of its own takes its place.
    functions.deploy("users", routed("2", "GET /members/{id}"), true).unwrap();
    functions.deploy("people", routed("1", "GET /users/{name}"), true).unwrap();
    assert_eq!(functions.route("GET", "/users/7").unwrap().function, "people");
    let said = reason(functions.roll_back("users", None));
    assert!(said.contains("in the way"), "{said}");
    assert_eq!(functions.served("users", None, 0).unwrap().version, 2, "nothing has changed");
    functions.remove("people").unwrap();
    functions.roll_back("users", None).unwrap();
    assert_eq!(functions.route("GET", "/users/7").unwrap().function, "users");
}

#[test]
fn what_is_deployed_together_serves_together_or_not_at_all() {
    let home = tempfile::tempdir().unwrap();
    let all = |pairs: &[(&str, Handle)]| -> Vec<(String, Handle)> {
        pairs.iter().map(|&(name, handle)| (name.to_owned(), handle)).collect()
    };
    {
        let node = node(Some(home.path()));
        let functions = &node.deployments;
        let routed = |number: &str, route: &str| {
            let module = node.store().put_blob(&wat::parse_str(ECHO).unwrap()).unwrap();
            deployment(&node, module, &[("concurrency", number), ("route.0", route), ("runtime", "wasm")])
        };
        let first = [("a", routed("1", "GET /a")), ("b", routed("1", "GET /b"))];
        let deployed = functions.deploy_all(&all(&first), true, "").unwrap();
        assert!(deployed.iter().all(|one| one.is_changed && one.served.version == 1));
        let again = functions.deploy_all(&all(&first), true, "").unwrap();
        assert!(again.iter().all(|one| !one.is_changed && one.loading.is_zero()));
        let serves = |name: &str| functions.served(name, None, 0).map(|served| served.version);
        // The last one cannot be loaded, or is in another one's way, or has no name: the first does not serve either.
        let bad = node.store().put_blob(b"this is no module, but text that is long enough").unwrap();
        let bad = deployment(&node, bad, &[("runtime", "wasm")]);
        for (name, wrong) in
            [("c", bad), ("c", routed("1", "GET /b")), ("a", routed("2", "GET /z")), ("C", first[0].1)]
        {
            let wanted = all(&[("a", routed("9", "GET /a")), (name, wrong)]);
            let refused = functions.deploy_all(&wanted, true, "").unwrap_err();
            assert_eq!(refused.name, name, "{}", refused.error);
            assert_eq!((serves("a"), serves("c")), (Some(1), None));
            assert_eq!(functions.details("a").unwrap().versions.len(), 1, "nor is it there");
        }
        // Two that swap their routes are in each other's way one by one, and not together.
        let swapped = [("a", routed("1", "GET /b")), ("b", routed("1", "GET /a"))];
        assert!(reason(functions.deploy("a", swapped[0].1, true)).contains("in the way"));
        let deployed = functions.deploy_all(&all(&swapped), true, "").unwrap();
        assert_eq!(deployed.iter().map(|one| one.served.version).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(functions.route("GET", "/a").unwrap().function, "b");
        // One that stays, one that is new, and none that serves yet.
        let mixed =
            functions.deploy_all(&all(&[swapped[0], ("b", routed("5", "GET /a"))]), false, "").unwrap();
        assert_eq!(
            mixed.iter().map(|one| (one.is_changed, one.served.version)).collect::<Vec<_>>(),
            [(false, 2), (true, 3)]
        );
        assert_eq!(serves("b"), Some(2));
    }
    let node = node(Some(home.path()));
    let serves = |name: &str| node.deployments.served(name, None, 0).map(|served| served.version);
    assert_eq!((serves("a"), serves("b"), serves("c")), (Some(2), Some(2), None), "also after a restart");
}

#[test]
fn host_names_belong_to_one_function() {
    let node = node(None);
    let functions = &node.deployments;
    let hosted = |number: &str, host: &str| {
        let module = node.store().put_blob(&wat::parse_str(ECHO).unwrap()).unwrap();
        deployment(&node, module, &[("concurrency", number), ("host.0", host), ("public", "true")])
    };
    let first = hosted("1", "shop.example");
    assert_eq!(functions.claims("shop", first).unwrap(), ["shop.example"]);
    functions.deploy("shop", first, true).unwrap();
    assert!(functions.claims("shop", hosted("5", "shop.example")).unwrap().is_empty(), "it has had it");
    assert_eq!(functions.claims("shop", hosted("5", "www.shop.example")).unwrap(), ["www.shop.example"]);
    let said = reason(functions.deploy("other", hosted("1", "shop.example"), true));
    assert!(said.contains("the host shop.example") && said.contains("shop"), "{said}");
    assert_eq!(functions.hosted("shop.example").as_deref(), Some("shop"));
    assert_eq!(functions.hosted("shop.localhost").as_deref(), Some("shop"));
    assert_eq!((functions.hosted("other.localhost"), functions.hosted("example")), (None, None));
    // A new version of its own takes its place, and leaves it to others.
    functions.deploy("shop", hosted("2", "www.shop.example"), true).unwrap();
    functions.deploy("other", hosted("1", "shop.example"), true).unwrap();
    assert_eq!(functions.hosted("shop.example").as_deref(), Some("other"));
    let said = reason(functions.roll_back("shop", None));
    assert!(said.contains("belongs to"), "{said}");
    assert_eq!(functions.hosted("www.shop.example").as_deref(), Some("shop"), "nothing has changed");
    functions.remove("other").unwrap();
    assert_eq!(functions.hosted("shop.example"), None);
    functions.roll_back("shop", None).unwrap();
    assert_eq!(functions.hosted("shop.example").as_deref(), Some("shop"));
    for host in [
        "",
        "Shop.example",
        "shop.example:80",
        "shop..example",
        "-a.example",
        "a-.example",
        "*.example",
        "localhost",
        "a.localhost",
        "10.0.0.1",
        "[::1]",
        "shop.example/x",
        "shop.example.",
        &"a".repeat(64),
        &"a.".repeat(130),
    ] {
        let said = reason(functions.deploy("bad", hosted("1", host), true));
        assert!(said.contains("is no host name"), "{host}: {said}");
    }
}

#[test]
fn a_function_is_public_if_all_of_it_is() {
    let node = node(None);
    let functions = &node.deployments;
    let public = |number: &str, public: &str| {
        let module = node.store().put_blob(&wat::parse_str(ECHO).unwrap()).unwrap();
        deployment(&node, module, &[("concurrency", number), ("public", public)])
    };
    functions.deploy("shop", public("1", "true"), true).unwrap();
    assert!(functions.is_public("shop", None) && functions.is_public("shop", Some("1")));
    assert!(!functions.is_public("shop", Some("2")) && !functions.is_public("shop", Some("live2")));
    assert!(!functions.is_public("nobody", None));
    functions.deploy("shop", public("2", "false"), false).unwrap();
    assert!(functions.is_public("shop", None), "the new version serves nobody yet");
    functions.set_alias("shop", "live", &[(1, 90), (2, 10)]).unwrap();
    assert!(!functions.is_public("shop", None), "a part of the requests would get what is not");
    // Nor is what was once public, and is still there.
    assert!(!functions.is_public("shop", Some("1")) && !functions.is_public("shop", Some("2")));
    assert!(reason(functions.deploy("shop", public("3", "yes"), true)).contains("not true or false"));
}

#[test]
fn a_function_without_its_secret_is_refused_with_what_to_do() {
    let node = node(None);
    let functions = &node.deployments;
    let python = Handle::literal(b"sinew:python").unwrap();
    let empty = tree(&node, &[]);
    let image = tree(&node, &[python, empty, empty, pairs(&node, &[("secret.DB", "DB_URL")])]);
    let said = reason(functions.deploy("needy", deployment(&node, image, &[]), true));
    assert!(said.contains("sinew secret set DB_URL"), "{said}");
    assert!(functions.set_secret("DB_URL", "x").unwrap() && !functions.set_secret("DB_URL", "x").unwrap());
    assert_eq!(functions.secrets(), [("DB_URL".to_owned(), Vec::new())]);
    assert!(reason(functions.set_secret("not a name", "x").map(drop)).contains("no name"));
    functions.remove_secret("DB_URL").unwrap();
    assert!(reason(functions.remove_secret("DB_URL")).contains("no secret"));
}

#[test]
fn nobody_is_deployed_with_another_ones_name() {
    let node = node(None);
    let runtime = Handle::literal(b"sinew:python").unwrap();
    let none = tree(&node, &[]);
    let deployed = |own: &str| {
        let settings = pairs(&node, &[("function", own)]);
        let procedure = tree(&node, &[runtime, none, none, settings]);
        let deployed =
            node.deployments.deploy("mine", deployment(&node, procedure, &[("runtime", "python")]), true);
        format!("{:?}", deployed.map(|deployed| deployed.is_changed))
    };
    let told = deployed("theirs");
    assert!(told.contains("that it is the function") && told.contains("theirs"), "{told}");
    // Its own is no matter; that there are no processes here is.
    let told = deployed("mine");
    assert!(told.starts_with("Err") && !told.contains("that it is the function"), "{told}");
}
