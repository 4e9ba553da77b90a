/* SPDX-License-Identifier: Apache-2.0 */
/* Implements GET slice, which returns the stored data of a time range as a file for `braid
 * open`. */
#include <stdio.h>
#include <time.h>

#include "extensions/query/braid.h"
#include "storage/slice.h"

#define SLICE_PIECE (256u << 10)

static void slice_release(void *slice)
{
    br_slice_end(slice);
}

/* Returns true if the download must stop. query_timeout does not apply, because the duration of
 * a download depends on the client. */
static bool slice_is_stopped(void *arg)
{
    const struct query_job *job = arg;
    return br_task_is_cancelled(&job->task);
}

static void slice_put_headers(struct query_job *job, uint64_t until_ns)
{
    char text[80];
    time_t until = (time_t)((until_ns < job->now_ns ? until_ns : job->now_ns) / BRAID_SECOND_NS);
    struct tm parts = {0};
    (void)gmtime_r(&until, &parts);
    (void)strftime(text, sizeof text, "attachment; filename=\"braid-%Y%m%d-%H%M%S.tar\"", &parts);
    query_job_header(job, "content-disposition", text);
    query_job_header(job, "cache-control", "no-store");
}

static int slice_begin(struct query_job *job, struct br_err *err)
{
    struct br_slice_reader *slice;
    uint64_t from_ns, until_ns;
    if (!query_braid_range(job, &from_ns, &until_ns))
        return BR_EINVAL;
    int rc = br_slice_begin_store(job->query->store, from_ns, until_ns, &slice, err);
    if (rc) {
        query_job_fail_rc(job, rc, err);
        return rc;
    }
    br_slice_stop_when(slice, slice_is_stopped, job);
    job->state = slice;
    job->release = slice_release;
    slice_put_headers(job, until_ns);
    return 0;
}

/* Appends the next bytes of the file to the response. Called repeatedly until the file is
 * complete. */
void query_braid_slice(struct query_job *job)
{
    struct br_err err = {0};
    size_t len = 0;
    job->type = "application/x-tar";
    if (job->n_calls == 0 && slice_begin(job, &err))
        return;
    if (job->head_only)
        return;
    char *piece = br_arena_alloc(&job->arena, SLICE_PIECE);
    int rc = piece ? br_slice_read(job->state, piece, SLICE_PIECE, &len, &err) : BR_ENOMEM;
    if (rc) {
        query_job_fail_rc(job, rc, &err);
        return;
    }
    unsigned n_unread = br_slice_unread(job->state);
    if (!len && n_unread)
        br_warn(&job->query->node->log, "a slice is incomplete: %u partitions could not be read",
                n_unread);
    br_str_add(&job->out, piece, len);
    job->again_ms = len ? 1 : 0;
}
