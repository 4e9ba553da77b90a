/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/reading.h"

#include <string.h>

#include "ingest/pieces.h"
#include "otlp/sample_types.h"

/* Minimum size, in bytes, of a block that leaves no hole in the heap when it grows, because the
 * system can move its pages. */
#define HOLES BR_MEM_MAPPED
#define ROUNDING 64u /* The overhead of a heap block is at most 1/ROUNDING of its size. */

int br_workbench_init(struct br_workbench *workbench)
{
    *workbench = (struct br_workbench){.codec = br_codec_new()};
    return workbench->codec ? 0 : BR_ENOMEM;
}

void br_workbench_release(struct br_workbench *workbench)
{
    br_codec_free(workbench->codec);
    br_build_free(workbench->build);
    br_walk_memo_release(&workbench->memo);
    *workbench = (struct br_workbench){0};
}

struct br_buf *br_reading_bytes(const struct br_reading *reading)
{
    return reading->made ? reading->made : reading->body;
}

void br_reading_replace(struct br_reading *reading, struct br_buf *buf)
{
    br_buf_unref(reading->made);
    reading->made = buf;
}

void br_reading_free_bytes(struct br_reading *reading)
{
    br_reading_replace(reading, NULL);
    if (reading->owns_body)
        reading->body = br_buf_unref(reading->body);
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* Returns the size of the body before or after decompression, whichever is larger. */
static size_t reading_size(const struct br_reading *reading)
{
    return reading->body_len > reading->plain ? reading->body_len : reading->plain;
}

/* Returns the number of bytes that a reading and its body may use. Growing tables leave holes in
 * the heap, and heap blocks have an overhead. The sizes of the holes and of the overhead are
 * subtracted. */
static size_t reading_max(size_t size)
{
    size_t unused = (size < HOLES ? size : HOLES) + size / ROUNDING;
    return size * BR_READING_GROWTH + BR_READING_ROOM - unused;
}

static void reading_widen(struct br_reading *reading, size_t plain)
{
    size_t before = reading_max(reading_size(reading));
    reading->plain += plain;
    reading->scope.max += reading_max(reading_size(reading)) - before;
}

int br_reading_decompress(struct br_reading *reading, enum br_encoding encoding,
                          const uint8_t *data, size_t len, struct br_buf **ret)
{
    size_t remaining = reading->max_body - reading->plain, max = remaining;
    bool partly = reading->max_now < reading->max_body;
    if (partly)
        max = reading->max_now > reading->plain ? reading->max_now - reading->plain : 0;
    size_t before = reading->scope.max;
    /* During decompression, the memory scope also allows a result of `max` bytes, plus a fourth
     * because the result's buffer can be larger than requested, plus the decoder's memory, which is
     * freed afterwards. */
    reading->scope.max += max + max / 4 + BR_DECODER_MAX;
    int rc = br_decompress(reading->bench->codec, encoding, data, len, max, reading->host->pool,
                           ret, &reading->err);
    reading->scope.max = before;
    if (rc == BR_ETOOBIG && partly)
        return BR_EAGAIN;
    if (rc == 0)
        reading_widen(reading, (*ret)->len);
    return rc;
}

int br_reading_unpack(struct br_reading *reading)
{
    struct br_buf *packed = br_reading_bytes(reading), *plain = NULL;
    if (reading->encoding == BR_ENCODING_NONE ||
        (reading->request->grpc && !reading->request->grpc_compressed))
        return 0;
    int rc = br_reading_decompress(reading, reading->encoding, packed->data, packed->len, &plain);
    if (rc == 0)
        br_reading_replace(reading, plain);
    return rc;
}

/* --- Running ---------------------------------------------------------------------------------- */

void br_reading_drop(struct br_reading *reading)
{
    br_pieces_free(&reading->pieces);
    br_item_free(reading->item);
    reading->item = NULL;
}

/* Returns true if the body and the allocation that failed would not fit into memory even in an
 * idle process. If the request is large, frees unused memory first. */
static bool reading_never_fits(const struct br_reading *reading)
{
    struct br_memory *memory = reading->host->memory;
    size_t held = reading->body ? reading->body->cap : 0,
           wanted = (held ? held : reading->body_len) + reading->scope.wanted;
    if (!memory || !reading->scope.refused)
        return false;
    if (wanted > br_memory_hard(memory) / BR_READING_LARGE)
        br_memory_settle(memory, held);
    return wanted > br_memory_largest(memory);
}

/* Counts the samples by type for the receiver. If memory is short, samples are counted without a
 * type. */
static void reading_count_types(struct br_reading *reading)
{
    struct br_item *item = reading->item;
    if (!item || item->signal != BR_PROFILES || item->sample_types)
        return;
    struct br_sample_types *types = br_arena_calloc(&item->arena, 1, sizeof *types);
    if (!types)
        return;
    br_sample_types_add(types, item);
    for (struct br_list *list = reading->pieces.next; list != &reading->pieces; list = list->next)
        br_sample_types_add(types, br_container_of(list, struct br_item, link));
    item->sample_types = types;
}

int br_reading_run(struct br_reading *reading, br_read_fn *read)
{
    size_t body = reading->body_len = reading->body ? reading->body->len : 0;
    br_mem_scope_begin(&reading->scope, reading_max(body) - body, reading->host->memory);
    int rc = read(reading);
    if (rc)
        br_reading_drop(reading);
    else
        reading_count_types(reading);
    br_reading_free_bytes(reading);
    br_mem_scope_end(&reading->scope);
    if (rc == BR_ENOMEM && !reading->scope.full && reading_never_fits(reading))
        return br_err_set(&reading->err, BR_ETOOBIG,
                          "decoding the body takes more memory than the memory limit allows");
    if (rc == 0 || rc == BR_EAGAIN || !reading->scope.full)
        return rc;
    size_t bytes = reading_size(reading), most = reading->scope.max + body;
    reading->invalid = BR_STATUS_INVALID_ARGUMENT;
    reading->err = (struct br_err){0};
    return br_err_set(
        &reading->err, BR_EINVAL,
        "decoding the body takes more than %zu bytes of memory (%u times its %zu bytes, plus %u)",
        most, BR_READING_GROWTH, bytes, BR_READING_ROOM);
}

const char *br_reading_why(const struct br_reading *reading, int rc)
{
    if (rc == BR_ENOMEM && reading->scope.refused)
        return "memory limit reached";
    return reading->err.text[0] ? reading->err.text : br_strerror(rc);
}

/* --- Reading at once, or in a thread ---------------------------------------------------------- */

static const char *reading_copy_text(char **at, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = memcpy(*at, text, size);
    *at += size;
    return copy;
}

/* Copies the fields of a request that readings use, because the client may disconnect while a
 * thread reads the body. One block contains the headers, followed by all texts. */
static int reading_copy_request(struct br_request *copy, const struct br_request *request)
{
    size_t n = request->n_headers, size = n * sizeof *copy->headers + strlen(request->query) + 1;
    for (size_t i = 0; i < n; i++)
        size += strlen(request->headers[i].name) + strlen(request->headers[i].value) + 2;
    struct br_header *headers = br_malloc(size);
    if (!headers)
        return BR_ENOMEM;
    char *at = (char *)(headers + n);
    *copy = (struct br_request){.query = reading_copy_text(&at, request->query),
                                .headers = headers,
                                .n_headers = n,
                                .grpc = request->grpc,
                                .grpc_compressed = request->grpc_compressed};
    for (size_t i = 0; i < n; i++) {
        headers[i].name = reading_copy_text(&at, request->headers[i].name);
        headers[i].value = reading_copy_text(&at, request->headers[i].value);
    }
    return 0;
}

static void reading_free_task(struct br_reading_task *task)
{
    br_list_remove(&task->link);
    br_reading_drop(&task->reading);
    br_buf_unref(task->reading.body);
    br_workbench_release(&task->bench);
    br_task_release(&task->task);
    br_free((void *)(uintptr_t)task->request.headers);
    br_free(task);
}

static void reading_on_run(struct br_task *base)
{
    struct br_reading_task *task = br_container_of(base, struct br_reading_task, task);
    task->rc = br_reading_run(&task->reading, task->read);
    br_walk_memo_release(&task->bench.memo);
}

static void reading_on_done(struct br_task *base)
{
    struct br_reading_task *task = br_container_of(base, struct br_reading_task, task);
    struct br_reading *reading = &task->reading;
    struct br_host *home = base->home;
    if (reading->owns_body && reading->body) /* the reading was cancelled before it began */
        br_buf_adopt(reading->body, home->pool);
    if (reading->item)
        br_item_move(reading->item, home);
    for (struct br_list *list = reading->pieces.next; list != &reading->pieces; list = list->next)
        br_item_move(br_container_of(list, struct br_item, link), home);
    if (!br_task_is_cancelled(base)) {
        *task->slot = NULL;
        task->end(task->owner, reading, task->rc);
    }
    reading_free_task(task);
}

/* Returns a new task without a body and an owner. Returns NULL if memory is short. */
static struct br_reading_task *reading_new_task(const struct br_reading *how)
{
    struct br_reading_task *task = br_calloc(1, sizeof *task);
    if (!task)
        return NULL;
    br_task_init(&task->task, how->host, reading_on_run, reading_on_done);
    task->task.work.kind = how->kind;
    br_list_init(&task->link);
    task->reading = *how;
    task->reading.host = &task->task.host;
    task->reading.bench = &task->bench;
    task->reading.request = &task->request;
    task->reading.max_now = SIZE_MAX;
    task->reading.body = NULL;
    br_list_init(&task->reading.pieces);
    if (br_task_add_pool(&task->task, how->host->memory) || br_workbench_init(&task->bench) ||
        reading_copy_request(&task->request, how->request)) {
        reading_free_task(task);
        return NULL;
    }
    return task;
}

/* Starts the task, which takes the reference to `body`. */
static void reading_start_task(struct br_reading_task *task, struct br_buf *body)
{
    struct br_reading *reading = &task->reading;
    *task->slot = task;
    reading->body = body;
    reading->owns_body = body && body->refs == 1;
    if (reading->owns_body)
        br_buf_adopt(body, task->task.host.pool);
    br_task_start(&task->task);
}

void br_reading_start(const struct br_reading *how, br_read_fn *read, br_reading_end_fn *end,
                      void *owner, struct br_list *tasks, struct br_reading_task **slot)
{
    struct br_reading reading = *how;
    bool small = how->kind != BR_WORK_DISK && (!how->body || how->body->len <= how->max_now);
    br_list_init(&reading.pieces);
    *slot = NULL;
    int rc = small ? br_reading_run(&reading, read) : BR_EAGAIN;
    if (rc == BR_EAGAIN) {
        struct br_reading_task *task = reading_new_task(how);
        if (task) {
            task->slot = slot;
            task->read = read;
            task->end = end;
            task->owner = owner;
            if (tasks)
                br_list_append(tasks, &task->link);
            reading_start_task(task, how->body);
            return;
        }
        reading = *how;
        br_list_init(&reading.pieces);
        rc = BR_ENOMEM;
    }
    br_buf_unref(how->body);
    end(owner, &reading, rc);
    br_reading_drop(&reading);
}

void br_reading_cancel(struct br_reading_task **slot)
{
    if (*slot)
        br_task_cancel(&(*slot)->task);
    *slot = NULL;
}

void br_reading_stop(struct br_reading_task **slot)
{
    if (*slot)
        br_task_stop(&(*slot)->task);
    *slot = NULL;
}

void br_reading_wait_all(struct br_list *tasks)
{
    struct br_list *list;
    while ((list = br_list_shift(tasks)))
        br_task_stop(&br_container_of(list, struct br_reading_task, link)->task);
}
