/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "extensions/control/control.h"

static struct control_override *rule_of(struct br_list *l)
{
    return br_container_of(l, struct control_override, link);
}

void control_override_free(struct control_override *r)
{
    if (!r)
        return;
    br_arena_release(&r->arena);
    br_free(r);
}

static void say(struct control_overrides *rs, const struct control_override *r, const char *what)
{
    br_info(&rs->node->log, "rule %016llx for service %s %s", (unsigned long long)r->rule.id,
            r->rule.service, what);
}

static void drop(struct control_overrides *rs, struct control_override *r)
{
    br_list_remove(&r->link);
    control_overrides_forget(rs, r);
}

static void on_end(struct br_timer *t);

/* Lets go of what is over: the workers have ended it by themselves. */
static void sweep(struct control_overrides *rs)
{
    struct br_host *host = rs->node->host;
    uint64_t now = br_host_mono_ms(host), next = UINT64_MAX;
    for (struct br_list *l = rs->list.next, *after; l != &rs->list; l = after) {
        struct control_override *r = rule_of(l);
        after = l->next;
        if (r->rule.until_ms <= now) {
            say(rs, r, "has ended");
            drop(rs, r);
        } else if (r->rule.until_ms < next) {
            next = r->rule.until_ms;
        }
    }
    if (next == UINT64_MAX)
        (void)br_host_timer_park(host, &rs->end, on_end);
    else
        (void)br_host_timer(host, &rs->end, next - now, on_end);
}

static void on_end(struct br_timer *t)
{
    sweep(br_container_of(t, struct control_overrides, end));
}

int control_overrides_init(struct control_overrides *rs, struct br_node *node)
{
    rs->node = node;
    br_list_init(&rs->list);
    return br_host_timer_park(node->host, &rs->end, on_end) ? 0 : BR_ENOMEM;
}

void control_overrides_release(struct control_overrides *rs)
{
    if (!rs->node)
        return;
    while (!br_list_empty(&rs->list))
        drop(rs, rule_of(rs->list.next));
    br_host_timer_stop(rs->node->host, &rs->end);
}

/* Ids are not to be guessed from one another, or from those of a run before. */
static uint64_t new_id(struct control_overrides *rs)
{
    uint64_t id = 0;
    while (id == 0 || control_overrides_find(rs, id))
        br_random_bytes(&id, sizeof id);
    return id;
}

int control_overrides_admit(struct control_overrides *rs, struct control_override *r, uint64_t *ret_wait_s)
{
    const struct control_config *c = rs->node->config;
    struct br_host *host = rs->node->host;
    uint64_t now = br_host_mono_ms(host), next = UINT64_MAX;
    sweep(rs);
    if (rs->n >= (size_t)c->max_rules) {
        for (struct br_list *l = rs->list.next; l != &rs->list; l = l->next)
            if (rule_of(l)->rule.until_ms < next)
                next = rule_of(l)->rule.until_ms;
        *ret_wait_s = next == UINT64_MAX ? 1 : (next - now + 999) / 1000;
        return BR_EFULL;
    }
    r->rule.id = new_id(rs);
    r->rule.until_ms = now + r->duration_ms;
    r->since_ns = br_host_unix_ns(host);
    r->until_ns = r->since_ns + r->duration_ms * 1000000;
    rs->n++;
    return 0;
}

void control_overrides_add(struct control_overrides *rs, struct control_override *r)
{
    say(rs, r, "holds");
    br_list_append(&rs->list, &r->link);
    sweep(rs);
}

void control_overrides_forget(struct control_overrides *rs, struct control_override *r)
{
    rs->n--;
    control_override_free(r);
}

struct control_override *control_overrides_find(struct control_overrides *rs, uint64_t id)
{
    uint64_t now = br_host_mono_ms(rs->node->host);
    for (struct br_list *l = rs->list.next; l != &rs->list; l = l->next)
        if (rule_of(l)->rule.id == id && rule_of(l)->rule.until_ms > now)
            return rule_of(l);
    return NULL;
}

size_t control_overrides_match(struct control_overrides *rs, uint64_t id, const char *service,
                           uint64_t ret[BR_OVERRIDES_MAX])
{
    size_t n = 0;
    sweep(rs);
    for (struct br_list *l = rs->list.next; l != &rs->list && n < BR_OVERRIDES_MAX; l = l->next) {
        const struct control_override *r = rule_of(l);
        if ((!id || r->rule.id == id) && (!service || strcmp(r->rule.service, service) == 0))
            ret[n++] = r->rule.id;
    }
    return n;
}

void control_overrides_end(struct control_overrides *rs, uint64_t id)
{
    struct control_override *r = control_overrides_find(rs, id);
    if (!r)
        return;
    say(rs, r, "was ended");
    drop(rs, r);
}
