/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which memory a library uses: what it calls for that is found by the table through which it calls others, and ours is put
 * there instead. The program and all its other libraries have the memory that they had. What a library took from
 * a segment may be freed by the standard library of C++ for it, so that this one is treated in the same way.
 */
#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ADOPTED_MAX 8
#define CONSTANT_MAX 48
/* Pieces that are taken at once while it is learned which are kept. */
#define LEARNED_MAX 4096
#define STANDARD "/libstdc++.so.6"
/* How the loader calls the places of functions that are called, of those that are referred to, and of addresses among data. */
#ifdef __aarch64__
#define CALLS R_AARCH64_JUMP_SLOT
#define REFERS R_AARCH64_GLOB_DAT
#define HAS R_AARCH64_ABS64
#else
#define CALLS R_X86_64_JUMP_SLOT
#define REFERS R_X86_64_GLOB_DAT
#define HAS R_X86_64_64
#endif

static struct adopted {
    char path_end[128];
    struct place place;
} adopted[ADOPTED_MAX];
static size_t adopted_count;
/* Parts of libraries, and of the program, that are never written to once they are loaded, and are the same in each process. */
static struct area constant[CONSTANT_MAX];
static size_t constant_count;

/* What was taken since library_learn(), and not freed; and what of it is kept, in the order of the addresses. */
static struct area *learned, *kept;
static size_t learned_count, kept_count;

static void *noted(void *at, size_t size)
{
    /* What C++ takes is taken from C for it. */
    int is_noted = learned && learned_count && learned[learned_count - 1].begin == (uintptr_t)at;
    if (learned && at && !is_noted && learned_count < LEARNED_MAX)
        learned[learned_count++] = (struct area){(uintptr_t)at, (uintptr_t)at + size};
    return at;
}

static void *unnoted(void *at)
{
    for (size_t index = learned ? learned_count : 0; index-- > 0;)
        if (learned[index].begin == (uintptr_t)at) {
            learned[index] = learned[--learned_count];
            break;
        }
    return at;
}

/* Of C++, from the standard library. */
static void *(*new_usual)(size_t);
static void *(*new_array_usual)(size_t);
static void *(*new_nothrow_usual)(size_t, const void *);
static void *(*new_array_nothrow_usual)(size_t, const void *);
static void (*delete_usual)(void *);
static void (*delete_array_usual)(void *);

static void *new_ours(size_t size)
{
    void *at = library_take(size, 1);
    return at ? at : noted(new_usual(size), size);
}

static void *new_array_ours(size_t size)
{
    void *at = library_take(size, 1);
    return at ? at : noted(new_array_usual(size), size);
}

/* Those that do not throw are told so by an argument. */
static void *new_nothrow_ours(size_t size, const void *nothrow)
{
    void *at = library_take(size, 1);
    return at ? at : noted(new_nothrow_usual(size, nothrow), size);
}

static void *new_array_nothrow_ours(size_t size, const void *nothrow)
{
    void *at = library_take(size, 1);
    return at ? at : noted(new_array_nothrow_usual(size, nothrow), size);
}

static void delete_ours(void *at)
{
    if (in_plan((uintptr_t)at))
        library_give(at);
    else
        delete_usual(unnoted(at));
}

static void delete_array_ours(void *at)
{
    if (in_plan((uintptr_t)at))
        library_give(at);
    else
        delete_array_usual(unnoted(at));
}

static void delete_sized_ours(void *at, size_t size)
{
    (void)size;
    delete_ours(at);
}

static void delete_array_sized_ours(void *at, size_t size)
{
    (void)size;
    delete_array_ours(at);
}

static void *malloc_ours(size_t size)
{
    void *at = library_take(size, 1);
    return at ? at : noted(malloc(size), size);
}

static void *malloc_for_others(size_t size)
{
    void *at = library_take_for_others(size);
    return at ? at : noted(malloc(size), size);
}

static void *calloc_ours(size_t count, size_t size)
{
    void *at = size && count > SIZE_MAX / size ? NULL : library_take(count * size, 1);
    return at ? at : noted(calloc(count, size), count * size);
}

static void free_ours(void *at)
{
    if (in_plan((uintptr_t)at))
        library_give(at);
    else
        free(unnoted(at));
}

/* What was taken from a segment, whoever filled it, with another length. */
static void *moved(void *at, size_t size, void *(*take)(size_t))
{
    size_t length = library_size(at);
    if (size && size <= length && size >= length / 2)
        return at;
    void *other = size ? take(size) : NULL;
    if (other)
        memcpy(other, at, size < length ? size : length);
    if (other || !size)
        library_give(at);
    return other;
}

