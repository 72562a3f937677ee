/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that one function makes a value in and others map where it is
 * (docs/spec/memory-map.md, section 6).
 *
 * The node lends a file and addresses with each call. What the handler takes of it is
 * given out once, in order; when the value is answered the file is mapped here no more,
 * so that nobody can write to what others have. What is given is mapped privately, and
 * no more once the request is over.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
/* Where segments may lie: far from the program, its heap and its libraries. */
#define PLAN_BEGIN 0x100000000000ul
#define PLAN_END 0x400000000000ul
#define PAGE 4096ul
/* What a file begins with: kind and version, base, length, where the value is, its content
 * type. The value's own memory begins behind it. */
#define VALUE_HEAD_BYTES 512ul
#define VALUE_MARK "\2\0\0\0{}\4\1"
#define VALUE_MARK_BYTES 8
/* Pieces begin at such places; those of more than a page where a cache line does. */
#define PIECE_ALIGNMENT 16ul
/* Of the memory that a process may have, what may be in values that it has handed over: it
 * is charged to the process, though it is others who keep it. */
#define HANDED_SHARE 4
/* What the node takes for: another process can be given it. */
#define UNMAPPABLE "__main__.Unmappable"

/* What the node has lent for the call that runs. */
static struct {
    /* Whoever maps it or answers with it. Pieces are taken without. */
    pthread_mutex_t lock;
    /* Below zero: nothing. */
    int fd;
    uintptr_t base;
    size_t length;
    atomic_int is_mapped;
    /* From the base on. */
    _Atomic size_t taken;
    /* Of it, what was made in huge pages before it was written to. */
    _Atomic size_t filled;
    /* What is answered with. */
    uintptr_t value;
} outbox = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* Values of others that are mapped. */
static struct {
    sinew_value list[SINEW_VALUES_MAX];
    char types[SINEW_VALUES_MAX][SINEW_TYPE_MAX + 1];
    size_t count;
} given;

/* Bytes of values that were handed over, and whether the process is of no more use. */
static struct {
    uint64_t bytes, bytes_max;
    int is_over;
} handed = {.bytes_max = UINT64_MAX};

/* Maps a file exactly there, or says why not. */
static int map_at(uintptr_t base, size_t length, int flags, int fd) {
    void *at = mmap((void *)base, length, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE | MAP_NORESERVE, fd, 0);

    if (at == MAP_FAILED)
        return -errno;
    if (at == (void *)base)
        return 0;
    /* A kernel that does not know the flag. */
    munmap(at, length);
    return -EEXIST;
}

/* From now on the handler may take memory. */
static void open_outbox(int fd, uintptr_t base) {
    struct stat file;

    outbox.fd = fd;
    outbox.base = base;
    outbox.is_mapped = 0;
    outbox.taken = VALUE_HEAD_BYTES;
    outbox.filled = 0;
    outbox.length = base != 0 && fstat(fd, &file) == 0 ? (size_t)file.st_size : 0;
    /* It is twice as long as the memory limit. */
    handed.bytes_max = outbox.length > 0 ? outbox.length / 2 / HANDED_SHARE : UINT64_MAX;
}

/* Maps the outbox, if that was not done; with the lock. 0, or why not. */
static int map_outbox(void) {
    int error;

    if (outbox.is_mapped)
        return 0;
    if (outbox.fd < 0)
        return -ENOTSUP;
    /* There are no addresses left, or no memory for values. */
    if (outbox.length == 0)
        return -ENOMEM;
    error = map_at(outbox.base, outbox.length, MAP_SHARED, outbox.fd);
    if (error < 0) {
        handed.is_over = 1;
        return error;
    }
    /* What is forked would write to what others have. */
    madvise((void *)outbox.base, outbox.length, MADV_DONTFORK);
    outbox.is_mapped = 1;
    return 0;
}

/* Whether pieces can be taken; errno says why not. */
static int can_take(void) {
    int error;

    if (atomic_load_explicit(&outbox.is_mapped, memory_order_acquire))
        return 1;
    pthread_mutex_lock(&outbox.lock);
    error = map_outbox();
    pthread_mutex_unlock(&outbox.lock);
    errno = -error;
    return error == 0;
}

/* Makes pages for a piece that reaches into huge ones of which nothing was taken before. Not the first one,
 * for most values are short; and not where it can hardly be that all is written to. */
