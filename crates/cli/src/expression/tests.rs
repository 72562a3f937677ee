// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use objects::{
    Application, BundleReader, BundleRecord, Handle, Limits, Part, Selection, TreeBuilder, TreeView,
};
use proptest::prelude::*;

use super::syntax::{Expression, Form, HEIGHT_MAX, Span, Width};
use super::*;

/// Parses; the error as text, for easy comparison.
fn read(source: &str) -> Result<Expression, String> {
    parse(source).map_err(|error| error.render(source))
}

/// Builds without files or labels; the objects are read back from the bundle.
struct Built {
    handle: Handle,
    bundle: Vec<u8>,
}

fn make(source: &str) -> Result<Built, String> {
    let expression = read(source)?;
    let mut known = Externals::new();
    for external in externals(&expression) {
        known.insert((external.kind, external.name.clone()), Handle::blob(external.name.as_bytes()));
    }
    let mut objects = Objects::default();
    let handle = build(&expression, &known, &mut objects).map_err(|error| error.render(source))?;
    Ok(Built { handle, bundle: objects.with_goal(handle) })
}

impl Built {
    /// The tree behind a handle of any kind.
    fn tree(&self, handle: Handle) -> TreeView<'_> {
        let records = BundleReader::new(&self.bundle).unwrap().map(Result::unwrap);
        let trees = records.filter_map(|record| match record {
            BundleRecord::Tree(tree) => Some(tree),
            _ => None,
        });
        trees.into_iter().find(|tree| tree.handle() == handle.plain_tree()).unwrap()
    }
}

fn blob(source: &str) -> Vec<u8> {
    make(source).unwrap().handle.literal_bytes().unwrap().to_vec()
}

