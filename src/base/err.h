/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error codes and the one structure that carries an error's text upwards.
 *
 * A function that can fail returns 0 or one of the negative codes below. Where a person has to read
 * why, it also takes `struct br_err *err` as its last parameter: filled once, where the cause is
 * known, and left alone on success. Outer frames may only prefix context. `err` may be NULL.
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
    int code;       /* one of enum br_code, BR_OK while nothing failed */
    int line, col;  /* 1-based, 0 where no file is involved */
    char file[256]; /* as the user wrote it; empty where no file is involved */
    char path[192]; /* exporters::otlp/tempo::endpoint; empty where none */
    char text[512]; /* a sentence: what is wrong and what would be right */
};

/* Returns the fixed sentence of a code. Never NULL. */
const char *br_strerror(int code);

/* Fills `err` (may be NULL) with a code and a printf-style sentence; returns `code`. */
int br_err_set(struct br_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts a printf-style prefix before the sentence that `err` (may be NULL) already has. */
void br_err_prefix(struct br_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Writes `file:line:col: path: text`, leaving out what is empty, into `out`; always terminated.
 * Returns `out`. */
const char *br_err_format(const struct br_err *err, char *out, size_t size);
