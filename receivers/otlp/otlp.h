/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration of the OTLP receiver, shared by its files. */
#pragma once

#include "ingest/grpc_config.h"

struct otlp_http {
    /* must be the first field, because BR_HTTP_ROWS_KEEPING requires it */
    struct br_http_config server;
    const char *traces_url_path, *profiles_url_path;
};

struct otlp_protocols {
    struct br_grpc_config *grpc;
    struct otlp_http *http;
};

struct otlp_config {
    struct otlp_protocols protocols;
    int invalid_utf8; /* policy for strings with invalid UTF-8, an enum br_utf8_policy */
    int64_t max_depth;
};

extern const struct br_option otlp_options[];
int otlp_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
               struct br_errs *errs);
