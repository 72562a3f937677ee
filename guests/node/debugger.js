// SPDX-License-Identifier: Apache-2.0
// Lets debuggers in (`sinew dev --debug`): they find this instance at a port of
// its own loopback, which the node leads to. It runs before the function is
// looked for, between its settings and what calls `adapt` with them.
require("node:inspector").open(Number(SETTINGS.debugger), "127.0.0.1");
