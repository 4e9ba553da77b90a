/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the configuration: parses any bytes as YAML, merges, expands, loads and prints the result.
 * The printed text must load again, except for redacted values. Links
 * tests/support/fake_registry.c. */
#include <stdlib.h>
#include <string.h>

#include "app/config.h"
#include "base/str.h"
#include "tests/support/fake_registry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The result must not depend on the environment or files of the machine. */
static const char *fuzz_getenv(const char *name, void *arg)
{
    (void)arg;
    if (strcmp(name, "X") == 0)
        return "${Y}";
    return strcmp(name, "Y") == 0 ? "[1, {a: b}]" : NULL;
}

static void check_print(const struct br_yaml *tree)
{
    struct br_str out = {0};
    struct br_arena arena = {0};
    struct br_errs errs = {0};
    struct br_yaml *again;
    br_arena_init(&arena, 64u << 20);
    if (br_config_print(tree, fake_registry, &out) == 0 && out.len < 1u << 20 &&
        br_yaml_parse(out.data, out.len, "printed", &arena, &again, &errs) == BR_EINVAL)
        abort();
    br_errs_release(&errs);
    br_arena_release(&arena);
    br_str_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (memmem(data, size, "file:", 5))
        return 0;
    struct br_arena arena = {0};
    struct br_errs errs = {0};
    struct br_yaml *tree = NULL;
    br_arena_init(&arena, 64u << 20);
    (void)br_yaml_parse((const char *)data, size, "fuzz", &arena, &tree, &errs);
    br_errs_release(&errs);
    br_arena_release(&arena);

    struct br_str uri = {0};
    br_str_puts(&uri, "yaml:");
    br_str_add(&uri, data, size);
    const char *uris[] = {uri.data};
    struct br_config_sources sources = {.uris = uris, .n_uris = 1, .getenv = fuzz_getenv};
    struct br_config *config = NULL;
    if (br_config_load(&sources, fake_registry, &config, &errs) == 0)
        check_print(config->tree);
    br_config_free(config);
    br_errs_release(&errs);
    br_str_release(&uri);
    return 0;
}
