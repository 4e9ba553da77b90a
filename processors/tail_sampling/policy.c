/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles policies, and decides about traces. */
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "processors/tail_sampling/tail_sampling.h"

#define DEFAULT_SALT "default-hash-seed"

__extension__ typedef unsigned __int128 policy_wide;

/* --- Compiling -------------------------------------------------------------------------------- */

/* Returns UINT64_MAX times `ratio`, rounded to 64 significant bits and then toward zero, as in the
 * Collector. A threshold that is rounded differently would change decisions. */
static uint64_t policy_threshold(double ratio)
{
    int exponent;
    if (!(ratio > 0))
        return 0;
    if (ratio >= 1)
        return UINT64_MAX;
    uint64_t mantissa = (uint64_t)ldexp(frexp(ratio, &exponent), 53);
    policy_wide product = (policy_wide)UINT64_MAX * mantissa;
    int shift = 53 - exponent; /* the result is `product` divided by 2^shift */
    int bits = 0;
    for (policy_wide rest = product; rest; rest >>= 1)
        bits++;
    int cut = bits - 64; /* low bits that rounding removes; a ratio has at least 53 bits */
    if (cut > 0) {
        policy_wide low = product & (((policy_wide)1 << cut) - 1),
                    half = (policy_wide)1 << (cut - 1);
        product >>= cut;
        if (low > half || (low == half && product & 1))
            product++;
        shift -= cut;
    }
    return shift < 128 ? (uint64_t)(product >> shift) : 0;
}

static int policy_compile_strings(struct tail_policies *policies, struct tail_policy *policy,
                                  struct br_err *err)
{
    const struct tail_string_attribute *settings = &policy->config->string_attribute;
    policy->key_len = strlen(settings->key);
    policy->inverts = settings->invert_match;
    if (!settings->enabled_regex_matching)
        return 0;
    policy->patterns =
        br_arena_calloc(&policies->arena, settings->values.count + 1, sizeof *policy->patterns);
    int rc = policy->patterns ? 0 : BR_ENOMEM;
    for (size_t i = 0; i < settings->values.count && !rc; i++) {
        char why[BR_REGEX_WHY_SIZE] = "";
        rc = br_regex_compile(&policies->regex, settings->values.items[i], &policy->patterns[i],
                              why);
        if (rc == BR_EINVAL)
            return br_err_set(err, rc, "%s", why);
    }
    return rc;
}

static void policy_compile_statuses(struct tail_policy *policy)
{
    static const char *const names[] = {"UNSET", "OK", "ERROR"}; /* by Status.StatusCode */
    const struct br_strings *codes = &policy->config->status_code.status_codes;
    for (size_t i = 0; i < codes->count; i++)
        for (unsigned k = 0; k < BR_COUNT(names); k++)
            if (strcmp(codes->items[i], names[k]) == 0)
                policy->statuses |= 1u << k;
}

static int policy_compile_conditions(struct tail_policies *policies, struct tail_policy *policy,
                                     struct br_err *err)
{
    const struct br_strings *texts = &policy->config->ottl_condition.span;
    int rc = 0;
    for (size_t i = 0; i < texts->count && !rc; i++)
        rc = br_conditions_add(&policy->conditions, texts->items[i], BR_TRACES, BR_CONDITION_SPAN,
                               &policies->arena, err);
    return rc ? rc : br_conditions_ready(&policy->conditions, &policies->time);
}

