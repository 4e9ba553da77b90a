/* SPDX-License-Identifier: Apache-2.0 */
/* Writes answers about picked samples that more than one API gives. Each answers, or fails, the
 * job. */
#pragma once

#include "extensions/query/pick.h"
#include "query/functions.h"

/* Appends `,"average":` and whether values are averages over time (query_pick_is_average). */
void query_put_average(struct query_job *job, const struct query_pick *pick);

/* Answers `{"type","unit","average","total","functions":[{"name","file","self","total"}],"cut"}` */
void query_answer_functions(struct query_job *job, const struct query_pick *pick, uint32_t limit,
                            enum br_function_order order);

/* Appends a flame graph as a pprof of what was picked, up to `until_ns`. Returns 0 or BR_ENOMEM. */
int query_put_pprof(struct query_job *job, const struct query_pick *pick, uint64_t until_ns,
                    const struct br_flame *flame);

/* Returns true when a format is one of query_answer_file. */
bool query_is_file_format(const char *format);

/* Answers with a file of a format: "pprof" (gzip'd), "speedscope", "folded" or "tree"; 400 for
 * another. */
void query_answer_file(struct query_job *job, const struct query_pick *pick, const char *format);

/* Appends `,"cut":null` or the sentence that says why the answer is not all. */
void query_put_cut(struct query_job *job);

/* Appends `"name":` and a text, with `before` in front of it: "," or "{". */
void query_put_text(struct br_str *out, char before, const char *name, const char *text);
