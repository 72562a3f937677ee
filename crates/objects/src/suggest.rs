// SPDX-License-Identifier: Apache-2.0
//! "Did you mean …": the known word that is nearest to an unknown one.

/// Words longer than this are not compared; nobody mistypes them.
const LEN_MAX: usize = 64;

/// The candidate with the fewest edits from `word`, if they are few for its length.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(LEN_MAX + 1).collect();
    let most = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .filter(|candidate| candidate.chars().count() <= LEN_MAX && word.len() <= LEN_MAX)
        .map(|candidate| (edits(&word, candidate), candidate))
        .filter(|&(edits, _)| edits > 0 && edits <= most)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, substitutions and swaps of neighbours.
fn edits(left: &[char], right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, &from) in left.iter().enumerate() {
        let mut next = vec![at + 1];
        for (other, &to) in right.iter().enumerate() {
            let mut cost =
                (row[other] + usize::from(from != to)).min(row[other + 1] + 1).min(next[other] + 1);
            let swapped = at > 0 && other > 0 && from == right[other - 1] && to == left[at - 1];
            if swapped {
                cost = cost.min(before[other - 1] + 1);
            }
            next.push(cost);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[right.len()]
}