static void make_pages(size_t before, size_t end) {
    uintptr_t from = (outbox.base + before + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    uintptr_t to = (outbox.base + end + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);

    if (from >= to || to - outbox.base > outbox.length)
        return;
    /* Altogether, for the rest is of pieces that may have been asked for in vain. */
    if (atomic_fetch_add(&outbox.filled, to - from) + (to - from) <= outbox.length / 4)
        make_huge(from, to);
}

void *sinew_memory(sinew_request *request, size_t size) {
    size_t alignment = size > PAGE ? 4 * PIECE_ALIGNMENT : PIECE_ALIGNMENT;
    size_t before, begin;

    (void)request;
    if (!can_take())
        return NULL;
    size = size == 0 ? 1 : size;
    before = atomic_load_explicit(&outbox.taken, memory_order_relaxed);
    do {
        begin = (before + alignment - 1) & ~(alignment - 1);
        if (begin > outbox.length || size > outbox.length - begin) {
            errno = ENOMEM;
            return NULL;
        }
    } while (!atomic_compare_exchange_weak_explicit(&outbox.taken, &before, begin + size, memory_order_relaxed,
                                                    memory_order_relaxed));
    make_pages(before, begin + size);
    return (void *)(outbox.base + begin);
}

int sinew_answer_value(sinew_request *request, const char *content_type, const void *value) {
    const char *type = content_type == NULL ? "" : content_type;
    uintptr_t begin = outbox.base + VALUE_HEAD_BYTES;
    uint16_t type_length = (uint16_t)strnlen(type, SINEW_TYPE_MAX + 1);
    unsigned char *head = (unsigned char *)outbox.base;

    (void)request;
    if (exchange.is_answered)
        return -EALREADY;
    if (type_length > SINEW_TYPE_MAX || !is_header_value(type, type_length))
        return -EINVAL;
    pthread_mutex_lock(&outbox.lock);
    if (!outbox.is_mapped || (uintptr_t)value < begin || (uintptr_t)value >= outbox.base + outbox.taken) {
        pthread_mutex_unlock(&outbox.lock);
        return -EINVAL;
    }
    outbox.value = (uintptr_t)value;
    memcpy(head + 32, &type_length, 2);
    memcpy(head + 34, type, type_length);
    pthread_mutex_unlock(&outbox.lock);
    exchange.status = 200;
    exchange.body_length = 0;
    exchange.is_answered = exchange.is_value = 1;
    return 0;
}

/* Says where the value is, and how long: more may have been taken since it was answered. */
static uint64_t write_value_head(void) {
    unsigned char *head = (unsigned char *)outbox.base;
    uint64_t length = outbox.taken;

    memcpy(head, VALUE_MARK, VALUE_MARK_BYTES);
    memcpy(head + 8, &(uint64_t){outbox.base}, 8);
    memcpy(head + 16, &length, 8);
    memcpy(head + 24, &(uint64_t){outbox.value}, 8);
    return length;
}

/* Nothing more is written to the outbox. Its length if it is handed over, and else 0. */
static uint64_t close_outbox(int is_handed_over) {
    uint64_t length = 0;
    struct stat file;

    pthread_mutex_lock(&outbox.lock);
    if (is_handed_over)
        length = write_value_head();
    if (outbox.is_mapped)
        munmap((void *)outbox.base, outbox.length);
    if (is_handed_over && fstat(outbox.fd, &file) == 0)
        handed.bytes += (uint64_t)file.st_blocks * 512;
    if (outbox.fd >= 0)
        close(outbox.fd);
    outbox.fd = -1;
    outbox.is_mapped = 0;
    pthread_mutex_unlock(&outbox.lock);
    return length;
}

/* Maps what others have made. Who made it is believed no more than that it is memory: what is
 * there says nothing of this process, but where it says to lie. */
static int map_value(int fd) {
    sinew_value *value = &given.list[given.count];
    char *type = given.types[given.count];
    unsigned char head[VALUE_HEAD_BYTES];
    uint64_t base, length, at;
    size_t type_length;
    struct stat file;
    int error;

    if (fstat(fd, &file) < 0)
        return -errno;
    if (pread(fd, head, sizeof head, 0) != sizeof head || memcmp(head, VALUE_MARK, VALUE_MARK_BYTES) != 0)
        return -EPROTO;
    base = long_of(head + 8);
    length = long_of(head + 16);
    at = long_of(head + 24);
    type_length = short_of(head + 32);
    if (length != (uint64_t)file.st_size || length <= VALUE_HEAD_BYTES || base % PAGE != 0 || base < PLAN_BEGIN
        || base >= PLAN_END || length > PLAN_END - base || at < base + VALUE_HEAD_BYTES || at >= base + length
        || type_length > SINEW_TYPE_MAX || !is_header_value(head + 34, type_length))
        return -EPROTO;
    error = map_at(base, length, MAP_PRIVATE, fd);
    if (error < 0)
        return error;
    memcpy(type, head + 34, type_length);
    type[type_length] = 0;
    *value = (sinew_value){.at = (void *)(uintptr_t)at, .memory = (const void *)(uintptr_t)(base + VALUE_HEAD_BYTES),
                           .length = length - VALUE_HEAD_BYTES, .content_type = type};
    given.count++;
    return 0;
}

/* What the handler was given is there no more. */
static void unmap_values(void) {
    while (given.count > 0) {
        const sinew_value *value = &given.list[--given.count];

        munmap((void *)((uintptr_t)value->memory - VALUE_HEAD_BYTES), value->length + VALUE_HEAD_BYTES);
    }
}

/* Says why a value cannot be had; -1. */
static int fail_value(int error) {
    char text[96];

    /* Something else lies there, and will. */
    handed.is_over |= error == -EEXIST || error == -ENOMEM;
    snprintf(text, sizeof text, "a value cannot be mapped: %s", strerror(-error));
    return sinew_fail(NULL, handed.is_over ? UNMAPPABLE : "NativeError", text);
}

/* A process that the program forks has none of it. */
static void forget_outbox(void) {
    pthread_mutex_init(&outbox.lock, NULL);
    if (outbox.fd >= 0)
        close(outbox.fd);
    outbox.fd = -1;
    outbox.is_mapped = 0;
}

/* Ends the process once what it has handed over, and is charged for, is much. The node
 * gives another one what came meanwhile. */
static void leave_if_charged(void) {
    if (!handed.is_over && handed.bytes <= handed.bytes_max)
        return;
    send_frame(LEAVING, OUTSIDE, NULL, 0);
    exit(STATUS_GONE);
}
