// SPDX-License-Identifier: Apache-2.0
//! Finding a key among sorted ones that are looked at one by one.

use core::cmp::Ordering;

/// Where the search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The last key that is not greater, from 0.
    pub(crate) index: u32,
    /// It is the one that was wanted.
    pub(crate) is_equal: bool,
}

/// The last of `count` keys that is not greater than the one that is wanted; `None` if
/// all are. `compare` says how a key compares with it.
pub(crate) fn last_up_to(count: u32, mut compare: impl FnMut(u32) -> Ordering) -> Option<Place> {
    let (mut begin, mut end) = (0, count);
    while begin < end {
        let index = begin + (end - begin) / 2;
        match compare(index) {
            Ordering::Less => begin = index + 1,
            Ordering::Equal => return Some(Place { index, is_equal: true }),
            Ordering::Greater => end = index,
        }
    }
    let index = begin.checked_sub(1)?;
    Some(Place { index, is_equal: false })
}

#[cfg(test)]
mod tests;
