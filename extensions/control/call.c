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
    struct control_override *rule;
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

static struct call *call_of(struct br_broadcast *e)
{
    return br_container_of(e, struct call, broadcast);
}

static void call_free(struct call *k)
{
    if (k->request)
        k->request->user = NULL;
    br_list_remove(&k->link);
    k->control->n_calls--;
    if (k->rule)
        control_overrides_forget(&k->control->rules, k->rule);
    br_map_free(k->rows, NULL);
    br_free(k);
}

static void busy(struct br_request *r)
{
    control_reply_error(r, 503, &(struct br_header){"retry-after", "1"}, NULL,
                        "too much is under way; send it again");
}

static struct call *call_new(struct control *c, struct br_request *r)
{
    struct call *k = c->n_calls < CONTROL_CALLS_MAX ? br_calloc(1, sizeof *k) : NULL;
    if (!k)
        return NULL;
    k->control = c;
    k->request = r;
    if (r)
        r->user = k;
    br_list_append(&c->calls, &k->link);
    c->n_calls++;
    return k;
}

/* Sends the call on its way; where that cannot be, its request is answered, and it ends. */
static void send(struct call *k)
{
    struct br_request *r = k->request;
    if (br_broadcast_send(&k->broadcast, k->control->node->host))
        return;
    call_free(k);
    if (r)
        busy(r);
}

void control_call_gone(struct br_request *r)
{
    struct call *k = r->user;
    if (k)
        k->request = NULL;
    r->user = NULL;
}

/* Errands come home before nodes are destroyed, but not where there are no loops for them. */
void control_calls_release(struct control *c)
{
    if (!c->node)
        return;
    while (!br_list_empty(&c->calls)) {
        struct call *k = br_container_of(c->calls.next, struct call, link);
        br_host_defer_cancel(&k->broadcast.deferred);
        call_free(k);
    }
}

/* --- Ending rules ----------------------------------------------------------------------------- */

static void visit_end(struct br_broadcast *e, struct br_host *host)
{
    struct call *k = call_of(e);
    for (size_t i = 0; i < k->n_ids; i++)
        br_override_withdraw(host, k->ids[i]);
}

static void done_end(struct br_broadcast *e, struct br_host *home)
{
    struct call *k = call_of(e);
    struct br_request *r = k->request;
    char buffer[64];
    struct br_str json = {.data = buffer, .cap = sizeof buffer, .max = 63, .fixed = true};
    (void)home;
    for (size_t i = 0; i < k->n_ids; i++)
        control_overrides_end(&k->control->rules, k->ids[i]);
    br_str_printf(&json, "{\"ended\":%zu}\n", k->n_ids);
    call_free(k);
    if (r)
        control_reply(r, 200, NULL, &json);
}

void control_call_end(struct control *c, struct br_request *r, uint64_t id, const char *service)
{
    struct call *k = call_new(c, r);
    if (!k) {
        busy(r);
        return;
    }
    k->broadcast.visit = visit_end;
    k->broadcast.done = done_end;
    k->n_ids = control_overrides_match(&c->rules, id, service, k->ids);
    if (k->n_ids || !id) {
        send(k);
        return;
    }
    call_free(k);
    control_reply_error(r, 404, NULL, NULL, "there is no such rule; it may have ended");
}

/* A rule that some workers took and others could not: not all of it is none of it. */
static void take_back(struct control *c, uint64_t id)
{
    struct call *k = call_new(c, NULL);
    if (!k)
        return; /* it ends by itself */
    k->broadcast.visit = visit_end;
    k->broadcast.done = done_end;
    k->ids[k->n_ids++] = id;
    send(k);
}

/* --- Adding a rule ---------------------------------------------------------------------------- */

static void visit_add(struct br_broadcast *e, struct br_host *host)
{
    struct call *k = call_of(e);
    int n = k->applies < 0 ? 0 : br_override_apply(host, &k->rule->rule, &k->err);
    k->applies = n < 0 ? n : k->applies + n;
}

static void reply_rule(struct control *c, struct br_request *r, const struct control_override *rule,
                       unsigned status)
{
    char at[sizeof CONTROL_PATH + 1 + CONTROL_ID_LEN];
    struct br_str json = {0};
    (void)snprintf(at, sizeof at, CONTROL_PATH "/%016llx", (unsigned long long)rule->rule.id);
    control_put_override(&json, rule, br_host_mono_ms(c->node->host));
    br_str_putc(&json, '\n');
    control_reply(r, status, &(struct br_header){"location", at}, &json);
    br_str_release(&json);
}

