/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether nobody but a value refers to what it is made of, so that it may be given
 * away itself, instead of a copy: all references to each of its objects are
 * counted, and come from others of them, as the collector counts to find what is
 * garbage. What nobody can change may be anybody's as well.
 *
 * Which types may be given away is judged elsewhere (guests/python/owned.py), once
 * for each, and again if how they are pickled has changed. Nothing of Python's
 * runs while a value is looked at.
 */
#include "heap_write.h"

#include <string.h>

/* As in owned.py. */
enum kind {
    UNKNOWN,
    /* Nobody can change it. */
    LEAF,
    /* It refers to nothing that is not its own. */
    OPAQUE,
    /* What it refers to is what the collector is told. */
    WALKED,
    /* The same, and it may be anybody's if nobody can change what is in it. */
    TUPLE,
    ARRAY,
    /* A weak reference, as libraries have them to what they are part of. */
    WEAK,
    REFUSED
};

/* Not all of it is known, others refer to some of it, or nobody does. */
enum owned { NOT_KNOWN, SHARED, OWNED };

#define TYPE_IS_CLASS (1ul << 31)
#define TRAVERSE(type) ((int (*)(Object *, int (*)(Object *, void *), void *))(type)->slots_2[1])
/* Types and functions that are known; what a value may refer to, and constants in each other. */
#define KNOWN_MAX 4096
#define EDGES_MAX (1ul << 28)
#define CONSTANT_DEPTH 4
/* Items that are fetched before they are looked at. */
#define AHEAD 24
/* More objects with several references: the table is given back afterwards. */
#define SHARED_KEPT (16ul << 10)
/* References are fewer; what is never freed has more. */
#define REFERENCES_MAX (1l << 30)

#define WEAK_TO(weak) FIELD(weak, 16, Object *)
#define WEAK_CALLBACK(weak) FIELD(weak, 24, Object *)
#define WEAK_NEXT(weak) FIELD(weak, 48, Object *)
#define ARRAY_BASE(array) FIELD(array, 48, Object *)
#define ELEMENT_TYPE(element) FIELD(element, 28, int)
#define CONTIGUOUS 0x3
#define OWNS_DATA 0x4
#define MAY_BE_WRITTEN 0x400
#define WRITES_BACK 0x2000
#define HAS_REFERENCES 0x1
enum { NUMBERS_LAST = 16, OBJECTS = 17, TEXT = 19, RECORD = 20, HALF = 23 };

/* How what is made of a type is pickled: if any of it is another than when the type was judged, it is judged again. */
static const char *const TELLING[] = {"__reduce__",   "__reduce_ex__",    "__getstate__", "__setstate__",
                                      "__getnewargs__", "__getnewargs_ex__", "__new__",   "__del__"};
#define TELLINGS (sizeof TELLING / sizeof *TELLING)

static struct known {
    enum kind kind;
    int is_library;
    /* The name of an attribute that says whether it has something of others. */
    Object *is_shared;
    Object *telling[TELLINGS];
    unsigned looked_at;
} known[KNOWN_MAX];
static size_t known_count;
static struct memo places;
static Object *telling_names[TELLINGS];
static size_t element_size_at;

/* What has several references: how many of them were not met, and one; and at addresses that are one more, of what is
 * weakly referred to, how many such there are, and how many of those were met. */
static struct memo shared;
static struct words met, pending;

static struct walk {
    unsigned number;
    size_t edges;
    Object *unknown;
    int is_class_or_function, is_library;
    Type *type;
} walk;

static int is_atom(const Object *object)
{
    const Type *type = object->type;
    return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || object == &_Py_NoneStruct ||
           type == &PyBytes_Type || type == &PyBool_Type || type == &PyComplex_Type;
}

static Object *found(Type *type, size_t index)
{
    if (!telling_names[index] && !(telling_names[index] = PyUnicode_InternFromString(TELLING[index]))) {
        PyErr_Clear();
        return NULL;
    }
    return _PyType_Lookup(type, telling_names[index]);
}

