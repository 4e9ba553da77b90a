/* SPDX-License-Identifier: Apache-2.0 */
/* Requests a reload of the configuration from inside a component. */
#pragma once

#include <stdbool.h>

#include "base/list.h"

/* A component that waits for the result of a reload. */
struct br_reload_waiter {
    struct br_list link;
    /* Called once, in the first worker. `text` lists the changes, or the problems that made the
     * reload fail, one per line. `text` is valid until the function returns. */
    void (*done)(struct br_reload_waiter *waiter, bool reloaded, const char *text);
};

struct br_reload {
    /* Requests a reload; `waiter` is called when it has ended. A waiter whose link is removed from
     * its list is not called. Called in the first worker. */
    void (*request)(struct br_reload *self, struct br_reload_waiter *waiter);
};
