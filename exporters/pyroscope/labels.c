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
    struct label v[PYROSCOPE_LABELS_MAX];
    uint32_t n, max;
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
    bool keep_empty; /* labels without a value too */
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
    if (!keep && !atomic_exchange(&l->said_samples, true)) {
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

static const char *sanitized(struct br_arena *arena, const char *name, size_t len)
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

static void leave_out(struct pyroscope_labels *l, const struct label *label, uint32_t n)
{
    *l->left_out_series += n;
    if (l->said_series)
        return;
    l->said_series = true;
    br_warn(
        &l->node->log,
        "a series has more than %lld labels (labels::max), with those of its samples: %.*s is left "
        "out",
        (long long)l->config->max, (int)(label->name_len < 200 ? label->name_len : 200),
        label->name);
}

/* The first of a name stays. */
static void put(struct labels *labels, const struct label *label)
{
    for (uint32_t i = 0; i < labels->n; i++)
        if (labels->v[i].name_len == label->name_len &&
            memcmp(labels->v[i].name, label->name, label->name_len) == 0)
            return;
    if (labels->n < labels->max)
        labels->v[labels->n++] = *label;
    else if (labels->n_more++ == 0)
        labels->more = *label;
}

static void add(struct pyroscope_labels *l, struct labels *to, struct br_arena *arena,
                struct label label)
{
    size_t n = label.value_len < PYROSCOPE_VALUE_MAX ? label.value_len : PYROSCOPE_VALUE_MAX;
    n = n ? br_utf8_valid((const uint8_t *)label.value, n) : 0;
    if (label.name_len == 0 || (n == 0 && (label.value_len || !l->keep_empty)) ||
        label.name_len > PYROSCOPE_NAME_MAX ||
        br_utf8_valid((const uint8_t *)label.name, label.name_len) != label.name_len)
        return;
    label.value_len = n;
    if (l->config->sanitize)
        label.name = sanitized(arena, label.name, label.name_len);
    if (label.name)
        put(to, &label);
    else
        l->no_memory = true;
}

static void add_text(struct pyroscope_labels *l, const char *name, const char *value)
{
    add(l, &l->labels, &l->arena, (struct label){name, value, strlen(name), strlen(value)});
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

static void add_pair(struct pyroscope_labels *l, struct origin *o, const struct br_pair *pair)
{
    struct br_any value = only(pair->value);
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
        add(l, &o->labels, &o->arena, label);
        return;
    }
    struct br_str text = {.max = 2 * PYROSCOPE_VALUE_MAX};
    br_value_text(&text, &value, &o->arena);
    label.value = text.len ? br_arena_strndup(&o->arena, text.data, text.len) : NULL;
    label.value_len = text.len;
    if (label.value)
        add(l, &o->labels, &o->arena, label);
    else if (text.len)
        l->no_memory = true;
    br_str_release(&text);
}

/* --- Where profiles come from ---------------------------------------------------------------- */

struct wanted {
    const char *const *v;
    size_t n;
};

/* What is for the server itself is no choice. */
static bool is_wanted(const struct origin *o, struct wanted want, const struct br_pair *pair)
{
    const char *key = (const char *)pair->key.data;
    size_t len = pair->key.len;
    if (o->from_pyroscope && len > 2 && memcmp(key, "__", 2) == 0)
        return true;
    if (br_text_is(pair->key, BR_LABEL_SERVICE_NAME)) {
        key = "service.name";
        len = strlen(key);
    }
    return len && listed(want.v, want.n, key, len);
}

static void read_pairs(struct pyroscope_labels *l, struct origin *o, uint32_t field,
                       struct wanted want)
{
    const uint8_t *p = o->body.data, *end = o->body.len ? p + o->body.len : p;
    struct br_pair pair;
    while ((want.n || o->from_pyroscope) && (p = br_pair_next(p, end, field, &pair)))
        if (is_wanted(o, want, &pair))
            add_pair(l, o, &pair);
}

/* False when it is the one that was read last. */
static bool begin_origin(struct origin *o, struct br_entry body, bool from_pyroscope)
{
    if (o->read && o->body.data == body.data && o->body.len == body.len &&
        o->from_pyroscope == from_pyroscope)
        return false;
    br_arena_release(&o->arena);
    o->body = body;
    o->from_pyroscope = from_pyroscope;
    o->labels.n = o->labels.n_more = 0;
    o->labels.max = PYROSCOPE_LABELS_MAX;
    return true;
}

static void read_origin(struct pyroscope_labels *l, struct origin *o, struct br_entry body,
                        uint32_t field, struct wanted want)
{
    if (!begin_origin(o, body, l->keep_empty))
        return;
    read_pairs(l, o, field, want);
    o->read = !l->no_memory;
}

/* As Pyroscope names a service that has no name where it takes OTLP itself. What a client of its own
 * sent without one, it names. */
static void add_unknown(struct pyroscope_labels *l, struct origin *o, const struct br_any *program)
{
    static const char unknown[] = "unknown_service:";
    size_t len = program->len < PYROSCOPE_VALUE_MAX ? program->len : PYROSCOPE_VALUE_MAX;
    size_t n = sizeof unknown - 1;
    char *text = br_arena_alloc(&o->arena, n + len);
    if (!text) {
        l->no_memory = true;
        return;
    }
    memcpy(text, unknown, n);
    if (len)
        memcpy(text + n, program->data, len);
    add(l, &o->labels, &o->arena,
        (struct label){"service_name", text, strlen("service_name"), len ? n + len : n - 1});
}

static void read_service(struct pyroscope_labels *l, struct origin *o)
{
    const uint8_t *p = o->body.data, *end = o->body.len ? p + o->body.len : p;
    struct br_any program = {.len = 0};
    struct br_pair pair;
    while ((p = br_pair_next(p, end, BR_RESOURCE_ATTRIBUTES, &pair))) {
        struct br_any value = only(pair.value);
        if (br_text_is(pair.key, "service.name"))
            add_pair(l, o, &pair);
        else if (value.type == BR_VALUE_STRING && value.len &&
                 br_text_is(pair.key, "process.executable.name"))
            program = value;
    }
    if (!o->labels.n && !o->from_pyroscope)
        add_unknown(l, o, &program);
}

/* Adds what it makes. */
static void add_origin(struct pyroscope_labels *l, const struct origin *o)
{
    for (uint32_t i = 0; i < o->labels.n; i++)
        put(&l->labels, &o->labels.v[i]);
    if (o->labels.n_more && !l->labels.n_more)
        l->labels.more = o->labels.more;
    l->labels.n_more += o->labels.n_more;
}

void pyroscope_labels_forget(struct pyroscope_labels *l)
{
    l->service.read = l->resource.read = l->scope.read = false;
}

/* --- All of them ----------------------------------------------------------------------------- */

static struct wanted wanted_of(const struct pyroscope_labels *l, bool from_pyroscope)
{
    static const char *const any[] = {"*"};
    const struct br_strings *want = &l->config->resource_attributes;
    if (want->v)
        return (struct wanted){want->v, want->n};
    return from_pyroscope ? (struct wanted){any, 1}
                          : (struct wanted){default_resource, BR_COUNT(default_resource)};
}

static void add_all(struct pyroscope_labels *l, const struct br_pprof_out *p)
{
    const struct pyroscope_label_config *c = l->config;
    add_text(l, "__name__", p->name);
    for (size_t i = 0; i < c->fixed.n; i++)
        if (c->fixed.values[i].text)
            add_text(l, c->fixed.names[i], c->fixed.values[i].text);
    if (begin_origin(&l->service, p->resource, p->from_pyroscope)) {
        read_service(l, &l->service);
        l->service.read = !l->no_memory;
    }
    add_origin(l, &l->service);
    /* As for everything that is no total since the start, so that nobody takes differences. */
    if (!p->from_pyroscope && !p->cumulative)
        add_text(l, "__delta__", "false");
    /* Pyroscope has `jfr_event=""` on what the JDK recorded. */
    l->keep_empty = p->from_pyroscope;
    read_origin(l, &l->resource, p->resource, BR_RESOURCE_ATTRIBUTES,
                wanted_of(l, p->from_pyroscope));
    l->keep_empty = false;
    add_origin(l, &l->resource);
    read_origin(l, &l->scope, p->scope, BR_SCOPE_ATTRIBUTES,
                (struct wanted){c->scope_attributes.v, c->scope_attributes.n});
    add_origin(l, &l->scope);
}

static void encode(struct br_str *out, const struct label *label)
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

bool pyroscope_labels_make(struct pyroscope_labels *l, const struct br_pprof_out *p,
                           const uint8_t **ret, size_t *ret_len)
{
    struct labels *labels = &l->labels;
    uint32_t max = (uint32_t)l->config->max;
    br_arena_release(&l->arena);
    br_str_clear(&l->encoded);
    labels->n = labels->n_more = 0;
    labels->max = p->n_labels < max - 2 ? max - p->n_labels : 2;
    l->no_memory = false;
    add_all(l, p);
    if (labels->n_more)
        leave_out(l, &labels->more, labels->n_more);
    for (uint32_t i = 0; i < labels->n; i++)
        encode(&l->encoded, &labels->v[i]);
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
    br_arena_release(&l->service.arena);
    br_arena_release(&l->resource.arena);
    br_arena_release(&l->scope.arena);
    br_arena_release(&l->arena);
    br_str_release(&l->encoded);
    br_free(l);
}
