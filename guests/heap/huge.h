/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files in memory, in huge pages. One takes little longer to make than a small one, of which there
 * are 512 in it, and whoever maps the file afterwards has all of it with one fault.
 *
 * By itself the kernel makes none for such files unless the machine's owner has said so
 * (transparent_hugepage/shmem_enabled). But it makes one of what is there when a process asks
 * for that (MADV_COLLAPSE, Linux 6.1): of a single page, as here.
 */
#ifndef SINEW_HUGE_H
#define SINEW_HUGE_H

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE (2ul << 20)
/* Refused so often one after the other, it is not asked for any more: that takes time, too. */
#define HUGE_REFUSALS_MAX 8
/* If one took longer than this, small ones take less, and the next so many times have these: its memory may have had to be
 * had from elsewhere, as from the host of a virtual machine. */
#define HUGE_SLOW_NS 1000000
#define HUGE_PAUSE 16

__attribute__((unused)) static int64_t huge_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Has those huge pages made that lie there whole, in a file that is mapped shared, of which nothing there was
 * written to. Where there is none to be had, or not soon, pages are small. */
__attribute__((unused)) static void make_huge(uintptr_t begin, uintptr_t end)
{
    static int refusals, paused;
    begin = (begin + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    end &= ~(HUGE_PAGE - 1);
    if (begin >= end || __atomic_load_n(&refusals, __ATOMIC_RELAXED) >= HUGE_REFUSALS_MAX)
        return;
    if (__atomic_load_n(&paused, __ATOMIC_RELAXED) > 0) {
        __atomic_fetch_sub(&paused, 1, __ATOMIC_RELAXED);
        return;
    }
    /* Where there is nothing at all, none is made. */
    for (uintptr_t at = begin; at < end; at += HUGE_PAGE)
        (void)*(volatile unsigned char *)at;
    int64_t begun = huge_clock_ns();
    if (madvise((void *)begin, end - begin, MADV_COLLAPSE) == 0)
        __atomic_store_n(&refusals, 0, __ATOMIC_RELAXED);
    else
        __atomic_fetch_add(&refusals, 1, __ATOMIC_RELAXED);
    if (huge_clock_ns() - begun > (int64_t)((end - begin) / HUGE_PAGE) * HUGE_SLOW_NS)
        __atomic_store_n(&paused, HUGE_PAUSE, __ATOMIC_RELAXED);
}

#endif
