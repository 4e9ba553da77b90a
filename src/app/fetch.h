/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one HTTP GET for a command line tool, on a loop of its own, which ends with it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define BR_FETCH_MAX (256u << 20) /* largest body of an answer */

struct br_fetched {
    unsigned status;
    char type[64]; /* Content-Type; "" when none was sent */
    uint8_t *data; /* the body, len bytes and a terminator; freed by br_fetched_release */
    size_t len;
};

/* Gets `path` (with its query) from the server at `url` (http://host:port). Returns 0 when there is
 * an answer of any status but a redirect's; BR_EINVAL for a url that cannot be read; BR_EIO (also
 * for a redirect that is not followed), BR_ETIMEOUT, BR_ENOMEM with a sentence. */
int br_fetch(const char *url, const char *path, uint64_t timeout_ms, struct br_fetched *ret,
             struct br_err *err);

void br_fetched_release(struct br_fetched *fetched);
