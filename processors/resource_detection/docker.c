/* SPDX-License-Identifier: Apache-2.0 */
/* The detector docker: the host on which Docker's daemon runs, and the container of this process.
 * The requests are those of the Docker Engine API. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "net/machine.h"
#include "processors/resource_detection/detectors.h"

enum { ASK_INFO, ASK_CONTAINER };

static void docker_ask(struct detect_run *run, unsigned step, const char *path)
{
    run->step = step;
    detect_request(run, 0, NULL, path, NULL, 0);
}

static void docker_begin(struct detect_run *run)
{
    const char *address = detect_variable("DOCKER_HOST");
    char origin[320];
    if (!address)
        address = "unix:///var/run/docker.sock";
    bool tcp = br_text_starts(address, "tcp://");
    (void)snprintf(origin, sizeof origin, "%s%s", tcp ? "http://" : "",
                   tcp ? address + strlen("tcp://") : address);
    if (detect_connect(run, 0, origin, NULL))
        docker_ask(run, ASK_INFO, "/info");
}

static void docker_ask_container(struct detect_run *run)
{
    char name[BR_MACHINE_NAME_SIZE], path[BR_MACHINE_NAME_SIZE + 32];
    if ((!detect_wants(run, "container.name") && !detect_wants(run, "container.image.name")) ||
        !br_machine_name(name)) {
        detect_end(run);
        return;
    }
    (void)snprintf(path, sizeof path, "/containers/%s/json", name);
    docker_ask(run, ASK_CONTAINER, path);
}

static void docker_on_answer(struct detect_run *run, const struct detect_answer *answer)
{
    json_t *root = answer->error ? NULL : json_loadb(answer->body, answer->len, 0, NULL);
    if (!json_is_object(root)) {
        detect_missing(run, "%s", answer->error ? answer->error : "the answer is not JSON");
    } else if (run->step == ASK_INFO) {
        detect_text(run, "host.name", json_string_value(json_object_get(root, "Name")));
        detect_text(run, "os.type", json_string_value(json_object_get(root, "OSType")));
        docker_ask_container(run);
    } else {
        detect_text(run, "container.name", json_string_value(json_object_get(root, "Name")));
        detect_text(run, "container.image.name", json_string_value(json_object_get(root, "Image")));
        detect_end(run);
    }
    json_decref(root);
}

const struct detector detect_docker = {.begin = docker_begin, .on_answer = docker_on_answer};
