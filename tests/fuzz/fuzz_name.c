/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of Pyroscope's names. An accepted name must be within the limits, and its
 * attributes must form a valid Resource. */
#include <stdlib.h>

#include "opentelemetry/proto/resource/v1/resource.pb-c.h"
#include "profile/name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct br_arena arena = {0};
    struct br_app_name name;
    struct br_app_type type;
    struct br_label *labels;
    struct br_addition a;
    size_t n;
    (void)br_app_time(text, size, 1577836800000000000u);
    (void)br_app_type_find(text, size, &type, NULL);
    if (br_app_name_parse(text, size, &arena, &name, NULL) == 0) {
        require(name.app_len > 0 && name.n_labels <= BR_LABELS_MAX);
        if (br_app_type_find(name.app, name.app_len, &type, NULL) != 0)
            type.app_len = name.app_len;
        require(br_app_labels(&name, type.app_len, size & 1, &arena, &labels, &n) == 0);
        /* the service label that br_app_labels adds may exceed the limit */
        if (br_labels_resource(&arena, labels, n, &a) == 0) {
            Opentelemetry__Proto__Resource__V1__Resource *r =
                opentelemetry__proto__resource__v1__resource__unpack(NULL, a.len, a.data);
            require(r && r->n_attributes > 0 && r->n_attributes <= n);
            opentelemetry__proto__resource__v1__resource__free_unpacked(r, NULL);
        } else {
            require(n > BR_LABELS_MAX || size >= BR_APP_NAME_MAX / 2);
        }
    }
    br_arena_release(&arena);
    return 0;
}
