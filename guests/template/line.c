/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines: one instance calls another one without the node. A line is two fifos
 * in shared memory, one for requests and one for answers, laid out as
 * crates/xpu/src/fifo.rs says; docs/spec/lines.md says what is sent.
 *
 * The other end is somebody else's function, and may write to any byte at any
 * moment. So each word of its is read once and checked, bytes are copied out
 * before anybody looks at them, and positions that are ours are kept here. The
 * memory can be neither cut short nor made longer, or it is not mapped.
 *
 * One thread at a time uses one end of a line; who that is is for the language
 * to say. It sleeps by a futex (line_next), or else, where it has an event loop
 * to go back to, until its bell rings (line_look): a socket whose other end the
 * other side has. Nothing that is sent there waits.
 */
#define _GNU_SOURCE
#include "line.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RING_AT 4096
#define TAIL_AT 0
#define HEAD_AT 64
#define READER_SLEEPS_AT 128
#define WRITER_SLEEPS_AT 192
#define CLOSED_AT 256
/* Of the answers: how many requests were served, while one is. */
#define SERVING_AT 320
#define LENGTH_BYTES 4
#define CAPACITY_MIN (4u << 10)
#define CAPACITY_MAX (1u << 20)
/* How a reader says that it sleeps. */
#define BY_FUTEX 1
#define BY_BELL 2
/* How often a bell is tried for which there is no memory. */
#define RING_TRIES 3
/* How often an end looks again in any case before it sleeps. */
#define LOOKS 24
/* While messages follow each other it looks for so long: to wake a processor that
 * is idle takes as long. After looks in vain it sleeps at once, the next time, twice
 * and so on. */
#define VIGIL_NS 50000
#define LOOKS_BETWEEN_CLOCKS 24
#define VAIN_MAX 6

struct ring {
    unsigned char *memory;
    uint64_t capacity;
    /* Our own position: all that was written, or all that was read. */
    uint64_t at;
};

struct line {
    struct ring in, out;
    int bell;
    /* Requests that were taken here: what others say of them is not believed. */
    uint32_t served;
    /* How often it has looked in vain before it slept, and how often it still sleeps at once. */
    unsigned int vain, sleeps;
};

static struct line lines[LINES_MAX];

static _Atomic uint32_t *word32(const struct ring *ring, size_t at) {
    return (_Atomic uint32_t *)(void *)(ring->memory + at);
}

static _Atomic uint64_t *word64(const struct ring *ring, size_t at) {
    return (_Atomic uint64_t *)(void *)(ring->memory + at);
}

/* Sends a byte by the bell. A bell that is full rings already, and where it is closed nobody hears it.
 * Where there is no memory for it whoever writes next tries again; that is the node, at last, which
 * closes a line on which nothing is asked. */
