/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes what a pprof says before its samples: types, period, times, comments. For
 * src/profile/pprof/write.c only.
 */
#pragma once

#include "profile/pprof/write_tables.h"

#define PPROF_TYPE_LEN 64

/* A Profile of the scope that is being read. */
struct br_pprof_profile {
    const uint8_t *body, *end;
    uint32_t n_samples;
    uint32_t type, unit, period_type, period_unit; /* strings of the dictionary */
    int64_t period;
    uint64_t time_ns, duration_ns;
    bool cumulative;
};

struct br_pprof_scope {
    bool from_pyroscope;
    bool ordered;              /* it was made of a pprof */
    bool has_cpu;              /* a Profile has the type cpu/nanoseconds */
    struct br_entry name;      /* from_pyroscope: what __name__ is */
    struct br_entry metric;    /* else what it is to be; len 0: by the types */
    struct br_entry preferred; /* the default sample type; len 0: none */
};

struct br_pprof_type {
    struct br_entry type, unit; /* as they are written */
    char text[PPROF_TYPE_LEN];  /* the type, terminated */
    char clean_unit[PPROF_TYPE_LEN];
    bool is_period;    /* a value counts in the period's type and unit */
    bool times_period; /* a value is a number of periods */
};

struct br_pprof_head {
    const struct br_pprof_profile *profile; /* the first */
    const struct br_pprof_scope *scope;
    struct br_pprof_type types[BR_PPROF_TYPES_MAX];
    uint32_t n_profiles;
    struct br_entry period_type, period_unit;
    int64_t period;
    bool cumulative;
    char name[128];
};

void br_pprof_profile_read(struct br_pprof_profile *profile, struct br_pprof_tables *tables,
                           const uint8_t *body, const uint8_t *end);

/* Returns true when two that were read refer to the same attributes in the same order, but for what
 * says whether they are cumulative. Indices that mean no attribute do not count. */
bool br_pprof_profile_same_attributes(const struct br_pprof_profile *left,
                                      const struct br_pprof_profile *right,
                                      const struct br_pprof_tables *tables);

/* Returns whether the profile's type is cpu/nanoseconds. */
bool br_pprof_profile_is_cpu(const struct br_pprof_profile *profile,
                             const struct br_pprof_tables *tables);

/* Reads the scope's attributes, but for `has_cpu`, and brings its Profiles, at most
 * BR_PPROF_TYPES_MAX, into the order that they say. */
void br_pprof_scope_read(struct br_pprof_scope *scope, struct br_entry body,
                         struct br_pprof_profile *profiles, uint32_t count);

/* Makes the head of the pprof that `count` Profiles make. It borrows them, the scope and the
 * dictionary as long as it lives. */
void br_pprof_head_make(struct br_pprof_head *head, const struct br_pprof_tables *tables,
                        const struct br_pprof_scope *scope, const struct br_pprof_profile *profile,
                        uint32_t count);

/* Writes the head. Its time is later by `later_ns`; `out` is told of the name and the time. */
void br_pprof_head_write(const struct br_pprof_head *head, struct br_pprof_tables *tables,
                         uint64_t later_ns, struct br_pprof_out *out);
