/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JFR recordings with arbitrary events and constants, for inputs that no JVM writes, such as
 * texts of a megabyte and thousands of references to one text. Integers are compressed. Uses memory
 * of the C library, like wire.h.
 *
 * The fields of each type, in the order in which they are written:
 *
 *   Sample   startTime, sampledThread, stackTrace, state, contextId, spanId, spanName
 *   Alloc    stackTrace, allocationSize; no time, so that an event takes four bytes
 *   Setting  id, name, value
 *   Thread   osName, javaName, javaThreadId
 *   State    name
 *   Trace    frames of: method, lineNumber
 *   Method   type, name
 *   Class    extra (bytes that readers skip), name
 *   Symbol   string
 */
#pragma once

#include <stdbool.h>

#include "tests/support/wire.h"

/* Ids of the types in the recording's metadata. */
enum jfr_shape_type {
    JFR_BYTE = 1,
    JFR_INT,
    JFR_LONG,
    JFR_STRING,
    JFR_THREAD,
    JFR_STATE,
    JFR_TRACE,
    JFR_FRAME,
    JFR_METHOD,
    JFR_CLASS,
    JFR_SYMBOL,
    JFR_SAMPLE,
    JFR_ALLOC,
    JFR_SETTING,
};

struct jfr_shape {
    struct wire events, pools, event;
    unsigned n_pools;
    struct wire whole;
};

/* Writes a Latin-1 string that consists of `len` bytes `c`. */
void jfr_shape_latin1(struct wire *w, unsigned c, size_t len);

/* jfr_shape_text writes a UTF-8 string. jfr_shape_pooled writes a reference to a string in the pool
 * of strings. */
void jfr_shape_text(struct wire *w, const char *text);
void jfr_shape_pooled(struct wire *w, uint64_t id);

/* Begins a pool of `n` entries in s->pools. The caller then writes the entries to s->pools. An
 * entry consists of its id and its fields. */
void jfr_shape_pool(struct jfr_shape *s, enum jfr_shape_type type, unsigned n);

/* jfr_shape_open begins an event. The caller writes the fields to the returned buffer, and then
 * calls jfr_shape_close. */
struct wire *jfr_shape_open(struct jfr_shape *s, enum jfr_shape_type type);
void jfr_shape_close(struct jfr_shape *s);

/* Appends the chunk made so far to s->whole, and starts a new one. */
void jfr_shape_chunk(struct jfr_shape *s);

void jfr_shape_free(struct jfr_shape *s);
