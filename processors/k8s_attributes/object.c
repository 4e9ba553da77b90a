/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/k8s_attributes/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/mem.h"
#include "base/str.h"

#define MINUTES_PER_DAY 1440

/* --- Rules ------------------------------------------------------------------------------------ */

static int object_compile(struct k8s_rules *rules, const char *prefix, const char *pattern,
                          const char *suffix, pcre2_code **ret)
{
    struct br_str text = {.max = 1u << 20};
    char why[BR_REGEX_WHY_SIZE];
    br_str_printf(&text, "%s%s%s", prefix, pattern, suffix);
    int rc = text.failed ? BR_ENOMEM : br_regex_compile(&rules->regex, text.data, ret, why);
    br_str_release(&text);
    return rc;
}

static int object_compile_fields(struct k8s_rules *rules, const struct br_structs *fields,
                                 pcre2_code ***ret)
{
    const struct k8s_field *field = fields->items;
    int rc = 0;
    *ret = br_calloc(fields->count + 1, sizeof **ret);
    if (!*ret)
        return BR_ENOMEM;
    for (size_t i = 0; i < fields->count && !rc; i++)
        if (*field[i].key_regex && field[i].from == (int)rules->kind)
            rc = object_compile(rules, "^(?:", field[i].key_regex, ")$", &(*ret)[i]);
    return rc;
}

int k8s_rules_init(struct k8s_rules *rules, const struct k8s_config *config, enum k8s_kind kind)
{
    static const char *const preferred[] = {"jaeger-agent", "jaeger-collector"};
    const struct k8s_excluded *excluded = config->exclude.pods.items;
    rules->config = config;
    rules->kind = kind;
    bool given = config->exclude.pods.count > 0;
    size_t n = given ? config->exclude.pods.count : BR_COUNT(preferred);
    rules->n_excluded = n;
    rules->excluded = br_calloc(n, sizeof *rules->excluded);
    int rc = rules->excluded ? 0 : BR_ENOMEM;
    for (size_t i = 0; i < n && !rc; i++)
        rc = object_compile(rules, "", given ? excluded[i].name : preferred[i], "",
                            &rules->excluded[i]);
    if (!rc)
        rc = object_compile(rules, "", "^resource\\.opentelemetry\\.io/(.+)$", "", &rules->otel);
    if (!rc)
        rc = object_compile_fields(rules, &config->extract.labels, &rules->labels);
    if (!rc)
        rc = object_compile_fields(rules, &config->extract.annotations, &rules->annotations);
    return rc ? rc : br_regex_ready(&rules->regex);
}

