/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types and functions that the files of the pprof receiver share. Profiles come in three ways,
 * each with a file of its own: scraped from targets (targets.c, overrides.c, scrape.c), found in a
 * folder (folder.c), uploaded (upload.c). reader.c makes items of their bytes. Each part has
 * new/start/free of its own, so that none knows another.
 */
#pragma once

#include "ingest/reading.h"
#include "ingest/upload.h"
#include "otlp/build/build.h"
#include "pipeline/redelivery.h"
#include "profile/name.h"
#include "profile/profile.h"

/* --- Config ----------------------------------------------------------------------------------- */

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
    PPROF_CUSTOM, /* the first of the config's own */
};
#define PPROF_CUSTOM_MAX 8
#define PPROF_KINDS ((int)PPROF_CUSTOM + PPROF_CUSTOM_MAX)

/* A profile that the program serves by a name of its own. */
struct pprof_custom_config {
    struct pprof_profile_config profile;
    const char *name; /* its `__name__`, and what overrides call it */
    bool cumulative;
};

/* In the order of enum pprof_kind. `godeltaprof`: the three of it, instead of what they replace. */
struct pprof_profiles_config {
    struct pprof_profile_config cpu, heap, allocs, goroutine, block, mutex, godeltaprof_memory,
        godeltaprof_block, godeltaprof_mutex, threadcreate, fgprof;
    struct pprof_godeltaprof {
        bool enabled;
    } godeltaprof;
    struct br_structs custom; /* of pprof_custom_config */
};

struct pprof_basic_auth {
    const char *username;
    struct br_secret password;
};

enum pprof_after { PPROF_DELETE, PPROF_MOVE, PPROF_REMEMBER };

struct pprof_folder_config {
    const char *path;
    uint64_t poll_interval;
    int after; /* enum pprof_after */
    const char *move_to;
    const char *state;
    const struct br_yaml *labels;
    double sample_rate;
};

struct pprof_config {
    struct br_structs targets; /* of pprof_target_config */
    struct pprof_profiles_config profiles;
    uint64_t scrape_interval, scrape_timeout;
    bool delta;
    struct pprof_basic_auth *basic_auth;
    struct br_secret bearer_token, proxy_url;
    struct br_headers headers;
    struct br_tls_config tls;
    int64_t max_profile_size;
    struct pprof_folder_config *file;
    struct br_http_config *http;
};

extern const struct br_option pprof_options[];
int pprof_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                struct br_errs *errs);

const struct pprof_profile_config *pprof_profile_config(const struct pprof_config *config,
                                                        enum pprof_kind kind);

/* Returns what the config and overrides call a kind; "" for one that there is none of. */
const char *pprof_kind_name(const struct pprof_config *config, enum pprof_kind kind);

/* Returns the `__name__` of a kind: as Grafana Alloy names what it scrapes, with Pyroscope's
 * renaming of godeltaprof_*. */
const char *pprof_kind_metric(const struct pprof_config *config, enum pprof_kind kind);

/* Returns true when its values count since the program began. */
bool pprof_kind_since_start(const struct pprof_config *config, enum pprof_kind kind);

/* Returns true when it is asked for with the seconds that it is to last, whatever the config says.
 */
bool pprof_kind_lasts(enum pprof_kind kind);

/* Makes a Resource of labels of the config (a map of scalars) and `more`, which they go before.
 * Returns 0 or a code with its sentence. */
int pprof_resource(const struct br_yaml *labels, const struct br_label *more, size_t n_more,
                   struct br_arena *arena, struct br_addition *ret, struct br_err *err);

/* --- Bytes to items (reader.c) ---------------------------------------------------------------- */

/* Plain bytes that are converted at once: what takes about two milliseconds. */
#define PPROF_READ_NOW (256u << 10)

/* What scrapes and files are read with. */
struct pprof_reader {
    struct br_host *host;
    struct br_workbench bench;
    size_t max; /* of a profile, unpacked */
};

/* Returns 0 or BR_ENOMEM. */
int pprof_reader_init(struct pprof_reader *reader, struct br_host *host, size_t max);
void pprof_reader_release(struct pprof_reader *reader); /* accepts a zeroed one */

/* A reading that a thread has. */
struct pprof_reading;

