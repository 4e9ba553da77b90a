/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the pyroscope exporter, in the order in which data passes through them: from the
 * profiles of an item to push requests. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "net/client.h"
#include "otlp/dictionary/dictionary.h"
#include "pipeline/component.h"
#include "pipeline/exporter.h"
#include "profile/pprof/write.h"
#include "profile/series.h"
#include "wire/compression.h"

/* --- Writing of pprofs ------------------------------------------------------------------------ */

/*
 * Writes the profiles of items as pprofs (profiles in the pprof format). Small items are written at
 * once, in the worker. Larger items, and items that exceed a limit while they are written, are
 * written in a thread of the pool. The thread has its own writer and memory pool. While the thread
 * reads the item, no other thread may change the item.
 *
 * Each pprof contains its own copy of the table entries and labels that it uses. Profiles that
 * share a dictionary, such as those of all processes of a host, therefore grow to several times
 * their size. The growth is limited to a multiple of the item's size. The memory scope of each
 * running conversion belongs to the process's budget, and may use the part of it that is reserved
 * for sending.
 */

/* largest item, in bytes, that is written in the worker; larger items are written in a thread */
#define PYROSCOPE_WRITING_NOW (512u << 10)

/* Limit for the number of bytes of all pprofs of an item and of the dictionary entries that are
 * read for them. The limit is PYROSCOPE_WORK_GROWTH times the item's size, plus
 * PYROSCOPE_WORK_NOW in the worker or PYROSCOPE_WORK_ROOM in a thread. */
#define PYROSCOPE_WORK_GROWTH 4
#define PYROSCOPE_WORK_NOW (1u << 20)
#define PYROSCOPE_WORK_ROOM (8u << 20)

/* Limit for the memory of all pprofs of an item, including the pprof being written, and of the
 * writer's tables. The limit is PYROSCOPE_MEMORY_GROWTH times the item's size, plus
 * PYROSCOPE_MEMORY_ROOM. */
#define PYROSCOPE_MEMORY_GROWTH 8
#define PYROSCOPE_MEMORY_ROOM (16u << 20)

static inline size_t pyroscope_writing_work(const struct br_item *item, bool in_worker)
{
    return PYROSCOPE_WORK_GROWTH * item->size +
           (in_worker ? PYROSCOPE_WORK_NOW : PYROSCOPE_WORK_ROOM);
}

/* Called in the worker with the `n` pprofs of `item`, in the order of its profiles and without
 * types. The pprofs are valid until the callback returns. The callback may take ownership of a
 * pprof's buffer, and must then set the pointer to NULL.
 *
 * `rc` is 0, BR_ENOMEM if memory was short for too long, or a permanent error of br_pprof_write.
 * The callback takes ownership of the item and returns true. Only if `rc` is 0 and memory is
 * short, the callback may instead leave the item to the caller and return false. */
typedef bool pyroscope_written_fn(struct br_node *node, struct br_item *item, int rc,
                                  struct br_pprof_out *pprofs, uint32_t n);

/* average delay in milliseconds before a retry; each delay is 0.5 to 1.5 times this value */
#define PYROSCOPE_WRITING_AGAIN_MS 1000

/* Writes the pprofs of `item`, and takes ownership of the item. `writer` is used in the worker
 * only. `options` is copied. Its function keep_label must be callable in any thread, and its
 * field max_work is ignored. If memory is short, writing is retried as configured in `retry`,
 * which is borrowed. `list` contains the conversions that are in progress. If no thread is
 * needed, `written` is called before this function returns. Returns false if memory is short;
 * then the caller keeps the item. */
bool pyroscope_writing_start(struct br_list *list, struct br_node *node, struct br_item *item,
                             struct br_pprof_writer *writer, const struct br_pprof_options *options,
                             const struct br_retry_config *retry, pyroscope_written_fn *written);

/* Cancels all conversions in `list`. The items of the conversions are finished with BR_RETRY,
 * and `written` is not called. If a thread is running one of the conversions, waits for the
 * thread. */
void pyroscope_writing_cancel_all(struct br_list *list);

/* --- Times ------------------------------------------------------------------------------------ */

/*
 * Gives each profile of a series a unique time. Pyroscope keeps only one profile per series and
 * time: its compaction drops further profiles with the same time in nanoseconds. A profiler of a
 * whole host, however, sends one profile per process with the same time, mostly with the same
 * labels. Therefore the second profile with the same time is dated one microsecond later, the third
 * two microseconds later, and so on.
 *
 * A profile that is sent again, because a client retries, gets the same time as before, so that
 * Pyroscope still keeps it once. The repeated profile is recognised by its labels, Resource, time
 * and content.
 *
 * At least the last PYROSCOPE_TIMES_MAX profiles are remembered; older profiles are forgotten.
 */

#define PYROSCOPE_TIMES_MAX 24576u

struct pyroscope_times;

/* Creates an empty list of the times that profiles have. Returns NULL if memory is short. */
struct pyroscope_times *pyroscope_times_new(void);
/* Frees the list of times. Accepts NULL. */
void pyroscope_times_free(struct pyroscope_times *times);

struct pyroscope_times_of {
    struct br_entry labels, resource, pprof; /* encoded labels, Resource and pprof of the profile */
    uint64_t time_ns;                        /* Unix time of the profile, in nanoseconds */
};