static void *realloc_ours(void *at, size_t size)
{
    if (!at)
        return malloc_ours(size);
    return in_plan((uintptr_t)at) ? moved(at, size, malloc_ours) : noted(realloc(unnoted(at), size), size);
}

static void *realloc_received(void *at, size_t size)
{
    return in_plan((uintptr_t)at) ? moved(at, size, malloc) : realloc(at, size);
}

static int posix_memalign_ours(void **to, size_t align, size_t size)
{
    void *at = library_take(size, align);
    int done = at ? 0 : posix_memalign(to, align, size);
    if (at)
        *to = at;
    else if (done == 0)
        noted(*to, size);
    return done;
}

static void *aligned_alloc_ours(size_t align, size_t size)
{
    void *at = library_take(size, align);
    return at ? at : noted(aligned_alloc(align, size), size);
}

/* Which of ours are called instead: by a library that is adopted, by what makes things for others, by one that only receives, and by
 * one that has images (pixels.c). */
enum mode { ADOPTED, FOR_OTHERS, RECEIVES, HAS_PIXELS, MODES };

static const struct function {
    const char *name;
    void *ours[MODES];
} functions[] = {
    {"malloc", {malloc_ours, malloc_for_others, NULL, pixels_malloc}},
    {"calloc", {calloc_ours, NULL, NULL, pixels_calloc}},
    {"realloc", {realloc_ours, NULL, realloc_received, pixels_realloc}},
    {"free", {free_ours, free_ours, free_ours, pixels_free}},
    {"posix_memalign", {posix_memalign_ours, NULL, NULL}},
    {"aligned_alloc", {aligned_alloc_ours, NULL, NULL}},
    {"_Znwm", {new_ours, NULL, NULL}},
    {"_Znam", {new_array_ours, NULL, NULL}},
    {"_ZnwmRKSt9nothrow_t", {new_nothrow_ours, NULL, NULL}},
    {"_ZnamRKSt9nothrow_t", {new_array_nothrow_ours, NULL, NULL}},
    {"_ZdlPv", {delete_ours, NULL, NULL}},
    {"_ZdaPv", {delete_array_ours, NULL, NULL}},
    {"_ZdlPvm", {delete_sized_ours, NULL, NULL}},
    {"_ZdaPvm", {delete_array_sized_ours, NULL, NULL}},
};
#define FUNCTIONS (sizeof functions / sizeof *functions)

static void *ours_for(const char *name, enum mode mode)
{
    for (size_t index = 0; index < FUNCTIONS; index++)
        if (!strcmp(functions[index].name, name))
            return functions[index].ours[mode];
    return NULL;
}

/* ------------------------------------------------------------ libraries */

/* What of a loaded library is looked at. */
struct library {
    const char *path_end;
    char path[512];
    uintptr_t base;
    const ElfW(Phdr) * headers;
    size_t headers_count;
    int is_found;
};

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && !strcmp(text + length - end_length, end);
}

static int look(struct dl_phdr_info *info, size_t size, void *context)
{
    struct library *library = context;
    (void)size;
    if (!ends_with(info->dlpi_name, library->path_end) || strlen(info->dlpi_name) >= sizeof library->path)
        return 0;
    strcpy(library->path, info->dlpi_name);
    library->base = info->dlpi_addr;
    library->headers = info->dlpi_phdr;
    library->headers_count = info->dlpi_phnum;
    library->is_found = 1;
    return 1;
}

static int find(const char *path_end, struct library *library)
{
    *library = (struct library){.path_end = path_end};
    dl_iterate_phdr(look, library);
    return library->is_found ? 0 : -ENOENT;
}

static const ElfW(Phdr) * header_of(const struct library *library, ElfW(Word) type)
{
    for (size_t index = 0; index < library->headers_count; index++)
        if (library->headers[index].p_type == type)
            return &library->headers[index];
    return NULL;
}

static struct area whole(const struct library *library)
{
    struct area all = {UINTPTR_MAX, 0};
    for (size_t index = 0; index < library->headers_count; index++) {
        const ElfW(Phdr) *header = &library->headers[index];
        uintptr_t begin = library->base + header->p_vaddr, end = begin + header->p_memsz;
        if (header->p_type != PT_LOAD)
            continue;
        all.begin = begin < all.begin ? begin : all.begin;
        all.end = end > all.end ? end : all.end;
    }
    return all;
}

/* What is loaded for reading only, or made so once addresses were put there. */
static int note_constant(const struct library *library)
{
    for (size_t index = 0; index < library->headers_count; index++) {
        const ElfW(Phdr) *header = &library->headers[index];
        int is_constant = header->p_type == PT_GNU_RELRO || (header->p_type == PT_LOAD && !(header->p_flags & PF_W));
        if (!is_constant)
            continue;
        if (constant_count == CONSTANT_MAX)
            return -ENOSPC;
        uintptr_t begin = library->base + header->p_vaddr, end = begin + header->p_memsz;
        /* The page in which that ends is not made read-only, which may be the only one. */
        if (header->p_type == PT_GNU_RELRO)
            end &= ~(PAGE - 1);
        if (begin < end)
            constant[constant_count++] = (struct area){begin, end};
    }
    return 0;
}

