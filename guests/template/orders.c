/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket: orders in, answers and the ends of children out.
 */
#define _GNU_SOURCE
#include "template.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Children that live at the same time. */
#define CHILDREN_MAX 4096
/* The bytes of an order before its limits: kind, id, flags of setns, user,
 * group, flags, counts of limits, joins and doors, length of the filter. */
#define HEAD_BYTES (1 + 8 + 4 + 4 + 4 + 4 + 2 + 2 + 2 + 4)
#define LIMIT_BYTES (4 + 8 + 8)
/* The most instructions that the kernel takes, in bytes. */
#define FILTER_BYTES_MAX (4096 * 8)

struct child {
    pid_t pid;
    uint64_t id;
};

static int control = -1;
/* Readable when a child has ended. */
static int endings = -1;
/* The process namespace that the template itself is in. */
static int own_pids = -1;
static sigset_t mask_before;
static struct child children[CHILDREN_MAX];
static size_t children_count;
static unsigned char message[MESSAGE_BYTES_MAX];
static int order_fds[ORDER_FDS_MAX];
static size_t order_fds_count;
static struct order order;

/* A descriptor that is in nobody's way: the standard streams may be closed. */
static int high(int fd) {
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, CHANNEL + 1);

    if (fd >= 0)
        close(fd);
    return kept;
}

int template_begin(void) {
    sigset_t child_ended;

    control = high(0);
    own_pids = high(open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
    if (control < 0 || own_pids < 0 || null_streams() < 0)
        return -errno;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &child_ended, &mask_before) != 0)
        return -errno;
    endings = signalfd(-1, &child_ended, SFD_CLOEXEC | SFD_NONBLOCK);
    return endings < 0 ? -errno : 0;
}

int template_say(const void *bytes, size_t length) {
    ssize_t sent;

    do
        sent = send(control, bytes, length, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

int template_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    struct dirent *entry;

    if (tasks == NULL)
        return -errno;
    while ((entry = readdir(tasks)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

int template_shares(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], permissions[5];
    int count = 0, is_whole = 1;

    if (maps == NULL)
        return -errno;
    while (fgets(line, sizeof line, maps) != NULL) {
        /* The rest of a long line is no mapping. */
        if (is_whole && sscanf(line, "%*s %4s", permissions) == 1)
            count += permissions[1] == 'w' && permissions[3] == 's';
        is_whole = strchr(line, '\n') != NULL;
    }
    fclose(maps);
    return count;
}

/* An answer: kind, the order's id, and what follows. */
static void answer(char kind, uint64_t id, const void *rest, size_t length) {
    unsigned char bytes[9 + REASON_BYTES_MAX];

    bytes[0] = (unsigned char)kind;
    memcpy(bytes + 1, &id, 8);
    if (length > REASON_BYTES_MAX)
        length = REASON_BYTES_MAX;
    memcpy(bytes + 9, rest, length);
    /* A node that has gone is seen at the next receive. */
    (void)template_say(bytes, 9 + length);
}

static void refuse(uint64_t id, const char *what, int error) {
    char reason[REASON_BYTES_MAX];

    if (error != 0)
        snprintf(reason, sizeof reason, "%s: %s", what, strerror(error));
    else
        snprintf(reason, sizeof reason, "%s", what);
    answer('E', id, reason, strlen(reason));
}

static void reap(void) {
    struct signalfd_siginfo drained[8];
    int status;
    pid_t pid;

    while (read(endings, drained, sizeof drained) > 0)
        continue;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int32_t told = status;
        for (size_t at = 0; at < children_count; at++) {
            if (children[at].pid != pid)
                continue;
            answer('X', children[at].id, &told, 4);
            children[at] = children[--children_count];
            break;
        }
    }
}

static void close_order(void) {
    for (size_t at = 0; at < order_fds_count; at++)
        close(order_fds[at]);
    order_fds_count = 0;
}

/* Takes one message and its descriptors; its length, 0 at the end. */
static size_t receive(void) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * ORDER_FDS_MAX)];
    } rights;
    struct iovec into = {message, sizeof message};
    struct msghdr head = {0};
    ssize_t received;

    head.msg_iov = &into;
    head.msg_iovlen = 1;
    head.msg_control = rights.bytes;
    head.msg_controllen = sizeof rights.bytes;
    do
        received = recvmsg(control, &head, MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    order_fds_count = 0;
    if (received <= 0)
        return 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&head); part != NULL; part = CMSG_NXTHDR(&head, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        order_fds_count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(order_fds, CMSG_DATA(part), order_fds_count * sizeof(int));
    }
    /* What was cut off is no order; the empty message is refused below. */
    return head.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? 1 : (size_t)received;
}

