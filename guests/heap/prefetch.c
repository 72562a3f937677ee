/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "prefetch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* So that who touches a page meanwhile need not wait long. */
#define STEP (256ul << 10)
#define STACK (64ul << 10)
/* What is less is touched before a thread has begun. */
#define PREFETCH_MIN (128ul << 10)

/* What is left of what this process may have; whoever is at it has taken all of it. */
static _Atomic size_t allowed;

void prefetch_allow(size_t bytes)
{
    atomic_store(&allowed, bytes);
}

static size_t length_of(const struct area *part)
{
    return part->end > part->begin ? part->end - part->begin : 0;
}

struct work {
    size_t count, allowed;
    struct area parts[PREFETCH_PARTS_MAX];
};

/* Bytes that are left of the bound; 0 if there is no use in going on. */
static size_t populate(const struct area *part, size_t left)
{
    uintptr_t at = part->begin & ~(PAGE - 1);
    while (at < part->end) {
        size_t rest = (part->end - at + PAGE - 1) & ~(PAGE - 1), step = rest < STEP ? rest : STEP;
        if (step > left || madvise((void *)at, step, MADV_POPULATE_WRITE) < 0)
            return 0;
        at += step;
        left -= step;
    }
    return left;
}

static void *run(void *argument)
{
    struct work *work = argument;
    size_t most = work->allowed < PREFETCH_MAX ? work->allowed : PREFETCH_MAX, left = most;
    for (size_t index = 0; index < work->count && left; index++)
        left = populate(&work->parts[index], left);
    atomic_fetch_add(&allowed, work->allowed - (most - left));
    free(work);
    return NULL;
}

static int start(struct work *work)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes))
        return 0;
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Signals are for the threads that expect them. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int done = pthread_create(&thread, &attributes, run, work);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return done == 0;
}

void prefetch(const struct area *parts, size_t count)
{
    size_t length = 0;
    for (size_t index = 0; index < count; index++)
        length += length_of(&parts[index]);
    if (length < PREFETCH_MIN || count > PREFETCH_PARTS_MAX)
        return;
    struct work *work = malloc(sizeof *work);
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
