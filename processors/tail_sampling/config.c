/* SPDX-License-Identifier: Apache-2.0 */
/* Option tables and checks of the processor tail_sampling. */
#include <math.h>
#include <string.h>

#include "processors/tail_sampling/tail_sampling.h"

/* names of the policy types, in the order of enum tail_type */
static const char *const types[] = {
    "always_sample",
    "latency",
    "numeric_attribute",
    "probabilistic",
    "status_code",
    "string_attribute",
    "rate_limiting",
    "bytes_limiting",
    "span_count",
    "trace_state",
    "boolean_attribute",
    "ottl_condition",
    "trace_flags",
    "cpu_time",
    "profiled",
    "and",
    "not",
    "drop",
    "composite",
    NULL,
};

/* --- Options of the policies ------------------------------------------------------------------ */

#define KEY(type, text)                                                                            \
    BR_STRING(type, key, NULL, "key of the attribute, of a span or its resource; " text)

static const struct br_option latency_options[] = {
    BR_INT(struct tail_latency, threshold_ms, 0, 0, 0,
           "the duration of the trace must be longer, in milliseconds"),
    BR_INT(struct tail_latency, upper_threshold_ms, 0, 0, 0,
           "the duration must not be longer, in milliseconds; 0: no limit"),
    BR_OPT_END,
};

static const struct br_option numeric_options[] = {
    KEY(struct tail_numeric_attribute, "values that are not integers count as 0"),
    BR_INT(struct tail_numeric_attribute, min_value, 0, 0, 0, "smallest value; 0: no limit"),
    BR_INT(struct tail_numeric_attribute, max_value, 0, 0, 0, "largest value; 0: no limit"),
    BR_BOOL(struct tail_numeric_attribute, invert_match, false,
            "sample traces without such an attribute"),
    BR_OPT_END,
};

static const struct br_option probabilistic_options[] = {
    BR_STRING(struct tail_probabilistic, hash_salt, NULL,
              "text that is hashed with the trace id; layers with different percentages need "
              "different salts; default: default-hash-seed"),
    BR_DOUBLE(struct tail_probabilistic, sampling_percentage, 0, 0, 0,
              "percentage of the traces; 100 or more: all"),
    BR_OPT_END,
};

static const struct br_option status_options[] = {
    BR_STRINGS(struct tail_status_code, status_codes,
               "OK, ERROR or UNSET; one span with one of these codes is enough"),
    BR_OPT_END,
};

static const struct br_option string_options[] = {
    KEY(struct tail_string_attribute, "values that are not strings count as empty"),
    BR_STRINGS(struct tail_string_attribute, values,
               "values, or regular expressions that are searched for in the value"),
    BR_BOOL(struct tail_string_attribute, enabled_regex_matching, false,
            "values are regular expressions"),
    BR_IGNORED("cache_max_size", "results of regular expressions are not cached"),
    BR_BOOL(struct tail_string_attribute, invert_match, false,
            "sample traces without such an attribute"),
    BR_OPT_END,
};

static const struct br_option rate_options[] = {
    BR_INT(struct tail_rate_limiting, spans_per_second, 0, 0, 9007199254740992.0,
           "spans per second that are sampled, by a token bucket"),
    BR_INT(struct tail_rate_limiting, burst_capacity, 0, 0, 9007199254740992.0,
           "size of the bucket, and largest number of spans of a trace; 0: twice the rate"),
    BR_OPT_END,
};

static const struct br_option bytes_options[] = {
    BR_INT(struct tail_bytes_limiting, bytes_per_second, 0, 0, 9007199254740992.0,
           "bytes per second that are sampled, by a token bucket"),
    BR_INT(struct tail_bytes_limiting, burst_capacity, 0, 0, 9007199254740992.0,
           "size of the bucket, and largest size of a trace; 0: twice the rate"),
    BR_OPT_END,
};

static const struct br_option count_options[] = {
    BR_INT(struct tail_span_count, min_spans, 0, 0, 0, "smallest number of spans"),
    BR_INT(struct tail_span_count, max_spans, 0, 0, 0, "largest number of spans; 0: no limit"),
    BR_OPT_END,
};

static const struct br_option state_options[] = {
    BR_STRING(struct tail_trace_state, key, NULL, "key in the tracestate of a span"),
    BR_STRINGS(struct tail_trace_state, values, "values of the key"),
    BR_OPT_END,
};

