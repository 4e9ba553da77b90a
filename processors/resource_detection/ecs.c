/* SPDX-License-Identifier: Apache-2.0 */
/* The detector ecs: tasks of ECS, by the task metadata endpoint, version 4 or 3. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "processors/resource_detection/detectors.h"

#define CONTAINERS_MAX 64 /* largest number of containers whose logs are listed */

enum { ASK_TASK, ASK_CONTAINER };

/* Data that the detector needs for its later requests. */
struct ecs_data {
    const char *path; /* path part of ECS_CONTAINER_METADATA_URI_V4 */
    const char *account;
    struct detect_answer task;
};

static void ecs_begin(struct detect_run *run)
{
    const char *url = detect_variable("ECS_CONTAINER_METADATA_URI_V4");
    if (!url)
        url = detect_variable("ECS_CONTAINER_METADATA_URI");
    if (!url) {
        detect_missing(run, "ECS_CONTAINER_METADATA_URI_V4 is not set");
        return;
    }
    const char *authority = strstr(url, "://");
    size_t len = authority ? (size_t)(authority + 3 - url) : 0;
    len += strcspn(url + len, "/");
    struct ecs_data *data = br_arena_calloc(&run->arena, 1, sizeof *data);
    char *origin = br_arena_strndup(&run->arena, url, len);
    char *path = br_arena_printf(&run->arena, "%s/task", url + len);
    run->data = data;
    if (!data || !origin || !path) {
        detect_fail(run, "out of memory");
        return;
    }
    data->path = url + len;
    run->step = ASK_TASK;
    if (detect_connect(run, 0, origin, NULL))
        detect_request(run, 0, NULL, path, NULL, 0);
}

/* Splits an ARN such as arn:aws:ecs:us-east-1:123:task/cluster/id. Each result is a copy, or "" if
 * the ARN has fewer parts. */
static void ecs_split(struct detect_run *run, const char *arn, const char **ret_region,
                      const char **ret_account, const char **ret_id)
{
    const char *parts[6] = {0}, *p = arn;
    size_t n = 0;
    *ret_region = *ret_account = *ret_id = "";
    for (; n < 6 && p; n++) {
        parts[n] = p;
        p = strchr(p, ':');
        p = p ? p + 1 : NULL;
    }
    if (n < 6)
        return;
    const char *region = br_arena_strndup(&run->arena, parts[3], (size_t)(parts[4] - parts[3] - 1));
    const char *account =
        br_arena_strndup(&run->arena, parts[4], (size_t)(parts[5] - parts[4] - 1));
    const char *slash = strrchr(parts[5], '/');
    const char *id = slash ? slash + 1 : parts[5];
    id = br_arena_strndup(&run->arena, id, strlen(id));
    if (region && account && id) {
        *ret_region = region;
        *ret_account = account;
        *ret_id = id;
    }
}

static const char *ecs_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static void ecs_read_task(struct detect_run *run, const json_t *task)
{
    struct ecs_data *data = run->data;
    const char *region, *id, *cluster = ecs_text(task, "Cluster"),
                             *launch = ecs_text(task, "LaunchType");
    ecs_split(run, ecs_text(task, "TaskARN"), &region, &data->account, &id);
    detect_text(run, "cloud.provider", "aws");
    detect_text(run, "cloud.platform", "aws_ecs");
    detect_text(run, "cloud.region", region);
    detect_text(run, "cloud.account.id", data->account);
    detect_text(run, "cloud.availability_zone", ecs_text(task, "AvailabilityZone"));
    detect_text(run, "aws.ecs.task.arn", ecs_text(task, "TaskARN"));
    detect_text(run, "aws.ecs.task.family", ecs_text(task, "Family"));
    detect_text(run, "aws.ecs.task.revision", ecs_text(task, "Revision"));
    detect_text(run, "aws.ecs.task.id", id);
    if (!strchr(cluster, ':'))
        cluster = br_arena_printf(&run->arena, "arn:aws:ecs:%s:%s:cluster/%s", region,
                                  data->account, cluster);
    detect_text(run, "aws.ecs.cluster.arn", cluster);
    if (strcasecmp(launch, "ec2") == 0)
        detect_text(run, "aws.ecs.launchtype", "ec2");
    if (strcasecmp(launch, "fargate") == 0)
        detect_text(run, "aws.ecs.launchtype", "fargate");
}

