/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "small.h"
#include "huge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SPAN (64ul << 10)
/* Sizes are multiples of this up to the first bound, and then four to each doubling. */
#define STEP 16
#define STEPS_MAX 512
#define STEPS (STEPS_MAX / STEP)
/* Spans that are moved out at once. */
#define MOVED_MAX 512
/* Fewer empty ones side by side are not worth a system call. */
#define EMPTY_MIN 4

struct small *small_current;
size_t small_declined;

static size_t kept_bytes(size_t length)
{
    return sizeof(struct small) + (length / SPAN + 1) * sizeof(struct span);
}

struct small *small_new(uintptr_t base, size_t length)
{
    struct small *small =
        mmap(0, kept_bytes(length), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (small == MAP_FAILED)
        return NULL;
    small->base = base;
    small->end = base + length;
    /* Spans begin at multiples of their length from the base on; the first one has the segment's head. */
    small->unused = base + SPAN;
    return small;
}

void small_free(struct small *small)
{
    munmap(small, kept_bytes(small->end - small->base));
}

/* The class of a size: the pieces of it are as long or longer. 0 is of no span. */
unsigned small_class(size_t size)
{
    if (size <= STEPS_MAX)
        return size ? (unsigned)((size + STEP - 1) / STEP) : 1;
    unsigned doubling = 63u - (unsigned)__builtin_clzl(size - 1);
    size_t quarter = (1ul << doubling) / 4;
    return STEPS + (doubling - 9) * 4 + (unsigned)((size - (1ul << doubling) + quarter - 1) / quarter);
}

size_t small_class_size(unsigned class)
{
    if (class <= STEPS)
        return class * STEP;
    unsigned above = class - STEPS - 1;
    size_t doubling = 512ul << above / 4;
    return doubling + doubling / 4 * (above % 4 + 1);
}

static void *from_new_span(struct small *small, unsigned class, size_t size)
{
    if (small->unused + SPAN > small->end)
        return NULL;
    uintptr_t at = small->unused;
    small->unused += SPAN;
    /* Who has made so much makes more, or has its copies there. */
    if (at % HUGE_PAGE == 0 && small->end - at >= HUGE_PAGE)
        make_huge(at, at + HUGE_PAGE);
    small->spans[(at - small->base) / SPAN] = (struct span){1, (uint8_t)class};
    small->fresh[class] = at + size;
    small->fresh_end[class] = at + SPAN / size * size;
    small->live++;
    return (void *)at;
}

static struct span *span_of(struct small *small, const void *piece)
{
    return &small->spans[((uintptr_t)piece - small->base) / SPAN];
}

/* Whether so much was asked for that there is a segment from now on. */
static int is_due(size_t size)
{
    if (small_declined == 0)
        return 0;
    if (small_declined > size) {
        small_declined -= size;
        return 0;
    }
    return segment_begin();
}

void *small_take(size_t size)
{
    if (!small_current && !is_due(size))
        return NULL;
    struct small *small = small_current;
    if (size > SMALL_MAX)
        return NULL;
    unsigned class = small_class(size);
    void *at = small->returned[class];
    if (at) {
        small->returned[class] = *(void **)at;
    } else {
        size_t length = small_class_size(class);
        if (small->fresh[class] == small->fresh_end[class])
            return from_new_span(small, class, length);
        at = (void *)small->fresh[class];
        small->fresh[class] += length;
    }
    small->live++;
    span_of(small, at)->live++;
    return at;
}

void small_give(struct small *small, void *piece)
{
    struct span *span = span_of(small, piece);
    small->live--;
    span->live--;
    if (small != small_current)
        return;
    unsigned class = span->class;
    *(void **)piece = small->returned[class];
    small->returned[class] = piece;
}

size_t small_size(const struct small *small, const void *piece)
{
    return small_class_size(small->spans[((uintptr_t)piece - small->base) / SPAN].class);
}

static int map_none(uintptr_t base, size_t length, int protection)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    return mmap((void *)base, length, protection, flags, -1, 0) == MAP_FAILED ? -errno : 0;
}

int small_move_out(struct small *small, size_t length)
{
    size_t spans = (small->unused - small->base) / SPAN, live = small_live(small) / SPAN;
    /* Each may be a mapping of its own. */
    if (live > MOVED_MAX)
        return -E2BIG;
    char *kept = malloc(live * SPAN), *at = kept;
    if (!kept)
        return -ENOMEM;
    for (size_t index = 1; index < spans; index++)
        if (small->spans[index].live > 0) {
            memcpy(at, (void *)(small->base + index * SPAN), SPAN);
            at += SPAN;
        }
    int done = map_none(small->base, length, PROT_NONE);
    at = kept;
    for (size_t index = 1; index < spans && done == 0; index++)
        if (small->spans[index].live > 0) {
            void *span = (void *)(small->base + index * SPAN);
            /* Objects are there that others refer to: without them nothing can go on. */
            if (mprotect(span, SPAN, PROT_READ | PROT_WRITE) < 0)
                abort();
            memcpy(span, at, SPAN);
            at += SPAN;
        }
    free(kept);
    return done;
}

void small_drop_empty(const struct small *small)
{
    size_t spans = (small->unused - small->base) / SPAN, begin = 1;
    for (size_t index = 1; index <= spans; index++) {
        if (index < spans && small->spans[index].live == 0)
            continue;
        /* Where that cannot be done, they only take memory. */
        if (index - begin >= EMPTY_MIN)
            madvise((void *)(small->base + begin * SPAN), (index - begin) * SPAN, MADV_REMOVE);
        begin = index + 1;
    }
}

size_t small_live(const struct small *small)
{
    size_t spans = (small->unused - small->base) / SPAN, live = 0;
    for (size_t index = 1; index < spans; index++)
        live += small->spans[index].live > 0;
    return live * SPAN;
}

struct use small_use(const struct small *small)
{
    struct use use = {small->unused - small->base - SPAN, 0};
    for (size_t index = 1; index <= use.taken / SPAN; index++)
        use.left += small->spans[index].live * small_class_size(small->spans[index].class);
    return use;
}
