/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/load_balancing/backend.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/str.h"

#define NO_MEMORY_MS 200

/* --- Requests to the backend ------------------------------------------------------------------ */

struct attempt {
    struct load_balancing_backend *backend;
    uint64_t started_ms;
};

static void backend_on_answer(struct br_item *child, void *arg)
{
    const struct attempt *attempt = arg;
    struct load_balancing_backend *backend = attempt->backend;
    uint64_t now = br_host_mono_ms(backend->node.host);
    *(child->outcome.verdict == BR_DONE ? backend->succeeded : backend->failed) += 1;
    backend->failing = child->outcome.verdict == BR_RETRY;
    br_histogram_observe(backend->latency, (double)(now - attempt->started_ms));
    br_item_finish(child->parent, &child->outcome);
}

/* Makes one attempt to send an item. The attempt is a child item, whose callback records the
 * duration and the outcome of the request. */
static void backend_consume(struct br_consumer *self, struct br_item *item)
{
    struct load_balancing_backend *backend =
        br_container_of(self, struct load_balancing_backend, sender);
    struct attempt *attempt = br_arena_calloc(&item->arena, 1, sizeof *attempt);
    struct br_item *child = attempt ? br_item_attempt(item, backend_on_answer, attempt) : NULL;
    if (!child) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, NO_MEMORY_MS, "out of memory");
        return;
    }
    *attempt = (struct attempt){backend, br_host_mono_ms(backend->node.host)};
    br_otlp_sender_send(backend->grpc.sender, child);
}

/* --- Parcels --------------------------------------------------------------------------------- */

/* Removes a parcel (a piece of an item for this backend) and frees it, but does not free its
 * item. */
static void backend_remove_parcel(struct load_balancing_parcel *parcel)
{
    struct load_balancing_backend *backend = parcel->backend;
    backend->n_parcels--;
    backend->weight -= parcel->weight;
    br_list_remove(&parcel->link);
    br_free(parcel);
}

static void backend_on_sent(struct br_item *child, void *arg)
{
    struct load_balancing_parcel *parcel = arg;
    struct load_balancing_backend *backend = parcel->backend;
    struct load_balancing *balancer = backend->balancer;
    struct br_item *item = parcel->item;
    bool moves = child->outcome.verdict == BR_RETRY && !balancer->closing && !balancer->stopping &&
                 parcel->generation != balancer->generation;
    backend->n_sending--;
    backend_remove_parcel(parcel);
    if (moves)
        load_balancing_route(balancer, item);
    else
        br_item_finish(item, &child->outcome);
    load_balancing_backend_send(backend);
    if (backend->leaving && backend->n_parcels == 0)
        load_balancing_clean(balancer);
}

void load_balancing_backend_send(struct load_balancing_backend *backend)
{
    const struct load_balancing *balancer = backend->balancer;
    while (backend->n_sending < balancer->consumers && !br_list_empty(&backend->waiting)) {
        struct load_balancing_parcel *parcel =
            br_container_of(backend->waiting.next, struct load_balancing_parcel, link);
        struct br_item *child = br_item_attempt(parcel->item, backend_on_sent, parcel);
        if (!child) {
            load_balancing_again(backend->balancer);
            return;
        }
        br_list_remove(&parcel->link);
        backend->n_sending++;
        br_consume(br_retry_input(backend->retry), child);
    }
}

void load_balancing_backend_add(struct load_balancing_backend *backend,
                                struct load_balancing_parcel *parcel)
{
    const struct load_balancing *balancer = backend->balancer;
    if (backend->failing && backend->weight + parcel->weight > balancer->backend_max) {
        char why[sizeof((struct br_outcome *)0)->text];
        (void)snprintf(why, sizeof why, "too many requests wait for %s", backend->endpoint);
        br_item_retry(parcel->item, BR_STATUS_UNAVAILABLE, 1000, why);
        br_free(parcel);
        return;
    }
    /* read at this time, because the durable queue sets max_age_ms only when it is started */
    uint64_t max_age_ms = balancer->node->max_age_ms;
    if (max_age_ms)
        br_retry_keep(backend->retry, max_age_ms == UINT64_MAX ? 0 : max_age_ms);
    parcel->backend = backend;
    parcel->generation = balancer->generation;
    backend->n_parcels++;
    backend->weight += parcel->weight;
    br_list_append(&backend->waiting, &parcel->link);
    load_balancing_backend_send(backend);
}

