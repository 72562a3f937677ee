/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps values. What is written to a segment here, as references are counted and
 * foreign objects put into their places, are pages of this process's own.
 *
 * A segment comes from an instance of the same function's owner, which may run any
 * code of theirs in this one; it is checked so that mistakes are found, not attacks.
 */
#define _GNU_SOURCE
#include "heap.h"
#include "prefetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_WRITE 0x200
/* A surplus of references to the program's own objects. */
#define SURPLUS (1l << 40)

static int is_inside(const struct head *head, uint64_t at, uint64_t length)
{
    return at >= head->base && at - head->base <= head->length && length <= head->length - (at - head->base);
}

static int has_table(const struct head *head, const struct table *table, uint64_t each)
{
    return table->count <= head->length && is_inside(head, table->at, table->count * each);
}

static int check(const struct head *head, int fd)
{
    struct stat file;
    if (head->kind != HEAD_KIND || head->version != HEAD_VERSION || fstat(fd, &file) < 0)
        return -EPROTO;
    if (memcmp(head->identity, identity, sizeof identity))
        return -ESTALE;
    int is_whole = head->length <= (uint64_t)file.st_size && has_table(head, &head->statics, 8) &&
                   has_table(head, &head->typed, 16) && has_table(head, &head->homes, 8) &&
                   has_table(head, &head->moved, 16) && has_table(head, &head->arrays, 8) && has_table(head, &head->patches, 16) &&
                   has_table(head, &head->type_pickles, 1) && has_table(head, &head->pickles, 1) &&
                   has_table(head, &head->buffers, 16) && has_table(head, &head->parts[0], 1) &&
                   has_table(head, &head->parts[1], 1) && (!head->root || is_static(head->root) || is_inside(head, head->root, 16));
    return is_whole ? 0 : -EPROTO;
}

/* What is between the buffers, of which whole pages are left out: in these nobody counts references, and who only reads
 * them needs no pages of their own. Buffers are in the order of their addresses, as far as they lie there. */
static size_t between_buffers(const struct head *head, struct area all, struct area *parts, size_t most)
{
    const uint64_t *pairs = (const uint64_t *)head->buffers.at;
    size_t count = 0;
    for (uint64_t index = 0; index < head->buffers.count && count + 1 < most; index++, pairs += 2) {
        uintptr_t from = (pairs[0] + PAGE - 1) & ~(PAGE - 1), to = (pairs[0] + pairs[1]) & ~(PAGE - 1);
        if (pairs[0] < all.begin || pairs[0] > all.end || pairs[1] > all.end - pairs[0] || from >= to)
            continue;
        parts[count++] = (struct area){all.begin, from};
        all.begin = to;
    }
    parts[count++] = all;
    return count;
}

static void prefetch_parts(const struct head *head)
{
    struct area parts[PREFETCH_PARTS_MAX], all[2];
    for (int index = 0; index < 2; index++)
        all[index] = (struct area){head->parts[index].at, head->parts[index].at + head->parts[index].count};
    parts[0] = all[0];
    prefetch(parts, 1 + between_buffers(head, all[1], parts + 1, PREFETCH_PARTS_MAX - 1));
}

int heap_map(int fd, struct head *head)
{
    if (pread(fd, head, sizeof *head, 0) != sizeof *head)
        return -EPROTO;
    int done = check(head, fd);
    if (done == 0)
        done = segment_map(fd, head->base, head->length, head->lasting);
    if (done < 0)
        return done;
    /* Where references are counted also of what never ends, to read is to write. */
    if (!layout.are_statics_immortal)
        segment_watch(fd, head->base);
    if (done == 0 && !layout.are_statics_immortal)
        prefetch_parts(head);
    const uint64_t *statics = (const uint64_t *)head->statics.at;
    for (uint64_t index = 0; index < head->statics.count; index++)
        if (is_static(statics[index]))
            ((Object *)statics[index])->references += SURPLUS;
    return done;
}

int heap_map_end(void)
{
    prefetch_returned(segment_return_pages(prefetch_end()));
    return segment_watched();
}

