/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the C library has free at the end of its heap, where large blocks come from: arrays of numbers, and what libraries make.
 * By itself it gives that back to the kernel when a call has ended, and the next one needs it again: each page is a fault, is made
 * zeros, and on a virtual machine may have to be had from the host. So more is kept, and the kernel is told that it may have it
 * (MADV_FREE), as with arenas. Who has nothing to do for a while gives all of it back.
 */
#define _GNU_SOURCE
#include "heap.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Larger ones are mappings of their own: it is the most that the C library takes. */
#define BLOCK_MAX (32 << 20)
/* Of a heap that has grown by less nothing is offered; and as much stays what cannot be offered (HEAP in language.rs). */
#define GROWN_MIN (16ul << 20)
#define PAGE 4096ul
/* To find out what is free may take long, where much is in pieces: at most one part of so many of the time is for that. */
#define LOOKING_SHARE 100

/* Not in C libraries before 2.33. */
extern struct mallinfo2 mallinfo2(void) __attribute__((weak));

static uintptr_t first_end;
static size_t kept;
static int64_t next_look_ns;

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Offers what is free at the end; how much that is. */
static size_t offered_before(uintptr_t end)
{
    /* Its first page says how much it is. */
    size_t all = mallinfo2().keepcost;
    uintptr_t from = (end - all + 2 * PAGE - 1) & ~(PAGE - 1), to = end & ~(PAGE - 1);
    return all < end && from < to && madvise((void *)from, to - from, MADV_FREE) == 0 ? to - from : 0;
}

int blocks_keep(size_t bytes)
{
    struct rlimit addresses;
    /* Where addresses are counted, and not pages, the kernel cannot have any back. */
    if (getrlimit(RLIMIT_DATA, &addresses) < 0 || addresses.rlim_cur != RLIM_INFINITY)
        return -EPERM;
    if (!mallinfo2)
        return -ENOSYS;
    if (!mallopt(M_MMAP_THRESHOLD, BLOCK_MAX) || !mallopt(M_TRIM_THRESHOLD, bytes < INT32_MAX ? (int)bytes : INT32_MAX))
        return -EINVAL;
    first_end = (uintptr_t)sbrk(0);
    return 0;
}

size_t blocks_offer(void)
{
    uintptr_t end = (uintptr_t)sbrk(0);
    kept = 0;
    if (!first_end || end < first_end + GROWN_MIN)
        return arenas_kept() < GROWN_MIN ? 0 : arenas_kept();
    int64_t begun = clock_ns();
    if (begun < next_look_ns)
        return end - first_end;
    /* What another thread has just taken and written to must not be the kernel's. */
    if (is_alone())
        kept = offered_before(end);
    else
        malloc_trim(GROWN_MIN);
    next_look_ns = clock_ns() + (clock_ns() - begun) * LOOKING_SHARE;
    return end - first_end;
}

size_t blocks_kept(void)
{
    return kept;
}

int blocks_rest(int channel, int within_ms)
{
    struct pollfd waiting = {.fd = channel, .events = POLLIN};
    if (poll(&waiting, 1, within_ms) != 0)
        return 0;
    malloc_trim(0);
    arenas_give_back();
    kept = 0;
    return 1;
}
