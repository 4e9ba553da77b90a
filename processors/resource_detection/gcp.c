/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The detector gcp: Google Cloud, by environment variables and the metadata server. The platform
 * determines which values are read.
 */
#include <string.h>

#include "base/mem.h"
#include "processors/resource_detection/detectors.h"

/* How attributes are made from a value of the metadata server. */
enum use {
    AS_IS,
    LAST,     /* uses the text after the last slash */
    ZONE,     /* uses the zone, which is the text after the last slash, and its region */
    LOCATION, /* sets the zone and its region, or the region alone if the value is a region */
    NAME,     /* host.name and gcp.gce.instance.name */
    GROUP,    /* uses the managed instance group that created the instance */
};

struct value {
    const char *path;
    const char *key; /* name of the attribute for AS_IS and LAST */
    enum use use;
    bool optional; /* true: the value may be missing even with fail_on_missing_metadata */
};

static const struct value project[] = {{"project/project-id", "cloud.account.id", AS_IS, false},
                                       {NULL, NULL, AS_IS, false}};
static const struct value engine[] = {
    {"instance/attributes/cluster-location", NULL, LOCATION, false},
    {"instance/attributes/cluster-name", "k8s.cluster.name", AS_IS, false},
    {"instance/id", "host.id", AS_IS, false},
    {"instance/name", "host.name", AS_IS, true},
    {NULL, NULL, AS_IS, false},
};
static const struct value functions[] = {
    {"instance/id", "faas.instance", AS_IS, false},
    {"instance/region", "cloud.region", LAST, false},
    {NULL, NULL, AS_IS, false},
};
static const struct value flexible[] = {{"instance/zone", NULL, ZONE, false},
                                        {NULL, NULL, AS_IS, false}};
static const struct value standard[] = {
    {"instance/zone", "cloud.availability_zone", LAST, false},
    {"instance/region", "cloud.region", LAST, false},
    {NULL, NULL, AS_IS, false},
};
static const struct value compute[] = {
    {"instance/machine-type", "host.type", AS_IS, false},
    {"instance/zone", NULL, ZONE, false},
    {"instance/id", "host.id", AS_IS, false},
    {"instance/name", NULL, NAME, false},
    {"instance/hostname", "gcp.gce.instance.hostname", AS_IS, false},
    {"instance/attributes/created-by", NULL, GROUP, true},
    {NULL, NULL, AS_IS, false},
};

static const struct value *gcp_current(const struct detect_run *run)
{
    return (const struct value *)run->data + run->step;
}

static void gcp_ask(struct detect_run *run, const struct value *values, unsigned index)
{
    static const struct br_header flavor = {"metadata-flavor", "Google"};
    run->data = (void *)(uintptr_t)values;
    run->step = index;
    char *path = br_arena_printf(&run->arena, "/computeMetadata/v1/%s", values[index].path);
    if (!values[index].path)
        detect_end(run);
    else if (path)
        detect_request(run, 0, NULL, path, &flavor, 1);
    else
        detect_fail(run, "out of memory");
}

/* --- Platforms -------------------------------------------------------------------------------- */

/* Sets attributes from environment variables: each attribute has the value of the first of its
 * variables that is set. */
static void gcp_from_variables(struct detect_run *run, const char *key, const char *const *names)
{
    const char *value = NULL;
    for (; *names && !value; names++)
        value = detect_variable(*names);
    detect_text(run, key, value);
}

static void gcp_ask_functions(struct detect_run *run, const char *platform)
{
    static const char *const names[] = {"K_SERVICE", "CLOUD_RUN_JOB", "CLOUD_RUN_WORKER_POOL",
                                        NULL};
    static const char *const versions[] = {"CLOUD_RUN_REVISION", "K_REVISION", NULL};
    detect_text(run, "cloud.platform", platform);
    gcp_from_variables(run, "faas.name", names);
    if (detect_variable("CLOUD_RUN_JOB")) {
        detect_text(run, "gcp.cloud_run.job.execution", detect_variable("CLOUD_RUN_EXECUTION"));
        detect_text(run, "gcp.cloud_run.job.task_index", detect_variable("CLOUD_RUN_TASK_INDEX"));
    } else {
        gcp_from_variables(run, "faas.version", versions);
    }
    gcp_ask(run, functions, 0);
}

static void gcp_ask_app_engine(struct detect_run *run, const struct value *values)
{
    detect_text(run, "cloud.platform", "gcp_app_engine");
    detect_text(run, "faas.name", detect_variable("GAE_SERVICE"));
    detect_text(run, "faas.version", detect_variable("GAE_VERSION"));
    detect_text(run, "faas.instance", detect_variable("GAE_INSTANCE"));
    gcp_ask(run, values, 0);
}

/* Continues with the detection of the platform that the environment variables indicate. GKE was
 * handled before. */
static void gcp_ask_platform(struct detect_run *run)
{
    const char *app_engine = detect_variable("GAE_ENV");
    if (detect_variable("FUNCTION_TARGET"))
        gcp_ask_functions(run, "gcp_cloud_functions");
    else if (detect_variable("K_CONFIGURATION") || detect_variable("CLOUD_RUN_JOB") ||
             detect_variable("CLOUD_RUN_WORKER_POOL"))
        gcp_ask_functions(run, "gcp_cloud_run");
    else if (app_engine && strcmp(app_engine, "standard") == 0)
        gcp_ask_app_engine(run, standard);
    else if (detect_variable("GAE_SERVICE"))
        gcp_ask_app_engine(run, flexible);
    else
        gcp_ask(run, compute, 0);
}

