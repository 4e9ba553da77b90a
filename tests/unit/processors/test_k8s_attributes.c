/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The k8s_attributes processor. Pods have the form of the Kubernetes API, and the expected
 * attributes are those of the Collector's k8sattributesprocessor.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "core/authenticator.h"
#include "processors/k8s_attributes/watch.h"
#include "tests/support/node_rig.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_k8s_attributes_processor;

/* --- Pods ------------------------------------------------------------------------------------- */

#define POD(name, uid, ip, more_metadata, more_spec, more_status)                                  \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"" uid                     \
    "\",\"creationTimestamp\":\"2026-01-02T03:04:05Z\"" more_metadata                              \
    "},\"spec\":{\"nodeName\":\"node-1\"" more_spec "},\"status\":{\"podIP\":\"" ip                \
    "\",\"startTime\":\"2026-01-02T03:04:06Z\"" more_status "}}"
#define OWNER(kind, name, uid)                                                                     \
    ",\"ownerReferences\":[{\"kind\":\"" kind "\",\"name\":\"" name "\",\"uid\":\"" uid "\"}]"
#define CONTAINERS                                                                                 \
    ",\"containers\":[{\"name\":\"app\",\"image\":\"ghcr.io:443/org/shop:1.2@sha256:ab\"},"        \
    "{\"name\":\"proxy\",\"image\":\"envoy\"}]"
#define STATUSES                                                                                   \
    ",\"containerStatuses\":[{\"name\":\"app\",\"containerID\":\"containerd://c1\"},"              \
    "{\"name\":\"proxy\",\"containerID\":\"containerd://c2\"}]"

/* Reads a pod, and returns its attributes as "key=value" in lines. */
static const char *attributes_of(const char *yaml, const char *json)
{
    static char text[4096];
    struct br_str out = {.data = text, .cap = sizeof text, .fixed = true};
    struct br_arena arena = {0};
    struct k8s_rules rules = {0};
    json_t *object = json_loads(json, 0, NULL);
    text[0] = '\0';
    assert_non_null(object);
    const struct k8s_config *config = rig_config(&br_k8s_attributes_processor, yaml, &arena);
    assert_int_equal(k8s_rules_init(&rules, config), 0);
    struct k8s_pod *pod = k8s_pod_read(&rules, object);
    assert_non_null(pod);
    for (uint32_t i = 0; i < pod->n_attributes; i++)
        br_str_printf(&out, "%s=%s\n", k8s_pod_text(pod, pod->attributes[i].key),
                      k8s_pod_text(pod, pod->attributes[i].value));
    for (uint32_t i = 0; i < pod->n_containers; i++)
        br_str_printf(&out, "%s: %s %s %s\n", k8s_pod_text(pod, pod->containers[i].name),
                      k8s_pod_text(pod, pod->containers[i].image),
                      k8s_pod_text(pod, pod->containers[i].tag),
                      k8s_pod_text(pod, pod->containers[i].id));
    br_free(pod);
    k8s_rules_release(&rules);
    json_decref(object);
    br_arena_release(&arena);
    return text;
}

#define BASE                                                                                       \
    "k8s.namespace.name=ns\nk8s.pod.name=web-5d4f8c7b9-x\nk8s.pod.uid=u1\n"                        \
    "k8s.pod.start_time=2026-01-02T03:04:05Z\nk8s.node.name=node-1\n"

static void pods_have_attributes(void **state)
{
    (void)state;
    static const char deployed[] = POD("web-5d4f8c7b9-x", "u1", "10.0.0.1",
                                       ",\"labels\":{\"pod-template-hash\":\"5d4f8c7b9\"}" OWNER(
                                           "ReplicaSet", "web-5d4f8c7b9", "r1"),
                                       CONTAINERS, STATUSES);
    assert_string_equal(attributes_of("{}", deployed),
                        BASE "k8s.deployment.name=web\napp: ghcr.io:443/org/shop 1.2 c1\n"
                             "proxy: envoy latest c2\n");
    /* a ReplicaSet without a deployment */
    assert_string_equal(
        attributes_of(
            "extract: {metadata: [k8s.deployment.name, k8s.replicaset.name, "
            "k8s.replicaset.uid, k8s.pod.ip, service.namespace]}",
            POD("p", "u1", "10.0.0.1", OWNER("ReplicaSet", "web-5d4f8c7b9", "r1"), "", "")),
        "service.namespace=ns\nk8s.pod.ip=10.0.0.1\nk8s.replicaset.name=web-5d4f8c7b9\n"
        "k8s.replicaset.uid=r1\n");
    assert_string_equal(
        attributes_of("extract: {metadata: [k8s.job.name, k8s.cronjob.name, k8s.statefulset.name]}",
                      POD("p", "u1", "10.0.0.1", OWNER("Job", "report-28123456", "j1"), "", "")),
        "k8s.job.name=report-28123456\nk8s.cronjob.name=report\n");
    assert_string_equal(
        attributes_of("extract: {metadata: [k8s.statefulset.name, k8s.statefulset.uid, "
                      "k8s.pod.hostname]}",
                      POD("db-0", "u1", "10.0.0.1", OWNER("StatefulSet", "db", "s1"),
                          ",\"hostname\":\"db-0\"", "")),
        "k8s.pod.hostname=db-0\nk8s.statefulset.name=db\nk8s.statefulset.uid=s1\n");
}