static const struct br_option boolean_options[] = {
    KEY(struct tail_boolean_attribute, "values that are not booleans count as false"),
    BR_BOOL(struct tail_boolean_attribute, value, false, "value of the attribute"),
    BR_BOOL(struct tail_boolean_attribute, invert_match, false,
            "sample traces without such an attribute"),
    BR_OPT_END,
};

static const struct br_option condition_options[] = {
    BR_STRINGS(struct tail_ottl_condition, span,
               "conditions in the Collector's expression language, as in the filter processor; "
               "one span for which one of them is true is enough"),
    BR_VALUE(struct tail_ottl_condition, spanevent, "conditions on span events; not supported"),
    BR_IGNORED("error_mode", "conditions are checked at startup and cannot fail later"),
    BR_OPT_END,
};

static const struct br_option cpu_options[] = {
    BR_INT(struct tail_cpu_time, threshold_ms, 0, 0, 9e12,
           "the samples of the trace must have measured more CPU time, in milliseconds"),
    BR_OPT_END,
};

static const struct br_option profiled_options[] = {
    BR_INT(struct tail_profiled, min_samples, 1, 1, 9007199254740992.0,
           "smallest number of samples of the trace"),
    BR_OPT_END,
};

static const struct br_option allocation_options[] = {
    BR_STRING(struct tail_rate_allocation, policy, NULL, "name of the sub-policy"),
    BR_INT(struct tail_rate_allocation, percent, 0, 0, 0,
           "percentage of max_total_spans_per_second; 0: an equal share"),
    BR_OPT_END,
};

#define POLICY(field, table, text) BR_STRUCT(struct tail_policy_config, field, table, text)
#define NESTED(key, field, table, text)                                                            \
    {                                                                                              \
        .name = (key), .kind = BR_OPT_STRUCT,                                                      \
        .offset = offsetof(struct tail_policy_config, field), .sub = (table), .help = (text)       \
    }
/* option rows for policies at the top level as well as policies inside other policies */
#define SHARED_ROWS                                                                                \
    BR_STRING(struct tail_policy_config, name, NULL, "name of the policy, for metrics"),           \
        {.name = "type",                                                                           \
         .kind = BR_OPT_ENUM,                                                                      \
         .offset = BR_OPT_FIELD(struct tail_policy_config, type, int),                             \
         .choices = types,                                                                         \
         .required = true,                                                                         \
         .def.string = "always_sample",                                                            \
         .help = "type of the policy; the section of the same name has its settings"},             \
        POLICY(latency, latency_options,                                                           \
               "time from the earliest start to the latest end of the spans"),                     \
        POLICY(numeric_attribute, numeric_options, "an integer attribute in a range"),             \
        POLICY(probabilistic, probabilistic_options, "a percentage of the traces, by trace id"),   \
        POLICY(status_code, status_options, "a span with one of these status codes"),              \
        POLICY(string_attribute, string_options, "a string attribute with one of these values"),   \
        POLICY(rate_limiting, rate_options, "a limited number of spans per second"),               \
        POLICY(bytes_limiting, bytes_options, "a limited number of bytes per second"),             \
        POLICY(span_count, count_options, "the number of spans"),                                  \
        POLICY(trace_state, state_options, "a span whose tracestate has one of these values"),     \
        POLICY(boolean_attribute, boolean_options, "a boolean attribute with this value"),         \
        POLICY(ottl_condition, condition_options, "a span for which a condition is true"),         \
        POLICY(cpu_time, cpu_options, "CPU time that the samples of the trace measured"),          \
        POLICY(profiled, profiled_options, "traces that have samples")

static const struct br_option not_sub_options[] = {SHARED_ROWS, BR_OPT_END};

static const struct br_option not_options[] = {
    BR_VALUE(struct tail_none_of, not_sub_policy, "a policy, whose decision is inverted"),
    BR_OPT_END,
};

static const struct br_option and_sub_options[] = {
    SHARED_ROWS,
    NESTED("not", none_of, not_options, "the opposite of another policy"),
    BR_OPT_END,
};

static const struct br_option and_options[] = {
    BR_VALUE(struct tail_all_of, and_sub_policy, "list of policies that must all sample the trace"),
    BR_OPT_END,
};

static const struct br_option drop_options[] = {
    BR_VALUE(struct tail_drop, drop_sub_policy,
             "list of policies that must all sample the trace for it to be dropped"),
    BR_OPT_END,
};

static const struct br_option composite_sub_options[] = {
    SHARED_ROWS,
    NESTED("and", all_of, and_options, "several policies at once"),
    BR_OPT_END,
};

