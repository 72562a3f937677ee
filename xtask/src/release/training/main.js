// SPDX-License-Identifier: Apache-2.0
exports.hello = async (event) => ({ message: `Hello, ${event.name}` });

exports.fetch = async (request) => new Response(`Hello, ${(await request.json()).name}`);

exports.calls = async (event) => {
  const messages = [];
  for (let calls = 0; calls < 10; calls++) messages.push((await sinew.call('hello-py', event)).message);
  return messages;
};
