// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

fn table(routes: &[(&str, &str)]) -> RouteTable {
    let mut table = RouteTable::default();
    for (function, route) in routes {
        table.add(function, &Route::read(route).unwrap()).unwrap();
    }
    table
}

/// The function, and its parameters as text.
fn found(table: &RouteTable, method: &str, path: &str) -> String {
    match table.find(method, path) {
        Ok(routed) => {
            let params = routed.params.iter().map(|(name, value)| format!(" {name}={value}"));
            routed.function + &params.collect::<String>()
        }
        Err(error) => format!("{error:?}"),
    }
}

#[test]
fn the_most_specific_wins() {
    let table = table(&[
        ("list", "GET /users"),
        ("one", "GET /users/{id}"),
        ("me", "GET /users/me"),
        ("save", "PUT /users/{id}"),
        ("posts", "GET /users/{id}/posts"),
        ("deep", "ANY /users/{id}/*"),
        ("files", "GET /files/{*path}"),
        ("any", "ANY /files/index"),
        ("root", "ANY /"),
    ]);
    for (request, expected) in [
        ("GET /users", "list"),
        ("GET /users/", "None"),
        ("GET /users/7", "one id=7"),
        ("HEAD /users/7", "one id=7"),
        ("GET /users/me", "me"),
        // The text leads to no end for this method, the name does.
        ("PUT /users/me", "save id=me"),
        ("DELETE /users/7", "Method([\"GET\", \"PUT\"])"),
        ("GET /users/7/posts", "posts id=7"),
        ("POST /users/7/posts", "deep id=7 rest=posts"),
        ("GET /users/7/x/y", "deep id=7 rest=x/y"),
        ("GET /users/me/x", "deep id=me rest=x"),
        ("GET /files/a/b.txt", "files path=a/b.txt"),
        ("GET /files/", "files path="),
        ("POST /files/index", "any"),
        ("GET /files/index", "any"),
        ("GET /", "root"),
        ("GET /elsewhere", "None"),
        ("GET /users/a%20b%2Fc", "one id=a b/c"),
        ("GET /users/%ff", "Encoding"),
        ("GET /users/%4", "Encoding"),
        ("GET /users//posts", "None"),
    ] {
        let (method, path) = request.split_once(' ').unwrap();
        assert_eq!(found(&table, method, path), expected, "{request}");
    }
}

#[test]
fn what_is_the_nodes_is_nobodys() {
    let table = table(&[("all", "ANY /{*path}"), ("one", "ANY /{name}")]);
    for path in RESERVED {
        assert_eq!(found(&table, "GET", &format!("/{path}")), "None");
        assert_eq!(found(&table, "GET", &format!("/{path}/x")), "None");
        assert!(
            Route::read(&format!("GET /{path}/x")).unwrap_err().contains("belongs to the node"),
            "{path}"
        );
    }
    assert_eq!(found(&table, "GET", "/x"), "one name=x", "the control");
    assert_eq!(found(&table, "GET", "/v1.5"), "one name=v1.5");
}

#[test]
fn the_same_place_is_given_once() {
    let mut table = table(&[("a", "GET /users/{id}"), ("a", "ANY /users/{id}"), ("a", "GET /x/*")]);
    for taken in ["GET /users/{name}", "ANY /users/{other}", "GET /x/{*all}"] {
        let (function, _) = table.add("b", &Route::read(taken).unwrap()).unwrap_err();
        assert_eq!(function, "a", "{taken}");
    }
    for free in ["POST /users/{id}", "GET /users/{id}/x", "GET /users", "GET /users/*"] {
        table.add("b", &Route::read(free).unwrap()).unwrap();
    }
}

#[test]
fn what_is_no_route_is_refused() {
    for (text, why) in [
        ("/users", "like"),
        ("FETCH /users", "method"),
        ("GET users", "begins"),
        ("GET /a b", "printable"),
        ("GET /a%20", "printable"),
        ("GET /a?x", "printable"),
        ("GET /{a}/{a}", "twice"),
        ("GET /{*a}/b", "last"),
        ("GET /*/b", "last"),
        ("GET /{}", "no name"),
        ("GET /{1}", "no name"),
        ("GET /x{a}", "whole part"),
        ("GET /a/../b", ". or .."),
        (&format!("GET /{}", "a/".repeat(40)), "32 parts"),
    ] {
        assert!(Route::read(text).unwrap_err().contains(why), "{text}: {:?}", Route::read(text));
    }
}

#[test]
fn a_search_has_an_end() {
    // At each part both ways are open, and none leads to the end.
    let mut routes = RouteTable::default();
    for bits in 0..1024_u32 {
        let parts: String = (0..10).map(|at| if bits >> at & 1 == 0 { "/a" } else { "/{x}" }).collect();
        let named: String = parts.replace("{x}", "{X}");
        let mut number = 0;
        let unique: String = named
            .split("{X}")
            .collect::<Vec<_>>()
            .join("\0")
            .chars()
            .map(|character| {
                if character == '\0' {
                    number += 1;
                    format!("{{x{number}}}")
                } else {
                    character.to_string()
                }
            })
            .collect();
        routes.add("f", &Route::read(&format!("GET {unique}/end")).unwrap()).unwrap();
    }
    assert!(routes.find("GET", &"/a".repeat(11)).is_err());
}
