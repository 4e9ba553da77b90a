/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resource_detection processor adds attributes of the host, the cloud and the container to
 * resources. Items that arrive during the first detection are held until the detection ends.
 */
#include <string.h>

#include "attribute/attributes.h"
#include "base/mem.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/fields.h"
#include "processors/resource_detection/detectors.h"

#define SCRATCH_MAX (256u << 20)
/* largest number of items that wait for the first detection; further items are refused */
#define WAITING_MAX 1024
/* delay in milliseconds after which the senders of refused items are asked to retry */
#define RETRY_MS 1000

const struct detector *const detectors[DETECT_KINDS] = {
    [DETECT_ENV] = &detect_env,       [DETECT_SYSTEM] = &detect_system,
    [DETECT_DOCKER] = &detect_docker, [DETECT_K8S_API] = &detect_node,
    [DETECT_K8SNODE] = &detect_node,  [DETECT_GCP] = &detect_gcp,
    [DETECT_EC2] = &detect_ec2,       [DETECT_ECS] = &detect_ecs,
    [DETECT_EKS] = &detect_eks,       [DETECT_AZURE] = &detect_azure,
};

struct state {
    struct detection detection;
    struct br_list waiting; /* items that wait for the first detection */
    unsigned n_waiting;
    struct br_attributes list; /* attributes of the current Resource */
    struct br_arena scratch;   /* memory for the current item */
    /* buffer with the last Resource, followed by its replacement; NULL: no replacement is cached.
     * Consecutive items often have the same Resource. */
    struct br_buf *last;
    uint32_t last_len; /* length of the last Resource; the replacement follows it */
};

/* --- Items ------------------------------------------------------------------------------------ */

static bool resource_detection_add(struct state *state, bool override)
{
    const struct detection *detection = &state->detection;
    struct br_attributes *list = &state->list;
    for (size_t i = 0; i < detection->n_found; i++) {
        const struct detect_found *found = &detection->found[i];
        if (override || !br_attributes_find(list, found->key, found->key_len))
            br_attributes_put(list, found->key, found->key_len, found->value);
    }
    return !list->no_memory && !list->too_many;
}

/* Makes the replacement of a Resource, and stores the Resource and the replacement in
 * state->last. */
static int resource_detection_make(struct br_node *node, const uint8_t *data, size_t len)
{
    struct state *state = node->state;
    const struct detect_config *config = node->config;
    struct br_attributes *list = &state->list;
    state->last = br_buf_unref(state->last);
    if (!br_attributes_read(list, BR_RESOURCE_ATTRIBUTES, data, len) ||
        !resource_detection_add(state, config->override))
        return list->too_many ? BR_EFULL : br_arena_why(&state->scratch);
    size_t size = len + br_attributes_size(list);
    if (size > BR_BUF_MAX)
        return BR_EFULL;
    state->last = br_buf_new(node->host->pool, size);
    if (!state->last)
        return BR_ENOMEM;
    uint8_t *p = br_put_bytes(state->last->data, data, len);
    state->last->len = (uint32_t)(br_attributes_write(list, p) - state->last->data);
    state->last_len = (uint32_t)len;
    return 0;
}

static int resource_detection_change(struct br_node *node, struct br_item *item, uint32_t index)
{
    struct state *state = node->state;
    struct br_part *part = &item->parts[index];
    size_t len;
    const uint8_t *data = br_part_resource(part, &len);
    int rc = 0;
    if (item->signal == BR_PROFILES &&
        br_attributes_have_references(data, len, BR_RESOURCE_ATTRIBUTES)) {
        rc = br_item_inline_references(item);
        part = &item->parts[index];
        data = br_part_resource(part, &len);
    }
    bool same = state->last && state->last_len == len &&
                (!len || memcmp(state->last->data, data, len) == 0);
    if (!rc && !same)
        rc = resource_detection_make(node, data, len);
    if (!rc && state->last->len != state->last_len)
        br_item_set_resource(item, part, state->last, state->last->data + len,
                             state->last->len - len);
    return rc;
}

static void resource_detection_process(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    struct br_mem_scope scope;
    int rc = 0;
    br_item_edit_begin(&scope, item);
    for (uint32_t i = 0; i < item->n_parts && !rc && state->detection.n_found; i++)
        if (item->parts[i].kind == BR_PART_RESOURCE)
            rc = resource_detection_change(node, item, i);
    br_arena_release(&state->scratch);
    rc = br_item_edit_end(&scope, rc);
    if (rc == BR_EFULL || rc == BR_EINVAL)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "resource_detection: a resource has too many attributes, or the result is "
                       "too large");
    else if (rc)
        br_item_retry(item, BR_STATUS_UNAVAILABLE, RETRY_MS, "resource_detection: out of memory");
    else
        br_node_forward(node, item);
}

static void resource_detection_refuse(struct br_item *item)
{
    br_item_retry(item, BR_STATUS_UNAVAILABLE, RETRY_MS,
                  "resource_detection: the attributes of the resource have not been detected");
}

static void resource_detection_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    const struct detection *detection = &state->detection;
    if (detection->detected) {
        resource_detection_process(node, item);
    } else if (detection->running && !detection->n_failed && !node->draining &&
               state->n_waiting < WAITING_MAX) {
        br_list_append(&state->waiting, &item->link);
        state->n_waiting++;
    } else {
        resource_detection_refuse(item);
    }
}

/* Processes the waiting items if the detection has succeeded, and otherwise refuses them. */
static void resource_detection_release_waiting(struct br_node *node)
{
    struct state *state = node->state;
    struct br_list *link;
    while ((link = br_list_shift(&state->waiting))) {
        struct br_item *item = br_container_of(link, struct br_item, link);
        state->n_waiting--;
        if (state->detection.detected)
            resource_detection_process(node, item);
        else
            resource_detection_refuse(item);
    }
}

static void resource_detection_on_end(struct detection *detection)
{
    struct state *state = detection->node->state;
    state->last = br_buf_unref(state->last); /* the cached replacement may contain old attributes */
    resource_detection_release_waiting(detection->node);
}

/* --- Life ------------------------------------------------------------------------------------- */

static void resource_detection_destroy(struct br_node *node)
{
    struct state *state = node->state;
    detect_release(&state->detection);
    state->detection.detected = false;
    if (state->waiting.next)
        resource_detection_release_waiting(node);
    br_attributes_release(&state->list);
    br_buf_unref(state->last);
    br_arena_release(&state->scratch);
}

static int resource_detection_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    br_list_init(&state->waiting);
    br_arena_init(&state->scratch, SCRATCH_MAX);
    state->list.arena = &state->scratch;
    int rc = detect_init(&state->detection, node, resource_detection_on_end);
    if (!rc)
        return 0;
    resource_detection_destroy(node);
    return br_err_set(err, rc, "out of memory");
}

static int resource_detection_start_node(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    return node->host->checking ? 0 : detect_start(&state->detection, err);
}

static void resource_detection_drain(struct br_node *node)
{
    struct state *state = node->state;
    detect_stop(&state->detection);
    resource_detection_release_waiting(node);
    br_node_drained(node);
}

extern const struct br_component br_resource_detection_processor;
const struct br_component br_resource_detection_processor = {
    .name = "resource_detection",
    .alias = "resourcedetection",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "adds attributes of the host, the cloud and the container to resources",
    .options = detect_options,
    .config_size = sizeof(struct detect_config),
    .state_size = sizeof(struct state),
    .check = detect_config_check,
    .create = resource_detection_create,
    .start = resource_detection_start_node,
    .consume = resource_detection_consume,
    .drain = resource_detection_drain,
    .destroy = resource_detection_destroy,
};
