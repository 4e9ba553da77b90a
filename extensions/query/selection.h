/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Selects the samples for a query of any API, by profile type, label selector, span and trace ids,
 * and time range. All data is in the arena of the job.
 */
#pragma once

#include "extensions/query/query.h"
#include "query/flame_output.h"
#include "query/selector.h"

/* Limits on the nodes of a flame graph:
 *
 * - QUERY_FLAME_NODES_MAX: maximum number of nodes of a flame graph in memory
 * - QUERY_FLAMEBEARER_NODES_MAX: default number of nodes in a response, as in Pyroscope
 * - QUERY_BRAID_NODES_MAX: default number of nodes in a response of Braid's own API; the web page
 *   computes the totals of functions from these nodes
 * - QUERY_FLAMEBEARER_NODES_TOP: maximum number that a client may request, as in Pyroscope */
#define QUERY_FLAME_NODES_MAX 262144
#define QUERY_FLAMEBEARER_NODES_MAX 8192
#define QUERY_BRAID_NODES_MAX 131072
#define QUERY_FLAMEBEARER_NODES_TOP 1048576

#define QUERY_NO_STACK "(no stack)"

#define QUERY_IDS_MAX 65536 /* maximum number of span ids in a query, and also of trace ids */

/* A profile: the samples that have the same source (struct br_stored_series) and the same time.
 * The store has no ids of profiles. */
struct query_profile {
    uint64_t source, time_ns;
};
#define QUERY_PROFILE_ID 37 /* bytes of a profile id, a UUID in text form, including the NUL */

struct query_selection {
    /* range of times in Unix nanoseconds; an `until_ns` of 0 means no end */
    uint64_t from_ns, until_ns;
    /* for query_selection_samples: value of `spans_together` in struct br_sample_filter */
    bool spans_together;
    /* true: query_selection_flame leaves out samples without a stack, and adds up gauges instead
     * of averaging them over time */
    bool as_pyroscope;
    /* profile type of the samples; if its id is NULL, all types are selected */
    struct br_profile_type type;
    struct br_matcher *matchers;
    size_t n_matchers, cap_matchers;
    uint64_t *span_ids;
    size_t n_span_ids, cap_span_ids;
    uint8_t (*trace_ids)[16];
    size_t n_trace_ids, cap_trace_ids;
    /* for query_selection_flame: only these profiles are selected; if the list is empty, all
     * profiles are */
    struct query_profile *profiles;
    size_t n_profiles, cap_profiles;
    /* function names with which the selected stacks begin, as in struct br_sample_filter */
    const char *const *call_site;
    size_t n_call_site;
};

/* Returns true if a query may continue. Returns false if its client has disconnected or its time
 * is up. If the time is up, job->store->cut gives the reason. */
bool query_job_may_continue(struct query_job *job);

/* The query_selection_add functions add conditions to a selection. A matcher of `span_id`,
 * `profile_id` or `trace_id` adds ids in the forms that br_id_parse reads. The matcher must use
 * `=` or `=~`, and may contain several ids separated by `|`. The functions return 0, BR_ENOMEM,
 * BR_EFULL, or BR_EINVAL with a message. */
int query_selection_add_selector(struct query_job *job, struct query_selection *selection,
                                 const char *text, size_t len, struct br_err *err);
int query_selection_add_matcher(struct query_job *job, struct query_selection *selection,
                                const struct br_matcher *matcher, struct br_err *err);
int query_selection_add_span(struct query_job *job, struct query_selection *selection,
                             uint64_t span_id);
int query_selection_add_span_text(struct query_job *job, struct query_selection *selection,
                                  const char *text, size_t len, struct br_err *err);
int query_selection_add_trace(struct query_job *job, struct query_selection *selection,
                              const uint8_t id[16]);
int query_selection_add_trace_text(struct query_job *job, struct query_selection *selection,
                                   const char *text, size_t len, struct br_err *err);
int query_selection_add_profile_text(struct query_job *job, struct query_selection *selection,
                                     const char *text, size_t len, struct br_err *err);
int query_selection_set_type(struct query_job *job, struct query_selection *selection,
                             const char *text, size_t len, struct br_err *err);

/* Adds a query in Pyroscope's form: `<type>{<selector>}` or `<application>{<selector>}`. Returns
 * 0, BR_ENOMEM, BR_EFULL, or BR_EINVAL with a message. */
int query_selection_add_query(struct query_job *job, struct query_selection *selection,
                              const char *text, size_t len, struct br_err *err);

/* Writes the id of a profile in the form that query_selection_add_profile_text reads. */
void query_profile_print(const struct query_profile *profile, char ret[QUERY_PROFILE_ID]);

/* Makes the filter with which the store finds the samples of a selection. A matcher of
 * `span_name` becomes a matcher of `span.name` if no series has the label `span_name`. Returns
 * 0, BR_ENOMEM, BR_EFULL or BR_EIO. */
int query_selection_filter(struct query_job *job, const struct query_selection *selection,
                           struct br_sample_filter *ret);

/* Returns true if query_selection_flame averages the values, because the type is a gauge
 * (br_profile_type_is_gauge). */
bool query_selection_is_average(const struct query_selection *selection);

/* Adds the selected stacks to a flame graph. Samples without a stack are shown as
 * QUERY_NO_STACK. Gauges are averaged over the profiles of each process, and the averages are
 * added up. If there are too many stacks, the smallest are merged into BR_FLAME_OTHER, and
 * job->store->note reports the merge. Returns 0, BR_EINVAL, BR_EFULL, BR_EIO or BR_ENOMEM. */
int query_selection_flame(struct query_job *job, const struct query_selection *selection,
                          struct br_flame *flame, struct br_err *err);

/* Adds the selected stacks to the side flame->side of a flame graph, as Pyroscope does
 * (as_pyroscope): functions with equal names are merged. Returns 0, BR_EINVAL, BR_EFULL, BR_EIO
 * or BR_ENOMEM. */
int query_selection_flame_by_name(struct query_job *job, const struct query_selection *selection,
                                  struct br_flame *flame, struct br_err *err);

/* Calls `fn` for the selected samples, as br_store_samples does. Returns 0, BR_EINVAL, BR_EFULL,
 * BR_EIO or BR_ENOMEM. */
int query_selection_samples(struct query_job *job, const struct query_selection *selection,
                            uint64_t step_ns, br_samples_fn *fn, void *arg, struct br_err *err);

/* --- Averages --------------------------------------------------------------------------------- */

/*
 * Averages gauges over time. A gauge is an amount at the time of a profile, such as memory in use.
 * The values of a gauge are averaged over the profiles of one process, and these averages are added
 * up over processes.
 */

/* Adds the stacks that the filter selects to the side flame->side of a flame graph. Values are
 * averaged over the profiles of each process in the range; profiles are distinguished by their
 * times. Returns 0, BR_EINVAL, BR_EFULL, BR_EIO or BR_ENOMEM. */
int query_average_flame(struct query_job *job, const struct br_sample_filter *filter,
                        struct br_flame *flame, struct br_err *err);
