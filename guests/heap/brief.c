/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is plain and short, told at once: a copy of it for a step that follows,
 * and its pickle if it is one number, text, piece of bytes, truth value or None.
 * That is byte by byte what `pickle.dumps(value, 5)` makes of it (Lib/pickle.py
 * names the opcodes), which takes over twenty microseconds for a number where
 * something else has run before and nothing of it is in the processor's caches.
 */
#include "heap.h"

#include <string.h>

#define FRAME_HEAD 9
/* A frame that would be shorter is none. */
#define FRAME_MIN 4
#define SHORT_MAX 255

/* A pickle that is being written: the head of a frame goes in front when its length is known. */
struct pickle {
    size_t length;
    unsigned char body[BRIEF_MAX + 16];
};

static void adds(struct pickle *pickle, const void *bytes, size_t length)
{
    memcpy(pickle->body + pickle->length, bytes, length);
    pickle->length += length;
}

static void adds_one(struct pickle *pickle, unsigned char byte)
{
    pickle->body[pickle->length++] = byte;
}

/* A number of so many bytes, the lowest first. */
static void adds_number(struct pickle *pickle, uint64_t number, unsigned length)
{
    for (unsigned at = 0; at < length; at++)
        adds_one(pickle, (unsigned char)(number >> 8 * at));
}

/* BININT1, BININT2, BININT, and LONG1 with as few bytes as have its sign. */
static void adds_int(struct pickle *pickle, long long number)
{
    if (number == (int32_t)number) {
        int is_short = number >= 0 && number < 1 << 16;
        adds_one(pickle, !is_short ? 'J' : number < 1 << 8 ? 'K' : 'M');
        adds_number(pickle, (uint64_t)number, !is_short ? 4 : number < 1 << 8 ? 1 : 2);
        return;
    }
    unsigned length = 8;
    while (number >> (8 * length - 9) == 0 || number >> (8 * length - 9) == -1)
        length--;
    adds_one(pickle, 0x8a);
    adds_one(pickle, (unsigned char)length);
    adds_number(pickle, (uint64_t)number, length);
}

static void adds_float(struct pickle *pickle, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    adds_one(pickle, 'G');
    for (int at = 7; at >= 0; at--)
        adds_one(pickle, (unsigned char)(bits >> 8 * at));
}

/* With a place in the memo. */
static void adds_text(struct pickle *pickle, const char opcodes[2], const void *bytes, size_t length)
{
    int is_short = length <= SHORT_MAX;
    adds_one(pickle, (unsigned char)opcodes[!is_short]);
    adds_number(pickle, length, is_short ? 1 : 4);
    adds(pickle, bytes, length);
    adds_one(pickle, 0x94);
}

/* Whether a value is one of these, and was written. */
static int is_written(struct pickle *pickle, Object *value)
{
    const Type *type = value->type;
    ssize_t length;
    if (type == &PyLong_Type) {
        int is_long = 0;
        adds_int(pickle, PyLong_AsLongLongAndOverflow(value, &is_long));
        return !is_long;
    }
    if (type == &PyUnicode_Type) {
        const char *text = PyUnicode_AsUTF8AndSize(value, &length);
        if (text && (size_t)length <= BRIEF_MAX)
            adds_text(pickle, "\x8cX", text, (size_t)length);
        /* Lone surrogates have none. */
        if (!text)
            PyErr_Clear();
        return text && (size_t)length <= BRIEF_MAX;
    }
    if (type == &PyBytes_Type) {
        length = PyBytes_Size(value);
        if ((size_t)length <= BRIEF_MAX)
            adds_text(pickle, "CB", (const char *)value + BYTES_HEAD, (size_t)length);
        return (size_t)length <= BRIEF_MAX;
    }
    if (type == &PyFloat_Type)
        adds_float(pickle, PyFloat_AsDouble(value));
    else if (type == &PyBool_Type)
        adds_one(pickle, value == &_Py_TrueStruct ? 0x88 : 0x89);
    else if (value == &_Py_NoneStruct)
        adds_one(pickle, 'N');
    return pickle->length > 0;
}

/* The pickle of a value that is no container; NULL if it is one. */
static Object *pickled(Object *value)
{
    struct pickle pickle = {0, {0}};
    unsigned char head[2 + FRAME_HEAD] = {0x80, 5, 0x95};
    if (!is_written(&pickle, value))
        return NULL;
    adds_one(&pickle, '.');
    for (unsigned at = 0; at < 8; at++)
        head[3 + at] = (unsigned char)((uint64_t)pickle.length >> 8 * at);
    size_t head_length = pickle.length < FRAME_MIN ? 2 : sizeof head;
    Object *made = PyBytes_FromStringAndSize(NULL, (ssize_t)(head_length + pickle.length));
    if (!made) {
        PyErr_Clear();
        return NULL;
    }
    memcpy((char *)made + BYTES_HEAD, head, head_length);
    memcpy((char *)made + BYTES_HEAD + head_length, pickle.body, pickle.length);
    return made;
}

/* Two objects, of which the first may be none; both are taken over. */
static Object *pair(Object *first, Object *second)
{
    Object *both = PyTuple_New(2);
    if (!both) {
        PyErr_Clear();
        Py_DecRef(first);
        Py_DecRef(second);
        return none();
    }
    PyTuple_SetItem(both, 0, first);
    PyTuple_SetItem(both, 1, second);
    return both;
}

Object *heap_brief(Object *value)
{
    if (!heap_is_plain(value, BRIEF_MAX))
        return none();
    /* What is made from now on is not what is handed over. */
    segment_stop();
    Object *told = pickled(value);
    if (told) {
        Py_IncRef(value);
        return pair(value, told);
    }
    Object *copy = heap_plain_copied(value);
    return pair(copy ? copy : none(), none());
}