static void refuse_rule(struct call *k)
{
    struct control *c = k->control;
    struct br_request *r = k->request;
    struct br_err err = k->err;
    int rc = k->applies;
    uint64_t id = k->rule->rule.id;
    call_free(k);
    if (rc < 0)
        take_back(c, id);
    if (!r)
        return;
    if (rc < 0)
        control_reply_error(r, 503, &(struct br_header){"retry-after", "1"}, NULL, "%s",
                            err.text[0] ? err.text : br_strerror(rc));
    else if (c->node->host->draining)
        control_reply_error(r, 503, NULL, NULL, "shutting down");
    else
        control_reply_error(r, 422, NULL, NULL,
                            "nothing here can do that: no pprof target fits, and no join keeps "
                            "links by rules");
}

static void done_add(struct br_broadcast *e, struct br_host *home)
{
    struct call *k = call_of(e);
    struct control *c = k->control;
    (void)home;
    if (k->applies <= 0) {
        refuse_rule(k);
        return;
    }
    struct control_override *rule = k->rule;
    struct br_request *r = k->request;
    k->rule = NULL;
    call_free(k);
    if (r)
        reply_rule(c, r, rule, 201);
    control_overrides_add(&c->rules, rule);
}

void control_call_add(struct control *c, struct br_request *r, struct control_override *rule)
{
    uint64_t wait_s;
    char after[24];
    struct call *k = call_new(c, r);
    if (!k) {
        control_override_free(rule);
        busy(r);
        return;
    }
    if (control_overrides_admit(&c->rules, rule, &wait_s)) {
        control_override_free(rule);
        call_free(k);
        (void)snprintf(after, sizeof after, "%llu", (unsigned long long)wait_s);
        control_reply_error(r, 429, &(struct br_header){"retry-after", after}, NULL,
                            "there are as many rules as max_rules allows; end one, or wait");
        return;
    }
    k->rule = rule;
    k->broadcast.visit = visit_add;
    k->broadcast.done = done_add;
    send(k);
}

/* --- What is collected ------------------------------------------------------------------------ */

static void on_collected(const struct br_collected *collected, void *arg)
{
    struct call *k = arg;
    struct br_str row = {.max = ROW_MAX};
    control_put_collected(&row, collected);
    if (row.failed || br_map_count(k->rows) == CONTROL_ROWS_MAX ||
        br_map_put(k->rows, row.data, row.len, k, NULL))
        k->cut = true;
    br_str_release(&row);
}

static void visit_list(struct br_broadcast *e, struct br_host *host)
{
    struct call *k = call_of(e);
    unsigned step = br_shed_step(host);
    if (step > k->step)
        k->step = step;
    br_override_list(host, on_collected, k);
}

static void put_rows(struct br_str *out, const struct call *k)
{
    const void *row;
    size_t len;
    for (size_t i = 0; br_map_at(k->rows, i, &row, &len); i++) {
        if (i)
            br_str_putc(out, ',');
        br_str_add(out, row, len);
    }
}

static void put_rules(struct br_str *out, struct control *c)
{
    uint64_t now = br_host_mono_ms(c->node->host);
    bool first = true;
    for (struct br_list *l = c->rules.list.next; l != &c->rules.list; l = l->next) {
        const struct control_override *r = br_container_of(l, struct control_override, link);
        if (r->rule.until_ms <= now)
            continue;
        if (!first)
            br_str_putc(out, ',');
        control_put_override(out, r, now);
        first = false;
    }
}

static void done_list(struct br_broadcast *e, struct br_host *home)
{
    struct call *k = call_of(e);
    struct br_request *r = k->request;
    struct br_str json = {0};
    (void)home;
    if (r) {
        br_str_puts(&json, "{\"collected\":[");
        put_rows(&json, k);
        br_str_puts(&json, "],\"rules\":[");
        put_rules(&json, k->control);
        br_str_printf(&json, "],\"shedding\":{\"step\":%u,\"what\":", k->step);
        br_str_json(&json, br_shed_text(k->step), strlen(br_shed_text(k->step)));
        br_str_printf(&json, "},\"truncated\":%s}\n", k->cut ? "true" : "false");
    }
    call_free(k);
    if (r)
        control_reply(r, 200, NULL, &json);
    br_str_release(&json);
}

void control_call_list(struct control *c, struct br_request *r)
{
    struct call *k = call_new(c, r);
    if (k && !(k->rows = br_map_new(CONTROL_ROWS_MAX))) {
        call_free(k);
        k = NULL;
    }
    if (!k) {
        busy(r);
        return;
    }
    k->broadcast.visit = visit_list;
    k->broadcast.done = done_list;
    send(k);
}
