/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/pyroscope/labels.h"

#include <string.h>

#include "base/mem.h"
#include "otlp/resolve.h"
#include "pipeline/value_text.h"
#include "profile/pair.h"
#include "wire/protobuf.h"

struct label {
    const char *name, *value;
    size_t name_len, value_len;
};

struct pyroscope_labels {
    struct br_node *node;
    const struct pyroscope_label_config *config;
    struct label v[PYROSCOPE_LABELS_MAX]; /* under construction */
    uint32_t n, max;
    struct br_arena arena; /* what they need */
    bool no_memory;
    bool keep_empty; /* labels without a value too */
    struct br_str encoded;
    double *left_out_series, *left_out_samples;
    bool said_series, said_samples;
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

static bool matches(const char *pattern, const char *s, const char *end)
{
    const char *star = NULL, *again = NULL;
    while (s < end) {
        if (*pattern == '*') {
            star = ++pattern;
            again = s;
        } else if (*pattern && *pattern == *s) {
            pattern++;
            s++;
        } else if (star) {
            pattern = star;
            s = ++again;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static bool listed(const char *const *list, size_t n, const char *key, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (matches(list[i], key, key + len))
            return true;
    return false;
}

bool pyroscope_labels_keep(void *labels, const char *key, size_t len)
{
    struct pyroscope_labels *l = labels;
    const struct br_strings *want = &l->config->sample_attributes;
    if (listed(ids, BR_COUNT(ids), key, len))
        return true;
    bool keep = want->v ? listed(want->v, want->n, key, len)
                        : listed(default_sample, BR_COUNT(default_sample), key, len);
    if (!keep && !l->said_samples) {
        l->said_samples = true;
        br_info(&l->node->log,
                "the attribute %.*s of samples becomes no label, and others likewise: each of "
                "their values would be a series (labels::sample_attributes lists what does)",
                (int)(len < 200 ? len : 200), key);
    }
    return keep;
}

void pyroscope_labels_count(struct pyroscope_labels *l, uint32_t n)
{
    *l->left_out_samples += n;
}

/* --- One label ------------------------------------------------------------------------------- */

static const char *sanitized(struct pyroscope_labels *l, const char *name, size_t len)
{
    char *out = br_arena_strndup(&l->arena, name, len);
    for (size_t i = 0; out && i < len; i++) {
        char c = out[i];
        bool digit = c >= '0' && c <= '9';
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(digit && i > 0))
            out[i] = '_';
    }
    return out;
}

static void leave_out(struct pyroscope_labels *l, const char *name, size_t len)
{
    *l->left_out_series += 1;
    if (l->said_series)
        return;
    l->said_series = true;
    br_warn(
        &l->node->log,
        "a series has more than %lld labels (labels::max), with those of its samples: %.*s is left "
        "out",
        (long long)l->config->max, (int)(len < 200 ? len : 200), name);
}

/* The first of a name stays. */
static void add(struct pyroscope_labels *l, const char *name, size_t len, const void *value,
                size_t value_len)
{
    size_t n = value_len < PYROSCOPE_VALUE_MAX ? value_len : PYROSCOPE_VALUE_MAX;
    n = n ? br_utf8_valid(value, n) : 0;
    if (len == 0 || (n == 0 && (value_len || !l->keep_empty)) || len > PYROSCOPE_NAME_MAX ||
        br_utf8_valid((const uint8_t *)name, len) != len)
        return;
    if (l->config->sanitize && !(name = sanitized(l, name, len))) {
        l->no_memory = true;
        return;
    }
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i].name_len == len && memcmp(l->v[i].name, name, len) == 0)
            return;
    if (l->n >= l->max)
        leave_out(l, name, len);
    else
        l->v[l->n++] = (struct label){name, value, len, n};
}

static void add_text(struct pyroscope_labels *l, const char *name, const char *value)
{
    add(l, name, strlen(name), value, strlen(value));
}

/* A list of one is that one. */
static struct br_any only(struct br_any any)
{
    struct br_any first, second;
    if (any.type != BR_VALUE_LIST)
        return any;
    const uint8_t *end = any.data + any.len, *p = br_list_next(any.data, end, &first);
    return p && !br_list_next(p, end, &second) ? first : any;
}

static void add_pair(struct pyroscope_labels *l, const struct br_pair *pair)
{
    struct br_any value = only(pair->value);
    const char *name = (const char *)pair->key.data;
    size_t len = pair->key.len;
    if (br_text_is(pair->key, "service.name")) {
        name = "service_name";
        len = strlen(name);
        if (value.type == BR_VALUE_STRING && !value.len)
            return;
    }
    if (value.type == BR_VALUE_STRING) {
        add(l, name, len, value.data, value.len);
        return;
    }
    struct br_str text = {.max = 2 * PYROSCOPE_VALUE_MAX};
    br_value_text(&text, &value, &l->arena);
    char *copy = text.len ? br_arena_strndup(&l->arena, text.data, text.len) : NULL;
    if (copy)
        add(l, name, len, copy, text.len);
    else if (text.len)
        l->no_memory = true;
    br_str_release(&text);
}

/* --- All of them ----------------------------------------------------------------------------- */

static void add_matching(struct pyroscope_labels *l, struct br_entry body, uint32_t field,
                         const char *const *want, size_t n)
{
    const uint8_t *p = body.data, *end = body.len ? p + body.len : p;
    struct br_pair pair;
    while ((p = br_pair_next(p, end, field, &pair)))
        if (pair.key.len && listed(want, n, (const char *)pair.key.data, pair.key.len))
            add_pair(l, &pair);
}

static void add_all(struct pyroscope_labels *l, const struct br_pprof_out *p)
{
    static const char *const service[] = {"service.name"}, *const any[] = {"*"};
    const struct pyroscope_label_config *c = l->config;
    const struct br_strings *want = &c->resource_attributes;
    add_text(l, "__name__", p->name);
    for (size_t i = 0; i < c->fixed.n; i++)
        if (c->fixed.values[i].text)
            add_text(l, c->fixed.names[i], c->fixed.values[i].text);
    add_matching(l, p->resource, BR_RESOURCE_ATTRIBUTES, service, 1);
    if (p->from_pyroscope) {
        /* Pyroscope has `jfr_event=""` on what the JDK recorded. */
        l->keep_empty = true;
        add_matching(l, p->resource, BR_RESOURCE_ATTRIBUTES, any, 1);
        l->keep_empty = false;
    } else {
        /* As for everything that is no total since the start, so that nobody takes differences. */
        if (!p->cumulative)
            add_text(l, "__delta__", "false");
        if (want->v)
            add_matching(l, p->resource, BR_RESOURCE_ATTRIBUTES, want->v, want->n);
        else
            add_matching(l, p->resource, BR_RESOURCE_ATTRIBUTES, default_resource,
                         BR_COUNT(default_resource));
    }
    add_matching(l, p->scope, BR_SCOPE_ATTRIBUTES, c->scope_attributes.v, c->scope_attributes.n);
}

static void put(struct br_str *out, const struct label *label)
{
    uint8_t head[2 * (1 + BR_VARINT_MAX)];
    size_t len = br_len_size(1, label->name_len) + br_len_size(2, label->value_len);
    uint8_t *p = br_put_varint(head, BR_TAG(1, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    p = br_put_varint(p, BR_TAG(1, BR_WIRE_LEN));
    p = br_put_varint(p, label->name_len);
    br_str_add(out, head, (size_t)(p - head));
    br_str_add(out, label->name, label->name_len);
    p = br_put_varint(head, BR_TAG(2, BR_WIRE_LEN));
    p = br_put_varint(p, label->value_len);
    br_str_add(out, head, (size_t)(p - head));
    br_str_add(out, label->value, label->value_len);
}

bool pyroscope_labels_make(struct pyroscope_labels *l, const struct br_pprof_out *p,
                           const uint8_t **ret, size_t *ret_len)
{
    br_arena_release(&l->arena);
    br_str_clear(&l->encoded);
    l->n = 0;
    l->max = (uint32_t)l->config->max;
    l->max = p->n_labels < l->max - 2 ? l->max - p->n_labels : 2;
    l->no_memory = false;
    add_all(l, p);
    for (uint32_t i = 0; i < l->n; i++)
        put(&l->encoded, &l->v[i]);
    *ret = (const uint8_t *)l->encoded.data;
    *ret_len = l->encoded.len;
    return !l->encoded.failed && !l->no_memory;
}

struct pyroscope_labels *pyroscope_labels_new(struct br_node *node,
                                              const struct pyroscope_label_config *config)
{
    struct pyroscope_labels *l = br_calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->node = node;
    l->config = config;
    l->left_out_series =
        br_node_metric(node, BR_COUNTER, "braid_pyroscope_labels_left_out", "of", "series");
    l->left_out_samples =
        br_node_metric(node, BR_COUNTER, "braid_pyroscope_labels_left_out", "of", "sample");
    return l;
}

void pyroscope_labels_free(struct pyroscope_labels *l)
{
    if (!l)
        return;
    br_arena_release(&l->arena);
    br_str_release(&l->encoded);
    br_free(l);
}
