/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/k8s_attributes/pods.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "core/authenticator.h"

/* --- Rules ------------------------------------------------------------------------------------ */

static int pods_compile(struct k8s_rules *rules, const char *prefix, const char *pattern,
                        const char *suffix, pcre2_code **ret)
{
    struct br_str text = {.max = 1u << 20};
    char why[BR_REGEX_WHY_SIZE];
    br_str_printf(&text, "%s%s%s", prefix, pattern, suffix);
    int rc = text.failed ? BR_ENOMEM : br_regex_compile(&rules->regex, text.data, ret, why);
    br_str_release(&text);
    return rc;
}

static int pods_compile_fields(struct k8s_rules *rules, const struct br_structs *fields,
                               pcre2_code ***ret)
{
    const struct k8s_field *field = fields->items;
    int rc = 0;
    *ret = br_calloc(fields->count + 1, sizeof **ret);
    if (!*ret)
        return BR_ENOMEM;
    for (size_t i = 0; i < fields->count && !rc; i++)
        if (*field[i].key_regex)
            rc = pods_compile(rules, "^(?:", field[i].key_regex, ")$", &(*ret)[i]);
    return rc;
}

int k8s_rules_init(struct k8s_rules *rules, const struct k8s_config *config)
{
    static const char *const preferred[] = {"jaeger-agent", "jaeger-collector"};
    const struct k8s_excluded *excluded = config->exclude.pods.items;
    rules->config = config;
    bool given = config->exclude.pods.count > 0;
    size_t n = given ? config->exclude.pods.count : BR_COUNT(preferred);
    rules->n_excluded = n;
    rules->excluded = br_calloc(n, sizeof *rules->excluded);
    int rc = rules->excluded ? 0 : BR_ENOMEM;
    for (size_t i = 0; i < n && !rc; i++)
        rc = pods_compile(rules, "", given ? excluded[i].name : preferred[i], "",
                          &rules->excluded[i]);
    if (!rc)
        rc = pods_compile(rules, "", "^resource\\.opentelemetry\\.io/(.+)$", "", &rules->otel);
    if (!rc)
        rc = pods_compile_fields(rules, &config->extract.labels, &rules->labels);
    if (!rc)
        rc = pods_compile_fields(rules, &config->extract.annotations, &rules->annotations);
    return rc ? rc : br_regex_ready(&rules->regex);
}

void k8s_rules_release(struct k8s_rules *rules)
{
    const struct k8s_config *config = rules->config;
    for (size_t i = 0; rules->excluded && i < rules->n_excluded; i++)
        pcre2_code_free(rules->excluded[i]);
    for (size_t i = 0; rules->labels && i < config->extract.labels.count; i++)
        pcre2_code_free(rules->labels[i]);
    for (size_t i = 0; rules->annotations && i < config->extract.annotations.count; i++)
        pcre2_code_free(rules->annotations[i]);
    pcre2_code_free(rules->otel);
    br_free(rules->excluded);
    br_free(rules->labels);
    br_free(rules->annotations);
    br_regex_release(&rules->regex);
    *rules = (struct k8s_rules){0};
}

/* --- Reading a pod ---------------------------------------------------------------------------- */

/* A pod that is being read. Its texts, attributes and containers can still be added to. */
struct draft {
    const struct k8s_rules *rules;
    struct br_str texts;
    struct k8s_pod pod;
    struct k8s_attribute attributes[K8S_ATTRIBUTES_MAX];
    struct k8s_container containers[K8S_CONTAINERS_MAX];
};

