/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of what is made of lists, tuples, dicts, numbers, texts, bytes and None,
 * of exactly those types: what pickle would make of them, in a fraction of the
 * time. What nobody can change is not copied, and what is one object stays one.
 * Nothing of Python's runs meanwhile.
 */
#include "heap.h"

/* One in another. */
#define DEPTH_MAX 16
#define ITEMS_MAX (48 << 10)
/* Lists and dicts that others refer to as well: each may be met again. */
#define SHARED_MAX 64

struct copying {
    size_t items;
    unsigned shared;
    struct pair {
        const Object *from;
        Object *to;
    } pairs[SHARED_MAX];
};

static Object *copied(struct copying *copying, Object *value, int depth);

static Object *same(Object *value)
{
    Py_IncRef(value);
    return value;
}

/* Who copies something that may be met again says so before what is in it. */
static int is_noted(struct copying *copying, const Object *from, Object *to)
{
    if (from->references == 1)
        return 1;
    if (copying->shared == SHARED_MAX)
        return 0;
    copying->pairs[copying->shared++] = (struct pair){from, to};
    return 1;
}

/* What was made, if all of it was. */
static Object *whole(Object *made, int is_whole)
{
    if (made && !is_whole)
        Py_DecRef(made);
    return is_whole ? made : NULL;
}

static Object *list_copied(struct copying *copying, Object *list, int depth)
{
    ssize_t count = PyList_Size(list);
    Object *to = PyList_New(count);
    int is_whole = to && is_noted(copying, list, to);
    for (ssize_t at = 0; is_whole && at < count; at++) {
        Object *item = PyList_GetItem(list, at);
        Object *other = is_atom(item) ? same(item) : copied(copying, item, depth + 1);
        is_whole = other && PyList_SetItem(to, at, other) == 0;
    }
    return whole(to, is_whole);
}

/* One of what nobody can change is itself. One that is met again inside of itself is not made: `copied` finds none. */
static Object *tuple_copied(struct copying *copying, Object *tuple, int depth)
{
    ssize_t count = PyTuple_Size(tuple);
    ssize_t leaves = 0;
    while (leaves < count && is_atom(PyTuple_GetItem(tuple, leaves)))
        leaves++;
    if (leaves == count)
        return same(tuple);
    Object *to = PyTuple_New(count);
    unsigned place = copying->shared;
    int is_whole = to && is_noted(copying, tuple, NULL);
    /* More refer to it when it is its own copy. */
    int is_shared = copying->shared > place, is_same = 1;
    for (ssize_t at = 0; is_whole && at < count; at++) {
        Object *item = PyTuple_GetItem(tuple, at);
        Object *other = copied(copying, item, depth + 1);
        is_same = is_same && other == item;
        is_whole = other && PyTuple_SetItem(to, at, other) == 0;
    }
    if (!is_whole || is_same) {
        if (to)
            Py_DecRef(to);
        to = is_whole ? same(tuple) : NULL;
    }
    if (is_whole && is_shared)
        copying->pairs[place].to = to;
    return to;
}

static Object *dict_copied(struct copying *copying, Object *dict, int depth)
{
    ssize_t at = 0;
    Object *key, *item, *to = PyDict_New();
    int is_whole = to && is_noted(copying, dict, to);
    while (is_whole && PyDict_Next(dict, &at, &key, &item)) {
        Object *own = copied(copying, key, depth + 1), *other = own ? copied(copying, item, depth + 1) : NULL;
        is_whole = other && PyDict_SetItem(to, own, other) == 0;
        if (own)
            Py_DecRef(own);
        if (other)
            Py_DecRef(other);
    }
    return whole(to, is_whole);
}

/* A reference of its own; NULL for what is not copied so. */
static Object *copied(struct copying *copying, Object *value, int depth)
{
    if (is_atom(value))
        return same(value);
    const Type *type = value->type;
    if (depth == DEPTH_MAX || (type != &PyList_Type && type != &PyTuple_Type && type != &PyDict_Type))
        return NULL;
    for (unsigned at = 0; value->references != 1 && at < copying->shared; at++)
        if (copying->pairs[at].from == value)
            return copying->pairs[at].to ? same(copying->pairs[at].to) : NULL;
    ssize_t count = type == &PyList_Type ? PyList_Size(value) : type == &PyTuple_Type ? PyTuple_Size(value) : PyDict_Size(value);
    if ((size_t)count > copying->items)
        return NULL;
    copying->items -= (size_t)count;
    return type == &PyList_Type    ? list_copied(copying, value, depth)
           : type == &PyTuple_Type ? tuple_copied(copying, value, depth)
                                   : dict_copied(copying, value, depth);
}

Object *heap_plain_copied(Object *value)
{
    struct copying copying = {ITEMS_MAX, 0, {{NULL, NULL}}};
    /* A collection might run somebody's code. */
    int is_known = PyGC_Disable && PyGC_Enable, was_collected = is_known && PyGC_Disable();
    Object *copy = is_known ? copied(&copying, value, 0) : NULL;
    if (was_collected)
        PyGC_Enable();
    if (PyErr_Occurred())
        PyErr_Clear();
    return copy;
}

Object *heap_plain_copy(Object *value)
{
    Object *copy = heap_plain_copied(value);
    Object *told = copy ? PyTuple_New(1) : NULL;
    if (told)
        PyTuple_SetItem(told, 0, copy);
    else if (copy)
        Py_DecRef(copy);
    return told ? told : same(&_Py_NoneStruct);
}
