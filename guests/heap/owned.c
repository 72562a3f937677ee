/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether nobody but a value refers to what it is made of, so that it may be given
 * away itself, instead of a copy: all references to each of its objects are
 * counted, and come from others of them, as the collector counts to find what is
 * garbage. What nobody can change may be anybody's as well.
 *
 * Which types may be given away is judged elsewhere (guests/python/owned.py), once
 * for each, and again if what says how they are pickled has changed. Nothing of
 * Python's runs while a value is looked at: attributes are asked for of types in C.
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
    ARRAY,
    /* A weak reference, as libraries have them to what they are part of. */
    WEAK,
    REFUSED
};
/* What is asked of each object of a type: nothing; an attribute is None; one is something that nobody can change; Python looks at it. */
enum asked { NOTHING, ABSENT, CONSTANT, LOOKED_AT };
/* What is of a library that has weak references to its parts: nothing; a dictionary of it; a list or tuple of it, which may have such
 * references; its own objects. */
enum level { NONE, PART, LISTED, WEAKLY };
/* Of a type: a library has its objects as parts only. */
#define ONLY_PART 8

/* Not all of it is known, others refer to some of it, or nobody does. */
enum owned { NOT_KNOWN, SHARED, OWNED };

#define TYPE_IS_CLASS (1ul << 31)
#define TRAVERSE(type) ((int (*)(Object *, int (*)(Object *, void *), void *))(type)->slots_2[1])
#define END(type) ((type)->slots_1[0])
/* Types that are known; what a value may refer to; what is not known, and what is looked at by Python, of one value. */
#define KNOWN_MAX 4096
#define EDGES_MAX (1ul << 28)
#define UNKNOWN_MAX 256
#define CHECKED_MAX 4096
/* Constants in each other. */
#define CONSTANT_DEPTH 6
enum { IS_CONSTANT = 1, IS_NOT };
/* Items that are fetched before they are looked at. */
#define AHEAD 24
/* More objects with several references: the table is given back afterwards. */
#define SHARED_KEPT (16ul << 10)
/* References are fewer; what is never freed has more. */
#define REFERENCES_MAX (1l << 30)
/* In the low bits of addresses, which are multiples of 16: where weak references are counted, and constant tuples and what is found by its name are
 * remembered. */
#define OF_WEAK 1
#define OF_CONSTANT 2
#define OF_REFERENCE 4
#define TAGS 15ul

#define WEAK_TO(weak) FIELD(weak, 16, Object *)
#define WEAK_CALLBACK(weak) FIELD(weak, 24, Object *)
#define WEAK_NEXT(weak) FIELD(weak, 48, Object *)

/* How what is made of a type is pickled: if any of it is another than when the type was judged, it is judged again. */
static const char *const TELLING[] = {"__reduce__", "__reduce_ex__", "__getstate__",     "__setstate__", "__getnewargs__", "__getnewargs_ex__",
                                      "__new__",    "__del__",       "__getattribute__", "__getattr__",  "__setattr__",    "__class__"};
#define TELLINGS (sizeof TELLING / sizeof *TELLING)

static struct known {
    Type *type;
    enum kind kind;
    enum level level;
    int is_only_part;
    enum asked asked;
    /* Of the attribute. */
    Object *name;
    Object *telling[TELLINGS];
    unsigned looked_at;
} known[KNOWN_MAX];
static size_t known_count;
static struct memo places;
static Object *telling_names[TELLINGS];

/* What has several references: how many of them were not met, and one; of what is weakly referred to, how many such references there
 * are, and how many of them were met; and tuples that nobody can change. */
static struct memo shared;
static struct words met, pending, looked;

static struct walk {
    unsigned number;
    size_t edges;
    Object *unknown, *checked;
    int is_known;
    /* Some memory is that of two arrays, or more than that of one. */
    int has_views;
    /* What is walked. */
    Object *object;
    enum level level;
} walk;

static int is_noted(Object *list, Object *object, ssize_t most)
{
    if (PyList_Size(list) < most && PyList_Append(list, object) == 0)
        return 1;
    PyErr_Clear();
    return 0;
}

static Object *found(Type *type, size_t index)
{
    if (!telling_names[index] && !(telling_names[index] = PyUnicode_InternFromString(TELLING[index]))) {
        PyErr_Clear();
        return NULL;
    }
    return _PyType_Lookup(type, telling_names[index]);
}

static int is_as_judged(const struct known *one)
{
    for (size_t index = 0; index < TELLINGS && one->type->flags & TYPE_HEAP; index++)
        if (found(one->type, index) != one->telling[index])
            return 0;
    return 1;
}