void load_balancing_backend_return(struct load_balancing_backend *backend)
{
    struct br_list waiting, *link;
    br_list_init(&waiting);
    while ((link = br_list_shift(&backend->waiting)))
        br_list_append(&waiting, link);
    while ((link = br_list_shift(&waiting))) {
        struct load_balancing_parcel *parcel =
            br_container_of(link, struct load_balancing_parcel, link);
        struct br_item *item = parcel->item;
        if (parcel->generation == backend->balancer->generation) {
            br_list_append(&backend->waiting, &parcel->link);
            continue;
        }
        backend_remove_parcel(parcel);
        load_balancing_route(backend->balancer, item);
    }
    br_retry_return(backend->retry, "the list of backends has changed");
    if (backend->leaving)
        br_retry_stop(backend->retry);
}

/* --- Life ------------------------------------------------------------------------------------ */

static void backend_make_metrics(struct load_balancing_backend *backend)
{
    /* bounds of the histogram in milliseconds, as in the Collector's metadata.yaml */
    static const double bounds[] = {5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000};
    struct br_metrics *metrics = backend->node.host->metrics;
    struct br_str labels = {.max = 1024};
    br_label(&labels, "exporter", backend->node.id);
    br_label(&labels, "endpoint", backend->endpoint);
    backend->latency = br_histogram(metrics, "otelcol_loadbalancer_backend_latency",
                                    labels.data ? labels.data : "", bounds, BR_COUNT(bounds));
    size_t len = labels.len;
    for (int success = 0; success < 2; success++) {
        double **metric = success ? &backend->succeeded : &backend->failed;
        labels.len = len;
        br_label(&labels, "success", success ? "true" : "false");
        *metric = br_metric(metrics, BR_COUNTER, "otelcol_loadbalancer_backend_outcome",
                            labels.data ? labels.data : "");
    }
    br_str_release(&labels);
}

struct load_balancing_backend *load_balancing_backend_new(struct load_balancing *balancer,
                                                          const char *endpoint, struct br_err *err)
{
    const struct br_otlp_grpc_config *otlp = balancer->config.otlp;
    struct load_balancing_backend *backend = br_calloc(1, sizeof *backend);
    char name[512];
    if (!backend) {
        (void)br_err_set(err, BR_ENOMEM, "out of memory");
        return NULL;
    }
    (void)snprintf(name, sizeof name, "%s %s", balancer->node->log.name, endpoint);
    backend->balancer = balancer;
    backend->sender.consume = backend_consume;
    br_list_init(&backend->link);
    br_list_init(&backend->waiting);
    backend->node = *balancer->node;
    backend->node.retry = NULL;
    backend->endpoint = br_strdup(endpoint);
    backend->node.log.name = backend->log_name = br_strdup(name);
    backend->retry = br_retry_new(&backend->node, &otlp->common.retry_on_failure, &backend->sender);
    int rc = BR_ENOMEM;
    if (!backend->endpoint || !backend->log_name || !backend->retry ||
        !br_otlp_grpc_init(&backend->grpc, &backend->node, otlp))
        (void)br_err_set(err, rc, "out of memory");
    else
        rc = br_otlp_grpc_connect(&backend->grpc, &backend->node, otlp, backend->endpoint, err);
    if (rc) {
        load_balancing_backend_free(backend);
        return NULL;
    }
    backend_make_metrics(backend);
    return backend;
}

/* Frees the requests, and then the retries. After each of these two steps, one loop iteration runs
 * the callbacks of the items that the step has finished. */
void load_balancing_backend_free(struct load_balancing_backend *backend)
{
    struct br_list *link;
    if (!backend)
        return;
    struct br_host *host = backend->node.host;
    bool busy = backend->n_parcels > 0;
    while ((link = br_list_shift(&backend->waiting))) {
        struct load_balancing_parcel *parcel =
            br_container_of(link, struct load_balancing_parcel, link);
        br_item_retry(parcel->item, BR_STATUS_UNAVAILABLE, 0, "shutting down");
        backend_remove_parcel(parcel);
    }
    br_otlp_grpc_release(&backend->grpc);
    if (busy)
        (void)br_host_iterate(host);
    br_retry_free(backend->retry);
    if (busy)
        (void)br_host_iterate(host);
    br_list_remove(&backend->link);
    br_free(backend->endpoint);
    br_free(backend->log_name);
    br_free(backend);
}
