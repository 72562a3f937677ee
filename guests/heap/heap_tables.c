/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dicts and sets. Their tables are copied as they are, for hashes of what is
 * copied are the same in each process of the program; keys of which that is not
 * known make a dict or set foreign.
 */
#include "heap_write.h"

/* The beginning of a dict's table. */
struct keys {
    int64_t references;
    uint8_t log_size, log_index_bytes, kind;
    uint32_t version;
    int64_t usable, entries;
    char indices[];
};

enum { GENERAL, STRINGS, SPLIT };
#define STABLE_DEPTH 8
/* Tables of strings that are so small are kept by the interpreter when nobody has them any more. */
#define KEPT_LOG_SIZE 3

struct keys_entry {
    int64_t hash;
    Object *key, *value;
};

struct set_entry {
    Object *key;
    int64_t hash;
};

static struct keys *keys_of(const Object *dict)
{
    return FIELD(dict, 32, struct keys *);
}

static int is_split(const Object *dict)
{
    return FIELD(dict, 40, void *) != NULL;
}

static size_t set_slots(const Object *set)
{
    return FIELD(set, 32, size_t) + 1;
}

static struct set_entry *set_table(const Object *set)
{
    return FIELD(set, 40, struct set_entry *);
}

static int is_stable_set(const Object *set, int depth)
{
    const struct set_entry *entries = set_table(set);
    for (size_t slot = 0; slot < set_slots(set); slot++)
        if (entries[slot].key && !is_stable(entries[slot].key, depth))
            return 0;
    return 1;
}

int is_stable(const Object *key, int depth)
{
    const Type *type = key->type;
    if (is_static((uintptr_t)key) || type == &PyUnicode_Type || type == &PyLong_Type || type == &PyBytes_Type)
        return 1;
    /* What is no number has the hash of its address. */
    if (type == &PyFloat_Type)
        return FIELD(key, 16, double) == FIELD(key, 16, double);
    if (depth == STABLE_DEPTH)
        return 0;
    if (type == &PyFrozenSet_Type)
        return is_stable_set(key, depth + 1);
    if (type != &PyTuple_Type)
        return 0;
    for (int64_t index = 0; index < SIZE(key); index++)
        if (!is_stable(TUPLE_ITEMS(key)[index], depth + 1))
            return 0;
    return 1;
}

int has_stable_keys(Object *container)
{
    if (container->type != &PyDict_Type)
        return is_stable_set(container, 0);
    const struct keys *keys = keys_of(container);
    if (keys->kind != GENERAL)
        return 1;
    const struct keys_entry *entries = (const void *)(keys->indices + (1ul << keys->log_index_bytes));
    for (int64_t index = 0; index < keys->entries; index++)
        if (entries[index].key && !is_stable(entries[index].key, 0))
            return 0;
    return 1;
}

static size_t usable_of(unsigned log_size)
{
    return (2ul << log_size) / 3;
}

static size_t index_bytes_of(unsigned log_size)
{
    unsigned log_bytes = log_size < 8 ? 0 : log_size < 16 ? 1 : log_size < 32 ? 2 : 3;
    return log_size + log_bytes;
}

/* Room for a table; it belongs to one dict. */
static struct keys *new_keys(struct writer *w, unsigned log_size, unsigned log_index_bytes, unsigned kind)
{
    size_t entry = kind == GENERAL ? 24 : 16;
    uintptr_t at = room(w, sizeof(struct keys) + (1ul << log_index_bytes) + usable_of(log_size) * entry, 16);
    struct keys *keys = (struct keys *)at;
    if (keys)
        *keys = (struct keys){1, (uint8_t)log_size, (uint8_t)log_index_bytes, (uint8_t)kind, 0, 0, 0};
    return keys;
}

static int fill_slot(struct writer *w, Object *from, uintptr_t to)
{
    if (from && !(*(uintptr_t *)to = placed(w, from, to)))
        return 0;
    return 1;
}

/* A table of one's own, as it was. */
static int copy_table(struct writer *w, const struct keys *from, struct keys **to)
{
    struct keys *keys = new_keys(w, from->log_size, from->log_index_bytes, from->kind);
    if (!keys)
        return 0;
    size_t indices = 1ul << from->log_index_bytes, entry = from->kind == GENERAL ? 24 : 16;
    memcpy(keys->indices, from->indices, indices);
    keys->usable = from->usable;
    keys->entries = from->entries;
    *to = keys;
    const char *source = from->indices + indices;
    uintptr_t target = (uintptr_t)keys->indices + indices;
    for (int64_t index = 0; index < from->entries; index++, source += entry, target += entry) {
        size_t at = 0;
        if (from->kind == GENERAL) {
            *(int64_t *)target = *(const int64_t *)source;
            at = 8;
        }
        if (!fill_slot(w, *(Object *const *)(source + at), target + at) ||
            !fill_slot(w, *(Object *const *)(source + at + 8), target + at + 8))
            return 0;
    }
    return 1;
}

