/* SPDX-License-Identifier: Apache-2.0 */
/* Sends one HTTP GET request from a command-line tool. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define BR_FETCH_MAX (256u << 20) /* largest body of a response, in bytes */

struct br_fetched {
    unsigned status;
    char type[64]; /* value of the Content-Type header, or "" if the header is missing */
    uint8_t *data; /* body of `len` bytes, followed by a NUL; br_fetched_release frees it */
    size_t len;
};

/* Requests `path`, including its query, from the server at `url` (http://host:port). Returns 0
 * for a response of any status except a redirect. Returns BR_EINVAL if `url` is invalid, BR_EIO
 * for other failures and redirects, BR_ETIMEOUT or BR_ENOMEM, with `err` set. */
int br_fetch(const char *url, const char *path, uint64_t timeout_ms, struct br_fetched *ret,
             struct br_err *err);

void br_fetched_release(struct br_fetched *fetched);
