/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a reading in a thread of the pool, with a pool and a workbench of its own. The job is a
 * member of what it works for. That may be given up meanwhile, but has to keep the job and what the
 * reading reads until `done`.
 */
#pragma once

#include "ingest/reading.h"

struct br_reading_job {
    struct br_work work;
    struct br_host host; /* the thread's: pool and memory */
    struct br_host *home;
    struct br_workbench bench;
    struct br_reading reading;
    br_read_fn *read;
    /* In the worker, once, also when it never ran (then job->rc is 0 and there is no item). What
     * the reading made is the worker's now; the job is over and may be released. */
    void (*done)(struct br_reading_job *job);
    int rc;
};

/* Sets up a zeroed job: the reading is `how`, but with the job's own host and bench, without the
 * limit of what is read at once, and with a reference of its own on the body. Returns 0 or
 * BR_ENOMEM; then, too, it wants to be released. */
int br_reading_job_init(struct br_reading_job *job, const struct br_reading *how, br_read_fn *read,
                        void (*done)(struct br_reading_job *job));

/* Frees what it made unless somebody took it. Accepts a zeroed one. */
void br_reading_job_release(struct br_reading_job *job);

/* Begins it. The body becomes the reading's own where nobody else holds it any more. Where there is
 * no thread, it is done when this returns. */
void br_reading_job_start(struct br_reading_job *job);

/* Cancels the reading where it has not begun; one that is running goes on. `done` is called later
 * all the same. */
void br_reading_job_leave(struct br_reading_job *job);

/* Waits, after br_reading_job_leave and before what the reading looks at goes, until it is not
 * running. */
void br_reading_job_wait(struct br_reading_job *job);
