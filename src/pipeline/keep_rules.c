/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/keep_rules.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "otlp/trace_id.h"
#include "pipeline/shared.h"

struct br_keep_rules {
    _Atomic uint64_t version;
    pthread_mutex_t lock; /* of what follows */
    uint64_t last_id;
    size_t n;
    struct br_keep_rule rules[BR_KEEP_RULES_MAX];
};

static void *make(const void *arg)
{
    struct br_keep_rules *r = br_calloc(1, sizeof *r);
    (void)arg;
    if (r)
        pthread_mutex_init(&r->lock, NULL);
    return r;
}

static void release(void *thing)
{
    struct br_keep_rules *r = thing;
    pthread_mutex_destroy(&r->lock);
    br_free(r);
}

struct br_keep_rules *br_keep_rules_get(struct br_host *h)
{
    return br_shared_get(h, "keep rules", make, NULL);
}

void br_keep_rules_put(struct br_host *h, struct br_keep_rules *r)
{
    br_shared_put(h, r, release);
}

static void drop(struct br_keep_rules *r, size_t i)
{
    r->rules[i] = r->rules[--r->n];
    atomic_fetch_add_explicit(&r->version, 1, memory_order_release);
}

uint64_t br_keep_rules_add(struct br_keep_rules *r, const struct br_keep_rule *rule,
                           uint64_t now_ms)
{
    uint64_t id = 0;
    pthread_mutex_lock(&r->lock);
    for (size_t i = r->n; i-- > 0;)
        if (r->rules[i].until_ms <= now_ms)
            drop(r, i);
    if (r->n < BR_KEEP_RULES_MAX) {
        id = ++r->last_id;
        r->rules[r->n] = *rule;
        r->rules[r->n++].id = id;
        atomic_fetch_add_explicit(&r->version, 1, memory_order_release);
    }
    pthread_mutex_unlock(&r->lock);
    return id;
}

bool br_keep_rules_remove(struct br_keep_rules *r, uint64_t id)
{
    pthread_mutex_lock(&r->lock);
    size_t i = 0;
    while (i < r->n && r->rules[i].id != id)
        i++;
    bool found = i < r->n;
    if (found)
        drop(r, i);
    pthread_mutex_unlock(&r->lock);
    return found;
}

uint64_t br_keep_rules_version(const struct br_keep_rules *r)
{
    return atomic_load_explicit(&r->version, memory_order_acquire);
}

size_t br_keep_rules_copy(struct br_keep_rules *r, uint64_t now_ms, struct br_keep_rule *out,
                          uint64_t *ret_version)
{
    size_t n = 0;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->n; i++)
        if (now_ms < r->rules[i].until_ms)
            out[n++] = r->rules[i];
    *ret_version = br_keep_rules_version(r);
    pthread_mutex_unlock(&r->lock);
    return n;
}

bool br_keep_rule_keeps(const struct br_keep_rule *rule, uint64_t now_ms, const void *service,
                        size_t service_len, const uint8_t *trace_id, uint64_t duration_ns)
{
    if (now_ms >= rule->until_ms)
        return false;
    if (rule->service_len &&
        (rule->service_len != service_len || memcmp(rule->service, service, service_len) != 0))
        return false;
    if (rule->slow_threshold_ns && duration_ns >= rule->slow_threshold_ns)
        return true;
    return rule->sampling_percentage >= 100 ||
           (trace_id && br_trace_sampled(trace_id, rule->sampling_percentage));
}
