/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes reloading of the configuration. The input is two configurations, separated by a line with
 * `---`. The first configuration must stay valid while the second is loaded and freed. If the first
 * is loaded again, the result must be the same. Links tests/support/fake_registry.c.
 */
#include <stdlib.h>
#include <string.h>

#include "app/config.h"
#include "base/str.h"
#include "tests/support/fake_registry.h"

#define SEPARATOR "\n---\n"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The result must not depend on the environment of the machine. */
static const char *no_getenv(const char *name, void *arg)
{
    (void)name;
    (void)arg;
    return NULL;
}

/* Returns the configuration, or NULL if it is not valid. */
static struct br_config *load(const uint8_t *text, size_t len)
{
    struct br_str uri = {0};
    struct br_errs errs = {0};
    struct br_config *config = NULL;
    br_str_puts(&uri, "yaml:");
    br_str_add(&uri, text, len);
    const char *uris[] = {uri.data};
    const struct br_config_sources sources = {.uris = uris, .n_uris = 1, .getenv = no_getenv};
    if (br_config_load(&sources, fake_registry, &config, &errs)) {
        br_config_free(config);
        config = NULL;
    }
    br_errs_release(&errs);
    br_str_release(&uri);
    return config;
}

static void print(const struct br_config *config, struct br_str *out)
{
    if (config && br_config_print(config->tree, fake_registry, out))
        abort();
}

static void require_same(const struct br_str *one, const struct br_str *other)
{
    if (one->len != other->len || (one->len && memcmp(one->data, other->data, one->len) != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = memmem(data, size, SEPARATOR, strlen(SEPARATOR));
    if (!cut || memmem(data, size, "file:", 5))
        return 0;
    const uint8_t *next = cut + strlen(SEPARATOR);
    struct br_str before = {0}, during = {0}, again = {0};
    struct br_config *running = load(data, (size_t)(cut - data));
    print(running, &before);
    struct br_config *second = load(next, (size_t)(data + size - next));
    print(running, &during);
    br_config_free(running);
    print(second, &again);
    br_config_free(second);
    require_same(&before, &during);
    br_str_clear(&again);
    running = load(data, (size_t)(cut - data));
    print(running, &again);
    br_config_free(running);
    require_same(&before, &again);
    br_str_release(&before);
    br_str_release(&during);
    br_str_release(&again);
    return 0;
}