/* Compiles a policy that evaluates spans, and assigns it the next bit of struct tail_bits. */
static int policy_compile_leaf(struct tail_policies *policies, struct tail_policy *policy,
                               struct br_err *err)
{
    const struct tail_policy_config *config = policy->config;
    policy->bit = policies->n_leaves;
    policies->leaves[policies->n_leaves++] = policy;
    switch (policy->type) {
    case TAIL_STRING_ATTRIBUTE:
        return policy_compile_strings(policies, policy, err);
    case TAIL_NUMERIC_ATTRIBUTE:
        policy->key_len = strlen(config->numeric_attribute.key);
        policy->inverts = config->numeric_attribute.invert_match;
        return 0;
    case TAIL_BOOLEAN_ATTRIBUTE:
        policy->key_len = strlen(config->boolean_attribute.key);
        policy->inverts = config->boolean_attribute.invert_match;
        return 0;
    case TAIL_TRACE_STATE:
        policy->key_len = strlen(config->trace_state.key);
        return 0;
    case TAIL_STATUS_CODE:
        policy_compile_statuses(policy);
        return 0;
    case TAIL_OTTL_CONDITION:
        return policy_compile_conditions(policies, policy, err);
    default:
        return 0;
    }
}

static int policy_compile(struct tail_policies *policies, const struct tail_policy_config *config,
                          struct tail_policy *ret, struct br_err *err);

static int policy_compile_children(struct tail_policies *policies, struct tail_policy *policy,
                                   const struct tail_policy_config *configs, size_t count,
                                   struct br_err *err)
{
    policy->children = br_arena_calloc(&policies->arena, count + 1, sizeof *policy->children);
    int rc = policy->children ? 0 : BR_ENOMEM;
    for (; policy->n_children < count && !rc; policy->n_children++)
        rc = policy_compile(policies, &configs[policy->n_children],
                            &policy->children[policy->n_children], err);
    return rc;
}

/* Computes how many spans per second each sub-policy of a composite policy may sample. */
static void policy_share(struct tail_policies *policies, struct tail_policy *policy)
{
    const struct tail_composite *settings = &policy->config->composite;
    const struct tail_rate_allocation *rates = settings->rate_allocation.items;
    double total = (double)settings->max_total_spans_per_second;
    for (size_t i = 0; i < policy->n_children; i++) {
        struct tail_policy *child = &policy->children[i];
        int64_t percent = 0;
        for (size_t k = 0; k < settings->rate_allocation.count && child->config->name; k++)
            if (rates[k].policy && strcmp(rates[k].policy, child->config->name) == 0)
                percent = rates[k].percent;
        double share =
            percent > 0 ? (double)percent / 100 * total : total / (double)policy->n_children;
        child->share = share < 9e18 ? (int64_t)share : INT64_MAX;
        child->share_meter = policies->n_meters++;
    }
}

static int policy_compile(struct tail_policies *policies, const struct tail_policy_config *config,
                          struct tail_policy *ret, struct br_err *err)
{
    int rc = 0;
    *ret = (struct tail_policy){.config = config, .type = (enum tail_type)config->type};
    switch (ret->type) {
    case TAIL_AND:
        return policy_compile_children(policies, ret, config->all_of.policies.items,
                                       config->all_of.policies.count, err);
    case TAIL_DROP:
        return policy_compile_children(policies, ret, config->drop.policies.items,
                                       config->drop.policies.count, err);
    case TAIL_NOT:
        return policy_compile_children(policies, ret, config->none_of.policies.items, 1, err);
    case TAIL_COMPOSITE:
        rc = policy_compile_children(policies, ret, config->composite.policies.items,
                                     config->composite.policies.count, err);
        policy_share(policies, ret);
        return rc;
    case TAIL_RATE_LIMITING:
    case TAIL_BYTES_LIMITING:
        ret->meter = policies->n_meters++;
        return 0;
    case TAIL_PROBABILISTIC:
        ret->threshold = policy_threshold(config->probabilistic.sampling_percentage / 100);
        return 0;
    case TAIL_ALWAYS_SAMPLE:
    case TAIL_SPAN_COUNT:
    case TAIL_CPU_TIME:
    case TAIL_PROFILED:
        return 0;
    default:
        return policy_compile_leaf(policies, ret, err);
    }
}

