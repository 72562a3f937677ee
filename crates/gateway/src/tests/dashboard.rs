// SPDX-License-Identifier: Apache-2.0
//! The pages, as far as one sees without a browser.

use std::collections::BTreeSet;
use std::path::Path;

use super::House;

#[tokio::test]
async fn every_file_of_the_folder_is_served_and_may_load_nothing_foreign() {
    let house = House::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    let names: BTreeSet<String> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.contains("index.html") && names.contains("main.js"), "{names:?}");
    for name in &names {
        let answer = house.get(&format!("/dashboard/{name}")).await;
        assert_eq!(answer.status, 200, "{name}");
        assert_eq!(answer.body, std::fs::read(folder.join(name)).unwrap(), "{name}");
        assert!(answer.header("content-security-policy").starts_with("default-src 'none'"), "{name}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        let text = String::from_utf8(answer.body).unwrap();
        for import in text.lines().filter_map(|line| line.split_once(" from \"./")) {
            let target = import.1.split('"').next().unwrap();
            assert!(names.contains(target), "{name} imports {target}");
        }
        for forbidden in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "style="] {
            assert!(
                !text.contains(forbidden),
                "{name}: {forbidden} could make markup of what a function says"
            );
        }
    }
    assert_eq!(house.get("/dashboard/").await.header("content-type"), "text/html; charset=utf-8");
    for missing in ["/dashboard/none.js", "/dashboard/..%2FCargo.toml", "/dashboard/%2e%2e/style.css"] {
        assert_eq!(house.get(missing).await.problem(404), "no-such-route", "{missing}");
    }
}

#[tokio::test]
async fn a_browser_that_has_a_file_is_told_so() {
    let house = House::new();
    let first = house.get("/dashboard/main.js").await;
    let again = house.get_with("/dashboard/main.js", &[("if-none-match", first.header("etag"))]).await;
    assert_eq!((again.status.as_u16(), again.body.len()), (304, 0));
    let other = house.get_with("/dashboard/main.js", &[("if-none-match", "\"another\"")]).await;
    assert_eq!(other.status, 200);
}

#[tokio::test]
async fn the_address_alone_leads_people_to_the_pages_and_programs_to_a_problem() {
    let house = House::new();
    for (path, accept, status) in [
        ("/", "text/html,*/*;q=0.8", 307),
        ("/dashboard", "text/html", 307),
        ("/", "*/*", 404),
        ("/elsewhere", "text/html", 404),
    ] {
        let answer = house.get_with(path, &[("accept", accept)]).await;
        assert_eq!(answer.status, status, "{path} {accept}");
        if status == 307 {
            assert_eq!(answer.header("location"), "/dashboard/");
        }
    }
}
