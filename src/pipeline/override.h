/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An override makes components collect more data for a limited time, for example by scraping a
 * target, or by keeping the links from samples to the spans of a service. A component that supports
 * overrides embeds a struct br_overridable and registers it with its host. Overrides are broadcast
 * to every worker (broadcast.h), which calls br_override_apply. Each overridable has a timer that
 * ends the effect of an override.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"

struct br_host;
struct br_node;

#define BR_OVERRIDES_MAX 64 /* number of overrides that every overridable must be able to store */
#define BR_OVERRIDE_TEXT_MAX 512

/* An override. Strings are NUL-terminated and at most BR_OVERRIDE_TEXT_MAX bytes long. */
struct br_override {
    uint64_t id; /* identifies the override; not 0 */
    /* time at which the override ends, in milliseconds of the monotonic clock (br_host_mono_ms),
     * which all workers share */
    uint64_t until_ms;
    /* service.name of the services from which data is collected; NULL: all services */
    const char *service;
    /* endpoint of the target from which data is collected, as in the config; NULL: all targets */
    const char *target;
    /* names of the profiles to collect, as in the receiver pprof: "cpu", "allocs" */
    const char *const *types;
    size_t n_types; /* number of elements in `types`; 0: the component chooses the types */
    /* interval between two profiles in milliseconds; 0: the interval in the config */
    uint64_t interval_ms;
    /* true: keep the links from samples to the spans that sampling_percentage or slow_threshold_ns
     * selects; a percentage of 100 selects all spans */
    bool keep;
    double sampling_percentage; /* percentage of the spans, 0 to 100; 0: not used */
    /* select spans of at least this duration in nanoseconds; 0: not used */
    uint64_t slow_threshold_ns;
};

/* A source from which data is currently collected. All strings are valid only until br_collected_fn
 * returns. */
struct br_collected {
    const char *component; /* id of the node that collects the data, such as "pprof/shops" */
    const char *service;   /* name of the service, or "" if unknown */
    const char *target;    /* URL of the scraped target, or "" */
    /* type of the data, such as "cpu" or "links"; "pushed" stands for all profiles that clients
     * send */
    const char *type;
    uint64_t interval_ms; /* interval between two profiles in milliseconds; 0: no fixed interval */
    /* id of the override that started the collection; 0: the collection is part of the config */
    uint64_t override;
    /* time at which `override` ends, in milliseconds of the monotonic clock; 0: the collection has
     * no end */
    uint64_t until_ms;
    const char *state; /* state in one or two words: "ok", "failing", "in use", "waiting" */
};
typedef void br_collected_fn(const struct br_collected *collected, void *arg);

struct br_overridable;

struct br_overridable_ops {
    /* Applies an override immediately, and replaces an earlier override with the same id. Must copy
     * the strings that it needs later. Returns the number of sources to which the override applies;
     * if this is 0, the override is not kept. Returns BR_EFULL and a message in `err` if there are
     * already BR_OVERRIDES_MAX overrides, or another negative error code. */
    int (*apply)(struct br_overridable *overridable, const struct br_override *override,
                 struct br_err *err);
    /* Ends an override before its `until_ms`. Does nothing if the id is unknown. */
    void (*withdraw)(struct br_overridable *overridable, uint64_t id);
    /* Calls `fn` for each source of data that the overridable collects. */
    void (*list)(const struct br_overridable *overridable, br_collected_fn *fn, void *arg);
};

/* A node that accepts overrides. The node embeds this struct in its state. */
struct br_overridable {
    const struct br_overridable_ops *ops;
    struct br_list link; /* link in host->overridables */
};

/* A node calls br_overridable_register when it starts, and br_overridable_unregister when it is
 * destroyed, in the thread of the host. br_overridable_unregister accepts a zeroed struct. */
void br_overridable_register(struct br_overridable *overridable, struct br_host *host);
void br_overridable_unregister(struct br_overridable *overridable);

/* br_override_apply and br_override_withdraw call all overridables of a worker. br_override_apply
 * returns the sum of their results. After an error, br_override_apply withdraws the override from
 * all overridables and returns the first error. If the host is draining, br_override_apply does
 * nothing and returns 0. */
int br_override_apply(struct br_host *host, const struct br_override *override, struct br_err *err);
void br_override_withdraw(struct br_host *host, uint64_t id);
void br_override_list(struct br_host *host, br_collected_fn *fn, void *arg);

/* Returns true if `type` is one of the types of `override`. Returns `by_default` if the override
 * has no types. */
bool br_override_has_type(const struct br_override *override, const char *type, bool by_default);
