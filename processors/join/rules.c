/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/rules.h"

#include <string.h>

#include "base/mem.h"
#include "otlp/trace_id.h"

static struct join_rules *rules_of(struct br_tunable *t)
{
    return br_container_of(t, struct join_rules, tunable);
}

/* Takes out the rule `id`, and those that have ended. */
static void sweep(struct join_rules *rs, uint64_t id)
{
    uint64_t now = br_host_mono_ms(rs->node->host);
    for (size_t i = rs->n; i-- > 0;)
        if (rs->rules[i].id == id || rs->rules[i].until_ms <= now)
            rs->rules[i] = rs->rules[--rs->n];
}

static int apply(struct br_tunable *t, const struct br_rule *rule, struct br_err *err)
{
    struct join_rules *rs = rules_of(t);
    size_t len = rule->service ? strlen(rule->service) : 0;
    sweep(rs, rule->id);
    if (!rs->asked || !rule->keep || len > JOIN_RULE_SERVICE_MAX ||
        rule->until_ms <= br_host_mono_ms(rs->node->host))
        return 0;
    if (rs->n == BR_RULES_MAX)
        return br_err_set(err, BR_EFULL, "more than %d rules at a time", BR_RULES_MAX);
    struct join_rule *r = &rs->rules[rs->n++];
    *r = (struct join_rule){.id = rule->id,
                            .until_ms = rule->until_ms,
                            .sampling_percentage = rule->sampling_percentage,
                            .slow_threshold_ns = rule->slow_threshold_ns,
                            .service_len = (uint8_t)len};
    if (len)
        memcpy(r->service, rule->service, len);
    return 1;
}

static void withdraw(struct br_tunable *t, uint64_t id)
{
    sweep(rules_of(t), id);
}

static void list(const struct br_tunable *t, br_collected_fn *fn, void *arg)
{
    const struct join_rules *rs = br_container_of(t, struct join_rules, tunable);
    uint64_t now = br_host_mono_ms(rs->node->host);
    char service[JOIN_RULE_SERVICE_MAX + 1] = "";
    struct br_collected c = {.component = rs->node->id,
                             .service = service,
                             .target = "",
                             .type = "links",
                             .state = rs->asked ? "some" : "all"};
    fn(&c, arg);
    for (size_t i = 0; i < rs->n; i++) {
        const struct join_rule *r = &rs->rules[i];
        if (r->until_ms <= now)
            continue;
        memcpy(service, r->service, r->service_len);
        service[r->service_len] = '\0';
        c.rule = r->id;
        c.until_ms = r->until_ms;
        c.state = r->sampling_percentage >= 100 ? "all" : "some";
        fn(&c, arg);
    }
}

static const struct br_tunable_ops ops = {apply, withdraw, list};

void join_rules_start(struct join_rules *rs, const struct br_node *node, bool asked)
{
    rs->tunable.ops = &ops;
    rs->node = node;
    rs->asked = asked;
    br_tunable_register(&rs->tunable, node->host);
}

void join_rules_stop(struct join_rules *rs)
{
    br_tunable_unregister(&rs->tunable);
}

static bool keeps(const struct join_rule *r, const void *service, size_t service_len,
                  const uint8_t *trace_id, uint64_t duration_ns)
{
    if (r->service_len &&
        (r->service_len != service_len || memcmp(r->service, service, service_len) != 0))
        return false;
    if (r->slow_threshold_ns && duration_ns >= r->slow_threshold_ns)
        return true;
    return r->sampling_percentage >= 100 ||
           (trace_id && br_trace_sampled(trace_id, r->sampling_percentage));
}

bool join_rules_keep(const struct join_rules *rs, uint64_t now_ms, const void *service,
                     size_t service_len, const uint8_t *trace_id, uint64_t duration_ns)
{
    for (size_t i = 0; i < rs->n; i++)
        if (now_ms < rs->rules[i].until_ms &&
            keeps(&rs->rules[i], service, service_len, trace_id, duration_ns))
            return true;
    return false;
}
