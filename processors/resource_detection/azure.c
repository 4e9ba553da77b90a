/* SPDX-License-Identifier: Apache-2.0 */
/* The detector azure: virtual machines, by Azure's Instance Metadata Service. */
#include <jansson.h>
#include <string.h>

#include "processors/resource_detection/detectors.h"

static void azure_begin(struct detect_run *run)
{
    static const struct br_header header = {"metadata", "true"};
    if (detect_connect(run, 0, run->section->endpoint, NULL))
        detect_request(run, 0, NULL,
                       "/metadata/instance/compute?api-version=2020-09-01&format=json", &header, 1);
}

/* Returns a text of the answer. The service and the Collector spell the keys with different
 * capitals, so case is ignored. */
static const char *azure_text(json_t *root, const char *name)
{
    const char *key;
    json_t *value;
    json_object_foreach(root, key,
                        value) if (strcasecmp(key, name) == 0) return json_string_value(value);
    return NULL;
}

static void azure_read_tags(struct detect_run *run, json_t *tags)
{
    size_t i;
    json_t *tag;
    json_array_foreach(tags, i, tag)
    {
        const char *name = json_string_value(json_object_get(tag, "name")),
                   *value = json_string_value(json_object_get(tag, "value"));
        if (name && value && detect_matches(&run->section->tags, name))
            detect_any(run, "azure.tag.", name, value);
    }
}

static void azure_on_answer(struct detect_run *run, const struct detect_answer *answer)
{
    static const char *const names[][2] = {
        {"location", "cloud.region"},
        {"vmId", "host.id"},
        {"subscriptionId", "cloud.account.id"},
        {"zone", "cloud.availability_zone"},
        {"name", "azure.vm.name"},
        {"vmSize", "azure.vm.size"},
        {"vmScaleSetName", "azure.vm.scaleset.name"},
        {"resourceGroupName", "azure.resourcegroup.name"},
    };
    json_t *root = answer->error ? NULL : json_loadb(answer->body, answer->len, 0, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        detect_missing(run, "%s", answer->error ? answer->error : "the answer is not JSON");
        return;
    }
    const char *computer = azure_text(json_object_get(root, "osProfile"), "computerName");
    detect_text(run, "cloud.provider", "azure");
    detect_text(run, "cloud.platform", "azure.vm");
    detect_text(run, "host.name", computer && *computer ? computer : azure_text(root, "name"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        detect_text(run, names[i][1], azure_text(root, names[i][0]));
    azure_read_tags(run, json_object_get(root, "tagsList"));
    json_decref(root);
    detect_end(run);
}

const struct detector detect_azure = {.begin = azure_begin, .on_answer = azure_on_answer};
