/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Node's template needs beside the core, as an addon. It is also loaded
 * before the C library (LD_PRELOAD), for V8 tells the kernel to leave its heap
 * out of forked children.
 *
 * Here the fork itself happens, in native code called from JavaScript: the
 * parent never returns into JavaScript while it serves, so that the heap of
 * the template does not change from one instance to the next, and the child
 * returns once it is confined.
 *
 * What an instance reads in its event loop is in node_streams.c.
 */
#define _GNU_SOURCE
#include "napi.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Descriptors that the event loop opens in a child. */
#define LOOP_FDS_MAX 64
/* Threads that Node starts for itself. */
#define OWN_THREADS_MAX 16
/* How long these may take to be idle, in milliseconds. */
#define IDLE_PATIENCE 2000
#define ENTROPY_BYTES 64
/* The same number on every processor. */
#define CALL_IO_URING_SETUP 425
/* Objects that a child makes to see whether it has a heap. */
#define OBJECTS_TRIED 1000
/* The kernel's structure of a signal's action: the C library hides the two
 * signals that no thread of Node's can block. */
#define SIGNAL_THAT_NOBODY_BLOCKS 32
#define HAS_RESTORER 0x04000000

struct kernel_action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

/* The heap goes to the children. Whoever else gives this advice, such as a
 * library for devices, has no business in a template. */
EXPORTED int madvise(void *address, size_t length, int advice) {
    static int (*real)(void *, size_t, int);

    if (advice == MADV_DONTFORK)
        return 0;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "madvise");
    return real(address, length, advice);
}

/* Event loops of Node 22 and later order their work through a ring that they
 * share with the kernel, and take it for a fault if that ends. In containers it
 * does, so there is none from the beginning. Libraries reach such calls by
 * `syscall`, with as many arguments as there are registers for. */
EXPORTED long syscall(long number, ...) {
    static long (*real)(long, long, long, long, long, long, long);
    long given[6];
    va_list all;

    if (number == CALL_IO_URING_SETUP) {
        errno = ENOSYS;
        return -1;
    }
    va_start(all, number);
    for (size_t at = 0; at < 6; at++)
        given[at] = va_arg(all, long);
    va_end(all);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

/* Where the threads that were ended had waited. */
static uintptr_t ended_waits[OWN_THREADS_MAX];
static size_t ended_count;

/* A condition that nobody waits for any more, though it looks like it: to
 * destroy it would be to wait for ever. */
EXPORTED int pthread_cond_destroy(pthread_cond_t *condition) {
    static int (*real)(pthread_cond_t *);

    for (size_t at = 0; at < ended_count; at++)
        if (ended_waits[at] - (uintptr_t)condition < sizeof *condition)
            return 0;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_destroy");
    return real(condition);
}

/* The event loop must not come to have the channel's number. */
__attribute__((constructor)) static void reserve_channel(void) {
    int null;

    if (fcntl(CHANNEL, F_GETFD) >= 0)
        return;
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0 && null != CHANNEL) {
        (void)dup3(null, CHANNEL, O_CLOEXEC);
        close(null);
    }
}

static int argument_number(napi_env env, napi_callback_info info) {
    napi_value given;
    size_t count = 1;
    int32_t value = 1;

    if (napi_get_cb_info(env, info, &count, &given, NULL, NULL) == 0 && count == 1)
        napi_get_value_int32(env, given, &value);
    return value;
}

static void end_thread(int signal) {
    (void)signal;
    syscall(SYS_exit, 0);
}

/* Whether a thread waits in the kernel for something to do, and where in
 * memory, if it is there that it waits. */
static int is_idle(int thread, uintptr_t *where) {
    char path[64], text[64] = {0}, *rest;
    int fd;
    long call;

    *where = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    /* "running", or the number of the call that it is in and its arguments. */
    if (read(fd, text, sizeof text - 1) <= 0)
        text[0] = 0;
    close(fd);
    call = strtol(text, &rest, 10);
    if (rest == text)
        return 0;
    if (call == SYS_futex) {
        *where = (uintptr_t)strtoull(rest, NULL, 16);
        return 1;
    }
#ifdef SYS_epoll_wait
    if (call == SYS_epoll_wait)
        return 1;
#endif
    return call == SYS_epoll_pwait;
}

/* The other threads of this process; how many. */
static int others(int *threads) {
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;

    if (tasks == NULL)
        return -errno;
    while ((entry = readdir(tasks)) != NULL && count < OWN_THREADS_MAX) {
        int thread = atoi(entry->d_name);
        if (thread > 0 && thread != getpid())
            threads[count++] = thread;
    }
    closedir(tasks);
    return count;
}