static const char *pods_string(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Appends a text to the texts of the pod. Returns its offset there; 0 for an empty text. */
static uint32_t pods_keep(struct draft *draft, const char *text)
{
    size_t at = draft->texts.len;
    if (!text || !*text)
        return 0;
    br_str_add(&draft->texts, text, strlen(text) + 1);
    return draft->texts.failed ? 0 : (uint32_t)at;
}

/* Sets an attribute, unless the value is empty. A later value replaces an earlier one. */
static void pods_set(struct draft *draft, const char *key, const char *value)
{
    struct k8s_pod *pod = &draft->pod;
    uint32_t index = 0;
    if (!value || !*value)
        return;
    while (index < pod->n_attributes &&
           strcmp(draft->texts.data + draft->attributes[index].key, key) != 0)
        index++;
    if (index == K8S_ATTRIBUTES_MAX)
        return;
    if (index == pod->n_attributes) {
        draft->attributes[index].key = pods_keep(draft, key);
        pod->n_attributes++;
    }
    draft->attributes[index].value = pods_keep(draft, value);
}

static void pods_set_metadata(struct draft *draft, enum k8s_metadata number, const char *value)
{
    if (draft->rules->config->extract.wants[number])
        pods_set(draft, k8s_metadata_names[number], value);
}

/* Sets the name of the deployment, which is the name of the ReplicaSet without the hash of the pod
 * template. The hash is in the label pod-template-hash; without that label, the ReplicaSet does not
 * belong to a deployment. */
static void pods_set_deployment(struct draft *draft, const char *replica_set, const char *hash)
{
    size_t len = strlen(replica_set), hash_len = strlen(hash);
    char name[256];
    if (!hash_len || len <= hash_len + 1 || len >= sizeof name ||
        strcmp(replica_set + len - hash_len, hash) != 0 || replica_set[len - hash_len - 1] != '-')
        return;
    (void)snprintf(name, sizeof name, "%.*s", (int)(len - hash_len - 1), replica_set);
    pods_set_metadata(draft, K8S_DEPLOYMENT_NAME, name);
}

/* Sets the name of the CronJob, which is the name of the Job without the dash and eight digits at
 * its end. */
static void pods_set_cron_job(struct draft *draft, const char *job)
{
    const char *dash = strrchr(job, '-');
    char name[256];
    if (!dash || strlen(dash + 1) != 8 || strspn(dash + 1, "0123456789") != 8 ||
        (size_t)(dash - job) >= sizeof name)
        return;
    (void)snprintf(name, sizeof name, "%.*s", (int)(dash - job), job);
    pods_set_metadata(draft, K8S_CRONJOB_NAME, name);
}

static void pods_read_owners(struct draft *draft, const json_t *metadata)
{
    static const struct {
        const char *kind;
        enum k8s_metadata name, uid;
    } kinds[] = {
        {"ReplicaSet", K8S_REPLICASET_NAME, K8S_REPLICASET_UID},
        {"DaemonSet", K8S_DAEMONSET_NAME, K8S_DAEMONSET_UID},
        {"StatefulSet", K8S_STATEFULSET_NAME, K8S_STATEFULSET_UID},
        {"Job", K8S_JOB_NAME, K8S_JOB_UID},
    };
    const char *hash = pods_string(json_object_get(metadata, "labels"), "pod-template-hash");
    size_t i;
    json_t *owner;
    json_array_foreach(json_object_get(metadata, "ownerReferences"), i, owner)
    {
        const char *kind = pods_string(owner, "kind"), *name = pods_string(owner, "name");
        for (size_t k = 0; k < BR_COUNT(kinds); k++) {
            if (strcmp(kinds[k].kind, kind) != 0)
                continue;
            pods_set_metadata(draft, kinds[k].name, name);
            pods_set_metadata(draft, kinds[k].uid, pods_string(owner, "uid"));
            if (k == 0)
                pods_set_deployment(draft, name, hash);
            if (kinds[k].name == K8S_JOB_NAME)
                pods_set_cron_job(draft, name);
        }
    }
}

/* Returns the length of an image's name without the tag. Sets `tag` to the tag, or to "latest" if
 * the image has no tag. */
static size_t pods_split_image(const char *image, char tag[256])
{
    size_t len = strcspn(image, "@");
    const char *slash = memrchr(image, '/', len), *from = slash ? slash : image;
    const char *colon = memchr(from, ':', len - (size_t)(from - image));
    (void)snprintf(tag, 256, "latest");
    if (!colon)
        return len;
    (void)snprintf(tag, 256, "%.*s", (int)(len - (size_t)(colon + 1 - image)), colon + 1);
    return (size_t)(colon - image);
}

static struct k8s_container *pods_container(struct draft *draft, const char *name)
{
    struct k8s_pod *pod = &draft->pod;
    for (uint32_t i = 0; i < pod->n_containers; i++)
        if (strcmp(draft->texts.data + draft->containers[i].name, name) == 0)
            return &draft->containers[i];
    if (pod->n_containers == K8S_CONTAINERS_MAX)
        return NULL;
    struct k8s_container *container = &draft->containers[pod->n_containers++];
    *container = (struct k8s_container){.name = pods_keep(draft, name)};
    return container;
}

static void pods_read_containers(struct draft *draft, const json_t *list)
{
    size_t i;
    json_t *object;
    json_array_foreach(list, i, object)
    {
        char name[512], tag[256];
        struct k8s_container *container = pods_container(draft, pods_string(object, "name"));
        const char *image = pods_string(object, "image");
        if (!container || !*image)
            continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)pods_split_image(image, tag), image);
        container->image = pods_keep(draft, name);
        container->tag = pods_keep(draft, tag);
    }
}