#[test]
fn literals() {
    assert_eq!(blob("\"hello\""), b"hello");
    assert_eq!(blob(r#""a\n\r\t\0\\\"\xff\u{1f980}é""#), b"a\n\r\t\0\\\"\xff\xf0\x9f\xa6\x80\xc3\xa9");
    assert_eq!(blob("\"\""), b"");
    assert_eq!(blob("0x"), b"");
    assert_eq!(blob("0x68656c6C_6f"), b"hello");
    assert_eq!(blob("7u8"), [7]);
    assert_eq!(blob("258u16"), [2, 1]);
    assert_eq!(blob("1_000_000u32"), [0x40, 0x42, 0x0f, 0]);
    assert_eq!(blob("18446744073709551615u64"), [0xff; 8]);
    assert_eq!(blob(" 7u8 // a comment\n"), [7]);
    assert_eq!(blob("@some/file-1.wasm"), b"some/file-1.wasm");
    assert_eq!(blob("@\"with space\""), b"with space");
    assert_eq!(blob("@@dir/."), b"dir/.");
    assert_eq!(blob("#build/latest-1.2_x"), b"build/latest-1.2_x");
    assert_eq!(blob("lit-6869"), b"hi");
    let tree = Handle::tree(&[]).unwrap();
    for text in [tree.to_string(), tree.application().unwrap().strict().unwrap().to_string()] {
        assert_eq!(make(&text).unwrap().handle.to_string(), text);
    }
}

#[test]
fn a_call_is_an_application_with_default_limits() {
    let built = make("@add.wasm(3u8, 4u8,)").unwrap();
    let tree: TreeBuilder =
        [Handle::blob(b""), Handle::blob(b"add.wasm"), Handle::blob(&[3]), Handle::blob(&[4])]
            .into_iter()
            .collect();
    assert_eq!(built.handle, tree.view().handle().application().unwrap());
    // Stating the defaults changes nothing; the raw form is the same thing.
    for same in [
        "{mem: 64MiB} @add.wasm(3u8, 4u8)",
        "{} @add.wasm(3u8, 4u8)",
        "{fuel: 0, out: 0, fan: 0} @add.wasm(3u8, 4u8)",
        "app([limits(), @add.wasm, 3u8, 4u8])",
        "app([\"\", @add.wasm, 3u8, 4u8])",
        "let a = @add.wasm; let b = 3u8; a(b, (4u8))",
    ] {
        assert_eq!(make(same).unwrap().handle, built.handle, "{same}");
    }
    assert_ne!(make("{mem: 65MiB} @add.wasm(3u8, 4u8)").unwrap().handle, built.handle);
}

#[test]
fn limits_are_for_the_first_call_after_them() {
    let source = "{mem: 1GiB, fuel: 1_000, out: 4096, fan: 7} @f(1u8)(2u8)";
    let built = make(source).unwrap();
    let outer = Application::from_tree(built.tree(built.handle));
    // The outer call's procedure is a thunk, so it is no ready application yet.
    assert!(outer.is_err());
    let inner = built.tree(built.handle).get(1).unwrap();
    let inner = Application::from_tree(built.tree(inner)).unwrap();
    let limits = Limits { memory_bytes: 1 << 30, fuel: 1000, output_size_hint: 4096, fan_out_hint: 7 };
    assert_eq!(inner.limits, limits);
    assert_eq!(
        make("limits(mem: 1GiB, fuel: 1000, out: 4KiB, fan: 7)").unwrap().handle,
        limits.handle().unwrap()
    );
}

#[test]
fn curried_procedures_encodes_selections_and_refs() {
    let built = make("[@add.wasm, 3u8](4u8)").unwrap();
    let curried = built.tree(built.handle).get(1).unwrap();
    assert_eq!(curried.kind(), objects::Kind::Tree);

    let strict = make("!@f(1u8)").unwrap().handle;
    assert_eq!(strict, make("strict(@f(1u8))").unwrap().handle);
    assert_eq!(strict.kind(), objects::Kind::Strict);
    assert_eq!(make("?@f(1u8)").unwrap().handle, make("shallow(@f(1u8))").unwrap().handle);
    assert_eq!(make("ident(\"x\")").unwrap().handle, Handle::blob(b"x").identification().unwrap());
    assert_eq!(make("ref([1u8])").unwrap().handle.kind(), objects::Kind::TreeRef);

    // A prefix is for everything that follows: the strict selection of a call.
    let built = make("!@f(1u8)[3][2..5]").unwrap();
    let range = Selection::from_tree(built.tree(built.handle)).unwrap();
    assert_eq!(range.part, Part::Range { begin: 2, end: 5 });
    let element = Selection::from_tree(built.tree(range.target)).unwrap();
    assert_eq!(element.part, Part::Element(3));
    assert_eq!(element.target.kind(), objects::Kind::Application);
    assert_eq!(built.handle.kind(), objects::Kind::Strict);
}

#[test]
fn names_are_scoped_and_may_be_given_again() {
    assert_eq!(blob("let a = 1u8; let a = 2u8; a"), [2]);
    let scoped = make("let a = 1u8; [(let a = 2u8; a), a]").unwrap();
    let entries: Vec<_> = scoped.tree(scoped.handle).iter().collect();
    assert_eq!(entries, [Handle::blob(&[2]), Handle::blob(&[1])]);
}

#[test]
fn an_object_travels_once() {
    let long = format!("\"{}\"", "x".repeat(100));
    let built = make(&format!("[{long}, {long}, [{long}], [{long}]]")).unwrap();
    let records = BundleReader::new(&built.bundle).unwrap().map(Result::unwrap);
    assert_eq!(records.count(), 1 + 2 + 1, "a blob, two trees, the goal");
}

#[test]
fn errors_point_at_the_place_and_say_what_to_write() {
    let cases = [
        (
            "@add.wasm(3u8 4u8)",
            "expected `)` or `,` after an argument, found `4u8` (line 1, column 15)\n  | @add.wasm(3u8 4u8)\n  |               ^^^",
        ),
        ("", "expected an expression, found the end"),
        ("7", "write 7u8, 7u16, 7u32 or 7u64"),
        ("300u8", "300 does not fit: u8 ends at 255"),
        ("99999999999999999999u64", "over 2^64"),
        ("0x123", "two hexadecimal digits each"),
        ("0x12u8", "numbers are decimal"),
        ("\"open", "no closing quote"),
        ("\"\\q\"", "no such escape"),
        ("\"\\u{110000}\"", "no such character"),
        ("\"\\xg0\"", "two hexadecimal digits follow"),
        ("@", "a path follows @"),
        ("@\"\"", "the path is empty"),
        ("#", "a label needs a name"),
        ("let add = @f; adt(1u8)", "did you mean `add`?"),
        ("strct(@f())", "did you mean `strict`?"),
        ("hello", "a text is written \"hello\""),
        ("let let = 1u8; 2u8", "cannot be a name"),
        ("let a-b = 1u8; 2u8", "write a_b"),
        ("let a = 1u8", "expected `;`"),
        ("!let a = 1u8; a", "put it in parentheses"),
        ("{mem: 1MB1} @f()", "is not a size"),
        ("{mem: 300TiB} @f()", "is not a size"),
        ("{memo: 1} @f()", "did you mean `mem`?"),
        ("{fuel: 1, fuel: 2} @f()", "given twice"),
        ("{fan: 4294967296} @f()", "a plain number up to 4294967295"),
        ("{mem: 1MiB} @f", "expected `(` after the procedure"),
        ("\"x\"[1u8]", "indices are plain numbers"),
        ("\"x\"[5..2]", "write [2..5]"),
        ("bolb-00", "did you mean `blob-…`?"),
        ("blob-00-1", "48 digits"),
        ("1u8 2u8", "expected the end, found `2u8`"),
        ("!\"x\"", "ident(x) makes a computation of data"),
        ("!!@f()", "this is a request (an encode)"),
        ("app(\"x\")", "app needs a tree, and this is a blob"),
        ("ident(@f())", "this is a computation"),
        ("ref(@f())", "ref needs data"),
        ("é", "means nothing here"),
        ("[1u8,\n 2u9]", "(line 2, column 2)\n  |  2u9]\n  |  ^^^"),
    ];
    for (source, expected) in cases {
        let error = make(source).map(|built| built.handle).unwrap_err();
        assert!(error.contains(expected), "{source}\n{error}");
    }
}

#[test]
fn hostile_nesting_is_an_error() {
    for unit in ["(", "[", "!", "?", "app(", "{} (", "f(", "ident(", "let a = ", "[1u8, "] {
        let error = read(&unit.repeat(50_000)).unwrap_err();
        assert!(error.contains("levels of nesting"), "{unit}: {error}");
    }
    for unit in ["()", "[0]", "[0..1]", "(1u8)"] {
        let error = read(&format!("f{}", unit.repeat(50_000))).unwrap_err();
        assert!(error.contains("levels of nesting"), "{unit}: {error}");
    }
    // The limit itself is allowed.
    let nested = |levels: usize| format!("{}1u8{}", "[".repeat(levels), "]".repeat(levels));
    let most = usize::from(HEIGHT_MAX) - 1;
    assert!(make(&nested(most)).is_ok());
    assert!(make(&nested(most + 1)).is_err());
    // Many lets one after the other are not nested.
    let many: String = (0..5000).map(|number| format!("let a{number} = 1u8; ")).collect();
    assert!(make(&format!("{many} a4999")).is_ok());
    assert!(read(&" ".repeat((1 << 20) + 1)).unwrap_err().contains("longer than"));
}

#[test]
fn externals_are_listed_once_in_order() {
    let expression = read("@b(@a, #l, [@b, @@a, #l])").unwrap();
    let found: Vec<_> =
        externals(&expression).into_iter().map(|external| (external.kind, external.name)).collect();
    let expected = [
        (ExternalKind::File, "b"),
        (ExternalKind::File, "a"),
        (ExternalKind::Label, "l"),
        (ExternalKind::Directory, "a"),
    ];
    assert_eq!(found, expected.map(|(kind, name)| (kind, name.to_owned())));
}

#[test]
fn near_words() {
    assert_eq!(closest("shalow", ["strict", "shallow"]), Some("shallow"));
    assert_eq!(closest("ab", ["ba", "xyz"]), Some("ba"));
    assert_eq!(closest("corpus", ["corpse", "other"]), Some("corpse"));
    assert_eq!(closest("zzzzzz", ["strict"]), None);
    assert_eq!(closest("same", ["same"]), None);
}

fn expression(form: Form) -> Expression {
    Expression::new(form, Span::default())
}

fn any_limits() -> impl Strategy<Value = Limits> {
    const U48_MAX: u64 = (1 << 48) - 1;
    let size = || prop_oneof![0..=U48_MAX, (0u64..1024, 0u32..38).prop_map(|(value, shift)| value << shift)];
    let fuel = prop_oneof![Just(0), any::<u64>()];
    (size(), fuel, size(), any::<u32>()).prop_map(|(memory_bytes, fuel, output_size_hint, fan_out_hint)| {
        Limits { memory_bytes, fuel, output_size_hint, fan_out_hint }
    })
}

fn any_handle() -> impl Strategy<Value = Handle> {
    let tree = proptest::collection::vec(any::<u64>(), 0..3).prop_map(|numbers| {
        let tree: TreeBuilder = numbers.into_iter().map(Handle::u64).collect();
        tree.view().handle()
    });
    let object = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Handle::blob(&bytes)),
        tree
    ];
    (object, 0..6).prop_map(|(object, kind)| {
        let tagged = match kind {
            1 => object.lowered(),
            2 => object.identification(),
            3 => object.application(),
            4 => object.selection().and_then(Handle::shallow),
            5 => object.identification().and_then(Handle::strict),
            _ => None,
        };
        tagged.unwrap_or(object)
    })
}

