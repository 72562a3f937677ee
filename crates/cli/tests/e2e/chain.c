/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of direct.rs in native code: each does what its event says, or calls
 * another one, so often, and tells the last answer or failure. It reads JSON by the
 * library's own reader, so that it is one file with it.
 */
#include "sinew.c"

#define VERSION 1
#define LONG_BYTES 200000

/* A part of an event, as it was written. */
struct raw {
    const char *at;
    size_t length;
};

struct event {
    const char *what, *name;
    struct raw whole, then, last;
    uint64_t times, seconds;
};

static unsigned int served_count;

static struct raw read_raw(struct json *json) {
    const char *begin;

    json_peek(json);
    begin = json->at;
    json_skip(json, 0);
    return (struct raw){begin, (size_t)(json->at - begin)};
}

static int read_event(struct event *event, struct json *json) {
    int is_first = 1;

    *event = (struct event){.what = "", .name = "", .whole = {json->at, (size_t)(json->end - json->at)}, .times = 1};
    json_expect(json, '{');
    while (json_more(json, '}', &is_first)) {
        const char *member = json_string(json);

        json_expect(json, ':');
        if (strcmp(member, "do") == 0) {
            event->what = json_string(json);
        } else if (strcmp(member, "then") == 0) {
            json_expect(json, '[');
            event->name = json_string(json);
            json_expect(json, ',');
            event->then = read_raw(json);
            json_expect(json, ']');
        } else if (strcmp(member, "times") == 0) {
            event->times = json_number(json);
        } else if (strcmp(member, "s") == 0) {
            event->seconds = json_number(json);
        } else if (strcmp(member, "last") == 0) {
            event->last = read_raw(json);
        } else {
            json_skip(json, 0);
        }
    }
    return json->is_bad ? -1 : 0;
}

/* The reason that a problem gives. */
static const char *reason_of(const sinew_reply *reply, char *texts) {
    struct json json = {.at = reply->body, .end = (const char *)reply->body + reply->length, .texts = texts};
    int is_first = 1;

    if (strcmp(reply->content_type, "application/problem+json") != 0)
        return reply->body;
    json_expect(&json, '{');
    while (json_more(&json, '}', &is_first)) {
        const char *member = json_string(&json);

        json_expect(&json, ':');
        if (strcmp(member, "detail") == 0)
            return json_string(&json);
        json_skip(&json, 0);
    }
    return "";
}

static int answer_json(sinew_request *request, struct bytes *told) {
    int error = sinew_answer(request, 200, "application/json", told->at, told->length);

    free(told->at);
    return error;
}

static int answer_failure(sinew_request *request, sinew_reply *reply) {
    char numbers[64], *texts = malloc(reply->length + 1);
    struct bytes told = {0};

    bytes_add_text(&told, "{\"failed\":");
    bytes_add_string(&told, reason_of(reply, texts));
    snprintf(numbers, sizeof numbers, ",\"status\":%d,\"body\":%zu}", reply->status, reply->length);
    bytes_add_text(&told, numbers);
    free(texts);
    return answer_json(request, &told);
}

/* Calls, and tells the last answer. */
static int called(sinew_request *request, const struct event *event) {
    sinew_reply reply = {.body = "", .content_type = ""};
    int error = 0, answered;

    for (uint64_t time = 0; time < event->times + 1 && reply.status < 400; time++) {
        const struct raw *with = time < event->times ? &event->then : &event->last;

        if (with->at == NULL)
            break;
        sinew_reply_free(&reply);
        error = sinew_call(event->name, "application/json", with->at, with->length, &reply);
        if (error < 0)
            return sinew_fail(request, "CallError", strerror(-error));
    }
    answered = reply.status >= 400 ? answer_failure(request, &reply)
                                   : sinew_answer(request, reply.status, reply.content_type, reply.body, reply.length);
    sinew_reply_free(&reply);
    return answered;
}

static void *leave_behind(void *unused) {
    static const char event[] = "{\"do\": \"sleep\", \"s\": 50}";
    sinew_reply reply;

    if (sinew_call("third", "application/json", event, sizeof event - 1, &reply) == 0)
        sinew_reply_free(&reply);
    return unused;
}

static int leave(sinew_request *request) {
    pthread_t thread;

    usleep(100000);
    if (pthread_create(&thread, NULL, leave_behind, NULL) != 0)
        return sinew_fail(request, "RuntimeError", "no thread");
    pthread_detach(thread);
    usleep(300000);
    return sinew_answer(request, 200, "application/json", "{\"left\":true}", 13);
}

static int echo(sinew_request *request, const struct event *event) {
    struct bytes told = {0};
    char numbers[96];

    bytes_add_text(&told, "{\"event\":");
    bytes_add(&told, event->whole.at, event->whole.length);
    bytes_add_text(&told, ",\"id\":");
    bytes_add_string(&told, request->request_id);
    bytes_add_text(&told, ",\"function\":");
    bytes_add_string(&told, request->function);
    snprintf(numbers, sizeof numbers, ",\"left\":%lld}", (long long)(request->deadline_ms - now_ms()));
    bytes_add_text(&told, numbers);
    return answer_json(request, &told);
}

static int answer_version(sinew_request *request) {
    char text[96];
    int length = snprintf(text, sizeof text, "{\"version\":%d,\"pid\":%d,\"served\":%u}", VERSION, getpid(), served_count);

    return sinew_answer(request, 200, "application/json", text, (size_t)length);
}

static int act(sinew_request *request, const struct event *event) {
    static char text[LONG_BYTES];
    const char *what = event->what;

    if (strcmp(what, "version") == 0)
        return answer_version(request);
    if (strcmp(what, "raise") == 0) {
        printf("about to fail\n");
        return sinew_fail(request, "ValueError", "not today");
    }
    if (strcmp(what, "exit") == 0)
        exit(3);
    if (strcmp(what, "leave") == 0)
        return leave(request);
    if (strcmp(what, "status") == 0)
        return sinew_answer(request, 404, "text/x", "no such thing", 13);
    if (strcmp(what, "long") == 0) {
        memset(text, 'y', sizeof text);
        return sinew_answer(request, 200, "text/plain; charset=utf-8", text, sizeof text);
    }
    if (strcmp(what, "none") == 0)
        return 0;
    if (strcmp(what, "print") == 0)
        printf("printed by %s\n", request->function);
    if (strcmp(what, "sleep") == 0)
        sleep((unsigned int)event->seconds);
    return echo(request, event);
}

static int handle(sinew_request *request, void *context) {
    char *texts = malloc(request->length + 1);
    struct json json = {.at = request->body, .end = (const char *)request->body + request->length, .texts = texts};
    struct event event;
    int told;

    (void)context;
    served_count++;
    if (read_event(&event, &json) < 0)
        told = sinew_fail(request, "ValueError", "the event is none");
    else
        told = event.then.at != NULL ? called(request, &event) : act(request, &event);
    free(texts);
    return told;
}

int main(void) {
    return sinew_serve(handle, NULL) < 0;
}
