/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overrides ask a component at run time to do more of something for a while. A component that can
 * do more on demand (scrape a target, keep a service's links) has an overridable and registers it
 * with its host. Whoever sets overrides sends a broadcast (broadcast.h) to every worker and calls
 * the three functions below there. An overridable ends what an override began when its time is
 * over, by its own timer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"

struct br_host;
struct br_node;

#define BR_OVERRIDES_MAX 64 /* that an overridable has to be able to hold at a time */
#define BR_OVERRIDE_TEXT_MAX 512

/* What is said of one override. Texts are NULL-terminated and at most BR_OVERRIDE_TEXT_MAX bytes.
 */
struct br_override {
    uint64_t id;         /* not 0 */
    uint64_t until_ms;   /* monotonic, as br_host_mono_ms has it: the same clock in every worker */
    const char *service; /* service.name; NULL: any */
    const char *target;  /* endpoint of a target, as the config writes it; NULL: any */
    const char *const *types; /* "cpu", "allocs": as receiver pprof calls its profiles */
    size_t n_types;           /* 0: the component's choice */
    uint64_t interval_ms;     /* between profiles; 0: the component's */
    bool keep;                /* keep links: the two below say which, and a percentage of 100 all */
    double sampling_percentage; /* 0 to 100; 0: not by this */
    uint64_t slow_threshold_ns; /* spans of at least so long; 0: not by this */
};

/* One thing that is collected now. All is borrowed until return. */
struct br_collected {
    const char *component; /* id of the node: "pprof/shops" */
    const char *service;   /* "" where it is not known */
    const char *target;    /* URL of what is scraped, or "" */
    const char *type;      /* "cpu", "links"; "pushed": whatever is sent */
    uint64_t interval_ms;  /* 0: there is none */
    uint64_t override;     /* that asks for it; 0: the config */
    uint64_t until_ms;     /* when that override ends; 0: never */
    const char *state;     /* a word: "ok", "failing", "in use", "waiting" */
};
typedef void br_collected_fn(const struct br_collected *collected, void *arg);

struct br_overridable;

struct br_overridable_ops {
    /* Begins to obey an override at once; one of the same id is replaced. Copies what it keeps.
     * Returns how many things it applies to (0: the override is not for this overridable, and is
     * not kept), or a code with a sentence: BR_EFULL with BR_OVERRIDES_MAX overrides. */
    int (*apply)(struct br_overridable *overridable, const struct br_override *override,
                 struct br_err *err);
    /* Ends an override before its time; nothing where it does not know it. */
    void (*withdraw)(struct br_overridable *overridable, uint64_t id);
    /* Calls `fn` for everything it collects. */
    void (*list)(const struct br_overridable *overridable, br_collected_fn *fn, void *arg);
};

/* A member of a node's state. */
struct br_overridable {
    const struct br_overridable_ops *ops;
    struct br_list link; /* host->overridables */
};

/* Register at start and unregister at destroy, both in the thread of the host. The second accepts a
 * zeroed one. */
void br_overridable_register(struct br_overridable *overridable, struct br_host *host);
void br_overridable_unregister(struct br_overridable *overridable);

/* Ask all overridables of a worker, which a broadcast does at each. br_override_apply returns the
 * sum of what they returned, or the first code; then the override is withdrawn from all of them. A
 * host that is draining takes no override: 0. */
int br_override_apply(struct br_host *host, const struct br_override *override, struct br_err *err);
void br_override_withdraw(struct br_host *host, uint64_t id);
void br_override_list(struct br_host *host, br_collected_fn *fn, void *arg);

/* Returns true when `override` names the type, or names none and `by_default`. */
bool br_override_has_type(const struct br_override *override, const char *type, bool by_default);
