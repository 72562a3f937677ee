/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a forked process gives up before it runs anybody's function: the twin
 * of process/confinement.rs, for processes that come from outside.
 *
 * Calls that change the rights of a thread are made as they are, not through
 * the C library, which would look for other threads to tell.
 */
#define _GNU_SOURCE
#include "template.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CAPABILITIES_MAX 64
/* The kind of the channel's frame that says why there is no instance. */
#define FRAME_UNCONFINED 9
/* Length, kind and turn of a frame. */
#define FRAME_HEAD_BYTES 9
/* The same numbers on every processor; headers older than the kernel lack them. */
#define CALL_CLOSE_RANGE 436
#define CALL_LANDLOCK_CREATE 444
#define CALL_LANDLOCK_ADD 445
#define CALL_LANDLOCK_RESTRICT 446
/* Landlock: execute, read a file, read a folder; the first version's rights;
 * those that mean something for a file. */
#define MAY_READ 0xdu
#define MAY_ALL ((1u << 13) - 1)
#define MAY_REFER (1u << 13)
#define MAY_TRUNCATE (1u << 14)
#define MAY_FILES (7u | MAY_TRUNCATE)

int send_all(int fd, const void *bytes, size_t length) {
    const char *at = bytes;

    while (length > 0) {
        ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);
        if (sent >= 0) {
            at += sent;
            length -= (size_t)sent;
        } else if (errno == EAGAIN) {
            struct pollfd writable = {fd, POLLOUT, 0};
            if (poll(&writable, 1, -1) < 0 && errno != EINTR)
                return -1;
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

/* Where the channel is now; its other end learns what failed. */
static int channel = -1;

static void fail(const char *what) {
    /* Its turn, which is that of no call, is zero. */
    char frame[FRAME_HEAD_BYTES + REASON_BYTES_MAX] = { 0 };
    int error = errno;
    int length = snprintf(frame + FRAME_HEAD_BYTES, REASON_BYTES_MAX, "cannot %s: %s", what, strerror(error));
    uint32_t told = length < REASON_BYTES_MAX ? (uint32_t)length : REASON_BYTES_MAX - 1;

    memcpy(frame, &told, 4);
    frame[4] = FRAME_UNCONFINED;
    (void)send_all(channel, frame, FRAME_HEAD_BYTES + told);
    _exit(STATUS_UNCONFINED);
}

static void check(long result, const char *what) {
    if (result < 0)
        fail(what);
}

/* Joins the container's control groups and namespaces. */
static void enter(const struct order *order) {
    check(setsid(), "leave the session");
    for (size_t at = 0; at < order->joins_count; at++)
        check(write(order->joins[at], "0", 1), "join the control groups");
    if (order->is_by_process)
        check(setns(order->doors[0], (int)order->setns_flags), "enter the namespaces");
    else
        /* The first one has been entered, by the parent. */
        for (size_t at = 1; at < order->doors_count; at++)
            check(setns(order->doors[at], 0), "enter a namespace");
    check(chdir("/"), "go to the root");
}

/* Leaves open the channel, what is to be kept, and nothing else. */
static void close_others(const struct order *order, const int *keep, size_t keep_count) {
    unsigned first = CHANNEL + 1;

    if (order->channel != CHANNEL)
        check(dup3(order->channel, CHANNEL, O_CLOEXEC), "place the channel");
    channel = CHANNEL;
    for (size_t at = 0; at < keep_count; at++) {
        unsigned kept = (unsigned)keep[at];
        if (kept > first)
            check(syscall(CALL_CLOSE_RANGE, first, kept - 1, 0), "close descriptors");
        first = kept + 1;
    }
    check(syscall(CALL_CLOSE_RANGE, first, ~0u, 0), "close descriptors");
}

int null_streams(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0)
        return -1;
    for (int fd = 0; fd < 3; fd++)
        if (dup2(null, fd) < 0)
            return -1;
    return null > 2 ? close(null) : 0;
}

int template_print_to(int fd) {
    int error = dup2(fd, 1) < 0 || dup2(fd, 2) < 0 ? errno : 0;

    if (fd > 2)
        close(fd);
    return -error;
}

int template_place_channel(void) {
    return dup3(0, CHANNEL, O_CLOEXEC) < 0 || null_streams() < 0 ? -errno : 0;
}

static void become_user(uint32_t uid, uint32_t gid) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0, 0, 0}};

    /* Dropping from the bounding set needs what becoming another user takes away. */
    for (int number = 0; number < CAPABILITIES_MAX; number++) {
        int held = prctl(PR_CAPBSET_READ, number, 0, 0, 0);
        /* The kernel knows no capability of this number or above. */
        if (held < 0)
            break;
        if (held == 1)
            check(prctl(PR_CAPBSET_DROP, number, 0, 0, 0), "drop the bounding set");
    }
    check(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "drop the ambient set");
    /* In all respects, for who has the capability. Who is nobody's root keeps its
     * capabilities then. */
    check(syscall(SYS_setgid, gid), "become another group");
    check(syscall(SYS_setuid, uid), "become another user");
    check(syscall(SYS_capset, &header, none), "drop capabilities");
}

