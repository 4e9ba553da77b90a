/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the Kubernetes API, and the detectors k8s_api and k8snode, which use it. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "processors/resource_detection/detectors.h"

enum { ASK_NODE, ASK_CLUSTER };

/* --- The API ---------------------------------------------------------------------------------- */

bool detect_kubernetes_exists(void)
{
    return detect_variable("KUBERNETES_SERVICE_HOST") && detect_variable("KUBERNETES_SERVICE_PORT");
}

static void kubernetes_on_token(void *arg, const char *text, size_t len)
{
    struct detect_run *run = arg;
    (void)len;
    br_str_clear(&run->token);
    br_str_printf(&run->token, "Bearer %.*s", (int)strcspn(text, "\r\n"), text);
}

void detect_kubernetes_prepare(struct detect_run *run)
{
    struct detection *detection = run->detection;
    const struct br_watched_config config = {.path = run->token_path,
                                             .log = &detection->node->log,
                                             .may_be_missing = true,
                                             .on_text = kubernetes_on_token,
                                             .arg = run};
    run->token.max = BR_WATCHED_SIZE_MAX;
    if (run->section->auth_type == DETECT_AUTH_NONE || !detect_kubernetes_exists())
        return;
    (void)snprintf(run->token_path, sizeof run->token_path, "%s/token",
                   run->section->service_account);
    (void)snprintf(run->ca_file, sizeof run->ca_file, "%s/ca.crt", run->section->service_account);
    (void)br_watched_new(detection->node->host, &config, &run->token_file, NULL);
}

void detect_kubernetes_get(struct detect_run *run, const char *path)
{
    const char *name = detect_variable("KUBERNETES_SERVICE_HOST"),
               *port = detect_variable("KUBERNETES_SERVICE_PORT");
    /* a copy, because the file with the token can change before the answer */
    const char *token =
        br_arena_strndup(&run->arena, run->token.data ? run->token.data : "", run->token.len);
    const struct br_header header = {"authorization", token};
    bool none = run->section->auth_type == DETECT_AUTH_NONE;
    char origin[320];
    if (!token) {
        detect_fail(run, "out of memory");
        return;
    }
    if (!none && !run->token.len) {
        detect_fail(run, "cannot read %s/token", run->section->service_account);
        return;
    }
    bool v6 = strchr(name, ':') != NULL;
    (void)snprintf(origin, sizeof origin, v6 ? "https://[%s]:%s" : "https://%s:%s", name, port);
    run->tls =
        (struct br_tls_config){.insecure_skip_verify = none, .ca_file = none ? NULL : run->ca_file};
    if (detect_connect(run, 0, origin, &run->tls))
        detect_request(run, 0, NULL, path, &header, none ? 0 : 1);
}

/* --- k8s_api and k8snode ---------------------------------------------------------------------- */

static bool kubernetes_wants_node(const struct detect_run *run)
{
    return detect_wants(run, "k8s.node.uid") || detect_wants(run, "k8s.node.name") ||
           detect_wants(run, "host.id");
}

static void kubernetes_ask_cluster(struct detect_run *run)
{
    run->step = ASK_CLUSTER;
    if (detect_wants(run, "k8s.cluster.uid"))
        detect_kubernetes_get(run, "/api/v1/namespaces/kube-system");
    else
        detect_end(run);
}

static void kubernetes_begin(struct detect_run *run)
{
    const char *variable = run->section->node_from_env_var;
    const char *node = detect_variable(*variable ? variable : "K8S_NODE_NAME");
    if (!detect_kubernetes_exists()) {
        detect_missing(run, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set");
    } else if (!node) {
        detect_missing(run, "the environment variable %s does not contain the name of the node",
                       *variable ? variable : "K8S_NODE_NAME");
    } else if (!kubernetes_wants_node(run)) {
        kubernetes_ask_cluster(run);
    } else {
        char *path = br_arena_printf(&run->arena, "/api/v1/nodes/%s", node);
        run->step = ASK_NODE;
        if (path)
            detect_kubernetes_get(run, path);
        else
            detect_fail(run, "out of memory");
    }
}

static void kubernetes_on_cluster(struct detect_run *run, const struct detect_answer *answer)
{
    if (answer->status == 401 || answer->status == 403)
        br_log_write(&run->detection->node->log, BR_LOG_WARN,
                     "k8s.cluster.uid is not set: %s; allow the service account to get "
                     "namespaces/kube-system, or switch the attribute off",
                     answer->error);
    else if (answer->error) {
        detect_fail(run, "%s", answer->error);
        return;
    }
    json_t *root = answer->error ? NULL : json_loadb(answer->body, answer->len, 0, NULL);
    const json_t *metadata = json_object_get(root, "metadata");
    detect_text(run, "k8s.cluster.uid", json_string_value(json_object_get(metadata, "uid")));
    json_decref(root);
    detect_end(run);
}

static void kubernetes_on_node(struct detect_run *run, const struct detect_answer *answer)
{
    json_t *root = answer->error ? NULL : json_loadb(answer->body, answer->len, 0, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        detect_missing(run, "%s", answer->error ? answer->error : "the node is not JSON");
        return;
    }
    const json_t *metadata = json_object_get(root, "metadata");
    const json_t *info = json_object_get(json_object_get(root, "status"), "nodeInfo");
    detect_text(run, "k8s.node.uid", json_string_value(json_object_get(metadata, "uid")));
    detect_text(run, "k8s.node.name", json_string_value(json_object_get(metadata, "name")));
    detect_text(run, "host.id", json_string_value(json_object_get(info, "machineID")));
    json_decref(root);
    kubernetes_ask_cluster(run);
}

static void kubernetes_on_answer(struct detect_run *run, const struct detect_answer *answer)
{
    if (run->step == ASK_NODE)
        kubernetes_on_node(run, answer);
    else
        kubernetes_on_cluster(run, answer);
}

const struct detector detect_node = {.begin = kubernetes_begin, .on_answer = kubernetes_on_answer};
