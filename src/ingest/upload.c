/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/upload.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "ingest/job.h"
#include "ingest/pieces.h"

#define DELAY_MS 1000
#define SHED_DELAY_MS 5000
#define METADATA_MAX 16384
#define MEMORY_LIMIT "memory limit reached"

/* --- The end of an intake --------------------------------------------------------------------- */

static void forget(struct br_upload *x)
{
    br_list_remove(&x->link);
    br_free(x->partly);
    br_free(x);
}

static void answer(struct br_upload *x, const struct br_outcome *o)
{
    struct br_request *r = x->request;
    struct br_upload was = *x;
    was.request = NULL;
    was.partly = NULL;
    r->user = NULL;
    forget(x);
    was.kind->answer(&was, r, o);
}

static void refuse(struct br_upload *x, const struct br_outcome *o)
{
    *x->meter->refused[x->signal] += 1;
    answer(x, o);
}

static void reject(struct br_upload *x, const struct br_outcome *o)
{
    *x->meter->failed[x->signal] += 1;
    answer(x, o);
}

void br_upload_refuse(struct br_upload *x, const char *why)
{
    struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, DELAY_MS, "%s", why);
    refuse(x, &o);
}

void br_upload_reject(struct br_upload *x, enum br_status status, const char *why)
{
    struct br_outcome o = br_outcome_reject(status, "%s", why);
    reject(x, &o);
}

/* --- Its beginning ---------------------------------------------------------------------------- */

/* What a new intake is refused for before its body is read; false when it was. */
static bool admit(struct br_upload *x)
{
    struct br_node *node = x->listener->ingest->node;
    if (!node->next[x->signal]) {
        struct br_outcome o =
            br_outcome_reject(BR_STATUS_UNIMPLEMENTED, "receiver %s is in no %s pipeline", node->id,
                              br_signal_name(x->signal));
        reject(x, &o);
        return false;
    }
    if (node->draining || br_host_over_limit(node->host)) {
        br_upload_refuse(x, node->draining ? "shutting down" : MEMORY_LIMIT);
        return false;
    }
    if (br_shed_refuses(node->host, x->signal)) {
        struct br_outcome o =
            br_outcome_retry(BR_STATUS_UNAVAILABLE, SHED_DELAY_MS, "there is too much to do");
        refuse(x, &o);
        return false;
    }
    return true;
}

/* What the memory limit never has room for is too large, whatever the config says. */
static size_t largest_body(const struct br_upload *x)
{
    struct br_memory *memory = x->listener->ingest->node->host->memory;
    size_t max = x->listener->max_body, largest = memory ? br_memory_largest(memory) : SIZE_MAX;
    return largest < max ? largest : max;
}

struct br_upload *br_upload_new(const struct br_upload *how, struct br_request *r)
{
    struct br_upload *x = br_malloc(sizeof *x);
    if (!x) {
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, DELAY_MS, "out of memory");
        *how->meter->refused[how->signal] += 1;
        how->kind->answer(how, r, &o);
        return NULL;
    }
    *x = *how;
    x->request = r;
    x->item = NULL;
    x->job = NULL;
    x->partly = NULL;
    r->user = x;
    r->max_body = largest_body(x);
    br_list_append(&x->listener->ingest->intakes, &x->link);
    return admit(x) ? x : NULL;
}

/* What was refused is large: room is made for when it comes again. Whether it may then fit. */
static bool may_fit_later(const struct br_upload *x, size_t wanted)
{
    struct br_memory *memory = x->listener->ingest->node->host->memory;
    if (!memory || wanted < br_memory_hard(memory) / BR_READING_LARGE)
        return true;
    br_memory_settle(memory, 0);
    return wanted <= br_memory_largest(memory);
}

/* --- Its body --------------------------------------------------------------------------------- */

