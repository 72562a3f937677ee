/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Huge pages for what a template has in memory: a fork copies a table for
 * each 2 MiB of small pages, and only an entry for a huge one. Where a child
 * writes, the kernel splits the page and copies 4 KiB, as it did before.
 */
#define _GNU_SOURCE
#include "template.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES ((uintptr_t)2 << 20)
/* Newer than some headers; the same number on every processor. */
#define ADVICE_COLLAPSE 25
/* Mappings that are looked at; there are some hundreds. */
#define MAPPINGS_MAX 4096
/* Of a huge page's small ones, so many eighths must be there already: the rest
 * is memory that nothing has asked for. */
#define EIGHTHS_MIN 7
#define PRESENT ((uint64_t)1 << 63)

struct range {
    uintptr_t start, end;
};

/* Ranges of private memory that is no file's, from the list of mappings. They
 * are noted before anything is changed: neighbours may become one. */
static size_t ranges(struct range *found) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    size_t count = 0;

    if (maps == NULL)
        return 0;
    while (count < MAPPINGS_MAX && fgets(line, sizeof line, maps) != NULL) {
        unsigned long start, end, inode;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s %*x %*x:%*x %lu", &start, &end, rights, &inode) != 4)
            continue;
        if (strcmp(rights, "rw-p") != 0 || inode != 0 || strstr(line, "[stack]") != NULL)
            continue;
        found[count].start = (start + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
        found[count].end = end & ~(HUGE_BYTES - 1);
        count += found[count].start < found[count].end;
    }
    fclose(maps);
    return count;
}

/* Whether most of the small pages of a huge one are in memory. */
static int is_full(int pagemap, uintptr_t start) {
    static uint64_t entries[HUGE_BYTES / 4096];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = HUGE_BYTES / page, present = 0;

    if (count > sizeof entries / sizeof entries[0]
        || pread(pagemap, entries, count * 8, (off_t)(start / page * 8)) != (ssize_t)(count * 8))
        return 0;
    for (size_t at = 0; at < count; at++)
        present += (entries[at] & PRESENT) != 0;
    return present * 8 >= count * EIGHTHS_MIN;
}

long template_use_huge_pages(void) {
    static struct range found[MAPPINGS_MAX];
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    size_t count = pagemap < 0 ? 0 : ranges(found);
    long collapsed = 0, why = 0;

    for (size_t at = 0; at < count && why != -EINVAL; at++) {
        for (uintptr_t start = found[at].start; start < found[at].end; start += HUGE_BYTES) {
            if (!is_full(pagemap, start))
                continue;
            if (madvise((void *)start, HUGE_BYTES, ADVICE_COLLAPSE) == 0)
                collapsed++;
            else
                why = -errno;
            /* Not of this kernel, or switched off. */
            if (why == -EINVAL)
                break;
        }
    }
    if (pagemap >= 0)
        close(pagemap);
    return collapsed > 0 ? collapsed : why;
}
