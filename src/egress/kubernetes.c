/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/kubernetes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *kubernetes_variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

bool br_kubernetes_exists(void)
{
    return kubernetes_variable("KUBERNETES_SERVICE_HOST") &&
           kubernetes_variable("KUBERNETES_SERVICE_PORT");
}

bool br_kubernetes_origin(char ret[BR_KUBERNETES_ORIGIN_SIZE])
{
    const char *host = kubernetes_variable("KUBERNETES_SERVICE_HOST"),
               *port = kubernetes_variable("KUBERNETES_SERVICE_PORT");
    if (!host || !port)
        return false;
    bool v6 = strchr(host, ':') != NULL;
    int len = snprintf(ret, BR_KUBERNETES_ORIGIN_SIZE, v6 ? "https://[%s]:%s" : "https://%s:%s",
                       host, port);
    return len > 0 && len < BR_KUBERNETES_ORIGIN_SIZE;
}

static void kubernetes_on_token(void *arg, const char *text, size_t len)
{
    struct br_kubernetes *kubernetes = arg;
    (void)len;
    br_str_clear(&kubernetes->token);
    br_str_printf(&kubernetes->token, "Bearer %.*s", (int)strcspn(text, "\r\n"), text);
}

void br_kubernetes_begin(struct br_kubernetes *kubernetes, struct br_host *host,
                         const char *account, const struct br_log *log)
{
    const struct br_watched_config config = {.path = kubernetes->token_file,
                                             .log = log,
                                             .may_be_missing = true,
                                             .on_text = kubernetes_on_token,
                                             .arg = kubernetes};
    kubernetes->account = account;
    kubernetes->token.max = BR_WATCHED_SIZE_MAX;
    if (!account) {
        kubernetes->tls.insecure_skip_verify = true;
        return;
    }
    (void)snprintf(kubernetes->token_file, sizeof kubernetes->token_file, "%s/token", account);
    (void)snprintf(kubernetes->ca_file, sizeof kubernetes->ca_file, "%s/ca.crt", account);
    kubernetes->tls.ca_file = kubernetes->ca_file;
    (void)br_watched_new(host, &config, &kubernetes->watched, NULL);
}

void br_kubernetes_release(struct br_kubernetes *kubernetes)
{
    br_watched_free(kubernetes->watched);
    kubernetes->watched = NULL;
    br_str_release(&kubernetes->token);
}

const char *br_kubernetes_authorization(const struct br_kubernetes *kubernetes)
{
    if (!kubernetes->account)
        return "";
    return kubernetes->token.len ? kubernetes->token.data : NULL;
}
