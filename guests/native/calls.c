/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of other functions: on a line where there is one to the function, or else
 * by the node (docs/spec/lines.md, section 3). Threads may call at the same time:
 * one of those that wait reads the channel, and hands the others what is theirs.
 */

#define CALL_LINES_MAX 16
/* Bytes of a message of a line. */
#define LINE_BYTES_MAX ((64u << 10) - 4)
/* Before the request's id, type and body: number, deadline, depth, seal, trace, span, flags, both lengths. */
#define LINE_REQUEST_BYTES 60
/* Functions that may wait for one another. */
#define CALL_DEPTH_MAX 16
/* Of a result's first word: the length of its head. */
#define HEAD_LENGTH 0x3fffffffu
/* Frames that are no answers, and wait for the thread that serves. */
#define ORDERS_MAX 16

/* For whom a request is, as calls on lines hand it down. */
struct identity {
    int has_seal;
    uint64_t deadline_ms;
    uint32_t depth;
    unsigned char seal[16], trace[16], span[8], flags;
    size_t id_length;
    char id[256];
};

/* One end of a line that is asked on. Who has marked it as used uses it alone. */
struct call_line {
    /* Below zero: nobody's. */
    int end;
    int is_used;
    /* Nobody asks on it any more: who uses it closes it. */
    int is_forgotten;
    uint32_t number, last;
    char name[SINEW_NAME_MAX + 1];
    unsigned char message[LINE_BYTES_MAX];
};

/* A call that waits for the node's answer. */
struct waiter {
    struct waiter *next;
    uint32_t id;
    int is_over;
    struct frame *told;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Whether a thread reads the channel. */
    int is_reading;
    struct waiter *waiters;
    struct frame *orders, **orders_end;
    size_t orders_count;
    struct call_line *lines[CALL_LINES_MAX];
    /* The call that runs, and for whom. */
    uint32_t turn;
    /* Counts those: on a line all have one turn. */
    uint64_t number;
    struct identity identity;
    /* It came over a line, and the node is to be told of it before anything is asked there. */
    int is_untold;
    uint32_t last_id;
    size_t under_way, bytes;
    uint64_t on_lines_ns, waited_ns;
} calls = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .orders_end = &calls.orders};

/* The head of the request that is served, for the node (answer.c). */
static int write_request_head(struct bytes *into);

static void close_call_line(struct call_line *line) {
    line_close(line->end);
    line->end = -1;
    line->is_used = line->is_forgotten = 0;
}

/* Nobody asks on it any more. */
static void forget_call_line(struct call_line *line) {
    line->is_forgotten = 1;
    if (!line->is_used)
        close_call_line(line);
}

static struct call_line *find_call_line(const char *name) {
    for (size_t at = 0; at < CALL_LINES_MAX; at++) {
        struct call_line *line = calls.lines[at];
        if (line != NULL && line->end >= 0 && !line->is_forgotten && strcmp(line->name, name) == 0)
            return line;
    }
    return NULL;
}

/* A place for one more; NULL if there is none. */
static struct call_line *free_call_line(void) {
    for (size_t at = 0; at < CALL_LINES_MAX; at++) {
        if (calls.lines[at] == NULL) {
            calls.lines[at] = malloc(sizeof **calls.lines);
            if (calls.lines[at] != NULL)
                calls.lines[at]->end = -1;
        }
        if (calls.lines[at] != NULL && calls.lines[at]->end < 0)
            return calls.lines[at];
    }
    return NULL;
}

