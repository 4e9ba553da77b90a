/* SPDX-License-Identifier: Apache-2.0 */
/* The detectors of the resource_detection processor. */
#pragma once

#include "processors/resource_detection/detection.h"

extern const struct detector detect_env, detect_system, detect_docker, detect_node, detect_gcp,
    detect_ec2, detect_ecs, detect_eks, detect_azure;

/* --- The metadata service of EC2 (ec2.c) ------------------------------------------------------ */

/* The requests to the metadata service. The detectors ec2 and eks use values of `step` from
 * DETECT_EC2_TOKEN on for them. */
enum {
    DETECT_EC2_TOKEN = 16,
    DETECT_EC2_ID,
    DETECT_EC2_DOCUMENT,
    DETECT_EC2_HOST_NAME,
    DETECT_EC2_TAGS,
    DETECT_EC2_TAG,
};

/* Asks the metadata service of EC2, as client 1, for the instance. The answers are passed to
 * detect_ec2_answer, which ends the run. */
void detect_ec2_ask(struct detect_run *run);
void detect_ec2_answer(struct detect_run *run, const struct detect_answer *answer);

/* --- The Kubernetes API (kubernetes.c) -------------------------------------------------------- */

/* Sends a request to the Kubernetes API, as client 0. Calls detect_fail if that is impossible. */
void detect_kubernetes_get(struct detect_run *run, const char *path);