static void on_body(struct br_handler *self, struct br_request *r)
{
    struct br_upload *x = r->user;
    (void)self;
    if (r->body_error == BR_BODY_TOO_BIG) {
        struct br_outcome o = br_outcome_reject(
            BR_STATUS_RESOURCE_EXHAUSTED, "the request is larger than %zu bytes", r->max_body);
        reject(x, &o);
        return;
    }
    if (r->body_error == BR_BODY_MALFORMED) {
        br_upload_reject(x, BR_STATUS_INVALID_ARGUMENT, "one length-prefixed message is expected");
        return;
    }
    if (r->body_error && may_fit_later(x, r->body_wanted)) {
        br_upload_refuse(x, MEMORY_LIMIT);
        return;
    }
    if (r->body_error) {
        br_upload_reject(x, BR_STATUS_RESOURCE_EXHAUSTED,
                         "the request is larger than the memory limit ever leaves");
        return;
    }
    if (r->grpc_compressed && x->encoding == BR_ENCODING_NONE) {
        br_upload_reject(x, BR_STATUS_INTERNAL,
                         "a message is marked compressed without a grpc-encoding");
        return;
    }
    struct br_buf *body = r->body ? r->body : br_buf_new(r->pool, 1);
    r->body = NULL;
    if (body)
        br_upload_read(x, body);
    else
        br_upload_refuse(x, MEMORY_LIMIT);
}

static void on_gone(struct br_handler *self, struct br_request *r)
{
    struct br_upload *x = r->user;
    (void)self;
    r->user = NULL;
    if (!x)
        return;
    x->request = NULL;
    if (x->job)
        br_upload_job_leave(x);
    if (!x->item)
        forget(x);
}

/* --- Its item --------------------------------------------------------------------------------- */

/* The header that a key of the metadata is taken from. */
static const char *source_of(const struct br_ingest *g, const char *key)
{
    return g->tenant_header && strcasecmp(key, BR_TENANT_KEY) == 0 ? g->tenant_header : key;
}

/* Keeps what batches are separated by: name\0value\0 pairs, ended by an empty name. */
static void keep_metadata(struct br_item *item, const struct br_ingest *g,
                          const struct br_request *r)
{
    const struct br_strings *keys = g->node->metadata_keys;
    struct br_str text = {.max = METADATA_MAX};
    for (size_t i = 0; keys && i < keys->n; i++) {
        const char *key = keys->v[i], *source = source_of(g, key);
        for (size_t k = 0; k < r->n_headers; k++) {
            if (strcasecmp(r->headers[k].name, source) != 0)
                continue;
            br_str_add(&text, key, strlen(key) + 1);
            br_str_add(&text, r->headers[k].value, strlen(r->headers[k].value) + 1);
        }
    }
    if (text.len && !text.failed)
        item->metadata = br_arena_strndup(&item->arena, text.data, text.len);
    br_str_release(&text);
}

int br_upload_partly(struct br_upload *x, uint32_t n, enum br_status status, const char *why)
{
    struct br_outcome *o = br_malloc(sizeof *o);
    if (!o)
        return BR_ENOMEM;
    *o = br_outcome_reject(status, "%s", why);
    x->partly = o;
    *x->meter->failed[x->signal] += n;
    return 0;
}

static void on_stopped(void *arg)
{
    struct br_ingest *g = arg;
    if (--g->n_stopping == 0)
        br_node_drained(g->node);
}

/* The last sending may end after the last request has. */
static void check_sendings(struct br_ingest *g)
{
    if (!g->awaits_sendings || !br_list_empty(&g->sendings))
        return;
    g->awaits_sendings = false;
    on_stopped(g);
}

static void on_done(struct br_item *item, void *arg)
{
    struct br_upload *x = arg;
    struct br_ingest *g = x->listener->ingest;
    const struct br_meter *m = x->meter;
    const struct br_outcome *o = &item->outcome;
    double *const *by = o->verdict == BR_DONE    ? m->accepted
                        : o->verdict == BR_RETRY ? m->refused
                                                 : m->failed;
    *by[x->signal] += item->received_items;
    x->item = NULL;
    if (x->request) {
        struct br_outcome how = x->partly && o->verdict == BR_DONE ? *x->partly : *o;
        answer(x, &how);
    } else {
        forget(x);
    }
    check_sendings(g);
}

void br_upload_send(struct br_upload *x, struct br_item *item, struct br_list *pieces)
{
    struct br_ingest *g = x->listener->ingest;
    keep_metadata(item, g, x->request);
    br_item_received(item);
    item->done = on_done;
    item->done_arg = x;
    x->item = item;
    if (br_shed_drops(g->node->host, item->signal)) {
        br_pieces_free(pieces);
        br_shed_item(item);
    } else if (!br_list_empty(pieces)) {
        br_pieces_send(g->node, item, pieces, &g->sendings);
    } else {
        br_node_forward(g->node, item);
    }
}

