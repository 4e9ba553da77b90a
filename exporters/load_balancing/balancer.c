/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/load_balancing/balancer.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "exporters/load_balancing/backend.h"
#include "otlp/dictionary/dictionary.h"

#define AGAIN_MS 200
#define DEFAULT_PORT "4317"

/* --- Dividing -------------------------------------------------------------------------------- */

struct division {
    struct load_balancing *balancer;
    const struct br_item *item;
    struct br_list parcels; /* list of struct load_balancing_parcel */
};

static uint32_t balancer_of_key(void *arg, const uint8_t *key, size_t len)
{
    const struct load_balancing *balancer = arg;
    return load_balancing_ring_owner(&balancer->ring, key, len);
}

static uint32_t balancer_of_trace(void *arg, const uint8_t trace_id[16])
{
    return balancer_of_key(arg, trace_id, 16);
}

static int balancer_take_group(struct br_item *group, uint32_t backend, void *arg)
{
    struct division *division = arg;
    struct load_balancing_parcel *parcel = br_calloc(1, sizeof *parcel);
    if (!parcel || (!group->metadata && !br_item_keep_metadata(group, division->item))) {
        br_free(parcel);
        br_item_free(group);
        return BR_ENOMEM;
    }
    parcel->item = group;
    parcel->backend = division->balancer->backends[backend];
    br_list_append(&division->parcels, &parcel->link);
    return 0;
}

/* Divides an item into parcels: one piece of the item for each backend. If there is only one
 * backend, the item becomes one parcel, which shares the item's data. */
static int balancer_divide(struct division *division)
{
    struct load_balancing *balancer = division->balancer;
    const struct br_item *item = division->item;
    if (balancer->n_backends == 1) {
        struct br_item *twin = br_item_twin(item);
        return twin ? balancer_take_group(twin, 0, division) : BR_ENOMEM;
    }
    const struct br_routing routing = {.route = balancer->config.route,
                                       .max_buckets = balancer->n_backends,
                                       .of_trace = balancer_of_trace,
                                       .of_key = balancer_of_key,
                                       .arg = balancer};
    struct br_mem_scope scope;
    br_item_edit_begin(&scope, item);
    scope.sends = true;
    int rc = br_item_divide(item, &routing, balancer_take_group, division);
    return br_item_edit_end(&scope, rc);
}

static void balancer_discard(struct division *division)
{
    struct br_list *link;
    while ((link = br_list_shift(&division->parcels))) {
        struct load_balancing_parcel *parcel =
            br_container_of(link, struct load_balancing_parcel, link);
        br_item_free(parcel->item);
        br_free(parcel);
    }
}

/* Keeps an item in the list of unrouted items until it can be divided. */
static void balancer_postpone(struct load_balancing *balancer, struct br_item *item)
{
    if (balancer->stopping) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 0, "shutting down");
        return;
    }
    br_list_append(&balancer->unrouted, &item->link);
    if (balancer->n_backends)
        load_balancing_again(balancer);
}

/* Arranges that a divided item finishes when all of its pieces have finished. */
static void balancer_release(const struct load_balancing *balancer, struct br_item *item)
{
    if (balancer->durable)
        br_item_release_parent(item);
    else
        br_item_release_pieces(item);
}

static int balancer_take_half(struct br_item *half, void *arg)
{
    struct br_list *halves = arg;
    br_list_append(halves, &half->link);
    return 0;
}

/* Splits an item in half. Each half is divided among the backends later. Used if the pieces for the
 * backends would repeat so much data that they exceed the memory limit. Returns 0, BR_ENOMEM, or
 * BR_EFULL if the item has only one record. */
static int balancer_halve(struct load_balancing *balancer, struct br_item *item)
{
    struct br_list halves, *link;
    uint32_t most = (item->n_records + 1) / 2;
    if (item->n_records < 2)
        return BR_EFULL;
    br_list_init(&halves);
    int rc = item->signal == BR_TRACES
                 ? br_traces_split(item, most, 0, balancer_take_half, &halves)
                 : br_profiles_split(item, most, 0, balancer_take_half, &halves);
    for (link = halves.next; link != &halves && !rc; link = link->next)
        if (!br_item_keep_metadata(br_container_of(link, struct br_item, link), item))
            rc = BR_ENOMEM;
    for (link = halves.next; link != &halves && !rc; link = link->next)
        br_item_adopt(item, br_container_of(link, struct br_item, link));
    while ((link = br_list_shift(&halves))) {
        struct br_item *half = br_container_of(link, struct br_item, link);
        if (rc)
            br_item_free(half);
        else
            balancer_postpone(balancer, half);
    }
    if (!rc)
        balancer_release(balancer, item);
    return rc;
}

/* Handles an item that could not be divided: depending on the error code, splits it, keeps it for a
 * later attempt, or rejects it. */
static void balancer_fail(struct load_balancing *balancer, struct br_item *item, int rc)
{
    if (rc == BR_EFULL)
        rc = balancer_halve(balancer, item);
    if (rc == BR_ENOMEM)
        balancer_postpone(balancer, item);
    else if (rc)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, br_strerror(rc));
}

