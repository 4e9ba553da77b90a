/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes the tracestate of a span. The member `ot` of a tracestate describes how the span
 * was sampled: a threshold (th) and, if the trace id is not random, explicit randomness (rv).
 * Threshold and randomness are in hex.
 *
 * The format is defined in W3C Trace Context, section 3.3, and in
 * opentelemetry.io/docs/specs/otel/trace/tracestate-handling.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BR_TRACESTATE_MAX 1024   /* maximum number of bytes of a valid tracestate */
#define BR_TRACESTATE_MEMBERS 32 /* maximum number of members of a valid tracestate */
#define BR_TRACESTATE_OT_MAX 256 /* maximum number of bytes of the value of the member `ot` */
/* maximum size, in bytes, that a valid tracestate can have after th and rv are set */
#define BR_TRACESTATE_ROOM 1200

struct br_tracestate_text {
    /* start of the text; points into the tracestate that was read, or into `own_th` or `own_rv` */
    const char *data;
    size_t len; /* length in bytes; 0: the text is absent */
};

struct br_tracestate {
    /* `threshold` is the value of th, if th is present; `randomness` is the value of rv, if rv is
     * present */
    uint64_t threshold, randomness;
    struct br_tracestate_text th, rv;
    /* members of the tracestate other than `ot` */
    struct br_tracestate_text others[BR_TRACESTATE_MEMBERS];
    size_t n_others;
    /* fields of `ot` other than th and rv */
    struct br_tracestate_text extras[BR_TRACESTATE_OT_MAX / 2];
    size_t n_extras;
    char own_th[16], own_rv[16];
};

/* Parses a tracestate of `len` bytes, which are borrowed while `ret` is used. Returns false if
 * the text is not a valid tracestate, or if th or rv is malformed. An empty tracestate is valid. */
bool br_tracestate_read(struct br_tracestate *ret, const void *text, size_t len);

/* Finds the value of the member `key`. Checks the syntax of all keys and values, but not the
 * content of the member `ot`. Returns false if there is no such member, if the tracestate is not
 * valid, or if two members have the same key. `*ret_value` points into `text`. */
bool br_tracestate_get(const void *text, size_t len, const char *key, const void **ret_value,
                       size_t *ret_len);

/* Sets the threshold (th) in the member `ot`. `threshold` is below BR_THRESHOLD_NEVER. */
void br_tracestate_set_threshold(struct br_tracestate *tracestate, uint64_t threshold);

/* Sets the randomness (rv) in the member `ot`. */
void br_tracestate_set_randomness(struct br_tracestate *tracestate, uint64_t randomness);

/* Removes the threshold (th) from the member `ot`. */
void br_tracestate_clear_threshold(struct br_tracestate *tracestate);

/* Writes the tracestate to `out`, which has BR_TRACESTATE_ROOM bytes. The member `ot` comes
 * first (rv, th, other fields), then the other members. Returns the number of bytes written. */
size_t br_tracestate_write(const struct br_tracestate *tracestate, char *out);
