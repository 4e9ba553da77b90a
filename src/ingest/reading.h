/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reading makes an item from a request's body: it decompresses the body, converts the data to
 * OTLP, and validates the OTLP data (otlp/walk).
 *
 * A reading uses only its own fields, so it can run in the worker or in a thread of the pool. Small
 * bodies are read in the worker. Large bodies, which would block the worker for too long, are read
 * in a thread. If a reading in the worker finds that its data is large, it returns BR_EAGAIN and is
 * started again in a thread.
 *
 * A reading allocates in a memory scope. Together with the body, it may use BR_READING_GROWTH times
 * the size of the uncompressed body, plus BR_READING_ROOM bytes. A reading never exceeds the memory
 * budget of the process.
 */
#pragma once

#include "base/mem.h"
#include "core/item.h"
#include "core/task.h"
#include "otlp/build/build.h"
#include "otlp/walk/walk.h"
#include "profile/profile.h"
#include "wire/compression.h"
#include "wire/request.h"

#define BR_READING_GROWTH 4u
#define BR_READING_ROOM (1u << 20)
/* A request above this fraction (1/16) of the memory limit is large: unused memory is freed for
 * it. */
#define BR_READING_LARGE 16u

enum br_upload_format { BR_UPLOAD_GRPC, BR_UPLOAD_PROTOBUF, BR_UPLOAD_JSON, BR_UPLOAD_OTHER };

/* Decoders and tables that are reused by one reading after another. */
struct br_workbench {
    struct br_codec *codec;
    struct br_build *build; /* builder for profiles; NULL until a reading creates it */
    struct br_walk_memo memo;
};

/* Creates the codec. Returns 0 or BR_ENOMEM. */
int br_workbench_init(struct br_workbench *workbench);

/* Frees the content of the workbench. Accepts a workbench that is all zero. */
void br_workbench_release(struct br_workbench *workbench);

struct br_reading {
    /* Input of the reading. The input fields are constant during the reading. */
    const void *arg; /* argument for `read`: br_upload.arg */
    /* the request, of which only query, headers, grpc and grpc_compressed are valid */
    const struct br_request *request;
    enum br_signal signal;
    enum br_upload_format format;
    enum br_encoding encoding;
    size_t max_body;
    uint64_t now_ns; /* Unix time of the request, in nanoseconds */
    /* maximum number of uncompressed bytes that may be read in the worker; SIZE_MAX in a thread */
    size_t max_now;
    /* kind of work of the thread; with BR_WORK_DISK the reading always runs in a thread */
    enum br_work_kind kind;

    /* Resources that the reading uses. A reading uses only the pool and the memory budget of the
     * host. */
    struct br_host *host;
    struct br_workbench *bench;
    struct br_mem_scope scope;
    size_t plain; /* number of bytes decompressed so far */
    /* the body as received, never modified; NULL: the body is empty or was freed */
    struct br_buf *body;
    /* buffer that replaces the body, owned by the reading; NULL: the body is not replaced */
    struct br_buf *made;
    /* true: the body belongs to this host's pool and has no other reference; false: the body is
     * borrowed */
    bool owns_body;
    size_t body_len; /* length of the received body in bytes */

    /* Result of the reading. */
    /* the item that was made, owned by the reading; NULL: no item was made */
    struct br_item *item;
    struct br_list pieces; /* pieces of the item, if it was divided (pieces.h) */
    struct br_err err;     /* the error message, if the reading failed */
    /* the status that is reported for BR_EINVAL; initially BR_STATUS_INVALID_ARGUMENT */
    enum br_status invalid;
    /* number of parts of the request that could not be read and are missing in the item */
    uint32_t n_left_out;
    char left_out[400]; /* reason why these parts are missing, as text */
    uint32_t n_lost;    /* number of samples that are missing in a profile */
    char lost[200];     /* error of the first missing sample */
    /* number of invalid references that were ignored (struct br_profile_lost) */
    uint32_t n_strays;
    char stray[200];
    uint32_t n_repaired;  /* number of strings with invalid UTF-8 */
    bool repaired_json;   /* invalid UTF-8 in a JSON text was replaced */
    uint32_t n_corrected; /* number of profiles whose times were corrected */
};

/* Makes an item from the input. Returns 0 and sets reading->item, or leaves it NULL if the request
 * contains no records. Returns BR_EAGAIN if the input is too large to be read in the worker. On
 * other failures, returns an error code, with a message in reading->err. */
typedef int br_read_fn(struct br_reading *reading);

/* Runs `read` in a memory scope, then frees the bytes that were read. Returns the result of `read`.
 * If an allocation failed, the result depends on the reason:
 * - BR_EINVAL: the maximum of the scope was reached;
 * - BR_ETOOBIG: the request needs more memory than the process can ever have;
 * - BR_ENOMEM: a later attempt can succeed.
 *
 * After a failure, reading->item is NULL. */
