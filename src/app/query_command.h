/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `braid query`: sends requests to the query API (extensions/query) of a running Braid and prints
 * tables and trees.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

/* Runs the command; `argv[0]` is the argument after "query". Returns the exit code: 0, 1 if the
 * request fails, or 2 for invalid arguments. */
int br_query_command_run(int argc, char **argv);

/* Text of `braid query --help`. */
extern const char br_query_command_help[];

/* --- Printing (query_output.c) --------------------------------------------------------------- */

struct json_t;

/* Appends a number with a readable unit. Durations are printed as "1.24 s", "310 ms" or "4.2 µs",
 * and amounts of other units as "12.3k". */
void br_query_output_amount(struct br_str *out, double value, const char *unit);

/* The functions below append a response of the query API as a table or a tree. Each function
 * returns false if the response does not have the expected structure. A tree has at most `width`
 * columns and `lines` lines. */
bool br_query_output_spans(struct br_str *out, const struct json_t *response);
bool br_query_output_trace(struct br_str *out, const struct json_t *response);
bool br_query_output_top(struct br_str *out, const struct json_t *response);
bool br_query_output_profile(struct br_str *out, const struct json_t *response, unsigned width,
                             size_t lines);
bool br_query_output_difference(struct br_str *out, const struct json_t *response, unsigned width,
                                size_t lines);

/* --- Requests (fetch.c) ----------------------------------------------------------------------- */

#define BR_FETCH_MAX (256u << 20) /* largest body of a response, in bytes */

struct br_fetched {
    unsigned status;
    char type[64]; /* value of the Content-Type header, or "" if the header is missing */
    uint8_t *data; /* body of `len` bytes, followed by a NUL; br_fetched_release frees it */
    size_t len;
};

/* Sends a GET request for `path`, which may contain a query string, to the server at `url`
 * (http://host:port). `authorization` is the value of the Authorization header; NULL: no such
 * header. Returns 0 for a response with any status except a redirect. On failure, sets `err` and
 * returns BR_EINVAL (`url` is invalid), BR_ETIMEOUT, BR_ENOMEM, or BR_EIO (a redirect or any other
 * failure). */
int br_fetch(const char *url, const char *path, const char *authorization, uint64_t timeout_ms,
             struct br_fetched *ret, struct br_err *err);

void br_fetched_release(struct br_fetched *fetched);
