/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "core/shed.h"
#include "extensions/control/control.h"

#define ROW_MAX 8192

/* A request that is broadcast to the workers. The workers handle the call one after the other, so
 * the call needs no lock. */
struct call {
    struct br_list link; /* link in control->calls */
    struct br_broadcast broadcast;
    struct control *control;
    /* the client's request; NULL: the client has disconnected or has received its response */
    struct br_request *request;
    /* The next fields are used only for adding an override. */
    struct control_override *override;
    /* sum of the results of br_override_apply on the workers, or the error code that `err`
     * explains */
    int applies;
    struct br_err err;
    /* The next fields are used only for ending overrides. */
    uint64_t ids[BR_OVERRIDES_MAX];
    size_t n_ids;
    /* The next fields are used only for listing the active profiling. */
    struct br_map *rows; /* set of JSON rows; several workers may report the same row */
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
        control_overrides_discard(&call->control->overrides, call->override);
    br_map_free(call->rows, NULL);
    br_free(call);
}

static void control_call_busy(struct br_request *request)
{
    control_reply_error(request, 503, &(struct br_header){"retry-after", "1"}, NULL,
                        "too many requests are in progress; try again later");
}

static struct call *call_new(struct control *control, struct br_request *request)
{
    struct call *call = control->n_calls < CONTROL_CALLS_MAX ? br_calloc(1, sizeof *call) : NULL;
    if (!call)
        return NULL;
    call->control = control;
    call->request = request;
    if (request)
        request->user = call;
    br_list_append(&control->calls, &call->link);
    control->n_calls++;
    return call;
}

/* Sends a call to the workers. On failure, answers the client's request with 503 and frees the
 * call. */
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
    struct call *call = request->user;
    if (call)
        call->request = NULL;
    request->user = NULL;
}

/* Calls can be in progress here only if the host runs without event loops. With event loops, all
 * broadcasts end before nodes are destroyed. */
void control_calls_release(struct control *control)
{
    if (!control->node)
        return;
    while (!br_list_empty(&control->calls)) {
        struct call *call = br_container_of(control->calls.next, struct call, link);
        br_host_defer_cancel(&call->broadcast.deferred);
        call_free(call);
    }
}

/* --- Ending overrides ------------------------------------------------------------------------ */

static void control_call_visit_end(struct br_broadcast *broadcast, struct br_host *host)
{
    struct call *call = call_of(broadcast);
    for (size_t i = 0; i < call->n_ids; i++)
        br_override_withdraw(host, call->ids[i]);
}

static void control_call_done_end(struct br_broadcast *broadcast, struct br_host *home)
{
    struct call *call = call_of(broadcast);
    struct br_request *request = call->request;
    char buffer[64];
    struct br_str json = {.data = buffer, .cap = sizeof buffer, .max = 63, .fixed = true};
    (void)home;
    for (size_t i = 0; i < call->n_ids; i++)
        control_overrides_end(&call->control->overrides, call->ids[i]);
    br_str_printf(&json, "{\"ended\":%zu}\n", call->n_ids);
    call_free(call);
    if (request)
        control_reply(request, 200, NULL, &json);
}

void control_call_end(struct control *control, struct br_request *request, uint64_t id,
                      const char *service)
{
    struct call *call = call_new(control, request);
    if (!call) {
        control_call_busy(request);
        return;
    }
    call->broadcast.visit = control_call_visit_end;
    call->broadcast.done = control_call_done_end;
    call->n_ids = control_overrides_match(&control->overrides, id, service, call->ids);
    if (call->n_ids || !id) {
        control_call_send(call);
        return;
    }
    call_free(call);
    control_reply_error(request, 404, NULL, NULL, "no override has this id; it may have ended");
}

/* Ends an override on the workers that accepted it, because another worker could not accept it. */
static void control_call_withdraw(struct control *control, uint64_t id)
{
    struct call *call = call_new(control, NULL);
    if (!call)
        /* if the request to end the override cannot be sent, the override remains until it
         * expires */
        return;
    call->broadcast.visit = control_call_visit_end;
    call->broadcast.done = control_call_done_end;
    call->ids[call->n_ids++] = id;
    control_call_send(call);
}

/* --- Adding an override ---------------------------------------------------------------------- */

