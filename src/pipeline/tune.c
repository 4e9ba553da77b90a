/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/tune.h"

#include <string.h>

#include "base/mem.h"
#include "pipeline/host.h"

static struct br_tunable *tunable_of(struct br_list *l)
{
    return br_container_of(l, struct br_tunable, link);
}

void br_tunable_register(struct br_tunable *t, struct br_host *host)
{
    br_list_append(&host->tunables, &t->link);
}

void br_tunable_unregister(struct br_tunable *t)
{
    if (t->link.next)
        br_list_remove(&t->link);
}

int br_tune_apply(struct br_host *host, const struct br_rule *rule, struct br_err *err)
{
    int sum = 0;
    if (host->draining)
        return 0;
    for (struct br_list *l = host->tunables.next; l != &host->tunables; l = l->next) {
        int n = tunable_of(l)->ops->apply(tunable_of(l), rule, err);
        if (n < 0) {
            br_tune_withdraw(host, rule->id);
            return n;
        }
        sum += n;
    }
    return sum;
}

void br_tune_withdraw(struct br_host *host, uint64_t id)
{
    for (struct br_list *l = host->tunables.next; l != &host->tunables; l = l->next)
        tunable_of(l)->ops->withdraw(tunable_of(l), id);
}

void br_tune_list(struct br_host *host, br_collected_fn *fn, void *arg)
{
    for (struct br_list *l = host->tunables.next; l != &host->tunables; l = l->next)
        tunable_of(l)->ops->list(tunable_of(l), fn, arg);
}

bool br_rule_has_type(const struct br_rule *rule, const char *type, bool by_default)
{
    for (size_t i = 0; i < rule->n_types; i++)
        if (strcmp(rule->types[i], type) == 0)
            return true;
    return rule->n_types == 0 && by_default;
}
