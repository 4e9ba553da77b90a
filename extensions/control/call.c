/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "core/shed.h"
#include "extensions/control/control.h"

#define ROW_MAX 8192

/* One request on its way through the workers. Alone in each worker's thread, so it has no lock. */
struct call {
    struct br_list link; /* control->calls */
    struct br_broadcast broadcast;
    struct control *control;
    struct br_request *request; /* NULL: the client went away, or it has been answered */
    /* add */
    struct control_override *override;
    int applies; /* to so many things, or the code of err */
    struct br_err err;
    /* end */
    uint64_t ids[BR_OVERRIDES_MAX];
    size_t n_ids;
    /* list */
    struct br_map *rows; /* as JSON, each once: workers tell the same of what they all do */
    bool cut;
    unsigned step;
};

static struct call *call_of(struct br_broadcast *broadcast)
{
    return br_container_of(broadcast, struct call, broadcast);
}

static void call_free(struct call *call)
{
    if (call->request)
        call->request->user = NULL;
    br_list_remove(&call->link);
    call->control->n_calls--;
    if (call->override)
        control_overrides_forget(&call->control->overrides, call->override);
    br_map_free(call->rows, NULL);
    br_free(call);
}

static void control_call_busy(struct br_request *request)
{
    control_reply_error(request, 503, &(struct br_header){"retry-after", "1"}, NULL,
                        "too much is under way; send it again");
}

static struct call *call_new(struct control *control, struct br_request *request)
{
    struct call *k = control->n_calls < CONTROL_CALLS_MAX ? br_calloc(1, sizeof *k) : NULL;
    if (!k)
        return NULL;
    k->control = control;
    k->request = request;
    if (request)
        request->user = k;
    br_list_append(&control->calls, &k->link);
    control->n_calls++;
    return k;
}

/* Sends the call on its way; where that cannot be, its request is answered, and it ends. */
static void control_call_send(struct call *call)
{
    struct br_request *request = call->request;
    if (br_broadcast_send(&call->broadcast, call->control->node->host))
        return;
    call_free(call);
    if (request)
        control_call_busy(request);
}

void control_call_gone(struct br_request *request)
{
    struct call *k = request->user;
    if (k)
        k->request = NULL;
    request->user = NULL;
}

/* Broadcasts come back before nodes are destroyed, but not where there are no loops for them. */
void control_calls_release(struct control *control)
{
    if (!control->node)
        return;
    while (!br_list_empty(&control->calls)) {
        struct call *k = br_container_of(control->calls.next, struct call, link);
        br_host_defer_cancel(&k->broadcast.deferred);
        call_free(k);
    }
}

/* --- Ending overrides ------------------------------------------------------------------------- */

static void control_call_visit_end(struct br_broadcast *broadcast, struct br_host *host)
{
    struct call *k = call_of(broadcast);
    for (size_t i = 0; i < k->n_ids; i++)
        br_override_withdraw(host, k->ids[i]);
}

static void control_call_done_end(struct br_broadcast *broadcast, struct br_host *home)
{
    struct call *k = call_of(broadcast);
    struct br_request *request = k->request;
    char buffer[64];
    struct br_str json = {.data = buffer, .cap = sizeof buffer, .max = 63, .fixed = true};
    (void)home;
    for (size_t i = 0; i < k->n_ids; i++)
        control_overrides_end(&k->control->overrides, k->ids[i]);
    br_str_printf(&json, "{\"ended\":%zu}\n", k->n_ids);
    call_free(k);
    if (request)
        control_reply(request, 200, NULL, &json);
}

void control_call_end(struct control *control, struct br_request *request, uint64_t id,
                      const char *service)
{
    struct call *k = call_new(control, request);
    if (!k) {
        control_call_busy(request);
        return;
    }
    k->broadcast.visit = control_call_visit_end;
    k->broadcast.done = control_call_done_end;
    k->n_ids = control_overrides_match(&control->overrides, id, service, k->ids);
    if (k->n_ids || !id) {
        control_call_send(k);
        return;
    }
    call_free(k);
    control_reply_error(request, 404, NULL, NULL, "there is no such override; it may have ended");
}

/* An override that some workers took and others could not: not all of it is none of it. */
static void control_call_take_back(struct control *control, uint64_t id)
{
    struct call *k = call_new(control, NULL);
    if (!k)
        return; /* it ends by itself */
    k->broadcast.visit = control_call_visit_end;
    k->broadcast.done = control_call_done_end;
    k->ids[k->n_ids++] = id;
    control_call_send(k);
}

/* --- Adding an override ----------------------------------------------------------------------- */

static void control_call_visit_add(struct br_broadcast *broadcast, struct br_host *host)
{
    struct call *k = call_of(broadcast);
    int n = k->applies < 0 ? 0 : br_override_apply(host, &k->override->base, &k->err);
    k->applies = n < 0 ? n : k->applies + n;
}

static void control_call_reply_override(struct control *control, struct br_request *request,
                                        const struct control_override *override, unsigned status)
{
    char at[sizeof CONTROL_PATH + 1 + CONTROL_ID_LEN];
    struct br_str json = {0};
    (void)snprintf(at, sizeof at, CONTROL_PATH "/%016llx", (unsigned long long) override->base.id);
    control_put_override(&json, override, br_host_mono_ms(control->node->host));
    br_str_putc(&json, '\n');
    control_reply(request, status, &(struct br_header){"location", at}, &json);
    br_str_release(&json);
}

