/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of one's own before they are needed. Where reading a value writes to it, as
 * where references are counted, each page of it would be copied when it is first
 * touched; many at a time take half as long, and a thread of its own does that while
 * its taker begins.
 */
#ifndef SINEW_PREFETCH_H
#define SINEW_PREFETCH_H

#include "segment.h"

/* Bytes of one value: the rest is copied as it is touched, if it is at all. */
#define PREFETCH_MAX (32ul << 20)

/* Bytes that this process may have so from now on; none if nothing is said. */
EXPORTED void prefetch_allow(size_t bytes);
/* So many parts at most of what is prefetched at once. */
#define PREFETCH_PARTS_MAX 512
/* Parts of memory that stays mapped; what cannot be done is not missed. Not where calls have touched little of what
 * they were given before. */
void prefetch(const struct area *parts, size_t count);
/* Who was given them is done: what is not prefetched yet is not any more, and how much of them was touched says
 * whether the next ones are. Whether there was a thread that did it. */
int prefetch_end(void);
/* So much of it was given back. */
void prefetch_returned(size_t bytes);

#endif
