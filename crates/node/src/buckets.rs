// SPDX-License-Identifier: Apache-2.0
//! Buckets of S3 that the node may ask: named by its file, with keys that are secrets
//! of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use io::{BucketOptions, Buckets};
use serde::Deserialize;

use crate::secrets::Secrets;

/// What secrets with keys for buckets begin with; and the usual one. No function gets
/// them.
pub(crate) const SECRET: &str = "SINEW_S3";
/// Buckets of one node.
const BUCKETS_MAX: usize = 1000;

/// One bucket. `None` and empty: as usual.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bucket {
    /// The URL of its server; that of AWS.
    pub endpoint: Option<String>,
    /// The region that requests are signed for; us-east-1.
    pub region: Option<String>,
    /// The secret with its keys; `SINEW_S3`.
    pub secret: Option<String>,
    /// Objects may be written to it: whoever may ask the node for that writes what its
    /// keys write.
    pub write: bool,
}

/// Those of a node.
///
/// # Errors
/// What is wrong with one.
pub(crate) fn open(settings: &BTreeMap<String, Bucket>, secrets: &Arc<Secrets>) -> Result<Buckets, String> {
    if settings.len() > BUCKETS_MAX {
        return Err(format!("there are {} buckets, and at most {BUCKETS_MAX} can be named", settings.len()));
    }
    let options = |(name, bucket): (&String, &Bucket)| {
        let secret = bucket.secret.clone().unwrap_or_else(|| SECRET.to_owned());
        if !secret.starts_with(SECRET) {
            return Err(format!("{name}: its secret is {secret:?}, and has to begin with {SECRET}"));
        }
        let (endpoint, region) = (bucket.endpoint.clone(), bucket.region.clone());
        Ok((name.clone(), BucketOptions { endpoint, region, secret, is_writable: bucket.write }))
    };
    let options = settings.iter().map(options).collect::<Result<BTreeMap<_, _>, _>>()?;
    let secrets = Arc::clone(secrets);
    let keys: io::Keys = Arc::new(move |name: &str| secrets.for_buckets(name));
    Buckets::new(&options, &keys)
}
