// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

/// A state as `docs/spec/programs.md`, section 7, has it.
fn state(globals: usize, opened: &[Opened]) -> Vec<u8> {
    let mut state = [65_536, 7, 9, globals as u64].map(u64::to_le_bytes).concat();
    state.extend(vec![0; globals * 17]);
    for one in opened {
        state.push(u8::from(one.is_read_only));
        state.extend((one.path.len() as u32).to_le_bytes());
        state.extend(&one.path);
    }
    state
}

#[test]
fn directories_come_as_the_snapshot_has_them() {
    let (files, out) = (Opened::new("/", true), Opened::new("/out", false));
    let shared = [Opened::new("/lib", true), Opened::new("/work", false)];
    let order = |snapshot: Option<&[Opened]>| order(snapshot, &files, &out, &shared);
    let new = order(None).unwrap();
    assert_eq!(new, [Place::Files, Place::Shared(0), Place::Shared(1), Place::Out]);
    assert_eq!(place_of_out(&new, &shared), Some(1));
    let [lib, work] = &shared;
    let given = order(Some(&[out.clone(), lib.clone(), work.clone(), files.clone()])).unwrap();
    assert_eq!(given, [Place::Out, Place::Shared(0), Place::Shared(1), Place::Files]);
    assert_eq!(place_of_out(&given, &shared), Some(0));
    let without = order(Some(&[work.clone(), lib.clone()])).unwrap();
    assert_eq!(place_of_out(&without, &shared), None);
    for (wrong, what) in [
        (vec![lib.clone(), work.clone(), Opened::new("/usr", true)], "/usr:ro"),
        (vec![lib.clone(), Opened::new("/work", true)], "/work:ro"),
        (vec![lib.clone(), files.clone()], "without a directory at /work"),
    ] {
        let stop = order(Some(&wrong)).unwrap_err();
        assert!(stop.code == Code::Usage && stop.message.contains(what), "{}", stop.message);
    }
}

proptest! {
    #[test]
    fn what_is_open_is_read_from_a_state(
        globals in 0_usize..20,
        paths in prop::collection::vec(("/[a-z/]{0,9}", any::<bool>()), 0..6),
    ) {
        let opened: Vec<Opened> = paths.iter().map(|(path, is)| Opened::new(path, *is)).collect();
        let state = state(globals, &opened);
        prop_assert_eq!(decode(&state), Some(opened));
        for len in 0..state.len() {
            let cut = decode(&state[..len]);
            prop_assert!(cut.is_none_or(|cut| cut.len() < paths.len()));
        }
    }

    /// A snapshot may be made up.
    #[test]
    fn any_state_is_read_or_refused(state in prop::collection::vec(any::<u8>(), 0..200)) {
        _ = decode(&state);
    }
}
