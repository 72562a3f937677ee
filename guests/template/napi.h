/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Node's part of the core uses of Node-API and libuv: only the few
 * declarations that are needed are repeated here; both are stable, and their
 * headers are not everywhere.
 */
#ifndef SINEW_NAPI_H
#define SINEW_NAPI_H

#include "template.h"

typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_callback_info__ *napi_callback_info;
typedef struct napi_ref__ *napi_ref;
typedef struct napi_handle_scope__ *napi_handle_scope;
typedef napi_value (*napi_callback)(napi_env, napi_callback_info);
struct uv_loop_s;
typedef struct uv_handle_s uv_handle_t;

int napi_create_function(napi_env, const char *, size_t, napi_callback, void *, napi_value *);
int napi_set_named_property(napi_env, napi_value, const char *, napi_value);
int napi_get_cb_info(napi_env, napi_callback_info, size_t *, napi_value *, napi_value *, void **);
int napi_get_buffer_info(napi_env, napi_value, void **, size_t *);
int napi_get_value_int32(napi_env, napi_value, int32_t *);
int napi_create_object(napi_env, napi_value *);
int napi_create_int32(napi_env, int32_t, napi_value *);
int napi_get_uv_event_loop(napi_env, struct uv_loop_s **);
int napi_create_reference(napi_env, napi_value, uint32_t, napi_ref *);
int napi_get_reference_value(napi_env, napi_ref, napi_value *);
int napi_delete_reference(napi_env, napi_ref);
int napi_open_handle_scope(napi_env, napi_handle_scope *);
int napi_close_handle_scope(napi_env, napi_handle_scope);
int napi_make_callback(napi_env, void *, napi_value, napi_value, size_t, const napi_value *, napi_value *);
int napi_get_and_clear_last_exception(napi_env, napi_value *);
int napi_fatal_exception(napi_env, napi_value);
int uv_loop_fork(struct uv_loop_s *);
void uv_update_time(struct uv_loop_s *);
size_t uv_handle_size(int);
void uv_handle_set_data(uv_handle_t *, void *);
void *uv_handle_get_data(const uv_handle_t *);
int uv_poll_init(struct uv_loop_s *, uv_handle_t *, int);
int uv_poll_start(uv_handle_t *, int, void (*)(uv_handle_t *, int, int));
int uv_poll_stop(uv_handle_t *);
void uv_close(uv_handle_t *, void (*)(uv_handle_t *));

/* Of libuv's: the kind of handle that watches a descriptor, and what it is
 * watched for. */
#define UV_POLL 8
#define UV_READABLE 1

/* A number of JavaScript's. */
napi_value number(napi_env env, int value);

/* The bytes of the first argument, a buffer. */
int argument(napi_env env, napi_callback_info info, void **bytes, size_t *length);

/* For JavaScript, in node_streams.c, which says what they do. */
napi_value attend(napi_env env, napi_callback_info info);
napi_value on_settled(napi_env env, napi_callback_info info);
napi_value turns_open_one(napi_env env, napi_callback_info info);
napi_value print_to_one(napi_env env, napi_callback_info info);
napi_value line_open_one(napi_env env, napi_callback_info info);
napi_value line_look_again(napi_env env, napi_callback_info info);
napi_value line_send_one(napi_env env, napi_callback_info info);
napi_value line_is_all_taken(napi_env env, napi_callback_info info);
napi_value line_is_shut(napi_env env, napi_callback_info info);
napi_value line_close_one(napi_env env, napi_callback_info info);

#endif
