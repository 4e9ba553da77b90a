/* SPDX-License-Identifier: Apache-2.0 */
/* Requests a reload of the configuration from inside a component. */
#pragma once

#include <stdbool.h>

#include "base/list.h"

/* Someone who waits for the result of a reload. */
struct br_reload_waiter {
    struct br_list link;
    /* Called once, in the first worker. `text` says what has changed, or why the reload failed, one
     * problem per line; it is borrowed until the return. */
    void (*done)(struct br_reload_waiter *waiter, bool reloaded, const char *text);
};

struct br_reload {
    /* Requests a reload; `waiter` is called when it has ended. A waiter whose link is removed from
     * its list is not called. Called in the first worker. */
    void (*request)(struct br_reload *self, struct br_reload_waiter *waiter);
};
