/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions shared by the files of the Pyroscope receiver. */
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

/* --- Profiles of one request ------------------------------------------------------------------ */

#define UPLOAD_LAYERS 3 /* largest number of nested layers of gzip */

/* Largest uncompressed profile, in bytes, that is converted immediately. The conversion of such
 * a profile takes about two milliseconds. A thread converts larger profiles. */
#define PYROSCOPE_READ_NOW (256u << 10)

struct pyroscope_upload {
    struct br_reading *reading;
    struct br_build *build;
    struct br_arena scratch; /* memory that is freed with the upload */
    struct br_buf *plain[4]; /* buffers with decompressed data, released by pyroscope_upload_drop */
    size_t n_plain;
    /* size of the message in bytes, from which pyroscope_upload_limit computes the memory limit */
    size_t body_len;
    size_t unpacked; /* bytes that were decompressed before the message was read */
    /* bytes of memory that the builder used before the upload was read */
    size_t built;
    uint32_t n_bad;              /* number of profiles that were left out */
    struct br_err first;         /* error of the first profile that was left out */
    struct br_profile_lost lost; /* samples that were left out of profiles that were read */
};

struct pyroscope_upload_bytes {
    const uint8_t *data;
    size_t len;
};

/* Begins an upload. Returns 0 or BR_ENOMEM. The caller must call pyroscope_upload_end in both
 * cases. */
int pyroscope_upload_begin(struct pyroscope_upload *upload, struct br_reading *reading);

/* Decompresses data that begins with the magic bytes of gzip. The result is valid until
 * pyroscope_upload_drop; data that is not compressed is returned unchanged. Returns 0,
 * BR_EINVAL, or the codes of br_reading_decompress, with a message in `upload->reading->err`. */
int pyroscope_upload_gunzip(struct pyroscope_upload *upload, struct pyroscope_upload_bytes *bytes);
void pyroscope_upload_drop(struct pyroscope_upload *upload);

/* Limits the memory of the upload to four times the total size of the body and the decompressed
 * data, plus 1 MiB. */
void pyroscope_upload_limit(struct pyroscope_upload *upload);

/* Reads a profile into the upload's builder, or directly into the item of the reading. Returns
 * the same codes as br_profile_reading. */
int pyroscope_upload_read(struct pyroscope_upload *upload, enum br_profile_format format,
                          const struct br_profile_source *profile_source);

/* Counts and logs the samples that were left out of an upload. Used as the callback `on_read` of
 * a br_upload_kind. */
void pyroscope_upload_on_read(struct br_upload *upload, const struct br_reading *reading);

/* Counts `count` profiles that are left out because of the error in `upload->reading->err`, and
 * clears the error. */
void pyroscope_upload_leave_out(struct pyroscope_upload *upload, uint32_t count);

/* Ends an upload. If `rc` is 0, creates the item from the builder's content. Returns `rc`, or
 * the error of creating the item. */
int pyroscope_upload_end(struct pyroscope_upload *upload, int rc);

/* --- /ingest (ingest.c, sample_types.c) ------------------------------------------------------- */

/* Handles a request if its path is /ingest. Returns false for any other path. */
bool pyroscope_begin_ingest(struct pyroscope *pyroscope, struct br_request *request);

/* Parses `sample_type_config`, a JSON object, into an array in the arena. Returns 0, or
 * BR_EINVAL or BR_ENOMEM with a message. */
int pyroscope_sample_types(const char *text, size_t len, struct br_arena *arena,
                           struct br_sample_type **ret, size_t *ret_n, struct br_err *err);

/* --- push.v1 (push.c, push_series.c) ---------------------------------------------------------- */

bool pyroscope_begin_push(struct pyroscope *pyroscope, struct br_request *request);

/* Reads an encoded PushRequest into the upload's builder. As in Pyroscope, a malformed profile,
 * or a series with invalid labels, is left out without affecting the others. Returns the same
 * codes as br_profile_read, and BR_EINVAL if everything was left out. */
int pyroscope_read_push(struct pyroscope_upload *upload, const uint8_t *data, size_t len);

/* --- Responses (reply.c) ---------------------------------------------------------------------- */

/* Sends the response to a request for /ingest, whether it succeeded or failed. */
void pyroscope_reply_ingest(const struct br_http_config *http, struct br_request *request,
                            const struct br_outcome *outcome);

/* Sends the response to a unary call of Connect, whether the call succeeded or failed. */
void pyroscope_reply_connect(const struct br_http_config *http, struct br_request *request,
                             bool json, const struct br_outcome *outcome);

/* Sends the response to a call of gRPC-Web, whose trailers are the last frame of the body. */
void pyroscope_reply_web(const struct br_http_config *http, struct br_request *request, bool json,
                         const struct br_outcome *outcome);

/* Sends an HTTP status with the body `{"code": ..., "message": ...}`. */
void pyroscope_refuse(const struct br_http_config *http, struct br_request *request,
                      unsigned status, const char *code, const char *message);