static void set_limits(const struct order *order) {
    for (size_t at = 0; at < order->limits_count; at++) {
        const struct limit *limit = &order->limits[at];
        struct rlimit now, wanted = {(rlim_t)limit->soft, (rlim_t)limit->hard};
        check(getrlimit((int)limit->resource, &now), "read a limit");
        /* Where the process has less already, it keeps the less. */
        if (wanted.rlim_cur > now.rlim_max)
            wanted.rlim_cur = now.rlim_max;
        if (wanted.rlim_max > now.rlim_max)
            wanted.rlim_max = now.rlim_max;
        check(setrlimit((int)limit->resource, &wanted), "set a limit");
    }
}

static void allow_below(int rules, const char *path, uint64_t rights) {
    struct {
        uint64_t rights;
        int32_t parent;
    } __attribute__((packed)) rule;
    struct stat stat;

    rule.parent = open(path, O_PATH | O_CLOEXEC);
    check(rule.parent, "open a place for Landlock");
    check(fstat(rule.parent, &stat), "look at a place for Landlock");
    rule.rights = S_ISDIR(stat.st_mode) ? rights : rights & MAY_FILES;
    check(syscall(CALL_LANDLOCK_ADD, rules, 1, &rule, 0), "add a rule of Landlock");
    close(rule.parent);
}

/* Everything may be read; /tmp, /dev and /proc may be written. A kernel
 * without Landlock has the mounts alone. */
static void restrict_files(void) {
    long version = syscall(CALL_LANDLOCK_CREATE, NULL, 0, 1u);
    uint64_t all = MAY_ALL;
    int rules;

    if (version < 1)
        return;
    if (version >= 2)
        all |= MAY_REFER;
    if (version >= 3)
        all |= MAY_TRUNCATE;
    rules = (int)syscall(CALL_LANDLOCK_CREATE, &all, sizeof all, 0);
    check(rules, "make rules of Landlock");
    allow_below(rules, "/", MAY_READ);
    allow_below(rules, "/tmp", all);
    allow_below(rules, "/dev", all);
    allow_below(rules, "/proc", all);
    check(syscall(CALL_LANDLOCK_RESTRICT, rules, 0), "apply Landlock");
    close(rules);
}

static void filter_calls(const struct order *order) {
    struct sock_fprog program = {
        (unsigned short)(order->filter_bytes / sizeof(struct sock_filter)),
        /* The kernel's structure says no const; the filter is only read. */
        (struct sock_filter *)(uintptr_t)order->filter,
    };
    check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), "install the filter of system calls");
}

void confine(const struct order *order, const int *keep, size_t keep_count) {
    channel = order->channel;
    enter(order);
    close_others(order, keep, keep_count);
    if (order->doors_count > 0) {
        /* The template's own lead to a file system that is not the container's. */
        check(null_streams(), "place /dev/null");
        if (!(order->flags & ORDER_ONE_USER))
            check(syscall(SYS_setgroups, 0, NULL), "drop the groups");
    }
    if (order->uid != 0)
        become_user(order->uid, order->gid);
    set_limits(order);
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "forbid new privileges");
    if (order->flags & ORDER_LANDLOCK)
        restrict_files();
    check(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "forbid dumping");
    if (order->filter_bytes > 0)
        filter_calls(order);
}