void load_balancing_route(struct load_balancing *balancer, struct br_item *item)
{
    struct division division = {.balancer = balancer, .item = item};
    struct br_list *link;
    if (balancer->closing) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 0, "shutting down");
        return;
    }
    br_list_init(&division.parcels);
    int rc = balancer->n_backends ? balancer_divide(&division) : BR_ENOMEM;
    if (rc) {
        balancer_discard(&division);
        balancer_fail(balancer, item, rc);
        return;
    }
    size_t weight = br_queue_size_of(&balancer->config.otlp->common.sending_queue, item);
    for (link = division.parcels.next; link != &division.parcels; link = link->next)
        br_item_adopt(item, br_container_of(link, struct load_balancing_parcel, link)->item);
    bool empty = br_list_empty(&division.parcels);
    while ((link = br_list_shift(&division.parcels))) {
        struct load_balancing_parcel *parcel =
            br_container_of(link, struct load_balancing_parcel, link);
        parcel->weight = weight;
        load_balancing_backend_add(parcel->backend, parcel);
    }
    if (empty)
        br_item_done(item);
    else
        balancer_release(balancer, item);
}

/* --- Unrouted requests ------------------------------------------------------------------------ */

static void balancer_route_unrouted(struct load_balancing *balancer)
{
    struct br_list list, *link;
    br_list_init(&list);
    while ((link = br_list_shift(&balancer->unrouted)))
        br_list_append(&list, link);
    while ((link = br_list_shift(&list)))
        load_balancing_route(balancer, br_container_of(link, struct br_item, link));
}

static void balancer_on_again(struct br_timer *timer)
{
    struct load_balancing *balancer = br_container_of(timer, struct load_balancing, again);
    (void)br_host_timer_park(balancer->node->host, timer, balancer_on_again);
    load_balancing_expire(balancer);
    balancer_route_unrouted(balancer);
    for (uint32_t i = 0; i < balancer->n_backends; i++)
        load_balancing_backend_send(balancer->backends[i]);
    struct br_list *link;
    for (link = balancer->leaving.next; link != &balancer->leaving; link = link->next)
        load_balancing_backend_send(br_container_of(link, struct load_balancing_backend, link));
}

void load_balancing_again(struct load_balancing *balancer)
{
    (void)br_host_timer(balancer->node->host, &balancer->again, AGAIN_MS, balancer_on_again);
}

void load_balancing_expire(struct load_balancing *balancer)
{
    const struct br_retry_config *retry = &balancer->config.otlp->common.retry_on_failure;
    uint64_t now = br_host_mono_ms(balancer->node->host), most = retry->max_elapsed_time / 1000000;
    struct br_list *link, *next;
    if (retry->enabled && !most)
        return;
    for (link = balancer->unrouted.next; link != &balancer->unrouted; link = next) {
        struct br_item *item = br_container_of(link, struct br_item, link);
        next = link->next;
        if (retry->enabled && (!item->received_ms || now - item->received_ms <= most))
            continue;
        br_list_remove(link);
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "no backend is known");
    }
}

/* --- Changes of the list of backends ---------------------------------------------------------- */

static void balancer_on_clean(struct br_deferred *deferred)
{
    struct load_balancing *balancer = br_container_of(deferred, struct load_balancing, clean);
    struct br_list *link, *next;
    for (link = balancer->leaving.next; link != &balancer->leaving; link = next) {
        struct load_balancing_backend *backend =
            br_container_of(link, struct load_balancing_backend, link);
        next = link->next;
        if (backend->n_parcels == 0)
            load_balancing_backend_free(backend);
    }
}

void load_balancing_clean(struct load_balancing *balancer)
{
    if (!balancer->closing)
        br_host_defer(balancer->node->host, &balancer->clean, balancer_on_clean);
}

/* Returns the backend that has this endpoint, or NULL if no backend in `backends` has it. */
static struct load_balancing_backend *balancer_find(struct load_balancing_backend *const *backends,
                                                    uint32_t count, const char *endpoint)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(backends[i]->endpoint, endpoint) == 0)
            return backends[i];
    return NULL;
}

void load_balancing_add_port(const char *name, char out[LOAD_BALANCING_ENDPOINT_SIZE])
{
    const char *after = strchr(name, ']');
    bool has_port = strchr(after ? after : name, ':') != NULL;
    (void)snprintf(out, LOAD_BALANCING_ENDPOINT_SIZE, has_port ? "%s" : "%s:" DEFAULT_PORT, name);
}

/* Frees the backends in a list, except the backends that `kept` also contains. A backend can be in
 * the list twice, because two names can have the same endpoint. */
static void balancer_free_list(struct load_balancing_backend **backends, uint32_t count,
                               const struct load_balancing *kept)
{
    for (uint32_t i = 0; i < count; i++) {
        struct load_balancing_backend *backend = backends[i];
        for (uint32_t k = i + 1; k < count; k++)
            if (backends[k] == backend)
                backends[k] = NULL;
        if (backend && (!kept || balancer_find(kept->backends, kept->n_backends,
                                               backend->endpoint) != backend))
            load_balancing_backend_free(backend);
    }
}