static void pods_read_statuses(struct draft *draft, const json_t *list)
{
    size_t i;
    json_t *object;
    json_array_foreach(list, i, object)
    {
        struct k8s_container *container = pods_container(draft, pods_string(object, "name"));
        const char *id = pods_string(object, "containerID"), *scheme = strstr(id, "://");
        if (container)
            container->id = pods_keep(draft, scheme ? scheme + 3 : id);
    }
}

/* Writes the name of an attribute. `$1` and `${1}` in the configured tag name are replaced by the
 * groups of the regular expression's match. */
static void pods_expand(struct br_str *out, const struct k8s_rules *rules, const char *tag_name,
                        const char *key, uint32_t n_groups)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(rules->regex.match);
    for (const char *p = tag_name; *p; p++) {
        bool brace = p[0] == '$' && p[1] == '{';
        const char *digits = p + 1 + brace;
        size_t len = strspn(digits, "0123456789");
        if (*p != '$' || !len || len > 2 || (brace && digits[len] != '}')) {
            br_str_putc(out, *p);
            continue;
        }
        uint32_t group = (uint32_t)(digits[0] - '0');
        if (len == 2)
            group = 10 * group + (uint32_t)(digits[1] - '0');
        if (group <= n_groups && at[(size_t)2 * group] != PCRE2_UNSET)
            br_str_add(out, key + at[(size_t)2 * group],
                       at[(size_t)2 * group + 1] - at[(size_t)2 * group]);
        p = digits + len - (brace ? 0 : 1);
    }
}

/* Sets the attributes of one rule from the pod's labels or annotations (`kind`). */
static void pods_read_field(struct draft *draft, const json_t *values, const char *kind,
                            const struct k8s_field *field, const pcre2_code *pattern)
{
    const struct k8s_rules *rules = draft->rules;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)values, key, value)
    {
        struct br_str name = {.max = 4096};
        uint32_t n_groups = 0;
        bool matches = pattern ? br_regex_match(&rules->regex, pattern, key, strlen(key)) > 0
                               : strcmp(key, field->key) == 0;
        if (!matches)
            continue;
        if (pattern)
            (void)pcre2_pattern_info(pattern, PCRE2_INFO_CAPTURECOUNT, &n_groups);
        if (pattern && n_groups && *field->tag_name)
            pods_expand(&name, rules, field->tag_name, key, n_groups);
        else if (!pattern && *field->tag_name)
            br_str_puts(&name, field->tag_name);
        else
            br_str_printf(&name, "k8s.pod.%s.%s", kind, key);
        if (!name.failed && name.len)
            pods_set(draft, name.data, json_string_value(value));
        br_str_release(&name);
    }
}

static void pods_read_fields(struct draft *draft, const json_t *metadata)
{
    const struct k8s_rules *rules = draft->rules;
    const struct k8s_extract *extract = &rules->config->extract;
    const struct k8s_field *labels = extract->labels.items,
                           *annotations = extract->annotations.items;
    const json_t *label_values = json_object_get(metadata, "labels"),
                 *values = json_object_get(metadata, "annotations");
    static const struct k8s_field otel = {.tag_name = "$1", .key = ""};
    for (size_t i = 0; i < extract->labels.count; i++)
        pods_read_field(draft, label_values, "labels", &labels[i], rules->labels[i]);
    for (size_t i = 0; i < extract->annotations.count; i++)
        pods_read_field(draft, values, "annotations", &annotations[i], rules->annotations[i]);
    if (extract->otel_annotations)
        pods_read_field(draft, values, "annotations", &otel, rules->otel);
}

