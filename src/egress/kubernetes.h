/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access to the Kubernetes API from inside a pod: its address, TLS, and the token of the service
 * account, which Kubernetes replaces regularly.
 * Source: kubernetes.io/docs/tasks/run-application/access-api-from-pod
 */
#pragma once

#include <stdbool.h>

#include "base/str.h"
#include "core/host.h"
#include "core/watched.h"
#include "net/tls.h"

#define BR_KUBERNETES_ORIGIN_SIZE 320 /* size of the API's address, in bytes */
#define BR_KUBERNETES_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"

struct br_kubernetes {
    /* directory of the service account; NULL: requests have no credentials, and the API's
     * certificate is not verified */
    const char *account;
    char ca_file[512], token_file[512];
    struct br_tls_config tls; /* settings for the client of the API */
    struct br_watched *watched;
    struct br_str token; /* value of the header authorization */
};

/* Returns true if the process runs in a pod: the environment contains the API's address. */
bool br_kubernetes_exists(void);

/* Writes the API's address, such as https://10.0.0.1:443. Returns false if it does not exist or is
 * too long. */
bool br_kubernetes_origin(char ret[BR_KUBERNETES_ORIGIN_SIZE]);

/* Starts to watch the token. `kubernetes` is zeroed, must not move, and is released by
 * br_kubernetes_release. `account` and `log` are borrowed until then. A token that cannot be read
 * is read again every second. */
void br_kubernetes_begin(struct br_kubernetes *kubernetes, struct br_host *host,
                         const char *account, const struct br_log *log);
void br_kubernetes_release(struct br_kubernetes *kubernetes);

/* Returns the value of the header authorization, which is valid until the token changes; "" if
 * requests have no credentials; NULL if the token could not be read. */
const char *br_kubernetes_authorization(const struct br_kubernetes *kubernetes);