/* There is a line to a function. */
static void add_call_line(const struct frame *frame) {
    struct call_line *line = NULL, *before;
    int own[3], has_ends = take_descriptors(own, 3), end = -1;
    const char *name = (const char *)frame->payload + 4;

    if (frame->length < 4)
        _exit(STATUS_GONE);
    for (size_t at = 0; at < CALL_LINES_MAX; at++) {
        struct call_line *other = calls.lines[at];
        if (other != NULL && other->end >= 0 && !other->is_used && line_is_closed(other->end))
            forget_call_line(other);
    }
    before = find_call_line(name);
    if (has_ends && strlen(name) <= SINEW_NAME_MAX)
        line = free_call_line();
    if (line != NULL)
        end = line_open(own[0], own[1], own[2]);
    else
        for (int at = 0; has_ends && at < 3; at++)
            close(own[at]);
    if (end < 0) {
        send_frame(DROPPED, OUTSIDE, (struct iovec[]){part(frame->payload, 4)}, 1);
        return;
    }
    if (before != NULL)
        forget_call_line(before);
    *line = (struct call_line){.end = end, .number = word_of(frame->payload)};
    strcpy(line->name, name);
}

/* Hands over a frame that has come. */
static void take_frame(struct frame *frame) {
    struct waiter *waiter = calls.waiters;

    if (frame->kind == TOLD && frame->length >= 8) {
        while (waiter != NULL && (waiter->id != word_of(frame->payload) || waiter->told != NULL))
            waiter = waiter->next;
        if (waiter != NULL) {
            waiter->told = frame;
            return;
        }
    } else if (frame->kind == LINE) {
        add_call_line(frame);
    } else if (frame->kind == CALL || frame->kind == SERVE) {
        /* The node sends one after the other. */
        if (++calls.orders_count > ORDERS_MAX)
            _exit(STATUS_GONE);
        *calls.orders_end = frame;
        calls.orders_end = &frame->next;
        return;
    }
    /* All else is of calls that are over. */
    free(frame);
}

/* Waits for a frame, or for another thread to take one. Who has the lock may. */
static void wait_for_frame(void) {
    struct frame *frame;

    if (calls.is_reading) {
        pthread_cond_wait(&calls.changed, &calls.lock);
        return;
    }
    calls.is_reading = 1;
    pthread_mutex_unlock(&calls.lock);
    frame = receive_frame();
    pthread_mutex_lock(&calls.lock);
    calls.is_reading = 0;
    take_frame(frame);
    pthread_cond_broadcast(&calls.changed);
}

/* What the node wants next. */
static struct frame *next_order(void) {
    struct frame *order;

    pthread_mutex_lock(&calls.lock);
    while ((order = calls.orders) == NULL)
        wait_for_frame();
    calls.orders = order->next;
    if (calls.orders == NULL)
        calls.orders_end = &calls.orders;
    calls.orders_count--;
    pthread_mutex_unlock(&calls.lock);
    return order;
}

/* Calls are made for this request from now on. */
static void begin_calls(uint32_t turn, const struct identity *identity, int is_on_line) {
    pthread_mutex_lock(&calls.lock);
    calls.turn = turn;
    calls.number++;
    calls.identity = *identity;
    calls.is_untold = is_on_line;
    calls.on_lines_ns = calls.waited_ns = 0;
    pthread_mutex_unlock(&calls.lock);
}

/* Tells the node for which request on a line is asked; with the lock. */
static void tell_request(uint32_t turn) {
    struct bytes head = {0};

    if (!calls.is_untold)
        return;
    calls.is_untold = 0;
    if (write_request_head(&head) == 0)
        send_frame(SERVING, turn, (struct iovec[]){part(head.at, head.length)}, 1);
    free(head.at);
}

/* The request is answered, and what was asked for it over. Gives what was waited for,
 * and of that on lines. */