static void ring_bell(_Atomic uint32_t *sleeps, int bell) {
    for (int tries = 0; tries < RING_TRIES; tries++) {
        if (send(bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 || errno == EAGAIN || errno == EPIPE)
            return;
    }
    atomic_store(sleeps, BY_BELL);
}

static void wake(const struct ring *ring, size_t sleeps_at, int bell) {
    _Atomic uint32_t *sleeps = word32(ring, sleeps_at);
    uint32_t how;

    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(sleeps, memory_order_relaxed) == 0)
        return;
    how = atomic_exchange(sleeps, 0);
    if (how == BY_BELL)
        ring_bell(sleeps, bell);
    else if (how != 0)
        syscall(SYS_futex, sleeps, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void copy_out(const struct ring *ring, uint64_t position, void *into, size_t length) {
    size_t at = (size_t)(position & (ring->capacity - 1));
    size_t first = length < ring->capacity - at ? length : (size_t)ring->capacity - at;

    memcpy(into, ring->memory + RING_AT + at, first);
    memcpy((unsigned char *)into + first, ring->memory + RING_AT, length - first);
}

static void copy_in(const struct ring *ring, uint64_t position, const void *from, size_t length) {
    size_t at = (size_t)(position & (ring->capacity - 1));
    size_t first = length < ring->capacity - at ? length : (size_t)ring->capacity - at;

    memcpy(ring->memory + RING_AT + at, from, first);
    memcpy(ring->memory + RING_AT, (const unsigned char *)from + first, length - first);
}

/* Maps a fifo; closes its descriptor in any case. */
static int map(struct ring *ring, int fd) {
    const int sealed = F_SEAL_SHRINK | F_SEAL_GROW;
    int seals = fcntl(fd, F_GET_SEALS), error = EINVAL;
    struct stat stat;
    void *memory = MAP_FAILED;

    if (seals >= 0 && (seals & sealed) == sealed && fstat(fd, &stat) == 0 && stat.st_size > RING_AT) {
        uint64_t capacity = (uint64_t)stat.st_size - RING_AT;
        if ((capacity & (capacity - 1)) == 0 && capacity >= CAPACITY_MIN && capacity <= CAPACITY_MAX) {
            memory = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            error = errno;
            ring->capacity = capacity;
        }
    }
    close(fd);
    if (memory == MAP_FAILED)
        return -error;
    ring->memory = memory;
    ring->at = 0;
    return 0;
}

static void unmap(struct ring *ring) {
    if (ring->memory != NULL)
        munmap(ring->memory, RING_AT + (size_t)ring->capacity);
    ring->memory = NULL;
}

int line_open(int in, int out, int bell) {
    int at = 0, error = -ENOSPC;

    while (at < LINES_MAX && lines[at].in.memory != NULL)
        at++;
    if (at < LINES_MAX && (error = map(&lines[at].in, in)) == 0) {
        error = map(&lines[at].out, out);
        if (error == 0) {
            lines[at].bell = bell;
            lines[at].served = 0;
            lines[at].vain = lines[at].sleeps = 0;
            return at;
        }
        unmap(&lines[at].in);
    } else {
        if (at == LINES_MAX)
            close(in);
        close(out);
    }
    close(bell);
    return error;
}

void line_close(int index) {
    struct line *line = &lines[index];

    atomic_store(word32(&line->out, CLOSED_AT), 1);
    wake(&line->out, READER_SLEEPS_AT, line->bell);
    unmap(&line->in);
    unmap(&line->out);
    close(line->bell);
}

int line_is_closed(int index) {
    if (lines[index].in.memory == NULL)
        return 1;
    return atomic_load(word32(&lines[index].in, CLOSED_AT)) != 0 || atomic_load(word32(&lines[index].out, CLOSED_AT)) != 0;
}

int line_send(int index, const void *message, size_t length) {
    struct ring *ring = &lines[index].out;
    uint32_t told = (uint32_t)length;
    uint64_t used;

    if (length > ring->capacity - LENGTH_BYTES)
        return -EMSGSIZE;
    if (atomic_load_explicit(word32(ring, CLOSED_AT), memory_order_acquire) != 0)
        return -EPIPE;
    used = ring->at - atomic_load_explicit(word64(ring, HEAD_AT), memory_order_acquire);
    /* One message at a time is under way: what is there besides is a lie. */
    if (used > ring->capacity || ring->capacity - used < LENGTH_BYTES + length)
        return -EPROTO;
    copy_in(ring, ring->at, &told, LENGTH_BYTES);
    copy_in(ring, ring->at + LENGTH_BYTES, message, length);
    ring->at += LENGTH_BYTES + length;
    atomic_store_explicit(word64(ring, TAIL_AT), ring->at, memory_order_release);
    wake(ring, READER_SLEEPS_AT, lines[index].bell);
    return 0;
}

/* The next message, without waiting; its length, or why there is none. */
static int64_t take(struct ring *ring, void *into, size_t size, int bell) {
    /* Before the position: what was written before it was closed counts. */
    uint32_t closed = atomic_load_explicit(word32(ring, CLOSED_AT), memory_order_acquire), length;
    uint64_t filled = atomic_load_explicit(word64(ring, TAIL_AT), memory_order_acquire) - ring->at;

    if (filled == 0)
        return closed != 0 ? -EPIPE : -EAGAIN;
    if (filled > ring->capacity || filled < LENGTH_BYTES)
        return -EPROTO;
    copy_out(ring, ring->at, &length, LENGTH_BYTES);
    if (length > filled - LENGTH_BYTES || length > size)
        return -EPROTO;
    copy_out(ring, ring->at + LENGTH_BYTES, into, length);
    ring->at += LENGTH_BYTES + length;
    atomic_store_explicit(word64(ring, HEAD_AT), ring->at, memory_order_release);
    wake(ring, WRITER_SLEEPS_AT, bell);
    return length;
}

int64_t line_look(int index, void *into, size_t size) {
    struct line *line = &lines[index];
    _Atomic uint32_t *sleeps = word32(&line->in, READER_SLEEPS_AT);
    int64_t taken = take(&line->in, into, size, line->bell);

    if (taken != -EAGAIN)
        return taken;
    atomic_store(sleeps, BY_BELL);
    atomic_thread_fence(memory_order_seq_cst);
    taken = take(&line->in, into, size, line->bell);
    if (taken != -EAGAIN)
        atomic_store(sleeps, 0);
    return taken;
}

static uint64_t clock_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Where there is one processor, the other side does nothing while this one looks. */
static int has_processors(void) {
    static _Atomic int known = 0;
    int count = atomic_load_explicit(&known, memory_order_relaxed);
    cpu_set_t allowed;

    if (count == 0) {
        count = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
        atomic_store_explicit(&known, count, memory_order_relaxed);
    }
    return count > 1;
}

/* Looks a few times for a message. */
static int64_t look(struct line *line, void *into, size_t size, int times) {
    int64_t taken;

    while ((taken = take(&line->in, into, size, line->bell)) == -EAGAIN && times-- > 0) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    return taken;
}

/* Looks for a message, for longer where that was of use before. */
static int64_t watch(struct line *line, void *into, size_t size) {
    int64_t taken = look(line, into, size, LOOKS);
    uint64_t until;

    if (taken != -EAGAIN || !has_processors())
        return taken;
    if (line->sleeps > 0) {
        line->sleeps--;
        return taken;
    }
    until = clock_ns() + VIGIL_NS;
    do {
        taken = look(line, into, size, LOOKS_BETWEEN_CLOCKS);
        if (taken != -EAGAIN) {
            line->vain = 0;
            return taken;
        }
        /* The other side may wait for this processor. */
        sched_yield();
    } while (clock_ns() < until);
    line->vain += line->vain < VAIN_MAX;
    line->sleeps = 1u << line->vain;
    return taken;
}

int64_t line_next(int index, void *into, size_t size, int64_t timeout_us) {
    struct line *line = &lines[index];
    struct ring *ring = &line->in;
    int bell = line->bell;
    _Atomic uint32_t *sleeps = word32(ring, READER_SLEEPS_AT);
    struct timespec timeout = {timeout_us / 1000000, timeout_us % 1000000 * 1000};

    for (;;) {
        int64_t taken = watch(line, into, size);
        long slept;

        if (taken != -EAGAIN)
            return taken;
        atomic_store(sleeps, BY_FUTEX);
        atomic_thread_fence(memory_order_seq_cst);
        taken = take(ring, into, size, bell);
        if (taken != -EAGAIN) {
            atomic_store(sleeps, 0);
            return taken;
        }
        slept = syscall(SYS_futex, sleeps, FUTEX_WAIT, BY_FUTEX, timeout_us < 0 ? NULL : &timeout, NULL, 0);
        slept = slept < 0 ? errno : 0;
        atomic_store(sleeps, 0);
        if (slept == EINTR || slept == ETIMEDOUT) {
            taken = take(ring, into, size, bell);
            return taken == -EAGAIN ? -slept : taken;
        }
    }
}

int64_t line_ask(int index, const void *message, size_t length, void *into, size_t size) {
    int sent = line_send(index, message, length);

    /* What was not sent was not begun. */
    return sent < 0 ? -ESHUTDOWN : line_next(index, into, size, -1);
}

int line_is_taken(int index) {
    const struct ring *ring = &lines[index].out;

    return atomic_load(word64(ring, HEAD_AT)) == ring->at;
}

void line_serves(int index) {
    struct line *line = &lines[index];

    if (++line->served == 0)
        line->served = 1;
    atomic_store(word32(&line->out, SERVING_AT), line->served);
}

int64_t line_take(int index, void *into, size_t size, int64_t timeout_us) {
    int64_t taken = line_next(index, into, size, timeout_us);

    if (taken >= 0)
        line_serves(index);
    return taken;
}

int line_answer(int index, const void *message, size_t length) {
    atomic_store(word32(&lines[index].out, SERVING_AT), 0);
    return line_send(index, message, length);
}
