/* SPDX-License-Identifier: Apache-2.0 */
#include "query/id.h"

#include <string.h>

#include "base/str.h"

#define TEXT_MAX 64

bool br_id_parse(const char *text, size_t len, uint8_t *ret, size_t size)
{
    uint8_t id[TEXT_MAX], any = 0;
    if (len > TEXT_MAX)
        return false;
    if (br_hex_id(text, len, ret, size))
        return true;
    if (br_base64_decode(text, len, id) != (long)size)
        return false;
    for (size_t i = 0; i < size; i++)
        any |= id[i];
    if (any)
        memcpy(ret, id, size);
    return any;
}

bool br_span_id_parse(const char *text, size_t len, uint64_t *ret)
{
    uint8_t id[sizeof *ret];
    if (!br_id_parse(text, len, id, sizeof id))
        return false;
    memcpy(ret, id, sizeof id);
    return true;
}
