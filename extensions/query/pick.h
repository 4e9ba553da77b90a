/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Selects the samples that a query is about, whichever API it came by: by a type, a label selector,
 * ids of spans and traces, a range of time. Everything lies in the arena of the job.
 */
#pragma once

#include "extensions/query/query.h"
#include "query/flamebearer.h"
#include "query/profile_type.h"
#include "query/selector.h"

/* Nodes of a flame graph: the most that a query adds up; the default of an answer, as Pyroscope's;
 * the default of Braid's own API, whose page sums functions over the tree; the most that a client
 * can ask for, as Pyroscope's. */
#define QUERY_FLAME_NODES_MAX 262144
#define QUERY_FLAMEBEARER_NODES_MAX 8192
#define QUERY_BRAID_NODES_MAX 131072
#define QUERY_FLAMEBEARER_NODES_TOP 1048576

#define QUERY_NO_STACK "(no stack)"

#define QUERY_IDS_MAX 65536 /* spans or traces of one query */

/* A profile: the samples of one source (struct br_stored_series) with the same time. The store
 * keeps no ids of profiles. */
struct query_profile {
    uint64_t source, time_ns;
};
#define QUERY_PROFILE_ID 37 /* bytes of its text, a UUID, with its end */

struct query_pick {
    uint64_t from_ns, until_ns; /* until 0: no end */
    bool spans_together;        /* query_pick_samples: as in struct br_sample_filter */
    bool as_pyroscope; /* query_pick_flame: samples that have no stack are left out, and values of
                          gauges are added up; else they are averaged over time */
    struct br_profile_type type; /* id NULL: any */
    struct br_matcher *matchers;
    size_t n_matchers, cap_matchers;
    uint64_t *span_ids;
    size_t n_span_ids, cap_span_ids;
    uint8_t (*trace_ids)[16];
    size_t n_trace_ids, cap_trace_ids;
    struct query_profile *profiles; /* query_pick_flame: only these; none: all */
    size_t n_profiles, cap_profiles;
    const char *const *call_site; /* as in struct br_sample_filter */
    size_t n_call_site;
};

/* Returns false when a query has to end: its client is gone, or its time is up, which its cut then
 * says. */
bool query_pick_goes_on(struct query_job *job);

/* Add to `pick`. A matcher of `span_id`, `profile_id` or `trace_id` is an id: of the form that
 * br_id_parse reads, with `=`, and several in one text with `|` between them. They return 0,
 * BR_EINVAL with a sentence, BR_ENOMEM or BR_EFULL. */
int query_pick_add_selector(struct query_job *job, struct query_pick *pick, const char *text,
                            size_t len, struct br_err *err);
int query_pick_add_matcher(struct query_job *job, struct query_pick *pick,
                           const struct br_matcher *matcher, struct br_err *err);
int query_pick_add_span(struct query_job *job, struct query_pick *pick, uint64_t span_id);
int query_pick_add_span_text(struct query_job *job, struct query_pick *pick, const char *text,
                             size_t len, struct br_err *err);
int query_pick_add_trace(struct query_job *job, struct query_pick *pick, const uint8_t id[16]);
int query_pick_add_trace_text(struct query_job *job, struct query_pick *pick, const char *text,
                              size_t len, struct br_err *err);
int query_pick_add_profile_text(struct query_job *job, struct query_pick *pick, const char *text,
                                size_t len, struct br_err *err);
int query_pick_set_type(struct query_job *job, struct query_pick *pick, const char *text,
                        size_t len, struct br_err *err);

/* Adds a query as Pyroscope's `<type>{<selector>}`, or `<application>{<selector>}`. */
int query_pick_add_query(struct query_job *job, struct query_pick *pick, const char *text,
                         size_t len, struct br_err *err);

/* Writes the id of a profile as query_pick_add_profile_text reads it. */
void query_pick_print_profile(const struct query_profile *profile, char ret[QUERY_PROFILE_ID]);

/* Makes the filter that the store is asked with; a matcher of `span_name` is one of `span.name`
 * where no series has the first. Returns 0, BR_ENOMEM, BR_EFULL or BR_EIO. */
int query_pick_filter(struct query_job *job, const struct query_pick *pick,
                      struct br_sample_filter *ret);

/* Returns whether query_pick_flame averages what is picked: the values of gauges
 * (br_profile_type_is_gauge). */
bool query_pick_is_average(const struct query_pick *pick);

/* Adds the stacks to a flame; samples without a stack get a bar QUERY_NO_STACK. Gauges are averaged
 * over the profiles of each process, and the averages of processes are added up. If stacks are more
 * than it may have, the smallest become part of BR_FLAME_OTHER, and job->store->note mentions it.
 * Errors as br_store_flame. */
int query_pick_flame(struct query_job *job, const struct query_pick *pick, struct br_flame *flame,
                     struct br_err *err);

/* Likewise, as Pyroscope does it (as_pyroscope): functions of one name are one function. The stacks
 * are added on the side that the flame has. */
int query_pick_flame_by_name(struct query_job *job, const struct query_pick *pick,
                             struct br_flame *flame, struct br_err *err);

/* Asks the store as br_store_samples does. */
int query_pick_samples(struct query_job *job, const struct query_pick *pick, uint64_t step_ns,
                       br_samples_fn *fn, void *arg, struct br_err *err);
