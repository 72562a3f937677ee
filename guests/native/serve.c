/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serving: calls by the channel, and those that come over a line (docs/spec/lines.md,
 * sections 4 and 5).
 */
#include <sys/random.h>

/* Requests of a report, and how long the first of them may wait for others. */
#define REPORTS_MAX 32
#define REPORT_AFTER_NS 5000000u
/* Before the request's id: times, bytes, status, both spans, trace, seal, flags, length. */
#define REPORT_BYTES 72
#define MS_NS 1000000u
/* In the place of an argument's length: it is what the next descriptor has. */
#define IN_DESCRIPTOR UINT32_MAX
/* In the number of arguments: the last descriptor is the outbox, and its address is behind the lengths. */
#define WITH_OUTBOX 0x80000000u
/* What the node says about the channel, in the environment. */
#define CHANNEL_VARIABLE "SINEW_CHANNEL"

/* A request that was answered on the line, and that the node was not told of. */
struct report {
    uint64_t ended_ns;
    /* As it is sent; how long ago it ended is known then. */
    unsigned char told[REPORT_BYTES + 255];
    size_t length;
    uint32_t running_us;
};

/* The line that is served, as a call of the node's. */
static struct {
    /* Below zero: none. */
    int end;
    uint32_t turn;
    uint64_t timeout_ms, version;
    char function[SINEW_NAME_MAX + 1], caller[SINEW_NAME_MAX + 1];
    struct report reports[REPORTS_MAX];
    size_t reports_count;
    /* Names for calls, that no other ones have. */
    unsigned char spans[8 * REPORTS_MAX];
    size_t spans_used;
    unsigned char message[LINE_BYTES_MAX + 1];
} served = {.end = -1, .spans_used = REPORTS_MAX};

static struct {
    sinew_handler handle;
    void *context;
} program;

static uint64_t now_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / MS_NS;
}

static uint32_t least(uint64_t number) {
    return number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
}

static void new_span(unsigned char span[8]) {
    if (served.spans_used == REPORTS_MAX) {
        /* Where the kernel has none, names are all the same, and calls are told apart by less. */
        if (getrandom(served.spans, sizeof served.spans, 0) != sizeof served.spans)
            memset(served.spans, 1, sizeof served.spans);
        served.spans_used = 0;
    }
    memcpy(span, served.spans + 8 * served.spans_used++, 8);
    /* None may be zero throughout. */
    if (span[0] == 0)
        span[0] = 1;
}

/* Tells the node of requests that it was not told of. */
static void send_reports(void) {
    static unsigned char all[REPORTS_MAX * (REPORT_BYTES + 255)];
    uint64_t now = clock_ns();
    size_t length = 0;

    for (size_t at = 0; at < served.reports_count; at++) {
        struct report *report = &served.reports[at];

        memcpy(report->told + 8, &(uint32_t){least((now - report->ended_ns) / 1000)}, 4);
        memcpy(all + length, report->told, report->length);
        length += report->length;
    }
    if (length > 0)
        send_frame(SERVED, served.turn, (struct iovec[]){part(all, length)}, 1);
    served.reports_count = 0;
}

/* What took long is told at once: the next one may too. */
static int are_reports_due(uint64_t now) {
    const struct report *first = &served.reports[0];

    return served.reports_count > 0
           && (served.reports_count == REPORTS_MAX || now - first->ended_ns >= REPORT_AFTER_NS
               || first->running_us >= REPORT_AFTER_NS / 1000);
}

/* One request more has had its answer. */
static void note_report(const unsigned char parent[8], uint64_t begun, uint64_t ended, uint64_t waited, size_t received) {
    struct report *report = &served.reports[served.reports_count++];
    const struct identity *identity = &exchange.identity;
    unsigned char *told = report->told;

    report->ended_ns = ended;
    report->running_us = least((ended - begun) / 1000);
    memcpy(told, &report->running_us, 4);
    memcpy(told + 4, &(uint32_t){least(waited / 1000)}, 4);
    memcpy(told + 12, &(uint32_t){least(received)}, 4);
    memcpy(told + 16, &(uint32_t){least(exchange.body_length)}, 4);
    memcpy(told + 20, &(uint16_t){(uint16_t)exchange.status}, 2);
    memcpy(told + 22, parent, 8);
    memcpy(told + 30, identity->span, 8);
    memcpy(told + 38, identity->trace, 16);
    memcpy(told + 54, identity->seal, 16);
    told[70] = identity->flags;
    told[71] = (unsigned char)identity->id_length;
    memcpy(told + REPORT_BYTES, identity->id, identity->id_length);
    report->length = REPORT_BYTES + identity->id_length;
}

