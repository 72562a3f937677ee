// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use axum::body::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::super::given::{Body, arguments, given_with_memory};
use super::*;

fn root(name: &str) -> Result<Root, String> {
    match name {
        "event" => Ok(Root::Event),
        "item" => Ok(Root::Item),
        "index" => Ok(Root::Index),
        "list" => Ok(Root::Step(0)),
        "image" => Ok(Root::Step(1)),
        "all" => Ok(Root::Step(2)),
        "memory" => Ok(Root::Step(3)),
        "memories" => Ok(Root::Step(4)),
        _ => Err(format!("there is no {name}")),
    }
}

fn read(value: &Value) -> Result<Template, String> {
    Template::read(value, &root)
}

/// What a template stands for, with some steps that have answered.
fn given(value: &Value) -> Result<Given, String> {
    let event = Given::json(json!({"title": "Cats", "full name": "A \"B\"", "n": 2, "none": null}));
    let list = br#"{"images": [{"url": "a"}, {"url": "b"}]}"#;
    let answers = [&b"1"[..], b"\"two\""].map(|body| Given::of_body("application/json", Bytes::from(body)));
    let steps = [
        Some(Given::of_body("application/json", Bytes::from_static(list))),
        Some(Given::of_body("image/png", Bytes::from_static(b"\x89PNG"))),
        Some(Given::List(answers.to_vec().into())),
        Some(Given::Memory(40)),
        Some(Given::List([50, 40, 51].map(Given::Memory).to_vec().into())),
    ];
    let item = Given::json(json!({"url": "x"}));
    read(value)?.given(&Scope { event: &event, steps: &steps, item: Some((&item, 7)) })
}

fn value(value: &Value) -> Value {
    given(value).unwrap().value(&mut Making::new()).unwrap().into_owned()
}

fn refused(value: &Value) -> String {
    given(value).unwrap_err()
}

