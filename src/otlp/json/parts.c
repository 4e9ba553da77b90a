/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json/parts.h"

#include "base/bytes.h"

#define TEXT_MAX 64u
/* largest size of a text of TEXT_MAX bytes with every character escaped */
#define ESCAPED_MAX (6u * TEXT_MAX)

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
    return br_bytes_are(p, len, text);
}

int br_json_members(struct br_json_scan *scan, br_json_member_fn *fn, void *arg)
{
    struct br_json_token name, value;
    bool more = true;
    int rc = br_json_scan_value(scan, &value);
    if (rc || value.type != BR_JSON_OBJECT)
        return rc ? rc : br_json_scan_skip(scan, &value);
    rc = br_json_scan_enter(scan);
    for (bool first = true; !rc; first = false) {
        rc = br_json_scan_more(scan, '}', first, &more);
        if (rc || !more)
            break;
        rc = br_json_scan_name(scan, &name);
        if (!rc)
            rc = br_json_scan_value(scan, &value);
        if (rc)
            break;
        fn(arg, scan, &name, &value);
        rc = br_json_scan_skip(scan, &value);
    }
    return rc;
}

struct br_json_scan br_json_part_scan(const struct br_json_scan *whole, struct br_json_part part)
{
    struct br_json_scan scan = *whole;
    scan.at = part.at;
    scan.depth = 0;
    return scan;
}

int br_json_elements_here(struct br_json_scan *scan, br_json_element_fn *fn, void *arg)
{
    bool more = true;
    int rc = br_json_scan_enter(scan);
    for (bool first = true; !rc; first = false) {
        rc = br_json_scan_more(scan, ']', first, &more);
        if (rc || !more)
            break;
        rc = fn(arg, scan);
    }
    return rc;
}

int br_json_elements(const struct br_json_scan *whole, struct br_json_part array,
                     br_json_element_fn *fn, void *arg)
{
    struct br_json_scan scan = br_json_part_scan(whole, array);
    return array.at ? br_json_elements_here(&scan, fn, arg) : 0;
}

int br_json_list_open(struct br_json_list *list, const struct br_json_scan *whole,
                      struct br_json_part array)
{
    *list = (struct br_json_list){br_json_part_scan(whole, array), array.at != NULL, true};
    return array.at ? br_json_scan_enter(&list->scan) : 0;
}

int br_json_list_more(struct br_json_list *list, bool *ret_more)
{
    *ret_more = false;
    int rc = list->inside ? br_json_scan_more(&list->scan, ']', list->first, ret_more) : 0;
    list->inside = *ret_more;
    list->first = false;
    return rc;
}

int br_json_list_next(struct br_json_list *list, struct br_json_token *ret, bool *ret_more)
{
    *ret = (struct br_json_token){.type = BR_JSON_NULL};
    int rc = br_json_list_more(list, ret_more);
    if (!rc && *ret_more)
        rc = br_json_scan_value(&list->scan, ret);
    return rc || !*ret_more ? rc : br_json_scan_skip(&list->scan, ret);
}
