// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use objects::TreeBuilder;

use super::*;

fn store() -> Store {
    let options = store::Options { home: None, memory_bytes: 1 << 20, relations_bytes: 1 << 20 };
    Store::open(options).unwrap()
}

fn literal(text: &str) -> Handle {
    Handle::literal(text.as_bytes()).unwrap()
}

fn tree(store: &Store, entries: &[Handle]) -> Handle {
    store.keep_tree(entries.iter().copied().collect::<TreeBuilder>().view())
}

fn read(store: &Store, entries: &[Handle]) -> Result<Image, Fault> {
    Image::read(store, entries.iter().copied().collect::<TreeBuilder>().view())
}

fn settings(pairs: &[(&str, &str)]) -> Result<Settings, Fault> {
    let mut all = Pairs::default();
    pairs.iter().for_each(|(name, value)| all.set(name, value.as_bytes()).unwrap());
    Settings::read(&all)
}

#[test]
fn an_image_is_read() {
    let store = store();
    let empty = tree(&store, &[]);
    let list = tree(&store, &[literal("handler"), literal("app.main")]);
    let layers = tree(&store, &[empty, empty]);
    let image = read(&store, &[literal("sinew:python"), empty, layers, list]).unwrap();
    assert_eq!((image.runtime.as_str(), image.layers.len()), ("python", 2));
    assert_eq!(image.settings.handler.as_deref(), Some("app.main"));
    let codes: Vec<FailureCode> = [
        vec![],
        vec![literal("sinew:python"), empty, layers],
        vec![literal("sinew:python"), empty, layers, list, empty],
        vec![literal("python"), empty, layers, list],
        vec![literal("sinew:\u{e9}"), empty, layers, empty, empty],
        vec![literal("sinew:python"), empty, literal("x"), list],
        vec![literal("sinew:python"), empty, tree(&store, &[empty; LAYERS_MAX + 1]), list],
        vec![literal("sinew:python"), empty, layers, tree(&store, &[literal("handler")])],
        vec![literal("sinew:python"), empty, layers, tree(&store, &[literal("color"), literal("red")])],
    ]
    .iter()
    .map(|entries| read(&store, entries).unwrap_err().code)
    .collect();
    assert!(codes.iter().all(|code| *code == FailureCode::BadProcedure), "{codes:?}");
    let absent: TreeBuilder = [literal("nobody keeps this")].into_iter().collect();
    let missing = read(&store, &[literal("sinew:python"), empty, absent.view().handle(), list]);
    assert_eq!(missing.unwrap_err().code, FailureCode::MissingData);
}

#[test]
fn workflows_are_for_python() {
    let store = store();
    let empty = tree(&store, &[]);
    for (part, expected) in [("workflow", Part::Workflow), ("step", Part::Step)] {
        let list = tree(&store, &[literal("part"), literal(part)]);
        let image = read(&store, &[literal("sinew:python"), empty, empty, list]).unwrap();
        assert_eq!(image.settings.part, Some(expected));
        let line = image.settings_line(Limits::default(), None, false).unwrap();
        assert!(line.contains(&format!("\"part\":\"{part}\"")), "{line}");
        let fault = read(&store, &[literal("sinew:node"), empty, empty, list]).unwrap_err();
        assert!(fault.detail.contains("written in Python"), "{}", fault.detail);
    }
    assert!(settings(&[("part", "other")]).is_err());
}

#[test]
fn a_step_belongs_to_its_workflow() {
    let owner = |pairs: &[(&str, &str)]| settings(pairs).unwrap().owner().to_owned();
    assert_eq!(owner(&[("function", "finra.audit"), ("part", "step")]), "finra");
    assert_eq!(owner(&[("function", "a.b.audit"), ("part", "step")]), "a.b");
    // Whoever is no step is nobody else's, whatever its name.
    assert_eq!(owner(&[("function", "finra.audit")]), "finra.audit");
    assert_eq!(owner(&[("function", "finra.audit"), ("part", "workflow")]), "finra.audit");
    assert_eq!(owner(&[("function", "audit"), ("part", "step")]), "audit");
}

#[test]
fn settings_have_bounds() {
    let all = settings(&[
        ("timeout-ms", "1500"),
        ("cpu-percent", "50"),
        ("tmp-bytes", "0"),
        ("env.GREETING", "h\u{e9}llo"),
    ]);
    let all = all.unwrap();
    assert_eq!((all.timeout, all.cpu_percent, all.tmp_bytes), (Duration::from_millis(1500), 50, 0));
    assert_eq!(all.environment["GREETING"], "h\u{e9}llo");
    for (name, value) in [
        ("timeout-ms", "0"),
        ("timeout-ms", "86400001"),
        ("timeout-ms", "+5"),
        ("timeout-ms", ""),
        ("timeout-ms", "99999999999999999999"),
        ("cpu-percent", "-1"),
        ("env.", "x"),
        ("env.1A", "x"),
        ("env.A B", "x"),
        ("env.A", "\0"),
        ("handler", ""),
        ("handler", "a b"),
        ("handler", "/etc/passwd"),
        ("handler", "../up.handler"),
        ("memory", "1"),
    ] {
        assert!(settings(&[(name, value)]).is_err(), "{name} = {value:?}");
    }
}

