/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which calls in line have begun: a word that the node and this instance share, so
 * that calls which stand behind a long one can be given to others.
 *
 * Both say in it what they have done, in one step that either of them does or the
 * other: the instance that it begins a turn, the node that it recalls all turns up to
 * one. So a call is begun here, or known not to be, and never both. Turns grow by one,
 * and after the last of their numbers they begin again: one comes before another one
 * that is less than half of them ahead. The layout is that of crates/xpu/src/turns.rs.
 */
#define _GNU_SOURCE
#include "template.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The turn that has begun in the lower half, the last one that is recalled in the upper one. */
static _Atomic uint64_t *word;

int turns_open(int fd) {
    const int sealed = F_SEAL_SHRINK | F_SEAL_GROW;
    int seals = fcntl(fd, F_GET_SEALS), error = EINVAL;
    struct stat stat;
    void *memory = MAP_FAILED;

    if (seals >= 0 && (seals & sealed) == sealed && fstat(fd, &stat) == 0 && stat.st_size >= (off_t)sizeof *word) {
        memory = mmap(NULL, sizeof *word, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = errno;
    }
    close(fd);
    if (memory == MAP_FAILED)
        return -error;
    word = memory;
    return 0;
}

int turns_begin(uint32_t turn) {
    uint64_t seen;

    if (word == NULL)
        return 1;
    seen = atomic_load(word);
    do {
        /* Sent before there was a word: the node takes it for begun, wherever it waits here. */
        if ((int32_t)((uint32_t)seen - turn) >= 0)
            return 1;
        if ((int32_t)((uint32_t)(seen >> 32) - turn) >= 0)
            return 0;
    } while (!atomic_compare_exchange_weak(word, &seen, (uint64_t)turn << 32 | turn));
    return 1;
}
