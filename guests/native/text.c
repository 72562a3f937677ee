/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text: bytes that grow, JSON that is read and written. Of JSON there is what heads
 * of requests and answers have (docs/spec/functions.md, sections 5 and 6).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* How deep a value may be that nobody wants. */
#define JSON_DEPTH_MAX 32

struct bytes {
    unsigned char *at;
    size_t length, room;
};

/* Room for so many more; 0, or -ENOMEM. */
static int bytes_reserve(struct bytes *bytes, size_t more) {
    size_t wanted = bytes->room < 256 ? 256 : bytes->room;
    unsigned char *grown;

    if (more <= bytes->room - bytes->length)
        return 0;
    while (wanted - bytes->length < more) {
        if (wanted > SIZE_MAX / 2)
            return -ENOMEM;
        wanted *= 2;
    }
    grown = realloc(bytes->at, wanted);
    if (grown == NULL)
        return -ENOMEM;
    bytes->at = grown;
    bytes->room = wanted;
    return 0;
}

static int bytes_add(struct bytes *bytes, const void *from, size_t length) {
    if (bytes_reserve(bytes, length) < 0)
        return -ENOMEM;
    if (length > 0)
        memcpy(bytes->at + bytes->length, from, length);
    bytes->length += length;
    return 0;
}

/* How many bytes the character of UTF-8 here has; 0 if there is none. */
static size_t character_length(const unsigned char *at, size_t left) {
    size_t length = at[0] < 0x80 ? 1 : at[0] >= 0xc2 && at[0] < 0xe0 ? 2 : at[0] >= 0xe0 && at[0] < 0xf0 ? 3 : at[0] >= 0xf0 && at[0] < 0xf5 ? 4 : 0;

    if (length == 0 || length > left)
        return 0;
    for (size_t each = 1; each < length; each++) {
        if ((at[each] & 0xc0) != 0x80)
            return 0;
    }
    /* Longer than need be, half of a pair, or beyond the last one. */
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf0 && at[1] < 0x90)
        || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return length;
}

/* Whether this is UTF-8 and can be the value of a header. */
static int is_header_value(const void *value, size_t length) {
    const unsigned char *at = value;

    for (size_t next = 0, one; next < length; next += one) {
        one = character_length(at + next, length - next);
        if (one == 0 || (at[next] < 0x20 && at[next] != '\t') || at[next] == 0x7f)
            return 0;
    }
    return 1;
}

static int bytes_add_text(struct bytes *bytes, const char *text) {
    return bytes_add(bytes, text, strlen(text));
}

