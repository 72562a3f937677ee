// SPDX-License-Identifier: Apache-2.0
// Five functions of a voice skill, each of which asks the next one. The first
// one measures: what a round takes, less the time that the functions spend on
// their own, is what it costs them to reach each other.
"use strict";

const NEXT = { frontend: "interact", interact: "smarthome", smarthome: "door", door: "light" };

exports.handler = async (event, { functionName }) => {
  if (functionName !== "frontend") return answered(event, functionName);
  const spent = [];
  for (let round = 0; round < event.rounds; round++) {
    const begun = now();
    const told = await sinew.call("interact", { session: `s-${round}`, words: event.words, slots: {} });
    spent.push(now() - begun - told.own_ns);
  }
  return spent;
};

async function answered(event, name) {
  const begun = now();
  const words = event.words.toLowerCase().split(" ");
  const slots = { ...event.slots, [name]: words.filter((word) => word.length > name.length % 5).length };
  const next = NEXT[name];
  const asked = now();
  if (!next) return { says: `done with ${JSON.stringify(slots)}`, own_ns: asked - begun };
  const told = await sinew.call(next, { session: event.session, words: event.words, slots });
  const heard = now();
  const says = `${told.says}; ${name} for ${event.session}`;
  return { says, own_ns: told.own_ns + (asked - begun) + (now() - heard) };
}

function now() {
  return Number(process.hrtime.bigint());
}
