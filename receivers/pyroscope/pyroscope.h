/* SPDX-License-Identifier: Apache-2.0 */
/* The types and functions that the files of the Pyroscope receiver share. */
#pragma once

#include "ingest/otlp.h"
#include "otlp/build/build.h"
#include "profile/name.h"
#include "profile/profile.h"

struct pyroscope_protocols {
    struct br_http_config http;
};

struct pyroscope_config {
    struct pyroscope_protocols protocols;
    const char *tenant_header;
};

extern const struct br_option pyroscope_options[];
int pyroscope_check(void *config, const struct br_yaml *node, const char *path,
                    struct br_arena *arena, struct br_errs *errs);

struct pyroscope {
    struct br_ingest ingest;
    struct br_otlp_handler otlp;
    struct br_ingest_listener listener;
    struct br_meter grpc, http;
    struct br_log_limit lost_limit;
};

/* --- One request's profiles, under construction ----------------------------------------------- */

#define UPLOAD_LAYERS 3 /* of gzip around one thing */

/* Plain bytes of profiles that are converted at once: what takes about two milliseconds. */
#define PYROSCOPE_READ_NOW (256u << 10)

struct pyroscope_upload {
    struct br_reading *reading;
    struct br_build *build;
    struct br_arena scratch; /* what lives as long as the upload */
    struct br_buf *plain[4]; /* what was decompressed */
    size_t n_plain;
    size_t body_len;             /* of what pyroscope_upload_limit limits */
    size_t unpacked;             /* bytes that the reading had decompressed before it */
    size_t built;                /* bytes that the builder held before */
    uint32_t n_bad;              /* profiles that were left out ... */
    struct br_err first;         /* ... and why the first of them was */
    struct br_profile_lost lost; /* samples of the others */
};

struct pyroscope_upload_bytes {
    const uint8_t *data;
    size_t len;
};

/* Begins an upload. Returns 0 or BR_ENOMEM. The caller calls pyroscope_upload_end in any case. */
int pyroscope_upload_begin(struct pyroscope_upload *upload, struct br_reading *reading);

/* Takes gzip off, which is told by its magic. The result lives until pyroscope_upload_drop, or as
 * long as what came in. Returns 0; or BR_EINVAL or as br_reading_decompress, with a sentence in
 * r->err. */
int pyroscope_upload_gunzip(struct pyroscope_upload *upload, struct pyroscope_upload_bytes *bytes);
void pyroscope_upload_drop(struct pyroscope_upload *upload);

/* Limits what the upload takes from now on: four times the body and what was unpacked, and a MiB.
 */
void pyroscope_upload_limit(struct pyroscope_upload *upload);

/* Reads a profile into the upload's builder, or at once into the reading's item. Returns as
 * br_profile_reading. */
int pyroscope_upload_read(struct pyroscope_upload *upload, enum br_profile_format format,
                          const struct br_profile_source *profile_source);

/* Counts the samples that were lost, and logs it; the `on_read` of a br_upload_kind. */
void pyroscope_upload_on_read(struct br_upload *upload, const struct br_reading *reading);

/* Counts `count` profiles that are left out for what r->err says. */
void pyroscope_upload_leave_out(struct pyroscope_upload *upload, uint32_t count);

/* Ends the reading: with the item that was built where `rc` is 0. Returns `rc`, or why there is no
 * item. */
int pyroscope_upload_end(struct pyroscope_upload *upload, int rc);

/* --- /ingest (ingest.c, sample_types.c) ------------------------------------------------------- */

/* Begins a request of /ingest. Returns false when its path is another; otherwise takes the request.
 */
bool pyroscope_begin_ingest(struct pyroscope *pyroscope, struct br_request *request);

/* Reads `sample_type_config`, a JSON object, into an array in the arena. Returns 0, BR_EINVAL or
 * BR_ENOMEM. */
int pyroscope_sample_types(const char *text, size_t len, struct br_arena *arena,
                           struct br_sample_type **ret, size_t *ret_n, struct br_err *err);

/* --- push.v1 (push.c, push_series.c) ---------------------------------------------------------- */

bool pyroscope_begin_push(struct pyroscope *pyroscope, struct br_request *request);

/* Reads an encoded PushRequest into the upload's builder. As with Pyroscope a profile that cannot
 * be read, or a series whose labels are no good, does not take the others along. Returns as
 * br_profile_read; BR_EINVAL where nothing is good. */
int pyroscope_read_push(struct pyroscope_upload *upload, const uint8_t *data, size_t len);

/* --- Answers (reply.c) ------------------------------------------------------------------------ */

/* Answers as /ingest does, and as a unary call of Connect does. `outcome` may be any outcome. */
void pyroscope_reply_ingest(const struct br_http_config *http, struct br_request *request,
                            const struct br_outcome *outcome);
void pyroscope_reply_connect(const struct br_http_config *http, struct br_request *request,
                             bool json, const struct br_outcome *outcome);

/* Answers a call of gRPC-Web, whose trailers are the last frame of the body. */
void pyroscope_reply_web(const struct br_http_config *http, struct br_request *request, bool json,
                         const struct br_outcome *outcome);

/* Answers with a code of HTTP and a body `{"code": ..., "message": ...}`. */
void pyroscope_refuse(const struct br_http_config *http, struct br_request *request,
                      unsigned status, const char *code, const char *message);
