/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types and functions shared by the files of the pprof receiver. Profiles have three sources:
 * scraped from targets (targets.c, overrides.c, scrape.c), found in a directory (directory.c), and
 * uploaded (upload.c). reader.c converts profiles to items. Each source has its own new, start and
 * free functions and is independent of the others.
 */
#pragma once

#include "ingest/reading.h"
#include "ingest/upload.h"
#include "otlp/build/build.h"
#include "pipeline/hold.h"
#include "profile/name.h"
#include "profile/profile.h"

/* --- Configuration ---------------------------------------------------------------------------- */

struct pprof_target_config {
    const char *endpoint;
    const struct br_yaml *labels;
    bool on_demand;
};

struct pprof_profile_config {
    bool enabled;
    const char *path;
    int64_t seconds;
};

enum pprof_kind {
    PPROF_CPU,
    PPROF_HEAP,
    PPROF_ALLOCS,
    PPROF_GOROUTINE,
    PPROF_BLOCK,
    PPROF_MUTEX,
    PPROF_GODELTAPROF_MEMORY,
    PPROF_GODELTAPROF_BLOCK,
    PPROF_GODELTAPROF_MUTEX,
    PPROF_THREADCREATE,
    PPROF_FGPROF,
    /* first of the custom profiles; custom profile i has the number PPROF_CUSTOM + i */
    PPROF_CUSTOM,
};
#define PPROF_CUSTOM_MAX 8
#define PPROF_KINDS ((int)PPROF_CUSTOM + PPROF_CUSTOM_MAX)

/* A custom profile, which the scraped program defines itself. */
struct pprof_custom_config {
    struct pprof_profile_config profile;
    /* value of the label `__name__`; overrides refer to the profile by this name, too */
    const char *name;
    bool cumulative;
};

/* Settings of the profiles, in the order of enum pprof_kind. `godeltaprof` enables the three
 * profiles `godeltaprof_*` and disables the profiles that they replace. */
struct pprof_profiles_config {
    struct pprof_profile_config cpu, heap, allocs, goroutine, block, mutex, godeltaprof_memory,
        godeltaprof_block, godeltaprof_mutex, threadcreate, fgprof;
    struct pprof_godeltaprof {
        bool enabled;
    } godeltaprof;
    struct br_structs custom; /* list of struct pprof_custom_config */
};

struct pprof_basic_auth {
    const char *username;
    struct br_secret password;
};

enum pprof_after { PPROF_DELETE, PPROF_MOVE, PPROF_REMEMBER };

struct pprof_directory_config {
    const char *path;
    uint64_t poll_interval;
    int after; /* action after a file was read, an enum pprof_after */
    const char *move_to;
    const char *state;
    const struct br_yaml *labels;
    double sample_rate;
};

struct pprof_config {
    struct br_structs targets; /* list of struct pprof_target_config */
    struct pprof_profiles_config profiles;
    uint64_t scrape_interval, scrape_timeout;
    bool delta;
    struct pprof_basic_auth *basic_auth;
    struct br_secret bearer_token, proxy_url;
    struct br_headers headers;
    struct br_tls_config tls;
    int64_t max_profile_size;
    struct pprof_directory_config *file;
    struct br_http_config *http;
};

extern const struct br_option pprof_options[];
int pprof_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                struct br_errs *errs);

const struct pprof_profile_config *pprof_profile_config(const struct pprof_config *config,
                                                        enum pprof_kind kind);

/* Returns the name of a kind in the config and in overrides; "" for an unused custom kind. */
const char *pprof_kind_name(const struct pprof_config *config, enum pprof_kind kind);

/* Returns the value of the label `__name__` for a kind of profile. The values are those of
 * Grafana Alloy; for `godeltaprof_*` they are those of Pyroscope. */
const char *pprof_kind_metric(const struct pprof_config *config, enum pprof_kind kind);

/* Returns true if the values of a kind are totals since the program began. */
bool pprof_kind_is_total(const struct pprof_config *config, enum pprof_kind kind);

/* Returns true if a kind always needs a duration in its request. */
bool pprof_kind_has_duration(enum pprof_kind kind);

/* Builds a Resource from `labels` (a map of scalars in the config) and `more`. `labels` take
 * precedence. Returns 0, or an error code with a message in `err`. */
int pprof_resource(const struct br_yaml *labels, const struct br_label *more, size_t n_more,
                   struct br_arena *arena, struct br_addition *ret, struct br_err *err);

/* --- Functions that convert profiles to items (reader.c) -------------------------------------- */

/* Largest uncompressed profile, in bytes, that is converted immediately. The conversion of such
 * a profile takes about two milliseconds. Larger profiles are converted in a thread. */
#define PPROF_READ_NOW (256u << 10)

