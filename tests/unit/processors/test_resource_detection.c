/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resource_detection processor. The answers of the metadata services are the examples of their
 * documentation, and the expected attributes are those of the Collector's
 * resourcedetectionprocessor (0.165).
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "processors/resource_detection/detection.h"
#include "tests/support/node_rig.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_resource_detection_processor;

/* --- The bed ---------------------------------------------------------------------------------- */

/* An answer of a metadata service. */
struct scripted {
    const char *path, *body;
    unsigned status;    /* 0: 200 */
    const char *header; /* a header "name: value" that the request must contain; NULL: none */
    const char *method; /* NULL: GET */
    bool never;         /* the service does not answer */
};

struct bed {
    struct node_rig rig;
    struct detection detection;
    const struct scripted *script; /* the last element has no path */
    unsigned n_ended;
    char text[4096]; /* the attributes, one "key=value" in each line */
};

static struct bed *the_bed;

static bool has_header(const struct br_exchange *x, const char *header)
{
    for (size_t i = 0; i < x->n_headers; i++) {
        char line[256];
        (void)snprintf(line, sizeof line, "%s: %s", x->headers[i].name, x->headers[i].value);
        if (strcmp(line, header) == 0)
            return true;
    }
    return false;
}

static struct fake_answer on_exchange(const struct br_exchange *x, void *arg)
{
    struct bed *b = arg;
    for (const struct scripted *s = b->script; s && s->path; s++) {
        if (strcmp(s->path, x->path) != 0 || strcmp(s->method ? s->method : "GET", x->method) != 0)
            continue;
        if (s->header && !has_header(x, s->header))
            fail_msg("%s lacks the header %s", x->path, s->header);
        return (struct fake_answer){.http_status = s->status,
                                    .body = s->body,
                                    .len = s->body ? strlen(s->body) : 0,
                                    .never = s->never};
    }
    return (struct fake_answer){.error = b->script ? 0 : BR_EIO, .http_status = 404};
}

static void on_end(struct detection *detection)
{
    (void)detection;
    the_bed->n_ended++;
}

/* Starts a detection. A `script` of NULL means that no service can be reached. */
static struct bed *bed_new(const char *yaml, const struct scripted *script)
{
    struct bed *b = calloc(1, sizeof *b);
    assert_non_null(b);
    the_bed = b;
    node_rig_begin(&b->rig, &br_resource_detection_processor, yaml);
    b->script = script;
    b->rig.h->answer = on_exchange;
    b->rig.h->answer_arg = b;
    assert_int_equal(detect_init(&b->detection, &b->rig.node, on_end), 0);
    return b;
}

static void bed_free(struct bed *b)
{
    detect_release(&b->detection);
    node_rig_end(&b->rig);
    free(b);
}

static void put_value(struct br_str *out, struct br_any any)
{
    struct br_value element;
    const uint8_t *end = any.data + any.len;
    if (any.type == BR_VALUE_STRING)
        br_str_add(out, any.data, any.len);
    else if (any.type == BR_VALUE_INT)
        br_str_printf(out, "%lld", (long long)any.number);
    for (const uint8_t *p = any.data; any.type == BR_VALUE_LIST;) {
        p = br_value_next(p, end, &element);
        if (!p)
            break;
        br_str_putc(out, '[');
        put_value(out, br_any_read(element));
        br_str_putc(out, ']');
    }
}

/* Returns the detected attributes, sorted as found, one in each line. */
static const char *found(struct bed *b)
{
    struct br_str out = {.data = b->text, .cap = sizeof b->text, .fixed = true};
    b->text[0] = '\0';
    for (size_t i = 0; i < b->detection.n_found; i++) {
        br_str_printf(&out, "%s=", b->detection.found[i].key);
        put_value(&out, br_any_read(b->detection.found[i].value));
        br_str_putc(&out, '\n');
    }
    return b->text;
}