static const struct br_option composite_options[] = {
    BR_INT(struct tail_composite, max_total_spans_per_second, 0, 0, 9007199254740992.0,
           "largest number of spans that each sub-policy samples in a second"),
    BR_IGNORED("policy_order",
               "as in the Collector, the sub-policies are evaluated in the order of "
               "composite_sub_policy"),
    BR_VALUE(struct tail_composite, composite_sub_policy,
             "list of policies; the first that samples the trace decides, within its share"),
    BR_LIST(struct tail_composite, rate_allocation, struct tail_rate_allocation, allocation_options,
            "shares of the sub-policies; default: equal shares"),
    BR_OPT_END,
};

static const struct br_option policy_options[] = {
    SHARED_ROWS,
    NESTED("and", all_of, and_options, "several policies at once"),
    NESTED("not", none_of, not_options, "the opposite of another policy"),
    NESTED("drop", drop, drop_options, "traces that are dropped whatever other policies decide"),
    NESTED("composite", composite, composite_options, "policies with shares of a rate"),
    BR_OPT_END,
};

/* --- Options of the processor ----------------------------------------------------------------- */

static const char *const strategies[] = {"trace-complete", "span-ingest", NULL};

static const struct br_option cache_options[] = {
    BR_INT(struct tail_decision_cache, sampled_cache_size, 0, 0, 1 << 24,
           "largest number of sampled traces that are remembered; 0: num_traces"),
    BR_INT(struct tail_decision_cache, non_sampled_cache_size, 0, 0, 1 << 24,
           "largest number of other decided traces that are remembered; 0: num_traces"),
    BR_OPT_END,
};

static const struct br_option label_options[] = {
    BR_STRINGS(struct tail_labels, span_id,
               "names of sample attributes that contain a span id; default: span_id, profile_id, "
               "process.context.label.span_id, process.context.label.profile_id"),
    BR_STRINGS(struct tail_labels, trace_id,
               "names of sample attributes that contain a trace id; default: trace_id, "
               "process.context.label.trace_id"),
    BR_OPT_END,
};

const struct br_option tail_options[] = {
    BR_DURATION(struct tail_config, decision_wait, "30s",
                "time from the first span of a trace to the decision"),
    BR_DURATION(struct tail_config, decision_wait_after_root_received, "0s",
                "time from the root span to the decision, if that is earlier; 0s: the root has no "
                "effect"),
    BR_INT(struct tail_config, num_traces, 50000, 1, 1 << 24,
           "largest number of traces that wait for a decision; further traces cause the decision "
           "about the trace that is due first"),
    BR_BOOL(struct tail_config, block_on_overflow, false,
            "if num_traces traces wait, reject requests with further traces as retryable"),
    BR_INT(struct tail_config, hold_max_bytes, 64 << 20, 0, 1099511627776.0,
           "largest number of bytes of held requests, divided among the workers; further requests "
           "cause the decisions about the traces of the oldest request"),
    BR_LIST(struct tail_config, policies, struct tail_policy_config, policy_options,
            "policies; a trace is sampled if a policy samples it and no `drop` policy matches"),
    BR_STRUCT(struct tail_config, decision_cache, cache_options,
              "decisions that are remembered for spans and samples that arrive later"),
    BR_BOOL(struct tail_config, sample_on_first_match, false,
            "do not evaluate the policies after the first that samples the trace"),
    BR_BOOL(struct tail_config, drop_pending_traces_on_shutdown, false,
            "drop the spans of traces that are not decided at the shutdown"),
    BR_INT(struct tail_config, maximum_trace_size_bytes, 0, 0, 9007199254740992.0,
           "a larger trace is not sampled; 0: no limit"),
    BR_ENUM(struct tail_config, sampling_strategy, "trace-complete", strategies,
            "trace-complete: policies decide about all spans of a trace; span-ingest is not "
            "supported"),
    BR_DURATION(struct tail_config, match_time, "20ms",
                "CPU time for matching all patterns against a request, in addition to 20 ns per "
                "byte; when it is used up, no pattern matches"),
    BR_STRUCT(struct tail_config, labels, label_options,
              "names of the attributes that contain the ids of samples without a link"),
    BR_VALUE(struct tail_config, tail_storage, "extension that stores spans; not supported"),
    BR_IGNORED("expected_new_traces_per_sec", "tables grow as needed"),
    BR_IGNORED("num_shards", "the workers share one table of traces"),
    BR_OPT_END,
};

/* --- Checks ----------------------------------------------------------------------------------- */

