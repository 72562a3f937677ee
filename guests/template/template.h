/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the templates of all languages do in native code: take orders, enter
 * the namespace that a child is to be born in, tell how children ended, and
 * confine a child before it reads a byte of anybody's function.
 *
 * The orders' wire is described in process/template.rs, the channel's in
 * process/channel.rs. A process is one template, so the state is static. The
 * process has one thread whenever it forks, and nothing here allocates: what
 * runs between the fork and the end of the confinement needs no lock.
 *
 * The life of an order: template_next() has it checked and enters the process
 * namespace; the language forks in its own way; the parent calls
 * template_forked(), the child template_confine(), which returns only when
 * all of the confinement holds.
 */
#ifndef SINEW_TEMPLATE_H
#define SINEW_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "line.h"

#define EXPORTED __attribute__((visibility("default")))

/* The descriptor of an instance's channel. */
#define CHANNEL 3
/* Bytes of one order, and of what one says to the node. */
#define MESSAGE_BYTES_MAX (64 << 10)
/* Descriptors that come with one order. */
#define ORDER_FDS_MAX 32
/* Kernel limits that one order sets. */
#define LIMITS_MAX 16
/* Bytes of the text that says why something failed. */
#define REASON_BYTES_MAX 256
/* The status with which a child ends that could not confine itself. */
#define STATUS_UNCONFINED 97
/* Bits of an order's flags. */
#define ORDER_LANDLOCK 1u
/* The container has a user namespace, with one user, that is entered like its
 * others; there groups are nobody's to change. */
#define ORDER_ONE_USER 2u

struct limit {
    uint32_t resource;
    int64_t soft, hard;
};

/* One order, checked: every count is within its bound. */
struct order {
    uint64_t id;
    uint32_t setns_flags, uid, gid, flags;
    size_t limits_count;
    struct limit limits[LIMITS_MAX];
    /* An array of struct sock_filter. */
    const unsigned char *filter;
    size_t filter_bytes;
    int channel;
    /* What is entered: the namespaces of a container, or its first process;
     * nothing if there is no container. */
    const int *doors;
    size_t doors_count;
    int is_by_process;
    const int *joins;
    size_t joins_count;
};

/* Confines this process after the order; on failure says why on the channel
 * and ends it. Of the descriptors above the channel's, those in `keep` stay
 * open, in ascending order. */
void confine(const struct order *order, const int *keep, size_t keep_count);

/* Leaves /dev/null in the standard streams; -1 with errno if it cannot. */
int null_streams(void);

/* Sends all of the bytes; 0, or -1 with errno. Waits where `fd` does not. */
int send_all(int fd, const void *bytes, size_t length);

/* Takes the control socket from standard input and leaves /dev/null there.
 * 0, or a negative errno. */
EXPORTED int template_begin(void);

/* In an instance that was not forked: takes the channel from standard input,
 * and leaves /dev/null in the standard streams. 0, or a negative errno. */
EXPORTED int template_place_channel(void);

/* Has what is written past the language's own streams go there. 0, or a negative
 * errno; the descriptor is closed. */
EXPORTED int template_print_to(int fd);

/* Sends the node one message. 0, or a negative errno. */
EXPORTED int template_say(const void *message, size_t length);

/* The threads of this process; negative if they cannot be counted. */
EXPORTED int template_threads(void);

/* Mappings that whatever is forked would write to together with this process and all others
 * that are; negative if they cannot be counted. */
EXPORTED int template_shares(void);

/* Has the kernel put what is in memory together into huge pages: how many there
 * are, 0 if there is nothing that fills one, or a negative errno. What cannot be
 * put together stays as it is. */
EXPORTED long template_use_huge_pages(void);

/* Waits for an order that can be carried out. 1: fork now, for children will
 * be born in the right namespace. 0: the node has gone. Orders that cannot be
 * carried out are answered here. */
EXPORTED int template_next(void);

/* After the fork, in the parent: the child's number, or a negative errno. */
EXPORTED void template_forked(int pid);

/* Takes the word by which the node recalls calls in line (turns.c). 0, or a
 * negative errno; the descriptor is closed. */
EXPORTED int turns_open(int fd);

/* Before a call is begun. 1: it is to be; 0: it was recalled, and is another one's. */
EXPORTED int turns_begin(uint32_t turn);

/* After the fork, in the child. */
EXPORTED void template_confine(const int *keep, size_t keep_count);

#endif