/* Has the handler handle the request. 0: there is a result. */
static int run_handler(void) {
    int returned = program.handle(&exchange.request, program.context);
    char text[64];

    /* It was told, and did not look. */
    if (!exchange.is_answered && exchange.is_too_long && exchange.failure_kind[0] == 0) {
        snprintf(text, sizeof text, "the answer is longer than %llu bytes", (unsigned long long)channel.result_max);
        return sinew_fail(&exchange.request, "NativeError", text);
    }
    if (returned == 0 && !exchange.is_answered && sinew_answer(&exchange.request, 204, NULL, NULL, 0) < 0)
        returned = sinew_fail(&exchange.request, "NativeError", "there is no memory for an answer");
    if (returned != 0 && handed.is_over)
        /* Something lay where it was to have memory: another process has it free. */
        strcpy(exchange.failure_kind, UNMAPPABLE);
    if (returned != 0 && exchange.failure_kind[0] == 0) {
        snprintf(text, sizeof text, "the handler returned %d", returned);
        sinew_fail(&exchange.request, "NativeError", text);
    }
    return returned;
}

/* Ends a call with what the handler gave, or why it did not. */
static void conclude(uint32_t turn, int returned) {
    const char *texts[] = {exchange.failure_kind, exchange.failure, ""};
    uint32_t lengths[3];
    struct iovec parts[6];

    if (returned == 0 && exchange.is_value) {
        uint64_t length = close_outbox(1);

        send_frame(MAPPED, turn, (struct iovec[]){part(&length, 8)}, 1);
    } else if (returned == 0) {
        send_frame(RESULT, turn, (struct iovec[]){part(exchange.result.at, exchange.result.length)}, 1);
    } else {
        for (size_t at = 0; at < 3; at++) {
            lengths[at] = (uint32_t)strlen(texts[at]);
            parts[2 * at] = part(&lengths[at], 4);
            parts[2 * at + 1] = part(texts[at], lengths[at]);
        }
        send_frame(RAISED, turn, parts, 6);
    }
    if (exchange.result.room > RESULT_KEPT_BYTES) {
        free(exchange.result.at);
        exchange.result = (struct bytes){0};
    }
}

/* What a call is given. */
struct arguments {
    /* Request, head and body. */
    const unsigned char *at[3];
    size_t lengths[3];
    /* Of values, and then of the outbox, if there is one. */
    int descriptors[SINEW_VALUES_MAX + 1];
    size_t descriptors_count, values;
    int has_outbox, has_descriptors;
    uint64_t base;
};

/* Where the arguments of a call are: request, head, body, and values that others have made. */
static int read_arguments(const struct frame *frame, struct arguments *into) {
    uint32_t count = frame->length < 4 ? 0 : word_of(frame->payload);
    size_t begin, descriptors;

    into->has_outbox = (count & WITH_OUTBOX) != 0;
    count &= ~WITH_OUTBOX;
    begin = 4 + 4 * (size_t)count + (into->has_outbox ? 8 : 0);
    if (count < 3 || count - 3 > SINEW_VALUES_MAX || frame->length < begin)
        /* Nobody knows which descriptors came with it. */
        _exit(STATUS_GONE);
    into->values = count - 3;
    if (into->has_outbox)
        into->base = long_of(frame->payload + begin - 8);
    /* First of all, so that those of later calls are not taken for them. */
    descriptors = (size_t)into->has_outbox;
    for (size_t each = 0; each < count; each++)
        descriptors += word_of(frame->payload + 4 + 4 * each) == IN_DESCRIPTOR;
    if (descriptors > sizeof into->descriptors / sizeof *into->descriptors)
        _exit(STATUS_GONE);
    into->has_descriptors = descriptors > 0 && take_descriptors(into->descriptors, descriptors);
    into->descriptors_count = into->has_descriptors ? descriptors : 0;
    for (size_t each = 0; each < count; each++) {
        uint32_t length = word_of(frame->payload + 4 + 4 * each);

        if (each >= 3 && length == IN_DESCRIPTOR)
            continue;
        if (each >= 3 || length > frame->length - begin)
            return -EPROTO;
        into->at[each] = frame->payload + begin;
        into->lengths[each] = length;
        begin += length;
    }
    return begin == frame->length ? 0 : -EPROTO;
}

/* They are of no use. */
static void close_descriptors(const struct arguments *arguments) {
    for (size_t each = 0; each < arguments->descriptors_count; each++)
        close(arguments->descriptors[each]);
}

