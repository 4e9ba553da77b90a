/* SPDX-License-Identifier: Apache-2.0 */
#include "app/authenticators.h"

#include <stdio.h>
#include <string.h>

#include "app/blocks.h"
#include "config/parts.h"

struct check {
    const struct br_config *config;
    struct br_errs *errs;
    /* the extension that the last visited `auth` block names; NULL: none */
    const struct br_instance *found;
};

static const struct br_instance *authenticators_find(const struct br_config *config, const char *id)
{
    for (size_t i = 0; id && i < config->n_extensions; i++)
        if (strcmp(config->extensions[i]->id, id) == 0)
            return config->extensions[i];
    return NULL;
}

/* Returns bits: BR_AUTH_SERVER if an extension checks the credentials of clients, and
 * BR_AUTH_CLIENT if it adds credentials to requests. */
static unsigned authenticators_sides(const struct br_instance *extension)
{
    const struct br_component *component = extension->component;
    return component && component->authenticates && extension->config
               ? component->authenticates(extension->config)
               : 0;
}

/* Returns true for the id of an extension that Braid does not have. */
static bool authenticators_is_foreign(const char *id)
{
    char type[64];
    size_t len = id ? strcspn(id, "/") : 0;
    if (!len || len >= sizeof type)
        return false;
    (void)snprintf(type, sizeof type, "%.*s", (int)len, id);
    return !br_component_find(br_components, BR_EXTENSION, type);
}

static void authenticators_check_block(const struct br_config *config,
                                       const struct br_auth_config *auth, unsigned side,
                                       const struct br_yaml *node, const char *path,
                                       struct br_errs *errs)
{
    char shown[BR_SHOWN_SIZE], at[192];
    const struct br_instance *found = authenticators_find(config, auth->authenticator);
    if (!auth->authenticator && node && node->type == BR_YAML_NULL)
        return; /* a key `auth` without a value is treated as a missing key */
    if (!found && authenticators_is_foreign(auth->authenticator)) {
        br_errs_lack(
            errs, br_yaml_get(node, "authenticator"), br_path_join(at, path, "authenticator"),
            "Braid does not have the authenticator %s", br_text_show(auth->authenticator, shown));
        return;
    }
    if (!auth->authenticator || !*auth->authenticator)
        br_errs_add_key(errs, node, path, "authenticator",
                        "must be the id of an extension, such as {authenticator: bearertokenauth}");
    else if (!found)
        br_errs_add_key(errs, node, path, "authenticator",
                        "must be the id of an extension in service::extensions, got %s",
                        br_text_show(auth->authenticator, shown));
    else if (found->component && !(authenticators_sides(found) & side))
        br_errs_add_key(errs, node, path, "authenticator",
                        side == BR_AUTH_SERVER
                            ? "%s does not check the credentials of clients in this configuration"
                            : "%s does not add credentials to requests in this configuration",
                        br_text_show(auth->authenticator, shown));
}

static bool authenticators_on_block(const struct br_block *block, void *arg, int *rc)
{
    struct check *check = arg;
    bool server = block->table == br_auth_server_options;
    (void)rc;
    if (!server && block->table != br_auth_client_options)
        return false;
    const struct br_auth_config *auth = block->config;
    check->found = authenticators_find(check->config, auth->authenticator);
    if (check->errs)
        authenticators_check_block(check->config, auth, server ? BR_AUTH_SERVER : BR_AUTH_CLIENT,
                                   block->node, block->path, check->errs);
    return true;
}

int br_authenticators_check(const struct br_config *config, struct br_arena *arena,
                            struct br_errs *errs)
{
    struct check check = {.config = config, .errs = errs};
    int rc = 0;
    for (size_t i = 0; i < config->n_instances && rc != BR_ENOMEM; i++) {
        const struct br_instance *instance = &config->instances[i];
        char path[192];
        if (!instance->used || !instance->component || !instance->config)
            continue;
        br_path_join(path, br_kind_section(instance->component->kind), instance->id);
        rc = br_blocks_visit(instance->component->options, instance->config, instance->node, path,
                             arena, authenticators_on_block, &check);
    }
    return rc;
}

void br_authenticators_check_server(const struct br_config *config,
                                    const struct br_auth_config *auth, const struct br_yaml *node,
                                    const char *path, struct br_errs *errs)
{
    if (auth)
        authenticators_check_block(config, auth, BR_AUTH_SERVER, node, path, errs);
}

const struct br_instance *br_authenticators_of(const struct br_config *config,
                                               const struct br_instance *exporter,
                                               struct br_arena *arena)
{
    struct check check = {.config = config};
    (void)br_blocks_visit(exporter->component->options, exporter->config, exporter->node, "", arena,
                          authenticators_on_block, &check);
    return check.found;
}