static void labels_and_annotations(void **state)
{
    (void)state;
    static const char json[] =
        POD("p", "u1", "10.0.0.1",
            ",\"labels\":{\"team\":\"blue\",\"app.kubernetes.io/component\":\"mysql\"},"
            "\"annotations\":{\"resource.opentelemetry.io/service.name\":\"shop\",\"commit\":"
            "\"abc\"}",
            "", "");
    assert_string_equal(attributes_of("extract: {metadata: [k8s.pod.name], labels: [{key: team}, "
                                      "{key: team, tag_name: t, from: pod}, {key: none}], "
                                      "annotations: [{key: commit}]}",
                                      json),
                        "k8s.pod.name=p\nk8s.pod.labels.team=blue\nt=blue\n"
                        "k8s.pod.annotations.commit=abc\n");
    assert_string_equal(
        attributes_of("extract: {metadata: [k8s.pod.name], labels: [{key_regex: "
                      "'app.kubernetes.io/(.*)', tag_name: 'x.${1}'}], otel_annotations: true}",
                      json),
        "k8s.pod.name=p\nx.component=mysql\nservice.name=shop\n");
    assert_string_equal(attributes_of("extract: {metadata: [k8s.pod.name], labels: [{key_regex: "
                                      "'te.*'}]}",
                                      json),
                        "k8s.pod.name=p\nk8s.pod.labels.team=blue\n");
}

/* --- The watch -------------------------------------------------------------------------------- */

struct bed {
    struct node_rig rig;
    struct k8s_table *table;
    struct k8s_watch *watch;
    const char *paths[16], *bodies[16]; /* expected requests and their answers, in order */
    unsigned statuses[16];
    unsigned n, next;
};

static struct fake_answer on_exchange(const struct br_exchange *x, void *arg)
{
    struct bed *b = arg;
    if (b->next == b->n)
        return (struct fake_answer){.never = true};
    unsigned i = b->next++;
    assert_string_equal(x->path, b->paths[i]);
    return (struct fake_answer){.http_status = b->statuses[i],
                                .body = b->bodies[i],
                                .len = b->bodies[i] ? strlen(b->bodies[i]) : 0};
}

static void expect_request(struct bed *b, const char *path, unsigned status, const char *body)
{
    b->paths[b->n] = path;
    b->statuses[b->n] = status;
    b->bodies[b->n++] = body;
}

static void bed_start(struct bed *b, const char *yaml)
{
    struct br_err err = {0};
    (void)setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    (void)setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    node_rig_begin(&b->rig, &br_k8s_attributes_processor, yaml);
    b->rig.h->answer = on_exchange;
    b->rig.h->answer_arg = b;
    b->table = k8s_table_new(b->rig.node.config);
    assert_non_null(b->table);
    if (k8s_watch_new(&b->rig.node, b->rig.node.config, b->table, &b->watch, &err))
        fail_msg("%s", err.text);
}

static void bed_end(struct bed *b)
{
    k8s_watch_free(b->watch);
    k8s_table_free(b->table);
    node_rig_end(&b->rig);
    (void)unsetenv("KUBERNETES_SERVICE_HOST");
    (void)unsetenv("KUBERNETES_SERVICE_PORT");
}

static void note_name(void *arg, const struct k8s_pod *pod)
{
    (void)snprintf(arg, 64, "%s", k8s_pod_text(pod, pod->name));
}

