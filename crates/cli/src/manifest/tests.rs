// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;

use super::glob::Glob;
use super::*;

fn variable(name: &str) -> Option<String> {
    (name == "STAGE").then(|| "test".to_owned())
}

fn read(text: &str) -> Vec<Function> {
    parse(text, &variable).unwrap_or_else(|faults| panic!("{}", rendered(text, &faults)))
}

fn rendered(text: &str, faults: &[Fault]) -> String {
    faults.iter().map(|fault| fault.render("sinew.toml", text)).collect::<Vec<_>>().join("\n")
}

/// What the only fault of a manifest says.
fn wrong(text: &str) -> String {
    let faults = parse(text, &variable).unwrap_err();
    assert_eq!(faults.len(), 1, "{}", rendered(text, &faults));
    rendered(text, &faults)
}

fn pairs(pairs: &Pairs) -> Vec<(&str, &str)> {
    pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

const WHOLE: &str = r#"
    [functions.hello]
    runtime = "python"
    source = "src"
    handler = "web.run"
    memory = "512 MiB"
    cpu = 0.5
    timeout = "90s"
    tmp = "64MiB"
    concurrency = 4
    min-instances = 2
    event = "http"
    waiting = 0
    keep-alive = "10m"
    environment = { STAGE = "${STAGE}", GREETING = "${GREETING:-hello}", PRICE = "$${5}" }
    layers = ["vendor"]
    pure = false
    idempotent = true
    routes = ["GET /hello/{name}", "/any"]
    build = { command = "make", watch = ["src/**"], output = "dist" }
    include = ["*.py"]
    exclude = ["tests/"]
"#;

#[test]
fn every_field_becomes_data() {
    let functions = read(WHOLE);
    let [hello] = functions.as_slice() else { panic!("one function") };
    assert_eq!((hello.name.as_str(), hello.source.as_str(), hello.memory_bytes), ("hello", "src", 512 << 20));
    assert_eq!(hello.layers, ["vendor"]);
    let build = hello.build.as_ref().unwrap();
    assert_eq!(
        (build.command.as_str(), build.output.as_deref(), build.watch.len()),
        ("make", Some("dist"), 1)
    );
    let expected = [
        ("cpu-percent", "50"),
        ("env.GREETING", "hello"),
        ("env.PRICE", "${5}"),
        ("env.STAGE", "test"),
        ("event", "http"),
        ("function", "hello"),
        ("handler", "web.run"),
        ("timeout-ms", "90000"),
        ("tmp-bytes", "67108864"),
    ];
    assert_eq!(pairs(&settings(hello)), expected);
    let expected = [
        ("concurrency", "4"),
        ("idempotent", "true"),
        ("min-instances", "2"),
        ("route.0", "GET /hello/{name}"),
        ("route.1", "ANY /any"),
        ("runtime", "python"),
        ("waiting", "0"),
    ];
    assert_eq!(pairs(&serving(hello)), expected);
}

#[test]
fn saying_the_default_changes_nothing() {
    let short = read("[function]\nname = \"a\"\nruntime = \"python\"");
    let long = read(
        "[functions.a]\nruntime = \"python\"\nhandler = \"main.handler\"\ntimeout = 60\ncpu = 1\ntmp = \"16MiB\"\n\
         concurrency = 16\nmin-instances = 0\nwaiting = 256\nkeep-alive = \"10m\"\npure = false\nmemory = \"256MiB\"\n",
    );
    assert_eq!(settings(&short[0]), settings(&long[0]));
    assert_eq!(serving(&short[0]), serving(&long[0]));
    assert_eq!(short[0].memory_bytes, long[0].memory_bytes);
}

#[test]
fn a_fault_shows_its_place() {
    let text = "[functions.hello]\nruntime = \"python\"\nhandlr = \"main.handler\"\n";
    let expected = "sinew.toml:3:1: unknown field `handlr`\n  |\n3 | handlr = \"main.handler\"\n  | ^^^^^^\n  = did you mean `handler`?";
    assert_eq!(wrong(text), expected);
}

#[test]
fn faults_say_what_to_write() {
    let field = |line: &str| wrong(&format!("[functions.hello]\nruntime = \"python\"\n{line}\n"));
    for (line, expected) in [
        ("memory = true", "this is true or false; expected is a size, like \"512 MiB\""),
        ("memory = \"lots\"", "a size is written"),
        ("memory = \"1KiB\"", "expected is a size from 1MiB to"),
        ("timeout = \"soon\"", "a time is written"),
        ("timeout = \"2d\"", "a time is written"),
        ("timeout = \"0s\"", "expected is a time from 1 ms to 86400 s"),
        ("cpu = 100", "processors from 0.01 to 64"),
        ("cpu = nan", "processors from 0.01 to 64"),
        ("concurrency = 0", "from 1 to 1000"),
        ("concurrency = \"4\"", "this is a string; expected is a whole number"),
        ("pure = \"yes\"", "true or false, without quotes"),
        ("handler = \"handler\"", "module.name"),
        ("source = \"../x\"", "below the manifest's directory"),
        ("routes = [\"FETCH /x\"]", "unknown method `FETCH`"),
        ("routes = [\"GET x\"]", "`GET x` is no route"),
        ("routes = [\"/a{b}\"]", "is a whole part"),
        ("environment = { \"a b\" = \"\" }", "cannot be a variable's name"),
        ("environment = { A = 1 }", "this is a number; expected is a string in quotes"),
        ("environment = { A = \"${MISSING}\" }", "the environment variable MISSING is not set"),
        ("environment = { A = \"${\" }", "no closing brace"),
        ("environment = { A = \"${a b}\" }", "names no variable"),
        ("exclude = [\"\"]", "a pattern has"),
        ("exclude = [\"../x\"]", "cannot contain `..`"),
        ("build = { watch = [] }", "needs a command"),
        ("build = { command = \"make\", wach = [] }", "did you mean `watch`?"),
        ("pure = true\nroutes = [\"/a/{b}\"]", "hello is pure"),
    ] {
        let told = field(line);
        assert!(told.contains(expected), "{line}: {told}");
    }
    for (text, expected) in [
        ("", "there is no function"),
        ("[function]\nruntime = \"node\"", "has no name"),
        ("[functions.hello]", "the function hello has no runtime"),
        ("[functions.Hello]\nruntime = \"node\"", "cannot be a function's name"),
        ("[functions.a]\nruntime = \"python3.12\"", "did you mean `python`?"),
        ("[functions.a]\nruntime = \"nodejs20.x\"", "did you mean `node`?"),
        ("[functions.a]\nruntime = \"go1.x\"", "did you mean `executable`?"),
        ("[functions.a]\nruntime = \"rust\"", "did you mean `executable`?"),
        ("[functions.a]\nruntime = \"java17\"\nhandler = \"a.B\"", "did you mean `java`?"),
        ("[functions.a]\nruntime = \"java\"", "a java function needs a handler"),
        ("[functions.a]\nruntime = \"java\"\nhandler = \"a.B\"\nimports = [\"x\"]", "imports nothing"),
        ("[functions.a]\nruntime = \"python\"\nmode = \"stdin\"", "only an executable has a `mode`"),
        ("[functions.a]\nruntime = \"executable\"\nmode = \"stdn\"", "did you mean `stdin`?"),
        ("[functions.a]\nruntime = \"executable\"\nhandler = \"../main\"", "below the source"),
        ("[functions.a]\nruntime = \"python\"\nhandler = \"main\"", "module.name"),
        ("[functions.a]\nruntime = \"pyton\"", "did you mean `python`?"),
        ("[functions.a]\nruntime = \"cobol\"", "known are: python, node, java, executable, wasm"),
        ("[functions.a]\nruntime = \"wasm\"\ntmp = \"1 MiB\"", "`tmp` means nothing for a wasm function"),
        ("[functions.a]\nruntime = \"python\"\nfuel = 7", "only a wasm function has `fuel`"),
        ("[functions.a]\nruntime = \"wasm\"\nfuel = 0", "from 1"),
        ("[functions.a]\nruntime = \"wasm\"\ncontent-type = \"html\"", "text/html"),
        ("[functions.a]\nruntime = \"wasm\"\narguments = [\"a\\u0000\"]", "no NUL"),
        ("[functions.a]\nruntime = \"wasm\"\ndirectories = { \"/x\" = \"../y\" }", "without `..`"),
        (
            "[function]\nname = \"a\"\nruntime = \"node\"\n[functions.a]\nruntime = \"node\"",
            "two functions called a",
        ),
        ("[fonctions.a]\nruntime = \"node\"", "did you mean `functions`?"),
        ("[functions.a\nruntime = \"node\"", "sinew.toml:1:"),
        ("functions = 7", "this is a number; expected is a table"),
    ] {
        let faults = parse(text, &variable).unwrap_err();
        let told = rendered(text, &faults);
        assert!(told.contains(expected), "{text}: {told}");
    }
}

#[test]
fn what_does_not_go_together_is_told() {
    for (runtime, lines, expected) in [
        ("python", "min-instances = 17", "hello has at most 16 instances, and is to have 17 at least"),
        ("python", "concurrency = 2\nmin-instances = 3", "raise `concurrency`, or lower `min-instances`"),
        ("wasm", "min-instances = 1", "`min-instances` means nothing for a wasm function"),
        ("python", "event = \"htp\"", "did you mean `http`?"),
        ("node", "event = \"http\"\npure = true", "hello is told less than a whole request"),
        (
            "executable",
            "event = \"http\"",
            "hello is for executable, whose functions take no event of this kind",
        ),
        ("executable", "mode = \"stdin\"\nevent = \"http\"", "an executable has one with mode = \"lambda\""),
        ("executable", "mode = \"lambda\"\nbody = \"stream\"", "is passed on while it comes"),
        ("executable", "mode = \"lamda\"", "did you mean `lambda`?"),
        ("wasm", "event = \"http\"", "`event` means nothing for a wasm function"),
    ] {
        let told = wrong(&format!("[functions.hello]\nruntime = \"{runtime}\"\n{lines}\n"));
        assert!(told.contains(expected), "{lines}: {told}");
    }
}

#[test]
fn a_program_for_lambda_is_called_as_there() {
    let told = |lines: &str| {
        let functions =
            read(&format!("[functions.f]\nruntime = \"executable\"\nmode = \"lambda\"\n{lines}\n"));
        let settings = settings(&functions[0]);
        let text = |name: &str| settings.get(name).cloned();
        (text("mode"), text("handler"), text("event"))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(told(""), (some("lambda"), some("bootstrap"), None));
    assert_eq!(
        told("handler = \"bin/go\"\nevent = \"http\""),
        (some("lambda"), some("bin/go"), some("http"))
    );
}

#[test]
fn all_faults_are_told_at_once_in_order() {
    let text = "[functions.a]\nruntime = \"python\"\npure = 1\nmemory = 0\nx = 1\n";
    let faults = parse(text, &variable).unwrap_err();
    let lines: Vec<usize> = faults.iter().map(|fault| text[..fault.place.start].lines().count()).collect();
    assert_eq!(lines, [3, 4, 4], "{}", rendered(text, &faults));
}

#[test]
fn the_published_schema_knows_the_same_fields() {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/reference/sinew.schema.json")).unwrap();
    for (place, fields) in [
        ("function", fields::FUNCTION),
        ("build", fields::BUILD),
        ("async", fields::ASYNC),
        ("step", fields::STEP),
        ("tool", fields::TOOL),
    ] {
        let definition = &schema["$defs"][place];
        assert_eq!(definition["additionalProperties"], false, "{place}");
        let properties = definition["properties"].as_object().unwrap();
        let published: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
        assert_eq!(published, fields::names(fields).into_iter().collect(), "{place}");
        for (name, types) in fields {
            let property = &properties[*name];
            assert!(property["description"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
            let reference = property["$ref"].as_str().map(|path| path.rsplit('/').next().unwrap());
            let declared = reference.map_or(&property["type"], |name| &schema["$defs"][name]["type"]);
            let declared: Vec<&str> = match declared {
                Value::String(one) => vec![one],
                many => many.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect(),
            };
            assert_eq!(declared, *types, "{name}");
        }
    }
    let runtimes = schema["$defs"]["function"]["properties"]["runtime"]["enum"].as_array().unwrap();
    assert_eq!(*runtimes, Runtime::NAMES.map(Value::from));
}

#[test]
fn every_known_field_is_read() {
    for name in fields::names(fields::FUNCTION) {
        let text = format!("[functions.a]\n{name} = 1979-05-27");
        let faults = parse(&text, &variable).unwrap_err();
        assert!(!rendered(&text, &faults).contains("unknown field"), "{name}");
    }
}

#[test]
fn the_documents_example_is_a_manifest() {
    let document = include_str!("../../../../docs/reference/manifest.md");
    let blocks: Vec<&str> =
        document.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() > 1, "the document has examples");
    for block in blocks {
        read(block);
    }
}

#[test]
fn patterns_are_those_of_gitignore() {
    for (pattern, path, is_directory, expected) in [
        ("*.log", "a.log", false, true),
        ("*.log", "deep/er/a.log", false, true),
        ("*.log", "a.logs", false, false),
        ("/a.log", "a.log", false, true),
        ("/a.log", "b/a.log", false, false),
        ("./a.log", "b/a.log", false, false),
        ("tests", "src/tests", true, true),
        ("tests/", "tests", true, true),
        ("tests/", "tests", false, false),
        ("src/*.py", "src/a.py", false, true),
        ("src/*.py", "src/b/a.py", false, false),
        ("src/*.py", "lib/src/a.py", false, false),
        ("src/**", "src/b/a.py", false, true),
        ("src/**", "src", true, false),
        ("src/**/a.py", "src/a.py", false, true),
        ("src/**/a.py", "src/b/c/a.py", false, true),
        ("**/a.py", "a.py", false, true),
        ("a?c", "abc", false, true),
        ("a?c", "a/c", false, false),
        ("[a-c]x", "bx", false, true),
        ("[!a-c]x", "bx", false, false),
        ("[x", "[x", false, true),
        ("a*b*c", "aXbYbZc", false, true),
    ] {
        assert_eq!(Glob::new(pattern).unwrap().matches(path, is_directory), expected, "{pattern} {path}");
    }
}

#[test]
fn a_selection_leaves_out_what_is_no_code() {
    let globs = |patterns: &[&str]| patterns.iter().map(|one| Glob::new(one).unwrap()).collect::<Vec<_>>();
    let usual = Selection::new(&[], &globs(&["data/"]), "# a comment\n*.md\n!KEEP.md\n").unwrap();
    for (path, is_directory, expected) in [
        ("main.py", false, true),
        ("node_modules", true, true),
        (".git", true, false),
        ("lib/__pycache__", true, false),
        (".venv", true, false),
        ("sinew.toml", false, false),
        ("lib/sinew.toml", false, true),
        ("README.md", false, false),
        ("KEEP.md", false, true),
        ("data", true, false),
        (".sinew", true, false),
    ] {
        assert_eq!(usual.verdict(path, is_directory) == Verdict::Taken, expected, "{path}");
    }
    let chosen = Selection::new(&globs(&["*.py", "assets/"]), &globs(&["*_test.py"]), "").unwrap();
    for (path, expected) in [
        ("main.py", true),
        ("a/b.py", true),
        ("a/b_test.py", false),
        ("assets/a/b.png", true),
        ("a.txt", false),
    ] {
        assert_eq!(chosen.verdict(path, false) == Verdict::Taken, expected, "{path}");
    }
    assert_eq!(Selection::new(&[], &[], "a\n/\n").unwrap_err().0, 2);
}

#[test]
fn what_looks_like_a_secret_is_told_apart() {
    let usual = Selection::new(&[], &[], "").unwrap();
    let asked = Selection::new(&[], &[], "!.env.local\nid_rsa\n").unwrap();
    let included = Selection::new(&[Glob::new("**").unwrap()], &[], "").unwrap();
    for (path, of_usual, of_asked, of_included) in [
        (".env", Verdict::Secret, Verdict::Secret, Verdict::Secret),
        (".env.local", Verdict::Secret, Verdict::Taken, Verdict::Secret),
        ("web/.env.production", Verdict::Secret, Verdict::Secret, Verdict::Secret),
        (".env.example", Verdict::Taken, Verdict::Taken, Verdict::Taken),
        // Who leaves it out need not be told.
        ("keys/id_rsa", Verdict::Secret, Verdict::LeftOut, Verdict::Secret),
        ("environment.py", Verdict::Taken, Verdict::Taken, Verdict::Taken),
    ] {
        assert_eq!(usual.verdict(path, false), of_usual, "{path}");
        assert_eq!(asked.verdict(path, false), of_asked, "{path}");
        assert_eq!(included.verdict(path, false), of_included, "{path}");
    }
    assert!(asked.is_wanted(".env.local") && !asked.is_wanted("id_rsa") && !usual.is_wanted(".env.example"));
    let narrow = Selection::new(&[Glob::new("*.py").unwrap()], &[], "").unwrap();
    assert_eq!(narrow.verdict(".env", false), Verdict::LeftOut);
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}") {
        if let Err(faults) = parse(&text, &variable) {
            rendered(&text, &faults);
        }
    }

    #[test]
    fn nothing_that_looks_like_a_manifest_panics(
        words in proptest::collection::vec(
            prop_oneof![
                Just("[functions.a]\n"), Just("[function]\n"), Just("runtime = "), Just("\"python\"\n"), Just("memory = "),
                Just("cpu = "), Just("routes = "), Just("[\"GET /{a}\"]\n"), Just("environment = "), Just("{ A = \"${STAGE"),
                Just("}\" }\n"), Just("timeout = "), Just("1e400\n"), Just("-1\n"), Just("\"9999999999h\"\n"), Just("ü"),
                Just("exclude = [\"[\", \"**/**\"]\n"), Just("0x7fffffffffffffff\n"), Just("99999999999999999999\n"), Just("nan\n"),
            ],
            0..12,
        )
    ) {
        let text = words.concat();
        if let Err(faults) = parse(&text, &variable) {
            rendered(&text, &faults);
        }
    }

    #[test]
    fn no_pattern_panics_or_takes_long(pattern in "[a-c*?\\[\\]!/-]{0,200}", path in "[a-c/]{0,200}") {
        if let Ok(glob) = Glob::new(&pattern) {
            glob.matches(&path, false);
        }
    }
}

#[test]
fn a_workflow_is_declared_by_its_steps() {
    let text = r#"
[functions.report]
runtime = "workflow"
timeout = "10m"
result = { words = "{{ shout }}" }

[functions.report.steps.list]
with = { text = "{{ event.text }}", limit = 3, share = 0.5, on = true, home = "${HOME}" }

[functions.report.steps.shout]
call = "shouter:canary"
each = "{{ list }}"
when = "{{ event.is_loud }}"
after = ["list"]
retries = 2
retry-delay = "1s"
timeout = 5
"#;
    let functions = parse(text, &|name| (name == "HOME").then(|| "/root".to_owned())).unwrap();
    let declaration: Value = serde_json::from_str(functions[0].declaration.as_ref().unwrap()).unwrap();
    let expected = serde_json::json!({
        "result": {"words": "{{ shout }}"},
        "steps": {
            "list": {"with": {"text": "{{ event.text }}", "limit": 3, "share": 0.5, "on": true, "home": "/root"}},
            "shout": {
                "call": "shouter:canary", "each": "{{ list }}", "when": "{{ event.is_loud }}", "after": ["list"],
                "retries": 2, "retry_delay_ms": 1000, "timeout_ms": 5000,
            },
        },
    });
    assert_eq!(declaration, expected);
    assert_eq!(serving(&functions[0])["timeout-ms"], "600000");
}

#[test]
fn what_is_wrong_with_a_declared_workflow_has_its_place() {
    let faults = |rest: &str| {
        let text = format!("[functions.a]\nruntime = \"workflow\"\n{rest}");
        rendered(&text, &parse(&text, &variable).unwrap_err())
    };
    assert!(faults("").contains("has no steps"));
    assert!(faults("memory = 1\n[functions.a.steps.b]").contains("`memory` means nothing"));
    let told = faults("[functions.a.steps.list]\n[functions.a.steps.b]\neach = \"{{ lst }}\"");
    assert!(told.contains("sinew.toml:4:20") && told.contains("did you mean `list`?"), "{told}");
    assert!(faults("[functions.a.steps.b]\nretires = 1").contains("did you mean `retries`?"));
    assert!(faults("[functions.a.steps.b]\nwith = inf").contains("no JSON"));
    assert!(faults("result = \"{{ c }}\"\n[functions.a.steps.b]").contains("sinew.toml:3:"));
    let text = "[functions.a]\nruntime = \"python\"\n[functions.a.steps.b]";
    let told = rendered(text, &parse(text, &variable).unwrap_err());
    assert!(told.contains("only a workflow that is declared has `steps`"), "{told}");
}

/// Two functions, with these lines besides.
fn two(one: &str, other: &str) -> String {
    format!("[functions.order]\nruntime = \"node\"\n{one}\n[functions.price]\nruntime = \"node\"\n{other}\n")
}

#[test]
fn functions_that_are_together_are_one_process() {
    let together = "together = \"shop\"";
    let functions =
        read(&two(together, &format!("{together}\nmemory = \"1 GiB\"\nhandler = \"price.handler\"")));
    let groups: Vec<_> =
        functions.iter().map(|function| data::settings(function)["together"].clone()).collect();
    assert_eq!(groups, ["shop", "shop"]);
    for different in [
        "source = \"other\"",
        "environment = { A = \"b\" }",
        "secrets = [\"KEY\"]",
        "allow-hosts = [\"example.com\"]",
        "layers = [\"vendor\"]",
        "requirements = false",
        "include = [\"*.js\"]",
        "exclude = [\"*.md\"]",
        "build = { command = \"make\" }",
    ] {
        let field = different.split(' ').next().unwrap();
        let told = wrong(&two(together, &format!("{together}\n{different}")));
        let expected = format!("price is together with order, and has another `{field}`");
        assert!(told.contains(&expected) && told.contains("leave `together` out of one"), "{told}");
    }
    let told = wrong(&two(together, ""));
    assert!(told.contains("order is alone in the group `shop`"), "{told}");
}

#[test]
fn what_agents_are_told_is_a_text_or_a_table() {
    let tool = |rest: &str| {
        let text = format!("[functions.a]\nruntime = \"python\"\n{rest}");
        let read = parse(&text, &variable).map_err(|faults| rendered(&text, &faults));
        read.map(|functions| serde_json::from_str::<Value>(functions[0].tool.as_deref().unwrap()).unwrap())
    };
    assert_eq!(tool("tool = \" Adds \"").unwrap(), serde_json::json!({"description": "Adds"}));
    let table =
        "[functions.a.tool]\ndescription = \"Adds\"\nread-only = true\ninput = { required = [\"x\"] }";
    let expected = serde_json::json!({"description": "Adds", "read_only": true, "input": {"type": "object", "required": ["x"]}});
    assert_eq!(tool(table).unwrap(), expected);
    let usual = tool("tool = { description = \"Adds\", read-only = false }").unwrap();
    assert_eq!(usual, serde_json::json!({"description": "Adds"}), "what is as by default is not stored");
    for (wrong, told) in [
        ("tool = \"\"", "a description has 1 to 4096 bytes"),
        ("tool = 1", "expected is a table"),
        ("tool = { read-only = true }", "a tool has a description"),
        ("tool = { description = \"x\", readonly = true }", "did you mean `read-only`?"),
        ("tool = { description = \"x\", input = { type = \"string\" } }", "its type is \"object\""),
        ("tool = { description = \"x\", input = { properties = { a = \"string\" } } }", "a table of schemas"),
        ("tool = { description = \"x\", input = { required = \"a\" } }", "a list of names"),
    ] {
        let said = tool(wrong).unwrap_err();
        assert!(said.contains(told) && said.contains("sinew.toml:3:"), "{said}");
    }
}
