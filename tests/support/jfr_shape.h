/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recordings of one chunk with arbitrary events and constants, for inputs that no JVM writes: texts
 * of a megabyte, thousands of references to one. Integers are compressed. Memory is the C
 * library's, as wire.h's.
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

/* Ids of the types. */
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

/* Writes a text in Latin-1 of `len` bytes `c`. */
void jfr_shape_latin1(struct wire *w, unsigned c, size_t len);

/* Write a text in UTF-8, and a reference to one in the pool of strings. */
void jfr_shape_text(struct wire *w, const char *text);
void jfr_shape_pooled(struct wire *w, uint64_t id);

/* Begins a pool of `n` entries in s->pools; each consists of its id and its fields. */
void jfr_shape_pool(struct jfr_shape *s, enum jfr_shape_type type, unsigned n);

/* Begins an event: its fields are written to the result until jfr_shape_close. */
struct wire *jfr_shape_open(struct jfr_shape *s, enum jfr_shape_type type);
void jfr_shape_close(struct jfr_shape *s);

/* Appends the chunk made so far to s->whole, and starts a new one. */
void jfr_shape_chunk(struct jfr_shape *s);

void jfr_shape_free(struct jfr_shape *s);