static void control_call_visit_add(struct br_broadcast *broadcast, struct br_host *host)
{
    struct call *call = call_of(broadcast);
    int n = call->applies < 0 ? 0 : br_override_apply(host, &call->override->base, &call->err);
    call->applies = n < 0 ? n : call->applies + n;
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

static void control_call_reject_override(struct call *call)
{
    struct control *control = call->control;
    struct br_request *request = call->request;
    struct br_err err = call->err;
    int rc = call->applies;
    uint64_t id = call->override->base.id;
    call_free(call);
    if (rc < 0)
        control_call_withdraw(control, id);
    if (!request)
        return;
    if (rc < 0)
        control_reply_error(request, 503, &(struct br_header){"retry-after", "1"}, NULL, "%s",
                            err.text[0] ? err.text : br_strerror(rc));
    else if (control->node->host->draining)
        control_reply_error(request, 503, NULL, NULL, "shutting down");
    else
        control_reply_error(request, 422, NULL, NULL,
                            "no component can do that: no pprof target matches, and no join keeps "
                            "links by overrides");
}

static void control_call_done_add(struct br_broadcast *broadcast, struct br_host *home)
{
    struct call *call = call_of(broadcast);
    struct control *control = call->control;
    (void)home;
    if (call->applies <= 0) {
        control_call_reject_override(call);
        return;
    }
    struct control_override *override = call->override;
    struct br_request *request = call->request;
    call->override = NULL;
    call_free(call);
    if (request)
        control_call_reply_override(control, request, override, 201);
    control_overrides_add(&control->overrides, override);
}

void control_call_add(struct control *control, struct br_request *request,
                      struct control_override *override)
{
    uint64_t wait_s;
    char after[24];
    struct call *call = call_new(control, request);
    if (!call) {
        control_override_free(override);
        control_call_busy(request);
        return;
    }
    if (control_overrides_admit(&control->overrides, override, &wait_s)) {
        control_override_free(override);
        call_free(call);
        (void)snprintf(after, sizeof after, "%llu", (unsigned long long)wait_s);
        control_reply_error(request, 429, &(struct br_header){"retry-after", after}, NULL,
                            "max_overrides overrides are active; end one, or wait");
        return;
    }
    call->override = override;
    call->broadcast.visit = control_call_visit_add;
    call->broadcast.done = control_call_done_add;
    control_call_send(call);
}

/* --- Listing --------------------------------------------------------------------------------- */

static void control_call_on_collected(const struct br_collected *collected, void *arg)
{
    struct call *call = arg;
    struct br_str row = {.max = ROW_MAX};
    control_put_collected(&row, collected);
    if (row.failed || br_map_count(call->rows) == CONTROL_ROWS_MAX ||
        br_map_put(call->rows, row.data, row.len, call, NULL))
        call->cut = true;
    br_str_release(&row);
}

static void control_call_visit_list(struct br_broadcast *broadcast, struct br_host *host)
{
    struct call *call = call_of(broadcast);
    unsigned step = br_shed_step(host);
    if (step > call->step)
        call->step = step;
    br_override_list(host, control_call_on_collected, call);
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
    struct call *call = call_of(broadcast);
    struct br_request *request = call->request;
    struct br_str json = {0};
    (void)home;
    if (request) {
        br_str_puts(&json, "{\"collected\":[");
        control_call_put_rows(&json, call);
        br_str_puts(&json, "],\"overrides\":[");
        control_call_put_overrides(&json, call->control);
        br_str_printf(&json, "],\"shedding\":{\"step\":%u,\"what\":", call->step);
        br_str_json(&json, br_shed_text(call->step), strlen(br_shed_text(call->step)));
        br_str_printf(&json, "},\"truncated\":%s}\n", call->cut ? "true" : "false");
    }
    call_free(call);
    if (request)
        control_reply(request, 200, NULL, &json);
    br_str_release(&json);
}

void control_call_list(struct control *control, struct br_request *request)
{
    struct call *call = call_new(control, request);
    if (call && !(call->rows = br_map_new(CONTROL_ROWS_MAX))) {
        call_free(call);
        call = NULL;
    }
    if (!call) {
        control_call_busy(request);
        return;
    }
    call->broadcast.visit = control_call_visit_list;
    call->broadcast.done = control_call_done_list;
    control_call_send(call);
}