static void set_index(struct keys *keys, size_t slot, int64_t value)
{
    if (keys->log_size < 8)
        ((int8_t *)keys->indices)[slot] = (int8_t)value;
    else if (keys->log_size < 16)
        ((int16_t *)keys->indices)[slot] = (int16_t)value;
    else
        ((int32_t *)keys->indices)[slot] = (int32_t)value;
}

static int is_taken(const struct keys *keys, size_t slot)
{
    if (keys->log_size < 8)
        return ((const int8_t *)keys->indices)[slot] >= 0;
    if (keys->log_size < 16)
        return ((const int16_t *)keys->indices)[slot] >= 0;
    return ((const int32_t *)keys->indices)[slot] >= 0;
}

/* Puts an entry where lookups look for it: as `lookdict` probes. */
static void enter(struct keys *keys, uint64_t hash)
{
    size_t mask = (1ul << keys->log_size) - 1, slot = hash & mask;
    for (uint64_t perturb = hash; is_taken(keys, slot);) {
        perturb >>= 5;
        slot = (slot * 5 + perturb + 1) & mask;
    }
    set_index(keys, slot, keys->entries++);
    keys->usable--;
}

/* A table for a dict that shares one, or has the one of all that are empty, or a small one:
 * those that are given up are used again for others, and this memory must not be. Its keys are strings. */
static int build_table(struct writer *w, Object *dict, struct keys **to)
{
    unsigned log_size = KEPT_LOG_SIZE + 1;
    while (usable_of(log_size) < (size_t)SIZE(dict))
        log_size++;
    struct keys *keys = new_keys(w, log_size, (unsigned)index_bytes_of(log_size), STRINGS);
    if (!keys)
        return 0;
    *to = keys;
    size_t indices = 1ul << keys->log_index_bytes;
    memset(keys->indices, 0xff, indices);
    keys->usable = (int64_t)usable_of(log_size);
    uintptr_t target = (uintptr_t)keys->indices + indices;
    ssize_t position = 0;
    for (Object *key, *value; PyDict_Next(dict, &position, &key, &value); target += 16) {
        int64_t hash = PyObject_Hash(key);
        if (!fill_slot(w, key, target) || !fill_slot(w, value, target + 8))
            return 0;
        enter(keys, (uint64_t)hash);
    }
    return 1;
}

int fill_dict(struct writer *w, Object *from, uintptr_t to)
{
    struct keys *keys;
    const struct keys *table = keys_of(from);
    int is_kept = table->log_size <= KEPT_LOG_SIZE && table->kind != GENERAL;
    int is_own = !is_split(from) && SIZE(from) > 0 && !is_kept;
    int done = is_own ? copy_table(w, table, &keys) : build_table(w, from, &keys);
    if (!done)
        return 0;
    SIZE(to) = SIZE(from);
    /* Whoever remembers a dict by its version finds no other with that of a copy. */
    FIELD(to, 24, uint64_t) = layout.are_statics_immortal ? 0 : to | 1ul << 63;
    FIELD(to, 32, struct keys *) = keys;
    return 1;
}

int fill_set(struct writer *w, Object *from, uintptr_t to)
{
    const struct set_entry *entries = set_table(from);
    size_t slots = set_slots(from);
    int is_inside = (uintptr_t)entries == (uintptr_t)from + SET_KEPT_INSIDE;
    uintptr_t table = is_inside ? to + SET_KEPT_INSIDE : room(w, slots * sizeof *entries, 16);
    if (!table)
        return 0;
    /* How many there are, the mask, the hash, and where pop() goes on. */
    memcpy((void *)(to + 16), (const char *)from + 16, 48);
    FIELD(to, 40, uintptr_t) = table;
    for (size_t slot = 0; slot < slots; slot++) {
        struct set_entry *entry = (struct set_entry *)table + slot;
        entry->hash = entries[slot].hash;
        if (!fill_slot(w, entries[slot].key, (uintptr_t)&entry->key))
            return 0;
    }
    return 1;
}
