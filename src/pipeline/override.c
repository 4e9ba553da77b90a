/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/override.h"

#include <string.h>

#include "base/mem.h"
#include "core/host.h"

static struct br_overridable *override_overridable_of(struct br_list *list)
{
    return br_container_of(list, struct br_overridable, link);
}

void br_overridable_register(struct br_overridable *overridable, struct br_host *host)
{
    br_list_append(&host->overridables, &overridable->link);
}

void br_overridable_unregister(struct br_overridable *overridable)
{
    if (overridable->link.next)
        br_list_remove(&overridable->link);
}

int br_override_apply(struct br_host *host, const struct br_override *override, struct br_err *err)
{
    int sum = 0;
    if (host->draining)
        return 0;
    for (struct br_list *list = host->overridables.next; list != &host->overridables;
         list = list->next) {
        int n =
            override_overridable_of(list)->ops->apply(override_overridable_of(list), override, err);
        if (n < 0) {
            br_override_withdraw(host, override->id);
            return n;
        }
        sum += n;
    }
    return sum;
}

void br_override_withdraw(struct br_host *host, uint64_t id)
{
    for (struct br_list *list = host->overridables.next; list != &host->overridables;
         list = list->next)
        override_overridable_of(list)->ops->withdraw(override_overridable_of(list), id);
}

void br_override_list(struct br_host *host, br_collected_fn *fn, void *arg)
{
    for (struct br_list *list = host->overridables.next; list != &host->overridables;
         list = list->next)
        override_overridable_of(list)->ops->list(override_overridable_of(list), fn, arg);
}

bool br_override_has_type(const struct br_override *override, const char *type, bool by_default)
{
    for (size_t i = 0; i < override->n_types; i++)
        if (strcmp(override->types[i], type) == 0)
            return true;
    return override->n_types == 0 && by_default;
}