static void end_calls(int is_on_line, uint64_t *waited_ns, uint64_t *on_lines_ns) {
    uint32_t turn;
    int has_left = 0;

    pthread_mutex_lock(&calls.lock);
    turn = calls.turn;
    calls.turn = OUTSIDE;
    for (struct waiter *waiter = calls.waiters; waiter != NULL; waiter = waiter->next) {
        has_left |= waiter->told == NULL && !waiter->is_over;
        waiter->is_over = 1;
    }
    for (size_t at = 0; at < CALL_LINES_MAX; at++) {
        struct call_line *line = calls.lines[at];
        if (line == NULL || line->end < 0 || !line->is_used)
            continue;
        if (is_on_line)
            tell_request(turn);
        send_frame(DROPPED, turn, (struct iovec[]){part(&line->number, 4)}, 1);
    }
    if (is_on_line && has_left)
        /* The node is to stop it. */
        send_frame(SERVING, turn, NULL, 0);
    *waited_ns = calls.waited_ns;
    *on_lines_ns = calls.on_lines_ns;
    if (calls.waiters != NULL)
        pthread_cond_broadcast(&calls.changed);
    pthread_mutex_unlock(&calls.lock);
}

/* Fills a reply with copies; 0, or -ENOMEM. */
static int fill_reply(sinew_reply *reply, int status, const char *type, size_t type_length, const void *body, size_t length) {
    char *memory = malloc(type_length + 1 + length + 1);

    if (memory == NULL)
        return -ENOMEM;
    memcpy(memory, type, type_length);
    memory[type_length] = 0;
    if (length > 0)
        memcpy(memory + type_length + 1, body, length);
    memory[type_length + 1 + length] = 0;
    *reply = (sinew_reply){status, memory, memory + type_length + 1, length, memory};
    return 0;
}

/* Status and content type from the head of a result. */
static int read_answer_head(const unsigned char *head, size_t length, int *status, char type[SINEW_TYPE_MAX + 1]) {
    /* Most functions answer with one head or with few. */
    static _Thread_local struct {
        unsigned char head[256];
        size_t length;
        int status;
        char type[SINEW_TYPE_MAX + 1];
    } known = {.status = 0};
    struct json json = {.at = (const char *)head, .end = (const char *)head + length};
    char *texts;
    uint64_t told = 200;
    int is_first = 1;

    *type = 0;
    *status = 200;
    if (length == 0)
        return 0;
    if (known.status != 0 && known.length == length && memcmp(known.head, head, length) == 0) {
        *status = known.status;
        strcpy(type, known.type);
        return 0;
    }
    json.texts = texts = malloc(length + 1);
    if (texts == NULL)
        return -ENOMEM;
    json_expect(&json, '{');
    while (json_more(&json, '}', &is_first)) {
        const char *name = json_string(&json);
        int is_first_header = 1;

        json_expect(&json, ':');
        if (strcmp(name, "status") == 0) {
            told = json_number(&json);
        } else if (strcmp(name, "headers") == 0 && json_takes(&json, '[')) {
            while (json_more(&json, ']', &is_first_header)) {
                const char *header, *value;

                json_expect(&json, '[');
                header = json_string(&json);
                json_expect(&json, ',');
                value = json_string(&json);
                json_expect(&json, ']');
                if (*type == 0 && strcasecmp(header, "content-type") == 0 && strlen(value) <= SINEW_TYPE_MAX)
                    strcpy(type, value);
            }
        } else {
            json_skip(&json, 0);
        }
    }
    free(texts);
    if (json.is_bad || json_peek(&json) != -1 || told < 200 || told > 599 || !is_header_value(type, strlen(type)))
        return -EPROTO;
    *status = (int)told;
    if (length <= sizeof known.head) {
        memcpy(known.head, head, length);
        known.length = length;
        known.status = *status;
        strcpy(known.type, type);
    }
    return 0;
}

/* A result that came over a line, as a reply; -EPROTO if it is none. */
static int read_result(const unsigned char *result, size_t length, sinew_reply *reply) {
    char type[SINEW_TYPE_MAX + 1];
    size_t begin;
    int status, error;

    if (length < 4)
        return -EPROTO;
    begin = 4 + (size_t)(word_of(result) & HEAD_LENGTH);
    if (begin > length)
        return -EPROTO;
    error = read_answer_head(result + 4, begin - 4, &status, type);
    return error < 0 ? error : fill_reply(reply, status, type, strlen(type), result + begin, length - begin);
}