int tail_policies_init(struct tail_policies *policies, const struct tail_config *config,
                       struct br_err *err)
{
    const struct tail_policy_config *configs = config->policies.items;
    *policies = (struct tail_policies){.count = 0};
    br_arena_init(&policies->arena, 0);
    policies->policies =
        br_arena_calloc(&policies->arena, config->policies.count + 1, sizeof *policies->policies);
    int rc = policies->policies ? 0 : BR_ENOMEM;
    /* A dropped trace is not sampled whatever other policies decide, so policies that drop traces
     * are evaluated first. */
    for (int drops = 1; drops >= 0; drops--)
        for (size_t i = 0; i < config->policies.count && !rc; i++)
            if ((configs[i].type == TAIL_DROP) == drops)
                rc = policy_compile(policies, &configs[i], &policies->policies[policies->count++],
                                    err);
    if (!rc)
        rc = br_regex_ready(&policies->regex);
    if (!rc)
        br_regex_bound(&policies->regex, &policies->time);
    return rc;
}

void tail_policies_release(struct tail_policies *policies)
{
    for (unsigned i = 0; i < policies->n_leaves; i++) {
        struct tail_policy *leaf = policies->leaves[i];
        for (size_t k = 0; leaf->patterns && k < leaf->config->string_attribute.values.count; k++)
            pcre2_code_free(leaf->patterns[k]);
        br_conditions_release(&leaf->conditions);
    }
    br_regex_release(&policies->regex);
    br_arena_release(&policies->arena);
    policies->n_leaves = 0;
}

/* --- Deciding --------------------------------------------------------------------------------- */

/* The data for one decision. */
struct deciding {
    const struct tail_facts *facts;
    const uint8_t *id;
    struct tail_meter *meters;
    struct tail_now now;
};

/* Returns the 64-bit FNV-1a hash of the salt and the id. */
static uint64_t policy_hash(const char *salt, const uint8_t id[16])
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (const char *p = salt && *salt ? salt : DEFAULT_SALT; *p; p++)
        h = (h ^ (uint8_t)*p) * UINT64_C(1099511628211);
    for (int i = 0; i < 16; i++)
        h = (h ^ id[i]) * UINT64_C(1099511628211);
    return h;
}

/* Takes `count` tokens from the policy's token bucket. If the bucket contains fewer tokens, takes
 * no tokens and returns false. The bucket works like golang.org/x/time/rate, with a clock in
 * milliseconds. */
static bool policy_take(const struct deciding *deciding, const struct tail_policy *policy,
                        uint64_t count, int64_t per_second, int64_t burst)
{
    struct tail_meter *meter = &deciding->meters[policy->meter];
    double most = (double)(burst ? burst : 2 * per_second), tokens = most;
    uint64_t now_ms = deciding->now.mono_ms;
    if (meter->started) {
        uint64_t passed_ms = now_ms > meter->then_ms ? now_ms - meter->then_ms : 0;
        tokens = meter->tokens + (double)passed_ms / 1000 * (double)per_second;
        tokens = tokens < most ? tokens : most;
    }
    if ((double)count > tokens)
        return false;
    meter->started = true;
    meter->tokens = tokens - (double)count;
    meter->then_ms = now_ms;
    return true;
}

static enum tail_decision policy_decide(const struct deciding *deciding,
                                        const struct tail_policy *policy);

/* Returns true if all children of the policy sample the trace. */
static bool policy_all_sample(const struct deciding *deciding, const struct tail_policy *policy)
{
    for (size_t i = 0; i < policy->n_children; i++)
        if (policy_decide(deciding, &policy->children[i]) != TAIL_SAMPLED)
            return false;
    return true;
}

/* Returns the decision of a composite policy. The first child that samples the trace decides: the
 * trace is sampled unless its spans would exceed that child's share of the spans per second. */