static void a_millisecond(void) {
    struct timespec pause = {0, 1000000};

    nanosleep(&pause, NULL);
}

/*
 * Ends the threads that Node has started for itself: one for the engine's
 * tasks in the background, of which there are none with --single-threaded, one
 * for those that are delayed, and one that waits for the debugger. Each must
 * be waiting for something to do, and so holds no lock. It is ended by the
 * kernel alone, so that whoever joins it finds it gone.
 *
 * To be called before anything is imported: threads that a module starts are
 * not ended, but are why the template refuses to fork.
 */
static napi_value end_own_threads(napi_env env, napi_callback_info info) {
    struct kernel_action action = {end_thread, HAS_RESTORER, (void (*)(void))end_thread, 0}, before;
    int threads[OWN_THREADS_MAX];
    int left, patience = IDLE_PATIENCE;

    (void)info;
    if (syscall(SYS_rt_sigaction, SIGNAL_THAT_NOBODY_BLOCKS, &action, &before, sizeof action.mask) != 0)
        return number(env, -errno);
    while ((left = others(threads)) > 0 && patience-- > 0) {
        for (int at = 0; at < left; at++) {
            uintptr_t where;
            if (!is_idle(threads[at], &where))
                continue;
            if (where != 0 && ended_count < OWN_THREADS_MAX)
                ended_waits[ended_count++] = where;
            syscall(SYS_tgkill, getpid(), threads[at], SIGNAL_THAT_NOBODY_BLOCKS);
        }
        a_millisecond();
    }
    syscall(SYS_rt_sigaction, SIGNAL_THAT_NOBODY_BLOCKS, &before, NULL, sizeof action.mask);
    return number(env, left);
}

/* Calls `act` for each descriptor above the channel; 0, or -1. */
static int each_descriptor(void (*act)(int, void *), void *with) {
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;

    if (folder == NULL)
        return -1;
    while ((entry = readdir(folder)) != NULL) {
        int fd = atoi(entry->d_name);
        if (fd > CHANNEL && fd != dirfd(folder))
            act(fd, with);
    }
    closedir(folder);
    return 0;
}

static void mark_old(int fd, void *unused) {
    (void)unused;
    fcntl(fd, F_SETFD, 0);
}

struct kept {
    int fds[LOOP_FDS_MAX];
    size_t count;
};

/* In ascending order. */
static void keep_new(int fd, void *with) {
    struct kept *kept = with;
    size_t at = kept->count;
    int flags = fcntl(fd, F_GETFD);

    if (flags < 0 || !(flags & FD_CLOEXEC) || kept->count == LOOP_FDS_MAX)
        return;
    for (; at > 0 && kept->fds[at - 1] > fd; at--)
        kept->fds[at] = kept->fds[at - 1];
    kept->fds[at] = fd;
    kept->count++;
}

/* OpenSSL notices a fork by the number of the process, which in containers is
 * often the same. */
static void reseed(void) {
    void (*add)(const void *, int, double);
    unsigned char entropy[ENTROPY_BYTES];

    *(void **)&add = dlsym(RTLD_DEFAULT, "RAND_add");
    if (add == NULL)
        return;
    if (getrandom(entropy, sizeof entropy, 0) != (ssize_t)sizeof entropy)
        _exit(STATUS_UNCONFINED);
    add(entropy, sizeof entropy, 0.0);
    explicit_bzero(entropy, sizeof entropy);
}

/* The thread for delayed tasks is gone, but the engine still wakes it, by an
 * event of a loop that nobody runs, and aborts if it cannot. What it writes
 * goes into an event of the child's own, which nobody reads. */
static void replace_event(int fd, void *unused) {
    static const char event[] = "anon_inode:[eventfd]";
    char path[32], kind[sizeof event] = {0};
    int own;

    (void)unused;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, kind, sizeof kind - 1) < 0 || strcmp(kind, event) != 0)
        return;
    own = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (own < 0 || dup3(own, fd, O_CLOEXEC) < 0)
        _exit(STATUS_UNCONFINED);
    close(own);
}

/* The event loop gets descriptors of its own; all others of the template's
 * are closed. What was open before the fork is not closed on exec, what the
 * loop has opened since is. */
static void become_instance(struct uv_loop_s *loop) {
    struct kept kept = {{0}, 0};

    if (each_descriptor(replace_event, NULL) != 0)
        _exit(STATUS_UNCONFINED);
    if (uv_loop_fork(loop) != 0 || each_descriptor(keep_new, &kept) != 0)
        _exit(STATUS_UNCONFINED);
    template_confine(kept.fds, kept.count);
    signal(SIGUSR1, SIG_DFL);
    reseed();
    uv_update_time(loop);
}

