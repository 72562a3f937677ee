/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that a server of HTTP/1.1 can be: `bare_http PORT ANSWER`.
 *
 * One thread waits for all connections, reads a request whole, looks for the end of
 * its head and for its length, and writes an answer that was made before. It parses
 * nothing else, allocates nothing and calls nobody, so that what it takes of a
 * processor is what the kernel takes for any server.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CONNECTIONS_MAX 16384
#define REQUEST_MAX 4096
#define EVENTS 64

struct connection {
    size_t held;
    char bytes[REQUEST_MAX];
};

static struct connection *connections[CONNECTIONS_MAX];

/* The length of the first request that was read, or 0 if there is more of it to come. */
static size_t request_length(const struct connection *connection) {
    static const char name[] = "Content-Length: ";
    const char *end = memmem(connection->bytes, connection->held, "\r\n\r\n", 4);
    const char *length = end == NULL ? NULL : memmem(connection->bytes, end - connection->bytes, name, sizeof name - 1);
    size_t whole = end == NULL ? 0 : (size_t)(end - connection->bytes) + 4;

    if (length != NULL)
        whole += strtoul(length + sizeof name - 1, NULL, 10);
    return whole <= connection->held ? whole : 0;
}

static void forget(int fd) {
    free(connections[fd]);
    connections[fd] = NULL;
    close(fd);
}

static void serve(int fd, const char *answer, size_t answer_length) {
    struct connection *connection = connections[fd];
    ssize_t got = read(fd, connection->bytes + connection->held, REQUEST_MAX - connection->held);
    size_t length;

    if (got <= 0) {
        forget(fd);
        return;
    }
    connection->held += (size_t)got;
    while ((length = request_length(connection)) > 0) {
        if (write(fd, answer, answer_length) != (ssize_t)answer_length) {
            forget(fd);
            return;
        }
        connection->held -= length;
        memmove(connection->bytes, connection->bytes + length, connection->held);
    }
}

static void admit(int listener, int poll) {
    /* Who has left before is not waited for. */
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), on = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    if (fd < 0)
        return;
    if (fd >= CONNECTIONS_MAX || (connections[fd] = calloc(1, sizeof **connections)) == NULL) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) < 0)
        forget(fd);
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), poll = epoll_create1(EPOLL_CLOEXEC), on = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS];
    char answer[REQUEST_MAX];
    int length;

    if (argc != 3 || listener < 0 || poll < 0)
        return 2;
    address.sin_port = htons((uint16_t)atoi(argv[1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 1024) < 0)
        return 1;
    if (epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event) < 0)
        return 1;
    length = snprintf(answer, sizeof answer,
                      "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                      strlen(argv[2]), argv[2]);
    if (length < 0 || (size_t)length >= sizeof answer)
        return 2;
    for (;;) {
        int count = epoll_wait(poll, events, EVENTS, -1);

        for (int at = 0; at < count; at++) {
            if (events[at].data.fd == listener)
                admit(listener, poll);
            else
                serve(events[at].data.fd, answer, (size_t)length);
        }
    }
}
