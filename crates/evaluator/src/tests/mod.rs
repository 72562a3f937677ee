// SPDX-License-Identifier: Apache-2.0
//! The rules and the scheduler under a fake host.