static bool pods_is_ignored(const struct k8s_rules *rules, const json_t *metadata)
{
    const char *name = pods_string(metadata, "name");
    if (strcasecmp(pods_string(json_object_get(metadata, "annotations"),
                               "opentelemetry.io/k8s-processor/ignore"),
                   "true") == 0)
        return true;
    for (size_t i = 0; i < rules->n_excluded; i++)
        if (br_regex_match(&rules->regex, rules->excluded[i], name, strlen(name)) > 0)
            return true;
    return false;
}

static void pods_read(struct draft *draft, const json_t *object)
{
    const json_t *metadata = json_object_get(object, "metadata"),
                 *spec = json_object_get(object, "spec"),
                 *status = json_object_get(object, "status");
    struct k8s_pod *pod = &draft->pod;
    br_str_putc(&draft->texts, '\0'); /* offset 0 is the empty text */
    pod->uid = pods_keep(draft, pods_string(metadata, "uid"));
    pod->name = pods_keep(draft, pods_string(metadata, "name"));
    pod->namespace = pods_keep(draft, pods_string(metadata, "namespace"));
    pod->ip = pods_keep(draft, pods_string(status, "podIP"));
    pod->start_time = pods_keep(draft, pods_string(status, "startTime"));
    pod->host_network = json_is_true(json_object_get(spec, "hostNetwork"));
    pod->ignored = pods_is_ignored(draft->rules, metadata);
    pods_set_metadata(draft, K8S_NAMESPACE_NAME, pods_string(metadata, "namespace"));
    pods_set_metadata(draft, K8S_SERVICE_NAMESPACE, pods_string(metadata, "namespace"));
    pods_set_metadata(draft, K8S_POD_NAME, pods_string(metadata, "name"));
    pods_set_metadata(draft, K8S_POD_UID, pods_string(metadata, "uid"));
    pods_set_metadata(draft, K8S_POD_HOSTNAME, pods_string(spec, "hostname"));
    pods_set_metadata(draft, K8S_POD_IP, pods_string(status, "podIP"));
    pods_set_metadata(draft, K8S_POD_START_TIME, pods_string(metadata, "creationTimestamp"));
    pods_set_metadata(draft, K8S_NODE_NAME, pods_string(spec, "nodeName"));
    pods_read_owners(draft, metadata);
    pods_read_fields(draft, metadata);
    pods_read_containers(draft, json_object_get(spec, "containers"));
    pods_read_containers(draft, json_object_get(spec, "initContainers"));
    pods_read_statuses(draft, json_object_get(status, "containerStatuses"));
    pods_read_statuses(draft, json_object_get(status, "initContainerStatuses"));
}

/* Copies the draft to one block. */
static struct k8s_pod *pods_finish(const struct draft *draft)
{
    const struct k8s_pod *from = &draft->pod;
    size_t attributes = from->n_attributes * sizeof *from->attributes,
           containers = from->n_containers * sizeof *from->containers;
    struct k8s_pod *pod = br_malloc(sizeof *pod + attributes + containers + draft->texts.len);
    if (!pod)
        return NULL;
    *pod = *from;
    pod->n_texts = (uint32_t)draft->texts.len;
    pod->attributes = (struct k8s_attribute *)(void *)(pod + 1);
    pod->containers = (struct k8s_container *)(void *)((char *)(pod + 1) + attributes);
    pod->texts = (char *)(pod + 1) + attributes + containers;
    if (attributes)
        memcpy(pod->attributes, draft->attributes, attributes);
    if (containers)
        memcpy(pod->containers, draft->containers, containers);
    memcpy(pod->texts, draft->texts.data, draft->texts.len);
    return pod;
}

struct k8s_pod *k8s_pod_read(const struct k8s_rules *rules, const json_t *object)
{
    struct draft *draft = br_calloc(1, sizeof *draft);
    struct k8s_pod *pod = NULL;
    if (!draft)
        return NULL;
    draft->rules = rules;
    draft->texts.max = K8S_TEXTS_MAX;
    pods_read(draft, object);
    if (draft->pod.uid && !draft->texts.failed)
        pod = pods_finish(draft);
    br_str_release(&draft->texts);
    br_free(draft);
    return pod;
}