/* What is known of a type. Of what is not, nothing is thought before Python has judged it: the rest is looked at meanwhile. */
static const struct known *known_type(Type *type)
{
    static const struct known refused = {.kind = REFUSED}, later = {.kind = LEAF};
    uint64_t place = memo_find(&places, (uintptr_t)type);
    struct known *one = place ? &known[place - 1] : NULL;
    if (one && one->looked_at == walk.number)
        return one;
    if (one && is_as_judged(one)) {
        /* Somebody may have registered it since, or it is not where its name says any more. */
        int is_registered = registered && PyDict_Contains(registered, (Object *)type);
        int is_fine = !is_registered && (!(type->flags & TYPE_HEAP) || is_noted(walk.checked, (Object *)type, CHECKED_MAX));
        one->looked_at = is_fine ? walk.number : 0;
        return is_fine ? one : &refused;
    }
    walk.is_known = 0;
    for (ssize_t at = 0; at < PyList_Size(walk.unknown); at++)
        if (PyList_GetItem(walk.unknown, at) == (Object *)type)
            return &later;
    return is_noted(walk.unknown, (Object *)type, UNKNOWN_MAX) ? &later : &refused;
}

static int is_constant(Object *object);
static int is_constant_tuple(Object *tuple, int depth);

/* Whether an object is what its type is asked for. */
static int is_as_asked(Object *object, const struct known *one)
{
    if (one->asked == NOTHING || one->asked == LOOKED_AT)
        return 1;
    Object *value = PyObject_GetAttr(object, one->name);
    int is_so = value && (one->asked == ABSENT ? value == &_Py_NoneStruct : is_constant(value));
    if (value)
        Py_DecRef(value);
    else
        PyErr_Clear();
    return is_so;
}

static int is_leaf(Object *object)
{
    Type *type = object->type;
    if (is_atom(object) || type == &PyComplex_Type)
        return 1;
    if (type->flags & TYPE_IS_CLASS || type == &PyTuple_Type || type == &PyList_Type || type == &PyDict_Type)
        return 0;
    uint64_t place = memo_find(&places, (uintptr_t)type);
    return place && known[place - 1].kind == LEAF && known_type(type) == &known[place - 1] && is_as_asked(object, &known[place - 1]);
}

static int are_constant(Object *tuple, int depth)
{
    for (ssize_t at = 0; at < SIZE(tuple); at++) {
        Object *item = TUPLE_ITEMS(tuple)[at];
        int is_so = ++walk.edges > EDGES_MAX ? 0 : item->type == &PyTuple_Type ? is_constant_tuple(item, depth + 1) : is_leaf(item);
        if (!is_so)
            return 0;
    }
    return 1;
}

/* What several refer to is looked at once. */
static int is_constant_tuple(Object *tuple, int depth)
{
    uintptr_t key = (uintptr_t)tuple + OF_CONSTANT;
    uint64_t known = tuple->references != 1 ? memo_find(&shared, key) : 0;
    if (known)
        return known == IS_CONSTANT;
    int is_so = depth < CONSTANT_DEPTH && are_constant(tuple, depth);
    if (tuple->references != 1 && words_add(&met, key))
        memo_set(&shared, key, is_so ? IS_CONSTANT : IS_NOT);
    return is_so;
}

/* Whether nobody can change it, nor anything in it. */
static int is_constant(Object *object)
{
    return object->type == &PyTuple_Type ? is_constant_tuple(object, 0) : is_leaf(object);
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
    if (left == 1 || !memo_set(&shared, (uintptr_t)object, left ? left - 1 : (uint64_t)references))
        return -1;
    return left ? 0 : words_add(&met, (uintptr_t)object) ? 1 : -1;
}