int library_is_constant(uintptr_t at)
{
    for (size_t index = 0; index < constant_count; index++)
        if (at - constant[index].begin < constant[index].end - constant[index].begin)
            return 1;
    return is_in_any(kept, kept_count, at);
}

/* Its tables, at the addresses to which the loader has moved them. */
struct dynamic {
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * tables[2];
    size_t bytes[2];
};

static int dynamic_of(const struct library *library, struct dynamic *dynamic)
{
    const ElfW(Phdr) *header = header_of(library, PT_DYNAMIC);
    *dynamic = (struct dynamic){0};
    if (!header)
        return -ENOSYS;
    for (const ElfW(Dyn) *one = (const void *)(library->base + header->p_vaddr); one->d_tag != DT_NULL; one++) {
        const void *at = (const void *)one->d_un.d_ptr;
        switch (one->d_tag) {
        case DT_SYMTAB: dynamic->symbols = at; break;
        case DT_STRTAB: dynamic->names = at; break;
        case DT_JMPREL: dynamic->tables[0] = at; break;
        case DT_PLTRELSZ: dynamic->bytes[0] = one->d_un.d_val; break;
        case DT_RELA: dynamic->tables[1] = at; break;
        case DT_RELASZ: dynamic->bytes[1] = one->d_un.d_val; break;
        default: break;
        }
    }
    return dynamic->symbols && dynamic->names ? 0 : -ENOSYS;
}

/* What the loader has made read-only is for a moment not. */
static int put(const struct library *library, uintptr_t slot, void *ours)
{
    const ElfW(Phdr) *header = header_of(library, PT_GNU_RELRO);
    uintptr_t page = slot & ~(PAGE - 1), begin = header ? library->base + header->p_vaddr : 0;
    /* It leaves out the page in which that ends, in which others may begin. */
    int was_constant = header && slot >= begin && slot < ((begin + header->p_memsz) & ~(PAGE - 1));
    if (was_constant && mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE) < 0)
        return -errno;
    *(void **)slot = ours;
    return was_constant && mprotect((void *)page, PAGE, PROT_READ) < 0 ? -errno : 0;
}

/* Does something with each place where a library has the address of a function that is ours, until that fails; how many there are. */
static int each_place(const struct library *library, const struct dynamic *dynamic, enum mode mode,
                      int (*act)(const struct library *, uintptr_t, unsigned, void *))
{
    int found = 0;
    for (int table = 0; table < 2; table++)
        for (size_t index = 0; index < dynamic->bytes[table] / sizeof(ElfW(Rela)); index++) {
            const ElfW(Rela) *one = &dynamic->tables[table][index];
            unsigned kind = ELF64_R_TYPE(one->r_info);
            if (kind != CALLS && kind != REFERS && kind != HAS)
                continue;
            void *ours = ours_for(dynamic->names + dynamic->symbols[ELF64_R_SYM(one->r_info)].st_name, mode);
            int done = ours ? act(library, library->base + one->r_offset, kind, ours) : 0;
            if (done < 0)
                return done;
            found += ours != NULL;
        }
    return found;
}

/* It may have the function among its data, and nobody knows what becomes of that. */
static int is_called(const struct library *library, uintptr_t slot, unsigned kind, void *ours)
{
    (void)library, (void)slot, (void)ours;
    return kind == HAS ? -ENOSYS : 0;
}

static int put_ours(const struct library *library, uintptr_t slot, unsigned kind, void *ours)
{
    (void)kind;
    return put(library, slot, ours);
}

/* Has a library call ours, for all that takes memory or frees it, or for none; how often it calls that. */
static int redirect(const struct library *library, const struct dynamic *dynamic, enum mode mode)
{
    int done = each_place(library, dynamic, mode, is_called);
    return done < 0 ? done : each_place(library, dynamic, mode, put_ours);
}

static int adopt(const char *path_end, enum mode mode)
{
    struct library library;
    struct dynamic dynamic;
    int done = find(path_end, &library);
    if (done == 0)
        done = dynamic_of(&library, &dynamic);
    /* An image has no addresses in it. */
    if (done == 0 && mode != HAS_PIXELS)
        done = note_constant(&library);
    if (done == 0)
        done = redirect(&library, &dynamic, mode);
    return done > 0 ? 0 : done == 0 ? -ENOSYS : done;
}

/* Which function of C++ a library calls: that of the program or of what was loaded before it, if there is one, as the loader decides. */
static void *called(void *standard, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return found ? found : dlsym(standard, name);
}