/* Returns the value of an attribute of the pod; NULL: the pod does not have the attribute. */
static const char *pods_attribute(const struct k8s_pod *pod, const char *key)
{
    for (uint32_t i = 0; i < pod->n_attributes; i++)
        if (strcmp(k8s_pod_text(pod, pod->attributes[i].key), key) == 0)
            return k8s_pod_text(pod, pod->attributes[i].value);
    return NULL;
}

/* --- Identifiers ------------------------------------------------------------------------------ */

void k8s_id_begin(struct k8s_id *id, int association)
{
    id->failed = false;
    id->len = (size_t)snprintf(id->bytes, sizeof id->bytes, "%d", association);
}

void k8s_id_add(struct k8s_id *id, const char *value, size_t len)
{
    if (!value || !len || id->len + 1 + len > sizeof id->bytes) {
        id->failed = true;
        return;
    }
    id->bytes[id->len++] = '\0'; /* separates the values, which cannot contain it */
    memcpy(id->bytes + id->len, value, len);
    id->len += len;
}

static const char *pods_source_value(const struct k8s_pod *pod, const struct k8s_source *source,
                                     uint32_t container)
{
    const char *name = source->name;
    if (source->from == K8S_FROM_CONNECTION)
        return pod->host_network ? "" : k8s_pod_text(pod, pod->ip);
    if (strcmp(name, "k8s.namespace.name") == 0)
        return k8s_pod_text(pod, pod->namespace);
    if (strcmp(name, "k8s.pod.name") == 0)
        return k8s_pod_text(pod, pod->name);
    if (strcmp(name, "k8s.pod.uid") == 0)
        return k8s_pod_text(pod, pod->uid);
    if (strcmp(name, "k8s.pod.ip") == 0 || strcmp(name, "host.name") == 0)
        return k8s_pod_text(pod, pod->ip);
    if (strcmp(name, "container.id") == 0)
        return container < pod->n_containers ? k8s_pod_text(pod, pod->containers[container].id)
                                             : "";
    return pods_attribute(pod, name);
}

static bool pods_names_container(const struct k8s_association *association)
{
    const struct k8s_source *source = association->sources.items;
    for (size_t i = 0; i < association->sources.count; i++)
        if (source[i].from == K8S_FROM_RESOURCE_ATTRIBUTE &&
            strcmp(source[i].name, "container.id") == 0)
            return true;
    return false;
}

typedef void pods_id_fn(struct k8s_table *table, struct k8s_pod *pod, const struct k8s_id *id);

/* Calls `fn` with each identifier of the pod. */
static void pods_each_id(struct k8s_table *table, struct k8s_pod *pod, pods_id_fn *fn)
{
    const struct k8s_association *association = table->config->pod_association.items;
    struct k8s_id id;
    for (size_t a = 0; a < table->config->pod_association.count; a++) {
        const struct k8s_source *source = association[a].sources.items;
        uint32_t n = pods_names_container(&association[a]) ? pod->n_containers : 1;
        for (uint32_t c = 0; c < n; c++) {
            k8s_id_begin(&id, (int)a);
            for (size_t i = 0; i < association[a].sources.count; i++) {
                const char *value = pods_source_value(pod, &source[i], c);
                k8s_id_add(&id, value, value ? strlen(value) : 0);
            }
            if (!id.failed)
                fn(table, pod, &id);
        }
    }
    if (table->config->pod_association.count || pod->host_network)
        return;
    const char *ip = k8s_pod_text(pod, pod->ip);
    k8s_id_begin(&id, -1);
    k8s_id_add(&id, ip, strlen(ip));
    if (!id.failed)
        fn(table, pod, &id);
}

/* --- The table -------------------------------------------------------------------------------- */

struct k8s_table *k8s_table_new(const struct k8s_config *config)
{
    struct k8s_table *table = br_calloc(1, sizeof *table);
    if (!table)
        return NULL;
    (void)pthread_mutex_init(&table->lock, NULL);
    table->config = config;
    table->pods = br_map_new(K8S_PODS_MAX);
    table->ids = br_map_new((size_t)4 * K8S_PODS_MAX);
    if (table->pods && table->ids)
        return table;
    k8s_table_free(table);
    return NULL;
}

