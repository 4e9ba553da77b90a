/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/pyroscope/pyroscope.h"

#include <stdatomic.h>

#include "base/mem.h"
#include "base/str.h"
#include "wire/protobuf.h"

struct pyroscope_labels {
    struct br_node *node;
    const struct br_series_config *config;
    struct br_series *series;
    struct br_str encoded;
    double *left_out_series, *left_out_samples;
    bool logged_series;
    _Atomic bool logged_samples; /* atomic, because any thread may set the flag */
};

const struct br_option pyroscope_label_options[] = {
    BR_STRINGS(struct br_series_config, resource_attributes,
               "names of resource attributes that become labels; `*` matches any text"),
    BR_STRINGS(struct br_series_config, scope_attributes,
               "names of scope attributes that become labels; default: none"),
    BR_STRINGS(struct br_series_config, sample_attributes,
               "names of sample attributes that become labels, in addition to span ids"),
    {.name = "static",
     .kind = BR_OPT_HEADERS,
     .offset = offsetof(struct br_series_config, fixed),
     .help = "labels to add to every series"},
    BR_INT(struct br_series_config, max, BR_SERIES_LABELS_DEFAULT, 2, BR_SERIES_LABELS_MAX,
           "largest number of labels of a series, including the labels of its samples; further "
           "labels are dropped"),
    BR_BOOL(struct br_series_config, sanitize, false,
            "in label names, replace all characters except letters, digits and _ with _"),
    BR_OPT_END,
};

bool pyroscope_labels_keep(void *labels, const char *key, size_t len)
{
    struct pyroscope_labels *pyroscope_labels = labels;
    bool keep = br_series_keeps(pyroscope_labels->config, key, len);
    if (!keep && !atomic_exchange(&pyroscope_labels->logged_samples, true)) {
        br_info(
            &pyroscope_labels->node->log,
            "the sample attribute %.*s and others are not sent as labels, because each of their "
            "values would be a series; list them in labels::sample_attributes to send them",
            (int)(len < 200 ? len : 200), key);
    }
    return keep;
}

void pyroscope_labels_count(struct pyroscope_labels *labels, uint32_t count)
{
    *labels->left_out_samples += count;
}

void pyroscope_labels_forget(struct pyroscope_labels *labels)
{
    br_series_forget(labels->series);
}

static void pyroscope_labels_log_dropped(struct pyroscope_labels *labels,
                                         const struct br_series_made *made)
{
    const struct br_label *label = &made->left_out;
    *labels->left_out_series += made->n_left_out;
    if (labels->logged_series)
        return;
    labels->logged_series = true;
    br_warn(
        &labels->node->log,
        "a series has more than %lld labels (labels::max), including those of its samples: %.*s "
        "was dropped",
        (long long)labels->config->max, (int)(label->name_len < 200 ? label->name_len : 200),
        label->name);
}

static void pyroscope_labels_encode(struct br_str *out, const struct br_label *label)
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
    struct br_series_made made;
    br_str_clear(&pyroscope_labels->encoded);
    if (!br_series_make(pyroscope_labels->series, result, &made))
        return false;
    if (made.n_left_out)
        pyroscope_labels_log_dropped(pyroscope_labels, &made);
    for (uint32_t i = 0; i < made.count; i++)
        pyroscope_labels_encode(&pyroscope_labels->encoded, &made.labels[i]);
    *ret = (const uint8_t *)pyroscope_labels->encoded.data;
    *ret_len = pyroscope_labels->encoded.len;
    return !pyroscope_labels->encoded.failed;
}

struct pyroscope_labels *pyroscope_labels_new(struct br_node *node,
                                              const struct br_series_config *config)
{
    struct pyroscope_labels *labels = br_calloc(1, sizeof *labels);
    if (!labels)
        return NULL;
    labels->node = node;
    labels->config = config;
    labels->series = br_series_new(config);
    labels->left_out_series =
        br_node_metric(node, BR_COUNTER, "braid_pyroscope_labels_left_out", "of", "series");
    labels->left_out_samples =
        br_node_metric(node, BR_COUNTER, "braid_pyroscope_labels_left_out", "of", "sample");
    if (labels->series)
        return labels;
    pyroscope_labels_free(labels);
    return NULL;
}

void pyroscope_labels_free(struct pyroscope_labels *labels)
{
    if (!labels)
        return;
    br_series_free(labels->series);
    br_str_release(&labels->encoded);
    br_free(labels);
}
