/* SPDX-License-Identifier: Apache-2.0 */
/* Runs readings in threads of the pool. For src/ingest only. */
#pragma once

#include "ingest/upload.h"

/* Lets the job of `upload` go, which ends without it: a reading that has not begun never does.
 * Waits for nothing: that a client goes away costs the others nothing. */
void br_upload_job_leave(struct br_upload *upload);

/* Waits for the readings that are running, all of which were let go, before what they look at
 * goes. */
void br_upload_jobs_wait(struct br_list *jobs);