/* Sets `*ret` to the time for a profile: the first time that its series does not use yet,
 * beginning with the profile's own time. Returns false if memory is short. */
bool pyroscope_times_place(struct pyroscope_times *times, const struct pyroscope_times_of *of,
                           uint64_t *ret);

/* --- Labels ----------------------------------------------------------------------------------- */

/*
 * Encodes the labels of a series (profile/series.h) for Pyroscope's push API, and reports dropped
 * labels.
 */

extern const struct br_option pyroscope_label_options[];

struct pyroscope_labels;

/* Creates an encoder of labels. `config` is borrowed for the life of the encoder. Returns NULL
 * if memory is short. */
struct pyroscope_labels *pyroscope_labels_new(struct br_node *node,
                                              const struct br_series_config *config);
void pyroscope_labels_free(struct pyroscope_labels *labels);

/* Returns true if a sample attribute with the name `key` becomes a label: attributes that
 * contain ids do, and the attributes named in the config. Has the type of
 * br_pprof_options.keep_label. Any thread may call this function. */
bool pyroscope_labels_keep(void *labels, const char *key, size_t len);

/* Adds `count` to the number of sample labels that were dropped. */
void pyroscope_labels_count(struct pyroscope_labels *labels, uint32_t count);

/* Clears the cached labels of the last Resource and scope. Must be called after the last profile
 * of an item, because the cache identifies a Resource and a scope by their addresses. */
void pyroscope_labels_forget(struct pyroscope_labels *labels);

/* Encodes the labels of a pprof's series as RawProfileSeries.labels (field 1). The encoded
 * labels are valid until the next call. Returns false if memory is short. */
bool pyroscope_labels_make(struct pyroscope_labels *pyroscope_labels,
                           const struct br_pprof_out *result, const uint8_t **ret, size_t *ret_len);

/* --- Push requests ---------------------------------------------------------------------------- */

/*
 * Sends requests to push.v1.PusherService/Push of one Pyroscope server, over Connect (unary,
 * protobuf).
 *
 * Each request contains one profile. The request is an item with one part, a `series` field
 * (pyroscope_part_make). Pyroscope 2.x stores the profiles of a request one by one. Its error does
 * not name the profiles that it has stored, because Connect returns only the innermost error. A
 * retry of a request with several profiles would store some of them twice.
 *
 * A profile that the server rejects is dropped with the reason "profile_rejected".
 */

/* number of hex digits in the profile's id, which is at the end of a part */
#define PYROSCOPE_ID_LEN 32

struct pyroscope_push_config {
    const char *endpoint; /* URL of the server; the API's path is appended to the URL's path */
    const struct br_tls_config *tls;
    const char *proxy_url; /* URL of a proxy; NULL: the environment variables determine the proxy */
    const struct br_headers *headers;
    /* id of the extension that adds credentials to requests; NULL: no extension adds credentials */
    const char *authenticator;
    /* value of the Authorization header; NULL: the header is not sent */
    struct br_secret authorization;
    /* tenant of all requests, sent as X-Scope-OrgID; NULL: requests have no tenant */
    const char *tenant;
    /* key of the client metadata that contains the tenant; has precedence over `tenant`; NULL:
     * not used */
    const char *tenant_metadata;
    bool gzip;
    uint64_t timeout_ms;
    struct br_client_keepalive keepalive;
    unsigned max_connections;
    const struct br_retry_config *retry;
};

struct pyroscope_push;

/* Creates a sender. Copies the struct `config`, but not the data that its pointers refer to.
 * Returns NULL if memory is short. */
struct pyroscope_push *pyroscope_push_new(struct br_node *node,
                                          const struct pyroscope_push_config *config);

/* Opens the client. Returns 0 or an error of br_host_ops.connect. */
int pyroscope_push_start(struct pyroscope_push *push, struct br_err *err);

struct br_consumer *pyroscope_push_input(struct pyroscope_push *push);

/* Finishes all pending requests, runs loop iterations of the host so that the results are
 * processed, and frees the sender. Accepts NULL. */
void pyroscope_push_free(struct pyroscope_push *push);

/* Makes a RawProfileSeries from encoded labels and a pprof. `*ret` is a part with `n_records`
 * samples; the caller owns `ret->buf`. Returns 0 or BR_ENOMEM. */
int pyroscope_part_make(struct br_pool *pool, const uint8_t *labels, size_t labels_len,
                        const struct br_buf *pprof, uint32_t n_records, struct br_part *ret);

/* --- Numbers of the fields of the push API ---------------------------------------------------- */

/*
 * Field numbers of Pyroscope's push API. Source: api/push/v1/push.proto of grafana/pyroscope. A
 * test compares the numbers with proto/push/v1/push.proto.
 */

/* Fields of the message PushRequest. */
enum { PYROSCOPE_REQUEST_SERIES = 1 };

/* Fields of the message RawProfileSeries. */
enum { PYROSCOPE_SERIES_LABELS = 1, PYROSCOPE_SERIES_SAMPLES = 2 };

/* Fields of the message LabelPair. */
enum { PYROSCOPE_LABEL_NAME = 1, PYROSCOPE_LABEL_VALUE = 2 };

/* Fields of the message RawSample. */
enum { PYROSCOPE_SAMPLE_PROFILE = 1, PYROSCOPE_SAMPLE_ID = 2 };
