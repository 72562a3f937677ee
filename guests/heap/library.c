/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks, and what is reached from one. */
#define _GNU_SOURCE
#include "library.h"
#include "heap_memo.h"
#include "small.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRAIN 16
/* Before each block is its length. */
#define HEAD 16
/* What is behind the last byte of a block is of that block: the end of a table is no address of another one. */
#define BEHIND 1
#define BITS 64
#ifdef __aarch64__
#define ADDRESS_END (1ul << 48)
#else
#define ADDRESS_END (1ul << 47)
#endif

/* A large piece of a segment. Each bit is of one grain. */
static struct region {
    uintptr_t begin, end, unused;
    /* Where blocks begin, those that are taken, and those that were reached. */
    uint64_t *starts, *live, *reached;
    size_t blocks;
} regions[REGIONS_MAX];
/* In the order of their addresses. */
static size_t regions_count;
/* The one that blocks are taken from, by its beginning; 0 if there is none. */
static uintptr_t open_region;
static size_t next_size = REGION_MIN;
/* Blocks of the open region that were given back, by their size. */
static uintptr_t returned[SMALL_CLASSES];
static int depth;
/* Of this thread. */
static __thread int own_depth;
/* Where blocks are taken as long as there is a depth; nowhere if it has no end. */
static struct area filling;
/* Held for a moment each time, by as many threads as a library has. */
static pthread_mutex_t lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;