/* Has the handler find what others have made, and memory for what it makes. */
static int bring_memory(const struct arguments *arguments) {
    int error = 0;

    if (arguments->values == 0 && !arguments->has_outbox)
        return 0;
    if (!arguments->has_descriptors)
        return fail_value(-EMFILE);
    for (size_t each = 0; each < arguments->values; each++) {
        error = error < 0 ? error : map_value(arguments->descriptors[each]);
        close(arguments->descriptors[each]);
    }
    if (arguments->has_outbox && exchange.is_step)
        open_outbox(arguments->descriptors[arguments->values], arguments->base);
    else if (arguments->has_outbox)
        close(arguments->descriptors[arguments->values]);
    exchange.request.values = given.list;
    exchange.request.values_count = given.count;
    return error < 0 ? fail_value(error) : 0;
}

/* A call by the node. */
static void serve_call(const struct frame *frame) {
    struct arguments arguments = {0};
    uint64_t waited, on_lines;
    int returned;

    begin_printing(frame->turn);
    begin_exchange("", 0);
    if (read_arguments(frame, &arguments) < 0
        || read_request(arguments.at[1], arguments.lengths[1], arguments.at[2], arguments.lengths[2]) < 0) {
        returned = sinew_fail(&exchange.request, "NativeError", "a native function is called with request, head and body");
        close_descriptors(&arguments);
        end_printing();
    } else if ((returned = bring_memory(&arguments)) < 0) {
        end_printing();
    } else {
        begin_calls(frame->turn, &exchange.identity, 0);
        returned = run_handler();
        end_calls(0, &waited, &on_lines);
        end_printing();
        on_lines /= 1000;
        if (on_lines > 0)
            send_frame(WAITED, frame->turn, (struct iovec[]){part(&on_lines, 8)}, 1);
    }
    conclude(frame->turn, returned);
    unmap_values();
    close_outbox(0);
    leave_if_charged();
}

/* The node has a line for it to serve. */
static void open_served_line(const struct frame *frame) {
    int own[3], has_ends = take_descriptors(own, 3);
    size_t length, rest;

    served.turn = frame->turn;
    if (frame->length < 20)
        _exit(STATUS_GONE);
    served.timeout_ms = long_of(frame->payload);
    served.version = long_of(frame->payload + 8);
    length = short_of(frame->payload + 16);
    rest = short_of(frame->payload + 18);
    if (length > SINEW_NAME_MAX || rest > SINEW_NAME_MAX || 20 + length + rest > frame->length)
        _exit(STATUS_GONE);
    memcpy(served.function, frame->payload + 20, length);
    served.function[length] = 0;
    memcpy(served.caller, frame->payload + 20 + length, rest);
    served.caller[rest] = 0;
    pthread_mutex_lock(&calls.lock);
    served.end = has_ends ? line_open(own[0], own[1], own[2]) : -1;
    pthread_mutex_unlock(&calls.lock);
    if (served.end < 0)
        send_frame(RESULT, served.turn, NULL, 0);
}

/* Reports, and gives the line back; the call's result is still to be sent. */
static void leave_served_line(void) {
    send_reports();
    pthread_mutex_lock(&calls.lock);
    line_close(served.end);
    pthread_mutex_unlock(&calls.lock);
    served.end = -1;
}

/* Reads a request of the line; -EPROTO if it is none. */
static int read_line_request(size_t length, unsigned char parent[8]) {
    struct identity *identity = &exchange.identity;
    unsigned char *message = served.message;
    size_t id_length, type_length, at = LINE_REQUEST_BYTES;
    uint64_t latest = now_ms() + served.timeout_ms;

    if (length < at)
        return -EPROTO;
    id_length = message[57];
    type_length = short_of(message + 58);
    if (word_of(message) == 0 || type_length > SINEW_TYPE_MAX || at + id_length + type_length > length)
        return -EPROTO;
    for (size_t each = 0; each < id_length; each++) {
        if (message[at + each] > 0x7f)
            return -EPROTO;
    }
    if (!is_header_value(message + at + id_length, type_length))
        return -EPROTO;
    begin_exchange(message + at + id_length + type_length, length - at - id_length - type_length);
    message[length] = 0;
    exchange.is_on_line = 1;
    memcpy(exchange.type, message + at + id_length, type_length);
    exchange.type[type_length] = 0;
    identity->has_seal = 1;
    identity->deadline_ms = long_of(message + 4);
    identity->deadline_ms = identity->deadline_ms < latest ? identity->deadline_ms : latest;
    identity->depth = word_of(message + 12);
    memcpy(identity->seal, message + 16, 16);
    memcpy(identity->trace, message + 32, 16);
    memcpy(parent, message + 48, 8);
    new_span(identity->span);
    identity->flags = message[56];
    identity->id_length = id_length;
    memcpy(identity->id, message + at, id_length);
    identity->id[id_length] = 0;
    exchange.request.request_id = identity->id;
    exchange.request.content_type = exchange.type;
    exchange.request.function = served.function;
    exchange.request.caller = served.caller;
    exchange.request.version = served.version;
    exchange.request.deadline_ms = identity->deadline_ms;
    return 0;
}