/* State of the reader of scraped profiles and files. */
struct pprof_reader {
    struct br_host *host;
    struct br_workbench bench;
    size_t max; /* largest uncompressed profile, in bytes */
};

/* Initialises a reader. Returns 0 or BR_ENOMEM. */
int pprof_reader_init(struct pprof_reader *reader, struct br_host *host, size_t max);
/* Frees the memory of a reader. Accepts a zeroed reader. */
void pprof_reader_release(struct pprof_reader *reader);

/* Converts `body` (NULL: empty) immediately or, if it is large, in a thread. `arg` becomes
 * br_reading.arg; it must stay valid and unchanged until `end` is called, which may be before
 * this function returns. `*ret` points to the conversion while a thread runs it and is NULL
 * otherwise. `ret` must stay valid. */
void pprof_reader_start(struct pprof_reader *reader, struct br_buf *body, br_read_fn *read,
                        const void *arg, br_reading_end_fn *end, void *user,
                        struct br_reading_task **ret);

/* Runs `read` in a thread that may block on a disk. `read` obtains the data itself. In all other
 * respects, the function works like pprof_reader_start. */
void pprof_reader_start_in_thread(struct pprof_reader *reader, br_read_fn *read, const void *arg,
                                  br_reading_end_fn *end, void *user, struct br_reading_task **ret);

/* Returns true if the data begins with the magic bytes of gzip. */
bool pprof_is_gzip(const uint8_t *data, size_t len);

/* Decompresses the body according to its declared encoding. If the result begins with the magic
 * bytes of gzip, decompresses it again. Returns the same codes as br_reading_decompress. */
int pprof_unpack(struct br_reading *reading);

/* Determines the format of a profile from its content. Empty data counts as folded text. Returns
 * 0, or BR_EINVAL with a message. */
int pprof_guess(const uint8_t *data, size_t len, enum br_profile_format *ret, struct br_err *err);

/* Converts an uncompressed profile to `reading->item`, which is not yet counted in the ledger.
 * For an empty source or a pprof without samples the item is NULL. For other formats without
 * samples, returns BR_EINVAL. Returns 0, or an error code with a message. */
int pprof_read(struct br_reading *reading, enum br_profile_format format,
               const struct br_profile_source *source);

/* Adds a profile to the builder, so that several profiles become one item. Returns the same
 * codes as br_profile_reading. */
int pprof_build(struct br_reading *reading, enum br_profile_format format,
                const struct br_profile_source *profile_source);

/* Ends the conversion of the profiles that pprof_build added, and creates the item if there are
 * records. `rc` is 0 or the first error of pprof_build. Returns 0, or an error code with a
 * message. */
int pprof_built(struct br_reading *reading, int rc);

/* --- Sources ---------------------------------------------------------------------------------- */

/* Scraper of the targets of this worker, which are every n_workers-th target of the config.
 * pprof_scraper_new and pprof_scraper_start return 0, BR_ENOMEM, or BR_EINVAL with a message. */
struct pprof_scraper;
int pprof_scraper_new(struct br_node *node, struct pprof_reader *reader, struct pprof_scraper **ret,
                      struct br_err *err);
int pprof_scraper_start(struct pprof_scraper *scraper, struct br_err *err);

/* Cancels running scrapes. Scraped profiles stay queued until they are delivered; then `on_idle`
 * is called, possibly before this function returns. */
void pprof_scraper_stop(struct pprof_scraper *scraper, void (*on_idle)(void *arg), void *arg);
void pprof_scraper_free(struct pprof_scraper *scraper); /* Frees a scraper. Accepts NULL. */

/* Reader of a directory, which runs on the first worker. pprof_directory_start returns BR_EIO or
 * BR_EINVAL with a message if the directory, or the directory for moved files, does not exist. */
struct pprof_directory;
int pprof_directory_new(struct br_node *node, struct pprof_reader *reader,
                        struct pprof_directory **ret, struct br_err *err);
int pprof_directory_start(struct pprof_directory *directory, struct br_err *err);
void pprof_directory_stop(struct pprof_directory *directory, void (*on_idle)(void *arg), void *arg);
void pprof_directory_free(
    struct pprof_directory *directory); /* Frees a directory reader. Accepts NULL. */

/* Receives uploads over HTTP. */
struct pprof_upload {
    struct br_ingest ingest;
    struct br_ingest_listener listener;
    struct br_meter meter;
    struct br_log_limit lost_limit;
};
void pprof_upload_init(struct pprof_upload *upload, const struct br_http_config *http);

/* Reads a request that a Datadog profiler sends to its agent (datadog.c). A br_read_fn. */
#define PPROF_DATADOG_PATH "/profiling/v1/input"
int pprof_datadog_read(struct br_reading *reading);
