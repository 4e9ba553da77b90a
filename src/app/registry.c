/* SPDX-License-Identifier: Apache-2.0 */
#include "app/registry.h"

extern const struct br_component br_adaptive_extension;
extern const struct br_component br_attributes_processor;
extern const struct br_component br_batch_processor;
extern const struct br_component br_control_extension;
extern const struct br_component br_debug_exporter;
extern const struct br_component br_file_exporter;
extern const struct br_component br_filter_processor;
extern const struct br_component br_health_check_extension;
extern const struct br_component br_join_processor;
extern const struct br_component br_memory_limiter_processor;
extern const struct br_component br_nop_exporter;
extern const struct br_component br_nop_receiver;
extern const struct br_component br_otlp_exporter;
extern const struct br_component br_otlp_receiver;
extern const struct br_component br_otlphttp_exporter;
extern const struct br_component br_pprof_receiver;
extern const struct br_component br_probabilistic_sampler_processor;
extern const struct br_component br_profile_limits_processor;
extern const struct br_component br_pyroscope_exporter;
extern const struct br_component br_pyroscope_receiver;
extern const struct br_component br_query_extension;
extern const struct br_component br_queue_batch_processor;
extern const struct br_component br_redaction_processor;
extern const struct br_component br_resource_processor;
extern const struct br_component br_store_exporter;

const struct br_component *const br_components[] = {
    &br_nop_receiver,
    &br_otlp_receiver,
    &br_pprof_receiver,
    &br_pyroscope_receiver,
    &br_attributes_processor,
    &br_batch_processor,
    &br_filter_processor,
    &br_join_processor,
    &br_memory_limiter_processor,
    &br_probabilistic_sampler_processor,
    &br_profile_limits_processor,
    &br_queue_batch_processor,
    &br_redaction_processor,
    &br_resource_processor,
    &br_debug_exporter,
    &br_file_exporter,
    &br_nop_exporter,
    &br_otlp_exporter,
    &br_otlphttp_exporter,
    &br_pyroscope_exporter,
    &br_store_exporter,
    &br_adaptive_extension,
    &br_control_extension,
    &br_health_check_extension,
    &br_query_extension,
    NULL,
};