/* Fills `ret` with the backends of `names`. Reuses existing backends. On failure, frees the
 * backends that it has made, and returns the code in `err`. */
static int balancer_make_list(struct load_balancing *balancer, const char *const *names,
                              uint32_t count, struct load_balancing_backend **ret,
                              struct br_err *err)
{
    for (uint32_t i = 0; i < count; i++) {
        char endpoint[LOAD_BALANCING_ENDPOINT_SIZE];
        load_balancing_add_port(names[i], endpoint);
        ret[i] = balancer_find(balancer->backends, balancer->n_backends, endpoint);
        if (!ret[i])
            ret[i] = balancer_find(ret, i, endpoint);
        if (!ret[i])
            ret[i] = load_balancing_backend_new(balancer, endpoint, err);
        if (ret[i])
            continue;
        balancer_free_list(ret, i, balancer);
        return err->code;
    }
    return 0;
}

/* Replaces the list of backends with `backends`. Data that waits for a removed backend is divided
 * again. */
static void balancer_replace(struct load_balancing *balancer,
                             struct load_balancing_backend **backends, uint32_t count,
                             const struct load_balancing_ring *ring)
{
    struct load_balancing_backend **old = balancer->backends;
    uint32_t n_old = balancer->n_backends;
    load_balancing_ring_release(&balancer->ring);
    balancer->ring = *ring;
    balancer->backends = backends;
    balancer->n_backends = count;
    balancer->generation++;
    for (uint32_t i = 0; i < n_old; i++) {
        struct load_balancing_backend *backend = old[i];
        if (backend->leaving || balancer_find(backends, count, backend->endpoint))
            continue;
        backend->leaving = true;
        br_list_append(&balancer->leaving, &backend->link);
    }
    for (uint32_t i = 0; i < n_old; i++)
        load_balancing_backend_return(old[i]);
    br_free(old);
    load_balancing_clean(balancer);
    balancer_route_unrouted(balancer);
}

int load_balancing_set_backends(struct load_balancing *balancer, const char *const *names,
                                uint32_t count, struct br_err *err)
{
    struct load_balancing_ring ring = {0};
    if (count > LOAD_BALANCING_BACKENDS_MAX)
        count = LOAD_BALANCING_BACKENDS_MAX;
    struct load_balancing_backend **backends = br_calloc(count ? count : 1, sizeof *backends);
    if (!backends || load_balancing_ring_make(&ring, names, count, LOAD_BALANCING_WEIGHT)) {
        br_free(backends);
        return br_err_set(err, BR_ENOMEM, "out of memory");
    }
    int rc = balancer_make_list(balancer, names, count, backends, err);
    if (rc) {
        br_free(backends);
        load_balancing_ring_release(&ring);
        return rc;
    }
    balancer_replace(balancer, backends, count, &ring);
    return 0;
}

/* --- Life ------------------------------------------------------------------------------------ */

bool load_balancing_init(struct load_balancing *balancer, struct br_node *node,
                         const struct load_balancing_config *config)
{
    const struct br_queue_config *queue = &config->otlp->common.sending_queue;
    size_t consumers = br_host_share(node->host, (size_t)config->consumers),
           size = br_host_share(node->host, (size_t)queue->queue_size);
    balancer->node = node;
    balancer->config = *config;
    balancer->consumers = consumers ? (unsigned)consumers : 1;
    balancer->durable = queue->enabled && queue->storage;
    /* data for one failing backend may fill at most half of the queue */
    balancer->backend_max = queue->enabled && !queue->storage ? size / 2 : SIZE_MAX / 2;
    br_list_init(&balancer->leaving);
    br_list_init(&balancer->unrouted);
    return br_host_timer_park(node->host, &balancer->again, balancer_on_again);
}

static void balancer_end_unrouted(struct load_balancing *balancer)
{
    struct br_list *link;
    while ((link = br_list_shift(&balancer->unrouted)))
        br_item_retry(br_container_of(link, struct br_item, link), BR_STATUS_UNAVAILABLE, 0,
                      "shutting down");
}

void load_balancing_stop_retries(struct load_balancing *balancer)
{
    struct br_list *link;
    balancer->stopping = true;
    for (uint32_t i = 0; i < balancer->n_backends; i++)
        br_retry_stop(balancer->backends[i]->retry);
    for (link = balancer->leaving.next; link != &balancer->leaving; link = link->next)
        br_retry_stop(br_container_of(link, struct load_balancing_backend, link)->retry);
    balancer_end_unrouted(balancer);
}

void load_balancing_release(struct load_balancing *balancer)
{
    if (!balancer->node)
        return;
    balancer->closing = true;
    br_host_timer_stop(balancer->node->host, &balancer->again);
    br_host_defer_cancel(&balancer->clean);
    balancer_end_unrouted(balancer);
    balancer_free_list(balancer->backends, balancer->n_backends, NULL);
    while (!br_list_empty(&balancer->leaving))
        load_balancing_backend_free(
            br_container_of(balancer->leaving.next, struct load_balancing_backend, link));
    br_free(balancer->backends);
    load_balancing_ring_release(&balancer->ring);
    balancer->n_backends = 0;
}