static const unsigned char *take(const unsigned char *from, void *into, size_t length) {
    memcpy(into, from, length);
    return from + length;
}

/* Reads the message as an order; 0 if it is none. The integers of the wire
 * are little-endian, as are the processors that this runs on. */
static int parse(size_t length) {
    const unsigned char *at = message + 1;
    uint16_t limits, joins, doors;
    uint32_t filter;

    if (length < HEAD_BYTES || message[0] != 'F')
        return 0;
    at = take(at, &order.id, 8);
    at = take(at, &order.setns_flags, 4);
    at = take(at, &order.uid, 4);
    at = take(at, &order.gid, 4);
    at = take(at, &order.flags, 4);
    at = take(at, &limits, 2);
    at = take(at, &joins, 2);
    at = take(at, &doors, 2);
    at = take(at, &filter, 4);
    order.is_by_process = doors == 0 && order.setns_flags != 0;
    order.doors_count = (size_t)doors + (size_t)order.is_by_process;
    if (limits > LIMITS_MAX || filter > FILTER_BYTES_MAX || filter % 8 != 0
        || length != HEAD_BYTES + (size_t)limits * LIMIT_BYTES + filter
        || order_fds_count != 1 + order.doors_count + joins)
        return 0;
    order.limits_count = limits;
    for (size_t index = 0; index < limits; index++) {
        at = take(at, &order.limits[index].resource, 4);
        at = take(at, &order.limits[index].soft, 8);
        at = take(at, &order.limits[index].hard, 8);
    }
    order.filter = at;
    order.filter_bytes = filter;
    order.channel = order_fds[0];
    order.doors = order_fds + 1;
    order.joins = order_fds + 1 + order.doors_count;
    order.joins_count = joins;
    return 1;
}

/* Whether the order can be carried out now; answers it if not. */
static int prepare(void) {
    int threads = template_threads();

    if (threads != 1) {
        char why[REASON_BYTES_MAX];
        snprintf(why, sizeof why, "there are %d threads, so that forking is not safe", threads);
        refuse(order.id, why, 0);
        return 0;
    }
    if (children_count == CHILDREN_MAX) {
        refuse(order.id, "there are too many instances", 0);
        return 0;
    }
    if (order.doors_count > 0 && setns(order.doors[0], CLONE_NEWPID) != 0) {
        refuse(order.id, "setns of the process namespace", errno);
        return 0;
    }
    return 1;
}

int template_next(void) {
    /* What was loaded may have had children ended without a word. */
    struct sigaction usual = {.sa_handler = SIG_DFL};
    struct pollfd ready[2] = {{control, POLLIN, 0}, {endings, POLLIN, 0}};

    sigaction(SIGCHLD, &usual, NULL);
    /* That takes back the word of a child that has ended since the last order,
     * blocked or not: it is one that is ignored by default. So it is looked for. */
    reap();
    for (;;) {
        size_t length;
        if (poll(ready, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            return 0;
        }
        if (ready[1].revents != 0)
            reap();
        if (ready[0].revents == 0)
            continue;
        length = receive();
        if (length == 0)
            return 0;
        if (parse(length) && prepare())
            return 1;
        close_order();
    }
}

void template_forked(int pid) {
    int is_back = order.doors_count == 0 || setns(own_pids, CLONE_NEWPID) == 0;

    close_order();
    if (pid < 0) {
        refuse(order.id, "fork", -pid);
    } else {
        uint32_t told = (uint32_t)pid;
        children[children_count].pid = pid;
        children[children_count++].id = order.id;
        answer('R', order.id, &told, 4);
    }
    /* Children would be born in a container that is not theirs. */
    if (!is_back)
        _exit(STATUS_UNCONFINED);
}

void template_confine(const int *keep, size_t keep_count) {
    sigprocmask(SIG_SETMASK, &mask_before, NULL);
    confine(&order, keep, keep_count);
}
