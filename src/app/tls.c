/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "app/config.h"
#include "config/parts.h"
#include "net/tls.h"

static int tls_check_table(const struct br_option *table, const char *config,
                           const struct br_yaml *node, const char *path, struct br_arena *arena,
                           struct br_errs *errs);

static int tls_check_block(const struct br_tls_config *tls, bool server, const struct br_yaml *node,
                           const char *path, struct br_errs *errs)
{
    struct br_err err = {0};
    if (!server && tls->insecure)
        return 0;
    if (br_tls_version_is_old(tls->min_version)) {
        char at[192];
        br_errs_warn(errs, br_yaml_get(node, "min_version"), br_path_join(at, path, "min_version"),
                     "%s is insecure; the lowest version that is accepted is 1.2",
                     tls->min_version);
    }
    int rc = br_tls_config_check(tls, server, &err);
    if (rc == 0 || rc == BR_ENOMEM)
        return rc;
    return br_errs_add(errs, node, path, "%s", err.text);
}

static int tls_check_map(const struct br_option *table, const void *config,
                         const struct br_yaml *node, const char *path, struct br_arena *arena,
                         struct br_errs *errs)
{
    if (table == br_tls_server_options || table == br_tls_client_options)
        return tls_check_block(config, table == br_tls_server_options, node, path, errs);
    return tls_check_table(table, config, node, path, arena, errs);
}

/* Checks the TLS settings of one option, which are one map or a list of maps. Only keys that are
 * in the file are checked. */
static int tls_check_row(const struct br_option *option, const char *field,
                         const struct br_yaml *node, const char *path, struct br_arena *arena,
                         struct br_errs *errs)
{
    struct br_structs list;
    const void *map = field;
    int rc = 0;
    if (option->kind == BR_OPT_PRESENT)
        memcpy(&map, field, sizeof map);
    if (option->kind != BR_OPT_LIST)
        return map ? tls_check_map(option->sub, map, node, path, arena, errs) : 0;
    memcpy(&list, field, sizeof list);
    for (size_t i = 0; i < list.count && rc != BR_ENOMEM; i++) {
        const char *at = br_arena_printf(arena, "%s[%zu]", path, i);
        int one = at ? tls_check_map(option->sub, (const char *)list.items + i * option->size,
                                     node->items[i], at, arena, errs)
                     : BR_ENOMEM;
        rc = one ? one : rc;
    }
    return rc;
}

static int tls_check_table(const struct br_option *table, const char *config,
                           const struct br_yaml *node, const char *path, struct br_arena *arena,
                           struct br_errs *errs)
{
    int rc = 0;
    for (const struct br_option *option = table; option && option->name && rc != BR_ENOMEM;
         option++) {
        bool nests = option->kind == BR_OPT_STRUCT || option->kind == BR_OPT_PRESENT ||
                     option->kind == BR_OPT_LIST;
        const struct br_yaml *value = nests ? br_yaml_get(node, option->name) : NULL;
        const char *name = option->name;
        if (nests && !value && option->alias) {
            name = option->alias;
            value = br_yaml_get(node, name);
        }
        if (!value)
            continue;
        const char *at = br_arena_printf(arena, "%s::%s", path, name);
        int one =
            at ? tls_check_row(option, config + option->offset, value, at, arena, errs) : BR_ENOMEM;
        rc = one ? one : rc;
    }
    return rc;
}

int br_config_check_tls(const struct br_option *table, const void *config,
                        const struct br_yaml *node, const char *path, struct br_arena *arena,
                        struct br_errs *errs)
{
    return tls_check_table(table, config, node, path, arena, errs);
}
