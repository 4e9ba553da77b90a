/* SPDX-License-Identifier: Apache-2.0 */
/* Writes responses about selected samples, for several of the query APIs. Each function
 * query_respond_* either writes a response or fails the job. */
#pragma once

#include "extensions/query/selection.h"
#include "query/flame_output.h"

/* Appends `,"average":` followed by true if the values are averages over time
 * (query_selection_is_average), and otherwise by false. */
void query_put_average(struct query_job *job, const struct query_selection *selection);

/* Responds with
 * `{"type","unit","average","total","functions":[{"name","file","self","total"}],"cut"}`. */
void query_respond_functions(struct query_job *job, const struct query_selection *selection,
                             uint32_t limit, enum br_function_order order);

/* Appends a flame graph as pprof. The time range of the pprof ends at `until_ns`. Returns 0 or
 * BR_ENOMEM. */
int query_put_pprof(struct query_job *job, const struct query_selection *selection,
                    uint64_t until_ns, const struct br_flame *flame);

/* Returns true if query_respond_file supports the format. */
bool query_is_file_format(const char *format);

/* Responds with a file: "pprof" (gzip'd), "speedscope", "folded" or "tree". Fails the job with
 * 400 for another format. */
void query_respond_file(struct query_job *job, const struct query_selection *selection,
                        const char *format);

/* Appends `,"cut":` and the reason why the response is incomplete, or null. */
void query_put_cut(struct query_job *job);

/* Appends `"name":` and the text, preceded by the character `before`, which is "," or "{". */
void query_put_text(struct br_str *out, char before, const char *name, const char *text);
