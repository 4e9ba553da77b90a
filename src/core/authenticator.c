/* SPDX-License-Identifier: Apache-2.0 */
#include "core/authenticator.h"

#include <string.h>

const struct br_option br_auth_server_options[] = {
    BR_STRING(struct br_auth_config, authenticator, NULL,
              "id of the extension that checks clients"),
    BR_STRINGS(struct br_auth_config, request_params,
               "HTTP: names of query parameters that are read as headers of the same name, for "
               "clients that cannot send credentials in a header"),
    BR_OPT_END,
};

const struct br_option br_auth_client_options[] = {
    BR_STRING(struct br_auth_config, authenticator, NULL,
              "id of the extension that provides the credentials"),
    BR_OPT_END,
};

void br_authenticator_add(struct br_host *host, struct br_authenticator *authenticator)
{
    br_list_init(&authenticator->waiters);
    br_list_append(&host->authenticators, &authenticator->link);
}

void br_authenticator_remove(struct br_authenticator *authenticator)
{
    if (!authenticator->link.next)
        return;
    br_list_remove(&authenticator->link);
    br_authenticator_ready(authenticator);
}

struct br_authenticator *br_authenticator_find(struct br_host *host, const char *id)
{
    struct br_list *head = &host->authenticators;
    for (struct br_list *list = head->next; list != head; list = list->next) {
        struct br_authenticator *found = br_container_of(list, struct br_authenticator, link);
        if (strcmp(found->id, id) == 0)
            return found;
    }
    return NULL;
}

void br_authenticator_wait(struct br_authenticator *authenticator, struct br_auth_waiter *waiter)
{
    br_list_append(&authenticator->waiters, &waiter->link);
}

void br_authenticator_ready(struct br_authenticator *authenticator)
{
    struct br_list ready, *list;
    br_list_init(&ready);
    while ((list = br_list_shift(&authenticator->waiters)))
        br_list_append(&ready, list);
    while ((list = br_list_shift(&ready))) {
        struct br_auth_waiter *waiter = br_container_of(list, struct br_auth_waiter, link);
        waiter->on_ready(waiter);
    }
}