/* Returns the name of the pod with an identifier of two values at most, or "". */
static const char *pod_by(struct bed *b, int association, const char *value, const char *second)
{
    static char name[64];
    struct k8s_id id;
    name[0] = '\0';
    k8s_id_begin(&id, association);
    k8s_id_add(&id, value, strlen(value));
    if (second)
        k8s_id_add(&id, second, strlen(second));
    (void)k8s_table_find(b->table, &id, note_name, name);
    return name;
}

#define LIST(version, more, pods)                                                                  \
    "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"" version "\"" more                 \
    "},\"items\":[" pods "]}"
#define PLAIN(name, uid, ip) POD(name, uid, ip, "", "", "")
#define EVENT(type, object) "{\"type\":\"" type "\",\"object\":" object "}\n"
#define WATCH(version)                                                                             \
    "/api/v1/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion=" version

static void pods_are_listed_and_watched(void **state)
{
    (void)state;
    struct bed b = {0};
    expect_request(&b, "/api/v1/pods?limit=250", 0,
                   LIST("5", ",\"continue\":\"next=\"", PLAIN("a", "u1", "10.0.0.1")));
    expect_request(&b, "/api/v1/pods?limit=250&continue=next%3D", 0,
                   LIST("5", "",
                        PLAIN("b", "u2", "10.0.0.2") "," POD("host", "u3", "10.0.0.9", "",
                                                             ",\"hostNetwork\":true", "")));
    expect_request(&b, WATCH("5"), 0,
                   EVENT("ADDED", PLAIN("c", "u4", "10.0.0.3"))
                       EVENT("DELETED", PLAIN("a", "u1", "10.0.0.1"))
                           EVENT("MODIFIED", PLAIN("b", "u2", "10.0.0.4"))
                               EVENT("BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"9\"}}"));
    expect_request(&b, WATCH("9"), 0, NULL);
    expect_request(&b, WATCH("9"), 410, NULL);
    expect_request(&b, "/api/v1/pods?limit=250", 0, LIST("20", "", PLAIN("b", "u2", "10.0.0.4")));
    bed_start(&b, "{auth_type: none, pod_delete_grace_period: 2m}");
    fake_host_advance(b.rig.h, 10);
    assert_true(atomic_load(&b.table->is_complete));
    assert_string_equal(pod_by(&b, -1, "10.0.0.1", NULL), "a");
    assert_string_equal(pod_by(&b, -1, "10.0.0.2", NULL), "b");
    /* the address of the node is not the address of a pod */
    assert_string_equal(pod_by(&b, -1, "10.0.0.9", NULL), "");
    fake_host_advance(b.rig.h, 200);
    assert_string_equal(pod_by(&b, -1, "10.0.0.3", NULL), "c");
    assert_string_equal(pod_by(&b, -1, "10.0.0.4", NULL), "b");
    assert_string_equal(pod_by(&b, -1, "10.0.0.2", NULL), "");
    /* the deleted pod is still known during its grace period */
    assert_string_equal(pod_by(&b, -1, "10.0.0.1", NULL), "a");
    fake_host_advance(b.rig.h, 5000);
    assert_int_equal(b.next, b.n);
    bed_end(&b);
}

static void filters_and_associations(void **state)
{
    (void)state;
    struct bed b = {0};
    expect_request(&b,
                   "/api/v1/namespaces/shop/pods?limit=250&fieldSelector=status.phase%21%3DFailed"
                   "%2Cspec.nodeName%3Dnode-1&labelSelector=app%3Dweb%2C%21canary",
                   0,
                   LIST("5", "",
                        POD("a", "u1", "10.0.0.1", "", CONTAINERS,
                            STATUSES) "," PLAIN("jaeger-agent-1", "u2", "10.0.0.2")));
    bed_start(&b, "{auth_type: none, filter: {namespace: shop, node: node-1, labels: [{key: app, "
                  "value: web}, {key: canary, op: does-not-exist}], fields: [{key: status.phase, "
                  "value: Failed, op: not-equals}]}, pod_association: [{sources: [{from: "
                  "resource_attribute, name: k8s.pod.name}, {from: resource_attribute, name: "
                  "k8s.namespace.name}]}, {sources: [{from: resource_attribute, name: "
                  "container.id}]}, {sources: [{from: connection}]}]}");
    fake_host_advance(b.rig.h, 10);
    assert_string_equal(pod_by(&b, 0, "a", "ns"), "a");
    assert_string_equal(pod_by(&b, 0, "a", "other"), "");
    assert_string_equal(pod_by(&b, 1, "c2", NULL), "a");
    assert_string_equal(pod_by(&b, 2, "10.0.0.1", NULL), "a");
    /* the pod is ignored because of its name */
    assert_string_equal(pod_by(&b, 2, "10.0.0.2", NULL), "");
    bed_end(&b);
}

