/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes small pprofs (field numbers: google/pprof proto/profile.proto). A test can change the ids
 * of locations and functions, and the indices of strings. These have a meaning only within one
 * profile.
 */
#pragma once

#include <stdbool.h>

#include "tests/support/wire.h"

#define PPROF_WIRE_MAX 8

struct pprof_wire_sample {
    const char *function; /* name of the function of the only frame; NULL: the end of the list */
    int64_t values[4];
    /* value of the numeric label `bytes`, as in Go's heap profiles; 0: the sample does not have
     * the label */
    int64_t bytes;
};

struct pprof_wire {
    const char *types[4][2]; /* name and unit of each sample type */
    size_t n_types;
    struct pprof_wire_sample samples[PPROF_WIRE_MAX];
    uint64_t more_id; /* number that is added to the ids of locations and functions */
    int64_t time_ns, duration_ns;
    /* true: the string table has an additional string before all others, which changes the
     * indices */
    bool padded;
};

static inline size_t pprof_wire_types(struct wire *w, const struct pprof_wire *p, size_t at)
{
    for (size_t i = 0; i < p->n_types; i++) {
        size_t m = wire_open(w, 1);
        wire_varint(w, 1, at++);
        wire_varint(w, 2, at++);
        wire_close(w, m);
    }
    return at;
}

static inline void pprof_wire_sample(struct wire *w, const struct pprof_wire *p, size_t i,
                                     size_t bytes_at)
{
    const struct pprof_wire_sample *s = &p->samples[i];
    size_t m = wire_open(w, 2);
    wire_varint(w, 1, p->more_id + i + 1);
    for (size_t k = 0; k < p->n_types; k++)
        wire_varint(w, 2, (uint64_t)s->values[k]);
    if (s->bytes) {
        size_t label = wire_open(w, 3);
        wire_varint(w, 1, bytes_at);
        wire_varint(w, 3, (uint64_t)s->bytes);
        wire_close(w, label);
    }
    wire_close(w, m);
}

static inline void pprof_wire_frame(struct wire *w, uint64_t id, size_t name_at)
{
    size_t m = wire_open(w, 4);
    wire_varint(w, 1, id);
    size_t line = wire_open(w, 4);
    wire_varint(w, 1, id);
    wire_close(w, line);
    wire_close(w, m);
    m = wire_open(w, 5);
    wire_varint(w, 1, id);
    wire_varint(w, 2, name_at);
    wire_close(w, m);
}

static inline void pprof_wire_write(struct wire *w, const struct pprof_wire *p)
{
    size_t at = pprof_wire_types(w, p, 1 + p->padded), bytes_at = at++;
    for (size_t i = 0; i < PPROF_WIRE_MAX && p->samples[i].function; i++) {
        pprof_wire_sample(w, p, i, bytes_at);
        pprof_wire_frame(w, p->more_id + i + 1, at++);
    }
    wire_str(w, 6, "");
    if (p->padded)
        wire_str(w, 6, "padding");
    for (size_t i = 0; i < p->n_types * 2; i++)
        wire_str(w, 6, p->types[i / 2][i % 2]);
    wire_str(w, 6, "bytes");
    for (size_t i = 0; i < PPROF_WIRE_MAX && p->samples[i].function; i++)
        wire_str(w, 6, p->samples[i].function);
    if (p->time_ns)
        wire_varint(w, 9, (uint64_t)p->time_ns);
    if (p->duration_ns)
        wire_varint(w, 10, (uint64_t)p->duration_ns);
}