static void control_call_refuse_override(struct call *call)
{
    struct control *control = call->control;
    struct br_request *request = call->request;
    struct br_err err = call->err;
    int rc = call->applies;
    uint64_t id = call->override->base.id;
    call_free(call);
    if (rc < 0)
        control_call_take_back(control, id);
    if (!request)
        return;
    if (rc < 0)
        control_reply_error(request, 503, &(struct br_header){"retry-after", "1"}, NULL, "%s",
                            err.text[0] ? err.text : br_strerror(rc));
    else if (control->node->host->draining)
        control_reply_error(request, 503, NULL, NULL, "shutting down");
    else
        control_reply_error(request, 422, NULL, NULL,
                            "nothing here can do that: no pprof target fits, and no join keeps "
                            "links by overrides");
}

static void control_call_done_add(struct br_broadcast *broadcast, struct br_host *home)
{
    struct call *k = call_of(broadcast);
    struct control *control = k->control;
    (void)home;
    if (k->applies <= 0) {
        control_call_refuse_override(k);
        return;
    }
    struct control_override *override = k->override;
    struct br_request *request = k->request;
    k->override = NULL;
    call_free(k);
    if (request)
        control_call_reply_override(control, request, override, 201);
    control_overrides_add(&control->overrides, override);
}

void control_call_add(struct control *control, struct br_request *request,
                      struct control_override *override)
{
    uint64_t wait_s;
    char after[24];
    struct call *k = call_new(control, request);
    if (!k) {
        control_override_free(override);
        control_call_busy(request);
        return;
    }
    if (control_overrides_admit(&control->overrides, override, &wait_s)) {
        control_override_free(override);
        call_free(k);
        (void)snprintf(after, sizeof after, "%llu", (unsigned long long)wait_s);
        control_reply_error(
            request, 429, &(struct br_header){"retry-after", after}, NULL,
            "there are as many overrides as max_overrides allows; end one, or wait");
        return;
    }
    k->override = override;
    k->broadcast.visit = control_call_visit_add;
    k->broadcast.done = control_call_done_add;
    control_call_send(k);
}

/* --- What is collected ------------------------------------------------------------------------ */

static void control_call_on_collected(const struct br_collected *collected, void *arg)
{
    struct call *k = arg;
    struct br_str row = {.max = ROW_MAX};
    control_put_collected(&row, collected);
    if (row.failed || br_map_count(k->rows) == CONTROL_ROWS_MAX ||
        br_map_put(k->rows, row.data, row.len, k, NULL))
        k->cut = true;
    br_str_release(&row);
}

static void control_call_visit_list(struct br_broadcast *broadcast, struct br_host *host)
{
    struct call *k = call_of(broadcast);
    unsigned step = br_shed_step(host);
    if (step > k->step)
        k->step = step;
    br_override_list(host, control_call_on_collected, k);
}

static void control_call_put_rows(struct br_str *out, const struct call *call)
{
    const void *row;
    size_t len;
    for (size_t i = 0; br_map_at(call->rows, i, &row, &len); i++) {
        if (i)
            br_str_putc(out, ',');
        br_str_add(out, row, len);
    }
}

static void control_call_put_overrides(struct br_str *out, struct control *control)
{
    uint64_t now = br_host_mono_ms(control->node->host);
    bool first = true;
    for (struct br_list *list = control->overrides.list.next; list != &control->overrides.list;
         list = list->next) {
        const struct control_override *override =
            br_container_of(list, struct control_override, link);
        if (override->base.until_ms <= now)
            continue;
        if (!first)
            br_str_putc(out, ',');
        control_put_override(out, override, now);
        first = false;
    }
}

static void control_call_done_list(struct br_broadcast *broadcast, struct br_host *home)
{
    struct call *k = call_of(broadcast);
    struct br_request *request = k->request;
    struct br_str json = {0};
    (void)home;
    if (request) {
        br_str_puts(&json, "{\"collected\":[");
        control_call_put_rows(&json, k);
        br_str_puts(&json, "],\"overrides\":[");
        control_call_put_overrides(&json, k->control);
        br_str_printf(&json, "],\"shedding\":{\"step\":%u,\"what\":", k->step);
        br_str_json(&json, br_shed_text(k->step), strlen(br_shed_text(k->step)));
        br_str_printf(&json, "},\"truncated\":%s}\n", k->cut ? "true" : "false");
    }
    call_free(k);
    if (request)
        control_reply(request, 200, NULL, &json);
    br_str_release(&json);
}

void control_call_list(struct control *control, struct br_request *request)
{
    struct call *k = call_new(control, request);
    if (k && !(k->rows = br_map_new(CONTROL_ROWS_MAX))) {
        call_free(k);
        k = NULL;
    }
    if (!k) {
        control_call_busy(request);
        return;
    }
    k->broadcast.visit = control_call_visit_list;
    k->broadcast.done = control_call_done_list;
    control_call_send(k);
}
