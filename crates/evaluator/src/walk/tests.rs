// SPDX-License-Identifier: Apache-2.0
//! Counting, without walks.

use super::*;

#[test]
fn little_is_not_counted_and_more_by_the_chunk() {
    let pool = WalkPool::new(3 * CHUNK_BYTES);
    let mut walk = WalkBytes::default();
    assert!(walk.grow(UNCOUNTED_BYTES, &pool));
    assert_eq!(pool.used_bytes(), 0);
    for _ in 0..CHUNK_BYTES {
        assert!(walk.grow(1, &pool));
        assert_eq!(pool.used_bytes(), CHUNK_BYTES);
    }
    assert!(walk.grow(1, &pool));
    assert_eq!(pool.used_bytes(), 2 * CHUNK_BYTES);
}

#[test]
fn what_exceeds_the_bound_changes_nothing() {
    let pool = WalkPool::new(3 * CHUNK_BYTES);
    let mut walks = [WalkBytes::default(), WalkBytes::default()];
    assert!(walks[0].grow(2 * CHUNK_BYTES, &pool));
    assert!(!walks[1].grow(2 * CHUNK_BYTES, &pool));
    assert!(!walks[1].grow(u64::MAX, &pool));
    assert!(walks[1].grow(CHUNK_BYTES, &pool));
    walks[0].end(0, &pool);
    assert!(walks[1].grow(CHUNK_BYTES, &pool));
    walks[1].end(0, &pool);
    assert_eq!(pool.used_bytes(), 0);
}

#[test]
fn what_is_freed_is_given_back_when_it_is_much() {
    let pool = WalkPool::new(100 * CHUNK_BYTES);
    let mut walk = WalkBytes::default();
    assert!(walk.grow(50 * CHUNK_BYTES, &pool));
    walk.trim(&pool);
    assert_eq!(pool.used_bytes(), 50 * CHUNK_BYTES);
    walk.shrink(49 * CHUNK_BYTES);
    walk.trim(&pool);
    assert!(pool.used_bytes() <= 2 * CHUNK_BYTES);
    assert!(walk.grow(CHUNK_BYTES, &pool));
    // What the next job finds allocated counts for it, once it needs more.
    walk.end(UNCOUNTED_BYTES, &pool);
    assert_eq!(pool.used_bytes(), 0);
    assert!(walk.grow(1, &pool));
    assert_eq!(pool.used_bytes(), CHUNK_BYTES);
}
