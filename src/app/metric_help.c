/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics that also exist in the Collector have the Collector's names. */
#include "app/telemetry.h"

#include <stdlib.h>
#include <string.h>

struct row {
    const char *name, *text;
};

/* The help texts of all metrics, sorted by name. */
static const struct row rows[] = {
    {"braid_adaptive_cpu_percentage",
     "CPU time used, in percent of the CPU time available to the process."},
    {"braid_adaptive_step", "Step of load shedding, from 0 (none) to 4 (all requests)."},
    {"braid_attributes_gave_up",
     "Number of times that a regular expression exceeded its time limit on a value. `include` and "
     "`exclude` "
     "then do not match, `extract` finds nothing, and `delete` and `hash` apply."},
    {"braid_auth_rejected",
     "Requests that authentication rejected, by listener and reason: missing or invalid "
     "credentials, or too many earlier failures."},
    {"braid_config_last_reload_success_timestamp_seconds",
     "Unix time of the last successful reload of the configuration, or of the start."},
    {"braid_config_last_reload_successful", "1 if the last reload of the configuration succeeded, "
                                            "or if there was none; 0 if it failed and "
                                            "the previous configuration is still in use."},
    {"braid_config_reloads", "Reloads of the configuration, by result: success or failure."},
    {"braid_config_watched", "1 if the files of the configuration are watched for changes."},
    {"braid_control_throttled",
     "Requests without the token that were answered with 429 because there were too many of them."},
    {"braid_control_unauthorized", "Requests without the token, answered with 401 or 429."},
    {"braid_exporter_dropped",
     "Records (spans or samples) that the exporter received and dropped, by reason."},
    {"braid_exporter_held",
     "Records that the exporter received and has not yet sent, rejected, dropped or stored."},
    {"braid_exporter_received", "Records that the exporter received. A record that is rejected and "
                                "received again counts twice."},
    {"braid_exporter_rejected", "Records that the exporter returned to their sender, because the "
                                "destination rejected them or a queue was full."},
    {"braid_exporter_restored",
     "Records taken from the exporter's durable queue to be delivered. A record counts again after "
     "each start."},
    {"braid_exporter_sent", "Records that the destination accepted."},
    {"braid_exporter_stored", "Records written to the exporter's durable queue, or left in it at "
                              "the shutdown."},
    {"braid_failover_switches",
     "Number of times that the connector changed its current level, by signal."},
    {"braid_fanout_dropped",
     "Records dropped for a slow destination after another one accepted them."},
    {"braid_fanout_held", "Records queued for a slow destination after another one accepted them."},
    {"braid_filter_failed", "Number of times that a condition failed and counted as false."},
    {"braid_filter_gave_up",
     "Number of times that a regular expression exceeded its time limit on a value. "
     "The value then does not match."},
    {"braid_join_folded_values", "Sum of the values of samples whose span links were removed, by "
                                 "profile type, in the unit of the type."},
    {"braid_join_hold_full_items", "Records that did not wait for their span or samples because "
                                   "held requests already used hold_max_bytes."},
    {"braid_join_other_values",
     "Values of added attributes that were replaced with `_other` because of max_values."},
    {"braid_join_samples_ambiguous", "Samples that refer to several spans and were left unlinked."},
    {"braid_join_samples_folded", "Samples whose span links were removed, by profile type."},
    {"braid_join_samples_inferred",
     "Samples without a span id that were joined by thread and time."},
    {"braid_join_samples_joined", "Samples whose span was in the join table when they arrived."},
    {"braid_join_samples_joined_late",
     "Samples that were joined to a span that arrived after them."},
    {"braid_join_samples_too_late", "Samples that arrived more than `window` after their span."},
    {"braid_join_samples_unknown_span", "Samples whose span did not arrive within `window`."},
    {"braid_join_samples_unlinked", "Samples without a span id."},
    {"braid_join_services_cut", "Times that a service could not be recorded as profiled because "
                                "too many services are recorded."},
    {"braid_join_span_allocated_bytes",
     "Bytes allocated in spans of this service and name, according to samples."},
    {"braid_join_span_cpu_seconds",
     "CPU seconds spent in spans of this service and name, according to samples."},
    {"braid_join_span_samples", "Samples of spans of this service and name."},
    {"braid_join_spans_entered", "Spans added to the join table."},
    {"braid_join_spans_evicted", "Spans removed from the join table before the end of their window "
                                 "because the table was full."},
    {"braid_join_spans_marked", "Spans to which the join added attributes."},
    {"braid_join_splits_cut",
     "Samples of several spans that were not split because the parts would be too large."},
    {"braid_join_steps_cut", "Records that were joined approximately because exact processing of "
                             "their request takes too many steps."},
    {"braid_join_table_bytes", "Bytes of memory in use by the join table."},
    {"braid_join_table_oldest_seconds", "Age of the oldest span in the join table, in seconds."},
    {"braid_join_table_pending_spans",
     "Entries in the join table for spans that samples refer to and that have not arrived."},
    {"braid_join_table_spans", "Spans in the join table."},
    {"braid_join_trace_spans_cut",
     "Searches that did not examine all spans of a trace and service, or of a thread."},
    {"braid_k8s_attributes_ignored_objects",
     "Objects of the Kubernetes API that were ignored because the processor's table was full, by "
     "resource."},
    {"braid_k8s_attributes_objects",
     "Objects of the Kubernetes API that the processor knows, by resource (`pods`, ...)."},
    {"braid_k8s_attributes_resources",
     "Resources for which a pod was found (`pod=\"found\"`) or not."},
    {"braid_ledger_dropped", "Records (spans or samples) that were dropped, by reason."},
    {"braid_ledger_empty_requests", "Requests that contain no records."},
    {"braid_ledger_held", "Records received and not yet sent, rejected, dropped or stored."},
    {"braid_ledger_received", "Records received."},
    {"braid_ledger_rejected", "Records reported to their sender as rejected."},
    {"braid_ledger_restored", "Records taken from durable queues to be delivered."},
    {"braid_ledger_sent", "Records that their destinations accepted."},
    {"braid_ledger_stored", "Records written to durable queues, or left in them at the shutdown."},
    {"braid_ledger_unanswered", "Records of requests that have not been answered yet."},
    {"braid_log_dropped_lines", "Log lines dropped because stderr was read too slowly."},
    {"braid_memory_bytes", "Bytes of memory in use, by category."},
    {"braid_memory_limit_bytes",
     "Memory limits in bytes: new requests are rejected above `soft`, connections are not read "
     "above `intake`, allocations fail above `hard`."},
    {"braid_memory_trims",
     "Number of times that an idle worker returned freed memory to the system."},
    {"braid_oauth_failures", "Failed requests for an OAuth 2 token."},
    {"braid_oauth_tokens", "OAuth 2 tokens that were received."},
    {"braid_profile_limits_changed", "Changes because of limits: shortened stacks, attributes "
                                     "replaced with `[other]`, and removed original payloads."},
    {"braid_profile_limits_splits", "Requests that were split because of limits."},
    {"braid_pyroscope_labels_left_out", "Labels omitted from series or samples because of limits."},
    {"braid_query_cut",
     "Responses that are incomplete because a query reached a limit or could not read all data."},
    {"braid_query_cut_off", "Responses aborted because their clients read too slowly while other "
                            "requests needed the memory."},
    {"braid_query_refused", "Requests that were answered with an error."},
    {"braid_query_requests", "Requests to the query API and for the web page."},
    {"braid_receiver_corrected_times",
     "Profiles whose times were missing or before 1971 and were corrected."},
    {"braid_receiver_dropped_packets", "UDP packets that were dropped, by reason."},
    {"braid_receiver_kafka_messages", "Messages read from Kafka topics, by result."},
    {"braid_receiver_pprof_files", "Files of the watched directory that were read, by result."},
    {"braid_receiver_pprof_scrapes", "Scrapes of profiles, by result."},
    {"braid_receiver_pprof_strays", "References to missing strings in pprof profiles, and entries "
                                    "whose id is used again by a later entry."},
    {"braid_receiver_repaired_strings",
     "Strings with invalid UTF-8 that were repaired. A JSON request counts as one."},
    {"braid_redaction_gave_up", "Number of times that a regular expression exceeded its time "
                                "limit. The whole value was then masked."},
    {"braid_redaction_masked", "Values, names, functions and paths that were masked."},
    {"braid_redaction_removed_attributes", "Attributes removed because their key is not allowed."},
    {"braid_resource_gave_up",
     "Number of times that a regular expression exceeded its time limit. `delete` "
     "and `hash` then apply, and `extract` finds nothing."},
    {"braid_routing_gave_up",
     "Number of times that matching a pattern took too long. The condition then counts as not "
     "true."},
    {"braid_server_connections", "Open connections of a server, by worker."},
    {"braid_server_connections_closed", "Connections that a server closed, by reason."},
    {"braid_server_reads_paused", "Times that reading from a connection was paused because "
                                  "incomplete requests used too much memory."},
    {"braid_shed_requests",
     "Requests and scrapes that were dropped or rejected because CPU time or memory was short."},
    {"braid_span_gave_up",
     "Number of times that a regular expression exceeded its time limit on the name or a value of "
     "a span, and therefore did not match."},
    {"braid_span_metrics_uncounted",
     "Spans that were not counted, because their resource has no service.name or memory was "
     "short."},
    {"braid_storage_corrupt", "Damaged parts of the storage files that were skipped."},
    {"braid_storage_dropped_records",
     "Spans and samples dropped because the storage had reached max_size (overflow: drop_oldest)."},
    {"braid_storage_errors", "Writes to the storage and syncs that failed."},
    {"braid_storage_failing",
     "1 if the last write or sync of the storage failed, and requests are therefore refused."},
    {"braid_storage_restored_requests",
     "Requests that were in the storage when the process started."},
    {"braid_storage_segments", "Files (log segments) of the storage."},
    {"braid_storage_size_bytes", "Size of all files of the storage in bytes."},
    {"braid_storage_syncs", "Syncs of the storage that succeeded."},
    {"braid_store_bytes", "Bytes of disk space in use by the store."},
    {"braid_store_commits", "Transactions committed by the store."},
    {"braid_store_damaged_partitions", "Damaged partitions of the store. They are not read, and "
                                       "remain until the retention removes them."},
    {"braid_store_partitions", "Partitions of the store."},
    {"braid_store_samples", "Samples in the store."},
    {"braid_store_shortened_items", "Profile requests that were stored without some labels, names "
                                    "or frames because they contain too many of them."},
    {"braid_store_spans", "Spans in the store."},
    {"braid_store_unread_partitions", "Partitions that could not be read, or that do not belong to "
                                      "the store. Reading them is tried again."},
    {"braid_tail_sampling_early_decisions",
     "Traces that were decided before they were due, because a limit was reached or the process "
     "was shutting down."},
    {"braid_tail_sampling_gave_up", "Number of times that a regular expression exceeded its time "
                                    "limit on a value, which then does not match."},
    {"braid_tail_sampling_held_bytes",
     "Bytes of the requests that wait for the decisions about their traces."},
    {"braid_tail_sampling_samples_folded",
     "Samples that lost their links, because their trace is not sampled."},
    {"braid_transform_failed",
     "Number of times that a statement or condition failed and the next one was run."},
    {"otelcol_connector_consumed_items",
     "Records that the connector received from the pipelines before it, by signal."},
    {"otelcol_connector_produced_items",
     "Records that the connector sent to the pipelines after it, by signal. A record that is sent "
     "to several pipelines counts once."},
    {"otelcol_exporter_enqueue_failed_profile_samples",
     "Profile samples that could not be added to the sending queue."},
    {"otelcol_exporter_enqueue_failed_spans",
     "Spans that could not be added to the sending queue."},
    {"otelcol_exporter_enqueue_size",
     "Records in each request that was added to the sending queue."},
    {"otelcol_exporter_enqueue_size_bytes",
     "Bytes in each request that was added to the sending queue."},
    {"otelcol_exporter_in_flight_requests",
     "Requests that are being exported, including those that wait for a retry."},
    {"otelcol_exporter_queue_batch_send_size", "Records in each batch that was sent."},
    {"otelcol_exporter_queue_batch_send_size_bytes", "Bytes in each batch that was sent."},
    {"otelcol_exporter_queue_capacity",
     "Capacity of the sending queue in units of its sizer, shared by both signals."},
    {"otelcol_exporter_queue_size", "Current size of the sending queue in units of its sizer."},
    {"otelcol_exporter_send_failed_profile_samples",
     "Profile samples that could not be sent to the destination."},
    {"otelcol_exporter_send_failed_spans", "Spans that could not be sent to the destination."},
    {"otelcol_exporter_sent_profile_samples", "Profile samples sent to the destination."},
    {"otelcol_exporter_sent_spans", "Spans sent to the destination."},
    {"otelcol_loadbalancer_backend_latency",
     "Time from a request of load_balancing to the response of the backend, in milliseconds."},
    {"otelcol_loadbalancer_backend_outcome",
     "Requests of load_balancing to each backend, by success."},
    {"otelcol_loadbalancer_num_backend_updates", "Changes of the list of backends."},
    {"otelcol_loadbalancer_num_backends", "Backends in the list."},
    {"otelcol_loadbalancer_num_resolutions", "Lookups of the list of backends, by success."},
    {"otelcol_process_cpu_seconds", "User and system CPU time of the process, in seconds."},
    {"otelcol_process_memory_rss", "Physical memory of the process (resident set size), in bytes."},
    {"otelcol_process_memory_rss_bytes",
     "Physical memory of the process (resident set size), in bytes."},
    {"otelcol_process_uptime", "Seconds since the start of the process."},
    {"otelcol_process_uptime_seconds", "Seconds since the start of the process."},
    {"otelcol_processor_batch_batch_send_size",
     "Histogram of the number of records in each batch."},
    {"otelcol_processor_batch_batch_send_size_bytes",
     "Histogram of the number of bytes in each batch."},
    {"otelcol_processor_batch_batch_size_trigger_send",
     "Batches that were sent because they reached the size limit."},
    {"otelcol_processor_batch_metadata_cardinality",
     "Distinct combinations of metadata values that have a batch."},
    {"otelcol_processor_batch_timeout_trigger_send",
     "Batches that were sent because of the timeout."},
    {"otelcol_processor_groupbyattrs_num_grouped_samples",
     "Samples from which attributes were moved to their resource."},
    {"otelcol_processor_groupbyattrs_num_grouped_spans",
     "Spans from which attributes were moved to their resource."},
    {"otelcol_processor_groupbyattrs_num_non_grouped_samples",
     "Samples without an attribute that is moved to the resource."},
    {"otelcol_processor_groupbyattrs_num_non_grouped_spans",
     "Spans without an attribute that is moved to the resource."},
    {"otelcol_processor_incoming_items", "Records that the processor received, by signal."},
    {"otelcol_processor_memory_limiter_accepted_profile_samples",
     "Profile samples that the memory limiter passed on."},
    {"otelcol_processor_memory_limiter_accepted_spans", "Spans that the memory limiter passed on."},
    {"otelcol_processor_memory_limiter_refused_profile_samples",
     "Profile samples that the memory limiter rejected because of its hard limit."},
    {"otelcol_processor_memory_limiter_refused_spans",
     "Spans that the memory limiter rejected because of its hard limit."},
    {"otelcol_processor_outgoing_items", "Records that the processor passed on, by signal."},
    {"otelcol_processor_probabilistic_sampler_count_profile_samples_sampled",
     "Profile samples that were kept (`sampled=\"true\"`) or dropped."},
    {"otelcol_processor_probabilistic_sampler_count_traces_sampled",
     "Spans that were kept (`sampled=\"true\"`) or dropped. Spans are counted, not traces."},
    {"otelcol_processor_queuebatch_batch_send_size",
     "Histogram of the number of records in each batch."},
    {"otelcol_processor_queuebatch_batch_send_size_bytes",
     "Histogram of the number of bytes in each batch."},
    {"otelcol_processor_tail_sampling_count_traces_sampled",
     "Decisions of each policy about traces, by `decision`: `sampled`, `not_sampled`, `dropped`."},
    {"otelcol_processor_tail_sampling_early_releases_from_cache_decision",
     "Spans that arrived after the decision about their trace."},
    {"otelcol_processor_tail_sampling_global_count_traces_sampled",
     "Decisions about traces, by `decision`: `sampled`, `not_sampled`, `dropped`."},
    {"otelcol_processor_tail_sampling_new_trace_id_received", "Traces whose first span arrived."},
    {"otelcol_processor_tail_sampling_sampling_traces_on_memory",
     "Traces that wait for a decision."},
    {"otelcol_processor_tail_sampling_traces_dropped_too_large",
     "Traces that are not sampled because they exceeded `maximum_trace_size_bytes`."},
    {"otelcol_receiver_accepted_profile_samples", "Profile samples that the pipeline accepted."},
    {"otelcol_receiver_accepted_spans", "Spans that the pipeline accepted."},
    {"otelcol_receiver_failed_profile_samples",
     "Profile samples that failed because of an internal error or were rejected permanently. A "
     "request that could not be read counts as one."},
    {"otelcol_receiver_failed_spans",
     "Spans that failed because of an internal error or were rejected permanently. A request that "
     "could not be read counts as one."},
    {"otelcol_receiver_refused_profile_samples",
     "Profile samples that the pipeline did not accept and that can be sent again. A request that "
     "was rejected unread counts as one."},
    {"otelcol_receiver_refused_spans",
     "Spans that the pipeline did not accept and that can be sent again. A request that was "
     "rejected unread counts as one."},
};

static int metric_help_compare(const void *name, const void *row)
{
    return strcmp(name, ((const struct row *)row)->name);
}

const char *br_metric_help(const char *name)
{
    const struct row *row =
        bsearch(name, rows, sizeof rows / sizeof rows[0], sizeof rows[0], metric_help_compare);
    return row ? row->text : NULL;
}

bool br_metric_is_detailed(const char *name)
{
    static const char *const detailed[] = {
        "otelcol_exporter_enqueue_size",
        "otelcol_exporter_enqueue_size_bytes",
        "otelcol_exporter_queue_batch_send_size",
        "otelcol_exporter_queue_batch_send_size_bytes",
        "otelcol_processor_batch_batch_send_size_bytes",
        "otelcol_processor_queuebatch_batch_send_size",
        "otelcol_processor_queuebatch_batch_send_size_bytes",
    };
    for (size_t i = 0; i < sizeof detailed / sizeof detailed[0]; i++)
        if (strcmp(detailed[i], name) == 0)
            return true;
    return false;
}
