/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/join.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "otlp/fields.h"
#include "otlp/trace_id.h"

/* --- Overrides at run time ------------------------------------------------------------------ */

static struct join_overrides *join_policy_overrides_of(struct br_overridable *overridable)
{
    return br_container_of(overridable, struct join_overrides, overridable);
}

/* Removes the override `id`, and all overrides that have expired. */
static void join_policy_overrides_sweep(struct join_overrides *overrides, uint64_t id)
{
    uint64_t now = br_host_mono_ms(overrides->node->host);
    for (size_t i = overrides->count; i-- > 0;)
        if (overrides->overrides[i].id == id || overrides->overrides[i].until_ms <= now)
            overrides->overrides[i] = overrides->overrides[--overrides->count];
}

static int join_policy_overrides_apply(struct br_overridable *overridable,
                                       const struct br_override *override, struct br_err *err)
{
    struct join_overrides *overrides = join_policy_overrides_of(overridable);
    size_t len = override->service ? strlen(override->service) : 0;
    join_policy_overrides_sweep(overrides, override->id);
    if (!overrides->enabled || !override->keep || len > JOIN_OVERRIDE_SERVICE_MAX ||
        override->until_ms <= br_host_mono_ms(overrides->node->host))
        return 0;
    if (overrides->count == BR_OVERRIDES_MAX)
        return br_err_set(err, BR_EFULL, "more than %d overrides at a time", BR_OVERRIDES_MAX);
    struct join_override *entry = &overrides->overrides[overrides->count++];
    *entry = (struct join_override){.id = override->id,
                                    .until_ms = override->until_ms,
                                    .sampling_percentage = override->sampling_percentage,
                                    .slow_threshold_ns = override->slow_threshold_ns,
                                    .service_len = (uint8_t)len};
    if (len)
        memcpy(entry->service, override->service, len);
    return 1;
}

static void join_policy_overrides_withdraw(struct br_overridable *overridable, uint64_t id)
{
    join_policy_overrides_sweep(join_policy_overrides_of(overridable), id);
}

static void join_policy_overrides_list(const struct br_overridable *overridable,
                                       br_collected_fn *fn, void *arg)
{
    const struct join_overrides *overrides =
        br_container_of(overridable, struct join_overrides, overridable);
    uint64_t now = br_host_mono_ms(overrides->node->host);
    char service[JOIN_OVERRIDE_SERVICE_MAX + 1] = "";
    struct br_collected collected = {.component = overrides->node->id,
                                     .service = service,
                                     .target = "",
                                     .type = "links",
                                     .state = overrides->enabled ? "some" : "all"};
    fn(&collected, arg);
    for (size_t i = 0; i < overrides->count; i++) {
        const struct join_override *override = &overrides->overrides[i];
        if (override->until_ms <= now)
            continue;
        memcpy(service, override->service, override->service_len);
        service[override->service_len] = '\0';
        collected.override = override->id;
        collected.until_ms = override->until_ms;
        collected.state = override->sampling_percentage >= 100 ? "all" : "some";
        fn(&collected, arg);
    }
}

static const struct br_overridable_ops ops = {
    join_policy_overrides_apply, join_policy_overrides_withdraw, join_policy_overrides_list};

void join_overrides_start(struct join_overrides *overrides, const struct br_node *node,
                          bool enabled)
{
    overrides->overridable.ops = &ops;
    overrides->node = node;
    overrides->enabled = enabled;
    br_overridable_register(&overrides->overridable, node->host);
}

void join_overrides_stop(struct join_overrides *overrides)
{
    br_overridable_unregister(&overrides->overridable);
}

static bool join_policy_overrides_keeps(const struct join_override *override, const void *service,
                                        size_t service_len, const uint8_t *trace_id,
                                        uint64_t duration_ns)
{
    if (override->service_len && (override->service_len != service_len ||
                                  memcmp(override->service, service, service_len) != 0))
        return false;
    if (override->slow_threshold_ns && duration_ns >= override->slow_threshold_ns)
        return true;
    return override->sampling_percentage >= 100 ||
           (trace_id && br_trace_sampled(trace_id, override->sampling_percentage));
}

