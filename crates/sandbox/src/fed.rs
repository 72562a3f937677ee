// SPDX-License-Identifier: Apache-2.0
//! Bodies of requests that come while they are served.
//!
//! A call begins with an empty body, and what comes of it is brought to the
//! instance as it takes it: so the slower sets the pace, as of results
//! (`streamed.rs`), and nobody keeps more than a window of it.

/// The body of one call's request, on its way. Nothing here blocks or uses the
/// intake before it has returned: whoever calls holds the instance.
pub trait Feed: Send + Sync {
    /// The call has begun. So many bytes may be brought to it by this.
    fn begins(&self, intake: Box<dyn Intake>, room: usize);
    /// So many more may be brought.
    fn wants(&self, bytes: u32);
}

/// Where the bytes of one body go, in their order. What comes after the call has
/// ended is dropped.
pub trait Intake: Send + Sync {
    /// The next bytes, for which there is room.
    fn brings(&self, bytes: &[u8]);
    /// That was all.
    fn ends(&self);
    /// No more will come, though that was not all.
    fn breaks(&self);
}
