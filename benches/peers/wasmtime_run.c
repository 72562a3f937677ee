/* SPDX-License-Identifier: Apache-2.0 */
/* A program for WASI preview 1 in plain wasmtime, by the library that its package for Python has; there is no
 * package of its command line. Compiled code is read from a file, as `wasmtime run --allow-precompiled` does.
 *
 * usage: wasmtime_run --compile MODULE CODE
 *        wasmtime_run CODE DIRECTORY=GUEST... -- ARGUMENT...
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is used of wasmtime's interface for C. */
typedef struct engine engine;
typedef struct config config;
typedef struct store store;
typedef struct context context;
typedef struct linker linker;
typedef struct module module;
typedef struct error error;
typedef struct trap trap;
typedef struct wasi wasi;
typedef struct { size_t size; char *data; } bytes;
typedef struct { uint64_t store; void *private; } function;

config *wasm_config_new(void);
engine *wasm_engine_new_with_config(config *);
error *wasmtime_module_new(engine *, const uint8_t *, size_t, module **);
error *wasmtime_module_serialize(module *, bytes *);
error *wasmtime_module_deserialize_file(engine *, const char *, module **);
store *wasmtime_store_new(engine *, void *, void (*)(void *));
context *wasmtime_store_context(store *);
wasi *wasi_config_new(void);
bool wasi_config_set_argv(wasi *, size_t, const char **);
bool wasi_config_preopen_dir(wasi *, const char *, const char *, bool);
void wasi_config_inherit_stdout(wasi *);
void wasi_config_inherit_stderr(wasi *);
error *wasmtime_context_set_wasi(context *, wasi *);
linker *wasmtime_linker_new(engine *);
error *wasmtime_linker_define_wasi(linker *);
error *wasmtime_linker_module(linker *, context *, const char *, size_t, module *);
error *wasmtime_linker_get_default(linker *, context *, const char *, size_t, function *);
error *wasmtime_func_call(context *, const function *, const void *, size_t, void *, size_t, trap **);
bool wasmtime_error_exit_status(const error *, int *);
void wasmtime_error_message(const error *, bytes *);

static void check(error *failed, const char *what)
{
	bytes message;

	if (!failed)
		return;
	wasmtime_error_message(failed, &message);
	fprintf(stderr, "wasmtime_run: %s: %.*s\n", what, (int)message.size, message.data);
	exit(70);
}

static int compile(engine *engine, const char *from, const char *to)
{
	FILE *file = fopen(from, "rb");
	uint8_t *wasm;
	module *module;
	bytes code;
	long size;

	if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0)
		return perror(from), 70;
	rewind(file);
	wasm = malloc((size_t)size);
	if (!wasm || fread(wasm, 1, (size_t)size, file) != (size_t)size)
		return perror(from), 70;
	check(wasmtime_module_new(engine, wasm, (size_t)size, &module), from);
	check(wasmtime_module_serialize(module, &code), from);
	file = fopen(to, "wb");
	if (!file || fwrite(code.data, 1, code.size, file) != code.size || fclose(file))
		return perror(to), 70;
	return 0;
}

int main(int count, char **arguments)
{
	engine *engine = wasm_engine_new_with_config(wasm_config_new());
	wasi *wasi = wasi_config_new();
	context *context = wasmtime_store_context(wasmtime_store_new(engine, NULL, NULL));
	linker *linker = wasmtime_linker_new(engine);
	trap *trap = NULL;
	module *module;
	function start;
	error *ended;
	int at = 2, status = 0;

	if (count == 4 && !strcmp(arguments[1], "--compile"))
		return compile(engine, arguments[2], arguments[3]);
	if (count < 3)
		return fputs("usage: wasmtime_run CODE DIRECTORY=GUEST... -- ARGUMENT...\n", stderr), 64;
	for (; at < count && strcmp(arguments[at], "--"); at++) {
		char *guest = strchr(arguments[at], '=');

		if (!guest)
			return fputs("wasmtime_run: a directory is DIRECTORY=GUEST\n", stderr), 64;
		*guest++ = 0;
		if (!wasi_config_preopen_dir(wasi, arguments[at], guest, true))
			return perror(arguments[at]), 70;
	}
	at++;
	wasi_config_set_argv(wasi, (size_t)(count - at), (const char **)arguments + at);
	wasi_config_inherit_stdout(wasi);
	wasi_config_inherit_stderr(wasi);
	check(wasmtime_module_deserialize_file(engine, arguments[1], &module), arguments[1]);
	check(wasmtime_context_set_wasi(context, wasi), "wasi");
	check(wasmtime_linker_define_wasi(linker), "wasi");
	check(wasmtime_linker_module(linker, context, "", 0, module), arguments[1]);
	check(wasmtime_linker_get_default(linker, context, "", 0, &start), "_start");
	ended = wasmtime_func_call(context, &start, NULL, 0, NULL, 0, &trap);
	if (ended && wasmtime_error_exit_status(ended, &status))
		return status;
	check(ended, "it failed");
	return trap ? 134 : 0;
}
