/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only the value has. A list of millions of numbers that its function returns,
 * and nobody else knows, would be ended right after it was handed over: each
 * number, in a page that would have to be copied for it. Its items are left where they
 * are instead, as what they are: pieces of the segment.
 */
#include "heap_write.h"

#include <string.h>

/* Containers that are looked into: in others, items are ended as ever. */
#define ITEMS_MAX 64
#define DEPTH_MAX 4

#define LIST_ITEMS(list) FIELD(list, 24, Object **)
#define LIST_ROOM(list) FIELD(list, 32, int64_t)

/* Lists that are empty now, and what they had. */
static struct left {
    Object *list;
    Object **items;
    int64_t count, room;
} left[ITEMS_MAX];
static size_t left_count;
/* Slots among their items of what is no piece, or has more to be ended than that. */
static struct words moved;
/* Whether the value was handed over: they stay empty. */
static int is_final;

void note_own(struct writer *w, Object *list, size_t moved_from)
{
    if (w->own_count == OWN_MAX)
        return;
    w->own[w->own_count++] = (struct own){list, moved_from, w->moved.count};
}

static const struct own *own_of(const struct writer *w, const Object *list)
{
    for (size_t index = 0; index < w->own_count; index++)
        if (w->own[index].list == list)
            return &w->own[index];
    return NULL;
}

static void leave_items(struct writer *w, const struct own *own)
{
    size_t before = moved.count;
    for (size_t index = own->moved_from; index < own->moved_to; index += 2)
        if (!words_add(&moved, w->moved.at[index])) {
            moved.count = before;
            return;
        }
    Object *list = own->list;
    left[left_count++] = (struct left){list, LIST_ITEMS(list), SIZE(list), LIST_ROOM(list)};
    LIST_ITEMS(list) = NULL;
    SIZE(list) = LIST_ROOM(list) = 0;
}

/* Only what is reached by single references: nobody else ever sees that it is empty. */
static void leave(struct writer *w, Object *object, int depth)
{
    if (!object || object->references != 1 || left_count == ITEMS_MAX || depth == DEPTH_MAX)
        return;
    if (object->type == &PyDict_Type && SIZE(object) <= ITEMS_MAX) {
        ssize_t position = 0;
        for (Object *key, *value; PyDict_Next(object, &position, &key, &value);)
            leave(w, value, depth + 1);
        return;
    }
    const struct own *own = object->type == &PyList_Type ? own_of(w, object) : NULL;
    if (own) {
        leave_items(w, own);
        return;
    }
    if ((object->type != &PyList_Type && object->type != &PyTuple_Type) || SIZE(object) > ITEMS_MAX)
        return;
    Object **items = object->type == &PyList_Type ? LIST_ITEMS(object) : TUPLE_ITEMS(object);
    for (int64_t index = 0; index < SIZE(object); index++)
        leave(w, items[index], depth + 1);
}

void leave_own(struct writer *w)
{
    if (!is_final && w->own_count && PyList_Size(w->foreign) == 0)
        leave(w, PyList_GetItem(w->box, 0), 0);
}

void heap_leave(int is_handed)
{
    if (is_final)
        return;
    is_final = left_count && is_handed;
    for (size_t index = 0; index < left_count && !is_handed; index++) {
        const struct left *one = &left[index];
        LIST_ITEMS(one->list) = one->items;
        SIZE(one->list) = one->count;
        LIST_ROOM(one->list) = one->room;
    }
    if (!is_handed) {
        left_count = 0;
        words_free(&moved);
    }
}

void heap_release(void)
{
    if (!is_final)
        return;
    /* Whatever ends with them may hand over something itself. */
    size_t count = left_count;
    struct words others = moved;
    struct left all[ITEMS_MAX];
    memcpy(all, left, count * sizeof *all);
    left_count = 0;
    moved = (struct words){0};
    is_final = 0;
    for (size_t index = 0; index < others.count; index++) {
        Object **slot = (Object **)others.at[index];
        others.at[index] = (uintptr_t)*slot;
        *slot = NULL;
    }
    for (size_t index = 0; index < count; index++) {
        const struct left *one = &all[index];
        if (segment_give_all((void *const *)one->items, (size_t)one->count))
            for (int64_t item = 0; item < one->count; item++)
                if (is_static((uintptr_t)one->items[item]))
                    Py_DecRef(one->items[item]);
        segment_give(one->items);
    }
    for (size_t index = 0; index < others.count; index++)
        Py_DecRef((Object *)others.at[index]);
    words_free(&others);
}