fn any_name() -> impl Strategy<Value = String> {
    "[a-z_][a-zA-Z0-9_]{0,8}"
        .prop_filter("keywords are no names", |name| !parser::KEYWORDS.contains(&name.as_str()))
}

fn any_leaf() -> impl Strategy<Value = Expression> {
    let width = prop_oneof![Just(Width::U8), Just(Width::U16), Just(Width::U32), Just(Width::U64)];
    let path = prop_oneof![
        "[a-z./@-]{1,12}",
        "\\PC{1,12}",
        any::<String>().prop_filter("empty", |path| !path.is_empty())
    ];
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(Form::Text),
        any::<String>().prop_map(|text| Form::Text(text.into_bytes())),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(Form::Bytes),
        (any::<u64>(), width).prop_map(|(value, width)| Form::Number(value & width.max(), width)),
        path.clone().prop_map(Form::File),
        path.prop_map(Form::Directory),
        "[A-Za-z0-9._/-]{1,20}".prop_map(Form::Label),
        any_handle().prop_map(Form::Handle),
        any_limits().prop_map(Form::Limits),
        any_name().prop_map(Form::Name),
    ]
    .prop_map(expression)
}

fn any_expression() -> impl Strategy<Value = Expression> {
    any_leaf().prop_recursive(6, 64, 4, |inner| {
        let list = || proptest::collection::vec(inner.clone(), 0..4);
        let boxed = || inner.clone().prop_map(Box::new);
        prop_oneof![
            list().prop_map(Form::Tree),
            (proptest::option::of(any_limits()), boxed(), list())
                .prop_map(|(limits, f, list)| Form::Call(limits, f, list)),
            boxed().prop_map(Form::Application),
            boxed().prop_map(Form::Identification),
            boxed().prop_map(Form::Ref),
            boxed().prop_map(Form::Strict),
            boxed().prop_map(Form::Shallow),
            (boxed(), any::<u64>()).prop_map(|(target, index)| Form::Element(target, index)),
            (boxed(), any::<u64>(), any::<u64>()).prop_map(|(target, a, b)| Form::Range(
                target,
                a.min(b),
                a.max(b)
            )),
            (proptest::collection::vec((any_name(), inner.clone()), 1..3), boxed())
                .prop_map(|(bindings, body)| Form::Let(bindings, body)),
        ]
        .prop_map(expression)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_is_printed_reads_back_as_the_same(expression in any_expression()) {
        let text = expression.to_string();
        let again = read(&text).map_err(|error| TestCaseError::fail(format!("{text}\n{error}")))?;
        prop_assert_eq!(&again, &expression, "{}", text);
        prop_assert_eq!(again.height, expression.height);
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        if let Err(error) = parse(&text) {
            error.render(&text);
        }
    }

    #[test]
    fn no_soup_of_tokens_makes_it_panic(tokens in proptest::collection::vec(
        prop_oneof!["[()\\[\\]{},;:=!?]", Just("..".to_owned()), "[0-9]{1,3}(u8|u64|x|)", Just("let a = ".to_owned()),
            Just("limits(".to_owned()), Just("app(".to_owned()), "\"[a-z\\\\\n]{0,3}\"?", "[@#]{1,2}[a-zé\"]{0,3}", Just("mem".to_owned()), "//|\n"],
        0..40,
    )) {
        let text = tokens.concat();
        if let Err(error) = make(&text) {
            prop_assert!(!error.is_empty());
        }
    }
}
