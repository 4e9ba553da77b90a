/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reading makes an item of a request's body: it decompresses, translates and walks.
 *
 * A reading touches nothing but what is in it, so that it can run where the request came, or,
 * because it would take long, in a thread of the pool, while the worker goes on with others. Small
 * bodies are read at once; a body that turns out to be large on the way is begun again in a thread
 * (BR_EAGAIN). What a reading allocates lies in a scope: with the body itself at most
 * BR_READING_GROWTH times the body as it is without compression, and BR_READING_ROOM, and never
 * more than the process's memory budget has.
 */
#pragma once

#include "base/mem.h"
#include "core/item.h"
#include "core/task.h"
#include "otlp/build/build.h"
#include "otlp/walk/walk.h"
#include "wire/compression.h"
#include "wire/request.h"

#define BR_READING_GROWTH 4u
#define BR_READING_ROOM (1u << 20)
#define BR_READING_LARGE                                                                           \
    16u /* a request of this part of the limit is worth it to make room for                        \
         */

enum br_upload_format { BR_UPLOAD_GRPC, BR_UPLOAD_PROTOBUF, BR_UPLOAD_JSON, BR_UPLOAD_OTHER };

/* What readings use one after the other: decoders and tables with their memory. */
struct br_workbench {
    struct br_codec *codec;
    struct br_build *build; /* NULL until a reading makes it */
    struct br_walk_memo memo;
};

/* Returns 0 or BR_ENOMEM. */
int br_workbench_init(struct br_workbench *workbench);

/* Accepts a zeroed one. */
void br_workbench_release(struct br_workbench *workbench);

struct br_reading {
    /* What is read; constant while it is. */
    const void *arg;                /* the upload kind's */
    const struct br_request *asked; /* query, headers and grpc_compressed; nothing else of it */
    enum br_signal signal;
    enum br_upload_format format;
    enum br_encoding encoding;
    size_t max_body;
    uint64_t now_ns;        /* unix */
    size_t max_now;         /* plain bytes that may be read at once; SIZE_MAX in a thread */
    enum br_work_kind kind; /* of the thread; BR_WORK_DISK: it is always read in one */

    /* What it is read with. Of the host only the pool and the memory. */
    struct br_host *host;
    struct br_workbench *bench;
    struct br_mem_scope scope;
    size_t plain;        /* bytes that were decompressed so far */
    struct br_buf *body; /* as it came; never changed; NULL: nothing, or no more */
    struct br_buf *made; /* what took its place, owned; NULL: nothing */
    bool owns_body;      /* of its own pool, and held by nobody else; else borrowed */
    size_t came;         /* the body's size */

    /* What came of it. */
    struct br_item *item;  /* owned by the reading */
    struct br_list pieces; /* of the item, where it was cut (pieces.h) */
    struct br_err err;     /* the sentence, when it failed */
    enum br_status
        invalid; /* what BR_EINVAL means to the client; BR_STATUS_INVALID_ARGUMENT at first */
    uint32_t n_left_out; /* pieces that are not in the item ... */
    char left_out[400];  /* ... and why */
    uint32_t n_lost;     /* samples without which their profile was read ... */
    char lost[200];      /* ... and the error of the first */
    uint32_t n_strays;   /* the same of references (struct br_profile_lost) */
    char stray[200];
    uint32_t n_repaired;  /* strings */
    bool mended;          /* a JSON text was not UTF-8, and is now */
    uint32_t n_corrected; /* profiles whose times were corrected */
};

/* Makes an item of what is read. Returns 0 with r->item set, or NULL where there is nothing to
 * send; BR_EAGAIN when it is too much to be done at once; else a code, with its sentence in r->err.
 */
typedef int br_read_fn(struct br_reading *reading);

/* Runs `read` inside a scope. What memory refuses is told apart from what is wrong: BR_EINVAL when
 * the scope's maximum is what refused it. On failure there is no item. Gives up what was read. */
int br_reading_run(struct br_reading *reading, br_read_fn *read);

/* Returns why the reading failed with `rc`. Borrowed from `reading`, or a constant. */
const char *br_reading_why(const struct br_reading *reading, int rc);

/* Frees what was made. */
void br_reading_drop(struct br_reading *reading);

/* Returns the current bytes: `made`, or else `body`. */
struct br_buf *br_reading_bytes(const struct br_reading *reading);

/* Puts `buf`, which it takes, in the place of the current bytes. */
void br_reading_replace(struct br_reading *reading, struct br_buf *buf);

/* Decompresses `len` bytes at `data` into a new buffer that the caller owns. All that one reading
 * decompresses may have `max_body` bytes. Returns 0; BR_EAGAIN when it is too much to be done at
 * once; or an error of br_decompress. */
int br_reading_decompress(struct br_reading *reading, enum br_encoding encoding,
                          const uint8_t *data, size_t len, struct br_buf **ret);

/* Gives up the current bytes and an owned body, to which nothing in the item refers: what comes
 * next has the room. */
void br_reading_give_up(struct br_reading *reading);

/* Undoes the body's encoding: the current bytes are plain afterwards. Returns as
 * br_reading_decompress. */
int br_reading_unpack(struct br_reading *reading);

/* --- At once, or in a thread ------------------------------------------------------------------ */

/* Called in the worker when a reading has ended; `rc` is the result of br_reading_run. The item and
 * the pieces that it leaves in `reading` are freed. `owner` is the argument of br_reading_start. */
typedef void br_reading_end_fn(void *owner, struct br_reading *reading, int rc);

/* A reading in a thread, with a pool, a workbench and a copy of the request. */
struct br_reading_task {
    struct br_task task;
    struct br_list link;
    struct br_workbench bench;
    struct br_reading reading;
    struct br_request request;     /* reading.asked */
    struct br_reading_task **slot; /* valid unless the task was cancelled */
    br_read_fn *read;
    br_reading_end_fn *end;
    void *owner;
    int rc;
};

/* Reads `how` with `read` at once, or in a thread if it is too large for that, then calls `end`:
 * before this returns, or later. Takes the reference to how->body (NULL: there is no body). The
 * thread owns the body if that was the only reference. `*slot` is the task while a thread has it,
 * else NULL; it stays at its address until then. `tasks`, if not NULL, is the list that the task is
 * in until it ends. If memory is short, `end` is called with BR_ENOMEM. */
void br_reading_start(const struct br_reading *how, br_read_fn *read, br_reading_end_fn *end,
                      void *owner, struct br_list *tasks, struct br_reading_task **slot);

/* Cancels the reading in `*slot`: `end` is not called, and `*slot` is NULL afterwards. A thread
 * that has already begun goes on. Accepts an empty slot. */
void br_reading_cancel(struct br_reading_task **slot);

/* Cancels the reading in `*slot`, and waits until no thread is running it. Accepts an empty slot.
 */
void br_reading_stop(struct br_reading_task **slot);

/* Waits until no thread runs a reading of the list. All of them were cancelled. Empties the list.
 */
void br_reading_wait_all(struct br_list *tasks);