static int is_as_judged(struct known *one, Type *type)
{
    if (one->looked_at == walk.number)
        return 1;
    for (size_t index = 0; index < TELLINGS && type->flags & TYPE_HEAP; index++)
        if (found(type, index) != one->telling[index])
            return 0;
    /* Somebody may have registered it since. */
    int is_registered = registered && PyDict_Contains(registered, (Object *)type);
    one->kind = is_registered ? REFUSED : one->kind;
    one->looked_at = walk.number;
    return 1;
}

static int asks(Object *unknown, int is_class_or_function)
{
    walk.unknown = unknown;
    walk.is_class_or_function = is_class_or_function;
    return 0;
}

static struct known *known_type(Type *type)
{
    uint64_t place = memo_find(&places, (uintptr_t)type);
    if (place && is_as_judged(&known[place - 1], type))
        return &known[place - 1];
    asks((Object *)type, 0);
    return NULL;
}

/* Whether nobody can change it, nor anything in it. */
static int is_constant(Object *object, int depth)
{
    if (is_atom(object))
        return 1;
    if (object->type == &PyTuple_Type && depth < CONSTANT_DEPTH) {
        for (ssize_t at = 0; at < SIZE(object); at++)
            if (!is_constant(TUPLE_ITEMS(object)[at], depth + 1))
                return 0;
        return 1;
    }
    uint64_t place = memo_find(&places, (uintptr_t)object->type);
    return place && known[place - 1].kind == LEAF && is_as_judged(&known[place - 1], object->type);
}

/* Notes that a reference was met; whether it is the first one. -1 if there are more than it has. */
static int is_first(Object *object)
{
    int64_t references = object->references;
    if (references == 1)
        return 1;
    if (references < 1 || references > REFERENCES_MAX)
        return -1;
    uint64_t left = memo_find(&shared, (uintptr_t)object);
    if (left == 1)
        return -1;
    if (!memo_set(&shared, (uintptr_t)object, left ? left - 1 : (uint64_t)references))
        return -1;
    return left ? 0 : words_add(&met, (uintptr_t)object) ? 1 : -1;
}

/* Notes weak references to something: those that there are, and one that was met. */
static int notes_weak(const Object *object, uint64_t there, uint64_t found)
{
    uintptr_t key = (uintptr_t)object + 1;
    uint64_t before = memo_find(&shared, key);
    if (!before && !words_add(&met, key))
        return 0;
    return memo_set(&shared, key, (before ? before : 1ul << 63) + (there << 32) + found);
}

static int has_known_weak(Object *object)
{
    ssize_t at = object->type->weak_list_offset;
    uint64_t count = 0;
    for (Object *weak = at ? FIELD(object, at, Object *) : NULL; weak; weak = WEAK_NEXT(weak))
        count++;
    return !count || notes_weak(object, count, 0);
}

/* Whether nobody else has the dictionary of an instance: from 3.13 on it is not told of where the values are in the instance. */
static int has_own_dictionary(Object *object)
{
    if (!(object->type->flags & TYPE_MANAGED_DICT))
        return 1;
    uintptr_t dictionary = FIELD((uintptr_t)object - layout.dictionary_before, 0, uintptr_t);
    /* In 3.12 it may be the values instead. */
    return !dictionary || dictionary & 1 || ((Object *)dictionary)->references == 1;
}

static int weak_met(Object *weak)
{
    if (!walk.is_library || WEAK_CALLBACK(weak))
        return 0;
    int first = is_first(weak);
    Object *to = WEAK_TO(weak);
    return first >= 0 && (first == 0 || to == &_Py_NoneStruct || notes_weak(to, 0, 1));
}