static void gcp_begin(struct detect_run *run)
{
    const char *id = detect_variable("BMS_PROJECT_ID"), *region = detect_variable("BMS_REGION"),
               *instance = detect_variable("BMS_INSTANCE_ID"),
               *host = detect_variable("GCE_METADATA_HOST");
    detect_text(run, "cloud.provider", "gcp");
    if (id && region && instance) { /* Bare Metal Solution has no metadata server */
        detect_text(run, "cloud.platform", "gcp_bare_metal_solution");
        detect_text(run, "cloud.account.id", id);
        detect_text(run, "cloud.region", region);
        detect_text(run, "host.name", instance);
        detect_end(run);
        return;
    }
    char *origin = br_arena_printf(&run->arena, "http://%s", host ? host : "169.254.169.254");
    if (!origin)
        detect_fail(run, "out of memory");
    else if (detect_connect(run, 0, origin, NULL))
        gcp_ask(run, project, 0);
}

/* --- Values ----------------------------------------------------------------------------------- */

static const char *gcp_last(const char *text)
{
    const char *slash = strrchr(text, '/');
    return slash ? slash + 1 : text;
}

/* Sets the region of a zone: the name of the zone without its last "-" and the text after it. */
static void gcp_region_of(struct detect_run *run, const char *zone)
{
    const char *end = strrchr(zone, '-');
    detect_text(run, "cloud.region",
                end ? br_arena_strndup(&run->arena, zone, (size_t)(end - zone)) : NULL);
}

static void gcp_put_location(struct detect_run *run, const char *location)
{
    const char *dash = strchr(location, '-');
    if (dash && strchr(dash + 1, '-')) {
        detect_text(run, "cloud.availability_zone", location);
        gcp_region_of(run, location);
    } else {
        detect_text(run, "cloud.region", location);
    }
}

/* Copies one component of a path, and advances `*path` to the next component. Returns NULL if there
 * is no further component. */
static const char *gcp_next(struct detect_run *run, const char **path)
{
    size_t len = strcspn(*path, "/");
    const char *part = len ? br_arena_strndup(&run->arena, *path, len) : NULL;
    *path += len;
    *path += **path == '/';
    return part;
}

/* Reads projects/<number>/zones/<zone>/instanceGroupManagers/<name>, or the same with regions. */
static void gcp_put_group(struct detect_run *run, const char *text)
{
    const char *parts[6];
    for (size_t i = 0; i < BR_COUNT(parts); i++)
        if (!(parts[i] = gcp_next(run, &text)))
            return;
    bool zone = strcmp(parts[2], "zones") == 0;
    if (*text || strcmp(parts[0], "projects") != 0 ||
        strcmp(parts[4], "instanceGroupManagers") != 0 ||
        (!zone && strcmp(parts[2], "regions") != 0))
        return;
    detect_text(run, "gcp.gce.instance_group_manager.name", parts[5]);
    detect_text(
        run, zone ? "gcp.gce.instance_group_manager.zone" : "gcp.gce.instance_group_manager.region",
        parts[3]);
}

static void gcp_put(struct detect_run *run, const struct value *value, const char *text)
{
    switch (value->use) {
    case AS_IS:
        detect_text(run, value->key, text);
        break;
    case LAST:
        detect_text(run, value->key, gcp_last(text));
        break;
    case ZONE:
        detect_text(run, "cloud.availability_zone", gcp_last(text));
        gcp_region_of(run, gcp_last(text));
        break;
    case LOCATION:
        gcp_put_location(run, text);
        break;
    case NAME:
        detect_text(run, "host.name", text);
        detect_text(run, "gcp.gce.instance.name", text);
        break;
    case GROUP:
        gcp_put_group(run, text);
        break;
    }
}

/* Handles a value that is missing on the metadata server. */
static void gcp_on_missing(struct detect_run *run, const char *why)
{
    const struct value *values = run->data, *value = gcp_current(run);
    if (values == project) {
        /* without this value the Collector concludes "not on Google Cloud", even with
         * fail_on_missing_metadata */
        run->n_found = 0;
        detect_end(run);
    } else if (values == engine && value == engine) {
        gcp_ask_platform(run); /* Kubernetes on Google Cloud, but not GKE */
    } else if (values == compute && value == compute) {
        detect_end(run); /* an unknown platform */
    } else if (!value->optional && detect_must_exist(run)) {
        detect_fail(run, "%s", why);
    } else {
        gcp_ask(run, values, run->step + 1);
    }
}

static void gcp_on_answer(struct detect_run *run, const struct detect_answer *answer)
{
    const struct value *values = run->data, *value = gcp_current(run);
    if (answer->error) {
        gcp_on_missing(run, answer->error);
        return;
    }
    if (values == engine && value == engine)
        detect_text(run, "cloud.platform", "gcp_kubernetes_engine");
    if (values == compute && value == compute)
        detect_text(run, "cloud.platform", "gcp_compute_engine");
    gcp_put(run, value, answer->body);
    if (values != project)
        gcp_ask(run, values, run->step + 1);
    else if (detect_variable("KUBERNETES_SERVICE_HOST"))
        gcp_ask(run, engine, 0);
    else
        gcp_ask_platform(run);
}

const struct detector detect_gcp = {.begin = gcp_begin, .on_answer = gcp_on_answer};
