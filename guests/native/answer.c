/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request and its answer: the heads of both (docs/spec/functions.md, sections 5
 * and 6), for whoever handles one and for the node.
 */

#define HEADERS_MAX 1024
#define TEXT_BYTES_MAX 4096
/* The highest bit of the length of a result's head: it is not remembered. */
#define PASSES 0x80000000u
/* A result of more is freed after its call. */
#define RESULT_KEPT_BYTES (1u << 20)
/* As W3C Trace Context writes it. */
#define TRACEPARENT_BYTES 55

struct header {
    const char *name, *value;
};

/* The one request that is handled. */
struct exchange {
    /* What handlers know of it. */
    sinew_request request;
    struct identity identity;
    /* Of a request that came by the node. */
    char *texts;
    struct header headers[HEADERS_MAX];
    size_t headers_count;
    /* Of one that came over a line: its content type, and its trace when that is asked for. */
    int is_on_line;
    char type[SINEW_TYPE_MAX + 1];
    char traceparent[TRACEPARENT_BYTES + 1];
    /* The answer: head and body. */
    int is_answered, status, is_too_long;
    /* It is what the outbox holds (memory.c). */
    int is_value;
    /* Others may map what it makes. */
    int is_step;
    size_t body_length;
    struct bytes headers_told, result;
    char failure_kind[TEXT_BYTES_MAX + 1], failure[TEXT_BYTES_MAX + 1];
};

static struct exchange exchange;

/* Headers about the connection, which the node has ones of its own for. */
static const char *const OF_THE_NODE[] = {"connection",       "content-length", "keep-alive", "proxy-connection", "te",
                                          "transfer-encoding", "upgrade"};

static void write_traceparent(char into[TRACEPARENT_BYTES + 1], const struct identity *identity) {
    memcpy(into, "00-", 3);
    write_hex(into + 3, identity->trace, 16);
    into[35] = '-';
    write_hex(into + 36, identity->span, 8);
    into[52] = '-';
    write_hex(into + 53, &identity->flags, 1);
    into[TRACEPARENT_BYTES] = 0;
}

/* The trace of a request; whether it is there. */
static int read_traceparent(const char *text, struct identity *identity) {
    return strlen(text) == TRACEPARENT_BYTES && read_hex(text + 3, identity->trace, 16)
           && read_hex(text + 36, identity->span, 8) && read_hex(text + 53, &identity->flags, 1);
}

/* The first line of a head: the call. */
static void read_call(struct json *json, const char **seal) {
    sinew_request *request = &exchange.request;
    int is_first = 1;

    json_expect(json, '{');
    while (json_more(json, '}', &is_first)) {
        const char *name = json_string(json);

        json_expect(json, ':');
        if (strcmp(name, "request_id") == 0)
            request->request_id = json_string(json);
        else if (strcmp(name, "function") == 0)
            request->function = json_string(json);
        else if (strcmp(name, "caller") == 0)
            request->caller = json_string(json);
        else if (strcmp(name, "content_type") == 0)
            request->content_type = json_string(json);
        else if (strcmp(name, "source") == 0)
            exchange.is_step = strcmp(json_string(json), "step") == 0;
        else if (strcmp(name, "seal") == 0)
            *seal = json_string(json);
        else if (strcmp(name, "version") == 0)
            request->version = json_number(json);
        else if (strcmp(name, "deadline_ms") == 0)
            request->deadline_ms = json_number(json);
        else if (strcmp(name, "depth") == 0)
            exchange.identity.depth = (uint32_t)json_number(json);
        else
            json_skip(json, 0);
    }
}

static void read_headers(struct json *json) {
    int is_first = 1;

    json_expect(json, '[');
    while (json_more(json, ']', &is_first)) {
        struct header header;

        json_expect(json, '[');
        header.name = json_string(json);
        json_expect(json, ',');
        header.value = json_string(json);
        json_expect(json, ']');
        if (!json->is_bad && exchange.headers_count < HEADERS_MAX)
            exchange.headers[exchange.headers_count++] = header;
    }
}

/* The second line: its HTTP side. */
static void read_http(struct json *json) {
    sinew_request *request = &exchange.request;
    int is_first = 1;

    json_expect(json, '{');
    while (json_more(json, '}', &is_first)) {
        const char *name = json_string(json);

        json_expect(json, ':');
        if (strcmp(name, "method") == 0)
            request->method = json_string(json);
        else if (strcmp(name, "path") == 0)
            request->path = json_string(json);
        else if (strcmp(name, "query") == 0)
            request->query = json_string(json);
        else if (strcmp(name, "headers") == 0)
            read_headers(json);
        else
            json_skip(json, 0);
    }
}