/* Position of a policy in the config, for the checks and their error messages. */
struct check {
    const struct br_yaml *node;
    const char *path;
    struct br_arena *arena;
    struct br_errs *errs;
    unsigned n_leaves; /* number of policies found so far that evaluate spans */
};

/* Returns the node and the path of the section of this policy's type. */
static const struct br_yaml *tail_check_section(const struct check *check, const char *section,
                                                const char **ret_path)
{
    const struct br_yaml *at = br_yaml_get(check->node, section);
    *ret_path = br_arena_printf(check->arena, "%s::%s", check->path, section);
    return at ? at : check->node;
}

static int tail_check_error(const struct check *check, const char *section, const char *key,
                            const char *text)
{
    const char *path;
    const struct br_yaml *at = tail_check_section(check, section, &path);
    return path ? br_errs_add_key(check->errs, at, path, key, "%s", text) : BR_ENOMEM;
}

static int tail_check_key(const struct check *check, const char *section, const char *key)
{
    return key && *key
               ? 0
               : tail_check_error(check, section, "key", "is required and must not be empty");
}

static int tail_check_statuses(const struct check *check, const struct br_strings *codes)
{
    if (!codes->count)
        return tail_check_error(check, "status_code", "status_codes",
                                "must contain at least one of OK, ERROR, UNSET");
    for (size_t i = 0; i < codes->count; i++)
        if (strcmp(codes->items[i], "OK") != 0 && strcmp(codes->items[i], "ERROR") != 0 &&
            strcmp(codes->items[i], "UNSET") != 0)
            return tail_check_error(check, "status_code", "status_codes",
                                    "must be OK, ERROR or UNSET, in capitals");
    return 0;
}

static int tail_check_patterns(const struct check *check,
                               const struct tail_string_attribute *settings)
{
    struct br_regex regex = {0};
    int rc = tail_check_key(check, "string_attribute", settings->key);
    for (size_t i = 0; settings->enabled_regex_matching && i < settings->values.count && !rc; i++) {
        char why[BR_REGEX_WHY_SIZE] = "";
        pcre2_code *pattern = NULL;
        rc = br_regex_compile(&regex, settings->values.items[i], &pattern, why);
        pcre2_code_free(pattern);
        if (rc == BR_EINVAL)
            rc = tail_check_error(check, "string_attribute", "values", why);
    }
    br_regex_release(&regex);
    return rc;
}

static int tail_check_conditions(const struct check *check,
                                 const struct tail_ottl_condition *settings)
{
    struct br_conditions conditions = {.count = 0};
    const char *path;
    const struct br_yaml *at = tail_check_section(check, "ottl_condition", &path);
    int rc = path ? 0 : BR_ENOMEM;
    if (!rc && settings->spanevent && settings->spanevent->type != BR_YAML_NULL)
        rc = br_errs_lack(check->errs, settings->spanevent, path,
                          "spanevent: conditions on events of spans are not supported; only "
                          "conditions on spans are");
    else if (!rc && !settings->span.count)
        rc = br_errs_add_key(check->errs, at, path, "span", "must contain at least one condition");
    for (size_t i = 0; i < settings->span.count && !rc; i++) {
        struct br_err err = {0};
        rc = br_conditions_add(&conditions, settings->span.items[i], BR_TRACES, BR_CONDITION_SPAN,
                               check->arena, &err);
        if (rc == BR_EINVAL)
            rc = br_errs_add_key(check->errs, at, path, "span", "%s", err.text);
        else if (rc == BR_EUNSUPPORTED)
            rc = br_errs_lack(check->errs, at, path, "span: %s", err.text);
    }
    br_conditions_release(&conditions);
    return rc;
}

static int tail_check_numbers(const struct check *check, const struct tail_policy_config *policy)
{
    switch ((enum tail_type)policy->type) {
    case TAIL_NUMERIC_ATTRIBUTE:
        if (!policy->numeric_attribute.min_value && !policy->numeric_attribute.max_value)
            return tail_check_error(check, "numeric_attribute", "min_value",
                                    "min_value or max_value must be set, and not 0");
        return tail_check_key(check, "numeric_attribute", policy->numeric_attribute.key);
    case TAIL_PROBABILISTIC:
        return isfinite(policy->probabilistic.sampling_percentage)
                   ? 0
                   : tail_check_error(check, "probabilistic", "sampling_percentage",
                                      "must be a number");
    default:
        return 0;
    }
}