/* A class or function, which is the same one wherever it is looked up. */
static int reference_met(Object *object)
{
    if (object->type->flags & TYPE_IS_CLASS && !(((Type *)object)->flags & TYPE_HEAP))
        return 1;
    uint64_t place = memo_find(&places, (uintptr_t)object + 1);
    return place ? known[place - 1].kind == LEAF : asks(object, 1);
}

static int met_of(Object *object, enum kind kind, int is_library)
{
    int first = is_first(object);
    if (first <= 0)
        return first == 0;
    if (!has_known_weak(object) || !has_own_dictionary(object))
        return 0;
    return kind == OPAQUE || words_add(&pending, (uintptr_t)object + (uintptr_t)is_library);
}

/* Whether an array is what its pickle would be: that has no gaps, and may be written to. What a library does with its own is its
 * own affair. */
static int is_as_pickled(const Object *array)
{
    int flags = ARRAY_FLAGS(array);
    return flags & CONTIGUOUS && (walk.is_library || flags & MAY_BE_WRITTEN);
}

/* A reference from something of the value. */
static int edge(Object *object)
{
    if (is_atom(object))
        return 1;
    if (++walk.edges > EDGES_MAX)
        return 0;
    Type *type = object->type;
    if (type == &PyList_Type || type == &PyDict_Type || type == &PySet_Type || type == &PyFrozenSet_Type)
        return met_of(object, WALKED, walk.is_library);
    if (type == &PyTuple_Type)
        return is_constant(object, 0) || met_of(object, TUPLE, walk.is_library);
    if (type == &PyByteArray_Type)
        return met_of(object, OPAQUE, 0);
    if (type->flags & TYPE_IS_CLASS || type == &PyFunction_Type || type == &PyCFunction_Type)
        return reference_met(object);
    struct known *one = known_type(type);
    if (!one || one->kind == REFUSED)
        return 0;
    if (one->kind == LEAF)
        return 1;
    if (one->kind == WEAK)
        return weak_met(object);
    if (one->kind == ARRAY && !is_as_pickled(object))
        return 0;
    return met_of(object, one->kind, walk.is_library | one->is_library);
}

/* As the collector's functions have it: not 0 ends it. */
static int visited(Object *object, void *unused)
{
    (void)unused;
    return object == (Object *)walk.type ? 0 : !edge(object);
}

/* Of many items most are of one type, and each is somewhere else. */
static int items_walked(Object **items, size_t count)
{
    const Type *usual = NULL;
    for (size_t at = 0; at < count; at++) {
        if (at + AHEAD < count)
            __builtin_prefetch(items[at + AHEAD]);
        Object *item = items[at];
        if (!item || item->type == usual)
            continue;
        if (is_atom(item))
            usual = item->type;
        else if (!edge(item))
            return 0;
    }
    return 1;
}

static int has_references(const Object *element)
{
    uint64_t flags = element_size_at == 40 ? FIELD(element, 32, uint64_t) : FIELD(element, 27, uint8_t);
    return (flags & HAS_REFERENCES) != 0;
}

static size_t items_of(const Object *array)
{
    size_t count = 1;
    for (int dimension = 0; dimension < ARRAY_DIMENSIONS(array); dimension++)
        count *= (size_t)ARRAY_SHAPE(array)[dimension];
    return count;
}

/* Elements belong to the array that has their memory. */
static int array_walked(Object *array)
{
    Object *element = ARRAY_ELEMENT(array), *base = ARRAY_BASE(array);
    int kind = ELEMENT_TYPE(element), flags = ARRAY_FLAGS(array);
    if (!element_size_at || flags & WRITES_BACK || !edge(element))
        return 0;
    if (kind < 0 || kind > HALF || (kind == RECORD && has_references(element)))
        return 0;
    if (base)
        return base->type == array->type && !(flags & OWNS_DATA) && met_of(base, ARRAY, walk.is_library);
    if (!(flags & OWNS_DATA))
        return 0;
    return kind != OBJECTS || items_walked((Object **)ARRAY_DATA(array), items_of(array));
}