int br_reading_run(struct br_reading *reading, br_read_fn *read);

/* Returns the reason why the reading failed with `rc`. The text belongs to `reading`, or is
 * constant. */
const char *br_reading_why(const struct br_reading *reading, int rc);

/* Frees the item and the pieces of the reading. */
void br_reading_drop(struct br_reading *reading);

/* Returns the bytes to read: `made` if it is set, otherwise `body`. */
struct br_buf *br_reading_bytes(const struct br_reading *reading);

/* Replaces the bytes to read (br_reading_bytes) with `buf`, and takes the reference to it. */
void br_reading_replace(struct br_reading *reading, struct br_buf *buf);

/* Decompresses `len` bytes at `data` into a new buffer that the caller owns. reading->max_body
 * limits the total number of bytes that one reading decompresses. Returns 0, BR_EAGAIN if the
 * result is too large to be read in the worker, or an error of br_decompress. */
int br_reading_decompress(struct br_reading *reading, enum br_encoding encoding,
                          const uint8_t *data, size_t len, struct br_buf **ret);

/* Frees the bytes to read (br_reading_bytes), and the body if the reading owns it, so that later
 * steps can use the memory. The item must not refer to these bytes. */
void br_reading_free_bytes(struct br_reading *reading);

/* Decompresses the body as `encoding` requires. br_reading_bytes then returns the result.
 * Returns the same codes as br_reading_decompress. */
int br_reading_unpack(struct br_reading *reading);

/* --- Functions that run a reading at once, or in a thread ------------------------------------- */

/* Called in the worker when a reading has ended. `rc` is the result of br_reading_run. `owner` is
 * the argument of br_reading_start. After the callback, the item and the pieces are freed unless
 * the callback has taken them out of `reading`. */
typedef void br_reading_end_fn(void *owner, struct br_reading *reading, int rc);

/* A reading in a thread. The thread uses a separate pool and workbench, and a copy of the
 * request. */
struct br_reading_task {
    struct br_task task;
    struct br_list link;
    struct br_workbench bench;
    struct br_reading reading;
    struct br_request request; /* copy of the request, to which reading.request points */
    /* `slot` of br_reading_start; not valid if the task was cancelled */
    struct br_reading_task **slot;
    br_read_fn *read;
    br_reading_end_fn *end;
    void *owner;
    int rc;
};

/* Runs the reading `how` with the function `read`. The reading runs in the worker, or in a thread
 * if the input is too large. Calls `end` with the result, before this function returns or later. If
 * memory is short, `end` is called with BR_ENOMEM.
 *
 * Takes the reference to how->body, which may be NULL. If this is the only reference, the thread
 * owns the body. While a thread runs the reading, `*slot` points to its task; otherwise it is NULL.
 * `slot` must stay valid until the task has ended or is cancelled. `tasks`, if not NULL, is the
 * list that contains the task until it ends. */
void br_reading_start(const struct br_reading *how, br_read_fn *read, br_reading_end_fn *end,
                      void *owner, struct br_list *tasks, struct br_reading_task **slot);

/* Cancels the reading in `*slot` and sets `*slot` to NULL; `end` is not called. If a thread has
 * already begun the reading, the thread finishes it. Accepts an empty slot. */
void br_reading_cancel(struct br_reading_task **slot);

/* Cancels the reading in `*slot`, and waits until no thread runs the reading. Accepts an empty
 * slot. */
void br_reading_stop(struct br_reading_task **slot);

/* Waits until no thread runs a reading of the list, and empties the list. All readings of the
 * list must have been cancelled. */
void br_reading_wait_all(struct br_list *tasks);

/* --- Profiles (profile_reading.c) ------------------------------------------------------------- */

/*
 * Reads profiles in formats other than OTLP. Some text formats contain every stack in full. Their
 * conversion to OTLP takes more memory than the text, and the tables that find equal stacks take
 * even more. If the conversion of a text does not fit into the memory of the reading, the text is
 * read again in parts. Each part has separate tables, which are freed before the next part. The
 * parts become pieces of one item, as br_pieces_cut makes them.
 */

/* Reads a profile into the workbench's builder with br_profile_read. Returns the same codes as
 * br_profile_read, with a message in reading->err.
 *
 * If the profile's format can be read in parts, the profile must be the only one in the reading.
 * This function then also makes reading->item (NULL if the profile is empty) and leaves the builder
 * empty. If the profile was read in parts, reading->pieces contains the parts. The caller releases
 * `scratch`. */
int br_profile_reading(struct br_reading *reading, enum br_profile_format format,
                       const struct br_profile_source *source, struct br_arena *scratch);

/* Frees the bytes that the item was read from, and divides the item into pieces if it is large
 * (br_pieces_cut). If the reading has no item, only frees the bytes. Returns 0 or BR_ENOMEM. */
int br_profile_reading_cut(struct br_reading *reading);
