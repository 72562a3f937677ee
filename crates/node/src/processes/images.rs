// SPDX-License-Identifier: Apache-2.0
//! Names of functions' images, as those who hand applications over find them.

use objects::{Handle, TreeView};

use super::IMAGE_ENTRIES;

/// Images that are remembered.
const KNOWN_MAX: usize = 8;

/// The images of the functions that were applied last, the latest first, and how they are named: to find a
/// name by hashing takes longer than to see that it is that of the application before.
#[derive(Debug, Default)]
pub(crate) struct Images(Vec<([u8; IMAGE_ENTRIES * Handle::LEN], Handle)>);

impl Images {
    /// The handle of an image.
    pub(super) fn name(&mut self, image: TreeView<'_>) -> Handle {
        let Ok(entries) = image.as_bytes().try_into() else { return image.handle() };
        let Self(known) = self;
        match known.iter().position(|(its, _)| *its == entries) {
            Some(0) => {}
            Some(place) => known[..=place].rotate_right(1),
            None => {
                known.truncate(KNOWN_MAX - 1);
                known.insert(0, (entries, image.handle()));
            }
        }
        known[0].1
    }
}

#[cfg(test)]
mod tests {
    use objects::TreeBuilder;

    use super::*;

    #[test]
    fn a_name_is_that_of_the_image_however_many_came_before() {
        let image = |number: u64| -> TreeBuilder { [number, 2, 3, 4].into_iter().map(Handle::u64).collect() };
        let mut images = Images::default();
        for number in (0..20).chain([19, 18, 0, 13, 18, 18, 5]) {
            let image = image(number);
            assert_eq!(images.name(image.view()), image.view().handle(), "{number}");
            assert!(images.0.len() <= KNOWN_MAX);
        }
        let short: TreeBuilder = [1].into_iter().map(Handle::u64).collect();
        assert_eq!(images.name(short.view()), short.view().handle());
    }
}
