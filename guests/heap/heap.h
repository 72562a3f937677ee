/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of Python in a segment (docs/spec/memory-map.md).
 *
 * A value is written as copies of its objects, one behind the other, that
 * point to each other and to what every process of the program has at the same
 * address. Numbers, strings, bytes and arrays that were made in the segment are not
 * copied. What is not known here, a *foreign* object, is pickled, and
 * put into its places when the segment is mapped.
 *
 * The copies are never freed, nor strings and bytes that stay: they have a surplus of
 * references that no process uses up, and no collector's list has them. The end of a number
 * that stays does nothing but free memory, and what lies in a segment of others is never
 * freed; where the interpreter keeps the memory of numbers for others, those that stay are never
 * ended. So what is left of a value after a request does no harm.
 *
 * The writer needs the interpreter's lock; between copies Python's code may run.
 */
#ifndef SINEW_HEAP_H
#define SINEW_HEAP_H

#include "python.h"
#include "segment.h"

#define HEAD_KIND 2
#define HEAD_VERSION 1
/* What a step's result begins with (docs/spec/workflows.md, section 4). */
#define FRAME_BYTES 6
#define IDENTITY_BYTES 32
/* Memory of arrays is made in the segment from this on. */
#define ARRAY_MIN (64ul << 10)
/* And items of lists, which have their length in the 16 bytes before them. What grows is moved
 * there if it is not much longer. */
#define ITEMS_MIN (256ul << 10)
#define ITEMS_MOVED_MAX (4ul << 20)

struct table {
    uint64_t at, count;
};

/* The first bytes of a segment. All addresses are the plan's. */
struct head {
    uint8_t frame[FRAME_BYTES], kind, version;
    /* Bytes from the beginning on that are not made anew when it is mapped again: numbers, strings, bytes. */
    uint64_t base, length, lasting;
    uint8_t identity[IDENTITY_BYTES];
    /* Where the value is; 0 if it is the first foreign object. */
    uint64_t root;
    /* Addresses of what the program has: each is referred to from now on. */
    struct table statics;
    /* Pairs: an address at which, and which type, is to be; types are of classes and of
     * elements of arrays. */
    struct table typed;
    /* Where each type was: what it is at also here, is there already. */
    struct table homes;
    /* Pairs: an address among items that stay where they are, and what is to be there instead: a copy. */
    struct table moved;
    /* Addresses of arrays, which have memory of the process's own for their shapes. */
    struct table arrays;
    /* Pairs: an address at which, and which foreign object, is to be. */
    struct table patches;
    /* Pickles of types, and of foreign objects, one behind the other: bytes, and how many. */
    struct table type_pickles;
    uint64_t types_count;
    struct table pickles;
    uint64_t pickles_count;
    /* Pairs: address and length of what the pickles have out of band. */
    struct table buffers;
    /* Addresses and bytes of the parts in which objects are: with what stays, and with the copies. */
    struct table parts[2];
};

/* Where this interpreter's objects have their parts. */
struct layout {
    /* Of strings: bytes before the text of ASCII ones, and of others. What is in these
     * after 40 is of other forms of the text. */
    size_t ascii_head, text_head;
    uint32_t interned_bits;
    /* The references of what is never freed; whether the program's own objects are such. */
    int64_t immortal;
    int are_statics_immortal;
    /* Of a whole number: from the word with its size to its digits. */
    int has_tag;
    /* Its end keeps its memory for another one, as that of a floating one does. */
    int keeps_numbers;
    /* Of a tuple: where its items begin; before them is its hash, if that is not where they usually are. */
    size_t tuple_items;
    /* Of a bytearray: its bytes are memory, and no object. */
    int has_own_bytes;
    /* Of instances with nothing but a dictionary: their size, and how far before them lies its pointer. */
    size_t instance_size;
    size_t dictionary_before;
    /* Zeros after an instance that say that it has no values inline. */
    size_t inline_bytes;
};

extern struct layout layout;

/* Where the program's own objects are: the same in each process of it. */
extern uintptr_t image_begin, image_end;

static inline int is_static(uintptr_t address)
{
    return address - image_begin < image_end - image_begin;
}

/* What nobody can change, and refers to nothing. */
static inline int is_atom(const Object *object)
{
    const Type *type = object->type;
    return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || object == &_Py_NoneStruct ||
           type == &PyBytes_Type || type == &PyBool_Type;
}

