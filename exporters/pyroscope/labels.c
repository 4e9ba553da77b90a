/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/pyroscope/labels.h"

#include <stdatomic.h>
#include <string.h>

#include "attribute/value_text.h"
#include "base/mem.h"
#include "exporters/pyroscope/push_fields.h"
#include "otlp/dictionary/resolve.h"
#include "profile/name.h"
#include "profile/pair.h"
#include "wire/protobuf.h"

struct label {
    const char *name, *value;
    size_t name_len, value_len;
};

/* Labels, of each name the first. */
struct labels {
    struct label labels[PYROSCOPE_LABELS_MAX];
    uint32_t count, max;
    uint32_t n_more;   /* that there was no room for ... */
    struct label more; /* ... and the first of them */
};

/* What the attributes of a Resource or scope make, read once for all its profiles. */
struct origin {
    struct br_entry body;
    bool from_pyroscope, read;
    struct labels labels;
    struct br_arena arena; /* what they need */
};

struct pyroscope_labels {
    struct br_node *node;
    const struct pyroscope_label_config *config;
    struct labels labels; /* under construction */
    struct origin service, resource, scope;
    bool no_memory;
    bool keep_empty;       /* labels without a value too */
    struct br_arena arena; /* of names */
    struct br_str encoded;
    double *left_out_series, *left_out_samples;
    bool said_series;
    _Atomic bool said_samples; /* threads may say it */
};

/* What tells deployments apart and has few values. Left out on purpose: service.instance.id,
 * process.pid and the like, which are new with every start, and with them every series. */
static const char *const default_resource[] = {"service.namespace",
                                               "service.version",
                                               "deployment.environment",
                                               "deployment.environment.name",
                                               "host.name",
                                               "container.name",
                                               "k8s.cluster.name",
                                               "k8s.namespace.name",
                                               "k8s.deployment.name",
                                               "k8s.statefulset.name",
                                               "k8s.daemonset.name",
                                               "k8s.cronjob.name",
                                               "k8s.node.name",
                                               "k8s.pod.name",
                                               "k8s.container.name",
                                               "cloud.region",
                                               "cloud.availability_zone"};

/* A span's name is one of the few that its service has. */
static const char *const default_sample[] = {"span_name", "span.name"};

/* Pyroscope keeps these with the sample: they make no series. */
static const char *const ids[] = {"span_id", "trace_id", "profile_id"};

const struct br_option pyroscope_label_options[] = {
    BR_STRINGS(struct pyroscope_label_config, resource_attributes,
               "resource attributes that become labels; `*` stands for anything"),
    BR_STRINGS(struct pyroscope_label_config, scope_attributes,
               "likewise, of the scope; by default none"),
    BR_STRINGS(struct pyroscope_label_config, sample_attributes,
               "likewise, of samples, beside the ids of spans"),
    {.name = "static",
     .kind = BR_OPT_HEADERS,
     .offset = offsetof(struct pyroscope_label_config, fixed),
     .help = "labels of every series"},
    BR_INT(struct pyroscope_label_config, max, PYROSCOPE_LABELS_DEFAULT, 2, PYROSCOPE_LABELS_MAX,
           "most labels of a series, with those of its samples; what is over is left out"),
    BR_BOOL(struct pyroscope_label_config, sanitize, false,
            "letters, digits and _ only in names; everything else becomes _"),
    BR_OPT_END,
};

/* --- What the config wants ------------------------------------------------------------------- */