/* Whether something says of itself that others may have it as well. */
static int says_shared(Object *object, Object *name)
{
    Object *said = name ? PyObject_GetAttr(object, name) : NULL;
    int is_so = name && !(said && is_atom(said) && PyObject_IsTrue(said) == 0);
    if (said)
        Py_DecRef(said);
    else
        PyErr_Clear();
    return is_so;
}

static int walked(Object *object)
{
    Type *type = object->type;
    if (type == &PyList_Type)
        return items_walked(FIELD(object, 24, Object **), (size_t)SIZE(object));
    if (type == &PyTuple_Type)
        return items_walked(TUPLE_ITEMS(object), (size_t)SIZE(object));
    struct known *one = NULL;
    if (type != &PyDict_Type && type != &PySet_Type && type != &PyFrozenSet_Type && !(one = known_type(type)))
        return 0;
    if (one && one->kind == ARRAY)
        return array_walked(object);
    if (one && says_shared(object, one->is_shared))
        return 0;
    walk.type = type;
    return !TRAVERSE(type) || TRAVERSE(type)(object, visited, NULL) == 0;
}

/* Whether all references were met. If not all weak ones were, somebody may be told of the end of what they are to. */
static enum owned all_met(void)
{
    enum owned owned = OWNED;
    for (size_t at = 0; at < met.count; at++) {
        uint64_t value = memo_find(&shared, met.at[at]);
        if (met.at[at] & 1 && (value >> 32 & 0x7fffffff) != (value & 0xffffffff))
            return NOT_KNOWN;
        if (!(met.at[at] & 1) && value != 1)
            owned = SHARED;
    }
    return owned;
}

static void forget_met(void)
{
    if (shared.count > SHARED_KEPT)
        memo_free(&shared);
    else
        for (size_t at = 0; at < met.count; at++)
            memo_set(&shared, met.at[at], 0);
    met.count = pending.count = 0;
}

Object *heap_owned(Object *box)
{
    walk = (struct walk){.number = walk.number + 1};
    int is_known = edge(PyList_GetItem(box, 0));
    while (is_known && pending.count) {
        uint64_t next = pending.at[--pending.count];
        walk.is_library = next & 1;
        is_known = walked((Object *)(next - (next & 1)));
    }
    enum owned owned = is_known ? all_met() : NOT_KNOWN;
    forget_met();
    if (walk.unknown) {
        Object *told = PyTuple_New(2);
        if (!told)
            return NULL;
        Py_IncRef(walk.unknown);
        PyTuple_SetItem(told, 0, walk.unknown);
        PyTuple_SetItem(told, 1, PyBool_FromLong(walk.is_class_or_function));
        return told;
    }
    return owned == SHARED ? none() : PyBool_FromLong(owned == OWNED);
}

static void held(Object **place, Object *object)
{
    Object *before = *place;
    if (object)
        Py_IncRef(object);
    *place = object;
    if (before)
        Py_DecRef(before);
}

int heap_know(Object *object, int is_class_or_function, int kind, int is_library, Object *is_shared)
{
    uintptr_t key = (uintptr_t)object + (is_class_or_function ? 1 : 0);
    uint64_t place = memo_find(&places, key);
    if (!place) {
        if (known_count == KNOWN_MAX || !memo_set(&places, key, known_count + 1))
            return -1;
        /* So that no other one is ever at its address. */
        Py_IncRef(object);
        place = ++known_count;
    }
    struct known *one = &known[place - 1];
    one->kind = (enum kind)kind;
    one->is_library = is_library;
    one->looked_at = 0;
    held(&one->is_shared, is_shared->type == &PyUnicode_Type ? is_shared : NULL);
    for (size_t index = 0; !is_class_or_function && index < TELLINGS; index++)
        held(&one->telling[index], found((Type *)object, index));
    return 0;
}

void heap_know_arrays(size_t size_at)
{
    element_size_at = size_at;
}