#[test]
fn what_is_one_reference_has_the_types_of_what_it_refers_to() {
    assert_eq!(value(&json!("{{ event.n }}")), json!(2));
    assert_eq!(value(&json!("{{event.none}}")), json!(null));
    assert_eq!(value(&json!("{{ list.images }}")), json!([{"url": "a"}, {"url": "b"}]));
    assert_eq!(value(&json!("{{ list.images[1].url }}")), json!("b"));
    assert_eq!(value(&json!(r#"{{ event["full name"] }}"#)), json!("A \"B\""));
    assert_eq!(value(&json!("{{ all }}")), json!([1, "two"]));
    assert_eq!(value(&json!("{{ all[1] }}")), json!("two"));
    assert_eq!(value(&json!("{{ item.url }}")), json!("x"));
    assert_eq!(value(&json!("{{ index }}")), json!(7));
}

#[test]
fn in_a_text_stands_the_text_of_what_it_refers_to() {
    assert_eq!(
        value(&json!("{{ event.title }}: {{ event.n }} of {{ list.images }}")),
        json!("Cats: 2 of [{\"url\":\"a\"},{\"url\":\"b\"}]")
    );
    assert_eq!(value(&json!("{{ \"{{\" }} event }}")), json!("{{ event }}"));
    assert_eq!(value(&json!("{{ \"{{\" }}")), json!("{{"));
    assert_eq!(value(&json!("no } and no { is one")), json!("no } and no { is one"));
}

#[test]
fn constants_and_what_is_within_others_stay() {
    let told = json!({"a": [1, true, null, 0.5, "x"], "b": {"{{ event.n }}": "{{ event.n }}"}});
    assert_eq!(value(&told), json!({"a": [1, true, null, 0.5, "x"], "b": {"{{ event.n }}": 2}}));
}

#[test]
fn an_answer_that_is_no_json_is_handed_on_as_it_came() {
    let Body { content_type: kind, bytes: body, .. } = given(&json!("{{ image }}")).unwrap().body().unwrap();
    assert_eq!((kind.as_str(), &*body), ("image/png", &b"\x89PNG"[..]));
    assert!(refused(&json!("see {{ image }}")).contains("image/png"));
    assert!(refused(&json!({"image": "{{ image }}"})).contains("as a whole"));
    let text = Given::of_body("text/plain; charset=utf-8", Bytes::from_static(b"hello"));
    assert_eq!(*text.value(&mut Making::within(99)).unwrap(), json!("hello"));
    let form = Given::of_body("application/x-www-form-urlencoded", Bytes::from_static(b"{\"a\": 1}"));
    assert_eq!(*form.value(&mut Making::within(99)).unwrap(), json!({"a": 1}));
    assert_eq!(
        *Given::of_body("image/png", Bytes::new()).value(&mut Making::within(99)).unwrap(),
        Value::Null
    );
    assert!(
        Given::of_body("", Bytes::from_static(b"{"))
            .value(&mut Making::within(99))
            .unwrap_err()
            .contains("no JSON")
    );
}

#[test]
fn a_reference_to_nothing_says_what_there_is() {
    let told = refused(&json!("{{ event.titel }}"));
    assert!(told.contains("`event.titel`") && told.contains("\"titel\"") && told.contains("title"), "{told}");
    assert!(refused(&json!("{{ list.images[2] }}")).contains("there are 2"));
    assert!(refused(&json!("{{ all[2] }}")).contains("there are 2"));
    assert!(refused(&json!("{{ event.n.m }}")).contains("a number"));
    assert!(refused(&json!("{{ event.none.m }}")).contains("left out"));
    assert!(refused(&json!("{{ nothing }}")).contains("there is no nothing"));
    for text in ["{{ event.titel? }}", "{{ event.n.m.o? }}", "{{ list.images[2].url? }}", "{{ all[2].url? }}"]
    {
        assert_eq!(value(&json!(text)), Value::Null, "{text}");
    }
    assert_eq!(value(&json!("{{ event.title? }}")), json!("Cats"));
    let scope = Scope { event: &Given::json(json!(1)), steps: &[None], item: None };
    let outside = |text: &str| read(&json!(text)).unwrap().given(&scope).unwrap_err();
    assert!(outside("{{ item }}").contains("each") && outside("{{ list }}").contains("not ended"));
}

#[test]
fn what_templates_make_has_a_bound() {
    let event = Given::json(json!({"text": "x".repeat(1 << 20)}));
    let scope = Scope { event: &event, steps: &[], item: None };
    let many = |count: usize| read(&json!(vec!["{{ event.text }}"; count])).unwrap().given(&scope);
    assert!(many(63).is_ok());
    assert!(many(64).unwrap_err().contains("takes more than 67108864 bytes"));
    let text = read(&json!("{{ event.text }}".repeat(65))).unwrap();
    assert!(text.given(&scope).unwrap_err().contains("takes more than"));
    // So have lists of answers, and an answer that is looked into.
    let answer = Given::of_body("application/json", Bytes::from(format!("\"{}\"", "x".repeat(1 << 20))));
    let list = Given::List(vec![answer; 65].into());
    assert!(list.body().unwrap_err().contains("takes more than"));
    let long = Given::of_body("application/json", Bytes::from(vec![b' '; (8 << 20) + 1]));
    assert!(long.value(&mut Making::within(99)).unwrap_err().contains("is looked into up to"));
    assert_eq!(long.body().unwrap().bytes.len(), (8 << 20) + 1, "it is handed on");
}

#[test]
fn what_is_no_reference_is_refused() {
    for text in [
        "{{ }}",
        "{{ event. }}",
        "{{ event..a }}",
        "{{ event[x] }}",
        "{{ event[1 }}",
        "{{ event[-1] }}",
        "{{ event[\"a] }}",
        "{{ 1 }}",
        "{{ event a }}",
        "{{ event[18446744073709551616] }}",
    ] {
        assert!(read(&json!(text)).unwrap_err().contains("no reference"), "{text}");
    }
    assert!(read(&json!("{{ event")).unwrap_err().contains("}}"));
    let deep = (0..40).fold(json!("x"), |inner, _| json!([inner]));
    assert!(read(&deep).unwrap_err().contains("levels"));
    let long = format!("{{{{ event{} }}}}", ".a".repeat(33));
    assert!(read(&json!(long)).unwrap_err().contains("parts"));
}

#[test]
fn answers_are_framed_and_read() {
    let frame = super::super::given::framed("image/png", b"body");
    let Body { content_type: kind, bytes: body, .. } =
        Given::read(frame.clone().into()).unwrap().body().unwrap();
    assert_eq!((kind.as_str(), &*body), ("image/png", &b"body"[..]));
    for end in 0..3 {
        assert!(Given::read(Bytes::copy_from_slice(&frame[..end])).is_none());
    }
    assert!(Given::read(Bytes::copy_from_slice(&frame[..8])).is_none(), "the content type ends early");
    assert!(Given::read(Bytes::from_static(b"\x02\0\0")).is_none(), "another kind");
}

#[test]
fn places_stand_for_memory_and_each_step_has_one() {
    let body = |template: Value| given(&template).unwrap().body().unwrap();
    let told = |template: Value| {
        let Body { bytes, memory, .. } = body(template);
        (serde_json::from_slice::<Value>(&bytes).unwrap(), memory)
    };
    let place = |at: usize| json!({ "$value": at });
    assert_eq!(told(json!("{{ memory }}")), (place(0), vec![40]));
    assert_eq!(told(json!("{{ memories }}")), (json!([place(0), place(1), place(2)]), vec![50, 40, 51]));
    assert_eq!(told(json!("{{ memories[2] }}")), (place(0), vec![51]));
    let mixed = json!({"a": "{{ memory }}", "b": ["{{ memories }}", 1], "c": "{{ event.title }}"});
    let (_, memory) = told(mixed.clone());
    assert_eq!(memory, [40, 50, 51]);
    assert_eq!(told(mixed).0, json!({"a": place(0), "b": [[place(1), place(0), place(2)], 1], "c": "Cats"}));
    assert!(refused(&json!("of {{ memory }}")).contains("cannot be a part of a text"));
    assert!(refused(&json!(["{{ memory }}", "of {{ memory }}"])).contains("cannot be a part of a text"));
    assert_eq!(told(json!(["a {{ event.n }}", "{{ memory }}"])).0, json!(["a 2", place(0)]));
    // What was made of it has places of its own.
    let made = given(&json!(["{{ memory }}"])).unwrap();
    assert!(made.value(&mut Making::new()).unwrap_err().contains("as a whole"));
    // It goes with the arguments, and is read as it was written.
    let body = body(json!("{{ memories }}"));
    let written = arguments(&body);
    let (read, memory) = given_with_memory(written.clone().into()).unwrap();
    assert_eq!((read.body().unwrap().bytes, memory), (body.bytes, vec![50, 40, 51]));
    for end in 0..5 + 3 * 4 + 3 {
        assert!(given_with_memory(Bytes::copy_from_slice(&written[..end])).is_none(), "{end}");
    }
    let plain = arguments(&given(&json!("{{ list }}")).unwrap().body().unwrap());
    assert!(given_with_memory(plain.into()).unwrap().1.is_empty());
}

proptest! {
    #[test]
    fn arguments_that_are_none_are_refused_and_nothing_more(
        bytes in proptest::collection::vec(prop_oneof![Just(3_u8), Just(4), Just(0), any::<u8>()], 0..40),
    ) {
        let _ = given_with_memory(bytes.into());
    }

    #[test]
    fn rubbish_is_refused_and_nothing_more(text in "[{}\\[\\].a-z\" 0-9]{0,40}") {
        let told = read(&json!(text));
        if let Ok(told) = told {
            let scope = Scope { event: &Given::json(json!({"a": [1]})), steps: &[], item: None };
            let _ = told.given(&scope);
        }
    }

    #[test]
    fn what_has_no_braces_stands_for_itself(text in "[^{]{0,40}") {
        prop_assert_eq!(value(&json!(text)), json!(text));
    }
}