static void lock_blocks(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_blocks(void)
{
    pthread_mutex_unlock(&lock);
}

void library_mind_forks(void)
{
    pthread_atfork(lock_blocks, unlock_blocks, unlock_blocks);
}

/* ------------------------------------------------------------ regions */

static int is_in(uintptr_t at, struct area area)
{
    return at - area.begin < area.end - area.begin;
}

/* How many regions begin at an address or before it. */
static size_t regions_until(uintptr_t at)
{
    size_t low = 0, high = regions_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (regions[middle].begin <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct region *region_of(uintptr_t at)
{
    size_t until = regions_until(at);
    return until && at < regions[until - 1].end ? &regions[until - 1] : NULL;
}

static size_t words_of(const struct region *region)
{
    return ((region->end - region->begin) / GRAIN + BITS - 1) / BITS;
}

static int has_bit(const uint64_t *bits, size_t index)
{
    return bits[index / BITS] >> index % BITS & 1;
}

static void set_bit(uint64_t *bits, size_t index)
{
    bits[index / BITS] |= 1ul << index % BITS;
}

static void clear_bit(uint64_t *bits, size_t index)
{
    bits[index / BITS] &= ~(1ul << index % BITS);
}

/* The block that a place is in, whether it is taken or not; 0 if it is before all. */
static uintptr_t block_of(const struct region *region, uintptr_t at)
{
    size_t index = (at - region->begin) / GRAIN, word = index / BITS;
    uint64_t bits = region->starts[word] & (~0ul >> (BITS - 1 - index % BITS));
    while (!bits && word > 0)
        bits = region->starts[--word];
    return bits ? region->begin + (word * BITS + (BITS - 1 - (size_t)__builtin_clzl(bits))) * GRAIN : 0;
}

static size_t grain_of(const struct region *region, uintptr_t block)
{
    return (block - region->begin) / GRAIN;
}

static size_t length_at(uintptr_t block)
{
    return ((const uint64_t *)block)[-2];
}

static struct region *add_region(uintptr_t begin, size_t length)
{
    struct region region = {.begin = begin, .end = begin + length, .unused = begin};
    size_t words = words_of(&region);
    uint64_t *bits = regions_count < REGIONS_MAX ? calloc(3 * words, sizeof *bits) : NULL;
    if (!bits)
        return NULL;
    region.starts = bits;
    region.live = bits + words;
    region.reached = bits + 2 * words;
    size_t index = regions_until(begin);
    memmove(regions + index + 1, regions + index, (regions_count - index) * sizeof *regions);
    regions[index] = region;
    regions_count++;
    return &regions[index];
}

/* The piece of the segment that it was. */
static void *drop_region(struct region *region)
{
    void *piece = (void *)region->begin;
    if (open_region == region->begin) {
        open_region = 0;
        memset(returned, 0, sizeof returned);
    }
    free(region->starts);
    size_t index = (size_t)(region - regions);
    memmove(region, region + 1, (regions_count - index - 1) * sizeof *regions);
    regions_count--;
    return piece;
}

/* ------------------------------------------------------------- blocks */

/* The next block of a region, with so many bytes before it. */
static uintptr_t cut(struct region *region, size_t before, size_t length)
{
    uintptr_t block = region->unused + before;
    if (block + length > region->end)
        return 0;
    region->unused = block + length;
    set_bit(region->starts, grain_of(region, block));
    ((uint64_t *)block)[-2] = length;
    return block;
}

static uintptr_t taken(struct region *region, uintptr_t block)
{
    if (block) {
        set_bit(region->live, grain_of(region, block));
        region->blocks++;
    }
    return block;
}

/* What a block of this size has before it, and how long it is. */
static size_t before_of(size_t align)
{
    return align > HEAD ? align : HEAD;
}

static size_t length_of(size_t size)
{
    size_t all = HEAD + size + BEHIND;
    return all <= SMALL_MAX ? small_class_size(small_class(all)) - HEAD : ((size + BEHIND + GRAIN - 1) & ~(GRAIN - 1ul));
}

static uintptr_t take_open(size_t length, size_t align)
{
    struct region *region = open_region ? region_of(open_region) : NULL;
    if (!region)
        return 0;
    size_t all = HEAD + length;
    uintptr_t *kept = all <= SMALL_MAX && align <= GRAIN ? &returned[small_class(all)] : NULL;
    if (kept && *kept) {
        uintptr_t block = *kept;
        *kept = *(uintptr_t *)block;
        *(uintptr_t *)block = 0;
        return taken(region, block);
    }
    /* Regions begin at whole pages, and what is before an aligned block is none. */
    size_t before = align <= GRAIN ? HEAD : ((region->unused + HEAD + align - 1) & ~(align - 1)) - region->unused;
    return taken(region, cut(region, before, length));
}

/* A new region; `is_shared` if more blocks are to be in it. */
static uintptr_t take_new(size_t length, size_t align, int is_shared)
{
    size_t size = before_of(align) + length;
    lock_blocks();
    int has_room = regions_count < REGIONS_MAX;
    if (is_shared && size < next_size)
        size = next_size;
    unlock_blocks();
    int is_zero;
    void *piece = has_room ? segment_take(size, TAKES_LIBRARY, &is_zero) : NULL;
    if (!piece)
        return 0;
    size = segment_piece(piece);
    if (!is_zero)
        memset(piece, 0, size);
    lock_blocks();
    struct region *region = add_region((uintptr_t)piece, size);
    uintptr_t block = region ? taken(region, cut(region, before_of(align), length)) : 0;
    if (block && is_shared) {
        open_region = region->begin;
        memset(returned, 0, sizeof returned);
        next_size = next_size < REGION_MAX ? next_size * 2 : next_size;
    }
    unlock_blocks();
    if (!block)
        segment_give(piece);
    return block;
}

void *library_take(size_t size, size_t align)
{
    if (!__atomic_load_n(&depth, __ATOMIC_RELAXED) || size > PLAN_END - PLAN_BEGIN || align > PAGE)
        return NULL;
    size_t length = length_of(size);
    int is_shared = length <= BLOCK_SHARED_MAX;
    lock_blocks();
    int is_there = depth && filling.end;
    uintptr_t block = is_there && is_shared ? take_open(length, align) : 0;
    unlock_blocks();
    return (void *)(block || !is_there ? block : take_new(length, align, is_shared));
}

void *library_take_for_others(size_t size)
{
    return own_depth ? library_take(size, 1) : NULL;
}

/* Has no more blocks taken from the open region; its piece, if nothing is in it. */
static void *close_open(void)
{
    struct region *region = open_region ? region_of(open_region) : NULL;
    void *piece = region && region->blocks == 0 ? drop_region(region) : NULL;
    open_region = 0;
    memset(returned, 0, sizeof returned);
    next_size = REGION_MIN;
    return piece;
}

void library_give(void *at)
{
    void *piece = NULL;
    lock_blocks();
    /* Once it was handed over, to write there is to have a page of one's own. */
    int is_filled = depth && is_in((uintptr_t)at, filling);
    struct region *region = region_of((uintptr_t)at);
    uintptr_t block = region ? block_of(region, (uintptr_t)at) : 0;
    if (block && has_bit(region->live, grain_of(region, block))) {
        clear_bit(region->live, grain_of(region, block));
        size_t all = HEAD + length_at(block);
        if (is_filled)
            /* What is left there would look like an address. */
            memset((void *)block, 0, length_at(block));
        if (is_filled && region->begin == open_region && all <= SMALL_MAX && small_class_size(small_class(all)) == all) {
            *(uintptr_t *)block = returned[small_class(all)];
            returned[small_class(all)] = block;
        }
        if (--region->blocks == 0 && (region->begin != open_region || depth == 0))
            piece = drop_region(region);
    }
    unlock_blocks();
    if (piece)
        segment_give(piece);
}

size_t library_size(const void *at)
{
    /* A block of others has its length before it as well. */
    return length_at((uintptr_t)at);
}

void library_begin(void)
{
    struct area filled = segment_taking();
    void *piece = NULL;
    own_depth++;
    lock_blocks();
    if (depth++ == 0) {
        filling = filled;
        piece = is_in(open_region, filling) ? NULL : close_open();
    }
    unlock_blocks();
    if (piece)
        segment_give(piece);
}

void library_end(void)
{
    void *piece = NULL;
    own_depth--;
    lock_blocks();
    struct region *region = --depth == 0 && open_region ? region_of(open_region) : NULL;
    if (region && region->blocks == 0)
        piece = close_open();
    unlock_blocks();
    if (piece)
        segment_give(piece);
}

/* ------------------------------------------------------------ reaching */

/* Pages that were asked about while one object is looked at. */
#define ASKED 64

static struct {
    uintptr_t page;
    int is_mapped;
} asked[ASKED];

static int is_mapped(uintptr_t at)
{
    uintptr_t page = at / PAGE;
    size_t slot = page % ASKED;
    if (asked[slot].page != page) {
        unsigned char ignored;
        asked[slot].is_mapped = mincore((void *)(page * PAGE), 1, &ignored) == 0 || errno != ENOMEM;
        asked[slot].page = page;
    }
    return asked[slot].is_mapped;
}

/* What is mapped below the end of the plan, in the order of the addresses: segments, whoever filled them, the program and its heap if these
 * are not behind it, and what some library wants to have there. */
#define AREAS_MAX 4096
static struct area areas[AREAS_MAX];
static size_t areas_count;

static void note_area(uintptr_t begin, uintptr_t end)
{
    if (areas_count && areas[areas_count - 1].end == begin)
        areas[areas_count - 1].end = end;
    else if (areas_count < AREAS_MAX)
        areas[areas_count++] = (struct area){begin, end};
}

/* The kernel tells it in that order, so that most of it need not be read. */
static int read_areas(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    areas_count = 0;
    if (!maps)
        return -errno;
    int is_over = 0;
    while (!is_over && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        /* The rest of a long one begins with no address. */
        if (sscanf(line, "%lx-%lx ", &begin, &end) != 2)
            continue;
        is_over = begin >= PLAN_END;
        if (!is_over)
            note_area(begin, end);
    }
    fclose(maps);
    return is_over && areas_count < AREAS_MAX ? 0 : -E2BIG;
}

/* Where a program lies low, as Debian's Pythons do, it and its heap end here; 0 where it does not. */
static uintptr_t low_end;

/* What four bytes of a tree's nodes make of a word is as high as the heap of such a program, and there are many of them. But the C
 * library gives what is divisible by sixteen, and objects of LightGBM 4 have one base, so that whoever has an address within a block
 * has one of its beginning beside it. */
#define GIVEN_ALIGN 16
static int is_of_block(uintptr_t at)
{
    return at >= low_end || at % GIVEN_ALIGN == 0;
}

enum kind { NUMBER, BLOCK, ELSEWHERE };

/* What a word may be the address of. */
static enum kind kind_of(uintptr_t word, uintptr_t *block)
{
    if (word < PAGE || word >= ADDRESS_END)
        return NUMBER;
    const struct region *region = in_plan(word) ? region_of(word) : NULL;
    if (!region) {
        int is_there = word < PLAN_END ? is_in_any(areas, areas_count, word) : is_mapped(word);
        return is_there && is_of_block(word) && !library_is_constant(word) ? ELSEWHERE : NUMBER;
    }
    *block = block_of(region, word);
    /* What was freed, or lies between blocks, nobody looks at. */
    return *block && has_bit(region->live, grain_of(region, *block)) ? BLOCK : NUMBER;
}

static int reach(uintptr_t block, struct words *pending)
{
    struct region *region = region_of(block);
    if (has_bit(region->reached, grain_of(region, block)))
        return 1;
    set_bit(region->reached, grain_of(region, block));
    return words_add(pending, block);
}

static int64_t reached_from(uintptr_t root, struct area filled, struct words *pending)
{
    int64_t bytes = 0;
    if (!reach(root, pending))
        return -ENOMEM;
    while (pending->count) {
        uintptr_t block = pending->at[--pending->count], other = 0;
        /* One of another segment is not handed over with this one. */
        if (!is_in(block, filled))
            return -EXDEV;
        size_t length = length_at(block);
        bytes += (int64_t)length;
        for (size_t at = 0; at < length; at += sizeof(uintptr_t)) {
            enum kind kind = kind_of(*(const uintptr_t *)(block + at), &other);
            if (kind == ELSEWHERE)
                return -EXDEV;
            if (kind == BLOCK && !reach(other, pending))
                return -ENOMEM;
        }
    }
    return bytes;
}

/* Whether it is where a block begins that is taken. */
static int is_block(uintptr_t at)
{
    const struct region *region = region_of(at);
    return region && block_of(region, at) == at && has_bit(region->live, grain_of(region, at));
}

int library_is_mapped(uintptr_t at)
{
    lock_blocks();
    int is_own = is_block(at);
    unlock_blocks();
    return in_plan(at) && !is_own;
}

int64_t library_reached(uintptr_t root)
{
    struct area filled;
    if (segment_filled(&filled) < 0 || read_areas() < 0)
        return -EXDEV;
    struct words pending = {0};
    uintptr_t heap_end = (uintptr_t)sbrk(0);
    lock_blocks();
    low_end = heap_end < PLAN_BEGIN ? heap_end : 0;
    memset(asked, 0, sizeof asked);
    for (size_t index = 0; index < regions_count; index++)
        memset(regions[index].reached, 0, words_of(&regions[index]) * sizeof(uint64_t));
    int64_t bytes = is_block(root) ? reached_from(root, filled, &pending) : -EXDEV;
    unlock_blocks();
    words_free(&pending);
    return bytes;
}
