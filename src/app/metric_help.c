/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics that the Collector has too are described as in the metadata.yaml of its
 * exporterhelper, receiverhelper, processorhelper, batchprocessor and service. Differences are
 * added. */
#include "app/metric_help.h"

#include <stdlib.h>
#include <string.h>

struct row {
    const char *name, *text;
};

/* Sorted by name. */
static const struct row rows[] = {
    {"braid_adaptive_cpu_percentage",
     "CPU time that the process uses, in per cent of what it may use."},
    {"braid_adaptive_step", "How much is shed: 0 is nothing, 4 everything."},
    {"braid_attributes_gave_up",
     "Patterns that exceeded their time on a value. `include` and `exclude` then do not match, "
     "`extract` finds nothing, `delete` and `hash` apply."},
    {"braid_control_throttled",
     "Requests without the token that were answered with 429, because too many came."},
    {"braid_control_unauthorized",
     "Requests without the token, whether answered with 401 or with 429."},
    {"braid_exporter_dropped",
     "Spans or samples that the exporter received and dropped, by reason."},
    {"braid_exporter_held",
     "Spans or samples that the exporter received and has not yet sent, rejected or dropped."},
    {"braid_exporter_received", "Spans or samples that the exporter received; again if they were "
                                "given back and are sent again."},
    {"braid_exporter_rejected", "Spans or samples that the exporter gave back: the destination "
                                "rejected them, or there was no room."},
    {"braid_exporter_sent", "Spans or samples that the exporter delivered."},
    {"braid_fanout_dropped",
     "Spans or samples dropped for a slow destination after another one accepted them."},
    {"braid_fanout_held",
     "Spans or samples queued for a slow destination after another one accepted them."},
    {"braid_filter_gave_up",
     "Patterns that exceeded their time on a value, which then does not match."},
    {"braid_join_folded_values",
     "Sum of the values of samples whose links were removed, by profile type."},
    {"braid_join_hold_full_items",
     "Spans and samples that did not wait because hold_max_bytes was in use."},
    {"braid_join_other_values",
     "Values of added attributes that were replaced by `_other` because of max_values."},
    {"braid_join_samples_ambiguous", "Samples that name several spans and were left unlinked."},
    {"braid_join_samples_folded", "Samples whose links were removed, by profile type."},
    {"braid_join_samples_inferred",
     "Samples without a span id that were joined by thread and time."},
    {"braid_join_samples_joined", "Samples that found their span on arrival."},
    {"braid_join_samples_joined_late", "Samples joined to a span that arrived after them."},
    {"braid_join_samples_too_late", "Samples that arrived after the window of their span."},
    {"braid_join_samples_unknown_span", "Samples whose span did not arrive within the window."},
    {"braid_join_samples_unlinked", "Samples without a span id."},
    {"braid_join_services_cut",
     "Times that a service could not be noted as profiled because too many are."},
    {"braid_join_span_allocated_bytes",
     "Bytes allocated in spans of this service and name, by the samples."},
    {"braid_join_span_cpu_seconds",
     "CPU time spent in spans of this service and name, by the samples."},
    {"braid_join_span_samples", "Samples taken in spans of this service and name."},
    {"braid_join_spans_entered", "Spans added to the table."},
    {"braid_join_spans_evicted",
     "Spans removed from the table before their window ended because it was full."},
    {"braid_join_spans_marked", "Spans to which attributes were added."},
    {"braid_join_splits_cut",
     "Samples in several spans that were not split because the pieces would be too large."},
    {"braid_join_steps_cut",
     "Samples and spans handled approximately because their request took too many steps."},
    {"braid_join_table_bytes", "Bytes of memory that the table takes."},
    {"braid_join_table_oldest_seconds", "Age of the oldest span in the table."},
    {"braid_join_table_pending_spans", "Spans that samples named and that have not arrived."},
    {"braid_join_table_spans", "Spans in the table."},
    {"braid_join_trace_spans_cut",
     "Searches that did not cover all spans of a trace and service, or of a thread."},
    {"braid_ledger_dropped", "Spans or samples that were dropped, by reason."},
    {"braid_ledger_empty_requests", "Requests without any spans or samples."},
    {"braid_ledger_held", "Spans or samples received and not yet sent, rejected or dropped."},
    {"braid_ledger_received", "Spans or samples received."},
    {"braid_ledger_rejected", "Spans or samples whose sender was told that they were refused."},
    {"braid_ledger_sent", "Spans or samples that were delivered."},
    {"braid_ledger_unanswered", "Spans or samples of requests that are not answered yet."},
    {"braid_log_dropped_lines", "Log lines dropped because they were not read in time."},
    {"braid_memory_bytes", "Bytes of memory held, by purpose."},
    {"braid_memory_limit_bytes",
     "Bytes of memory above which new requests are refused (soft), connections are not read "
     "(intake), or nothing is allocated (hard)."},
    {"braid_memory_trims", "Times that a worker at rest returned freed memory to the system."},
    {"braid_profile_limits_changed", "Stacks that were cut, attributes that became `[other]`, and "
                                     "payloads that were removed, by what."},
    {"braid_profile_limits_splits", "Requests that were split."},
    {"braid_pyroscope_labels_left_out", "Labels omitted from a series or a sample."},
    {"braid_query_cut",
     "Answers that are incomplete because a query reached a limit or could not read everything."},
    {"braid_query_cut_off",
     "Answers whose clients read them too slowly while others needed the room."},
    {"braid_query_refused", "Requests that were answered with an error."},
    {"braid_query_requests", "Requests for queries and for the page."},
    {"braid_receiver_corrected_times",
     "Profiles whose times were missing or before 1971 and were corrected."},
    {"braid_receiver_pprof_files", "Files of the watched directory that were read, by result."},
    {"braid_receiver_pprof_scrapes", "Scrapes, by result."},
    {"braid_receiver_pprof_strays",
     "References of pprof profiles to missing texts, and entries that another one replaced."},
    {"braid_receiver_repaired_strings",
     "Strings that were not UTF-8 and were repaired; JSON texts count once."},
    {"braid_redaction_gave_up",
     "Patterns that exceeded their time; the value was then masked as a whole."},
    {"braid_redaction_masked", "Values, names, functions and paths that were masked."},
    {"braid_redaction_removed_attributes", "Attributes removed because their key is not allowed."},
    {"braid_resource_gave_up", "Patterns that exceeded their time. `delete` and `hash` then apply "
                               "to the attribute, `extract` finds nothing."},
    {"braid_server_connections", "Open connections of a server, by worker."},
    {"braid_server_connections_closed", "Closed connections of a server, by reason."},
    {"braid_server_reads_paused",
     "Times that a connection was not read because unfinished requests held too much."},
    {"braid_shed_requests",
     "Requests and scrapes that were dropped or refused while CPU or memory was short."},
    {"braid_store_bytes", "Bytes that the store takes on disk."},
    {"braid_store_commits", "Transactions that the store has committed."},
    {"braid_store_damaged_partitions",
     "Damaged partitions that are kept, unread, until the retention removes them."},
    {"braid_store_partitions", "Partitions of the store."},
    {"braid_store_samples", "Samples in the store."},
    {"braid_store_shortened_items", "Requests of profiles of which some labels, names or frames "
                                    "were left out because they refer to too many."},
    {"braid_store_spans", "Spans in the store."},
    {"braid_store_unread_partitions",
     "Partitions that could not be read, or are not the store's; they are tried again."},
    {"otelcol_exporter_enqueue_failed_profile_samples",
     "Number of profile samples failed to be added to the sending queue."},
    {"otelcol_exporter_enqueue_failed_spans",
     "Number of spans failed to be added to the sending queue."},
    {"otelcol_exporter_enqueue_size", "Number of units in the request added to the sending queue."},
    {"otelcol_exporter_enqueue_size_bytes",
     "Number of bytes in the request added to the sending queue."},
    {"otelcol_exporter_in_flight_requests",
     "Number of export requests currently in-flight (including retry backoff)."},
    {"otelcol_exporter_queue_batch_send_size", "Number of units in the batch."},
    {"otelcol_exporter_queue_batch_send_size_bytes", "Number of bytes in batch that was sent."},
    {"otelcol_exporter_queue_capacity",
     "Fixed capacity of the sending queue, in units of its sizer, of both signals together."},
    {"otelcol_exporter_queue_size", "Current size of the sending queue, in units of its sizer."},
    {"otelcol_exporter_send_failed_profile_samples",
     "Number of profile samples in failed attempts to send to destination."},
    {"otelcol_exporter_send_failed_spans",
     "Number of spans in failed attempts to send to destination."},
    {"otelcol_exporter_sent_profile_samples",
     "Number of profile samples successfully sent to destination."},
    {"otelcol_exporter_sent_spans", "Number of spans successfully sent to destination."},
    {"otelcol_process_cpu_seconds", "Total CPU user and system time in seconds."},
    {"otelcol_process_memory_rss", "Total physical memory (resident set size)."},
    {"otelcol_process_memory_rss_bytes", "Total physical memory (resident set size)."},
    {"otelcol_process_uptime", "Uptime of the process in seconds."},
    {"otelcol_process_uptime_seconds", "Uptime of the process in seconds."},
    {"otelcol_processor_batch_batch_send_size", "Number of units in the batch."},
    {"otelcol_processor_batch_batch_send_size_bytes", "Number of bytes in batch that was sent."},
    {"otelcol_processor_batch_batch_size_trigger_send",
     "Number of times the batch was sent due to a size trigger."},
    {"otelcol_processor_batch_metadata_cardinality",
     "Number of distinct metadata value combinations being processed."},
    {"otelcol_processor_batch_timeout_trigger_send",
     "Number of times the batch was sent due to a timeout trigger."},
    {"otelcol_processor_incoming_items", "Number of items passed to the processor."},
    {"otelcol_processor_memory_limiter_accepted_profile_samples",
     "Number of profile samples successfully pushed into the next component."},
    {"otelcol_processor_memory_limiter_accepted_spans",
     "Number of spans successfully pushed into the next component."},
    {"otelcol_processor_memory_limiter_refused_profile_samples",
     "Number of profile samples that were refused by memory limiter because of its hard limit."},
    {"otelcol_processor_memory_limiter_refused_spans",
     "Number of spans that were refused by memory limiter because of its hard limit."},
    {"otelcol_processor_outgoing_items", "Number of items emitted from the processor."},
    {"otelcol_processor_probabilistic_sampler_count_profile_samples_sampled",
     "Count of profile samples that were sampled or not."},
    {"otelcol_processor_probabilistic_sampler_count_traces_sampled",
     "Count of spans, each by itself, that were sampled or not."},
    {"otelcol_processor_queuebatch_batch_send_size", "Number of units in the batch."},
    {"otelcol_processor_queuebatch_batch_send_size_bytes",
     "Number of bytes in batch that was sent."},
    {"otelcol_receiver_accepted_profile_samples",
     "Number of profile samples successfully pushed into the pipeline."},
    {"otelcol_receiver_accepted_spans", "Number of spans successfully pushed into the pipeline."},
    {"otelcol_receiver_failed_profile_samples",
     "The number of profile samples that failed to be processed by the receiver due to internal "
     "errors, or were rejected. A request that could not be read counts as one."},
    {"otelcol_receiver_failed_spans",
     "The number of spans that failed to be processed by the receiver due to internal errors, or "
     "were rejected. A request that could not be read counts as one."},
    {"otelcol_receiver_refused_profile_samples",
     "Number of profile samples that could not be pushed into the pipeline. A request that was "
     "refused unread counts as one."},
    {"otelcol_receiver_refused_spans",
     "Number of spans that could not be pushed into the pipeline. A request that was refused "
     "unread counts as one."},
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