/* Serves orders. Returns 0 in the template, at the end, and 1 in a child. */
static napi_value serve(napi_env env, napi_callback_info info) {
    struct uv_loop_s *loop = NULL;

    (void)info;
    if (napi_get_uv_event_loop(env, &loop) != 0)
        return number(env, 0);
    while (template_next()) {
        int pid = each_descriptor(mark_old, NULL) == 0 ? fork() : -1;
        if (pid == 0) {
            become_instance(loop);
            return number(env, 1);
        }
        template_forked(pid < 0 ? -errno : pid);
    }
    return number(env, 0);
}

/* Whether a child lives that uses the engine's heap and its event loop: 0, or
 * how it ended. It would not, were the engine to leave out its heap after all. */
static napi_value try_fork(napi_env env, napi_callback_info info) {
    struct uv_loop_s *loop = NULL;
    int status = -1, pid;

    (void)info;
    if (napi_get_uv_event_loop(env, &loop) != 0 || (pid = fork()) < 0)
        return number(env, -1);
    if (pid == 0) {
        napi_value object;
        int failed = uv_loop_fork(loop);
        for (int count = 0; count < OBJECTS_TRIED; count++)
            failed |= napi_create_object(env, &object);
        _exit(failed != 0);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return number(env, status);
}

static napi_value begin(napi_env env, napi_callback_info info) {
    (void)info;
    return number(env, template_begin());
}

static napi_value place_channel(napi_env env, napi_callback_info info) {
    (void)info;
    return number(env, template_place_channel());
}

static napi_value say(napi_env env, napi_callback_info info) {
    void *bytes;
    size_t length;

    return number(env, argument(env, info, &bytes, &length) ? template_say(bytes, length) : -EINVAL);
}

static napi_value threads(napi_env env, napi_callback_info info) {
    (void)info;
    return number(env, template_threads());
}

static napi_value shares(napi_env env, napi_callback_info info) {
    (void)info;
    return number(env, template_shares());
}

/* Whether the call of this turn is to be begun, and was not recalled. */
static napi_value turns_begin_one(napi_env env, napi_callback_info info) {
    return number(env, turns_begin((uint32_t)argument_number(env, info)));
}

/* Sends bytes over the channel, all of them before it returns. */
static napi_value send_bytes(napi_env env, napi_callback_info info) {
    void *bytes;
    size_t length;

    return number(env, argument(env, info, &bytes, &length) ? send_all(CHANNEL, bytes, length) : -1);
}

/* A stream on which these bytes come and then the end; its descriptor. */
static napi_value stream_of(napi_env env, napi_callback_info info) {
    void *bytes;
    size_t length;
    int ends[2];

    if (!argument(env, info, &bytes, &length) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return number(env, -1);
    if (send_all(ends[1], bytes, length) != 0) {
        close(ends[0]);
        ends[0] = -1;
    }
    close(ends[1]);
    return number(env, ends[0]);
}

/* Ends the process and nothing else: what Node does at its end waits for
 * threads that are not there. */
static napi_value end(napi_env env, napi_callback_info info) {
    _exit(argument_number(env, info) & 0xff);
}

EXPORTED napi_value napi_register_module_v1(napi_env env, napi_value exports) {
    static const struct {
        const char *name;
        napi_callback call;
    } functions[] = {
        {"begin", begin},   {"endOwnThreads", end_own_threads},
        {"say", say},       {"placeChannel", place_channel},
        {"serve", serve},   {"threads", threads},   {"shares", shares},
        {"send", send_bytes}, {"end", end}, {"streamOf", stream_of}, {"tryFork", try_fork},
        {"attend", attend}, {"onSettled", on_settled}, {"lineOpen", line_open_one}, {"lineLook", line_look_again},
        {"lineSend", line_send_one}, {"lineIsTaken", line_is_all_taken}, {"lineIsClosed", line_is_shut},
        {"lineClose", line_close_one}, {"turnsOpen", turns_open_one}, {"printTo", print_to_one}, {"turnsBegin", turns_begin_one},
    };

    for (size_t at = 0; at < sizeof functions / sizeof functions[0]; at++) {
        napi_value function;
        if (napi_create_function(env, functions[at].name, (size_t)-1, functions[at].call, NULL, &function) != 0)
            return NULL;
        napi_set_named_property(env, exports, functions[at].name, function);
    }
    return exports;
}
