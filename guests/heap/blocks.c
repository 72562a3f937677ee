/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the C library has free at the end of its heap, where large blocks come from: arrays of numbers, and what libraries make.
 * By itself it gives that back to the kernel when a call has ended, and the next one needs it again: each page is a fault, is made
 * zeros, and on a virtual machine may have to be had from the host. So more is kept, and the kernel is told that it may have it
 * (MADV_FREE), as with arenas. Who has nothing to do for a while gives it back.
 */
#define _GNU_SOURCE
#include "heap.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Larger ones are mappings of their own: it is the most that the C library takes. */
#define BLOCK_MAX (32 << 20)
/* As much stays where the kernel cannot be told (HEAP in language.rs). */
#define USUAL_BYTES (16 << 20)
/* Of a heap that has grown by less nothing is offered. */
#define GROWN_MIN (16ul << 20)
/* What is taken and given back to find out what is free, or to have it given back. */
#define PROBE_BYTES (16ul << 20)
#define PAGE 4096ul
/* What is before a block, with its size in the second word. */
#define HEAD_BYTES (2 * sizeof(size_t))
/* Of the processor's time that calls take, one part in so many may be for offering what they leave, but for what follows. */
#define OFFERING_SHARE 5
/* In so much of it a call may have written to more than the kernel need not be told of, as ever: then it is told, lest a next call that
 * needs much be ended for what this one has freed. */
#define WRITES_MUCH_NS 1000000

/* Bytes that are kept, with the block by which is found out what is free. */
static int kept_max = USUAL_BYTES;
static uintptr_t first_end;
/* Whether no more is kept than usual, for other threads are there. */
static int is_usual;
/* Processor time at which the last offer was made, and what it took. */
static int64_t offered_ns, offer_took_ns;

static int64_t processor_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

/* Where the free end of the heap begins; 0 if that is not known. A block is taken and given back: the end begins there, if it reaches from
 * there to the end of the data segment. It does not if the block was free between others; if what lies behind the heap is somebody else's, so
 * that the C library goes on elsewhere; or if somebody else has moved the end of the data segment. For whoever is alone: others might give it
 * back meanwhile. */
static uintptr_t free_end(void)
{
    char *block = malloc(PROBE_BYTES);
    if (!block)
        return 0;
    uintptr_t head = (uintptr_t)block - HEAD_BYTES, end = (uintptr_t)sbrk(0);
    int is_below = head < end && end - head > PROBE_BYTES;
    /* Not where what is given back goes to the kernel. */
    int is_kept = is_below && end - head < (size_t)(is_usual ? USUAL_BYTES : kept_max);
    free(block);
    if (!is_kept || (uintptr_t)sbrk(0) != end)
        return 0;
    /* The lowest bit says that what lies before it is in use. */
    return ((const size_t *)head)[1] == ((end - head) | 1) ? head : 0;
}

/* What is more than is kept goes with the next large block that is given back, and that is here. */
static void give_back_more(void)
{
    /* Not to be left out, as what is not used. */
    void *volatile block = malloc(PROBE_BYTES);
    free(block);
}

static void keep(int bytes)
{
    mallopt(M_TRIM_THRESHOLD, bytes);
    give_back_more();
}

static int has_grown(void)
{
    return first_end && (uintptr_t)sbrk(0) >= first_end + GROWN_MIN;
}

/* What could be given back at most, if that may be much. */
static size_t much(void)
{
    size_t most = has_grown() ? (uintptr_t)sbrk(0) - first_end : arenas_kept();
    return most < GROWN_MIN ? 0 : most;
}

int blocks_keep(size_t bytes)
{
    if (is_bound_by_addresses())
        return -EPERM;
    /* Of less it is not worth while to find out what is free. */
    size_t most = bytes <= USUAL_BYTES ? USUAL_BYTES : bytes + PROBE_BYTES;
    int is_less = most < (size_t)kept_max;
    kept_max = most < INT32_MAX ? (int)most : INT32_MAX;
    is_usual = 0;
    if (!mallopt(M_MMAP_THRESHOLD, BLOCK_MAX) || !mallopt(M_TRIM_THRESHOLD, kept_max))
        return -EINVAL;
    if (is_less)
        give_back_more();
    first_end = bytes <= USUAL_BYTES ? 0 : (uintptr_t)sbrk(0);
    offer_took_ns = 0;
    return 0;
}

/* Tells the kernel that it may have what is free at the end; behind as much as it is not told of as ever, unless `is_all`. */
static void offer(int is_all)
{
    int64_t begun = processor_ns();
    uintptr_t from = free_end(), to = (uintptr_t)sbrk(0) & ~(PAGE - 1);
    /* The first page has the head. */
    from = from ? (from + HEAD_BYTES + PAGE - 1) & ~(PAGE - 1) : 0;
    if (from && !is_all)
        from += USUAL_BYTES;
    if (from && from < to)
        madvise((void *)from, to - from, MADV_FREE);
    offered_ns = processor_ns();
    offer_took_ns = offered_ns - begun;
}

size_t blocks_offer(int is_idle)
{
    if (!first_end || (!has_grown() && !is_usual))
        return much();
    /* What another thread has just taken and written to must not be the kernel's. */
    int alone = is_alone();
    if (alone == is_usual) {
        is_usual = !alone;
        keep(is_usual ? USUAL_BYTES : kept_max);
    }
    int64_t used_ns = processor_ns() - offered_ns;
    if (alone && (is_idle || used_ns >= WRITES_MUCH_NS || used_ns >= offer_took_ns * OFFERING_SHARE))
        offer(is_idle);
    return much();
}

size_t blocks_free(void)
{
    uintptr_t from = has_grown() && is_alone() ? free_end() : 0;
    return from ? (uintptr_t)sbrk(0) - from : 0;
}

int blocks_wait(int channel, int within_ms)
{
    struct pollfd waiting = {.fd = channel, .events = POLLIN};
    int come = poll(&waiting, 1, within_ms);
    /* Whoever then waits for the channel itself finds out what else is wrong. */
    return come < 0 && errno != EINTR ? 1 : come;
}

void blocks_give_back(void)
{
    if (has_grown()) {
        keep(0);
        mallopt(M_TRIM_THRESHOLD, is_usual ? USUAL_BYTES : kept_max);
    }
    arenas_give_back();
}
