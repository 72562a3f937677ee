// SPDX-License-Identifier: Apache-2.0
//
// Written by `sinew sdk node`: it is written over by the next one.
//
// What a function may ask of the node that it runs on, where it runs on none: in tests, scripts and editors. On a node `sinew` is
// a global, which this leaves as it is. Elsewhere importing it makes one:
//
// - `sinew.call` calls the functions of the node at `SINEW_NODE` (http://127.0.0.1:8080), with the key in `SINEW_KEY`;
// - `localContext` makes what a handler is given as its context. It is exported here, and is nowhere else.
import { isUtf8 } from "node:buffer";
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";