/* Adds a text as a string of JSON. */
static int bytes_add_string(struct bytes *bytes, const char *text) {
    int error = bytes_add(bytes, "\"", 1);

    for (; error == 0 && *text != 0; text++) {
        unsigned char one = (unsigned char)*text;
        char escaped[8];

        if (one == '"' || one == '\\')
            error = bytes_add(bytes, "\\", 1);
        if (error == 0 && one < 0x20)
            error = bytes_add(bytes, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", one));
        else if (error == 0)
            error = bytes_add(bytes, text, 1);
    }
    return error == 0 ? bytes_add(bytes, "\"", 1) : error;
}

static void write_hex(char *into, const unsigned char *bytes, size_t count) {
    static const char digits[] = "0123456789abcdef";

    for (size_t at = 0; at < count; at++) {
        into[2 * at] = digits[bytes[at] >> 4];
        into[2 * at + 1] = digits[bytes[at] & 15];
    }
}

static int hex_digit(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Whether so many bytes are written there. */
static int read_hex(const char *text, unsigned char *into, size_t count) {
    for (size_t at = 0; at < count; at++) {
        int high = hex_digit(text[2 * at]), low = high < 0 ? -1 : hex_digit(text[2 * at + 1]);
        if (low < 0)
            return 0;
        into[at] = (unsigned char)(high << 4 | low);
    }
    return 1;
}

/* What is left of a JSON text. `texts` is room for the strings in it, which need no more
 * than they have there: both quotes are more than the NUL at the end. */
struct json {
    const char *at, *end;
    char *texts;
    int is_bad;
};

/* The next character that is no space; -1 at the end. */
static int json_peek(struct json *json) {
    while (json->at < json->end && memchr(" \t\r\n", *json->at, 4) != NULL)
        json->at++;
    return json->is_bad || json->at == json->end ? -1 : (unsigned char)*json->at;
}

static int json_takes(struct json *json, char wanted) {
    if (json_peek(json) != (unsigned char)wanted)
        return 0;
    json->at++;
    return 1;
}

static void json_expect(struct json *json, char wanted) {
    if (!json_takes(json, wanted))
        json->is_bad = 1;
}

/* Whether there is one more entry before the end of what was begun. */
static int json_more(struct json *json, char end, int *is_first) {
    if (json->is_bad || json_takes(json, end))
        return 0;
    if (!*is_first)
        json_expect(json, ',');
    *is_first = 0;
    return !json->is_bad;
}

static void put_character(struct json *json, uint32_t code) {
    if (code < 0x80) {
        *json->texts++ = (char)code;
        return;
    }
    if (code >= 0x10000) {
        *json->texts++ = (char)(0xf0 | code >> 18);
        *json->texts++ = (char)(0x80 | (code >> 12 & 0x3f));
    } else if (code >= 0x800) {
        *json->texts++ = (char)(0xe0 | code >> 12);
    } else {
        *json->texts++ = (char)(0xc0 | code >> 6);
        *json->texts++ = (char)(0x80 | (code & 0x3f));
        return;
    }
    *json->texts++ = (char)(0x80 | (code >> 6 & 0x3f));
    *json->texts++ = (char)(0x80 | (code & 0x3f));
}

/* Four hexadecimal digits. */
static uint32_t json_unit(struct json *json) {
    uint32_t unit = 0;

    for (int count = 0; count < 4; count++) {
        int digit = json->at < json->end ? hex_digit(*json->at) : -1;
        if (digit < 0) {
            json->is_bad = 1;
            return 0;
        }
        unit = unit << 4 | (uint32_t)digit;
        json->at++;
    }
    return unit;
}

static void json_escape(struct json *json) {
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char name = json->at < json->end ? *json->at++ : 0;
    const char *found = name == 0 ? NULL : strchr(names, name);
    uint32_t code;

    if (found != NULL) {
        *json->texts++ = meant[found - names];
        return;
    }
    if (name != 'u') {
        json->is_bad = 1;
        return;
    }
    code = json_unit(json);
    if (code >= 0xd800 && code < 0xdc00 && json->end - json->at > 1 && json->at[0] == '\\' && json->at[1] == 'u') {
        json->at += 2;
        uint32_t low = json_unit(json);
        code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : 0xfffd;
    } else if (code >= 0xd800 && code < 0xe000) {
        code = 0xfffd;
    }
    put_character(json, code);
}

/* A string, in the room for texts; empty if there is none. */
static const char *json_string(struct json *json) {
    char *begin = json->texts;

    json_expect(json, '"');
    while (!json->is_bad) {
        if (json->at == json->end) {
            json->is_bad = 1;
        } else if (*json->at == '"') {
            json->at++;
            *json->texts++ = 0;
            return begin;
        } else if (*json->at == '\\') {
            json->at++;
            json_escape(json);
        } else {
            *json->texts++ = *json->at++;
        }
    }
    return "";
}

static uint64_t json_number(struct json *json) {
    uint64_t number = 0;
    int first = json_peek(json);

    if (first < '0' || first > '9')
        json->is_bad = 1;
    while (!json->is_bad && json->at < json->end && *json->at >= '0' && *json->at <= '9') {
        uint64_t digit = (uint64_t)(*json->at++ - '0');
        number = number > (UINT64_MAX - digit) / 10 ? UINT64_MAX : 10 * number + digit;
    }
    return number;
}

/* Goes past a value of any kind. */
static void json_skip(struct json *json, int depth) {
    int first = json_peek(json), is_first = 1;

    if (depth > JSON_DEPTH_MAX || first < 0) {
        json->is_bad = 1;
    } else if (first == '"') {
        json_string(json);
    } else if (json_takes(json, '[')) {
        while (json_more(json, ']', &is_first))
            json_skip(json, depth + 1);
    } else if (json_takes(json, '{')) {
        while (json_more(json, '}', &is_first)) {
            json_string(json);
            json_expect(json, ':');
            json_skip(json, depth + 1);
        }
    } else {
        const char *begin = json->at;
        while (json->at < json->end && strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *json->at) != NULL
               && *json->at != 0)
            json->at++;
        json->is_bad |= json->at == begin;
    }
}
