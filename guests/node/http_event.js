// SPDX-License-Identifier: Apache-2.0
//
// The event of a request by HTTP as Amazon's gateways and function URLs describe
// one to a function (payload format 2.0), for handlers and for adapters of frameworks
// that were written for those. It is the twin of `http_event.py`, in one scope with
// `function.js`.
"use strict";

// What is text besides `text/…` and what ends in +json or +xml, if it is in UTF-8; without a type it is taken for JSON.
const HTTP_TEXT_TYPES = new Set([
  "", "application/json", "application/xml", "application/javascript", "application/graphql",
]);
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** The request as an object that can be written as JSON. */
function httpEvent(head, body) {
  const { method = "POST", path: place = "/", query = "", headers: given = [], route, params = [], client = "", scheme = "http" } = head.http;
  const cookies = [];
  for (const [name, value] of given) {
    if (name === "cookie") cookies.push(...value.split(";").map((part) => part.replace(/^[ \t]+|[ \t]+$/g, "")).filter((part) => part !== ""));
  }
  const headers = joinedByCommas(given.filter(([name]) => name !== "cookie"));
  const [domainName, port] = hostOf(headers.host ?? "");
  // What a gateway says of who asks; a proxy that is believed has said so already.
  headers["x-forwarded-for"] ??= client;
  headers["x-forwarded-port"] ??= port || (scheme === "https" ? "443" : "80");
  headers["x-forwarded-proto"] ??= scheme;
  const now = new Date();
  const routeKey = route === undefined ? "$default" : `${method} ${route}`;
  const event = {
    version: "2.0",
    routeKey,
    rawPath: place,
    rawQueryString: query,
    headers,
    requestContext: {
      accountId: "anonymous",
      apiId: head.call.function ?? "",
      domainName,
      domainPrefix: domainName.split(".", 1)[0],
      http: {
        method,
        path: place,
        protocol: "HTTP/1.1",
        sourceIp: client,
        userAgent: headers["user-agent"] ?? "",
      },
      requestId: head.call.request_id ?? "",
      routeKey,
      stage: "$default",
      time: logTime(now),
      timeEpoch: now.getTime(),
    },
    isBase64Encoded: false,
  };
  if (cookies.length > 0) event.cookies = cookies;
  // A first question mark is a part of the query, and not where that begins.
  if (query !== "") event.queryStringParameters = joinedByCommas(new URLSearchParams(`?${query}`));
  if (params.length > 0) event.pathParameters = Object.fromEntries(params);
  if (body.length > 0) {
    const text = httpText(body, head.contentType);
    event.isBase64Encoded = text === null;
    event.body = text ?? body.toString("base64");
  }
  return event;
}

/** As in the logs of servers: 29/Nov/2026:23:05:07 +0000. */
function logTime(now) {
  const two = (number) => String(number).padStart(2, "0");
  const day = `${two(now.getUTCDate())}/${MONTHS[now.getUTCMonth()]}/${now.getUTCFullYear()}`;
  return `${day}:${two(now.getUTCHours())}:${two(now.getUTCMinutes())}:${two(now.getUTCSeconds())} +0000`;
}

/** Names and values; those of one name are joined by commas. Whatever a name is, it is one of the object's own. */
function joinedByCommas(pairs) {
  const texts = new Map();
  for (const [name, value] of pairs) texts.set(name, texts.has(name) ? `${texts.get(name)},${value}` : value);
  return Object.fromEntries(texts);
}

/** A host's name and its port; an address of version 6 has colons of its own. */
function hostOf(host) {
  const [, name, port] = /^(.*[^:]):(\d+)$/s.exec(host) ?? [null, host, ""];
  return [name, port];
}

/** A body as a text; null if it is none, by its type or by its bytes. */
function httpText(body, declared) {
  const kind = declared.split(";", 1)[0].trim().toLowerCase();
  const isText = kind.startsWith("text/") || HTTP_TEXT_TYPES.has(kind) || kind.endsWith("+json") || kind.endsWith("+xml");
  return isText && isUtf8(body) ? body.toString("utf8") : null;
}
