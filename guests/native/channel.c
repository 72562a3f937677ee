/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel to the node: frames, with descriptors among them, and what the program
 * prints, which goes there as well. What is sent is in process/channel.rs.
 *
 * The node is believed. When it has gone, so has the process.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Of the wire; the node says which one it speaks. */
#define WIRE_VERSION 9
#define FRAME_HEAD_BYTES 9
/* What is received at once of frames that are short. */
#define BUFFER_BYTES (64u << 10)
/* Descriptors that have come and are not taken. */
#define DESCRIPTORS_MAX 512
/* Those of one message, of which the kernel takes no more. */
#define MESSAGE_DESCRIPTORS_MAX 253
#define LOG_PIECE_BYTES (32u << 10)
/* What may be printed between two calls. */
#define BETWEEN_CALLS_BYTES (32u << 10)
/* The turn of what happens outside of calls. */
#define OUTSIDE 0
/* Statuses of a process that ends by itself: the node has gone, no memory for a frame. */
#define STATUS_GONE 0
#define STATUS_NO_MEMORY 98

enum kind {
    LOADED = 3, CALL, RESULT, RAISED, BAD_RESULT, LOG, ASK = 10, TOLD, SERVE = 18, LINE, SERVED, SERVING,
    WAITED, ASK_AGAIN, DROPPED, MAPPED = 26, LEAVING
};

struct frame {
    struct frame *next;
    uint32_t turn;
    uint8_t kind;
    size_t length;
    unsigned char payload[];
};

/* Who receives is one thread at a time, which calls.c sees to. */
static struct {
    int fd;
    unsigned char data[BUFFER_BYTES];
    size_t at, filled;
    int descriptors[DESCRIPTORS_MAX];
    size_t descriptors_count;
    pthread_mutex_t sending;
    /* Bounds that the node has. */
    uint64_t result_max, log_max;
} channel = {.fd = -1, .sending = PTHREAD_MUTEX_INITIALIZER};

/* What is printed: where it is read, for which call, and how much more of it is sent. */
static struct {
    pthread_mutex_t lock;
    int pipe;
    uint32_t turn;
    uint64_t left;
    unsigned char piece[LOG_PIECE_BYTES];
} printed = {.lock = PTHREAD_MUTEX_INITIALIZER, .pipe = -1};

static uint32_t word_of(const void *bytes) {
    uint32_t word;

    memcpy(&word, bytes, sizeof word);
    return word;
}

static uint16_t short_of(const void *bytes) {
    uint16_t word;

    memcpy(&word, bytes, sizeof word);
    return word;
}

static uint64_t long_of(const void *bytes) {
    uint64_t word;

    memcpy(&word, bytes, sizeof word);
    return word;
}

static struct iovec part(const void *bytes, size_t length) {
    return (struct iovec){.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
}

/* Sends all of these parts, of which there are at most eight. */
static void send_parts(struct iovec *parts, size_t count) {
    while (count > 0) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t sent = sendmsg(channel.fd, &message, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            _exit(STATUS_GONE);
        for (; count > 0 && (size_t)sent >= parts->iov_len; count--)
            sent -= (ssize_t)(parts++)->iov_len;
        if (count > 0) {
            parts->iov_base = (unsigned char *)parts->iov_base + sent;
            parts->iov_len -= (size_t)sent;
        }
    }
}

static void send_frame(enum kind kind, uint32_t turn, const struct iovec *parts, size_t count) {
    unsigned char head[FRAME_HEAD_BYTES];
    struct iovec all[8];
    size_t length = 0;

    all[0] = part(head, sizeof head);
    for (size_t at = 0; at < count; at++) {
        all[1 + at] = parts[at];
        length += parts[at].iov_len;
    }
    memcpy(head, &(uint32_t){(uint32_t)length}, 4);
    head[4] = (unsigned char)kind;
    memcpy(head + 5, &turn, 4);
    pthread_mutex_lock(&channel.sending);
    send_parts(all, 1 + count);
    pthread_mutex_unlock(&channel.sending);
}

/* Keeps the descriptors that came with a message. Where some were cut off there is -1 in the
 * place of all of them: whoever takes them has none, and not those of the next one. */
static void keep_descriptors(struct msghdr *message) {
    size_t before = channel.descriptors_count;

    for (struct cmsghdr *one = CMSG_FIRSTHDR(message); one != NULL; one = CMSG_NXTHDR(message, one)) {
        if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at < (one->cmsg_len - CMSG_LEN(0)) / sizeof(int); at++) {
            int fd;

            memcpy(&fd, CMSG_DATA(one) + at * sizeof fd, sizeof fd);
            if (channel.descriptors_count < DESCRIPTORS_MAX)
                channel.descriptors[channel.descriptors_count++] = fd;
            else
                close(fd);
        }
    }
    if ((message->msg_flags & MSG_CTRUNC) == 0)
        return;
    while (channel.descriptors_count > before)
        close(channel.descriptors[--channel.descriptors_count]);
    if (channel.descriptors_count < DESCRIPTORS_MAX)
        channel.descriptors[channel.descriptors_count++] = -1;
}

/* Receives into a place, at least a byte. */
static size_t receive_some(void *into, size_t room) {
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(MESSAGE_DESCRIPTORS_MAX * sizeof(int))];
    } rights;
    struct iovec place = part(into, room);

    for (;;) {
        struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1, .msg_control = &rights,
                                 .msg_controllen = sizeof rights};
        ssize_t got = recvmsg(channel.fd, &message, MSG_CMSG_CLOEXEC);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            _exit(STATUS_GONE);
        keep_descriptors(&message);
        return (size_t)got;
    }
}

