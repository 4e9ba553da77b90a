/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overrides make a component collect more for a limited time. A component that can do so (scrape a
 * target, keep the links of a service) contains an overridable and registers it with its host. The
 * sender of an override broadcasts it (broadcast.h) to every worker and calls the functions below
 * there. An overridable ends the effect of an override with its timer.
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

/* The contents of one override. Texts are NUL-terminated and at most BR_OVERRIDE_TEXT_MAX bytes
 * long. */
struct br_override {
    uint64_t id; /* identifies the override; not 0 */
    /* when the override ends: monotonic time of br_host_mono_ms, which is the same in every
     * worker */
    uint64_t until_ms;
    const char *service; /* service.name of the services to collect from; NULL: all */
    const char *target;  /* endpoint of the target to collect from, as in the config; NULL: all */
    /* names of the profiles to collect, as in the receiver pprof: "cpu", "allocs" */
    const char *const *types;
    size_t n_types;       /* number of `types`; 0: the component chooses */
    uint64_t interval_ms; /* milliseconds between two profiles; 0: as configured */
    /* keep the links that the next two fields select; a percentage of 100 selects all */
    bool keep;
    double sampling_percentage; /* percentage of the spans, 0 to 100; 0: not used */
    /* select spans of at least this duration in nanoseconds; 0: not used */
    uint64_t slow_threshold_ns;
};

/* One source of data that is collected now. All texts are borrowed until return. */
struct br_collected {
    const char *component; /* id of the node: "pprof/shops" */
    const char *service;   /* name of the service, or "" if unknown */
    const char *target;    /* URL of the scraped target, or "" */
    /* type of the data: "cpu", "links"; "pushed": any profiles that clients send */
    const char *type;
    uint64_t interval_ms; /* milliseconds between two profiles; 0: no interval */
    /* id of the override that started the collection; 0: the config started it */
    uint64_t override;
    /* when that override ends, in monotonic milliseconds; 0: the collection does not end */
    uint64_t until_ms;
    const char *state; /* state in one or two words: "ok", "failing", "in use", "waiting" */
};
typedef void br_collected_fn(const struct br_collected *collected, void *arg);

struct br_overridable;

struct br_overridable_ops {
    /* Applies an override at once, and replaces an earlier one with the same id. Copies the
     * parts that it keeps. Returns the number of sources that the override applies to. If it is
     * 0, the override is not kept. Returns BR_EFULL with a sentence if there are already
     * BR_OVERRIDES_MAX overrides, or another error. */
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

/* Register at start and unregister at destroy, both in the thread of the host. The second
 * accepts a zeroed structure. */
void br_overridable_register(struct br_overridable *overridable, struct br_host *host);
void br_overridable_unregister(struct br_overridable *overridable);

/* Call all overridables of a worker, from a broadcast. br_override_apply returns the sum of
 * their results, or the first error; then the override is withdrawn from all of them. A host
 * that is draining accepts no override and returns 0. */
int br_override_apply(struct br_host *host, const struct br_override *override, struct br_err *err);
void br_override_withdraw(struct br_host *host, uint64_t id);
void br_override_list(struct br_host *host, br_collected_fn *fn, void *arg);

/* Returns true if `override` names the type; if it names none, returns `by_default`. */
bool br_override_has_type(const struct br_override *override, const char *type, bool by_default);