void k8s_table_free(struct k8s_table *table)
{
    if (!table)
        return;
    br_map_free(table->ids, NULL);
    br_map_free(table->pods, br_free);
    (void)pthread_mutex_destroy(&table->lock);
    br_free(table);
}

/* Adds an identifier of a pod. If another pod has the same identifier, such as a reused IP address,
 * the identifier refers to the pod that was started later. */
static void pods_add_id(struct k8s_table *table, struct k8s_pod *pod, const struct k8s_id *id)
{
    const struct k8s_pod *other = br_map_get(table->ids, id->bytes, id->len);
    bool older =
        other && other != pod && !other->deleted_ms &&
        strcmp(k8s_pod_text(pod, pod->start_time), k8s_pod_text(other, other->start_time)) < 0;
    if (!older)
        (void)br_map_put(table->ids, id->bytes, id->len, pod, NULL);
}

static void pods_remove_id(struct k8s_table *table, struct k8s_pod *pod, const struct k8s_id *id)
{
    if (br_map_get(table->ids, id->bytes, id->len) == pod)
        (void)br_map_remove(table->ids, id->bytes, id->len);
}

/* Removes a pod. The caller holds the lock. */
static void pods_remove(struct k8s_table *table, struct k8s_pod *pod)
{
    const char *uid = k8s_pod_text(pod, pod->uid);
    pods_each_id(table, pod, pods_remove_id);
    (void)br_map_remove(table->pods, uid, strlen(uid));
    br_free(pod);
}

static struct k8s_pod *pods_get(const struct k8s_table *table, const char *uid)
{
    return br_map_get(table->pods, uid, strlen(uid));
}

void k8s_table_put(struct k8s_table *table, struct k8s_pod *pod)
{
    const char *uid = k8s_pod_text(pod, pod->uid);
    (void)pthread_mutex_lock(&table->lock);
    struct k8s_pod *old = pods_get(table, uid);
    if (old)
        pods_remove(table, old);
    if (br_map_put(table->pods, uid, strlen(uid), pod, NULL) == 0)
        pods_each_id(table, pod, pods_add_id);
    else
        br_free(pod);
    (void)pthread_mutex_unlock(&table->lock);
}

void k8s_table_delete(struct k8s_table *table, const char *uid, uint64_t now_ms)
{
    (void)pthread_mutex_lock(&table->lock);
    struct k8s_pod *pod = pods_get(table, uid);
    if (pod && !pod->deleted_ms)
        pod->deleted_ms = now_ms;
    (void)pthread_mutex_unlock(&table->lock);
}

void k8s_table_delete_others(struct k8s_table *table, uint64_t list, uint64_t now_ms)
{
    const void *key;
    size_t len;
    (void)pthread_mutex_lock(&table->lock);
    for (size_t i = 0; i < br_map_count(table->pods); i++) {
        struct k8s_pod *pod = br_map_at(table->pods, i, &key, &len);
        if (pod->list != list && !pod->deleted_ms)
            pod->deleted_ms = now_ms;
    }
    (void)pthread_mutex_unlock(&table->lock);
}

void k8s_table_sweep(struct k8s_table *table, uint64_t before_ms)
{
    const void *key;
    size_t len;
    (void)pthread_mutex_lock(&table->lock);
    for (size_t i = br_map_count(table->pods); i-- > 0;) {
        struct k8s_pod *pod =
            i < br_map_count(table->pods) ? br_map_at(table->pods, i, &key, &len) : NULL;
        if (pod && pod->deleted_ms && pod->deleted_ms < before_ms)
            pods_remove(table, pod);
    }
    (void)pthread_mutex_unlock(&table->lock);
}

bool k8s_table_find(struct k8s_table *table, const struct k8s_id *id,
                    void (*fn)(void *arg, const struct k8s_pod *pod), void *arg)
{
    (void)pthread_mutex_lock(&table->lock);
    const struct k8s_pod *pod = br_map_get(table->ids, id->bytes, id->len);
    bool found = pod && !pod->ignored;
    if (found)
        fn(arg, pod);
    (void)pthread_mutex_unlock(&table->lock);
    return found;
}

size_t k8s_table_count(struct k8s_table *table)
{
    (void)pthread_mutex_lock(&table->lock);
    size_t count = br_map_count(table->pods);
    (void)pthread_mutex_unlock(&table->lock);
    return count;
}
