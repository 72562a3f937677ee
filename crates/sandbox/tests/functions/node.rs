// SPDX-License-Identifier: Apache-2.0
//! Functions in JavaScript, those that mean harm above all.

use crate::Case;

pub(crate) const CASES: &[Case] = &[];
