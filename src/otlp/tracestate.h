/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes the tracestate of a span. Its member `ot` describes how the span was sampled: a
 * threshold (th) and, if the trace id is not random, explicit randomness (rv). Both are in hex.
 *
 * Sources: W3C Trace Context, section 3.3;
 * opentelemetry.io/docs/specs/otel/trace/tracestate-handling.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BR_TRACESTATE_MAX 1024   /* bytes of a valid tracestate */
#define BR_TRACESTATE_MEMBERS 32 /* members of a valid tracestate */
#define BR_TRACESTATE_OT_MAX 256 /* bytes of the value of `ot` */
#define BR_TRACESTATE_ROOM 1200  /* bytes of any valid tracestate after th and rv were set */

struct br_tracestate_text {
    const char *data; /* points into the text that was read, or into the struct */
    size_t len;       /* 0: the member is absent */
};

struct br_tracestate {
    uint64_t threshold, randomness; /* valid if th and rv are present */
    struct br_tracestate_text th, rv;
    struct br_tracestate_text others[BR_TRACESTATE_MEMBERS]; /* members other than `ot` */
    size_t n_others;
    /* fields of `ot` other than th and rv */
    struct br_tracestate_text extras[BR_TRACESTATE_OT_MAX / 2];
    size_t n_extras;
    char own_th[16], own_rv[16];
};

/* Parses `len` bytes, which are borrowed while `ret` is used. Returns false if they are not a
 * valid tracestate or th or rv is malformed. An empty tracestate is valid. */
bool br_tracestate_read(struct br_tracestate *ret, const void *text, size_t len);

/* Set th, which is below BR_THRESHOLD_NEVER, or rv, or remove th. */
void br_tracestate_set_threshold(struct br_tracestate *tracestate, uint64_t threshold);
void br_tracestate_set_randomness(struct br_tracestate *tracestate, uint64_t randomness);
void br_tracestate_clear_threshold(struct br_tracestate *tracestate);

/* Writes the tracestate to `out`, which has BR_TRACESTATE_ROOM bytes: `ot` first (rv, th, other
 * fields), then the other members. Returns the length. */
size_t br_tracestate_write(const struct br_tracestate *tracestate, char *out);
