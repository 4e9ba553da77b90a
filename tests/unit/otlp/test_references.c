/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/profiles_request.h"
#include "tests/support/test.h"

/* tests/conformance/test_dictionary.py tests random requests with an independent reader. */

/* --- References ----------------------------------------------------------------------------- */

/* Returns attributes of a Resource or scope (in `field`), some of which refer to the dictionary.
 * `resolved` returns the attributes that they become. */
static struct message *referring(uint32_t field)
{
    struct message *list = nest(5, nest(1, number(8, 2), END), END);
    struct message *map = nest(6, nest(1, number(3, 1), nest(2, number(8, 0), END), END), END);
    return join(join(nest(field, number(3, 1), nest(2, number(8, 2), END), END),
                     nest(field, text(1, "inline"), number(3, 2), nest(2, list, END), END)),
                join(nest(field, nest(2, map, END), number(3, 2), END),
                     nest(field, text(1, "plain"), nest(2, number(3, 5), END), END)));
}

static struct message *resolved(uint32_t field)
{
    struct message *list = nest(5, nest(1, text(1, "value"), END), END);
    struct message *map = nest(6, nest(1, text(1, "key"), nest(2, text(1, ""), END), END), END);
    return join(join(nest(field, text(1, "key"), nest(2, text(1, "value"), END), END),
                     nest(field, text(1, "inline"), nest(2, list, END), END)),
                join(nest(field, text(1, "value"), nest(2, map, END), END),
                     nest(field, text(1, "plain"), nest(2, number(3, 5), END), END)));
}

static struct message *reference_request(struct message *resource, struct message *scope,
                                         struct message *value)
{
    struct message *profile = nest(2, number(6, 1), nest(2, number(4, 1), END), END);
    struct message *attribute = nest(ATTRIBUTE, number(1, 1), nest(2, value, END), END);
    struct message *d = nest(2, text(STRING, ""), text(STRING, "key"), text(STRING, "value"),
                             bytes(ATTRIBUTE, "", 0), attribute, END);
    return join(nest(1, nest(2, profile, nest(1, text(1, "lib"), scope, END), END),
                     nest(1, resource, number(2, 1), END), END),
                d);
}

static void test_references(void **state)
{
    (void)state;
    struct message *none = new_message(0), *string = text(1, "value");
    for (unsigned which = 0; which < 8; which++) {
        struct message *resource = which & 1 ? referring(1) : none;
        struct message *scope = which & 2 ? referring(3) : none;
        struct message *value = which & 4 ? number(8, 2) : string;
        struct br_item *item = walked(BR_PROFILES, reference_request(resource, scope, value));
        assert_int_equal(br_item_has_references(item), which != 0);
        assert_int_equal(br_item_inline_references(item), 0);
        assert_false(br_item_has_references(item));
        assert_int_equal(br_item_inline_references(item), 0);
        /* A replaced Resource is written first. */
        struct message *expected = reference_request(which & 1 ? resolved(1) : none,
                                                     which & 2 ? resolved(3) : none, string);
        struct br_item *again = walked(BR_PROFILES, expected);
        assert_int_equal(item->size, again->size);
        size_t a_len, b_len;
        const uint8_t *a = br_part_resource(&item->parts[0], &a_len);
        const uint8_t *b = br_part_resource(&again->parts[0], &b_len);
        assert_int_equal(a_len, b_len);
        assert_memory_equal(a, b, a_len);
        assert_int_equal(item->parts[1].raw_len, again->parts[1].raw_len);
        assert_memory_equal(item->parts[1].raw, again->parts[1].raw, again->parts[1].raw_len);
        if (!(which & 1))
            assert_is(item, expected);
        else
            br_item_free(item);
        br_item_free(again);
    }
    free_messages();
}

static void test_references_of_traces(void **state)
{
    (void)state;
    struct message *resource = nest(1, nest(1, text(1, "k"), nest(2, number(8, 0), END), END), END);
    struct br_item *item = walked(BR_TRACES, nest(1, resource, END));
    assert_false(br_item_has_references(item));
    assert_int_equal(br_item_inline_references(item), 0);
    br_item_free(item);
    free_messages();
}

/* This step is repeated on one item until it succeeds. Work that was completed before a failure
 * remains valid. */
static int work_inline(void *arg)
{
    struct br_item *item = *(struct br_item **)arg;
    int rc = br_item_inline_references(item);
    countdown = 1000;
    assert_int_equal(br_item_has_references(item), rc != 0);
    struct flat f = flatten(item);
    br_buf_unref(f.buf);
    return rc;
}

static void test_no_memory_references(void **state)
{
    (void)state;
    struct br_item *item =
        walked(BR_PROFILES, reference_request(referring(1), referring(3), number(8, 2)));
    with_failures(work_inline, &item);
    struct br_item *again =
        walked(BR_PROFILES, reference_request(resolved(1), resolved(3), text(1, "value")));
    assert_int_equal(item->size, again->size);
    br_item_free(item);
    br_item_free(again);
    free_messages();
}

SUITE(references)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_references_of_traces),
        cmocka_unit_test(test_no_memory_references),
    };
    return RUN(tests, request_setup, request_teardown);
}
