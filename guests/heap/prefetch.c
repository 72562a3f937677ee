/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "prefetch.h"
#include "pagemap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* So that who touches a page meanwhile need not wait long. The last page of each is left out: it shows whether
 * that much is touched. */
#define STEP (256ul << 10)
#define STACK (64ul << 10)
/* What is less is touched before a thread has begun. */
#define PREFETCH_MIN (128ul << 10)
/* Pages of a call that show what is touched; of as much as is prefetched of eight values. */
#define SIGNS_MAX (8 * PREFETCH_MAX / STEP)
/* It is in vain if less than one of so many is touched. */
#define TOUCHED_SHARE 4
/* How long is waited for the thread, which is at one step, in waits of so many microseconds. */
#define WAITS_MAX 1000
#define WAIT_US 20

/* What is left of what this process may have; whoever is at it has taken all of it. And what values have taken since some
 * was given back. */
static _Atomic size_t allowed, taken;
/* The process whose thread is at it: one that it forks has none. */
static _Atomic pid_t prefetching;
static _Atomic int is_over;
/* Whether there was one in this call. */
static int has_begun;

static uintptr_t signs[SIGNS_MAX];
static size_t signs_count;
/* How many there were and were touched: of each earlier call one half of what counts of the next. */
static size_t signs_asked, signs_touched;

void prefetch_allow(size_t bytes)
{
    atomic_store(&allowed, bytes);
}

/* What was touched without having been prefetched is given back, too. */
void prefetch_returned(size_t bytes)
{
    size_t most = atomic_exchange(&taken, 0);
    atomic_fetch_add(&allowed, bytes < most ? bytes : most);
}

static size_t length_of(const struct area *part)
{
    return part->end > part->begin ? part->end - part->begin : 0;
}

struct work {
    size_t count, allowed;
    struct area parts[PREFETCH_PARTS_MAX];
};

/* Whether there is use in going on. */
static int populate(const struct area *part, size_t *left)
{
    uintptr_t at = part->begin & ~(PAGE - 1);
    while (at < part->end) {
        size_t rest = (part->end - at + PAGE - 1) & ~(PAGE - 1), step = rest < STEP ? rest : STEP;
        size_t length = step < STEP ? step : STEP - PAGE;
        if (step > *left || atomic_load(&is_over) || madvise((void *)at, length, MADV_POPULATE_WRITE) < 0)
            return 0;
        at += step;
        *left -= step;
    }
    return 1;
}

static void *run(void *argument)
{
    struct work *work = argument;
    size_t most = work->allowed < PREFETCH_MAX ? work->allowed : PREFETCH_MAX, left = most;
    for (size_t index = 0; index < work->count && populate(&work->parts[index], &left); index++)
        continue;
    size_t rest = work->allowed - (most - left);
    free(work);
    atomic_fetch_add(&taken, most - left);
    /* In this order: what is allowed begins the next one. */
    atomic_store(&prefetching, 0);
    atomic_fetch_add(&allowed, rest);
    return NULL;
}

static int start(struct work *work)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    pid_t nobody = 0;
    /* One that did not end in time is still at it, and would go on. */
    if (!atomic_compare_exchange_strong(&prefetching, &nobody, getpid()))
        return 0;
    if (pthread_attr_init(&attributes)) {
        atomic_store(&prefetching, 0);
        return 0;
    }
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Signals are for the threads that expect them. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_store(&is_over, 0);
    has_begun = 1;
    int done = pthread_create(&thread, &attributes, run, work);
    if (done)
        atomic_store(&prefetching, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return done == 0;
}

static void note_signs(const struct area *parts, size_t count)
{
    size_t left = PREFETCH_MAX / STEP;
    for (size_t index = 0; index < count; index++)
        for (uintptr_t at = parts[index].begin & ~(PAGE - 1); at < parts[index].end && parts[index].end - at >= STEP; at += STEP)
            if (left > 0 && signs_count < SIGNS_MAX) {
                signs[signs_count++] = at + STEP - PAGE;
                left--;
            }
}

void prefetch(const struct area *parts, size_t count)
{
    size_t length = 0;
    for (size_t index = 0; index < count; index++)
        length += length_of(&parts[index]);
    if (length < PREFETCH_MIN || count > PREFETCH_PARTS_MAX)
        return;
    note_signs(parts, count);
    struct work *work = signs_touched * TOUCHED_SHARE >= signs_asked ? malloc(sizeof *work) : NULL;
    if (!work)
        return;
    work->count = count;
    work->allowed = atomic_exchange(&allowed, 0);
    memcpy(work->parts, parts, count * sizeof *parts);
    if (work->allowed >= STEP && start(work))
        return;
    atomic_fetch_add(&allowed, work->allowed);
    free(work);
}

/* Where the kernel does not tell, nothing is learned. */
static void learn(void)
{
    int pagemap = pagemap_open();
    size_t asked = 0, found = 0;
    uint64_t entry;
    for (size_t index = 0; index < signs_count && pagemap >= 0; index++)
        if (pagemap_read(pagemap, signs[index], &entry, 1) == 1) {
            asked++;
            found += is_copy(entry);
        }
    signs_asked = asked + signs_asked / 2;
    signs_touched = found + signs_touched / 2;
    if (pagemap >= 0)
        close(pagemap);
}

int prefetch_end(void)
{
    int had_thread = has_begun;
    has_begun = 0;
    atomic_store(&is_over, 1);
    for (int wait = 0; wait < WAITS_MAX && atomic_load(&prefetching) == getpid(); wait++)
        usleep(WAIT_US);
    if (signs_count)
        learn();
    signs_count = 0;
    return had_thread;
}
