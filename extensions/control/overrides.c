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

static void control_overrides_log(struct control_overrides *overrides,
                                  const struct control_override *override, const char *event)
{
    br_info(&overrides->node->log, "override %016llx for service %s %s",
            (unsigned long long) override->base.id, override->base.service, event);
}

static void control_overrides_drop(struct control_overrides *overrides,
                                   struct control_override *override)
{
    br_list_remove(&override->link);
    control_overrides_discard(overrides, override);
}

static void control_overrides_on_end(struct br_timer *timer);

/* Frees the overrides that have ended, and sets the timer for the next override that ends. The
 * workers end their copies of the overrides independently. */
static void control_overrides_sweep(struct control_overrides *overrides)
{
    struct br_host *host = overrides->node->host;
    uint64_t now = br_host_mono_ms(host), next = UINT64_MAX;
    for (struct br_list *list = overrides->list.next, *after; list != &overrides->list;
         list = after) {
        struct control_override *override = control_overrides_of(list);
        after = list->next;
        if (override->base.until_ms <= now) {
            control_overrides_log(overrides, override, "has ended");
            control_overrides_drop(overrides, override);
        } else if (override->base.until_ms < next) {
            next = override->base.until_ms;
        }
    }
    if (next == UINT64_MAX)
        (void)br_host_timer_park(host, &overrides->end, control_overrides_on_end);
    else
        (void)br_host_timer(host, &overrides->end, next - now, control_overrides_on_end);
}

static void control_overrides_on_end(struct br_timer *timer)
{
    control_overrides_sweep(br_container_of(timer, struct control_overrides, end));
}

int control_overrides_init(struct control_overrides *overrides, struct br_node *node)
{
    overrides->node = node;
    br_list_init(&overrides->list);
    return br_host_timer_park(node->host, &overrides->end, control_overrides_on_end) ? 0
                                                                                     : BR_ENOMEM;
}

void control_overrides_release(struct control_overrides *overrides)
{
    if (!overrides->node)
        return;
    while (!br_list_empty(&overrides->list))
        control_overrides_drop(overrides, control_overrides_of(overrides->list.next));
    br_host_timer_stop(overrides->node->host, &overrides->end);
}

/* Returns a random id, which cannot be guessed from other ids or earlier runs. */
static uint64_t control_overrides_new_id(struct control_overrides *overrides)
{
    uint64_t id = 0;
    while (id == 0 || control_overrides_find(overrides, id))
        br_random_bytes(&id, sizeof id);
    return id;
}

int control_overrides_admit(struct control_overrides *overrides, struct control_override *override,
                            uint64_t *ret_wait_s)
{
    const struct control_config *config = overrides->node->config;
    struct br_host *host = overrides->node->host;
    uint64_t now = br_host_mono_ms(host), next = UINT64_MAX;
    control_overrides_sweep(overrides);
    if (overrides->count >= (size_t)config->max_overrides) {
        for (struct br_list *list = overrides->list.next; list != &overrides->list;
             list = list->next)
            if (control_overrides_of(list)->base.until_ms < next)
                next = control_overrides_of(list)->base.until_ms;
        *ret_wait_s = next == UINT64_MAX ? 1 : (next - now + 999) / 1000;
        return BR_EFULL;
    }
    override->base.id = control_overrides_new_id(overrides);
    override->base.until_ms = now + override->duration_ms;
    override->since_ns = br_host_unix_ns(host);
    override->until_ns = override->since_ns + override->duration_ms * 1000000;
    overrides->count++;
    return 0;
}

void control_overrides_add(struct control_overrides *overrides, struct control_override *override)
{
    control_overrides_log(overrides, override, "is active");
    br_list_append(&overrides->list, &override->link);
    control_overrides_sweep(overrides);
}

void control_overrides_discard(struct control_overrides *overrides,
                               struct control_override *override)
{
    overrides->count--;
    control_override_free(override);
}

struct control_override *control_overrides_find(struct control_overrides *overrides, uint64_t id)
{
    uint64_t now = br_host_mono_ms(overrides->node->host);
    for (struct br_list *list = overrides->list.next; list != &overrides->list; list = list->next)
        if (control_overrides_of(list)->base.id == id &&
            control_overrides_of(list)->base.until_ms > now)
            return control_overrides_of(list);
    return NULL;
}

size_t control_overrides_match(struct control_overrides *overrides, uint64_t id,
                               const char *service, uint64_t ret[BR_OVERRIDES_MAX])
{
    size_t n = 0;
    control_overrides_sweep(overrides);
    for (struct br_list *list = overrides->list.next;
         list != &overrides->list && n < BR_OVERRIDES_MAX; list = list->next) {
        const struct control_override *override = control_overrides_of(list);
        if ((!id || override->base.id == id) &&
            (!service || strcmp(override->base.service, service) == 0))
            ret[n++] = override->base.id;
    }
    return n;
}

void control_overrides_end(struct control_overrides *overrides, uint64_t id)
{
    struct control_override *override = control_overrides_find(overrides, id);
    if (!override)
        return;
    control_overrides_log(overrides, override, "was ended");
    control_overrides_drop(overrides, override);
}
