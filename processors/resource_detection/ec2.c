/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The detector ec2: instances of EC2, by the Instance Metadata Service. A session token is used
 * (version 2 of the service) if the service issues one.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "processors/resource_detection/detectors.h"

#define META "/latest/meta-data/"
#define TAGS META "tags/instance"

/* Data that the detector needs for its later requests. */
struct ec2_data {
    const char *token; /* session token; NULL: the service does not issue tokens */
    const char *tags;  /* names of the tags that are not read yet, one per line */
    const char *tag;   /* name of the tag whose value was requested */
};

static void ec2_ask(struct detect_run *run, unsigned step, const char *path)
{
    const struct ec2_data *data = run->data;
    const struct br_header header = {"x-aws-ec2-metadata-token", data->token};
    run->step = step;
    detect_request(run, 1, NULL, path, &header, data->token ? 1 : 0);
}

void detect_ec2_ask(struct detect_run *run)
{
    static const struct br_header lifetime = {"x-aws-ec2-metadata-token-ttl-seconds", "300"};
    const char *disabled = detect_variable("AWS_EC2_METADATA_DISABLED"),
               *origin = detect_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    run->data = br_arena_calloc(&run->arena, 1, sizeof(struct ec2_data));
    if (!run->data) {
        detect_fail(run, "out of memory");
    } else if (disabled && strcasecmp(disabled, "true") == 0) {
        const struct detect_answer none = {.error = "AWS_EC2_METADATA_DISABLED is set", .body = ""};
        run->step = DETECT_EC2_ID;
        run->detector->on_answer(run, &none);
    } else if (detect_connect(run, 1, origin ? origin : "http://169.254.169.254", NULL)) {
        run->step = DETECT_EC2_TOKEN;
        detect_request(run, 1, "PUT", "/latest/api/token", &lifetime, 1);
    }
}

/* Reads the instance identity document. Returns false if it is not JSON. */
static bool ec2_read_document(struct detect_run *run, const struct detect_answer *answer)
{
    static const char *const names[][2] = {
        {"region", "cloud.region"},   {"accountId", "cloud.account.id"},
        {"instanceId", "host.id"},    {"availabilityZone", "cloud.availability_zone"},
        {"imageId", "host.image.id"}, {"instanceType", "host.type"},
    };
    json_t *root = json_loadb(answer->body, answer->len, 0, NULL);
    bool valid = json_is_object(root);
    for (size_t i = 0; valid && i < sizeof names / sizeof *names; i++)
        detect_text(run, names[i][1], json_string_value(json_object_get(root, names[i][0])));
    json_decref(root);
    return valid;
}

static void ec2_on_document(struct detect_run *run, const struct detect_answer *answer)
{
    if (answer->error && answer->status == 404)
        /* other clouds implement a part of this service, but not this document */
        detect_missing(run, "%s", answer->error);
    else if (answer->error)
        detect_fail(run, "%s", answer->error);
    else if (!ec2_read_document(run, answer))
        detect_fail(run, "the instance identity document is not JSON");
    else
        ec2_ask(run, DETECT_EC2_HOST_NAME, META "hostname");
}

static void ec2_ask_next_tag(struct detect_run *run)
{
    struct ec2_data *data = run->data;
    while (*data->tags) {
        size_t len = strcspn(data->tags, "\r\n");
        char *name = br_arena_strndup(&run->arena, data->tags, len);
        data->tags += len + strspn(data->tags + len, "\r\n");
        if (!name || !*name || !detect_matches(&run->section->tags, name))
            continue;
        char *path = br_arena_printf(&run->arena, TAGS "/%s", name);
        data->tag = name;
        ec2_ask(run, DETECT_EC2_TAG, path ? path : TAGS);
        return;
    }
    detect_end(run);
}

static void ec2_on_host_name(struct detect_run *run, const struct detect_answer *answer)
{
    if (answer->error && detect_must_exist(run)) {
        detect_fail(run, "%s", answer->error);
        return;
    }
    if (!answer->error)
        detect_text(run, "host.name", answer->body);
    if (run->section->tags.count)
        ec2_ask(run, DETECT_EC2_TAGS, TAGS);
    else
        detect_end(run);
}

void detect_ec2_answer(struct detect_run *run, const struct detect_answer *answer)
{
    struct ec2_data *data = run->data;
    switch (run->step) {
    case DETECT_EC2_TOKEN:
        data->token = answer->error || !answer->len ? NULL : answer->body;
        ec2_ask(run, DETECT_EC2_ID, META "instance-id");
        break;
    case DETECT_EC2_ID:
        if (answer->error)
            detect_missing(run, "%s", answer->error);
        else
            ec2_ask(run, DETECT_EC2_DOCUMENT, "/latest/dynamic/instance-identity/document");
        break;
    case DETECT_EC2_DOCUMENT:
        ec2_on_document(run, answer);
        break;
    case DETECT_EC2_HOST_NAME:
        ec2_on_host_name(run, answer);
        break;
    case DETECT_EC2_TAGS:
        data->tags = answer->error ? "" : answer->body;
        ec2_ask_next_tag(run);
        break;
    default:
        if (!answer->error)
            detect_any(run, "ec2.tag.", data->tag, answer->body);
        ec2_ask_next_tag(run);
        break;
    }
}

static void ec2_begin(struct detect_run *run)
{
    detect_text(run, "cloud.provider", "aws");
    detect_text(run, "cloud.platform", "aws_ec2");
    detect_ec2_ask(run);
}

const struct detector detect_ec2 = {.begin = ec2_begin, .on_answer = detect_ec2_answer};