void k8s_rules_release(struct k8s_rules *rules)
{
    const struct k8s_config *config = rules->config;
    if (!config)
        return;
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

/* --- Drafts ----------------------------------------------------------------------------------- */

/* An object that is being read. Its texts, attributes and containers can still be added to. */
struct draft {
    const struct k8s_rules *rules;
    struct br_str texts;
    bool too_long; /* the texts are longer than K8S_TEXTS_MAX */
    struct k8s_object object;
    struct k8s_attribute attributes[K8S_ATTRIBUTES_MAX];
    struct k8s_container containers[K8S_CONTAINERS_MAX];
};

static const char *object_string(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "";
}

/* Appends a text to the texts of the object. Returns its offset there; 0 for an empty text. */
static uint32_t object_keep(struct draft *draft, const char *text)
{
    size_t at = draft->texts.len;
    if (!text || !*text)
        return 0;
    draft->too_long = draft->too_long || at + strlen(text) + 1 > K8S_TEXTS_MAX;
    br_str_add(&draft->texts, text, strlen(text) + 1);
    return draft->texts.failed ? 0 : (uint32_t)at;
}

/* Sets an attribute, unless the value is empty. A later value replaces an earlier one. */
static void object_set(struct draft *draft, const char *key, const char *value)
{
    struct k8s_object *object = &draft->object;
    uint32_t index = 0;
    if (!value || !*value)
        return;
    while (index < object->n_attributes &&
           strcmp(draft->texts.data + draft->attributes[index].key, key) != 0)
        index++;
    if (index == K8S_ATTRIBUTES_MAX)
        return;
    if (index == object->n_attributes) {
        draft->attributes[index].key = object_keep(draft, key);
        object->n_attributes++;
    }
    draft->attributes[index].value = object_keep(draft, value);
}

static void object_set_metadata(struct draft *draft, enum k8s_metadata number, const char *value)
{
    if (draft->rules->config->extract.wants[number])
        object_set(draft, k8s_metadata_names[number], value);
}

/* Copies the draft to one block. */
static struct k8s_object *object_finish(const struct draft *draft)
{
    const struct k8s_object *from = &draft->object;
    size_t attributes = from->n_attributes * sizeof *from->attributes,
           containers = from->n_containers * sizeof *from->containers,
           size = sizeof *from + attributes + containers + draft->texts.len;
    struct k8s_object *object = br_malloc(size);
    if (!object)
        return NULL;
    *object = *from;
    object->size = size;
    object->n_texts = (uint32_t)draft->texts.len;
    object->containers = (struct k8s_container *)(void *)(object + 1);
    object->attributes = (struct k8s_attribute *)(void *)((char *)(object + 1) + containers);
    object->texts = (char *)(object + 1) + containers + attributes;
    if (attributes)
        memcpy(object->attributes, draft->attributes, attributes);
    if (containers)
        memcpy(object->containers, draft->containers, containers);
    memcpy(object->texts, draft->texts.data, draft->texts.len);
    return object;
}

/* --- Labels and annotations ------------------------------------------------------------------- */

/* Writes the name of an attribute. `$1` and `${1}` in the configured tag name are replaced by the
 * groups of the regular expression's match. */
static void object_expand(struct br_str *out, const struct k8s_rules *rules, const char *tag_name,
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

/* Sets the attributes of one rule. `values` are the labels or annotations of the object, and
 * `prefix` is the begin of the default names of their attributes. */
static void object_read_field(struct draft *draft, const json_t *values, const char *prefix,
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
            object_expand(&name, rules, field->tag_name, key, n_groups);
        else if (!pattern && *field->tag_name)
            br_str_puts(&name, field->tag_name);
        else
            br_str_printf(&name, "%s%s", prefix, key);
        if (!name.failed && name.len)
            object_set(draft, name.data, json_string_value(value));
        br_str_release(&name);
    }
}

/* Sets the attributes of the rules for the kind of the object. `patterns` are the compiled
 * expressions of the rules. */
static void object_read_fields(struct draft *draft, const json_t *values, const char *prefix,
                               const struct br_structs *fields, pcre2_code *const *patterns)
{
    const struct k8s_field *field = fields->items;
    for (size_t i = 0; i < fields->count; i++)
        if (field[i].from == (int)draft->rules->kind)
            object_read_field(draft, values, prefix, &field[i], patterns[i]);
}

static void object_read_labels(struct draft *draft, const json_t *metadata)
{
    const struct k8s_rules *rules = draft->rules;
    object_read_fields(draft, json_object_get(metadata, "labels"), k8s_kinds[rules->kind].label,
                       &rules->config->extract.labels, rules->labels);
}

static void object_read_annotations(struct draft *draft, const json_t *metadata)
{
    static const struct k8s_field otel = {.tag_name = "$1", .key = ""};
    const struct k8s_rules *rules = draft->rules;
    const json_t *values = json_object_get(metadata, "annotations");
    object_read_fields(draft, values, k8s_kinds[rules->kind].annotation,
                       &rules->config->extract.annotations, rules->annotations);
    if (rules->kind == K8S_POD && rules->config->extract.otel_annotations)
        object_read_field(draft, values, "", &otel, rules->otel);
}

/* --- Owners ----------------------------------------------------------------------------------- */

/* Writes the name of a deployment, which is the name of its ReplicaSet without the hash of the pod
 * template. `hash` is the pod's label pod-template-hash; without that label, the ReplicaSet does
 * not belong to a deployment. Returns "" if the ReplicaSet's name does not end in the hash. */
static const char *object_deployment_of(const char *replica_set, const char *hash, char out[256])
{
    size_t len = strlen(replica_set), hash_len = strlen(hash);
    out[0] = '\0';
    if (!hash_len || len <= hash_len + 1 || len >= 256 ||
        strcmp(replica_set + len - hash_len, hash) != 0 || replica_set[len - hash_len - 1] != '-')
        return out;
    (void)snprintf(out, 256, "%.*s", (int)(len - hash_len - 1), replica_set);
    return out;
}

/* Writes the name of a CronJob, which is the name of its Job without the dash and eight digits at
 * the end. The digits are the minutes since 1970 at which the Job was scheduled. Returns "" if that
 * time is more than a day before or after `created` (RFC 3339), because the name of a Job may also
 * end in a date. */
static const char *object_cron_job_of(const char *job, const char *created, char out[256])
{
    const char *dash = strrchr(job, '-');
    struct tm tm = {0};
    out[0] = '\0';
    if (!dash || strlen(dash + 1) != 8 || strspn(dash + 1, "0123456789") != 8 ||
        (size_t)(dash - job) >= 256 || !strptime(created, "%Y-%m-%dT%H:%M:%S", &tm))
        return out;
    long long minutes = (long long)timegm(&tm) / 60 - strtoll(dash + 1, NULL, 10);
    if (minutes >= -MINUTES_PER_DAY && minutes <= MINUTES_PER_DAY)
        (void)snprintf(out, 256, "%.*s", (int)(dash - job), job);
    return out;
}

/* Sets the attributes of one owner of a pod. */
static void object_read_owner(struct draft *draft, const json_t *metadata, const json_t *owner)
{
    static const struct {
        enum k8s_kind kind;
        enum k8s_metadata name, uid;
    } kinds[] = {
        {K8S_REPLICASET, K8S_REPLICASET_NAME, K8S_REPLICASET_UID},
        {K8S_DAEMONSET, K8S_DAEMONSET_NAME, K8S_DAEMONSET_UID},
        {K8S_STATEFULSET, K8S_STATEFULSET_NAME, K8S_STATEFULSET_UID},
        {K8S_JOB, K8S_JOB_NAME, K8S_JOB_UID},
    };
    const char *name = object_string(owner, "name"), *uid = object_string(owner, "uid"), *of = "";
    char buffer[256];
    size_t k = 0;
    while (k < BR_COUNT(kinds) &&
           strcmp(k8s_kinds[kinds[k].kind].owner, object_string(owner, "kind")) != 0)
        k++;
    if (k == BR_COUNT(kinds))
        return;
    draft->object.parents[kinds[k].kind] = object_keep(draft, uid);
    object_set_metadata(draft, kinds[k].name, name);
    object_set_metadata(draft, kinds[k].uid, uid);
    if (kinds[k].kind == K8S_REPLICASET) {
        const json_t *labels = json_object_get(metadata, "labels");
        of = object_deployment_of(name, object_string(labels, "pod-template-hash"), buffer);
        object_set_metadata(draft, K8S_DEPLOYMENT_NAME, of);
    } else if (kinds[k].kind == K8S_JOB) {
        of = object_cron_job_of(name, object_string(metadata, "creationTimestamp"), buffer);
        object_set_metadata(draft, K8S_CRONJOB_NAME, of);
    }
    object_set_metadata(draft, K8S_SERVICE_NAME, *of ? of : name);
}

/* Sets the attributes of the controller of a ReplicaSet or Job, if it has the kind `kind`. */
static void object_read_controller(struct draft *draft, const json_t *metadata, enum k8s_kind kind,
                                   enum k8s_metadata name, enum k8s_metadata uid)
{
    size_t i;
    json_t *owner;
    json_array_foreach(json_object_get(metadata, "ownerReferences"), i, owner)
    {
        if (strcmp(object_string(owner, "kind"), k8s_kinds[kind].owner) != 0 ||
            !json_is_true(json_object_get(owner, "controller")))
            continue;
        draft->object.parents[kind] = object_keep(draft, object_string(owner, "uid"));
        object_set_metadata(draft, name, object_string(owner, "name"));
        object_set_metadata(draft, uid, object_string(owner, "uid"));
        break;
    }
    draft->object.n_owner_attributes = draft->object.n_attributes;
}

/* --- Containers ------------------------------------------------------------------------------- */

/* Returns the length of an image's name without the tag. Sets `tag` to the tag, or to "latest" if
 * the image has no tag. */
static size_t object_split_image(const char *image, char tag[256])
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

/* Returns the part of an image from its digest on, such as "sha256:...", or NULL. */
static const char *object_digest(const char *image)
{
    const char *at = strchr(image, '@');
    return at && strchr(at, ':') ? at + 1 : NULL;
}

/* Appends the version of a service for which its image is the only source: the tag with the digest,
 * or the one of them that the image has.
 * Source: opentelemetry.io/docs/specs/semconv/non-normative/k8s-attributes */
static uint32_t object_keep_version(struct draft *draft, const char *image, size_t name_len,
                                    const char *tag)
{
    const char *digest = object_digest(image);
    bool tagged = image[name_len] == ':';
    struct br_str text = {.max = 1024};
    br_str_printf(&text, "%s%s%s", tagged ? tag : "", tagged && digest ? "@" : "",
                  digest ? digest : "");
    uint32_t offset = object_keep(draft, text.failed ? NULL : text.data);
    br_str_release(&text);
    return offset;
}

/* Appends the full name of an image with a digest: a name without a registry is one of docker.io,
 * where a name without a slash is one of library/. Returns 0 if the image has no name or no digest,
 * or has the prefix of a container runtime. */
static uint32_t object_keep_repo_digest(struct draft *draft, const char *image)
{
    size_t name_len = strcspn(image, "@"), first = strcspn(image, "/@");
    bool has_slash = image[first] == '/';
    bool has_registry = has_slash && (memchr(image, '.', first) || memchr(image, ':', first) ||
                                      (first == 9 && memcmp(image, "localhost", 9) == 0));
    struct br_str text = {.max = 1024};
    if (!object_digest(image) || !name_len || strstr(image, "://"))
        return 0;
    br_str_printf(&text, "%s%s%s", has_registry ? "" : "docker.io/", has_slash ? "" : "library/",
                  image);
    uint32_t offset = object_keep(draft, text.failed ? NULL : text.data);
    br_str_release(&text);
    return offset;
}

static struct k8s_container *object_container(struct draft *draft, const char *name)
{
    struct k8s_object *pod = &draft->object;
    for (uint32_t i = 0; i < pod->n_containers; i++)
        if (strcmp(draft->texts.data + draft->containers[i].name, name) == 0)
            return &draft->containers[i];
    if (pod->n_containers == K8S_CONTAINERS_MAX)
        return NULL;
    struct k8s_container *container = &draft->containers[pod->n_containers++];
    *container = (struct k8s_container){.name = object_keep(draft, name), .restarts = -1};
    return container;
}

static void object_read_containers(struct draft *draft, const json_t *list)
{
    size_t i;
    json_t *json;
    json_array_foreach(list, i, json)
    {
        char name[512], tag[256];
        struct k8s_container *container = object_container(draft, object_string(json, "name"));
        const char *image = object_string(json, "image");
        if (!container || !*image)
            continue;
        size_t len = object_split_image(image, tag);
        (void)snprintf(name, sizeof name, "%.*s", (int)len, image);
        container->image = object_keep(draft, name);
        container->tag = object_keep(draft, tag);
        if (draft->rules->config->extract.wants[K8S_SERVICE_VERSION])
            container->version = object_keep_version(draft, image, len, tag);
    }
}

static void object_read_statuses(struct draft *draft, const json_t *list)
{
    size_t i;
    json_t *json;
    json_array_foreach(list, i, json)
    {
        struct k8s_container *container = object_container(draft, object_string(json, "name"));
        const char *id = object_string(json, "containerID"), *scheme = strstr(id, "://");
        const json_t *restarts = json_object_get(json, "restartCount");
        if (!container)
            continue;
        container->id = object_keep(draft, scheme ? scheme + 3 : id);
        container->restarts = json_is_integer(restarts) ? json_integer_value(restarts) : 0;
        if (draft->rules->config->extract.wants[K8S_CONTAINER_IMAGE_REPO_DIGESTS])
            container->digest = object_keep_repo_digest(draft, object_string(json, "imageID"));
    }
}

/* --- Objects ---------------------------------------------------------------------------------- */

static bool object_is_ignored(const struct k8s_rules *rules, const json_t *metadata)
{
    const char *name = object_string(metadata, "name");
    if (strcasecmp(object_string(json_object_get(metadata, "annotations"),
                                 "opentelemetry.io/k8s-processor/ignore"),
                   "true") == 0)
        return true;
    for (size_t i = 0; i < rules->n_excluded; i++)
        if (br_regex_match(&rules->regex, rules->excluded[i], name, strlen(name)) > 0)
            return true;
    return false;
}

/* Sets the attributes that describe a service. A label of the pod replaces the name of its
 * workload. */
static void object_read_service(struct draft *draft, const json_t *metadata)
{
    const json_t *labels = json_object_get(metadata, "labels");
    object_set_metadata(draft, K8S_SERVICE_NAME, object_string(labels, "app.kubernetes.io/name"));
    object_set_metadata(draft, K8S_SERVICE_NAME,
                        object_string(labels, "app.kubernetes.io/instance"));
    object_set_metadata(draft, K8S_SERVICE_VERSION,
                        object_string(labels, "app.kubernetes.io/version"));
}

static void object_read_pod(struct draft *draft, const json_t *json, const json_t *metadata)
{
    const json_t *spec = json_object_get(json, "spec"), *status = json_object_get(json, "status");
    const char *namespace = object_string(metadata, "namespace");
    struct k8s_object *pod = &draft->object;
    size_t i;
    json_t *owner;
    pod->ip = object_keep(draft, object_string(status, "podIP"));
    pod->start_time = object_keep(draft, object_string(status, "startTime"));
    pod->host_network = json_is_true(json_object_get(spec, "hostNetwork"));
    pod->ignored = object_is_ignored(draft->rules, metadata);
    pod->parents[K8S_NAMESPACE] = pod->namespace;
    pod->parents[K8S_NODE] = object_keep(draft, object_string(spec, "nodeName"));
    object_set_metadata(draft, K8S_NAMESPACE_NAME, namespace);
    object_set_metadata(draft, K8S_SERVICE_NAMESPACE, namespace);
    object_set_metadata(draft, K8S_POD_NAME, object_string(metadata, "name"));
    object_set_metadata(draft, K8S_SERVICE_NAME, object_string(metadata, "name"));
    object_set_metadata(draft, K8S_POD_UID, object_string(metadata, "uid"));
    object_set_metadata(draft, K8S_POD_HOSTNAME, object_string(spec, "hostname"));
    object_set_metadata(draft, K8S_POD_IP, object_string(status, "podIP"));
    object_set_metadata(draft, K8S_POD_START_TIME, object_string(metadata, "creationTimestamp"));
    object_set_metadata(draft, K8S_NODE_NAME, object_string(spec, "nodeName"));
    json_array_foreach(json_object_get(metadata, "ownerReferences"), i, owner)
        object_read_owner(draft, metadata, owner);
    object_read_labels(draft, metadata);
    object_read_service(draft, metadata);
    object_read_annotations(draft, metadata);
    object_read_containers(draft, json_object_get(spec, "containers"));
    object_read_containers(draft, json_object_get(spec, "initContainers"));
    object_read_statuses(draft, json_object_get(status, "containerStatuses"));
    object_read_statuses(draft, json_object_get(status, "initContainerStatuses"));
}

/* Reads an object of a kind other than pods, of which only the metadata is needed. */
static void object_read_other(struct draft *draft, const json_t *metadata)
{
    enum k8s_kind kind = draft->rules->kind;
    if (kind == K8S_NODE)
        object_set_metadata(draft, K8S_NODE_UID, object_string(metadata, "uid"));
    if (kind == K8S_REPLICASET)
        object_read_controller(draft, metadata, K8S_DEPLOYMENT, K8S_DEPLOYMENT_NAME,
                               K8S_DEPLOYMENT_UID);
    if (kind == K8S_JOB)
        object_read_controller(draft, metadata, K8S_CRONJOB, K8S_CRONJOB_NAME, K8S_CRONJOB_UID);
    object_read_labels(draft, metadata);
    object_read_annotations(draft, metadata);
}

/* Reads an object. Of a deleted object, only the values that identify it are read. */
static void object_read(struct draft *draft, const json_t *json, bool deleted)
{
    const json_t *metadata = json_object_get(json, "metadata");
    struct k8s_object *object = &draft->object;
    object->kind = draft->rules->kind;
    br_str_putc(&draft->texts, '\0'); /* offset 0 is the empty text */
    object->uid = object_keep(draft, object_string(metadata, "uid"));
    object->name = object_keep(draft, object_string(metadata, "name"));
    object->namespace = object_keep(draft, object_string(metadata, "namespace"));
    object->key = k8s_kinds[object->kind].named ? object->name : object->uid;
    if (deleted || draft->texts.failed)
        return;
    if (object->kind == K8S_POD)
        object_read_pod(draft, json, metadata);
    else
        object_read_other(draft, metadata);
}

int k8s_object_read(const struct k8s_rules *rules, const json_t *json, bool deleted,
                    struct k8s_object **ret)
{
    struct draft *draft = br_calloc(1, sizeof *draft);
    int rc = BR_EINVAL;
    *ret = NULL;
    if (!draft)
        return BR_ENOMEM;
    draft->rules = rules;
    draft->texts.max = K8S_TEXTS_MAX;
    object_read(draft, json, deleted);
    if (draft->texts.failed && !draft->too_long)
        rc = BR_ENOMEM;
    else if (draft->object.uid && draft->object.name && !draft->texts.failed)
        rc = (*ret = object_finish(draft)) ? 0 : BR_ENOMEM;
    br_str_release(&draft->texts);
    br_free(draft);
    return rc;
}

const char *k8s_object_attribute(const struct k8s_object *object, const char *key)
{
    for (uint32_t i = 0; i < object->n_attributes; i++)
        if (strcmp(k8s_object_text(object, object->attributes[i].key), key) == 0)
            return k8s_object_text(object, object->attributes[i].value);
    return NULL;
}
