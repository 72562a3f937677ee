/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is used of CPython: only the few declarations that are needed are
 * repeated here, for its headers are not everywhere. The functions are of its
 * API. Where objects have their parts is not: that is looked up for the
 * versions that are known (heap.c), and each process checks it before it
 * relies on it.
 */
#ifndef SINEW_PYTHON_H
#define SINEW_PYTHON_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct type Type;

typedef struct object {
    int64_t references;
    Type *type;
} Object;

/* The beginning of a type, up to what is looked at. */
struct type {
    Object object;
    ssize_t size;
    const char *name;
    ssize_t basic_size, item_size;
    void *slots_1[15];
    unsigned long flags;
    void *slots_2[4];
    ssize_t weak_list_offset;
};

#define TYPE_MANAGED_DICT (1ul << 4)
#define TYPE_HEAP (1ul << 9)
#define TYPE_GC (1ul << 14)
#define CALL_NONE 0x0004
#define CALL_ONE 0x0008

struct method {
    const char *name;
    Object *(*call)(Object *, Object *);
    int flags;
    const char *doc;
};

struct allocator {
    void *context;
    void *(*malloc)(void *context, size_t size);
    void *(*calloc)(void *context, size_t count, size_t size);
    void *(*realloc)(void *context, void *at, size_t size);
    void (*free)(void *context, void *at);
};

/* Of the memory that objects lie in. */
struct arena_allocator {
    void *context;
    void *(*alloc)(void *context, size_t size);
    void (*free)(void *context, void *arena, size_t size);
};

/* Of memory for arrays, as NumPy has it (NEP 49). */
struct array_allocator {
    char name[127];
    uint8_t version;
    void *context;
    void *(*malloc)(void *context, size_t size);
    void *(*calloc)(void *context, size_t count, size_t size);
    void *(*realloc)(void *context, void *at, size_t size);
    void (*free)(void *context, void *at, size_t size);
};

struct buffer {
    void *at;
    Object *object;
    ssize_t length, item_size;
    int is_readonly, dimensions;
    char *format;
    ssize_t *shape, *strides, *suboffsets;
    void *internal;
};

extern Type PyType_Type, PyBool_Type, PyLong_Type, PyFloat_Type, PyComplex_Type, PyUnicode_Type, PyBytes_Type, PyByteArray_Type,
    PyList_Type, PyTuple_Type, PyDict_Type, PySet_Type, PyFrozenSet_Type, PyBaseObject_Type, PyFunction_Type, PyCFunction_Type;
extern Object _Py_NoneStruct, _Py_TrueStruct;
extern Object *PyExc_ValueError, *PyExc_MemoryError;

void Py_IncRef(Object *);
void Py_DecRef(Object *);
Object *PyObject_GenericGetDict(Object *, void *);
ssize_t PyObject_Hash(Object *);
int PyObject_GetBuffer(Object *, struct buffer *, int);
void PyBuffer_Release(struct buffer *);
Object *PyDict_New(void);
ssize_t PyDict_Size(Object *);
int PyDict_SetItem(Object *, Object *, Object *);
int PyDict_Next(Object *, ssize_t *, Object **, Object **);
int PyDict_Contains(Object *, Object *);
Object *PyList_New(ssize_t);
int PyList_Append(Object *, Object *);
ssize_t PyList_Size(Object *);
Object *PyList_GetItem(Object *, ssize_t);
int PyList_SetItem(Object *, ssize_t, Object *);
Object *PyObject_CallObject(Object *, Object *);
Object *PyTuple_New(ssize_t);
ssize_t PyTuple_Size(Object *);
Object *PyTuple_GetItem(Object *, ssize_t);
ssize_t PyUnicode_GetLength(Object *);
const char *PyUnicode_AsUTF8AndSize(Object *, ssize_t *);
ssize_t PyBytes_Size(Object *);
Object *PyBytes_FromStringAndSize(const char *, ssize_t);
double PyFloat_AsDouble(Object *);
long long PyLong_AsLongLongAndOverflow(Object *, int *);
int PyTuple_SetItem(Object *, ssize_t, Object *);
Object *PyLong_FromUnsignedLongLong(unsigned long long);
unsigned long long PyLong_AsUnsignedLongLong(Object *);
Object *PyUnicode_InternFromString(const char *);
Object *PyObject_GetAttr(Object *, Object *);
Object *PyMemoryView_FromMemory(char *, ssize_t, int);
/* Older ones, which are not relied upon, have it not. */
Object *PyCMethod_New(struct method *, Object *, Object *, Type *) __attribute__((weak));
Object *_PyType_Lookup(Type *, Object *);
void *PyMem_RawMalloc(size_t);
/* Older ones have none. */
int PyGC_Disable(void) __attribute__((weak));
int PyGC_Enable(void) __attribute__((weak));
Object *PyErr_Occurred(void);
void PyErr_Clear(void);
void PyErr_SetString(Object *, const char *);
void PyMem_GetAllocator(int, struct allocator *);
void PyMem_SetAllocator(int, struct allocator *);
/* Interpreters that are no CPython have none. */
void PyObject_GetArenaAllocator(struct arena_allocator *) __attribute__((weak));
void PyObject_SetArenaAllocator(struct arena_allocator *) __attribute__((weak));
Object *PyCapsule_New(void *, const char *, void (*)(Object *));
void *PyCapsule_GetPointer(Object *, const char *);

static inline Object *none(void)
{
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}

#endif
