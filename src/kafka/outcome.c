/* SPDX-License-Identifier: Apache-2.0 */
#include "kafka/kafka.h"

/* Returns the status of a permanent error, which a retry would repeat. Returns BR_STATUS_OK for
 * other errors. */
static enum br_status outcome_permanent(rd_kafka_resp_err_t error)
{
    switch (error) {
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
    case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
        return BR_STATUS_RESOURCE_EXHAUSTED;
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
    case RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP:
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT:
    case RD_KAFKA_RESP_ERR__INVALID_ARG:
        return BR_STATUS_INVALID_ARGUMENT;
    default:
        return BR_STATUS_OK;
    }
}

static enum br_status outcome_temporary(rd_kafka_resp_err_t error)
{
    switch (error) {
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
        return BR_STATUS_PERMISSION_DENIED;
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
        return BR_STATUS_UNAUTHENTICATED;
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
        return BR_STATUS_NOT_FOUND;
    default:
        return BR_STATUS_UNAVAILABLE;
    }
}

struct br_outcome br_kafka_outcome(rd_kafka_resp_err_t error, const char *reason)
{
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        return BR_OUTCOME_DONE;
    const char *name = rd_kafka_err2name(error), *text = rd_kafka_err2str(error);
    enum br_status permanent = outcome_permanent(error);
    if (permanent != BR_STATUS_OK)
        return br_outcome_reject(permanent, "%s: %s", name, text);
    bool explain = reason[0] && error == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT;
    return br_outcome_retry(outcome_temporary(error), 0, "%s: %s", name, explain ? reason : text);
}
