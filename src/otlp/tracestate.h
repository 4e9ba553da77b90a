/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes the tracestate of a span. Its `ot` member says how the span was sampled: a
 * threshold (th) and, where the trace id is not random, explicit randomness (rv), both in hex.
 * Sources: W3C Trace Context, section 3.3;
 * opentelemetry.io/docs/specs/otel/trace/tracestate-handling.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BR_TRACESTATE_MAX 1024   /* bytes of one that is valid */
#define BR_TRACESTATE_MEMBERS 32 /* and its members */
#define BR_TRACESTATE_OT_MAX 256 /* bytes of the value of `ot` */
#define BR_TRACESTATE_ROOM 1200  /* bytes that any can take once th and rv were set */

struct br_tracestate_text {
    const char *data; /* into the text that was read, or into the struct */
    size_t len;       /* 0: not there */
};

struct br_tracestate {
    uint64_t threshold, randomness; /* valid where th and rv are there */
    struct br_tracestate_text th, rv;
    struct br_tracestate_text others[BR_TRACESTATE_MEMBERS]; /* members but `ot` */
    size_t n_others;
    struct br_tracestate_text extras[BR_TRACESTATE_OT_MAX / 2]; /* of `ot`, but th and rv */
    size_t n_extras;
    char own_th[16], own_rv[16];
};

/* Reads `len` bytes, which are borrowed as long as `ret` is used. False when they are no valid
 * tracestate, or th or rv is malformed; an empty one is valid. */
bool br_tracestate_read(struct br_tracestate *ret, const void *text, size_t len);

/* Set th, below BR_THRESHOLD_NEVER, and rv. */
void br_tracestate_set_threshold(struct br_tracestate *tracestate, uint64_t threshold);
void br_tracestate_set_randomness(struct br_tracestate *tracestate, uint64_t randomness);
void br_tracestate_clear_threshold(struct br_tracestate *tracestate);

/* Writes it into BR_TRACESTATE_ROOM bytes, `ot` first, rv before th before the rest; returns the
 * length. */
size_t br_tracestate_write(const struct br_tracestate *tracestate, char *out);