static void failures_are_repeated(void **state)
{
    (void)state;
    struct bed b = {0};
    expect_request(&b, "/api/v1/pods?limit=250", 500, NULL);
    expect_request(&b, "/api/v1/pods?limit=250", 0, "no JSON");
    expect_request(&b, "/api/v1/pods?limit=250", 0, LIST("5", "", PLAIN("a", "u1", "10.0.0.1")));
    bed_start(&b, "auth_type: none");
    fake_host_advance(b.rig.h, 10);
    assert_int_equal(b.next, 1);
    fake_host_advance(b.rig.h, 1000);
    assert_int_equal(b.next, 2);
    fake_host_advance(b.rig.h, 2000);
    assert_string_equal(pod_by(&b, -1, "10.0.0.1", NULL), "a");
    fake_host_advance(b.rig.h, 61000); /* a watch that never ends is repeated */
    bed_end(&b);
}

/* --- Items ------------------------------------------------------------------------------------ */

#define S(k, v) "{\"key\":\"" k "\",\"value\":{\"stringValue\":\"" v "\"}}"
#define SPANS(attributes)                                                                          \
    "{\"resourceSpans\":[{\"resource\":{\"attributes\":[" attributes                               \
    "]},\"scopeSpans\":[{\"spans\":[{\"name\":\"a\"}]}]}]}"

static void addresses_of_clients(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_k8s_attributes_processor, "passthrough: true");
    const struct br_strings *keys = br_k8s_attributes_processor.metadata_keys(r->node.config);
    assert_int_equal(keys->count, 1);
    assert_string_equal(keys->items[0], BR_ADDRESS_KEY);
    struct br_item *item = rig_item(r, BR_TRACES, SPANS(S("a", "b")));
    item->metadata = BR_ADDRESS_KEY "\00010.0.0.1\0\0";
    rig_send(r, item);
    assert_string_equal(r->out.data, SPANS(S("a", "b") "," S("k8s.pod.ip", "10.0.0.1")));
    item = rig_item(r, BR_TRACES, SPANS(S("k8s.pod.ip", "10.0.0.2")));
    item->metadata = BR_ADDRESS_KEY "\00010.0.0.1\0\0";
    rig_send(r, item);
    assert_string_equal(r->out.data, SPANS(S("k8s.pod.ip", "10.0.0.2")));
    assert_string_equal(rig_run(r, BR_TRACES, SPANS(S("a", "b"))), SPANS(S("a", "b")));
    rig_free(r);
}

static void no_memory(void **state)
{
    (void)state;
    const struct rig_shortage shortage = {
        .component = &br_k8s_attributes_processor,
        .yaml = "{passthrough: true}",
        .signal = BR_TRACES,
        .json = SPANS(S("a", "b")),
        .expected = SPANS(S("a", "b")),
    };
    (void)rig_run_short(&shortage);
}

static void configs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"extract: {metadata: [k8s.cluster.uid]}", "k8s.cluster.uid is not supported"},
        {"extract: {metadata: [k8s.pod.nam]}", "\"k8s.pod.nam\" is not an attribute of pods"},
        {"extract: {labels: [{tag_name: a}]}", "needs either key or key_regex"},
        {"extract: {labels: [{key: a, from: namespace}]}", "from: namespace is not supported"},
        {"extract: {labels: [{key_regex: '('}]}", "is not a valid regular expression"},
        {"pod_association: [{sources: []}]", "must have 1 to 4 sources"},
        {"pod_association: [{sources: [{from: resource_attribute}]}]", "needs a name"},
        {"filter: {fields: [{key: a, op: exists}]}", "op must be equals or not-equals, got exists"},
        {"auth_type: kubeConfig", "must be one of none, serviceAccount"},
    };
    rig_expect_errors_in(&br_k8s_attributes_processor, cases, BR_COUNT(cases));
}

SUITE(k8s_attributes)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(pods_have_attributes),
        cmocka_unit_test(labels_and_annotations),
        cmocka_unit_test(pods_are_listed_and_watched),
        cmocka_unit_test(filters_and_associations),
        cmocka_unit_test(failures_are_repeated),
        cmocka_unit_test(addresses_of_clients),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(configs),
    };
    return RUN(tests, NULL, NULL);
}