#[test]
fn strings_are_quoted_for_both_languages() {
    let mut line = String::new();
    push_quoted(&mut line, "a\"b\\c\n\0\u{2028}\u{1f600}");
    assert_eq!(line, "\"a\\\"b\\\\c\\u000a\\u0000\\u2028\u{1f600}\"");
}

#[test]
fn runtimes_are_literals_with_a_prefix() {
    assert_eq!(runtime_of(&literal("sinew:node")), Some("node"));
    assert_eq!(runtime_of(&literal("node")), None);
    assert_eq!(runtime_of(&Handle::blob(&[b's'; 64])), None);
    assert_eq!(runtime_of(&literal("sinew:node").application().unwrap_or(Handle::blob(&[1; 40]))), None);
}

#[derive(Debug)]
struct Known;

impl SecretSource for Known {
    fn secret(&self, name: &str) -> Option<String> {
        (name == "DB").then(|| "quoted \" value".to_owned())
    }
}

#[test]
fn secrets_are_variables_whose_values_are_looked_up() {
    let image = |settings| Image {
        runtime: "python".to_owned(),
        code: Handle::blob(b""),
        layers: Vec::new(),
        settings,
    };
    let known = image(settings(&[("secret.DB_URL", "DB")]).unwrap());
    let line = known.settings_line(Limits::default(), Some(&Known), false).unwrap();
    assert!(line.contains(r#""env.DB_URL":"quoted \" value""#), "{line}");
    for source in [None, Some(&Known as &dyn SecretSource)] {
        let unknown = image(settings(&[("secret.A", "OTHER")]).unwrap());
        let fault = unknown.settings_line(Limits::default(), source, false).unwrap_err();
        assert!(fault.detail.contains("sinew secret set OTHER"), "{fault}");
    }
    assert!(settings(&[("secret.1", "A")]).is_err() && settings(&[("secret.A", "a b")]).is_err());
    assert!(settings(&[("secret.A", "A"), ("env.A", "x")]).is_err());
}

#[test]
fn libraries_are_told_how_many_threads_they_may_have() {
    let told = |runtime, percent, processors, name| {
        let all = threads::variables(runtime, percent, processors);
        all.into_iter().find_map(|(known, value)| (known == name).then_some(value))
    };
    let cases = [
        (1, 8, "1", "2"),
        (100, 8, "1", "2"),
        (250, 8, "2", "3"),
        (6400, 2, "2", "2"),
        (6400, 1, "1", "1"),
        (6400, 96, "24", "64"),
    ];
    for (percent, processors, whole, begun) in cases {
        for runtime in ["python", "node", "executable"] {
            let found = told(runtime, percent, processors, "OMP_NUM_THREADS");
            assert_eq!(found.as_deref(), Some(whole), "{runtime} {percent} {processors}");
        }
        let found = told("executable", percent, processors, "GOMAXPROCS");
        assert_eq!(found.as_deref(), Some(begun), "{percent} {processors}");
    }
    // OpenBLAS and MKL ask for this one where their own says nothing, so that it is enough to set it.
    for name in ["OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "GOMAXPROCS"] {
        assert_eq!(told("python", 400, 8, name), None, "{name}");
    }
}

#[test]
fn what_the_function_says_goes_before_what_is_said_to_all() {
    let values = |pairs: &[(&str, &str)]| {
        let settings = settings(pairs).unwrap();
        let image =
            Image { runtime: "python".to_owned(), code: Handle::blob(b""), layers: Vec::new(), settings };
        let line = image.settings_line(Limits::default(), Some(&Known), false).unwrap();
        let name = "\"env.OMP_NUM_THREADS\":\"";
        assert_eq!(line.matches(name).count(), 1, "{line}");
        line.split_once(name).unwrap().1.split_once("\",").unwrap().0.to_owned()
    };
    assert_eq!(values(&[]), "1");
    assert_eq!(values(&[("env.OMP_NUM_THREADS", "7")]), "7");
    assert_eq!(values(&[("secret.OMP_NUM_THREADS", "DB")]), "quoted \\\" value");
}

#[test]
fn imports_and_disks_are_read() {
    let read =
        settings(&[("imports", "numpy os.path @scope/name"), ("disk-bytes-per-second", "65536")]).unwrap();
    assert_eq!(read.imports, ["numpy", "os.path", "@scope/name"]);
    assert_eq!(read.disk_bytes_per_s, Some(65536));
    let long = "a".repeat(129);
    let many = vec!["a"; 33].join(" ");
    for wrong in
        ["", " numpy", "a  b", "/etc/passwd", "./own", "../own", "a/../../b", "-c", "a;b", &long, &many]
    {
        assert!(settings(&[("imports", wrong)]).is_err(), "{wrong:?}");
    }
    for wrong in ["", "0", "65535", "-1", "1e9"] {
        assert!(settings(&[("disk-bytes-per-second", wrong)]).is_err(), "{wrong:?}");
    }
    let store = store();
    let empty = tree(&store, &[]);
    let list = tree(&store, &[literal("imports"), literal("numpy")]);
    assert!(read_runtime(&store, "sinew:python", empty, list).is_ok());
    let refused = read_runtime(&store, "sinew:executable", empty, list).unwrap_err();
    assert!(refused.detail.contains("imports nothing"), "{refused}");
}

fn read_runtime(store: &Store, runtime: &str, empty: Handle, list: Handle) -> Result<Image, Fault> {
    self::read(store, &[literal(runtime), empty, empty, list])
}