#define FIELD(object, offset, kind) (*(kind *)((char *)(object) + (offset)))
#define SIZE(object) FIELD(object, 16, int64_t)

#define STRING_STATE(object) FIELD(object, 32, uint32_t)
#define STATE_KIND(state) ((state) >> 2 & 7)
#define STATE_COMPACT(state) ((state) >> 5 & 1)
#define STATE_ASCII(state) ((state) >> 6 & 1)
#define BYTES_HEAD 32
#define TUPLE_ITEMS(tuple) (&FIELD(tuple, layout.tuple_items, Object *))
/* Of arrays, as NumPy has said since 1.22: what is at which place (ndarraytypes.h). */
#define ARRAY_BYTES 96
#define ARRAY_DATA(array) FIELD(array, 16, uintptr_t)
#define ARRAY_DIMENSIONS(array) FIELD(array, 24, int)
#define ARRAY_SHAPE(array) FIELD(array, 32, int64_t *)
#define ARRAY_STRIDES(array) FIELD(array, 40, int64_t *)
#define ARRAY_ELEMENT(array) FIELD(array, 56, Object *)
#define ARRAY_FLAGS(array) FIELD(array, 64, int)
#define ARRAY_DIMENSIONS_MAX 64

/* Says which interpreter this is; ENOSYS for one of which nothing is known. Then no
 * other function may be called. The identity is whatever tells programs apart. */
EXPORTED int heap_begin(int major, int minor, const uint8_t *identity);
/* Types for which somebody has registered how they are pickled (`copyreg.dispatch_table`); it must live on. */
EXPORTED void heap_registered(Object *types);
extern Object *registered;
extern uint8_t identity[IDENTITY_BYTES];

/* Whether all that can be in a value is short: its pickle has no more bytes than that, and to make it runs nobody's code. */
EXPORTED int heap_is_plain(Object *value, size_t most);

/* For Python: a tuple of a copy that is what pickle would make of it, if it is plain in the same way, or None. */
EXPORTED Object *heap_plain_copy(Object *value);
/* The copy, or NULL. */
Object *heap_plain_copied(Object *value);

/* A pickle that is no longer is made at once, whatever else could be done with the value. */
#define BRIEF_MAX 1024
/* For Python: of what is plain and as short as that a copy, and its pickle if it is no container; None for all else. Nothing is made in the
 * segment from then on. A copy that is None is none, unless there is a pickle. */
Object *heap_brief(Object *value);

/* For Python: whether only the value that is the only item of a list refers to what it is made of, and that may be given away (owned.c). A
 * tuple of a number (0: not all of it may be, 1: others refer to some of it, 2: nobody does) and a list of what is still to be looked at: types
 * of its objects, classes and functions that it refers to, and objects of types of which that was said; or of None and a list of types of
 * which nothing is known. */
EXPORTED Object *heap_owned(Object *box);
/* References that it met the last time. */
EXPORTED size_t heap_references_met(void);
/* Says what is known of a type: its kind, which library's it is and what is asked of its objects, as in owned.py, and the name of an attribute,
 * or None. -1 if too much is known. */
EXPORTED int heap_know(Object *type, int kind, int level, int asked, Object *name);
/* Whether objects of two types are ended by the same function. */
EXPORTED int heap_ends_alike(Object *type, Object *other);

/* Whether addresses are the limit of the process's memory, and not pages: then the kernel cannot have any back that are free. */
int is_bound_by_addresses(void);

/* From now on empty arenas are kept for the next objects, up to 32 MiB (arenas.c). Not for interpreters without a lock,
 * which use none. EPERM where a bound of the process's addresses is the limit of its memory. */
EXPORTED int arenas_keep(void);
/* Bytes of it, which are the kernel's whenever it needs them. */
EXPORTED size_t arenas_kept(void);
void arenas_give_back(void);

/* From now on what is free at the end of the C library's heap is kept if it is no more than so many bytes and 16 MiB (blocks.c), or 16 MiB if
 * they are no more than that; if more is free, all of it goes back to the kernel, as ever. EPERM as with arenas. */
EXPORTED int blocks_keep(size_t bytes);
/* Between calls: tells the kernel that it may have what is free there. Where other threads are, no more than usual is kept instead. Without
 * `is_idle` of all but 16 MiB, and after calls that can have written to little for a fifth of the processor's time at most. How much could be given
 * back at most, if that may be much; else 0. */
