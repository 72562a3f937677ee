// SPDX-License-Identifier: Apache-2.0
//! Which versions an alias stands for, and which of them a request gets
//! (`docs/spec/functions.md`, section 4).

/// Versions that one alias shares requests among, at most.
const VERSIONS_MAX: usize = 8;
/// An alias's shares are percent, and lots a hundredth of that.
const PERCENT: u32 = 100;
const ALIAS_LEN_MAX: usize = 32;

/// The alias that serves under the function's own name.
pub(super) const LIVE: &str = "live";

/// Whether something can be the name of an alias: no number, for a number is a
/// version.
pub(super) fn is_alias(name: &str) -> bool {
    (1..=ALIAS_LEN_MAX).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Versions and the percent of requests that each gets, the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Traffic(Vec<(u64, u32)>);

impl Traffic {
    /// All for one version.
    pub(super) fn whole(version: u64) -> Self {
        Self(vec![(version, PERCENT)])
    }

    /// Shares in any order.
    ///
    /// # Errors
    /// What is wrong with them, for people.
    pub(super) fn new(shares: &[(u64, u32)]) -> Result<Self, String> {
        let mut shares = shares.to_vec();
        shares.sort_unstable_by_key(|(version, _)| std::cmp::Reverse(*version));
        let sum: u64 = shares.iter().map(|(_, percent)| u64::from(*percent)).sum();
        if shares.is_empty() || shares.len() > VERSIONS_MAX {
            return Err(format!("an alias has 1 to {VERSIONS_MAX} versions, not {}", shares.len()));
        }
        if let Some(twice) = shares.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("version {} occurs twice", twice[0].0));
        }
        if sum != u64::from(PERCENT) || shares.iter().any(|(_, percent)| *percent == 0) {
            return Err(format!(
                "the shares are each 1 to {PERCENT} percent and together {PERCENT}, not {sum}"
            ));
        }
        Ok(Self(shares))
    }

    /// What [`Self::text`] wrote.
    pub(super) fn read(text: &str) -> Option<Self> {
        let share = |line: &str| {
            let (version, percent) = line.split_once(' ')?;
            Some((version.parse().ok()?, percent.parse().ok()?))
        };
        let shares: Vec<(u64, u32)> = text.lines().map(share).collect::<Option<_>>()?;
        Self::new(&shares).ok()
    }

    /// One line for each version.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(version, percent)| format!("{version} {percent}\n")).collect()
    }

    /// The version of a request that drew this lot, 0 to 9999. A version whose
    /// share grows keeps the lots that it had, so that who is new stays new.
    pub(super) fn version(&self, lot: u32) -> u64 {
        let mut end = 0;
        let found = self.0.iter().find(|(_, percent)| {
            end += percent * 100;
            lot < end
        });
        found.or(self.0.last()).map_or(0, |(version, _)| *version)
    }

    /// The version with the largest share, the newest of several.
    pub(super) fn main(&self) -> u64 {
        let most = self.0.iter().map(|(_, percent)| *percent).max();
        self.0.iter().find(|(_, percent)| Some(*percent) == most).map_or(0, |(version, _)| *version)
    }

    /// The newest version that gets any.
    pub(super) fn newest(&self) -> u64 {
        self.0.first().map_or(0, |(version, _)| *version)
    }

    pub(super) fn has(&self, version: u64) -> bool {
        self.0.iter().any(|(other, _)| *other == version)
    }

    /// Versions and percent, the newest first.
    pub(super) fn shares(&self) -> &[(u64, u32)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn lots_are_shared_as_said_and_stay_with_a_growing_version() {
        let small = Traffic::new(&[(7, 90), (8, 10)]).unwrap();
        let grown = Traffic::new(&[(8, 60), (7, 40)]).unwrap();
        let of =
            |traffic: &Traffic| (0..10_000).filter(|lot| traffic.version(*lot) == 8).collect::<Vec<u32>>();
        assert_eq!((of(&small).len(), of(&grown).len()), (1000, 6000));
        assert!(of(&small).iter().all(|lot| grown.version(*lot) == 8));
        assert_eq!((small.main(), small.newest(), grown.main()), (7, 8, 8));
        assert_eq!(Traffic::new(&[(1, 50), (2, 50)]).unwrap().main(), 2, "the newest of several");
        assert_eq!(Traffic::read(&small.text()), Some(small));
        assert_eq!(Traffic::whole(3).version(9999), 3);
    }

    #[test]
    fn shares_that_are_none_are_refused() {
        for (shares, why) in [
            (&[][..], "1 to 8"),
            (&[(1, 50)][..], "together"),
            (&[(1, 100), (2, 0)][..], "each"),
            (&[(1, 50), (1, 50)][..], "twice"),
            (&[(1, u32::MAX), (2, 101)][..], "together"),
        ] {
            assert!(Traffic::new(shares).unwrap_err().contains(why), "{shares:?}");
        }
        assert_eq!(Traffic::read("7\n"), None);
        for name in ["", "7", "Live", "a_b", "-a", &"a".repeat(33)] {
            assert!(!is_alias(name), "{name}");
        }
        assert!(is_alias("stable-2") && is_alias(LIVE));
    }
}
