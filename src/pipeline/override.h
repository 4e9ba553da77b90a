/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An override makes a component collect more data for a limited time: scrape a target, or keep the
 * links of a service. A component that supports overrides contains an overridable and registers it
 * with its host. The sender of an override broadcasts it (broadcast.h) to every worker and calls
 * the functions below there. Each overridable has a timer that ends the effect of an override.
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

/* The contents of one override. Texts are NUL-terminated and have at most BR_OVERRIDE_TEXT_MAX
 * bytes. */
struct br_override {
    uint64_t id; /* identifies the override; not 0 */
    /* time when the override ends, in ms of the clock of br_host_mono_ms, which is the same in
     * every worker */
    uint64_t until_ms;
    /* service.name of the services from which data is collected; NULL: all services */
    const char *service;
    /* endpoint of the target from which data is collected, as in the config; NULL: all targets */
    const char *target;
    /* names of the profiles to collect, as in the receiver pprof: "cpu", "allocs" */
    const char *const *types;
    size_t n_types;       /* number of `types`; 0: the component chooses */
    uint64_t interval_ms; /* milliseconds between two profiles; 0: the interval in the config */
    /* true: keep the links selected by sampling_percentage or slow_threshold_ns; a percentage of
     * 100 selects all links */
    bool keep;
    double sampling_percentage; /* percentage of the spans, 0 to 100; 0: not used */
    /* select spans of at least this duration in nanoseconds; 0: not used */
    uint64_t slow_threshold_ns;
};

/* One source of data that is collected now. All texts are borrowed until br_collected_fn
 * returns. */
struct br_collected {
    const char *component; /* id of the node that collects the data, such as "pprof/shops" */
    const char *service;   /* name of the service, or "" if unknown */
    const char *target;    /* URL of the scraped target, or "" */
    /* type of the data: "cpu", "links"; "pushed": any profiles that clients send */
    const char *type;
    uint64_t interval_ms; /* milliseconds between two profiles; 0: there is no interval */
    /* id of the override that started the collection; 0: the config started it */
    uint64_t override;
    /* time when `override` ends, in milliseconds of the monotonic clock; 0: the collection does
     * not end */
    uint64_t until_ms;
    const char *state; /* state in one or two words: "ok", "failing", "in use", "waiting" */
};
typedef void br_collected_fn(const struct br_collected *collected, void *arg);

struct br_overridable;

struct br_overridable_ops {
    /* Applies an override at once, and replaces an earlier override with the same id. Copies the
     * parts of the override that are kept. Returns the number of sources to which the override
     * applies. If that number is 0, the override is not kept. Returns BR_EFULL with a sentence
     * if there are already BR_OVERRIDES_MAX overrides, or another error. */
    int (*apply)(struct br_overridable *overridable, const struct br_override *override,
                 struct br_err *err);
    /* Ends an override before its `until_ms`. Does nothing if the id is unknown. */
    void (*withdraw)(struct br_overridable *overridable, uint64_t id);
    /* Calls `fn` for each source of data that the overridable collects. */
    void (*list)(const struct br_overridable *overridable, br_collected_fn *fn, void *arg);
};

/* A component that accepts overrides; a member of the node's state. */
struct br_overridable {
    const struct br_overridable_ops *ops;
    struct br_list link; /* link in host->overridables */
};

/* br_overridable_register is called at start, br_overridable_unregister at destroy, both in the
 * thread of the host. br_overridable_unregister accepts a zeroed structure. */
void br_overridable_register(struct br_overridable *overridable, struct br_host *host);
void br_overridable_unregister(struct br_overridable *overridable);

/* br_override_apply and br_override_withdraw call all overridables of a worker, from a
 * broadcast. br_override_apply returns the sum of the overridables' results. After an error, it
 * withdraws the override from all overridables and returns the first error. A host that is
 * draining accepts no override and returns 0. */
int br_override_apply(struct br_host *host, const struct br_override *override, struct br_err *err);
void br_override_withdraw(struct br_host *host, uint64_t id);
void br_override_list(struct br_host *host, br_collected_fn *fn, void *arg);

/* Returns true if `override` names the type `type`. If it names no types, returns `by_default`. */
bool br_override_has_type(const struct br_override *override, const char *type, bool by_default);
