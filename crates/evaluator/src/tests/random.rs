// SPDX-License-Identifier: Apache-2.0
//! Random graphs, on one worker and on several that share everything.

use proptest::prelude::*;

use super::oracle;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Threads do not do the same thing twice, and shrinking would wait for them.
fn unshrunk(cases: u32) -> ProptestConfig {
    ProptestConfig { max_shrink_iters: 0, ..config(cases) }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..240)
}

proptest! {
    #![proptest_config(config(4_000))]

    #[test]
    fn random_graphs_evaluate_as_the_rules_say(bytes in bytes()) {
        oracle::check_alone(&bytes);
    }
}

proptest! {
    #![proptest_config(unshrunk(200))]

    #[test]
    fn one_worker_thread_evaluates_the_same(bytes in bytes()) {
        oracle::check_together(&bytes, 1);
    }

    #[test]
    fn two_worker_threads_evaluate_the_same(bytes in bytes()) {
        oracle::check_together(&bytes, 2);
    }

    #[test]
    fn four_worker_threads_evaluate_the_same(bytes in bytes()) {
        oracle::check_together(&bytes, 4);
    }
}
