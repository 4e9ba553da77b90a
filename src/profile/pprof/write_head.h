/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the fields of a pprof that precede its samples: types, period, times, comments. Only for
 * src/profile/pprof/write.c.
 */
#pragma once

#include "profile/pprof/write_tables.h"

#define PPROF_TYPE_LEN 64

/* A Profile of the current scope. */
struct br_pprof_profile {
    const uint8_t *body, *end;
    uint32_t n_samples;
    uint32_t type, unit, period_type, period_unit; /* string indices in the dictionary */
    int64_t period;
    uint64_t time_ns, duration_ns;
    bool cumulative;
};

struct br_pprof_scope {
    bool from_pyroscope;
    /* The scope was converted from a pprof and contains the original order of its Profiles. */
    bool ordered;
    bool has_cpu;         /* some Profile of the scope has the type cpu/nanoseconds */
    struct br_entry name; /* value of `__name__` if from_pyroscope is true */
    /* value of `__name__` if from_pyroscope is false; len 0: derived from the types */
    struct br_entry metric;
    struct br_entry preferred; /* name of the default sample type; len 0: none */
};

struct br_pprof_type {
    struct br_entry type, unit; /* type and unit as written to the pprof */
    char text[PPROF_TYPE_LEN];  /* NUL-terminated copy of the type */
    char clean_unit[PPROF_TYPE_LEN];
    bool is_period;    /* values have the type and unit of the period */
    bool times_period; /* each value is a number of periods */
};

struct br_pprof_head {
    const struct br_pprof_profile *profile; /* first of n_profiles Profiles */
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

/* Returns true if two Profiles refer to the same attributes in the same order. Ignores invalid
 * indices and the attribute BR_PROFILE_CUMULATIVE. */
bool br_pprof_profile_same_attributes(const struct br_pprof_profile *profile,
                                      const struct br_pprof_profile *other,
                                      const struct br_pprof_tables *tables);

/* Returns true if the profile's type is cpu/nanoseconds. */
bool br_pprof_profile_is_cpu(const struct br_pprof_profile *profile,
                             const struct br_pprof_tables *tables);

/* Reads the attributes of a scope, except `scope->has_cpu`, and sorts its Profiles (at most
 * BR_PPROF_TYPES_MAX) into their original order. */
void br_pprof_scope_read(struct br_pprof_scope *scope, struct br_entry body,
                         struct br_pprof_profile *profiles, uint32_t count);

/* Prepares the head of a pprof made of `count` Profiles. The Profiles, the scope and the
 * dictionary are borrowed and must outlive `head`. */
void br_pprof_head_make(struct br_pprof_head *head, const struct br_pprof_tables *tables,
                        const struct br_pprof_scope *scope, const struct br_pprof_profile *profile,
                        uint32_t count);

/* Writes the head, with the time moved by `later_ns`. Stores the time and its offset in `out`. */
void br_pprof_head_write(const struct br_pprof_head *head, struct br_pprof_tables *tables,
                         uint64_t later_ns, struct br_pprof_out *out);
