/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/policy.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "otlp/trace_id.h"

#define STATUS_ERROR 2
#define NAMES_MAX 10000

static const struct br_option name_options[] = {
    BR_STRING(struct join_keep_name, name, "", "the span's name"),
    BR_DURATION(struct join_keep_name, slow_threshold, "0s",
                "in place of the general one; 0s: never slow"),
    BR_OPT_END,
};

const struct br_option join_keep_options[] = {
    BR_DURATION(struct join_keep, slow_threshold, "0s",
                "links to spans that last as long survive; 0s: no reason"),
    BR_LIST(struct join_keep, span_names, struct join_keep_name, name_options,
            "spans that are slow from another duration on"),
    BR_BOOL(struct join_keep, failed, true, "links to spans with status error survive"),
    BR_DURATION(struct join_keep, cpu_threshold, "0s",
                "links to spans whose samples add up to more CPU time survive; 0s: no reason"),
    BR_DOUBLE(struct join_keep, sampling_percentage, 0, 0, 100,
              "of the traces, links to whose spans survive; the same ones on every instance"),
    BR_BOOL(struct join_keep, unknown, false, "links to spans that have not come survive"),
    BR_OPT_END,
};

int join_policy_init(struct join_policy *p, const struct join_keep *keep)
{
    p->keep = keep;
    if (!keep)
        return 0;
    p->names = br_map_new(NAMES_MAX);
    bool ok = p->names != NULL;
    const struct join_keep_name *names = keep->span_names.v;
    for (size_t i = 0; ok && i < keep->span_names.n; i++)
        ok = br_map_put(p->names, names[i].name, strlen(names[i].name),
                        (void *)(uintptr_t)&names[i], NULL) == 0;
    return ok ? 0 : BR_ENOMEM;
}

void join_policy_start(struct join_policy *p, const struct br_node *node)
{
    join_rules_start(&p->rules, node, p->keep != NULL);
}

void join_policy_release(struct join_policy *p)
{
    join_rules_stop(&p->rules);
    br_map_free(p->names, NULL);
    *p = (struct join_policy){0};
}

static bool is_slow(const struct join_policy *p, const struct join_found *span, uint64_t duration)
{
    uint64_t threshold = p->keep->slow_threshold;
    if (br_map_count(p->names)) {
        const struct join_keep_name *own = br_map_get(p->names, span->name, span->name_len);
        threshold = own ? own->slow_threshold : threshold;
    }
    return threshold && duration >= threshold;
}

enum join_verdict join_policy_of(const struct join_policy *p, const struct join_found *span,
                                 const uint8_t *trace_id, const uint8_t *service,
                                 size_t service_len, uint64_t now_ms)
{
    const struct join_keep *k = p->keep;
    uint64_t duration = span && span->end_ns > span->start_ns ? span->end_ns - span->start_ns : 0;
    if (!k || (trace_id && br_trace_sampled(trace_id, k->sampling_percentage)))
        return JOIN_KEEPS;
    if (join_rules_keep(&p->rules, now_ms, service, service_len, trace_id, duration))
        return JOIN_KEEPS;
    if (!span)
        return k->unknown ? JOIN_KEEPS : JOIN_FOLDS;
    if ((k->failed && span->status == STATUS_ERROR) || is_slow(p, span, duration))
        return JOIN_KEEPS;
    return k->cpu_threshold ? JOIN_FOLDS_UNLESS_CPU : JOIN_FOLDS;
}
