#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A program calls functions at an address of its own.
echo "# Your order"
curl --silent --fail-with-body --json @- "$SINEW_URL/function/order"
