/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library that sinew.h describes, as one file for the compiler: its parts are
 * static, and `sinew sdk c` writes them out in the place of these lines.
 */
#define _GNU_SOURCE
#define LINE_API static __attribute__((unused))
#include "sinew.h"
#include "../template/line.h"
#include "../template/line.c"
#include "../heap/huge.h"
#include "text.c"
#include "channel.c"
#include "calls.c"
#include "answer.c"
#include "memory.c"
#include "serve.c"