static bool tail_reads_spans(enum tail_type type)
{
    switch (type) {
    case TAIL_LATENCY:
    case TAIL_NUMERIC_ATTRIBUTE:
    case TAIL_STATUS_CODE:
    case TAIL_STRING_ATTRIBUTE:
    case TAIL_TRACE_STATE:
    case TAIL_BOOLEAN_ATTRIBUTE:
    case TAIL_OTTL_CONDITION:
    case TAIL_TRACE_FLAGS:
        return true;
    default:
        return false;
    }
}

static int tail_check_leaf(struct check *check, const struct tail_policy_config *policy)
{
    check->n_leaves += tail_reads_spans((enum tail_type)policy->type);
    if (check->n_leaves == TAIL_LEAVES_MAX + 1)
        return br_errs_add(check->errs, check->node, check->path,
                           "at most %u policies may read attributes, status codes, times, "
                           "conditions, or the tracestate of spans",
                           TAIL_LEAVES_MAX);
    switch ((enum tail_type)policy->type) {
    case TAIL_STATUS_CODE:
        return tail_check_statuses(check, &policy->status_code.status_codes);
    case TAIL_STRING_ATTRIBUTE:
        return tail_check_patterns(check, &policy->string_attribute);
    case TAIL_BOOLEAN_ATTRIBUTE:
        return tail_check_key(check, "boolean_attribute", policy->boolean_attribute.key);
    case TAIL_TRACE_STATE:
        return tail_check_key(check, "trace_state", policy->trace_state.key);
    case TAIL_OTTL_CONDITION:
        return tail_check_conditions(check, &policy->ottl_condition);
    default:
        return tail_check_numbers(check, policy);
    }
}

/* Bits for the composite types that may occur in a list of policies. The simple types may always
 * occur. */
enum { ALLOWS_AND = 1, ALLOWS_NOT = 2, ALLOWS_ALL = 4 };

static bool tail_is_allowed(enum tail_type type, unsigned allowed)
{
    if (type < TAIL_AND || allowed & ALLOWS_ALL)
        return true;
    return (type == TAIL_AND && allowed & ALLOWS_AND) || (type == TAIL_NOT && allowed & ALLOWS_NOT);
}

static int tail_check_policy(struct check *check, struct tail_policy_config *policy,
                             unsigned allowed);

/* A list of policies inside a policy, such as an `and` policy. */
struct sub_list {
    const char *section, *key;
    const struct br_yaml *value; /* value of the key; NULL: the key is absent */
    const struct br_option *table;
    unsigned allowed;
    bool single; /* true if the value is a single policy instead of a list */
};

/* Reads and checks a policy of the list. */
static int tail_check_sub(struct check *check, const struct sub_list *list,
                          struct tail_policy_config *ret)
{
    if (!check->path)
        return BR_ENOMEM;
    int rc = br_options_read(list->table, check->node, check->path, ret, check->arena, check->errs);
    return rc ? rc : tail_check_policy(check, ret, list->allowed);
}

/* Reads and checks the policies inside a policy, and stores them in `ret`. */
static int tail_check_list(struct check *check, const struct sub_list *list, struct br_structs *ret)
{
    const struct check outer = *check;
    const char *path;
    const struct br_yaml *at = tail_check_section(check, list->section, &path);
    enum br_yaml_type type = list->single ? BR_YAML_MAP : BR_YAML_SEQ;
    int rc = 0;
    if (!path)
        return BR_ENOMEM;
    if (!list->value || list->value->type != type || (!list->single && !list->value->count))
        return br_errs_add_key(check->errs, at, path, list->key, "must %s",
                               list->single ? "be a policy"
                                            : "be a list of policies, and not empty");
    size_t count = list->single ? 1 : list->value->count;
    struct tail_policy_config *policies = br_arena_calloc(check->arena, count, sizeof *policies);
    if (!policies)
        return BR_ENOMEM;
    for (size_t i = 0; i < count && rc != BR_ENOMEM; i++) {
        check->node = list->single ? list->value : list->value->items[i];
        check->path = list->single
                          ? br_arena_printf(check->arena, "%s::%s", path, list->key)
                          : br_arena_printf(check->arena, "%s::%s[%zu]", path, list->key, i);
        int one = tail_check_sub(check, list, &policies[i]);
        rc = one ? one : rc;
    }
    check->node = outer.node;
    check->path = outer.path;
    *ret = (struct br_structs){policies, count};
    return rc;
}

