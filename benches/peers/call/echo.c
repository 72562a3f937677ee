/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function in native code: it answers with its body. Asked with
 * "rounds N", it calls the function `echo` N times itself, one call after the
 * other, and answers with what each took, as a JSON list of nanoseconds.
 *
 * It serves the unix socket SINEW_SOCKET and calls at SINEW_URL, a connection
 * for each request, as docs/spec/functions.md says of executables.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_MAX (64 << 10)
#define ROUNDS_MAX 10000
#define CALLED "echo"
#define PAYLOAD "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char request[REQUEST_MAX + 1], answer[REQUEST_MAX + 1];

static long now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static int send_whole(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent <= 0)
            return -1;
        bytes += sent;
        length -= (size_t)sent;
    }
    return 0;
}

/* A message of HTTP whose body has a content-length: where the body is, NULL
 * if it does not come whole. */
static char *receive_whole(int fd, char *into, size_t *body_length) {
    size_t have = 0;

    for (;;) {
        ssize_t got = recv(fd, into + have, REQUEST_MAX - have, 0);
        if (got <= 0)
            return NULL;
        have += (size_t)got;
        into[have] = 0;
        char *end = strstr(into, "\r\n\r\n");
        if (end == NULL)
            continue;
        char *length = strcasestr(into, "\r\ncontent-length:");
        *body_length = length != NULL && length < end ? strtoul(length + 17, NULL, 10) : 0;
        if (have - (size_t)(end + 4 - into) >= *body_length)
            return end + 4;
    }
}

/* Calls the other function once: nanoseconds, or -1. */
static long call(const struct sockaddr_in *where) {
    static const char question[] = "POST /function/" CALLED " HTTP/1.1\r\nhost: localhost\r\n"
                                   "content-length: 64\r\n\r\n" PAYLOAD;
    long begun = now_ns();
    size_t length = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char *body = NULL;

    if (fd >= 0 && connect(fd, (const struct sockaddr *)where, sizeof *where) == 0
        && send_whole(fd, question, sizeof question - 1) == 0)
        body = receive_whole(fd, answer, &length);
    if (fd >= 0)
        close(fd);
    if (body == NULL || length != sizeof PAYLOAD - 1 || memcmp(body, PAYLOAD, length) != 0)
        return -1;
    return now_ns() - begun;
}

/* Many calls: the length of the list that is in `into`, 0 if one failed. */
static size_t measure(long rounds, char *into, size_t room) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const char *url = getenv("SINEW_URL"), *port = url == NULL ? NULL : strrchr(url, ':');
    size_t length = 1;

    if (port == NULL || rounds < 1 || rounds > ROUNDS_MAX)
        return 0;
    where.sin_port = htons((uint16_t)atoi(port + 1));
    into[0] = '[';
    for (long round = 0; round < rounds; round++) {
        long took = call(&where);
        if (took < 0 || length + 24 > room)
            return 0;
        length += (size_t)sprintf(into + length, "%ld,", took);
    }
    into[length - 1] = ']';
    return length;
}

static void serve(int fd) {
    static char list[ROUNDS_MAX * 12];
    size_t length = 0;
    char *body = receive_whole(fd, request, &length), head[128];
    const char *status = "200 OK";

    if (body == NULL)
        return;
    if (strncmp(body, "rounds ", 7) == 0) {
        length = measure(atol(body + 7), list, sizeof list);
        body = list;
        if (length == 0)
            status = "502 Bad Gateway";
    }
    int head_length = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: %zu\r\n\r\n", status, length);
    if (send_whole(fd, head, (size_t)head_length) == 0)
        send_whole(fd, body, length);
}

int main(void) {
    struct sockaddr_un own = {.sun_family = AF_UNIX};
    const char *path = getenv("SINEW_SOCKET");
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (path == NULL || strlen(path) >= sizeof own.sun_path)
        return 1;
    strcpy(own.sun_path, path);
    if (bind(listener, (struct sockaddr *)&own, sizeof own) != 0 || listen(listener, 16) != 0)
        return 1;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            return 1;
        serve(fd);
        close(fd);
    }
}