/* The request as a line's message, in its buffer; how long it is. */
static size_t write_line_request(struct call_line *line, const struct identity *identity, const char *type,
                                 const void *body, size_t length) {
    size_t type_length = strlen(type), at = LINE_REQUEST_BYTES;
    unsigned char *message = line->message;

    line->last = line->last == UINT32_MAX ? 1 : line->last + 1;
    memcpy(message, &line->last, 4);
    memcpy(message + 4, &identity->deadline_ms, 8);
    memcpy(message + 12, &(uint32_t){identity->depth + 1}, 4);
    memcpy(message + 16, identity->seal, 16);
    memcpy(message + 32, identity->trace, 16);
    memcpy(message + 48, identity->span, 8);
    message[56] = identity->flags;
    message[57] = (unsigned char)identity->id_length;
    memcpy(message + 58, &(uint16_t){(uint16_t)type_length}, 2);
    memcpy(message + at, identity->id, identity->id_length);
    at += identity->id_length;
    memcpy(message + at, type, type_length);
    at += type_length;
    if (length > 0)
        memcpy(message + at, body, length);
    return at + length;
}

/* Calls on a line that this thread uses: 0, or below zero that there is no reply, whether it
 * was begun there or not. */
static int ask_on_line(struct call_line *line, size_t length, sinew_reply *reply, int *is_begun) {
    int64_t got = line_ask(line->end, line->message, length, line->message, LINE_BYTES_MAX);
    int read = -EPROTO;

    while (got == -EINTR || got == -ETIMEDOUT)
        got = line_next(line->end, line->message, LINE_BYTES_MAX, -1);
    if (got >= 0)
        read = read_result(line->message, (size_t)got, reply);
    if (read == 0 || read == -ENOMEM) {
        *is_begun = 1;
        return read;
    }
    *is_begun = got != -ESHUTDOWN && (got >= 0 || line_is_taken(line->end));
    return -EPROTO;
}

/* Whether the request of this number is the one that is served; with the lock. */
static int is_for(uint64_t number) {
    return calls.turn != OUTSIDE && calls.number == number;
}

/* Calls by the node, which knows how it ended if it was begun on the line of a number. */
static int ask_node(uint64_t number, const char *name, const char *type, const void *body, size_t length,
                    const uint32_t *again, sinew_reply *reply) {
    uint16_t name_length = (uint16_t)strlen(name), type_length = (uint16_t)strlen(type);
    struct waiter own = {0}, **link;
    int error = -ECANCELED;

    pthread_mutex_lock(&calls.lock);
    if (!is_for(number)) {
        pthread_mutex_unlock(&calls.lock);
        return -ECANCELED;
    }
    own.id = ++calls.last_id;
    own.next = calls.waiters;
    calls.waiters = &own;
    tell_request(calls.turn);
    send_frame(again != NULL ? ASK_AGAIN : ASK, calls.turn,
               (struct iovec[]){part(again, again != NULL ? 4 : 0), part(&own.id, 4), part(&name_length, 2),
                                part(name, name_length), part(&type_length, 2), part(type, type_length),
                                part(body, length)},
               7);
    while (own.told == NULL && !own.is_over)
        wait_for_frame();
    for (link = &calls.waiters; *link != &own; link = &(*link)->next)
        continue;
    *link = own.next;
    pthread_mutex_unlock(&calls.lock);
    if (own.told != NULL && !own.is_over) {
        const unsigned char *told = own.told->payload;
        size_t begin = 8 + (size_t)short_of(told + 6);
        error = begin > own.told->length
                    ? -EPROTO
                    : fill_reply(reply, short_of(told + 4), (const char *)told + 8, begin - 8, told + begin,
                                 own.told->length - begin);
    }
    free(own.told);
    return error;
}

/* Takes the line to a function, if this call may go there; with the lock. */
static struct call_line *take_call_line(const char *name, const char *type, size_t length) {
    const struct identity *identity = &calls.identity;
    struct call_line *line = find_call_line(name);

