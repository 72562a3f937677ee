/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is short by all that can be in it, at a glance: numbers, texts, bytes and
 * None, and lists, tuples and dicts of these, of exactly those types. To pickle
 * them runs nobody's code. Nothing of Python's runs while they are looked at.
 */
#include "heap.h"

/* One in another; cycles end there, and what a cycle means is not short. */
#define DEPTH_MAX 16
/* To look at more takes longer than to try. */
#define ITEMS_MAX 1024
/* Bytes that one has in a pickle at most, with its place in the memo, besides those of a text's characters. */
#define OF_EACH 12
#define OF_A_NUMBER 6
/* What begins and ends it. */
#define OF_A_PICKLE 16
#define OF_A_CHARACTER 4

/* What is left of both bounds. */
struct left {
    size_t bytes, items;
};

/* Takes what a value may have in a pickle of what is left; whether there was as much. */
static int takes(Object *value, struct left *left, int depth)
{
    Type *type = value->type;
    if (left->bytes < OF_EACH)
        return 0;
    if (type == &PyLong_Type) {
        int is_long = 0;
        long long number = PyLong_AsLongLongAndOverflow(value, &is_long);
        left->bytes -= number == (int32_t)number ? OF_A_NUMBER : OF_EACH;
        return !is_long;
    }
    left->bytes -= OF_EACH;
    if (value == &_Py_NoneStruct || type == &PyFloat_Type || type == &PyBool_Type)
        return 1;
    if (type == &PyUnicode_Type || type == &PyBytes_Type) {
        size_t each = type == &PyUnicode_Type ? OF_A_CHARACTER : 1;
        size_t length = (size_t)(type == &PyUnicode_Type ? PyUnicode_GetLength(value) : PyBytes_Size(value));
        if (length > left->bytes / each)
            return 0;
        left->bytes -= length * each;
        return 1;
    }
    if (depth == DEPTH_MAX)
        return 0;
    if (type != &PyList_Type && type != &PyTuple_Type && type != &PyDict_Type)
        return 0;
    ssize_t count = type == &PyList_Type ? PyList_Size(value) : type == &PyTuple_Type ? PyTuple_Size(value) : PyDict_Size(value);
    int is_short = (size_t)count <= left->items;
    left->items -= is_short ? (size_t)count : 0;
    if (type == &PyDict_Type) {
        ssize_t at = 0;
        Object *key, *item;
        while (is_short && PyDict_Next(value, &at, &key, &item))
            is_short = takes(key, left, depth + 1) && takes(item, left, depth + 1);
        return is_short;
    }
    for (ssize_t at = 0; is_short && at < count; at++) {
        Object *item = type == &PyList_Type ? PyList_GetItem(value, at) : PyTuple_GetItem(value, at);
        is_short = takes(item, left, depth + 1);
    }
    return is_short;
}

int heap_is_plain(Object *value, size_t most)
{
    struct left left = {most < OF_A_PICKLE ? 0 : most - OF_A_PICKLE, ITEMS_MAX};
    return takes(value, &left, 0);
}