static void begin_exchange(const void *body, size_t length) {
    exchange.request = (sinew_request){.body = body, .length = length, .content_type = "", .method = "POST", .path = "/",
                                       .query = "", .request_id = "", .function = "", .caller = ""};
    exchange.headers_count = 0;
    exchange.is_on_line = exchange.is_answered = exchange.is_too_long = 0;
    exchange.is_value = exchange.is_step = 0;
    exchange.headers_told.length = exchange.result.length = 0;
    exchange.failure_kind[0] = exchange.failure[0] = 0;
    exchange.traceparent[0] = 0;
    exchange.identity.has_seal = 0;
    exchange.identity.depth = 0;
}

/* Reads the head of a request that came by the node; that of a pure function is empty. */
static int read_request(const unsigned char *head, size_t head_length, const void *body, size_t length) {
    struct json json = {.at = (const char *)head, .end = (const char *)head + head_length};
    struct identity *identity = &exchange.identity;
    const char *seal = "", *parent;

    begin_exchange(body, length);
    free(exchange.texts);
    exchange.texts = json.texts = malloc(head_length + 1);
    if (exchange.texts == NULL)
        return -ENOMEM;
    if (head_length == 0)
        return 0;
    read_call(&json, &seal);
    if (json_peek(&json) != -1)
        read_http(&json);
    if (json.is_bad)
        return -EPROTO;
    parent = sinew_header(&exchange.request, "traceparent");
    identity->id_length = strlen(exchange.request.request_id);
    identity->deadline_ms = exchange.request.deadline_ms;
    identity->has_seal = strlen(seal) == 32 && read_hex(seal, identity->seal, 16) && parent != NULL
                         && read_traceparent(parent, identity) && identity->id_length < sizeof identity->id;
    if (identity->has_seal)
        memcpy(identity->id, exchange.request.request_id, identity->id_length + 1);
    return 0;
}

const char *sinew_header(sinew_request *request, const char *name) {
    (void)request;
    for (size_t at = 0; at < exchange.headers_count; at++) {
        if (strcmp(exchange.headers[at].name, name) == 0)
            return exchange.headers[at].value;
    }
    if (!exchange.is_on_line)
        return NULL;
    if (strcmp(name, "content-type") == 0 && exchange.type[0] != 0)
        return exchange.type;
    if (strcmp(name, "traceparent") != 0)
        return NULL;
    if (exchange.traceparent[0] == 0)
        write_traceparent(exchange.traceparent, &exchange.identity);
    return exchange.traceparent;
}

/* One member of an object in JSON, after another one. */
static int add_member(struct bytes *into, const char *name, const char *value) {
    if (bytes_add_text(into, name) < 0)
        return -ENOMEM;
    return bytes_add_string(into, value);
}

/* The head of a request that came over a line, as the node would write it. */
static int write_request_head(struct bytes *into) {
    const sinew_request *request = &exchange.request;
    char numbers[128], seal[33] = "", parent[TRACEPARENT_BYTES + 1];
    int error;

    write_hex(seal, exchange.identity.seal, 16);
    write_traceparent(parent, &exchange.identity);
    snprintf(numbers, sizeof numbers, ",\"version\":%llu,\"deadline_ms\":%llu,\"depth\":%lu,\"source\":\"call\"",
             (unsigned long long)request->version, (unsigned long long)request->deadline_ms,
             (unsigned long)exchange.identity.depth);
    error = add_member(into, "{\"request_id\":", request->request_id);
    error = error ? error : add_member(into, ",\"function\":", request->function);
    error = error ? error : add_member(into, ",\"caller\":", request->caller);
    error = error ? error : add_member(into, ",\"seal\":", seal);
    if (exchange.type[0] != 0)
        error = error ? error : add_member(into, ",\"content_type\":", exchange.type);
    error = error ? error : bytes_add_text(into, numbers);
    error = error ? error : bytes_add_text(into, "}\n{\"method\":\"POST\",\"path\":\"/\",\"query\":\"\",\"headers\":[");
    if (exchange.type[0] != 0) {
        error = error ? error : add_member(into, "[\"content-type\",", exchange.type);
        error = error ? error : bytes_add_text(into, "],");
    }
    error = error ? error : add_member(into, "[\"traceparent\",", parent);
    return error ? error : bytes_add_text(into, "]]}");
}

