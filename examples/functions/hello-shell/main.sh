#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A function: what it prints is the answer to the body that it reads.
name=$(cat)
echo "greeting $name for request $SINEW_REQUEST_ID" >&2
echo "${GREETING:-Hello}, ${name:-world}!"
