/* SPDX-License-Identifier: Apache-2.0 */
/* Readings that run in threads of the pool. For src/ingest only. */
#pragma once

#include "ingest/intake.h"

/* Lets the job of `x` go, which ends without it: its reading has ended, or never begins, when this
 * returns. */
void br_intake_job_leave(struct br_intake *x);
