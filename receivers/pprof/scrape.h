/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types and functions for scraping, shared by targets.c, scrape.c and overrides.c only. A job
 * scrapes one profile of one target at regular intervals, with at most one request at a time. Every
 * target has a job for each kind of profile. A job that neither the config nor an override enables
 * is inactive. A scrape that cannot start is skipped and counted, and not repeated.
 */
#pragma once

#include "net/client.h"
#include "pipeline/override.h"
#include "receivers/pprof/delta.h"
#include "receivers/pprof/pprof.h"

/* largest length in bytes of the URL query that requests a duration, such as "?seconds=3600",
 * with its NUL */
#define PPROF_PATH_MORE 32
#define PPROF_HEADERS_MAX (BR_HEADERS_MAX + 1)

/* Result of the last scrape of a job. */
enum pprof_result {
    PPROF_WAITING, /* the job has not started a scrape yet */
    PPROF_OK,
    PPROF_EMPTY,
    PPROF_FAILED,
    PPROF_IN_USE,
    PPROF_BUSY,       /* skipped, because the previous scrape was still running */
    PPROF_LOW_MEMORY, /* skipped, because too much memory was in use */
    PPROF_SHED,       /* skipped, because the process was overloaded (core/shed.h) */
    PPROF_RESULTS,
};

struct pprof_target;

struct pprof_job {
    struct pprof_target *target;
    enum pprof_kind kind;
    /* Timers whose memory pprof_scraper_start reserved, so setting them cannot fail. */
    struct br_timer schedule, timeout;
    uint64_t interval_ms; /* interval between scrapes in milliseconds; 0: the job is inactive */
    /* ID of the override in effect, and time when it ends, in milliseconds of the monotonic
     * clock; 0: the config is in effect */
    uint64_t override, until_ms;
    uint64_t due_ms;     /* time of the next scrape, in milliseconds of the monotonic clock */
    uint64_t timeout_ms; /* timeout of the current request, in milliseconds */
    bool busy, failing;
    bool has_flaws;                  /* samples of the last profile were left out */
    bool forget;                     /* `delta` is to be cleared when the current conversion ends */
    struct br_reading_task *reading; /* conversion of a response; NULL unless a thread runs it */
    enum pprof_result last;
    /* the previous profile, to compute a difference; NULL: profiles are sent unchanged */
    struct pprof_delta *delta;
    struct br_exchange exchange;
    /* path of the current request, with room for PPROF_PATH_MORE more bytes that request the
     * duration */
    char *path;
    size_t path_size;
};

struct pprof_target {
    struct pprof_scraper *scraper;
    const struct pprof_target_config *config;
    const char *origin; /* URL of the target without its path, for the log */
    /* path of the target's URL, to which the path of each profile is appended */
    const char *prefix;
    const char *service; /* name of the service in the config, or "" */
    size_t service_len;
    struct br_client *client;
    struct br_addition resource;
    struct pprof_job jobs[PPROF_KINDS];
};

struct pprof_override {
    uint64_t id, until_ms, interval_ms;
    /* the override applies to this service and this target; NULL: the override applies to all
     * services or targets */
    char *service, *target;
    bool kinds[PPROF_KINDS];
};

struct pprof_scraper {
    struct br_node *node;
    const struct pprof_config *config;
    struct pprof_reader *reader;
    struct br_hold sent;
    struct br_consumer next;
    struct br_arena arena; /* memory that is freed with the scraper */
    struct pprof_target *targets;
    size_t n_targets;
    struct br_header headers[PPROF_HEADERS_MAX];
    size_t n_headers;
    struct br_meter meter;
    double *results[PPROF_RESULTS];
    struct br_overridable overridable;
    struct pprof_override overrides[BR_OVERRIDES_MAX];
    size_t n_overrides;
    /* fires when the next override ends; pprof_scraper_start reserved its memory, so setting it
     * cannot fail */
    struct br_timer overrides_end;
    /* pieces of large profiles that have not been sent yet; counted in the ledger */
    struct br_list waiting;
    /* fires when the next piece is sent; pprof_scraper_start reserved its memory, so setting it
     * cannot fail */
    struct br_timer next_piece;
    bool stopping;
    unsigned n_reading; /* number of jobs whose response a thread converts */
    void (*on_idle)(void *arg);
    void *on_idle_arg;
};

/* Calls `scraper->on_idle` if the scraper is stopping and nothing is being converted or queued. */
void pprof_scraper_report(struct pprof_scraper *scraper);

/* Drops the queued pieces with the reason "shutdown". */
void pprof_scraper_drop(struct pprof_scraper *scraper);

/* --- Jobs (scrape.c) -------------------------------------------------------------------------- */

/* Returns the shortest interval that a kind of profile allows. The interval must be longer than
 * the duration of a profile. */
uint64_t pprof_job_shortest_ms(const struct pprof_config *config, enum pprof_kind kind);

/* Sets the interval of a job. The next scrape starts after `delay_ms` milliseconds, or at its
 * previous due time if that is earlier. If the interval is 0, the job becomes inactive and its
 * previous profile is removed. A running scrape is not affected. */
void pprof_job_set(struct pprof_job *job, uint64_t interval_ms, uint64_t delay_ms);

/* Cancels the current request and stops all timers. Responses already received are still
 * converted. */
void pprof_job_stop(struct pprof_job *job);

/* Cancels the conversion of a response. */
void pprof_job_cancel_reading(struct pprof_job *job);

/* --- Overrides (overrides.c) ------------------------------------------------------------------ */

extern const struct br_overridable_ops pprof_overridable_ops;

/* Sets the interval of every job to the shortest interval that the config and the overrides
 * contain for that job. A job whose interval became shorter runs after `delay_ms(job)`
 * milliseconds. */
void pprof_overrides_refresh(struct pprof_scraper *scraper,
                             uint64_t (*delay_ms)(struct pprof_job *job));
void pprof_overrides_release(struct pprof_scraper *scraper);