/* What is called where no block is to be had. */
static int find_usual(void)
{
    struct library standard;
    int done = find(STANDARD, &standard);
    void *loaded = done == 0 ? dlopen(standard.path, RTLD_NOLOAD | RTLD_LAZY) : NULL;
    if (!loaded)
        return -ENOENT;
    new_usual = (void *(*)(size_t))called(loaded, "_Znwm");
    new_array_usual = (void *(*)(size_t))called(loaded, "_Znam");
    new_nothrow_usual = (void *(*)(size_t, const void *))called(loaded, "_ZnwmRKSt9nothrow_t");
    new_array_nothrow_usual = (void *(*)(size_t, const void *))called(loaded, "_ZnamRKSt9nothrow_t");
    delete_usual = (void (*)(void *))called(loaded, "_ZdlPv");
    delete_array_usual = (void (*)(void *))called(loaded, "_ZdaPv");
    int are_all = new_usual && new_array_usual && new_nothrow_usual && new_array_nothrow_usual && delete_usual && delete_array_usual;
    return are_all ? 0 : -ENOSYS;
}

static int receive(const char *path_end, enum mode mode)
{
    struct library library;
    struct place ignored;
    if (library_place(path_end, &ignored) == 0)
        return 0;
    int done = adopted_count == ADOPTED_MAX || strlen(path_end) >= sizeof adopted->path_end ? -ENOSPC : find(path_end, &library);
    if (done == 0)
        done = adopt(path_end, mode);
    if (done < 0)
        return done;
    if (adopted_count == 0)
        library_mind_forks();
    struct area all = whole(&library);
    struct adopted *one = &adopted[adopted_count++];
    strcpy(one->path_end, path_end);
    one->place = (struct place){all.begin, all.end, 0};
    return 0;
}

int library_receive(const char *path_end)
{
    return receive(path_end, RECEIVES);
}

/* The program's are no less the same. Where it lies low, as Debian's Pythons do, a name of three letters looks like an address in its code,
 * and so does a count of some millions. */
static int note_program(void)
{
    struct library program;
    /* It is told first. */
    int done = find("", &program);
    return done == 0 ? note_constant(&program) : done;
}

int library_adopt(const char *path_end)
{
    static int is_ready;
    int done = is_ready ? 0 : find_usual();
    if (!is_ready && done == 0)
        done = note_program();
    is_ready = done == 0;
    /* Whatever is freed by it for others, is freed rightly: before anything can be taken. */
    if (done == 0)
        done = receive(STANDARD, FOR_OTHERS);
    return done < 0 ? done : receive(path_end, ADOPTED);
}

int library_of_pixels(const char *path_end)
{
    return adopt(path_end, HAS_PIXELS);
}

int library_learn(void)
{
    if (kept || learned)
        return -EALREADY;
    learned_count = 0;
    learned = calloc(LEARNED_MAX, sizeof *learned);
    return learned ? 0 : -ENOMEM;
}

static int by_address(const void *one, const void *other)
{
    uintptr_t begin = ((const struct area *)one)->begin, other_begin = ((const struct area *)other)->begin;
    return (begin > other_begin) - (begin < other_begin);
}

/* FNV-1a. */
static uint64_t digested(uint64_t digest, const void *bytes, size_t length)
{
    for (size_t at = 0; at < length; at++)
        digest = (digest ^ ((const uint8_t *)bytes)[at]) * 0x100000001b3ul;
    return digest;
}

/* Of what objects of libraries may refer to: where it is, and of what they keep also what that is. */
static uint64_t digest_of_kept(void)
{
    uint64_t digest = digested(0xcbf29ce484222325ul, constant, constant_count * sizeof *constant);
    digest = digested(digest, kept, kept_count * sizeof *kept);
    for (size_t index = 0; index < kept_count; index++)
        digest = digested(digest, (const void *)kept[index].begin, kept[index].end - kept[index].begin);
    return digest;
}

int library_learned(void)
{
    struct area *all = learned;
    learned = NULL;
    if (!all || learned_count == LEARNED_MAX) {
        free(all);
        return all ? -ENOSPC : -EINVAL;
    }
    qsort(all, learned_count, sizeof *all, by_address);
    kept = all;
    kept_count = learned_count;
    uint64_t digest = digest_of_kept();
    for (size_t index = 0; index < adopted_count; index++)
        adopted[index].place.digest = digest;
    return (int)kept_count;
}

int library_place(const char *path_end, struct place *place)
{
    for (size_t index = 0; index < adopted_count; index++)
        if (!strcmp(adopted[index].path_end, path_end)) {
            *place = adopted[index].place;
            return 0;
        }
    return -ENOENT;
}
