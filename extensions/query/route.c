/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "extensions/query/query.h"

static const struct query_route *const query_tables[] = {
    query_tempo_routes,  query_tempo_stream_routes, query_pyroscope_routes,
    query_render_routes, query_braid_routes,        query_page_routes};

static size_t route_segment(const char *text)
{
    return strcspn(text, "/");
}

/* Compares a path with a route's pattern, segment by segment. The path is compared before it is
 * decoded, so that %2F does not separate segments. */
static bool route_matches(const char *pattern, const char *path,
                          struct query_part ret_parts[QUERY_PARTS_MAX], size_t *ret_n_parts)
{
    const char *at = path;
    size_t n_parts = 0;
    for (;;) {
        size_t pattern_len = route_segment(pattern), segment_len = route_segment(at);
        bool takes_rest = pattern_len == 2 && pattern[0] == '*' && pattern[1] == '*';
        bool any = takes_rest || (pattern_len == 1 && pattern[0] == '*');
        if (any && n_parts < QUERY_PARTS_MAX)
            ret_parts[n_parts++] =
                (struct query_part){(size_t)(at - path), takes_rest ? strlen(at) : segment_len};
        if (takes_rest)
            break;
        if (any ? segment_len == 0 : !br_bytes_equal(pattern, pattern_len, at, segment_len))
            return false;
        pattern += pattern_len;
        at += segment_len;
        if (*pattern != *at)
            return false;
        if (*pattern == '\0')
            break;
        pattern++;
        at++;
    }
    *ret_n_parts = n_parts;
    return true;
}

const struct query_route *query_route_find(const char *path, unsigned method,
                                           struct query_part ret_parts[QUERY_PARTS_MAX],
                                           size_t *ret_n_parts, unsigned *ret_methods)
{
    *ret_methods = 0;
    for (size_t i = 0; i < BR_COUNT(query_tables); i++) {
        for (const struct query_route *route = query_tables[i]; route->path; route++) {
            if (!route_matches(route->path, path, ret_parts, ret_n_parts))
                continue;
            if (route->methods & method)
                return route;
            *ret_methods |= route->methods;
        }
    }
    return NULL;
}