static bool policy_composite(const struct deciding *deciding, const struct tail_policy *policy)
{
    uint64_t n_spans = deciding->facts->n_spans;
    for (size_t i = 0; i < policy->n_children; i++) {
        const struct tail_policy *child = &policy->children[i];
        struct tail_meter *meter = &deciding->meters[child->share_meter];
        if (policy_decide(deciding, child) != TAIL_SAMPLED)
            continue;
        if (meter->second != deciding->now.unix_s)
            meter->sampled = 0;
        meter->second = deciding->now.unix_s;
        int64_t after = meter->sampled + (int64_t)n_spans;
        if (after > child->share || after > policy->config->composite.max_total_spans_per_second)
            return false;
        meter->sampled = after;
        return true;
    }
    return false;
}

static bool policy_counts(const struct deciding *deciding, const struct tail_policy *policy)
{
    const struct tail_facts *facts = deciding->facts;
    const struct tail_policy_config *config = policy->config;
    int64_t n_spans = (int64_t)facts->n_spans;
    switch (policy->type) {
    case TAIL_SPAN_COUNT:
        return n_spans >= config->span_count.min_spans &&
               (!config->span_count.max_spans || n_spans <= config->span_count.max_spans);
    case TAIL_CPU_TIME:
        return (facts->cpu_ns ? facts->cpu_ns : facts->period_ns) >
               (uint64_t)config->cpu_time.threshold_ms * 1000000;
    case TAIL_PROFILED:
        return facts->n_samples >= (uint64_t)config->profiled.min_samples;
    case TAIL_RATE_LIMITING:
        return policy_take(deciding, policy, facts->n_spans, config->rate_limiting.spans_per_second,
                           config->rate_limiting.burst_capacity);
    default:
        return policy_take(deciding, policy, facts->bytes, config->bytes_limiting.bytes_per_second,
                           config->bytes_limiting.burst_capacity);
    }
}

static enum tail_decision policy_decide(const struct deciding *deciding,
                                        const struct tail_policy *policy)
{
    bool samples;
    switch (policy->type) {
    case TAIL_ALWAYS_SAMPLE:
        return TAIL_SAMPLED;
    case TAIL_PROBABILISTIC:
        samples =
            policy_hash(policy->config->probabilistic.hash_salt, deciding->id) <= policy->threshold;
        break;
    case TAIL_AND:
        samples = policy_all_sample(deciding, policy);
        break;
    case TAIL_NOT:
        samples = policy_decide(deciding, &policy->children[0]) != TAIL_SAMPLED;
        break;
    case TAIL_DROP:
        return policy_all_sample(deciding, policy) ? TAIL_DROPPED : TAIL_NOT_SAMPLED;
    case TAIL_COMPOSITE:
        samples = policy_composite(deciding, policy);
        break;
    case TAIL_RATE_LIMITING:
    case TAIL_BYTES_LIMITING:
    case TAIL_SPAN_COUNT:
    case TAIL_CPU_TIME:
    case TAIL_PROFILED:
        samples = policy_counts(deciding, policy);
        break;
    default:
        samples = tail_bits_get(&deciding->facts->matched, policy->bit) != policy->inverts;
        break;
    }
    return samples ? TAIL_SAMPLED : TAIL_NOT_SAMPLED;
}

enum tail_decision tail_policies_decide(const struct tail_policies *policies,
                                        const struct tail_config *config,
                                        const struct tail_facts *facts, const uint8_t id[16],
                                        struct tail_meter *meters, struct tail_now now,
                                        int8_t *ret_each)
{
    const struct deciding deciding = {facts, id, meters, now};
    enum tail_decision result = TAIL_NOT_SAMPLED;
    for (size_t i = 0; i < policies->count; i++)
        ret_each[i] = -1;
    for (size_t i = 0; i < policies->count; i++) {
        enum tail_decision decision = policy_decide(&deciding, &policies->policies[i]);
        ret_each[i] = (int8_t)decision;
        if (decision == TAIL_NOT_SAMPLED)
            continue;
        result = decision;
        if (decision == TAIL_DROPPED || config->sample_on_first_match)
            break;
    }
    return result;
}