static bool pyroscope_labels_matches(const char *pattern, const char *text, const char *end)
{
    const char *star = NULL, *again = NULL;
    while (text < end) {
        if (*pattern == '*') {
            star = ++pattern;
            again = text;
        } else if (*pattern && *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++again;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static bool pyroscope_labels_listed(const char *const *list, size_t count, const char *key,
                                    size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (pyroscope_labels_matches(list[i], key, key + len))
            return true;
    return false;
}

bool pyroscope_labels_keep(void *labels, const char *key, size_t len)
{
    struct pyroscope_labels *pyroscope_labels = labels;
    const struct br_strings *want = &pyroscope_labels->config->sample_attributes;
    if (pyroscope_labels_listed(ids, BR_COUNT(ids), key, len))
        return true;
    bool keep = want->items
                    ? pyroscope_labels_listed(want->items, want->count, key, len)
                    : pyroscope_labels_listed(default_sample, BR_COUNT(default_sample), key, len);
    if (!keep && !atomic_exchange(&pyroscope_labels->said_samples, true)) {
        br_info(&pyroscope_labels->node->log,
                "the attribute %.*s of samples becomes no label, and others likewise: each of "
                "their values would be a series (labels::sample_attributes lists what does)",
                (int)(len < 200 ? len : 200), key);
    }
    return keep;
}

void pyroscope_labels_count(struct pyroscope_labels *labels, uint32_t count)
{
    *labels->left_out_samples += count;
}

/* --- One label ------------------------------------------------------------------------------- */

static const char *pyroscope_labels_sanitized(struct br_arena *arena, const char *name, size_t len)
{
    char *out = br_arena_strndup(arena, name, len);
    for (size_t i = 0; out && i < len; i++) {
        char c = out[i];
        bool digit = c >= '0' && c <= '9';
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(digit && i > 0))
            out[i] = '_';
    }
    return out;
}

static void pyroscope_labels_leave_out(struct pyroscope_labels *labels, const struct label *label,
                                       uint32_t count)
{
    *labels->left_out_series += count;
    if (labels->said_series)
        return;
    labels->said_series = true;
    br_warn(
        &labels->node->log,
        "a series has more than %lld labels (labels::max), with those of its samples: %.*s is left "
        "out",
        (long long)labels->config->max, (int)(label->name_len < 200 ? label->name_len : 200),
        label->name);
}

/* The first of a name stays. */
static void pyroscope_labels_put(struct labels *labels, const struct label *label)
{
    for (uint32_t i = 0; i < labels->count; i++)
        if (labels->labels[i].name_len == label->name_len &&
            memcmp(labels->labels[i].name, label->name, label->name_len) == 0)
            return;
    if (labels->count < labels->max)
        labels->labels[labels->count++] = *label;
    else if (labels->n_more++ == 0)
        labels->more = *label;
}

static void pyroscope_labels_add(struct pyroscope_labels *labels, struct labels *to,
                                 struct br_arena *arena, struct label label)
{
    size_t n = label.value_len < PYROSCOPE_VALUE_MAX ? label.value_len : PYROSCOPE_VALUE_MAX;
    n = n ? br_utf8_valid((const uint8_t *)label.value, n) : 0;
    if (label.name_len == 0 || (n == 0 && (label.value_len || !labels->keep_empty)) ||
        label.name_len > PYROSCOPE_NAME_MAX ||
        br_utf8_valid((const uint8_t *)label.name, label.name_len) != label.name_len)
        return;
    label.value_len = n;
    if (labels->config->sanitize)
        label.name = pyroscope_labels_sanitized(arena, label.name, label.name_len);
    if (label.name)
        pyroscope_labels_put(to, &label);
    else
        labels->no_memory = true;
}

static void pyroscope_labels_add_text(struct pyroscope_labels *labels, const char *name,
                                      const char *value)
{
    pyroscope_labels_add(labels, &labels->labels, &labels->arena,
                         (struct label){name, value, strlen(name), strlen(value)});
}

/* A list of one is that one. */
static struct br_any pyroscope_labels_only(struct br_any any)
{
    struct br_any first, second;
    if (any.type != BR_VALUE_LIST)
        return any;
    const uint8_t *end = any.data + any.len, *p = br_list_next(any.data, end, &first);
    return p && !br_list_next(p, end, &second) ? first : any;
}

static void pyroscope_labels_add_pair(struct pyroscope_labels *labels, struct origin *origin,
                                      const struct br_pair *pair)
{
    struct br_any value = pyroscope_labels_only(pair->value);
    struct label label = {(const char *)pair->key.data, (const char *)value.data, pair->key.len,
                          value.len};
    if (br_text_is(pair->key, "service.name")) {
        label.name = "service_name";
        if (value.type == BR_VALUE_STRING && !value.len)
            return;
    } else if (br_text_is(pair->key, BR_LABEL_SERVICE_NAME)) {
        label.name = "service.name";
    }
    if (label.name != (const char *)pair->key.data)
        label.name_len = strlen(label.name);
    if (value.type == BR_VALUE_STRING) {
        pyroscope_labels_add(labels, &origin->labels, &origin->arena, label);
        return;
    }
    struct br_str text = {.max = 2 * PYROSCOPE_VALUE_MAX};
    br_value_text(&text, &value, &origin->arena);
    label.value = text.len ? br_arena_strndup(&origin->arena, text.data, text.len) : NULL;
    label.value_len = text.len;
    if (label.value)
        pyroscope_labels_add(labels, &origin->labels, &origin->arena, label);
    else if (text.len)
        labels->no_memory = true;
    br_str_release(&text);
}

/* --- Where profiles come from ---------------------------------------------------------------- */

struct wanted {
    const char *const *items;
    size_t count;
};

/* What is for the server itself is no choice. */
static bool pyroscope_labels_is_wanted(const struct origin *origin, struct wanted want,
                                       const struct br_pair *pair)
{
    const char *key = (const char *)pair->key.data;
    size_t len = pair->key.len;
    if (origin->from_pyroscope && len > 2 && memcmp(key, "__", 2) == 0)
        return true;
    if (br_text_is(pair->key, BR_LABEL_SERVICE_NAME)) {
        key = "service.name";
        len = strlen(key);
    }
    return len && pyroscope_labels_listed(want.items, want.count, key, len);
}

static void pyroscope_labels_read_pairs(struct pyroscope_labels *labels, struct origin *origin,
                                        uint32_t field, struct wanted want)
{
    const uint8_t *p = origin->body.data, *end = origin->body.len ? p + origin->body.len : p;
    struct br_pair pair;
    while ((want.count || origin->from_pyroscope) && (p = br_pair_next(p, end, field, &pair)))
        if (pyroscope_labels_is_wanted(origin, want, &pair))
            pyroscope_labels_add_pair(labels, origin, &pair);
}

/* False when it is the one that was read last. */
static bool pyroscope_labels_begin_origin(struct origin *origin, struct br_entry body,
                                          bool from_pyroscope)
{
    if (origin->read && origin->body.data == body.data && origin->body.len == body.len &&
        origin->from_pyroscope == from_pyroscope)
        return false;
    br_arena_release(&origin->arena);
    origin->body = body;
    origin->from_pyroscope = from_pyroscope;
    origin->labels.count = origin->labels.n_more = 0;
    origin->labels.max = PYROSCOPE_LABELS_MAX;
    return true;
}

static void pyroscope_labels_read_origin(struct pyroscope_labels *labels, struct origin *origin,
                                         struct br_entry body, uint32_t field, struct wanted want)
{
    if (!pyroscope_labels_begin_origin(origin, body, labels->keep_empty))
        return;
    pyroscope_labels_read_pairs(labels, origin, field, want);
    origin->read = !labels->no_memory;
}

/* As Pyroscope names a service that has no name where it takes OTLP itself. What a client of its
 * own sent without one, it names. */
static void pyroscope_labels_add_unknown(struct pyroscope_labels *labels, struct origin *origin,
                                         const struct br_any *program)
{
    static const char unknown[] = "unknown_service:";
    size_t len = program->len < PYROSCOPE_VALUE_MAX ? program->len : PYROSCOPE_VALUE_MAX;
    size_t n = sizeof unknown - 1;
    char *text = br_arena_alloc(&origin->arena, n + len);
    if (!text) {
        labels->no_memory = true;
        return;
    }
    memcpy(text, unknown, n);
    if (len)
        memcpy(text + n, program->data, len);
    pyroscope_labels_add(
        labels, &origin->labels, &origin->arena,
        (struct label){"service_name", text, strlen("service_name"), len ? n + len : n - 1});
}

static void pyroscope_labels_read_service(struct pyroscope_labels *labels, struct origin *origin)
{
    const uint8_t *p = origin->body.data, *end = origin->body.len ? p + origin->body.len : p;
    struct br_any program = {.len = 0};
    struct br_pair pair;
    while ((p = br_pair_next(p, end, BR_RESOURCE_ATTRIBUTES, &pair))) {
        struct br_any value = pyroscope_labels_only(pair.value);
        if (br_text_is(pair.key, "service.name"))
            pyroscope_labels_add_pair(labels, origin, &pair);
        else if (value.type == BR_VALUE_STRING && value.len &&
                 br_text_is(pair.key, "process.executable.name"))
            program = value;
    }
    if (!origin->labels.count && !origin->from_pyroscope)
        pyroscope_labels_add_unknown(labels, origin, &program);
}

/* Adds what it makes. */
static void pyroscope_labels_add_origin(struct pyroscope_labels *labels,
                                        const struct origin *origin)
{
    for (uint32_t i = 0; i < origin->labels.count; i++)
        pyroscope_labels_put(&labels->labels, &origin->labels.labels[i]);
    if (origin->labels.n_more && !labels->labels.n_more)
        labels->labels.more = origin->labels.more;
    labels->labels.n_more += origin->labels.n_more;
}

void pyroscope_labels_forget(struct pyroscope_labels *labels)
{
    labels->service.read = labels->resource.read = labels->scope.read = false;
}

/* --- All of them ----------------------------------------------------------------------------- */

static struct wanted pyroscope_labels_wanted_of(const struct pyroscope_labels *labels,
                                                bool from_pyroscope)
{
    static const char *const any[] = {"*"};
    const struct br_strings *want = &labels->config->resource_attributes;
    if (want->items)
        return (struct wanted){want->items, want->count};
    return from_pyroscope ? (struct wanted){any, 1}
                          : (struct wanted){default_resource, BR_COUNT(default_resource)};
}

static void pyroscope_labels_add_all(struct pyroscope_labels *labels,
                                     const struct br_pprof_out *result)
{
    const struct pyroscope_label_config *label_config = labels->config;
    pyroscope_labels_add_text(labels, "__name__", result->name);
    for (size_t i = 0; i < label_config->fixed.count; i++)
        if (label_config->fixed.values[i].text)
            pyroscope_labels_add_text(labels, label_config->fixed.names[i],
                                      label_config->fixed.values[i].text);
    if (pyroscope_labels_begin_origin(&labels->service, result->resource, result->from_pyroscope)) {
        pyroscope_labels_read_service(labels, &labels->service);
        labels->service.read = !labels->no_memory;
    }
    pyroscope_labels_add_origin(labels, &labels->service);
    /* As for everything that is no total since the start, so that nobody takes differences. */
    if (!result->from_pyroscope && !result->cumulative)
        pyroscope_labels_add_text(labels, "__delta__", "false");
    /* Pyroscope has `jfr_event=""` on what the JDK recorded. */
    labels->keep_empty = result->from_pyroscope;
    pyroscope_labels_read_origin(labels, &labels->resource, result->resource,
                                 BR_RESOURCE_ATTRIBUTES,
                                 pyroscope_labels_wanted_of(labels, result->from_pyroscope));
    labels->keep_empty = false;
    pyroscope_labels_add_origin(labels, &labels->resource);
    pyroscope_labels_read_origin(labels, &labels->scope, result->scope, BR_SCOPE_ATTRIBUTES,
                                 (struct wanted){label_config->scope_attributes.items,
                                                 label_config->scope_attributes.count});
    pyroscope_labels_add_origin(labels, &labels->scope);
}

static void pyroscope_labels_encode(struct br_str *out, const struct label *label)
{
    uint8_t head[2 * (1 + BR_VARINT_MAX)];
    size_t len = br_len_size(PYROSCOPE_LABEL_NAME, label->name_len) +
                 br_len_size(PYROSCOPE_LABEL_VALUE, label->value_len);
    uint8_t *p = br_put_varint(head, BR_TAG(PYROSCOPE_SERIES_LABELS, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    p = br_put_varint(p, BR_TAG(PYROSCOPE_LABEL_NAME, BR_WIRE_LEN));
    p = br_put_varint(p, label->name_len);
    br_str_add(out, head, (size_t)(p - head));
    br_str_add(out, label->name, label->name_len);
    p = br_put_varint(head, BR_TAG(PYROSCOPE_LABEL_VALUE, BR_WIRE_LEN));
    p = br_put_varint(p, label->value_len);
    br_str_add(out, head, (size_t)(p - head));
    br_str_add(out, label->value, label->value_len);
}

bool pyroscope_labels_make(struct pyroscope_labels *pyroscope_labels,
                           const struct br_pprof_out *result, const uint8_t **ret, size_t *ret_len)
{
    struct labels *labels = &pyroscope_labels->labels;
    uint32_t max = (uint32_t)pyroscope_labels->config->max;
    br_arena_release(&pyroscope_labels->arena);
    br_str_clear(&pyroscope_labels->encoded);
    labels->count = labels->n_more = 0;
    labels->max = result->n_labels < max - 2 ? max - result->n_labels : 2;
    pyroscope_labels->no_memory = false;
    pyroscope_labels_add_all(pyroscope_labels, result);
    if (labels->n_more)
        pyroscope_labels_leave_out(pyroscope_labels, &labels->more, labels->n_more);
    for (uint32_t i = 0; i < labels->count; i++)
        pyroscope_labels_encode(&pyroscope_labels->encoded, &labels->labels[i]);
    *ret = (const uint8_t *)pyroscope_labels->encoded.data;
    *ret_len = pyroscope_labels->encoded.len;
    return !pyroscope_labels->encoded.failed && !pyroscope_labels->no_memory;
}

struct pyroscope_labels *pyroscope_labels_new(struct br_node *node,
                                              const struct pyroscope_label_config *config)
{
    struct pyroscope_labels *labels = br_calloc(1, sizeof *labels);
    if (!labels)
        return NULL;
    labels->node = node;
    labels->config = config;
    labels->left_out_series =
        br_node_metric(node, BR_COUNTER, "braid_pyroscope_labels_left_out", "of", "series");
    labels->left_out_samples =
        br_node_metric(node, BR_COUNTER, "braid_pyroscope_labels_left_out", "of", "sample");
    return labels;
}

void pyroscope_labels_free(struct pyroscope_labels *labels)
{
    if (!labels)
        return;
    br_arena_release(&labels->service.arena);
    br_arena_release(&labels->resource.arena);
    br_arena_release(&labels->scope.arena);
    br_arena_release(&labels->arena);
    br_str_release(&labels->encoded);
    br_free(labels);
}