bool join_overrides_keep(const struct join_overrides *overrides, uint64_t now_ms,
                         const void *service, size_t service_len, const uint8_t *trace_id,
                         uint64_t duration_ns)
{
    for (size_t i = 0; i < overrides->count; i++)
        if (now_ms < overrides->overrides[i].until_ms &&
            join_policy_overrides_keeps(&overrides->overrides[i], service, service_len, trace_id,
                                        duration_ns))
            return true;
    return false;
}

/* --- The policy ------------------------------------------------------------------------- */

#define NAMES_MAX 10000

static const struct br_option name_options[] = {
    BR_STRING(struct join_keep_name, name, "", "name of the spans"),
    BR_DURATION(struct join_keep_name, slow_threshold, "0s",
                "threshold for spans with this name, instead of the general slow_threshold; 0s: "
                "they are never slow"),
    BR_OPT_END,
};

const struct br_option join_keep_options[] = {
    BR_DURATION(
        struct join_keep, slow_threshold, "0s",
        "keep links to spans that last at least this long; 0s: the duration of spans is ignored"),
    BR_LIST(struct join_keep, span_names, struct join_keep_name, name_options,
            "names of spans that have a different slow_threshold"),
    BR_BOOL(struct join_keep, failed, true, "keep links to spans with status error"),
    BR_DURATION(struct join_keep, cpu_threshold, "0s",
                "keep links to spans whose samples have more CPU time than this; 0s: the CPU time "
                "of spans is ignored"),
    BR_DOUBLE(struct join_keep, sampling_percentage, 0, 0, 100,
              "percentage of traces whose links are kept; every instance selects the same traces"),
    BR_BOOL(struct join_keep, unknown, false, "keep links to spans that have not arrived"),
    BR_OPT_END,
};

int join_policy_init(struct join_policy *policy, const struct join_keep *keep)
{
    policy->keep = keep;
    if (!keep)
        return 0;
    policy->names = br_map_new(NAMES_MAX);
    bool ok = policy->names != NULL;
    const struct join_keep_name *names = keep->span_names.items;
    for (size_t i = 0; ok && i < keep->span_names.count; i++)
        ok = br_map_put(policy->names, names[i].name, strlen(names[i].name),
                        (void *)(uintptr_t)&names[i], NULL) == 0;
    return ok ? 0 : BR_ENOMEM;
}

void join_policy_start(struct join_policy *policy, const struct br_node *node)
{
    join_overrides_start(&policy->overrides, node, policy->keep != NULL);
}

void join_policy_release(struct join_policy *policy)
{
    join_overrides_stop(&policy->overrides);
    br_map_free(policy->names, NULL);
    *policy = (struct join_policy){0};
}

static bool policy_is_slow(const struct join_policy *policy, const struct join_found *span,
                           uint64_t duration)
{
    uint64_t threshold = policy->keep->slow_threshold;
    if (br_map_count(policy->names)) {
        const struct join_keep_name *own = br_map_get(policy->names, span->name, span->name_len);
        threshold = own ? own->slow_threshold : threshold;
    }
    return threshold && duration >= threshold;
}

enum join_verdict join_policy_of(const struct join_policy *policy, const struct join_found *span,
                                 const uint8_t *trace_id, const uint8_t *service,
                                 size_t service_len, uint64_t now_ms)
{
    const struct join_keep *keep = policy->keep;
    uint64_t duration = span && span->end_ns > span->start_ns ? span->end_ns - span->start_ns : 0;
    if (!keep || (trace_id && br_trace_sampled(trace_id, keep->sampling_percentage)))
        return JOIN_KEEPS;
    if (join_overrides_keep(&policy->overrides, now_ms, service, service_len, trace_id, duration))
        return JOIN_KEEPS;
    if (!span)
        return keep->unknown ? JOIN_KEEPS : JOIN_FOLDS;
    if ((keep->failed && span->status == BR_SPAN_STATUS_ERROR) ||
        policy_is_slow(policy, span, duration))
        return JOIN_KEEPS;
    return keep->cpu_threshold ? JOIN_FOLDS_UNLESS_CPU : JOIN_FOLDS;
}
