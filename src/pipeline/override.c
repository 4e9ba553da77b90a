/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/override.h"

#include <string.h>

#include "base/mem.h"
#include "core/host.h"

static struct br_overridable *overridable_of(struct br_list *l)
{
    return br_container_of(l, struct br_overridable, link);
}

void br_overridable_register(struct br_overridable *t, struct br_host *host)
{
    br_list_append(&host->overridables, &t->link);
}

void br_overridable_unregister(struct br_overridable *t)
{
    if (t->link.next)
        br_list_remove(&t->link);
}

int br_override_apply(struct br_host *host, const struct br_override *rule, struct br_err *err)
{
    int sum = 0;
    if (host->draining)
        return 0;
    for (struct br_list *l = host->overridables.next; l != &host->overridables; l = l->next) {
        int n = overridable_of(l)->ops->apply(overridable_of(l), rule, err);
        if (n < 0) {
            br_override_withdraw(host, rule->id);
            return n;
        }
        sum += n;
    }
    return sum;
}

void br_override_withdraw(struct br_host *host, uint64_t id)
{
    for (struct br_list *l = host->overridables.next; l != &host->overridables; l = l->next)
        overridable_of(l)->ops->withdraw(overridable_of(l), id);
}

void br_override_list(struct br_host *host, br_collected_fn *fn, void *arg)
{
    for (struct br_list *l = host->overridables.next; l != &host->overridables; l = l->next)
        overridable_of(l)->ops->list(overridable_of(l), fn, arg);
}

bool br_override_has_type(const struct br_override *rule, const char *type, bool by_default)
{
    for (size_t i = 0; i < rule->n_types; i++)
        if (strcmp(rule->types[i], type) == 0)
            return true;
    return rule->n_types == 0 && by_default;
}