    if (line == NULL || line->is_used || !identity->has_seal || identity->depth >= CALL_DEPTH_MAX
        || LINE_REQUEST_BYTES + identity->id_length + strlen(type) + length > LINE_BYTES_MAX)
        return NULL;
    line->is_used = 1;
    return line;
}

/* Gives a line back. */
static void release_call_line(struct call_line *line, int is_over) {
    line->is_used = 0;
    if (is_over || line->is_forgotten)
        close_call_line(line);
}

/* Calls on the line to a function, if there is one; 0 with a reply, -EAGAIN if the node is to
 * be asked: again, if a number is given. */
static int try_line(const char *name, const char *type, const void *body, size_t length, uint64_t number,
                    uint32_t *again, sinew_reply *reply) {
    struct call_line *line = NULL;
    uint64_t begun, took;
    int error, is_begun;
    size_t asked;

    pthread_mutex_lock(&calls.lock);
    if (is_for(number))
        line = take_call_line(name, type, length);
    /* Of the request that it is for, which may be over before it is sent. */
    asked = line == NULL ? 0 : write_line_request(line, &calls.identity, type, body, length);
    pthread_mutex_unlock(&calls.lock);
    if (line == NULL)
        return -EAGAIN;
    begun = clock_ns();
    error = ask_on_line(line, asked, reply, &is_begun);
    took = clock_ns() - begun;
    pthread_mutex_lock(&calls.lock);
    if (error == -EPROTO && is_begun)
        *again = line->number;
    release_call_line(line, error == -EPROTO);
    if (is_for(number)) {
        calls.on_lines_ns += took;
        calls.waited_ns += took;
    } else if (error == 0) {
        sinew_reply_free(reply);
        error = -ECANCELED;
    }
    pthread_mutex_unlock(&calls.lock);
    return error == -EPROTO ? -EAGAIN : error;
}

/* Whether one call more may be under way, for which request. */
static int count_call(size_t length, uint64_t *number) {
    int error = 0;

    pthread_mutex_lock(&calls.lock);
    *number = calls.number;
    if (calls.turn == OUTSIDE) {
        error = -ENOTCONN;
    } else if (calls.under_way >= SINEW_CALLS_MAX || calls.bytes + length > SINEW_CALLS_BYTES_MAX) {
        error = -EAGAIN;
    } else {
        calls.under_way++;
        calls.bytes += length;
    }
    pthread_mutex_unlock(&calls.lock);
    return error;
}

int sinew_call(const char *name, const char *content_type, const void *body, size_t length, sinew_reply *reply) {
    const char *type = content_type == NULL ? "" : content_type;
    uint32_t again = 0;
    uint64_t number;
    int error, cancelling;

    *reply = (sinew_reply){.content_type = "", .body = ""};
    if (name == NULL || *name == 0 || strlen(name) > SINEW_NAME_MAX || strlen(type) > SINEW_TYPE_MAX
        || !is_header_value(type, strlen(type)))
        return -EINVAL;
    if (length > SINEW_CALL_BODY_MAX)
        return -EMSGSIZE;
    error = count_call(length, &number);
    if (error < 0)
        return error;
    /* A thread that reads for all must not end meanwhile. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    error = try_line(name, type, body, length, number, &again, reply);
    if (error == -EAGAIN) {
        uint64_t begun = clock_ns();

        error = ask_node(number, name, type, body, length, again == 0 ? NULL : &again, reply);
        pthread_mutex_lock(&calls.lock);
        if (is_for(number))
            calls.waited_ns += clock_ns() - begun;
    } else {
        pthread_mutex_lock(&calls.lock);
    }
    calls.under_way--;
    calls.bytes -= length;
    pthread_mutex_unlock(&calls.lock);
    pthread_setcancelstate(cancelling, NULL);
    return error;
}

void sinew_reply_free(sinew_reply *reply) {
    free(reply->memory);
    *reply = (sinew_reply){.content_type = "", .body = ""};
}
