/* SPDX-License-Identifier: Apache-2.0 */
/* What the writer keeps while it writes: words in a row, and what it knows of objects. */
#ifndef SINEW_HEAP_MEMO_H
#define SINEW_HEAP_MEMO_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct words {
    uint64_t *at;
    size_t count, room;
};

/* Room for some more; 0 if there is no memory. */
static inline int words_grow(struct words *words, size_t more)
{
    if (words->count + more <= words->room)
        return 1;
    size_t room = words->room ? words->room * 2 : 64;
    uint64_t *at = realloc(words->at, room * sizeof *at);
    if (!at)
        return 0;
    words->at = at;
    words->room = room;
    return 1;
}

static inline int words_add(struct words *words, uint64_t word)
{
    if (!words_grow(words, 1))
        return 0;
    words->at[words->count++] = word;
    return 1;
}

static inline int words_add_pair(struct words *words, uint64_t first, uint64_t second)
{
    return words_add(words, first) && words_add(words, second);
}

static inline void words_free(struct words *words)
{
    free(words->at);
    *words = (struct words){0};
}

/* From addresses to words that are not 0. */
struct memo {
    struct {
        uintptr_t key;
        uint64_t value;
    } *slots;
    size_t count, room;
};

static inline size_t memo_slot(const struct memo *memo, uintptr_t key)
{
    size_t slot = (key >> 4) * 0x9e3779b97f4a7c15ul >> 20 & (memo->room - 1);
    while (memo->slots[slot].key && memo->slots[slot].key != key)
        slot = (slot + 1) & (memo->room - 1);
    return slot;
}

static inline uint64_t memo_find(const struct memo *memo, uintptr_t key)
{
    return memo->room ? memo->slots[memo_slot(memo, key)].value : 0;
}

static inline void memo_free(struct memo *memo)
{
    if (memo->room)
        munmap(memo->slots, memo->room * sizeof *memo->slots);
    *memo = (struct memo){0};
}

/* 0 if there is no memory. */
static inline int memo_set(struct memo *memo, uintptr_t key, uint64_t value)
{
    if (memo->count * 2 >= memo->room) {
        struct memo other = {0};
        other.room = memo->room ? memo->room * 2 : 1024;
        other.slots = mmap(0, other.room * sizeof *other.slots, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (other.slots == MAP_FAILED)
            return 0;
        for (size_t slot = 0; slot < memo->room; slot++)
            if (memo->slots[slot].key)
                other.slots[memo_slot(&other, memo->slots[slot].key)] = memo->slots[slot];
        other.count = memo->count;
        memo_free(memo);
        *memo = other;
    }
    size_t slot = memo_slot(memo, key);
    memo->count += !memo->slots[slot].key;
    memo->slots[slot].key = key;
    memo->slots[slot].value = value;
    return 1;
}

#endif