/* Notes weak references to something: those that there are, and one that was met. */
static int notes_weak(const Object *object, uint64_t there, uint64_t found)
{
    uintptr_t key = (uintptr_t)object + OF_WEAK;
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

/* The dictionary of an instance, if it has one: in 3.12 its values may be there instead. */
static Object *dictionary_of(Object *object)
{
    if (!(object->type->flags & TYPE_MANAGED_DICT))
        return NULL;
    uintptr_t dictionary = FIELD((uintptr_t)object - layout.dictionary_before, 0, uintptr_t);
    return dictionary & 1 ? NULL : (Object *)dictionary;
}

/* Whether nobody else has it: from 3.13 on it is not told of where the values are in the instance. */
static int has_own_dictionary(Object *object)
{
    Object *dictionary = dictionary_of(object);
    return !dictionary || dictionary->references == 1;
}

static int weak_met(Object *weak)
{
    if (walk.level < LISTED || WEAK_CALLBACK(weak))
        return 0;
    int first = is_first(weak);
    Object *to = WEAK_TO(weak);
    return first >= 0 && (first == 0 || to == &_Py_NoneStruct || notes_weak(to, 0, 1));
}

static int met_of(Object *object, enum kind kind, enum level level, enum asked asked)
{
    int first = is_first(object);
    if (first <= 0)
        return first == 0;
    if (!has_known_weak(object) || !has_own_dictionary(object))
        return 0;
    if (asked == LOOKED_AT && (looked.count == CHECKED_MAX || !words_add(&looked, (uintptr_t)object)))
        return 0;
    return kind == OPAQUE || words_add(&pending, (uintptr_t)object + level);
}

/* Whether an array is what its pickle would be: that has no gaps, and may be written to. */
static int is_as_pickled(const Object *array)
{
    int flags = ARRAY_FLAGS(array);
    return flags & CONTIGUOUS && flags & MAY_BE_WRITTEN;
}

/* A class or function is the same one wherever it is looked up by its name, which Python looks at once. */
static int reference_met(Object *object)
{
    uintptr_t key = (uintptr_t)object + OF_REFERENCE;
    if (memo_find(&shared, key))
        return 1;
    return is_noted(walk.checked, object, CHECKED_MAX) && words_add(&met, key) && memo_set(&shared, key, 1);
}

/* A reference from what is walked to something of a known type. */
static int edge_to_known(Object *object, const struct known *one)
{
    if (one->kind == REFUSED || (one->kind == ARRAY && !is_as_pickled(object)) || (one->is_only_part && walk.level == NONE))
        return 0;
    if (one->kind == WEAK)
        return weak_met(object);
    if (one->kind == LEAF)
        return is_as_asked(object, one);
    return is_as_asked(object, one) && met_of(object, one->kind, one->level, one->asked);
}

/* A reference from what is walked. */
static int edge(Object *object)
{
    Type *type = object->type;
    if (is_atom(object) || type == &PyComplex_Type)
        return 1;
    if (++walk.edges > EDGES_MAX)
        return 0;
    if (type == &PyTuple_Type && is_constant(object))
        return 1;
    /* A list of a library's own has what that has. */
    if (type == &PyList_Type || type == &PyTuple_Type)
        return met_of(object, WALKED, walk.level == WEAKLY ? LISTED : NONE, NOTHING);
    if (type == &PyDict_Type)
        return met_of(object, WALKED, walk.object && object == dictionary_of(walk.object) ? walk.level : walk.level == WEAKLY ? PART : NONE, NOTHING);
    if (type == &PySet_Type || type == &PyFrozenSet_Type)
        return met_of(object, WALKED, NONE, NOTHING);
    if (type == &PyByteArray_Type)
        return met_of(object, OPAQUE, NONE, NOTHING);
    if (type->flags & TYPE_IS_CLASS || type == &PyFunction_Type || type == &PyCFunction_Type)
        return reference_met(object);
    return edge_to_known(object, known_type(type));
}

/* As the collector's functions have it: not 0 ends it. */
static int visited(Object *object, void *type)
{
    return object == (Object *)type ? 0 : !edge(object);
}

/* Of many items most are of one type, and each is somewhere else. */
static int items_walked(Object **items, size_t count)
{
    const Type *usual = NULL;
    const Object *last = NULL;
    walk.edges += count;
    for (size_t at = 0; at < count; at++) {
        if (at + AHEAD < count)
            __builtin_prefetch(items[at + AHEAD]);
        Object *item = items[at];
        if (!item || item->type == usual || item == last)
            continue;
        if (is_atom(item))
            usual = item->type;
        else if (at + 1 < count && items[at + 1] == item && is_leaf(item))
            last = item;
        else if (!edge(item))
            return 0;
    }
    return 1;
}

static size_t items_of(const Object *array)
{
    size_t count = 1;
    for (int dimension = 0; dimension < ARRAY_DIMENSIONS(array); dimension++)
        count *= (size_t)ARRAY_SHAPE(array)[dimension];
    return count;
}

/* Whether elements of one are those of the other: they are alike, or truths and small numbers. */
static int are_alike(const Object *one, const Object *other)
{
    const Object *of_one = ARRAY_ELEMENT(one), *of_other = ARRAY_ELEMENT(other);
    return of_one == of_other || (ELEMENT_TYPE(of_one) <= BYTE_LAST && ELEMENT_TYPE(of_other) <= BYTE_LAST);
}

/* Elements belong to the array that has their memory. A view is given away if it is all of that, and the only one. */
static int array_walked(Object *array)
{
    Object *element = ARRAY_ELEMENT(array), *base = ARRAY_BASE(array);
    int kind = ELEMENT_TYPE(element), flags = ARRAY_FLAGS(array);
    if (flags & WRITES_BACK || !edge(element) || kind < 0 || kind > HALF || kind == RECORD)
        return 0;
    if (base) {
        if (base->type != array->type || flags & OWNS_DATA)
            return 0;
        walk.has_views |= base->references != 1 || items_of(base) != items_of(array) || !are_alike(base, array);
        return met_of(base, ARRAY, NONE, NOTHING);
    }
    if (!(flags & OWNS_DATA))
        return 0;
    return kind != OBJECTS || items_walked((Object **)ARRAY_DATA(array), items_of(array));
}

static int walked(Object *object, enum level level)
{
    Type *type = object->type;
    walk.object = object;
    walk.level = level;
    if (type == &PyList_Type)
        return items_walked(FIELD(object, 24, Object **), (size_t)SIZE(object));
    if (type == &PyTuple_Type)
        return items_walked(TUPLE_ITEMS(object), (size_t)SIZE(object));
    if (type != &PyDict_Type && type != &PySet_Type && type != &PyFrozenSet_Type && known_type(type)->kind == ARRAY)
        return array_walked(object);
    return !TRAVERSE(type) || TRAVERSE(type)(object, visited, type) == 0;
}

/* Whether all references were met. If not all weak ones were, somebody may be told of the end of what they are to. Others are to what
 * is not part of the value. */
static enum owned all_met(void)
{
    enum owned owned = walk.has_views ? SHARED : OWNED;
    for (size_t at = 0; at < met.count; at++) {
        uint64_t value = memo_find(&shared, met.at[at]);
        uint64_t there = value >> 32 & 0x7fffffff, found = value & 0xffffffff;
        if (met.at[at] & OF_WEAK && there > found)
            return NOT_KNOWN;
        if (met.at[at] & OF_WEAK ? there != found : !(met.at[at] & TAGS) && value != 1)
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
    met.count = pending.count = looked.count = 0;
}

/* What is to be told: it gives away its reference. */
static Object *told(Object *first, Object *second)
{
    Object *pair = first && second ? PyTuple_New(2) : NULL;
    if (pair) {
        PyTuple_SetItem(pair, 0, first);
        PyTuple_SetItem(pair, 1, second);
        return pair;
    }
    if (first)
        Py_DecRef(first);
    if (second)
        Py_DecRef(second);
    return NULL;
}

Object *heap_owned(Object *box)
{
    walk = (struct walk){.number = walk.number + 1, .unknown = PyList_New(0), .checked = PyList_New(0), .is_known = 1};
    if (!walk.unknown || !walk.checked)
        return told(walk.unknown, walk.checked);
    int is_fine = edge(PyList_GetItem(box, 0));
    while (is_fine && pending.count) {
        uint64_t next = pending.at[--pending.count];
        is_fine = walked((Object *)(next & ~TAGS), (enum level)(next & TAGS));
    }
    enum owned owned = is_fine ? all_met() : NOT_KNOWN;
    for (size_t at = 0; at < looked.count && owned; at++)
        owned = is_noted(walk.checked, (Object *)looked.at[at], 2 * CHECKED_MAX) ? owned : NOT_KNOWN;
    forget_met();
    if (!walk.is_known) {
        Py_DecRef(walk.checked);
        return told(none(), walk.unknown);
    }
    Py_DecRef(walk.unknown);
    return told(PyLong_FromUnsignedLongLong(owned), walk.checked);
}

size_t heap_references_met(void)
{
    return walk.edges;
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

int heap_know(Object *type, int kind, int level, int asked, Object *name)
{
    uint64_t place = memo_find(&places, (uintptr_t)type);
    if (!place) {
        if (known_count == KNOWN_MAX || !memo_set(&places, (uintptr_t)type, known_count + 1))
            return -1;
        /* So that no other one is ever at its address. */
        Py_IncRef(type);
        place = ++known_count;
    }
    struct known *one = &known[place - 1];
    one->type = (Type *)type;
    one->kind = (enum kind)kind;
    one->level = (enum level)(level & ~ONLY_PART);
    one->is_only_part = (level & ONLY_PART) != 0;
    one->asked = (enum asked)asked;
    one->looked_at = 0;
    held(&one->name, name->type == &PyUnicode_Type ? name : NULL);
    for (size_t index = 0; index < TELLINGS; index++)
        held(&one->telling[index], found((Type *)type, index));
    return 0;
}

int heap_ends_alike(Object *type, Object *other)
{
    return END((Type *)type) == END((Type *)other);
}
