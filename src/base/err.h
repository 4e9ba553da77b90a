/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error codes, and the structure that returns the text of an error to the caller.
 *
 * A function that can fail returns 0 or one of the negative codes below. If a user has to see the
 * reason, the function also takes `struct br_err *err` as its last parameter. `err` is filled once,
 * by the function that finds the cause, and is unchanged on success. Callers may only add a prefix.
 * `err` may be NULL.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

#define BR_CODES(X)                                                                                \
    X(ENOMEM, "out of memory")                                                                     \
    X(EINVAL, "invalid input")                                                                     \
    X(ETOOBIG, "too large")                                                                        \
    X(EAGAIN, "try again")                                                                         \
    X(EIO, "input/output error")                                                                   \
    X(ENOTFOUND, "not found")                                                                      \
    X(EUNSUPPORTED, "not supported")                                                               \
    X(ECLOSED, "closed")                                                                           \
    X(ETIMEOUT, "timed out")                                                                       \
    X(EFULL, "full")                                                                               \
    X(EPROTO, "protocol error")

enum br_code {
    BR_OK = 0,
    BR_CODE_BASE = -1000,
#define X(name, text) BR_##name,
    BR_CODES(X)
#undef X
};

struct br_err {
    int code;      /* one of enum br_code; BR_OK if nothing failed */
    int line, col; /* position in the file, 1-based; 0: the error is not about a file */
    /* name of the file, as the user wrote it; empty: the error is not about a file */
    char file[256];
    char path[192]; /* path of the setting, such as exporters::otlp/tempo::endpoint; may be empty */
    char text[512]; /* a sentence that states the problem and the correct form */
};

/* Returns the text of a code. Never NULL. */
const char *br_strerror(int code);

/* Fills `err` (may be NULL) with a code and a message in printf format. Returns `code`. */
int br_err_set(struct br_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* clang's static analyzer must know that the function does not return 0 if `code` is not 0. */
#ifdef __clang_analyzer__
#define br_err_set(err, code, ...) (br_err_set(err, code, __VA_ARGS__), (code))
#endif

/* Puts a printf-style prefix before the sentence in `err` (may be NULL). */
void br_err_prefix(struct br_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Writes `file:line:col: path: text` to `out`, without the parts that are empty. The result is
 * always NUL-terminated. Returns `out`. */
const char *br_err_format(const struct br_err *err, char *out, size_t size);