/* Answers on the line: 0, or below zero if it has to be done by the node. */
static int answer_on_line(int returned) {
    const struct bytes *result = &exchange.result;

    if (returned != 0 || result->length > LINE_BYTES_MAX)
        return -EMSGSIZE;
    return line_answer(served.end, result->at, result->length);
}

/* Handles a request of the line. */
static void serve_line_request(size_t length) {
    uint64_t begun = clock_ns(), ended, waited, on_lines;
    unsigned char parent[8];
    int returned, has_printed;

    if (read_line_request(length, parent) < 0) {
        leave_served_line();
        send_frame(RESULT, served.turn, NULL, 0);
        return;
    }
    if (are_reports_due(begun))
        /* The handler may take long. */
        send_reports();
    begin_printing(served.turn);
    begin_calls(served.turn, &exchange.identity, 1);
    returned = run_handler();
    end_calls(1, &waited, &on_lines);
    ended = clock_ns();
    if (answer_on_line(returned) < 0) {
        end_printing();
        leave_served_line();
        conclude(served.turn, returned);
        return;
    }
    has_printed = end_printing();
    note_report(parent, begun, ended, waited, exchange.request.length);
    if (has_printed || are_reports_due(ended))
        send_reports();
}

/* Waits for the next request on the line, and handles it. */
static void serve_line(void) {
    int64_t patience = served.reports_count > 0 ? (int64_t)REPORT_AFTER_NS / 1000 : -1;
    int64_t got = line_take(served.end, served.message, LINE_BYTES_MAX, patience);

    if (got >= 0) {
        serve_line_request((size_t)got);
    } else if (got == -ETIMEDOUT) {
        send_reports();
    } else if (got != -EINTR) {
        /* It is shut, or who calls broke the rules. */
        leave_served_line();
        send_frame(RESULT, served.turn, NULL, 0);
    }
}

/* A process that the program forks is no instance. */
static void be_left_behind(void) {
    close(channel.fd);
    close(printed.pipe);
    channel.fd = printed.pipe = -1;
    /* Other threads may have had it. */
    pthread_mutex_init(&calls.lock, NULL);
    calls.turn = OUTSIDE;
    forget_outbox();
}

/* Takes over what the node has prepared; 0, or why not. */
static int take_channel(void) {
    const char *told = getenv(CHANNEL_VARIABLE);
    unsigned long long result_max = 0, log_max = 0;
    int version, fd, pipe = -1, flags, count;

    count = told == NULL ? 0 : sscanf(told, "%d %d %d %llu %llu", &version, &fd, &pipe, &result_max, &log_max);
    if (count < 2)
        return -ENOTCONN;
    if (version != WIRE_VERSION || count < 5) {
        channel.fd = fd;
        return -EPROTONOSUPPORT;
    }
    flags = fcntl(pipe, F_GETFL);
    if (flags < 0 || fcntl(pipe, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(pipe, F_SETFD, FD_CLOEXEC) < 0
        || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return -errno;
    channel.fd = fd;
    channel.result_max = result_max;
    channel.log_max = printed.left = log_max;
    printed.pipe = pipe;
    unsetenv(CHANNEL_VARIABLE);
    return 0;
}

/* Passes on what is printed, in a thread of its own that takes no signal. */
static int begin_to_pass_on(void) {
    sigset_t all, before;
    pthread_t thread;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, NULL, pass_on_printed, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return -error;
    pthread_detach(thread);
    keep_last_words();
    atexit(send_last_words);
    pthread_atfork(NULL, NULL, be_left_behind);
    return 0;
}

/* Says why it does not serve: to the node, if there is one, and to whoever started it. */
static int refuse(int error) {
    const char *why = strerror(-error);

    if (error == -ENOTCONN)
        why = "no node has started this program: deploy it with runtime = \"executable\" and mode = \"native\"";
    else if (error == -EPROTONOSUPPORT)
        why = "the node speaks another version of the channel: compile it with what this node's `sinew sdk c` writes";
    fprintf(stderr, "sinew_serve: %s\n", why);
    if (channel.fd >= 0) {
        sinew_fail(NULL, "NativeError", why);
        conclude(OUTSIDE, -1);
    }
    return error;
}

int sinew_serve(sinew_handler handler, void *context) {
    int error = take_channel();

    error = error < 0 ? error : begin_to_pass_on();
    if (error < 0)
        return refuse(error);
    program.handle = handler;
    program.context = context;
    end_printing();
    send_frame(LOADED, OUTSIDE, NULL, 0);
    for (;;) {
        struct frame *order;

        if (served.end >= 0) {
            serve_line();
            continue;
        }
        order = next_order();
        if (order->kind == CALL)
            serve_call(order);
        else
            open_served_line(order);
        free(order);
    }
}