static int tail_check_policy(struct check *check, struct tail_policy_config *policy,
                             unsigned allowed)
{
    if (!tail_is_allowed((enum tail_type)policy->type, allowed))
        return br_errs_add_key(check->errs, check->node, check->path, "type",
                               "a policy of the type %s is not possible here", types[policy->type]);
    switch ((enum tail_type)policy->type) {
    case TAIL_AND:
        return tail_check_list(check,
                               &(struct sub_list){"and", "and_sub_policy",
                                                  policy->all_of.and_sub_policy, and_sub_options,
                                                  ALLOWS_NOT, false},
                               &policy->all_of.policies);
    case TAIL_NOT:
        return tail_check_list(check,
                               &(struct sub_list){"not", "not_sub_policy",
                                                  policy->none_of.not_sub_policy, not_sub_options,
                                                  0, true},
                               &policy->none_of.policies);
    case TAIL_DROP:
        return tail_check_list(check,
                               &(struct sub_list){"drop", "drop_sub_policy",
                                                  policy->drop.drop_sub_policy, and_sub_options,
                                                  ALLOWS_NOT, false},
                               &policy->drop.policies);
    case TAIL_COMPOSITE:
        return tail_check_list(check,
                               &(struct sub_list){"composite", "composite_sub_policy",
                                                  policy->composite.composite_sub_policy,
                                                  composite_sub_options, ALLOWS_AND, false},
                               &policy->composite.policies);
    default:
        return tail_check_leaf(check, policy);
    }
}

static int tail_check_names(const struct tail_config *config, const struct br_yaml *list,
                            const char *path, struct br_arena *arena, struct br_errs *errs)
{
    const struct tail_policy_config *policies = config->policies.items;
    for (size_t i = 0; i < config->policies.count; i++) {
        const char *name = policies[i].name;
        bool seq = list && list->type == BR_YAML_SEQ && i < list->count;
        const struct br_yaml *node = seq ? list->items[i] : list;
        const char *at = br_arena_printf(arena, "%s::policies[%zu]", path, i);
        if (!at)
            return BR_ENOMEM;
        if (!name || !*name)
            return br_errs_add_key(errs, node, at, "name", "is required and must not be empty");
        for (size_t k = 0; k < i; k++)
            if (strcmp(policies[k].name, name) == 0)
                return br_errs_add_key(errs, node, at, "name",
                                       "\"%s\" is the name of another policy", name);
    }
    return 0;
}

int tail_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
               struct br_errs *errs)
{
    static const char *span_ids[] = {"span_id", "profile_id", "process.context.label.span_id",
                                     "process.context.label.profile_id"};
    static const char *trace_ids[] = {"trace_id", "process.context.label.trace_id"};
    struct tail_config *settings = config;
    if (!settings->labels.span_id.count)
        settings->labels.span_id =
            (struct br_strings){span_ids, sizeof span_ids / sizeof *span_ids};
    if (!settings->labels.trace_id.count)
        settings->labels.trace_id =
            (struct br_strings){trace_ids, sizeof trace_ids / sizeof *trace_ids};
    if (settings->sampling_strategy)
        return br_errs_lack(errs, br_yaml_get(node, "sampling_strategy"), path,
                            "sampling_strategy: span-ingest is not supported; only trace-complete "
                            "is");
    if (settings->tail_storage && settings->tail_storage->type != BR_YAML_NULL)
        return br_errs_lack(errs, settings->tail_storage, path,
                            "tail_storage: spans that wait are kept in memory only");
    if (!settings->policies.count)
        return br_errs_add_key(errs, node, path, "policies", "must contain at least one policy");
    if (settings->policies.count > TAIL_POLICIES_MAX)
        return br_errs_add_key(errs, node, path, "policies", "at most %u policies, got %zu",
                               TAIL_POLICIES_MAX, settings->policies.count);
    int rc = tail_check_names(settings, br_yaml_get(node, "policies"), path, arena, errs);
    if (rc == BR_ENOMEM)
        return rc;
    const struct br_yaml *list = br_yaml_get(node, "policies");
    struct check check = {.arena = arena, .errs = errs};
    for (size_t i = 0; i < settings->policies.count && rc != BR_ENOMEM; i++) {
        check.node = list && list->type == BR_YAML_SEQ && i < list->count ? list->items[i] : list;
        check.path = br_arena_printf(arena, "%s::policies[%zu]", path, i);
        int one = check.path
                      ? tail_check_policy(&check,
                                          (struct tail_policy_config *)settings->policies.items + i,
                                          ALLOWS_ALL)
                      : BR_ENOMEM;
        rc = one ? one : rc;
    }
    return rc;
}