/* Called in the worker when a reading is over; what `r` has of an item, and leaves there, is freed.
 */
typedef void pprof_end_fn(void *user, struct br_reading *reading, int rc);

/* Has `body` (NULL: nothing came) read: at once or, when it is large, in a thread.
 * `arg` is br_reading.arg; it and what it points to stay, and nobody changes them, until `end` is
 * called: at once, or later. `*ret` is the reading while a thread has it, and NULL otherwise; it
 * stays where it is. */
void pprof_reader_start(struct pprof_reader *reader, struct br_buf *body, br_read_fn *read,
                        const void *arg, pprof_end_fn *end, void *user, struct pprof_reading **ret);

/* Runs `read`, which finds its bytes itself, in a thread that may wait for a disk. Otherwise as
 * pprof_reader_start. */
void pprof_reader_start_apart(struct pprof_reader *reader, br_read_fn *read, const void *arg,
                              pprof_end_fn *end, void *user, struct pprof_reading **ret);

/* Gives a reading up: it is not running any more when this returns, and `end` is not called.
 * Accepts NULL. */
void pprof_reading_leave(struct pprof_reading *reading);

/* Returns true for what begins as gzip does. */
bool pprof_is_gzip(const uint8_t *data, size_t len);

/* Undoes the body's encoding, and takes off gzip, told by its magic, whatever was said of it.
 * Returns as br_reading_decompress. */
int pprof_unpack(struct br_reading *reading);

/* Finds the format by the content; nothing at all is empty text. Returns 0, or BR_EINVAL with a
 * sentence. */
int pprof_guess(const uint8_t *data, size_t len, enum br_profile_format *ret, struct br_err *err);

/* Makes r->item, not yet in the ledger, out of plain bytes; NULL for nothing at all, and for a
 * pprof without samples (another format without any is BR_EINVAL: it was not understood). Returns 0
 * or a code with its sentence. */
int pprof_read(struct br_reading *reading, enum br_profile_format format,
               const struct br_profile_source *source);

/* Read several profiles that become one item, in two steps: each into the builder (as
 * br_profile_reading), and then, with the first failure or 0, all of them. */
int pprof_build(struct br_reading *reading, enum br_profile_format format,
                const struct br_profile_source *profile_source);
int pprof_built(struct br_reading *reading, int rc);

/* --- The parts -------------------------------------------------------------------------------- */

/* Scraping: this worker's targets (number modulo workers). Returns 0, BR_ENOMEM, or BR_EINVAL with
 * a sentence. */
struct pprof_scraper;
int pprof_scraper_new(struct br_node *node, struct pprof_reader *reader, struct pprof_scraper **ret,
                      struct br_err *err);
int pprof_scraper_start(struct pprof_scraper *scraper, struct br_err *err);

/* Ends what is under way; what was scraped stays with the redelivery until it is idle, and then
 * `on_idle` is called, at once or later. */
void pprof_scraper_stop(struct pprof_scraper *scraper, void (*on_idle)(void *arg), void *arg);
void pprof_scraper_free(struct pprof_scraper *scraper); /* accepts NULL */

/* The folder, on the first worker. It has to be there at the start, and so has the one that files
 * are moved to: else start returns BR_EIO or BR_EINVAL with a sentence. */
struct pprof_folder;
int pprof_folder_new(struct br_node *node, struct pprof_reader *reader, struct pprof_folder **ret,
                     struct br_err *err);
int pprof_folder_start(struct pprof_folder *folder, struct br_err *err);
void pprof_folder_stop(struct pprof_folder *folder, void (*on_idle)(void *arg), void *arg);
void pprof_folder_free(struct pprof_folder *folder); /* accepts NULL */

/* Uploads: answers the request, or makes an upload of it. */
struct pprof_upload {
    struct br_ingest ingest;
    struct br_ingest_listener listener;
    struct br_meter meter;
    struct br_log_limit lost_limit;
};
void pprof_upload_init(struct pprof_upload *upload, const struct br_http_config *http);

/* What Datadog's profilers send to their agent (datadog.c): a br_read_fn. */
#define PPROF_DATADOG_PATH "/profiling/v1/input"
int pprof_datadog_read(struct br_reading *reading);