/* --- What is collected ------------------------------------------------------------------------ */

static int apply(struct br_overridable *t, const struct br_override *rule, struct br_err *err)
{
    (void)t;
    (void)rule;
    (void)err;
    return 0; /* nobody can be asked to push more */
}

static void withdraw(struct br_overridable *t, uint64_t id)
{
    (void)t;
    (void)id;
}

static void list(const struct br_overridable *t, br_collected_fn *fn, void *arg)
{
    const struct br_ingest *g = br_container_of(t, struct br_ingest, overridable);
    if (g->node->next[BR_PROFILES] && !br_list_empty(&g->listeners))
        fn(&(struct br_collected){.component = g->node->id,
                                  .service = "",
                                  .target = "",
                                  .type = "pushed",
                                  .state = "ok"},
           arg);
}

static const struct br_overridable_ops overridable_ops = {apply, withdraw, list};

/* --- The node --------------------------------------------------------------------------------- */

int br_ingest_init(struct br_ingest *g, struct br_node *node, struct br_err *err)
{
    g->node = node;
    br_list_init(&g->intakes);
    br_list_init(&g->listeners);
    br_list_init(&g->sendings);
    br_list_init(&g->jobs);
    g->overridable.ops = &overridable_ops;
    br_overridable_register(&g->overridable, node->host);
    return br_workbench_init(&g->bench) ? br_err_set(err, BR_ENOMEM, "out of memory") : 0;
}

void br_ingest_release(struct br_ingest *g)
{
    if (!g->node)
        return;
    br_overridable_unregister(&g->overridable);
    while (!br_list_empty(&g->listeners)) {
        struct br_ingest_listener *d = br_container_of(g->listeners.next, struct br_ingest_listener, link);
        br_list_remove(&d->link);
        br_server_free(d->server);
    }
    br_pieces_stop(&g->sendings);
    while (!br_list_empty(&g->intakes)) {
        struct br_upload *x = br_container_of(g->intakes.next, struct br_upload, link);
        if (x->item)
            x->item->done = NULL; /* it is still in the pipeline; nobody waits any more */
        if (x->job)
            br_upload_job_leave(x);
        forget(x);
    }
    br_upload_jobs_wait(&g->jobs);
    br_workbench_release(&g->bench);
}

void br_ingest_drain(struct br_ingest *g)
{
    g->n_stopping = 2;
    g->awaits_sendings = true;
    for (struct br_list *l = g->listeners.next; l != &g->listeners; l = l->next) {
        g->n_stopping++;
        br_server_stop(br_container_of(l, struct br_ingest_listener, link)->server, on_stopped, g);
    }
    check_sendings(g);
    on_stopped(g);
}

int br_ingest_listen(struct br_ingest *g, struct br_ingest_listener *d, const char *what,
                 struct br_server_config *config, struct br_err *err)
{
    struct br_host *host = g->node->host;
    (void)snprintf(d->name, sizeof d->name, "receiver/%.120s %s", g->node->id, what);
    d->ingest = g;
    d->service.body = on_body;
    d->service.gone = on_gone;
    config->name = d->name;
    config->what = what;
    config->log = &g->node->log;
    int rc = host->ops->serve(host, config, &d->service, &d->server, err);
    if (!rc)
        br_list_append(&g->listeners, &d->link);
    return rc;
}

void br_meter_init(struct br_meter *m, struct br_node *node, const char *transport,
                   unsigned signals)
{
    static const char *const items[BR_SIGNALS] = {"spans", "profile_samples"};
    static const char *const words[] = {"accepted", "refused", "failed"};
    double **const of[] = {m->accepted, m->refused, m->failed};
    for (int s = 0; s < BR_SIGNALS; s++) {
        for (int i = 0; i < 3 && (signals & BR_SIGNAL_BIT(s)); i++) {
            char name[96];
            (void)snprintf(name, sizeof name, "otelcol_receiver_%s_%s", words[i], items[s]);
            of[i][s] = br_node_metric(node, BR_COUNTER, name, "transport", transport);
        }
    }
}
