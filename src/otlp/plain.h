/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads entries of a profiles dictionary in their usual encoding: each field occurs at most once,
 * there are no unknown fields, and a location has one line. Callers read any other encoding with
 * slower, general code.
 */
#pragma once

#include <stdbool.h>

#include "otlp/fields.h"
#include "otlp/scan.h"

/* Reads a message that consists only of varints, with field numbers from 1 to `count` (at most
 * 15), into `values`, which the caller has zeroed. Returns false for any other message, which
 * may nevertheless be valid. */
static inline bool br_plain_scalars(const uint8_t *p, const uint8_t *end, uint64_t *values,
                                    uint32_t count)
{
    uint32_t seen = 0;
    while (p < end) {
        uint32_t number = p[0] >> 3, bit = 1u << (number & 31);
        if (__builtin_expect(
                (p[0] & 7) != BR_WIRE_VARINT || number - 1 >= count || (seen & bit) != 0, 0))
            return false;
        seen |= bit;
        p = br_scan_index(p + 1, end, &values[number - 1]);
        if (__builtin_expect(!p, 0))
            return false;
    }
    return true;
}

struct br_plain_function {
    /* string indices of the function's name, system name and file name, and its start line */
    uint64_t values[4];
};

static inline bool br_plain_function(const uint8_t *p, const uint8_t *end,
                                     struct br_plain_function *ret)
{
    *ret = (struct br_plain_function){0};
    return br_plain_scalars(p, end, ret->values, BR_FUNCTION_START_LINE);
}

struct br_plain_location {
    uint64_t line[3]; /* function index, line number and column number of the location's line */
    uint64_t mapping, address;
};

static inline bool br_plain_location(const uint8_t *p, const uint8_t *end,
                                     struct br_plain_location *ret)
{
    uint64_t seen = 0;
    *ret = (struct br_plain_location){0};
    while (p && p < end) {
        uint64_t bit = UINT64_C(1) << (*p & 63);
        if (__builtin_expect((seen & bit) != 0, 0))
            return false;
        seen |= bit;
        switch (*p) {
        case BR_SCAN_LEN(BR_LOCATION_LINES):
            if (end - p < 2 || p[1] >= 0x80 || p[1] > end - p - 2 ||
                !br_plain_scalars(p + 2, p + 2 + p[1], ret->line, BR_LINE_COLUMN))
                return false;
            p += 2 + p[1];
            break;
        case BR_SCAN_VARINT(BR_LOCATION_ADDRESS):
            p = br_varint(p + 1, end, &ret->address);
            break;
        case BR_SCAN_VARINT(BR_LOCATION_MAPPING):
            p = br_scan_index(p + 1, end, &ret->mapping);
            break;
        default:
            return false;
        }
    }
    return p && (seen >> BR_SCAN_LEN(BR_LOCATION_LINES) & 1);
}