EXPORTED size_t blocks_offer(int is_idle);
/* Bytes that are free there, which are the kernel's whenever it needs them; none where other threads are. */
EXPORTED size_t blocks_free(void);
/* Waits for something to come by the channel: 1 if something may have, 0 if nothing has, -1 if a signal came. */
EXPORTED int blocks_wait(int channel, int within_ms);
/* Gives all of it back, and empty arenas. */
EXPORTED void blocks_give_back(void);

/* Has objects made in segments, and what is mapped never freed. */
EXPORTED int heap_adopt(void);
/* A large piece of the segment that is being filled, in huge pages if nothing was there yet; NULL if there is none. */
void *large_taken(size_t size, int is_zero);
/* For Python: what Pillow makes of these arguments, an image with those pixels, which are in segments of others: the next pieces of memory
 * that it takes are these, one after the other, as far as they are of these sizes. None if not all of them were taken; NULL with an exception.
 * Nothing of Python's own is to run in `make`, for it might take them. */
struct pixels;
EXPORTED Object *pixels_image(Object *make, Object *arguments, const struct pixels *pieces, size_t count);
/* Has large arrays made in segments, and arrays copied: NumPy's table of functions, the type
 * of arrays, and where in a type of elements their size is. ENOSYS for one that knows no such thing. */
EXPORTED int heap_adopt_arrays(Object *functions, Object *type, size_t element_size_at);
extern struct arrays {
    Type *type;
    size_t element_size_at;
} arrays;

/* Starts to write a value into the rest of the segment that is being filled. */
EXPORTED int heap_write(void);
/* For Python: a tuple of the functions `copy`, `persist`, `buffer` and `load`. NULL with an exception.
 *
 * `copy(box)` copies what is the only item of a list, which must live on: None if it is foreign itself.
 * `persist(object)`: the address of a copy, if all that it is made of can be copied; None else.
 * `buffer(pickle_buffer)` has its bytes in the segment.
 * All raise ValueError where it is better to give up.
 * `load(address)`: what has been mapped there. */
EXPORTED Object *heap_functions(void);
/* Has what libraries made be part of the value (library.h), by the address of one of their objects: 0 if it cannot be. */
EXPORTED int heap_reach(uintptr_t object);
/* Copies memory with no addresses in it, its length before it: where the copy is; 0 if there is no room. */
EXPORTED uintptr_t heap_put(const void *memory, size_t length);
/* The foreign objects, in their order. The list grows while they are written. */
EXPORTED Object *heap_foreign(void);
/* The types, once these are written. */
EXPORTED Object *heap_types(void);
/* Writes the rest: pickles of types and of foreign objects; the bytes of the file that are the value. Lists that nobody
 * else has are empty then, until heap_leave(). */
EXPORTED int64_t heap_written(const void *types, size_t types_length, const void *pickles, size_t length, size_t count);
/* Of what was written: bytes that were copied, and those of large pieces that stay. */
EXPORTED uint64_t heap_bytes(void);
/* Bytes of it that had to be copied for they were not made in the segment, where they are of small pieces, and of large ones. */
EXPORTED void heap_elsewhere(uint64_t halves[2]);
/* Drops what only the writer needs; harmless where there is none. */
EXPORTED void heap_end(void);
/* Says what became of the value. If it was not handed over, it is as it was before it was copied: what nobody
 * else had was emptied. Else that is freed by `heap_release()`, which may take its time. */
EXPORTED void heap_leave(int is_handed);
EXPORTED void heap_release(void);

/* Maps a value; 1 if it has been before. EPROTO if it is none, ESTALE if it is another program's, else as segment_map(). */
EXPORTED int heap_map(int fd, struct head *head);
/* The call is over that was given values: what they took of this process's own memory is given back as far as it was
 * not changed. How many are to be looked at once a call was not given them. */
EXPORTED int heap_map_end(void);
/* Puts types into their places: before any of it is looked at. -1 with an exception. */
EXPORTED int heap_settle(const struct head *head, Object *types);
/* Buffers of a mapped value, as a list of memory; NULL with an exception. */
EXPORTED Object *heap_buffers(const struct head *head);
/* Puts foreign objects into their places, and gives the value. */
EXPORTED Object *heap_value(const struct head *head, Object *foreign);

#endif
