/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"
#include "app/blocks.h"
#include "app/config.h"
#include "config/parts.h"

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

static bool tls_on_block(const struct br_block *block, void *arg, int *rc)
{
    bool server = block->table == br_tls_server_options;
    if (!server && block->table != br_tls_client_options)
        return false;
    *rc = tls_check_block(block->config, server, block->node, block->path, arg);
    return true;
}

int br_config_check_tls(const struct br_option *table, const void *config,
                        const struct br_yaml *node, const char *path, struct br_arena *arena,
                        struct br_errs *errs)
{
    return br_blocks_visit(table, config, node, path, arena, tls_on_block, errs);
}
