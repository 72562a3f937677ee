/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel says of a process's own pages (/proc/self/pagemap): of each whether it is a file's, which
 * others have as well, or a copy that this process has written to.
 */
#ifndef SINEW_PAGEMAP_H
#define SINEW_PAGEMAP_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "segment.h"

/* A descriptor to be closed; below 0 where there is none to be had. A process that nobody may look into is not let
 * look into itself either, so for a moment it is one that others of its user may: those are its own children, and what
 * traces is forbidden to them. */
static inline int pagemap_open(void)
{
    int is_hidden = prctl(PR_GET_DUMPABLE) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (is_hidden)
        prctl(PR_SET_DUMPABLE, 0);
    return pagemap;
}

/* Entries of the pages from there on; of how many. */
static inline size_t pagemap_read(int pagemap, uintptr_t at, uint64_t *entries, size_t count)
{
    ssize_t done = pread(pagemap, entries, count * sizeof *entries, (off_t)(at / PAGE * sizeof *entries));
    return done < 0 ? 0 : (size_t)done / sizeof *entries;
}

/* Of a private mapping of a file: whether the page is a copy. It is there or swapped out, and not the file's. */
static inline int is_copy(uint64_t entry)
{
    return (entry & (3ull << 62)) && !(entry & (1ull << 61));
}

#endif
