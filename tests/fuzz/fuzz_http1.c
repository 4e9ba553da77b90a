/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the HTTP/1.1 parser. The first byte selects the kind of messages: r for responses, any
 * other byte for requests. The second byte selects how the other bytes are divided into reads. The
 * events must not depend on this division. */
#include "support/http1_events.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 2)
        return 0;
    enum http1_kind kind = data[0] == 'r' ? HTTP1_RESPONSES : HTTP1_REQUESTS;
    struct br_str whole = {0}, cut = {0};
    http1_events(kind, data + 2, len - 2, 0, 0, &whole);
    http1_events(kind, data + 2, len - 2, data[1], data[1] % 7u + 1, &cut);
    if (whole.len != cut.len || (whole.len && memcmp(whole.data, cut.data, whole.len) != 0))
        abort();
    br_str_release(&whole);
    br_str_release(&cut);
    return 0;
}
