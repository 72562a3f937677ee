/* SPDX-License-Identifier: Apache-2.0 */
/* Which interpreter this is, and where its parts are. */
#define _GNU_SOURCE
#include "heap.h"

#include <errno.h>
#include <link.h>
#include <string.h>

struct layout layout;
uintptr_t image_begin, image_end;
uint8_t identity[IDENTITY_BYTES];
Object *registered;

static const struct layout python_3_11 = {
    .ascii_head = 48,
    .text_head = 72,
    .interned_bits = 3,
    .immortal = 1l << 60,
    .tuple_items = 24,
    .has_own_bytes = 1,
    .instance_size = 24,
    .dictionary_before = 24,
};

/* 3.12 and 3.13: what the compiler says about them is the same but for values inline. */
static const struct layout python_3_12 = {
    .ascii_head = 40,
    .text_head = 56,
    .interned_bits = 3 | 1 << 7,
    .immortal = 0xffffffff,
    .are_statics_immortal = 1,
    .has_tag = 1,
    .tuple_items = 24,
    .has_own_bytes = 1,
    .instance_size = 16,
    .dictionary_before = 24,
    .inline_bytes = 16,
};

/* 3.14, and 3.15 but for bytearrays: references have 32 bits, and a flag above them says that they are not counted. Tuples
 * know their hashes. */
static const struct layout python_3_14 = {
    .ascii_head = 40,
    .text_head = 56,
    .interned_bits = 3 | 1 << 7,
    .immortal = 3l << 30 | 1l << 48,
    .are_statics_immortal = 1,
    .has_tag = 1,
    .keeps_numbers = 1,
    .tuple_items = 32,
    .has_own_bytes = 1,
    .instance_size = 16,
    .dictionary_before = 24,
    .inline_bytes = 16,
};

/* Finds the writable part of whatever has None. */
static int find_image(struct dl_phdr_info *info, size_t size, void *ignored)
{
    (void)size, (void)ignored;
    uintptr_t none = (uintptr_t)&_Py_NoneStruct;
    for (int index = 0; index < info->dlpi_phnum; index++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[index];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && none - begin < part->p_memsz) {
            image_begin = begin;
            image_end = begin + part->p_memsz;
            return 1;
        }
    }
    return 0;
}

int heap_begin(int major, int minor, const uint8_t *whose)
{
    if (major != 3 || minor < 11 || minor > 15)
        return -ENOSYS;
    layout = minor == 11 ? python_3_11 : minor < 14 ? python_3_12 : python_3_14;
    /* From then on they are an object of bytes, which they give away (`take_bytes`). */
    layout.has_own_bytes = minor < 15;
    memcpy(identity, whose, IDENTITY_BYTES);
    /* Static objects are of one image, types as None is. */
    if (!dl_iterate_phdr(find_image, NULL) || !is_static((uintptr_t)&PyLong_Type))
        return -ENOSYS;
    return 0;
}

void heap_registered(Object *types)
{
    registered = types;
}
