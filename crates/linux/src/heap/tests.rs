// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;

use super::{HUGE, with_huge_pages};

#[test]
fn settings_of_the_user_stay() {
    assert_eq!(with_huge_pages(None).unwrap(), HUGE);
    assert_eq!(with_huge_pages(Some(OsStr::new(""))).unwrap(), HUGE);
    let both = with_huge_pages(Some(OsStr::new("glibc.malloc.check=3"))).unwrap();
    assert_eq!(both.to_str().unwrap(), format!("glibc.malloc.check=3:{HUGE}"));
}

#[test]
fn a_second_start_is_the_last() {
    assert_eq!(with_huge_pages(Some(OsStr::new(HUGE))), None);
    assert_eq!(with_huge_pages(Some(OsStr::new("glibc.malloc.hugetlb=0"))), None);
}
