// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

fn cut(text: &str, size: usize) -> Vec<String> {
    let shards = Shards::new(text.as_bytes(), size).map(|shard| String::from_utf8(shard.unwrap()).unwrap());
    shards.collect()
}

#[test]
fn cuts_are_at_line_ends() {
    assert_eq!(cut("aa\nbb\ncc\n", 6), ["aa\nbb\n", "cc\n"]);
    assert_eq!(cut("aa\nbb\ncc\n", 8), ["aa\nbb\n", "cc\n"]);
    assert_eq!(cut("aa\nbb\ncc", 7), ["aa\nbb\n", "cc"]);
    assert_eq!(cut("aa\nbb\n", 100), ["aa\nbb\n"]);
    assert_eq!(cut("", 10), Vec::<String>::new());
}

#[test]
fn a_line_longer_than_a_shard_is_cut_between_words() {
    assert_eq!(cut("ab cd ef gh\nx\n", 7), ["ab cd ", "ef gh\n", "x\n"]);
    assert_eq!(cut("x\nab cd ef", 4), ["x\n", "ab ", "cd ", "ef"]);
}

#[test]
fn a_word_longer_than_a_shard_is_cut_where_the_shard_is_full() {
    assert_eq!(cut("abcdefgh\nx\n", 3), ["abc", "def", "gh\n", "x\n"]);
    assert_eq!(cut("\n\n\n", 1), ["\n", "\n", "\n"]);
}

#[test]
fn batches_hold_what_the_shards_are() {
    let text = "one two three\n".repeat(200_000);
    for size in [1 << 10, 3 << 20] {
        let (mut one, mut other) = (Shards::new(text.as_bytes(), size), Shards::new(text.as_bytes(), size));
        let mut batches = 0;
        loop {
            let batch = one.batch().unwrap();
            if batch.is_empty() {
                break;
            }
            batches += 1;
            batch.into_iter().for_each(|shard| assert_eq!(shard, other.next().unwrap().unwrap()));
        }
        assert!(other.next().is_none() && (1..=3).contains(&batches), "{batches}");
    }
}

#[test]
fn nothing_is_lost_whatever_the_size() {
    let text: String = (0..500).map(|line| format!("{}\n", "x".repeat(line % 37))).collect();
    for size in [1, 2, 7, 36, 37, 38, 1000, 1 << 20] {
        let shards = cut(&text, size);
        assert_eq!(shards.concat(), text, "{size}");
        assert!(shards.iter().all(|shard| shard.len() <= size && !shard.is_empty()));
    }
}
