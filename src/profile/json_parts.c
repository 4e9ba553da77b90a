/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/json_parts.h"

#include <string.h>

#define TEXT_MAX 64u
#define ESCAPED_MAX (6u * TEXT_MAX) /* bytes that such a text may have with escapes */

bool br_json_part_is(const struct br_json_token *token, const char *text)
{
    char plain[ESCAPED_MAX];
    const char *p = token->text;
    size_t len = token->len;
    if (token->type != BR_JSON_STRING || (token->escaped && len > sizeof plain))
        return false;
    if (token->escaped) {
        len = br_json_plain(p, len, plain);
        p = plain;
    }
    return len == strlen(text) && memcmp(p, text, len) == 0;
}

int br_json_members(struct br_json_scan *s, br_json_member_fn *fn, void *arg)
{
    struct br_json_token name, value;
    bool more = true;
    int rc = br_json_scan_value(s, &value);
    if (rc || value.type != BR_JSON_OBJECT)
        return rc ? rc : br_json_scan_skip(s, &value);
    rc = br_json_scan_enter(s);
    for (bool first = true; !rc; first = false) {
        rc = br_json_scan_more(s, '}', first, &more);
        if (rc || !more)
            break;
        rc = br_json_scan_name(s, &name);
        if (!rc)
            rc = br_json_scan_value(s, &value);
        if (rc)
            break;
        fn(arg, s, &name, &value);
        rc = br_json_scan_skip(s, &value);
    }
    return rc;
}

static struct br_json_scan parts_scan(const struct br_json_scan *whole, struct br_json_part part)
{
    struct br_json_scan s = *whole;
    s.at = part.at;
    s.depth = 0;
    return s;
}

int br_json_elements(const struct br_json_scan *whole, struct br_json_part array,
                     br_json_element_fn *fn, void *arg)
{
    struct br_json_scan s = parts_scan(whole, array);
    bool more = true;
    int rc = array.at ? br_json_scan_enter(&s) : 0;
    for (bool first = true; !rc && array.at; first = false) {
        rc = br_json_scan_more(&s, ']', first, &more);
        if (rc || !more)
            break;
        rc = fn(arg, &s);
    }
    return rc;
}

int br_json_list_open(struct br_json_list *l, const struct br_json_scan *whole,
                      struct br_json_part array)
{
    *l = (struct br_json_list){parts_scan(whole, array), array.at != NULL, true};
    return array.at ? br_json_scan_enter(&l->scan) : 0;
}

int br_json_list_next(struct br_json_list *l, struct br_json_token *ret, bool *ret_more)
{
    *ret_more = false;
    *ret = (struct br_json_token){.type = BR_JSON_NULL};
    int rc = l->inside ? br_json_scan_more(&l->scan, ']', l->first, ret_more) : 0;
    l->inside = *ret_more;
    l->first = false;
    if (!rc && *ret_more)
        rc = br_json_scan_value(&l->scan, ret);
    return rc || !*ret_more ? rc : br_json_scan_skip(&l->scan, ret);
}