static int compare_lines(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Returns the lines in sorted order. The text is valid until the second call after this one. */
static const char *sorted(const char *text)
{
    static char copies[2][4096], results[2][4096];
    static int next;
    char *lines[64], *save = NULL;
    size_t n = 0;
    next ^= 1;
    (void)snprintf(copies[next], sizeof copies[next], "%s", text);
    for (char *line = strtok_r(copies[next], "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        lines[n++] = line;
    qsort(lines, n, sizeof *lines, compare_lines);
    results[next][0] = '\0';
    struct br_str out = {.data = results[next], .cap = sizeof results[next], .fixed = true};
    for (size_t i = 0; i < n; i++)
        br_str_printf(&out, "%s\n", lines[i]);
    return results[next];
}

/* Runs a detection, which must succeed and find these attributes. */
static void expect(const char *yaml, const struct scripted *script, const char *attributes)
{
    struct br_err err = {0};
    struct bed *b = bed_new(yaml, script);
    if (detect_start(&b->detection, &err))
        fail_msg("%s", err.text);
    fake_host_iterate(b->rig.h);
    fake_host_advance(b->rig.h, 5000); /* longer than the time limit of a detection */
    assert_int_equal(b->n_ended, 1);
    assert_true(b->detection.detected);
    assert_string_equal(sorted(found(b)), sorted(attributes));
    bed_free(b);
}

/* Runs a detection, which must fail with this error. */
static void expect_failure(const char *yaml, const struct scripted *script, const char *why)
{
    struct br_err err = {0};
    struct bed *b = bed_new(yaml, script);
    if (detect_start(&b->detection, &err)) {
        assert_non_null(strstr(err.text, why));
    } else {
        fake_host_iterate(b->rig.h);
        if (b->detection.running)
            fake_host_advance(b->rig.h, 5000);
        assert_int_equal(b->n_ended, 1);
        assert_false(b->detection.detected);
        if (!strstr(b->detection.runs[0].why, why))
            fail_msg("%s", b->detection.runs[0].why);
    }
    bed_free(b);
}

static const char *const variables[] = {
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_RESOURCE",
    "DOCKER_HOST",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "K8S_NODE_NAME",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "ECS_CONTAINER_METADATA_URI",
    "ECS_CONTAINER_METADATA_URI_V4",
    "GCE_METADATA_HOST",
    "FUNCTION_TARGET",
    "K_CONFIGURATION",
    "K_SERVICE",
    "K_REVISION",
    "CLOUD_RUN_JOB",
    "CLOUD_RUN_EXECUTION",
    "CLOUD_RUN_TASK_INDEX",
    "GAE_ENV",
    "GAE_SERVICE",
    "GAE_VERSION",
    "GAE_INSTANCE",
};

static int without_variables(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(variables); i++)
        (void)unsetenv(variables[i]);
    return 0;
}

/* --- env and system --------------------------------------------------------------------------- */

static void environment(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *yaml, *attributes;
    } cases[] = {
        {"key1=value1,key2=value2", "{}", "key1=value1\nkey2=value2\n"},
        {"  k = v , other=a=b,", "{}", "k=v\nother=a=b\n"},
        {"example.org/test-1 = test $ %3A \\\" ,  Abc=Def", "{}",
         "Abc=Def\nexample.org/test-1=test $ : \\\"\n"},
        {"empty=", "{}", "empty=\n"},
        {"service.name=shop,service.version=1,k8s.pod.name=p",
         "env: {attributes: {included: ['service.*', k8s.?od.name], excluded: [service.version]}}",
         "k8s.pod.name=p\nservice.name=shop\n"},
        {"", "{}", ""},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        (void)setenv("OTEL_RESOURCE_ATTRIBUTES", cases[i].variable, 1);
        expect(cases[i].yaml, NULL, cases[i].attributes);
    }
    (void)setenv("OTEL_RESOURCE", "old=1", 1);
    expect("{}", NULL, "old=1\n");
    static const char *const invalid[] = {"key1", "=value", "a=b,key", "k=%zz", "k=\xc3\xa4"};
    for (size_t i = 0; i < BR_COUNT(invalid); i++) {
        (void)setenv("OTEL_RESOURCE_ATTRIBUTES", invalid[i], 1);
        expect_failure("{}", NULL, "must have the form key=value");
    }
}

static void the_host(void **state)
{
    (void)state;
    char name[256], expected[512];
    assert_int_equal(gethostname(name, sizeof name), 0);
    (void)snprintf(expected, sizeof expected, "host.name=%s\nos.type=linux\n", name);
    expect("{detectors: [system], system: {hostname_sources: [os]}}", NULL, expected);
    expect("{detectors: [system], system: {hostname_sources: [os], resource_attributes: "
           "{host.name: {enabled: false}}}}",
           NULL, "os.type=linux\n");
    /* the values depend on the machine, so only the keys are compared */
    struct bed *b = bed_new("{detectors: [system], system: {resource_attributes: {host.arch: "
                            "{enabled: true}, os.description: {enabled: true}, host.interface: "
                            "{enabled: true}, os.build_id: {enabled: true}}}}",
                            NULL);
    assert_int_equal(detect_start(&b->detection, &(struct br_err){0}), 0);
    const char *text = found(b);
    assert_non_null(strstr(text, "host.arch="));
    assert_non_null(strstr(text, "os.description="));
    assert_non_null(strstr(text, "host.interface=["));
    assert_non_null(strstr(text, "os.build_id="));
    bed_free(b);
}

/* The detector that is listed first has precedence. */
static void detectors_are_merged(void **state)
{
    (void)state;
    (void)setenv("OTEL_RESOURCE_ATTRIBUTES", "os.type=other,a=b", 1);
    expect("{detectors: [env, system], system: {resource_attributes: {host.name: {enabled: "
           "false}}}}",
           NULL, "a=b\nos.type=other\n");
    expect("{detectors: [system, env], system: {resource_attributes: {host.name: {enabled: "
           "false}}}}",
           NULL, "a=b\nos.type=linux\n");
}

/* --- Clouds ----------------------------------------------------------------------------------- */

#define DOCUMENT                                                                                   \
    "{\"availabilityZone\":\"us-west-2b\",\"privateIp\":\"10.158.112.84\",\"version\":"            \
    "\"2017-09-30\",\"instanceId\":\"i-1234567890abcdef0\",\"billingProducts\":null,"              \
    "\"instanceType\":\"t2.micro\",\"accountId\":\"123456789012\",\"imageId\":\"ami-5fb8c835\","   \
    "\"architecture\":\"x86_64\",\"kernelId\":null,\"region\":\"us-west-2\"}"
#define OF_DOCUMENT                                                                                \
    "cloud.account.id=123456789012\ncloud.availability_zone=us-west-2b\n"                          \
    "cloud.region=us-west-2\nhost.id=i-1234567890abcdef0\nhost.image.id=ami-5fb8c835\n"            \
    "host.type=t2.micro\n"
#define META "/latest/meta-data/"
#define HOST "ip-10-158-112-84.us-west-2.compute.internal"
#define TOKEN "x-aws-ec2-metadata-token: AQAEANKUdvQUUQ=="

static const struct scripted ec2[] = {
    {"/latest/api/token", "AQAEANKUdvQUUQ==", 0, "x-aws-ec2-metadata-token-ttl-seconds: 300", "PUT",
     false},
    {META "instance-id", "i-1234567890abcdef0", 0, TOKEN, NULL, false},
    {"/latest/dynamic/instance-identity/document", DOCUMENT, 0, TOKEN, NULL, false},
    {META "hostname", HOST, 0, TOKEN, NULL, false},
    {META "tags/instance", "Name\nTeam\nother", 0, TOKEN, NULL, false},
    {META "tags/instance/Name", "web-1", 0, TOKEN, NULL, false},
    {META "tags/instance/Team", "blue", 0, TOKEN, NULL, false},
    {NULL, NULL, 0, NULL, NULL, false},
};
/* the first version of the metadata service has no tokens */
static const struct scripted ec2_old[] = {
    {META "instance-id", "i-1234567890abcdef0", 0, NULL, NULL, false},
    {"/latest/dynamic/instance-identity/document", DOCUMENT, 0, NULL, NULL, false},
    {NULL, NULL, 0, NULL, NULL, false},
};
/* the metadata service of OpenStack only returns the instance id */
static const struct scripted openstack[] = {
    {META "instance-id", "i-1", 0, NULL, NULL, false},
    {NULL, NULL, 0, NULL, NULL, false},
};
static const struct scripted broken[] = {
    {META "instance-id", "i-1", 0, NULL, NULL, false},
    {"/latest/dynamic/instance-identity/document", NULL, 500, NULL, NULL, false},
    {NULL, NULL, 0, NULL, NULL, false},
};
static const struct scripted silent[] = {
    {"/latest/api/token", NULL, 0, NULL, "PUT", true},
    {NULL, NULL, 0, NULL, NULL, false},
};

static void amazon_instances(void **state)
{
    (void)state;
#define EC2 "cloud.platform=aws_ec2\ncloud.provider=aws\n"
    expect("detectors: [ec2]", ec2, EC2 OF_DOCUMENT "host.name=" HOST "\n");
    expect("detectors: [ec2]", ec2_old, EC2 OF_DOCUMENT);
    expect("{detectors: [ec2], ec2: {tags: ['^Name$', '^T'], tags_from_imds: true}}", ec2,
           EC2 OF_DOCUMENT "host.name=" HOST "\nec2.tag.Name=web-1\nec2.tag.Team=blue\n");
    expect("{detectors: [ec2], ec2: {resource_attributes: {host.name: {enabled: false}, host.id: "
           "{enabled: false}, host.image.id: {enabled: false}, host.type: {enabled: false}}}}",
           ec2,
           EC2 "cloud.account.id=123456789012\ncloud.availability_zone=us-west-2b\n"
               "cloud.region=us-west-2\n");
    expect("detectors: [ec2]", NULL, "");
    expect("detectors: [ec2]", silent, "");
    expect("detectors: [ec2]", openstack, "");
    expect_failure("{detectors: [ec2], ec2: {fail_on_missing_metadata: true}}", NULL, "scripted");
    expect_failure("{detectors: [ec2], fail_on_missing_metadata: true}", silent,
                   "did not answer in time");
    expect_failure("{detectors: [ec2], fail_on_missing_metadata: true}", openstack, "404");
    expect_failure("detectors: [ec2]", broken, "status 500");
    (void)setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    expect("detectors: [ec2]", ec2, "");
}

#define TASK_ARN "arn:aws:ecs:us-west-2:111122223333:task/default/158d1c8083dd49d6b527399fd6414f5c"
#define CONTAINER(id, type, status)                                                                \
    "{\"DockerId\":\"" id "\",\"Name\":\"curl\",\"Type\":\"" type "\",\"KnownStatus\":\"" status   \
    "\",\"LogDriver\":\"awslogs\",\"LogOptions\":{\"awslogs-create-group\":\"true\","              \
    "\"awslogs-group\":\"/ecs/metadata\",\"awslogs-region\":\"us-west-2\",\"awslogs-stream\":"     \
    "\"ecs/curl/" id "\"}}"

static const struct scripted ecs[] = {
    {"/v4/abc/task",
     "{\"Cluster\":\"default\",\"TaskARN\":\"" TASK_ARN "\",\"Family\":\"curltest\","
     "\"Revision\":\"26\",\"AvailabilityZone\":\"us-west-2d\",\"LaunchType\":\"EC2\","
     "\"Containers\":[" CONTAINER("self", "NORMAL", "RUNNING") "," CONTAINER(
         "app", "NORMAL", "RUNNING") "," CONTAINER("init", "NORMAL",
                                                   "STOPPED") "," CONTAINER("pause", "CNI_PAUSE",
                                                                            "RUNNING") "]}",
     0, NULL, NULL, false},
    {"/v4/abc", CONTAINER("self", "NORMAL", "RUNNING"), 0, NULL, NULL, false},
    {NULL, NULL, 0, NULL, NULL, false},
};

static void amazon_tasks(void **state)
{
    (void)state;
    expect("detectors: [ecs]", ecs, ""); /* the process does not run in an ECS task */
    (void)setenv("ECS_CONTAINER_METADATA_URI_V4", "http://169.254.170.2/v4/abc", 1);
    expect("detectors: [ecs]", ecs,
           "aws.ecs.cluster.arn=arn:aws:ecs:us-west-2:111122223333:cluster/default\n"
           "aws.ecs.launchtype=ec2\naws.ecs.task.arn=" TASK_ARN "\n"
           "aws.ecs.task.family=curltest\naws.ecs.task.id=158d1c8083dd49d6b527399fd6414f5c\n"
           "aws.ecs.task.revision=26\n"
           "aws.log.group.arns=[arn:aws:logs:us-west-2:111122223333:log-group:/ecs/metadata]\n"
           "aws.log.group.names=[/ecs/metadata]\n"
           "aws.log.stream.arns=[arn:aws:logs:us-west-2:111122223333:log-group:/ecs/metadata:"
           "log-stream:ecs/curl/app]\naws.log.stream.names=[ecs/curl/app]\n"
           "cloud.account.id=111122223333\ncloud.availability_zone=us-west-2d\n"
           "cloud.platform=aws_ecs\ncloud.provider=aws\ncloud.region=us-west-2\n");
    expect_failure("detectors: [ecs]", NULL, "scripted");
}

#define MACHINE                                                                                    \
    "{\"azEnvironment\":\"AZUREPUBLICCLOUD\",\"location\":\"westus\",\"name\":\"examplevmname\","  \
    "\"osProfile\":{\"adminUsername\":\"admin\",\"computerName\":\"%s\"},\"resourceGroupName\":"   \
    "\"macikgo-test-may-23\",\"subscriptionId\":\"8d10da13-8125-4ba9-a717-bf7490507b3d\","         \
    "\"tagsList\":[{\"name\":\"Department\",\"value\":\"IT\"},{\"name\":\"x\",\"value\":\"y\"}],"  \
    "\"vmId\":\"02aab8a4-74ef-476e-8182-f6d2ba4166a6\",\"vmScaleSetName\":\"crpteste9vflji9\","    \
    "\"vmSize\":\"Standard_A3\",\"zone\":\"1\"}"
#define OF_MACHINE                                                                                 \
    "azure.resourcegroup.name=macikgo-test-may-23\nazure.vm.name=examplevmname\n"                  \
    "azure.vm.scaleset.name=crpteste9vflji9\nazure.vm.size=Standard_A3\n"                          \
    "cloud.account.id=8d10da13-8125-4ba9-a717-bf7490507b3d\ncloud.platform=azure.vm\n"             \
    "cloud.provider=azure\ncloud.region=westus\nhost.id=02aab8a4-74ef-476e-8182-f6d2ba4166a6\n"

static void azure_machines(void **state)
{
    (void)state;
    char body[2][1024];
    (void)snprintf(body[0], sizeof body[0], MACHINE, "computer");
    (void)snprintf(body[1], sizeof body[1], MACHINE, "");
    for (size_t i = 0; i < 2; i++) {
        const struct scripted azure[] = {
            {"/metadata/instance/compute?api-version=2020-09-01&format=json", body[i], 0,
             "metadata: true", NULL, false},
            {NULL, NULL, 0, NULL, NULL, false},
        };
        expect("detectors: [azure]", azure,
               i ? OF_MACHINE "host.name=examplevmname\n" : OF_MACHINE "host.name=computer\n");
        expect("{detectors: [azure], azure: {tags: [Dep], resource_attributes: {host.name: "
               "{enabled: false}, cloud.availability_zone: {enabled: true}}}}",
               azure, OF_MACHINE "azure.tag.Department=IT\ncloud.availability_zone=1\n");
    }
    expect("detectors: [azure]", NULL, "");
    expect_failure("{detectors: [azure], fail_on_missing_metadata: true}", NULL, "scripted");
}

#define GCP "/computeMetadata/v1/"
#define FLAVOR "metadata-flavor: Google"

static const struct scripted compute_engine[] = {
    {GCP "project/project-id", "my-project", 0, FLAVOR, NULL, false},
    {GCP "instance/machine-type", "projects/123456789012/machineTypes/n1-standard-1", 0, FLAVOR,
     NULL, false},
    {GCP "instance/zone", "projects/123456789012/zones/us-central1-a", 0, FLAVOR, NULL, false},
    {GCP "instance/id", "4520031799277581759", 0, FLAVOR, NULL, false},
    {GCP "instance/name", "vm-1", 0, FLAVOR, NULL, false},
    {GCP "instance/hostname", "vm-1.c.my-project.internal", 0, FLAVOR, NULL, false},
    {GCP "instance/attributes/created-by",
     "projects/123456789012/zones/us-central1-a/instanceGroupManagers/group-1", 0, FLAVOR, NULL,
     false},
    {GCP "instance/region", "projects/123456789012/regions/us-central1", 0, FLAVOR, NULL, false},
    {NULL, NULL, 0, NULL, NULL, false},
};
static const struct scripted kubernetes_engine[] = {
    {GCP "project/project-id", "my-project", 0, FLAVOR, NULL, false},
    {GCP "instance/attributes/cluster-location", "us-central1", 0, FLAVOR, NULL, false},
    {GCP "instance/attributes/cluster-name", "cluster-1", 0, FLAVOR, NULL, false},
    {GCP "instance/id", "4520031799277581759", 0, FLAVOR, NULL, false},
    {NULL, NULL, 0, NULL, NULL, false},
};
#define PROJECT "cloud.account.id=my-project\ncloud.provider=gcp\n"
#define ZONE "cloud.availability_zone=us-central1-a\ncloud.region=us-central1\n"

static void google_cloud(void **state)
{
    (void)state;
    expect("detectors: [gcp]", compute_engine,
           PROJECT ZONE "cloud.platform=gcp_compute_engine\nhost.id=4520031799277581759\n"
                        "host.name=vm-1\n"
                        "host.type=projects/123456789012/machineTypes/n1-standard-1\n"
                        "gcp.gce.instance_group_manager.name=group-1\n"
                        "gcp.gce.instance_group_manager.zone=us-central1-a\n");
    expect("detectors: [gcp]", NULL, "");
    expect("{detectors: [gcp], fail_on_missing_metadata: true}", NULL, "");
    (void)setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    expect("detectors: [gcp]", kubernetes_engine,
           PROJECT "cloud.platform=gcp_kubernetes_engine\ncloud.region=us-central1\n"
                   "host.id=4520031799277581759\nk8s.cluster.name=cluster-1\n");
    (void)unsetenv("KUBERNETES_SERVICE_HOST");
    (void)setenv("K_SERVICE", "shop", 1);
    (void)setenv("K_REVISION", "shop-1", 1);
    (void)setenv("K_CONFIGURATION", "shop", 1);
    expect("detectors: [gcp]", compute_engine,
           PROJECT "cloud.platform=gcp_cloud_run\ncloud.region=us-central1\nfaas.name=shop\n"
                   "faas.version=shop-1\nfaas.instance=4520031799277581759\n");
    (void)setenv("FUNCTION_TARGET", "f", 1);
    expect("detectors: [gcp]", compute_engine,
           PROJECT "cloud.platform=gcp_cloud_functions\ncloud.region=us-central1\nfaas.name=shop\n"
                   "faas.version=shop-1\nfaas.instance=4520031799277581759\n");
    (void)without_variables(NULL);
    (void)setenv("CLOUD_RUN_JOB", "job", 1);
    (void)setenv("CLOUD_RUN_EXECUTION", "job-x", 1);
    (void)setenv("CLOUD_RUN_TASK_INDEX", "0", 1);
    expect("detectors: [gcp]", compute_engine,
           PROJECT "cloud.platform=gcp_cloud_run\ncloud.region=us-central1\nfaas.name=job\n"
                   "faas.instance=4520031799277581759\ngcp.cloud_run.job.execution=job-x\n"
                   "gcp.cloud_run.job.task_index=0\n");
    (void)without_variables(NULL);
    (void)setenv("GAE_SERVICE", "app", 1);
    (void)setenv("GAE_VERSION", "v1", 1);
    (void)setenv("GAE_INSTANCE", "i1", 1);
    expect("detectors: [gcp]", compute_engine,
           PROJECT ZONE "cloud.platform=gcp_app_engine\nfaas.name=app\nfaas.version=v1\n"
                        "faas.instance=i1\n");
}

/* --- Docker and Kubernetes -------------------------------------------------------------------- */

static void docker_hosts(void **state)
{
    (void)state;
    char name[256], path[300];
    assert_int_equal(gethostname(name, sizeof name), 0);
    (void)snprintf(path, sizeof path, "/containers/%s/json", name);
    const struct scripted docker[] = {
        {"/info", "{\"ID\":\"x\",\"Name\":\"node5.corp.example.com\",\"OSType\":\"linux\"}", 0,
         NULL, NULL, false},
        {path, "{\"Name\":\"/braid\",\"Image\":\"sha256:abc\"}", 0, NULL, NULL, false},
        {NULL, NULL, 0, NULL, NULL, false},
    };
    expect("detectors: [docker]", docker, "host.name=node5.corp.example.com\nos.type=linux\n");
    expect("{detectors: [docker], docker: {resource_attributes: {container.name: {enabled: true}, "
           "container.image.name: {enabled: true}, os.type: {enabled: false}}}}",
           docker,
           "container.image.name=sha256:abc\ncontainer.name=/braid\n"
           "host.name=node5.corp.example.com\n");
    expect("detectors: [docker]", NULL, "");
    expect_failure("{detectors: [docker], fail_on_missing_metadata: true}", NULL, "scripted");
}

#define NODE                                                                                       \
    "{\"kind\":\"Node\",\"metadata\":{\"name\":\"node-1\",\"uid\":\"7f2b\"},\"spec\":"             \
    "{\"providerID\":\"aws:///us-west-2a/i-049ca2df511bec762\"},\"status\":{\"nodeInfo\":"         \
    "{\"machineID\":\"ec2d\"}}}"

static void kubernetes_nodes(void **state)
{
    (void)state;
    char folder[] = "/tmp/braid-test-XXXXXX", path[64], yaml[160];
    struct scripted api[] = {
        {"/api/v1/nodes/node-1", NODE, 0, "authorization: Bearer secret", NULL, false},
        {"/api/v1/namespaces/kube-system", "{\"metadata\":{\"uid\":\"c1\"}}", 0,
         "authorization: Bearer secret", NULL, false},
        {NULL, NULL, 0, NULL, NULL, false},
    };
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/token", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs("secret\n", file);
    (void)fclose(file);
    (void)snprintf(yaml, sizeof yaml, "{detectors: [k8snode], k8snode: {service_account: %s}}",
                   folder);
    expect(yaml, api, ""); /* the process does not run in a pod */
    (void)setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    (void)setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    expect(yaml, api, ""); /* the name of the node is not known */
    (void)setenv("K8S_NODE_NAME", "node-1", 1);
    expect(yaml, api, "k8s.cluster.uid=c1\nk8s.node.name=node-1\nk8s.node.uid=7f2b\n");
    api[1].status = 403;
    expect(yaml, api, "k8s.node.name=node-1\nk8s.node.uid=7f2b\n");
    api[1].status = 500;
    expect_failure(yaml, api, "status 500");
    (void)unlink(path);
    expect_failure(yaml, api, "cannot read");
    (void)rmdir(folder);
    /* k8s_api is another name of the detector; here it has no credentials */
    api[0].header = api[1].header = NULL;
    api[1].status = 0;
    (void)setenv("NODE", "node-1", 1);
    expect("{detectors: [k8s_api], k8s_api: {auth_type: none, node_from_env_var: NODE, "
           "resource_attributes: {host.id: {enabled: true}, k8s.node.uid: {enabled: false}}}}",
           api, "host.id=ec2d\nk8s.cluster.uid=c1\nk8s.node.name=node-1\n");
    (void)unsetenv("NODE");
}

#define ALL                                                                                        \
    "resource_attributes: {cloud.account.id: {enabled: true}, cloud.availability_zone: {enabled: " \
    "true}, cloud.region: {enabled: true}, host.id: {enabled: true}, host.image.id: {enabled: "    \
    "true}, host.name: {enabled: true}, host.type: {enabled: true}}"
#define EKS "cloud.platform=aws_eks\ncloud.provider=aws\n"

static void amazon_clusters(void **state)
{
    (void)state;
    struct scripted api[16] = {
        {"/.well-known/openid-configuration",
         "{\"issuer\":\"https://oidc.eks.us-west-2.amazonaws.com/id/A\"}", 0, NULL, NULL, false},
        {"/version", "{\"gitVersion\":\"v1.29.1-eks-508b6b3\"}", 0, NULL, NULL, false},
        {"/api/v1/nodes/node-1", NODE, 0, NULL, NULL, false},
    };
    static const char yaml[] = "{detectors: [eks], eks: {auth_type: none}}",
                      all[] = "{detectors: [eks], eks: {auth_type: none, node_from_env_var: "
                              "K8S_NODE_NAME, " ALL "}}";
    expect(yaml, api, "");
    (void)setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    (void)setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    (void)setenv("K8S_NODE_NAME", "node-1", 1);
    expect(yaml, api, EKS);
    api[0].status = 403;
    expect(yaml, api, EKS);
    /* the metadata service cannot be reached from the pod */
    expect(all, api,
           EKS "cloud.availability_zone=us-west-2a\ncloud.region=us-west-2\n"
               "host.id=i-049ca2df511bec762\n");
    api[1].body = "{\"gitVersion\":\"v1.29.1\"}";
    expect(yaml, api, "");
    expect_failure("{detectors: [eks], fail_on_missing_metadata: true, eks: {auth_type: none}}",
                   api, "does not run on EKS");
    (void)setenv("AWS_WEB_IDENTITY_TOKEN_FILE",
                 "/var/run/secrets/eks.amazonaws.com/serviceaccount/token", 1);
    expect(yaml, NULL, EKS);
    memcpy(api + 3, ec2, sizeof ec2);
    expect(all, api, EKS OF_DOCUMENT "host.name=" HOST "\n");
}

/* --- Repetition ------------------------------------------------------------------------------- */

static void failed_detections_are_repeated(void **state)
{
    (void)state;
    struct bed *b = bed_new("{detectors: [ec2], retry: {initial_interval: 1s, multiplier: 2, "
                            "max_interval: 3s, randomization_factor: 0}}",
                            broken);
    static const uint64_t delays_ms[] = {1000, 2000, 3000, 3000};
    assert_int_equal(detect_start(&b->detection, &(struct br_err){0}), 0);
    fake_host_iterate(b->rig.h);
    for (unsigned i = 0; i < BR_COUNT(delays_ms); i++) {
        assert_int_equal(b->n_ended, i + 1);
        assert_false(b->detection.detected);
        fake_host_advance(b->rig.h, delays_ms[i] - 1);
        assert_int_equal(b->n_ended, i + 1);
        if (i + 1 == BR_COUNT(delays_ms))
            b->script = ec2;
        fake_host_advance(b->rig.h, 2);
    }
    assert_true(b->detection.detected);
    assert_non_null(strstr(found(b), "host.id=i-1234567890abcdef0"));
    /* without refresh_interval, there are no further detections */
    fake_host_advance(b->rig.h, 1000000);
    assert_int_equal(b->n_ended, BR_COUNT(delays_ms) + 1);
    bed_free(b);
}

/* If a repeated detection fails, the attributes are kept. If it succeeds without attributes, they
 * are removed, because the service has answered that there are none. */
static void detections_are_refreshed(void **state)
{
    (void)state;
    struct bed *b = bed_new("{detectors: [ec2], refresh_interval: 1m}", ec2);
    assert_int_equal(detect_start(&b->detection, &(struct br_err){0}), 0);
    fake_host_iterate(b->rig.h);
    b->script = broken;
    fake_host_advance(b->rig.h, 60000);
    assert_int_equal(b->n_ended, 2);
    assert_non_null(strstr(found(b), "host.id=i-1234567890abcdef0"));
    b->script = openstack;
    fake_host_advance(b->rig.h, 60000);
    assert_int_equal(b->n_ended, 3);
    assert_string_equal(found(b), "");
    b->script = ec2;
    fake_host_advance(b->rig.h, 60000);
    assert_non_null(strstr(found(b), "host.id=i-1234567890abcdef0"));
    bed_free(b);
}

/* A thread resolves a name slowly. This does not delay the end of the detection. The next detection
 * begins after the thread has finished. */
static void slow_lookups_have_a_time_limit(void **state)
{
    (void)state;
    struct bed *b = bed_new("{detectors: [system], system: {hostname_sources: [os]}, retry: "
                            "{randomization_factor: 0}}",
                            NULL);
    b->rig.h->threads = true;
    assert_int_equal(detect_start(&b->detection, &(struct br_err){0}), 0);
    fake_host_advance(b->rig.h, 5000);
    assert_int_equal(b->n_ended, 1);
    assert_false(b->detection.detected);
    fake_host_advance(b->rig.h, 5000); /* the lookup still runs */
    assert_int_equal(b->n_ended, 1);
    assert_int_equal(fake_host_work(b->rig.h), 1);
    fake_host_iterate(b->rig.h);
    fake_host_advance(b->rig.h, 5000);
    assert_int_equal(fake_host_work(b->rig.h), 1);
    fake_host_iterate(b->rig.h);
    assert_true(b->detection.detected);
    bed_free(b);
}

/* --- Items ------------------------------------------------------------------------------------ */

#define S(k, v) "{\"key\":\"" k "\",\"value\":{\"stringValue\":\"" v "\"}}"
#define SPANS(attributes)                                                                          \
    "{\"resourceSpans\":[{\"resource\":{\"attributes\":[" attributes                               \
    "]},\"scopeSpans\":[{\"spans\":[{\"name\":\"a\"}]}]}]}"

static void resources(void **state)
{
    (void)state;
    static const char profile[] =
        "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[{\"keyStrindex\":1,\"value\":{"
        "\"stringValueStrindex\":2}}]},\"scopeProfiles\":[{\"profiles\":[{\"samples\":[{"
        "\"values\":[\"1\"]}]}]}]}],\"dictionary\":{\"stringTable\":[\"\",\"zone\",\"old\"]}}";
    (void)setenv("OTEL_RESOURCE_ATTRIBUTES", "zone=new,team=blue", 1);
    struct rig *r = rig_new(&br_resource_detection_processor, "{}");
    for (int i = 0; i < 2; i++) /* the second round uses the result of the first one */
        assert_string_equal(rig_run(r, BR_TRACES, SPANS(S("a", "b") "," S("zone", "old"))),
                            SPANS(S("a", "b") "," S("zone", "new") "," S("team", "blue")));
    assert_string_equal(rig_run(r, BR_TRACES, SPANS(S("zone", "old"))),
                        SPANS(S("zone", "new") "," S("team", "blue")));
    assert_string_equal(
        rig_run(r, BR_TRACES,
                "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"a\"}]}]}]}"),
        SPANS(S("zone", "new") "," S("team", "blue")));
    assert_non_null(
        strstr(rig_run(r, BR_PROFILES, profile), "[" S("zone", "new") "," S("team", "blue") "]"));
    rig_free(r);
    r = rig_new(&br_resource_detection_processor, "override: false");
    assert_string_equal(rig_run(r, BR_TRACES, SPANS(S("zone", "old"))),
                        SPANS(S("zone", "old") "," S("team", "blue")));
    rig_free(r);
    (void)unsetenv("OTEL_RESOURCE_ATTRIBUTES");
    r = rig_new(&br_resource_detection_processor, "{}"); /* nothing is detected */
    assert_string_equal(rig_run(r, BR_TRACES, SPANS(S("zone", "old"))), SPANS(S("zone", "old")));
    rig_free(r);
}

static void no_memory(void **state)
{
    (void)state;
    (void)setenv("OTEL_RESOURCE_ATTRIBUTES", "zone=new", 1);
    const struct rig_shortage shortage = {.component = &br_resource_detection_processor,
                                          .yaml = "{}",
                                          .signal = BR_TRACES,
                                          .json = SPANS(S("zone", "old")),
                                          .expected = SPANS(S("zone", "new"))};
    assert_true(rig_run_short(&shortage) > 0);
}

/* --- Config ----------------------------------------------------------------------------------- */

static void configs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"detectors: [env, heroku]",
         "the detector \"heroku\" is not supported; supported are env, system, docker"},
        {"detectors: [env, env]", "the detector \"env\" is listed twice"},
        {"detectors: []", "detectors: must name at least one detector"},
        {"timeout: 0s", "timeout: must be more than 0"},
        {"system: {hostname_sources: [nis]}", "must be dns, os, cname or lookup, got \"nis\""},
        {"{detectors: [ec2], ec2: {tags: [a]}}", "ec2::tags requires tags_from_imds: true"},
        {"{detectors: [ec2], ec2: {tags: ['('], tags_from_imds: true}}",
         "is not a valid regular expression"},
        {"{detectors: [gcp], gcp: {labels: [a]}}", "gcp::labels is not supported"},
        {"{detectors: [eks], eks: {resource_attributes: {k8s.cluster.name: {enabled: true}}}}",
         "k8s.cluster.name is not supported"},
        {"k8snode: {auth_type: kubeConfig}", "must be one of none, serviceAccount"},
        {"heroku: {}", "Braid does not have this detector"},
        {"system: {resource_attributes: {host.nam: {enabled: true}}}", "unknown key \"host.nam\""},
    };
    rig_expect_errors_in(&br_resource_detection_processor, cases, BR_COUNT(cases));
    assert_string_equal(rig_errors(&br_resource_detection_processor,
                                   "{detectors: [env], ec2: {tags: ['(']}, gcp: {labels: [a]}}"),
                        "");
}

SUITE(resource_detection)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(environment, without_variables),
        cmocka_unit_test_setup(the_host, without_variables),
        cmocka_unit_test_setup(detectors_are_merged, without_variables),
        cmocka_unit_test_setup(amazon_instances, without_variables),
        cmocka_unit_test_setup(amazon_tasks, without_variables),
        cmocka_unit_test_setup(azure_machines, without_variables),
        cmocka_unit_test_setup(google_cloud, without_variables),
        cmocka_unit_test_setup(docker_hosts, without_variables),
        cmocka_unit_test_setup(kubernetes_nodes, without_variables),
        cmocka_unit_test_setup(amazon_clusters, without_variables),
        cmocka_unit_test_setup(failed_detections_are_repeated, without_variables),
        cmocka_unit_test_setup(detections_are_refreshed, without_variables),
        cmocka_unit_test_setup(slow_lookups_have_a_time_limit, without_variables),
        cmocka_unit_test_setup(resources, without_variables),
        cmocka_unit_test_setup(no_memory, without_variables),
        cmocka_unit_test_setup(configs, without_variables),
    };
    return RUN(tests, NULL, NULL);
}