/* Exactly so many bytes. */
static void receive(void *into, size_t length) {
    unsigned char *place = into;

    while (length > 0) {
        size_t there = channel.filled - channel.at;

        if (there == 0 && length >= BUFFER_BYTES) {
            size_t got = receive_some(place, length);
            place += got;
            length -= got;
            continue;
        }
        if (there == 0) {
            channel.at = 0;
            channel.filled = there = receive_some(channel.data, BUFFER_BYTES);
        }
        there = there < length ? there : length;
        memcpy(place, channel.data + channel.at, there);
        channel.at += there;
        place += there;
        length -= there;
    }
}

/* The next frame, whole; with a NUL behind it. */
static struct frame *receive_frame(void) {
    unsigned char head[FRAME_HEAD_BYTES];
    struct frame *frame;
    size_t length;

    receive(head, sizeof head);
    length = word_of(head);
    frame = malloc(sizeof *frame + length + 1);
    if (frame == NULL)
        _exit(STATUS_NO_MEMORY);
    *frame = (struct frame){.turn = word_of(head + 5), .kind = head[4], .length = length};
    receive(frame->payload, length);
    frame->payload[length] = 0;
    return frame;
}

/* The descriptors that came with a frame, of which there are so many; whether they are there. */
static int take_descriptors(int *own, size_t wanted) {
    size_t count = channel.descriptors_count;
    int is_there = count >= wanted && channel.descriptors[0] >= 0;

    if (count == 0 || (count < wanted && channel.descriptors[0] >= 0))
        return 0;
    wanted = is_there ? wanted : 1;
    if (is_there)
        memcpy(own, channel.descriptors, wanted * sizeof(int));
    memmove(channel.descriptors, channel.descriptors + wanted, (count - wanted) * sizeof(int));
    channel.descriptors_count -= wanted;
    return is_there;
}

/* Sends a piece of what was printed, as far as the budget goes. */
static void send_printed(const unsigned char *bytes, size_t length) {
    char note[80];

    if (printed.left == 0)
        return;
    length = length < printed.left ? length : (size_t)printed.left;
    printed.left -= length;
    send_frame(LOG, printed.turn, (struct iovec[]){part("\1", 1), part(bytes, length)}, 2);
    if (printed.left > 0)
        return;
    length = (size_t)snprintf(note, sizeof note, "\n[output over %llu bytes was dropped]\n",
                              (unsigned long long)channel.log_max);
    send_frame(LOG, printed.turn, (struct iovec[]){part("\2", 1), part(note, length)}, 2);
}

/* Sends what is there; who has the lock may. Whether more can come: somebody can still write. */
static int drain_printed(void) {
    for (;;) {
        ssize_t got = read(printed.pipe, printed.piece, sizeof printed.piece);

        if (got > 0)
            send_printed(printed.piece, (size_t)got);
        else if (got == 0 || errno != EINTR)
            return got < 0;
    }
}

/* What is printed from now on is of this call. */
static void begin_printing(uint32_t turn) {
    pthread_mutex_lock(&printed.lock);
    printed.turn = turn;
    printed.left = channel.log_max;
    pthread_mutex_unlock(&printed.lock);
}

/* Sends what was printed for a call; whether there was anything. What comes now is of none. */
static int end_printing(void) {
    uint64_t before;
    int has_printed;

    fflush(stdout);
    pthread_mutex_lock(&printed.lock);
    drain_printed();
    before = channel.log_max;
    has_printed = printed.left < before;
    printed.turn = OUTSIDE;
    if (printed.left > BETWEEN_CALLS_BYTES)
        printed.left = BETWEEN_CALLS_BYTES;
    pthread_mutex_unlock(&printed.lock);
    return has_printed;
}

/* Passes on what is printed while a handler runs: a pipe is short. */
static void *pass_on_printed(void *unused) {
    struct pollfd printing = {.fd = printed.pipe, .events = POLLIN};

    int can_come = 1;

    while (can_come && (poll(&printing, 1, -1) >= 0 || errno == EINTR)) {
        pthread_mutex_lock(&printed.lock);
        can_come = drain_printed();
        pthread_mutex_unlock(&printed.lock);
    }
    return unused;
}

/* The program is about to die: what it said of that is sent, unless somebody is at it. */
static void say_last_words(int signal_number) {
    if (pthread_mutex_trylock(&printed.lock) == 0 && pthread_mutex_trylock(&channel.sending) == 0) {
        pthread_mutex_unlock(&channel.sending);
        drain_printed();
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* Signals that the program does not handle itself end it as ever, after that. */
static void keep_last_words(void) {
    static const int deadly[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction known, ours = {.sa_handler = say_last_words, .sa_flags = SA_NODEFER};

    sigemptyset(&ours.sa_mask);
    for (size_t at = 0; at < sizeof deadly / sizeof *deadly; at++) {
        if (sigaction(deadly[at], NULL, &known) == 0 && known.sa_handler == SIG_DFL)
            sigaction(deadly[at], &ours, NULL);
    }
}

/* At a regular end of the process. */
static void send_last_words(void) {
    if (printed.pipe >= 0)
        end_printing();
}
