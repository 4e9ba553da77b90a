/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "core/reload.h"
#include "extensions/control/control.h"

/* A client's request whose response waits for the end of a reload. */
struct reload {
    struct br_list link; /* in control->reloads */
    struct br_reload_waiter waiter;
    struct control *control;
    struct br_request *request; /* NULL: the client has disconnected */
};

static struct reload *control_reload_of(struct br_list *link)
{
    return br_container_of(link, struct reload, link);
}

static void control_reload_free(struct reload *reload)
{
    br_list_remove(&reload->link);
    reload->control->n_calls--;
    br_free(reload);
}

static void control_reload_done(struct br_reload_waiter *waiter, bool reloaded, const char *text)
{
    struct reload *reload = br_container_of(waiter, struct reload, waiter);
    struct br_str json = {0};
    if (reload->request) {
        br_str_printf(&json, "{\"reloaded\":%s,\"text\":", reloaded ? "true" : "false");
        br_str_json(&json, text, strlen(text));
        br_str_puts(&json, "}\n");
        control_reply(reload->request, reloaded ? 200 : 400, NULL, &json);
        br_str_release(&json);
    }
    control_reload_free(reload);
}

void control_reload(struct control *control, struct br_request *request)
{
    struct br_reload *reloader = control->node->host->reload;
    if (!reloader) {
        control_reply_error(request, 501, NULL, NULL,
                            "the configuration of this process cannot be reloaded");
        return;
    }
    struct reload *reload =
        control->n_calls < CONTROL_CALLS_MAX ? br_calloc(1, sizeof *reload) : NULL;
    if (!reload) {
        control_reply_error(request, 503, &(struct br_header){"retry-after", "1"}, NULL,
                            "too many requests are in progress; try again later");
        return;
    }
    reload->control = control;
    reload->request = request;
    reload->waiter.done = control_reload_done;
    br_list_append(&control->reloads, &reload->link);
    control->n_calls++;
    reloader->request(reloader, &reload->waiter);
}

bool control_reload_gone(struct control *control, const struct br_request *request)
{
    for (struct br_list *l = control->reloads.next; l != &control->reloads; l = l->next) {
        if (control_reload_of(l)->request != request)
            continue;
        control_reload_of(l)->request = NULL;
        return true;
    }
    return false;
}

void control_reloads_release(struct control *control)
{
    while (control->reloads.next && !br_list_empty(&control->reloads)) {
        struct reload *reload = control_reload_of(control->reloads.next);
        br_list_remove(&reload->waiter.link);
        control_reload_free(reload);
    }
}