static int is_header_name(const char *name) {
    size_t length = strlen(name);

    for (size_t at = 0; at < sizeof OF_THE_NODE / sizeof *OF_THE_NODE; at++) {
        if (strcasecmp(name, OF_THE_NODE[at]) == 0)
            return 0;
    }
    return length > 0
           && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == length;
}

int sinew_answer_header(sinew_request *request, const char *name, const char *value) {
    struct bytes *told = &exchange.headers_told;
    size_t before = told->length;
    int error;

    (void)request;
    if (exchange.is_answered)
        return -EALREADY;
    if (!is_header_name(name) || strcasecmp(name, "content-type") == 0 || !is_header_value(value, strlen(value)))
        return -EINVAL;
    error = bytes_add_text(told, ",[");
    error = error ? error : bytes_add_string(told, name);
    error = error ? error : bytes_add_text(told, ",");
    error = error ? error : bytes_add_string(told, value);
    error = error ? error : bytes_add_text(told, "]");
    if (error == 0 && told->length > SINEW_ANSWER_HEAD_MAX - 2 * 6 * SINEW_TYPE_MAX)
        error = -EMSGSIZE;
    if (error < 0)
        told->length = before;
    return error;
}

/* The head of an answer, as JSON, without headers of the handler's own where those are empty. */
static int write_answer_head(struct bytes *into, int status, const char *type) {
    const struct bytes *told = &exchange.headers_told;
    size_t own = told->length;
    char begin[32];
    int error;

    snprintf(begin, sizeof begin, "{\"status\":%d,\"headers\":[", status);
    error = bytes_add_text(into, begin);
    if (type[0] != 0) {
        error = error ? error : add_member(into, "[\"content-type\",", type);
        error = error ? error : bytes_add_text(into, "]");
        error = error ? error : bytes_add(into, told->at, own);
    } else if (own > 0) {
        error = error ? error : bytes_add(into, told->at + 1, own - 1);
    }
    return error ? error : bytes_add_text(into, "]}");
}

/* The length of the head, and the head: that of the answer before, if it is the same. */
static int begin_result(struct bytes *result, int status, const char *type) {
    static struct {
        struct bytes head;
        int status;
        char type[SINEW_TYPE_MAX + 1];
    } last;
    uint32_t length;

    if (last.status != status || strcmp(last.type, type) != 0 || exchange.headers_told.length > 0) {
        last.status = 0;
        last.head.length = 0;
        if (write_answer_head(&last.head, status, type) < 0)
            return -ENOMEM;
        last.status = exchange.headers_told.length > 0 ? 0 : status;
        strcpy(last.type, type);
    }
    length = (uint32_t)last.head.length | (status >= 500 ? PASSES : 0);
    return bytes_add(result, &length, 4) < 0 ? -ENOMEM : bytes_add(result, last.head.at, last.head.length);
}

int sinew_answer(sinew_request *request, int status, const char *content_type, const void *body, size_t length) {
    const char *type = content_type == NULL ? "" : content_type;
    struct bytes *result = &exchange.result;

    (void)request;
    if (exchange.is_answered)
        return -EALREADY;
    if (status < 200 || status > 599 || strlen(type) > SINEW_TYPE_MAX || !is_header_value(type, strlen(type)))
        return -EINVAL;
    result->length = 0;
    if (begin_result(result, status, type) < 0)
        return -ENOMEM;
    if (length > channel.result_max || result->length + length > channel.result_max) {
        exchange.is_too_long = 1;
        return -EMSGSIZE;
    }
    if (bytes_add(result, body, length) < 0)
        return -ENOMEM;
    exchange.status = status;
    exchange.body_length = length;
    exchange.is_answered = 1;
    return 0;
}

/* Copies a text as far as there is room, and no part of a character. */
static void keep_text(char into[TEXT_BYTES_MAX + 1], const char *text) {
    size_t length = strnlen(text, TEXT_BYTES_MAX + 1);

    if (length > TEXT_BYTES_MAX) {
        length = TEXT_BYTES_MAX;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
    }
    memcpy(into, text, length);
    into[length] = 0;
}

int sinew_fail(sinew_request *request, const char *kind, const char *message) {
    (void)request;
    keep_text(exchange.failure_kind, kind);
    keep_text(exchange.failure, message);
    return -1;
}
