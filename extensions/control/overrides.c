/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "extensions/control/control.h"

static struct control_override *control_overrides_of(struct br_list *list)
{
    return br_container_of(list, struct control_override, link);
}

void control_override_free(struct control_override *override)
{
    if (!override)
        return;
    br_arena_release(&override->arena);
    br_free(override);
}

static void control_overrides_say(struct control_overrides *rs,
                                  const struct control_override *override, const char *what)
{
    br_info(&rs->node->log, "override %016llx for service %s %s",
            (unsigned long long) override->base.id, override->base.service, what);
}

static void control_overrides_drop(struct control_overrides *rs, struct control_override *override)
{
    br_list_remove(&override->link);
    control_overrides_forget(rs, override);
}

static void control_overrides_on_end(struct br_timer *timer);

/* Lets go of what is over: the workers have ended it by themselves. */
static void control_overrides_sweep(struct control_overrides *rs)
{
    struct br_host *host = rs->node->host;
    uint64_t now = br_host_mono_ms(host), next = UINT64_MAX;
    for (struct br_list *list = rs->list.next, *after; list != &rs->list; list = after) {
        struct control_override *override = control_overrides_of(list);
        after = list->next;
        if (override->base.until_ms <= now) {
            control_overrides_say(rs, override, "has ended");
            control_overrides_drop(rs, override);
        } else if (override->base.until_ms < next) {
            next = override->base.until_ms;
        }
    }
    if (next == UINT64_MAX)
        (void)br_host_timer_park(host, &rs->end, control_overrides_on_end);
    else
        (void)br_host_timer(host, &rs->end, next - now, control_overrides_on_end);
}

static void control_overrides_on_end(struct br_timer *timer)
{
    control_overrides_sweep(br_container_of(timer, struct control_overrides, end));
}

int control_overrides_init(struct control_overrides *rs, struct br_node *node)
{
    rs->node = node;
    br_list_init(&rs->list);
    return br_host_timer_park(node->host, &rs->end, control_overrides_on_end) ? 0 : BR_ENOMEM;
}

void control_overrides_release(struct control_overrides *rs)
{
    if (!rs->node)
        return;
    while (!br_list_empty(&rs->list))
        control_overrides_drop(rs, control_overrides_of(rs->list.next));
    br_host_timer_stop(rs->node->host, &rs->end);
}

/* Ids are not to be guessed from one another, or from those of a run before. */
static uint64_t control_overrides_new_id(struct control_overrides *rs)
{
    uint64_t id = 0;
    while (id == 0 || control_overrides_find(rs, id))
        br_random_bytes(&id, sizeof id);
    return id;
}

int control_overrides_admit(struct control_overrides *rs, struct control_override *override,
                            uint64_t *ret_wait_s)
{
    const struct control_config *config = rs->node->config;
    struct br_host *host = rs->node->host;
    uint64_t now = br_host_mono_ms(host), next = UINT64_MAX;
    control_overrides_sweep(rs);
    if (rs->count >= (size_t)config->max_overrides) {
        for (struct br_list *list = rs->list.next; list != &rs->list; list = list->next)
            if (control_overrides_of(list)->base.until_ms < next)
                next = control_overrides_of(list)->base.until_ms;
        *ret_wait_s = next == UINT64_MAX ? 1 : (next - now + 999) / 1000;
        return BR_EFULL;
    }
    override->base.id = control_overrides_new_id(rs);
    override->base.until_ms = now + override->duration_ms;
    override->since_ns = br_host_unix_ns(host);
    override->until_ns = override->since_ns + override->duration_ms * 1000000;
    rs->count++;
    return 0;
}

void control_overrides_add(struct control_overrides *rs, struct control_override *override)
{
    control_overrides_say(rs, override, "holds");
    br_list_append(&rs->list, &override->link);
    control_overrides_sweep(rs);
}

void control_overrides_forget(struct control_overrides *rs, struct control_override *override)
{
    rs->count--;
    control_override_free(override);
}

struct control_override *control_overrides_find(struct control_overrides *rs, uint64_t id)
{
    uint64_t now = br_host_mono_ms(rs->node->host);
    for (struct br_list *list = rs->list.next; list != &rs->list; list = list->next)
        if (control_overrides_of(list)->base.id == id &&
            control_overrides_of(list)->base.until_ms > now)
            return control_overrides_of(list);
    return NULL;
}

size_t control_overrides_match(struct control_overrides *rs, uint64_t id, const char *service,
                               uint64_t ret[BR_OVERRIDES_MAX])
{
    size_t n = 0;
    control_overrides_sweep(rs);
    for (struct br_list *list = rs->list.next; list != &rs->list && n < BR_OVERRIDES_MAX;
         list = list->next) {
        const struct control_override *override = control_overrides_of(list);
        if ((!id || override->base.id == id) &&
            (!service || strcmp(override->base.service, service) == 0))
            ret[n++] = override->base.id;
    }
    return n;
}

void control_overrides_end(struct control_overrides *rs, uint64_t id)
{
    struct control_override *override = control_overrides_find(rs, id);
    if (!override)
        return;
    control_overrides_say(rs, override, "was ended");
    control_overrides_drop(rs, override);
}
