// SPDX-License-Identifier: Apache-2.0
//! What the platform does with the outside world in the name of functions,
//! which cannot do it themselves.
//!
//! [`Egress`] carries connections of functions to the hosts that they may
//! reach; [`Post`] sends results to where callers want them,
//! which [`Signer`] signs; [`Downloads`] brings what computations name by URLs;
//! [`Uploads`] writes to buckets what people want to have there;
//! [`Identity`] is who the node itself is. Nothing a function says is believed; every size, number and wait has
//! a limit. [`tls`] is here too, for all who speak it: the node's listeners,
//! the command line, and what the node sends.

mod address;
mod allow;
mod dial;
mod download;
mod egress;
mod head;
mod identity;
mod link;
mod net;
mod post;
mod relay;
mod s3;
mod signing;
pub mod tls;
mod turns;
mod upload;

pub use address::is_public;
pub use allow::{AllowList, Unreadable};
pub use download::{Download, DownloadError, DownloadOptions, Downloaded, Downloads, Sink, Taking};
pub use egress::{Egress, EgressOptions, Outlet, Traffic};
pub use identity::{Identity, SEED_LEN, is_signed_by};
pub use net::{Answer, Internet, Net};
pub use post::{Post, PostError};
pub use s3::{BucketOptions, Buckets, Keys};
pub use signing::Signer;
pub use upload::{BucketFolder, Upload, UploadError, UploadOptions, Uploaded, Uploads};
