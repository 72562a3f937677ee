# SPDX-License-Identifier: Apache-2.0
# Written by `sinew sdk python`: it is written over by the next one.
"""What a function may ask of the node that it runs on, where it runs on none: in tests, scripts, notebooks and editors.

On a node `import sinew` gives the node's own module, whatever lies beside the function. Here

- `call` and `call_async` call the functions of the node at `SINEW_NODE` (http://127.0.0.1:8080), with the key in `SINEW_KEY`;
- a workflow runs in this process, its steps in threads; each gets its arguments and gives its result through pickle, as from
  one process to the next. What takes a node is left out: limits of memory and time, delays of retries, what is remembered;
- `local_context` makes what a handler is given as its context. It is here alone.
"""

# What tests show of an exception leaves this file's frames out.
__tracebackhide__ = True

