/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types and functions of scraping, for targets.c, scrape.c and overrides.c only. A job scrapes
 * one profile of one target, at regular times and with at most one request under way. Every target
 * has a job of each kind; those that neither the config nor an override asks for do nothing. A
 * scrape that cannot begin is skipped and counted; it is not made up for.
 */
#pragma once

#include "net/client.h"
#include "pipeline/override.h"
#include "receivers/pprof/delta.h"
#include "receivers/pprof/pprof.h"

#define PPROF_PATH_MORE 32 /* "?seconds=3600" and the terminator */
#define PPROF_HEADERS_MAX (BR_HEADERS_MAX + 1)

/* What became of a scrape. */
enum pprof_result {
    PPROF_WAITING, /* there was none yet */
    PPROF_OK,
    PPROF_EMPTY,
    PPROF_FAILED,
    PPROF_IN_USE,
    PPROF_BUSY, /* the one before is under way */
    PPROF_HELD, /* too much memory is held */
    PPROF_SHED, /* there is too much else to do (core/shed.h) */
    PPROF_RESULTS,
};

struct pprof_target;

struct pprof_job {
    struct pprof_target *target;
    enum pprof_kind kind;
    struct br_timer beat, timeout; /* parked from start on: arming them cannot fail */
    uint64_t interval_ms;          /* 0: it rests */
    uint64_t override, until_ms;   /* that asks for it; 0: the config */
    uint64_t due_ms;               /* the next beat */
    uint64_t timeout_ms;           /* of the request under way */
    bool busy, failing;
    bool losing;                   /* the last profile had samples that were left out */
    bool forget;                   /* what it compares with, when the reading under way has ended */
    struct pprof_reading *reading; /* of what came; NULL unless a thread has it */
    enum pprof_result last;
    struct pprof_delta *delta; /* NULL: what comes is sent */
    struct br_exchange exchange;
    char *path; /* of the request under way; PPROF_PATH_MORE bytes longer than without seconds */
    size_t path_size;
};

struct pprof_target {
    struct pprof_scraper *scraper;
    const struct pprof_target_config *config;
    const char *origin;  /* the endpoint's URL without its path, for the log */
    const char *prefix;  /* its path, which goes before the profile's */
    const char *service; /* by the config, or "" */
    size_t service_len;
    struct br_client *client;
    struct br_addition resource;
    struct pprof_job jobs[PPROF_KINDS];
};

struct pprof_override {
    uint64_t id, until_ms, interval_ms;
    char *service, *target; /* NULL: any */
    bool kinds[PPROF_KINDS];
};

struct pprof_scraper {
    struct br_node *node;
    const struct pprof_config *config;
    struct pprof_reader *reader;
    struct br_redelivery *redelivery;
    struct br_consumer next;
    struct br_arena arena; /* of what lives as long as the scraper */
    struct pprof_target *targets;
    size_t n_targets;
    struct br_header headers[PPROF_HEADERS_MAX];
    size_t n_headers;
    struct br_meter meter;
    double *results[PPROF_RESULTS];
    struct br_overridable overridable;
    struct pprof_override overrides[BR_OVERRIDES_MAX];
    size_t n_overrides;
    struct br_timer overrides_end; /* parked from start on */
    struct br_list waiting;        /* pieces of large profiles; in the ledger */
    struct br_timer next_piece;    /* parked from start on */
    bool stopping;
    unsigned n_reading; /* jobs of which a thread reads something */
    void (*on_idle)(void *arg);
    void *on_idle_arg;
};

/* Tells who waits for the end when nothing is read, waits or is kept any more. */
void pprof_scraper_report(struct pprof_scraper *scraper);

/* Drops the pieces that wait, for "shutdown". */
void pprof_scraper_drop(struct pprof_scraper *scraper);

/* --- Jobs (scrape.c) -------------------------------------------------------------------------- */

/* Returns the shortest interval of a kind: a profile over seconds has to fit into it. */
uint64_t pprof_job_shortest_ms(const struct pprof_config *config, enum pprof_kind kind);

/* Sets a job to run every `interval_ms` from now on, the first time in `delay_ms` (or when the
 * next beat was due, if that is sooner); 0: rests, and what it compared with is forgotten. What is
 * under way goes on. */
void pprof_job_set(struct pprof_job *job, uint64_t interval_ms, uint64_t delay_ms);

/* Ends the request under way and all timers; what has come is still read. */
void pprof_job_stop(struct pprof_job *job);

/* Gives up what is being read, too. */
void pprof_job_leave(struct pprof_job *job);

/* --- Overrides (overrides.c) ------------------------------------------------------------------ */

extern const struct br_overridable_ops pprof_overridable_ops;

/* Gives every job the shortest of the intervals that the config and the overrides ask for; one that
 * it has not had before begins after `delay_ms(j)`. */
void pprof_overrides_refresh(struct pprof_scraper *scraper,
                             uint64_t (*delay_ms)(struct pprof_job *job));
void pprof_overrides_release(struct pprof_scraper *scraper);
