/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command that converts OTLP/JSON: `json_tool decode|encode traces|profiles|status`. It reads
 * frames from stdin. A frame is a length of four bytes, little endian, and this number of bytes.
 * For each frame, it writes a frame to stdout: a byte (0 for success, 1 for failure), and then the
 * result or the error message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "google/rpc/status.pb-c.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb-c.h"
#include "otlp/json/json.h"

#define FRAME_MAX (64u << 20)

static int answer(char status, const void *data, size_t len)
{
    uint32_t n = (uint32_t)len + 1;
    return fwrite(&n, sizeof n, 1, stdout) == 1 && putchar(status) != EOF &&
                   fwrite(data, 1, len, stdout) == len && fflush(stdout) == 0
               ? 0
               : -1;
}

static int decode(const ProtobufCMessageDescriptor *desc, const char *text, size_t len,
                  struct br_pool *pool)
{
    struct br_buf *buf = NULL;
    struct br_err err = {0};
    if (br_json_decode(desc, text, len, 64, FRAME_MAX, pool, &buf, &err) != 0)
        return answer(1, err.text, strlen(err.text));
    int rc = answer(0, buf->data, buf->len);
    br_buf_unref(buf);
    return rc;
}

static int encode(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len)
{
    struct br_str out = {0};
    int rc = br_json_encode(desc, data, len, &out);
    if (rc != 0)
        rc = answer(1, br_strerror(rc), strlen(br_strerror(rc)));
    else
        rc = answer(0, out.data, out.len);
    br_str_release(&out);
    return rc;
}

#define RESPONSE                                                                                   \
    opentelemetry__proto__collector__trace__v1__export_trace_service_response__descriptor

static const ProtobufCMessageDescriptor *descriptor(const char *name)
{
    if (!strcmp(name, "status"))
        return &google__rpc__status__descriptor;
    if (!strcmp(name, "response"))
        return &RESPONSE;
    return br_otlp_request(strcmp(name, "traces") ? BR_PROFILES : BR_TRACES);
}

int main(int argc, char **argv)
{
    uint32_t len;
    struct br_pool *pool = br_pool_new(0);
    if (argc != 3 || !pool)
        return 2;
    const ProtobufCMessageDescriptor *desc = descriptor(argv[2]);
    int rc = 0;
    while (rc == 0 && fread(&len, sizeof len, 1, stdin) == 1) {
        size_t size = len ? len : 1;
        char *frame = size <= FRAME_MAX ? malloc(size) : NULL;
        if (!frame || fread(frame, 1, len, stdin) != len)
            rc = -1;
        else if (!strcmp(argv[1], "decode"))
            rc = decode(desc, frame, len, pool);
        else
            rc = encode(desc, (const uint8_t *)frame, len);
        free(frame);
    }
    br_pool_free(pool);
    return rc ? 1 : 0;
}