Object *heap_buffers(const struct head *head)
{
    const uint64_t *pairs = (const uint64_t *)head->buffers.at;
    Object *all = PyList_New(0);
    for (uint64_t index = 0; all && index < head->buffers.count; index++, pairs += 2) {
        Object *view = NULL;
        if (is_inside(head, pairs[0], pairs[1]))
            view = PyMemoryView_FromMemory((char *)pairs[0], (ssize_t)pairs[1], BUFFER_WRITE);
        else
            PyErr_SetString(PyExc_ValueError, "a buffer of a mapped value lies outside of it");
        int is_there = view && PyList_Append(all, view) == 0;
        if (view)
            Py_DecRef(view);
        if (!is_there) {
            Py_DecRef(all);
            return NULL;
        }
    }
    return all;
}

static int broken(void)
{
    PyErr_SetString(PyExc_ValueError, "a mapped value refers to what it has not");
    return -1;
}

/* Puts objects into places; what is at its home, is there already. A copy is never freed, and
 * what it refers to neither. */
static int put(const struct head *head, const struct table *places, Object *objects, const struct table *homes)
{
    const uint64_t *pairs = (const uint64_t *)places->at, *home = homes ? (const uint64_t *)homes->at : NULL;
    uint64_t count = (uint64_t)PyList_Size(objects);
    for (uint64_t index = 0; index < places->count; index++) {
        uint64_t slot = pairs[2 * index], which = pairs[2 * index + 1];
        if (which >= count || slot % 8 || !is_inside(head, slot, 8))
            return broken();
        Object *object = PyList_GetItem(objects, (ssize_t)which);
        Py_IncRef(object);
        if (!home || home[which] != (uintptr_t)object)
            *(Object **)slot = object;
    }
    return 0;
}

/* What is freed of an array may be used for another one, so that it is this process's own. */
static int own_shape(Object *array)
{
    size_t bytes = 16 * (size_t)ARRAY_DIMENSIONS(array);
    /* There is always room for two. */
    int64_t *own = PyMem_RawMalloc(bytes > 32 ? bytes : 32);
    if (!own) {
        PyErr_SetString(PyExc_MemoryError, "there is no memory to map an array");
        return -1;
    }
    memcpy(own, ARRAY_SHAPE(array), bytes);
    ARRAY_SHAPE(array) = own;
    ARRAY_STRIDES(array) = own + ARRAY_DIMENSIONS(array);
    return 0;
}

int heap_settle(const struct head *head, Object *types)
{
    const uint64_t *addresses = (const uint64_t *)head->arrays.at, *moved = (const uint64_t *)head->moved.at;
    for (uint64_t index = 0; index < head->moved.count; index++, moved += 2) {
        if (moved[0] % 8 || !is_inside(head, moved[0], 8) || (!is_static(moved[1]) && !is_inside(head, moved[1], 16)))
            return broken();
        *(uint64_t *)moved[0] = moved[1];
    }
    if ((uint64_t)PyList_Size(types) != head->homes.count || put(head, &head->typed, types, &head->homes) < 0)
        return PyErr_Occurred() ? -1 : broken();
    for (uint64_t index = 0; index < head->arrays.count; index++) {
        Object *array = (Object *)addresses[index];
        int is_sound = is_inside(head, addresses[index], ARRAY_BYTES) && ARRAY_DIMENSIONS(array) >= 0 &&
                       ARRAY_DIMENSIONS(array) <= ARRAY_DIMENSIONS_MAX &&
                       is_inside(head, (uint64_t)ARRAY_SHAPE(array), 16 * (uint64_t)ARRAY_DIMENSIONS(array));
        if (!is_sound)
            return broken();
        if (own_shape(array) < 0)
            return -1;
    }
    return 0;
}

Object *heap_value(const struct head *head, Object *foreign)
{
    if (put(head, &head->patches, foreign, NULL) < 0 || (!head->root && PyList_Size(foreign) < 1)) {
        if (!PyErr_Occurred())
            broken();
        return NULL;
    }
    Object *value = head->root ? (Object *)head->root : PyList_GetItem(foreign, 0);
    Py_IncRef(value);
    return value;
}