/* Sets the log groups and streams of the other running containers. The Collector does so too,
 * because it assumes that it runs as a sidecar. */
static void ecs_read_logs(struct detect_run *run, const json_t *task, const char *own_id)
{
    const struct ecs_data *data = run->data;
    const char *groups[CONTAINERS_MAX], *group_arns[CONTAINERS_MAX], *streams[CONTAINERS_MAX],
        *stream_arns[CONTAINERS_MAX];
    size_t count = 0, i;
    json_t *container;
    json_array_foreach(json_object_get(task, "Containers"), i, container)
    {
        const json_t *log = json_object_get(container, "LogOptions");
        if (strcmp(ecs_text(container, "Type"), "NORMAL") != 0 ||
            strcmp(ecs_text(container, "KnownStatus"), "RUNNING") != 0 ||
            strcmp(ecs_text(container, "LogDriver"), "awslogs") != 0)
            continue;
        if (strcmp(ecs_text(container, "DockerId"), own_id) == 0 || !json_object_size(log) ||
            count == CONTAINERS_MAX)
            continue;
        groups[count] = ecs_text(log, "awslogs-group");
        streams[count] = ecs_text(log, "awslogs-stream");
        group_arns[count] =
            br_arena_printf(&run->arena, "arn:aws:logs:%s:%s:log-group:%s",
                            ecs_text(log, "awslogs-region"), data->account, groups[count]);
        stream_arns[count] = group_arns[count] ? br_arena_printf(&run->arena, "%s:log-stream:%s",
                                                                 group_arns[count], streams[count])
                                               : NULL;
        count += stream_arns[count] != NULL;
    }
    detect_texts(run, "aws.log.group.names", groups, count);
    detect_texts(run, "aws.log.group.arns", group_arns, count);
    detect_texts(run, "aws.log.stream.names", streams, count);
    detect_texts(run, "aws.log.stream.arns", stream_arns, count);
}

static void ecs_on_task(struct detect_run *run, const struct detect_answer *answer)
{
    struct ecs_data *data = run->data;
    json_t *task = answer->error ? NULL : json_loadb(answer->body, answer->len, 0, NULL);
    if (!json_is_object(task)) {
        json_decref(task);
        detect_fail(run, "%s", answer->error ? answer->error : "the task metadata is not JSON");
        return;
    }
    ecs_read_task(run, task);
    json_decref(task);
    data->task = *answer;
    run->step = ASK_CONTAINER;
    detect_request(run, 0, NULL, *data->path ? data->path : "/", NULL, 0);
}

static void ecs_on_container(struct detect_run *run, const struct detect_answer *answer)
{
    struct ecs_data *data = run->data;
    if (answer->error && detect_must_exist(run)) {
        detect_fail(run, "%s", answer->error);
        return;
    }
    json_t *own = answer->error ? NULL : json_loadb(answer->body, answer->len, 0, NULL);
    json_t *task = json_loadb(data->task.body, data->task.len, 0, NULL);
    if (json_is_object(own))
        ecs_read_logs(run, task, ecs_text(own, "DockerId"));
    json_decref(own);
    json_decref(task);
    detect_end(run);
}

static void ecs_on_answer(struct detect_run *run, const struct detect_answer *answer)
{
    if (run->step == ASK_TASK)
        ecs_on_task(run, answer);
    else
        ecs_on_container(run, answer);
}

const struct detector detect_ecs = {.begin = ecs_begin, .on_answer = ecs_on_answer};
