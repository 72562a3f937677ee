// SPDX-License-Identifier: Apache-2.0
"use strict";

const CENTS = { milk: 120, tea: 350 };

exports.handler = async ({ item }) => {
  const cents = CENTS[item];
  return cents === undefined ? { statusCode: 404, body: { unknown: item } } : { cents };
};
