# SPDX-License-Identifier: Apache-2.0
"""Messages of Tempo's gRPC API, from its schema: grafana/tempo, pkg/tempopb/tempo.proto. `*` stands
for repeated, and a map is written {value}. Contains only the messages of a client of
StreamingQuerier."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.common.v1 import common_pb2

COMMON = common_pb2.DESCRIPTOR.name
KEY_VALUE = ".opentelemetry.proto.common.v1.KeyValue"
MESSAGES = {
    "SearchRequest": "Tags {string} 1, MinDurationMs uint32 2, MaxDurationMs uint32 3, Limit uint32 4, start uint32 5, end uint32 6, "
                     "Query string 8, SpansPerSpanSet uint32 9",
    "SearchResponse": "traces *TraceSearchMetadata 1, metrics SearchMetrics 2",
    "TraceSearchMetadata": "traceID string 1, rootServiceName string 2, rootTraceName string 3, startTimeUnixNano uint64 4, "
                           "durationMs uint32 5, spanSet SpanSet 6, spanSets *SpanSet 7, serviceStats {ServiceStats} 8",
    "ServiceStats": "spanCount uint32 1, errorCount uint32 2",
    "SpanSet": "spans *Span 1, matched uint32 2, attributes *KeyValue 3",
    "Span": "spanID string 1, name string 2, startTimeUnixNano uint64 3, durationNanos uint64 4, attributes *KeyValue 5",
    "SearchMetrics": "inspectedTraces uint32 1, inspectedBytes uint64 2, totalBlocks uint32 3, completedJobs uint32 4, "
                     "totalJobs uint32 5, totalBlockBytes uint64 6, inspectedSpans uint64 7",
    "SearchTagsRequest": "scope string 1, query string 2, start uint32 3, end uint32 4, maxTagsPerScope uint32 5",
    "SearchTagsResponse": "tagNames *string 1",
    "SearchTagsV2Response": "scopes *SearchTagsV2Scope 1",
    "SearchTagsV2Scope": "name string 1, tags *string 2",
    "SearchTagValuesRequest": "tagName string 1, query string 2, start uint32 4, end uint32 5, maxTagValues uint32 6",
    "SearchTagValuesResponse": "tagValues *string 1",
    "SearchTagValuesV2Response": "tagValues *TagValue 1",
    "TagValue": "type string 1, value string 2",
    "QueryRangeRequest": "query string 1, start uint64 2, end uint64 3, step uint64 4, exemplars uint32 16",
    "QueryRangeResponse": "series *TimeSeries 1, metrics SearchMetrics 2",
    "TimeSeries": "labels *KeyValue 1, samples *Sample 2, exemplars *Exemplar 4",
    "Sample": "timestamp_ms int64 2, value double 1",
    "Exemplar": "labels *KeyValue 1, value double 2, timestamp_ms int64 3",
    "QueryInstantRequest": "query string 1, start uint64 2, end uint64 3",
    "QueryInstantResponse": "series *InstantSeries 1, metrics SearchMetrics 2",
    "InstantSeries": "labels *KeyValue 1, value double 2",
}
ANSWERS = {"Search": ("SearchRequest", "SearchResponse"), "SearchTags": ("SearchTagsRequest", "SearchTagsResponse"),
           "SearchTagsV2": ("SearchTagsRequest", "SearchTagsV2Response"),
           "SearchTagValues": ("SearchTagValuesRequest", "SearchTagValuesResponse"),
           "SearchTagValuesV2": ("SearchTagValuesRequest", "SearchTagValuesV2Response"),
           "MetricsQueryRange": ("QueryRangeRequest", "QueryRangeResponse"),
           "MetricsQueryInstant": ("QueryInstantRequest", "QueryInstantResponse")}
FIELD = descriptor_pb2.FieldDescriptorProto


def set_type(field, kind):
    if kind in MESSAGES or kind == "KeyValue":
        field.type, field.type_name = FIELD.TYPE_MESSAGE, KEY_VALUE if kind == "KeyValue" else f".tempopb.{kind}"
    else:
        field.type = FIELD.Type.Value(f"TYPE_{kind.upper()}")


def add_field(message, name, kind, number):
    field = message.field.add(name=name, number=int(number), label=FIELD.LABEL_OPTIONAL)
    if kind[0] in "*{":
        field.label = FIELD.LABEL_REPEATED
    if kind[0] != "{":
        set_type(field, kind.lstrip("*"))
        return
    entry = message.nested_type.add(name=name[0].upper() + name[1:] + "Entry")
    entry.options.map_entry = True
    add_field(entry, "key", "string", 1)
    add_field(entry, "value", kind.strip("{}"), 2)
    field.type, field.type_name = FIELD.TYPE_MESSAGE, f".tempopb.{message.name}.{entry.name}"


def make():
    file = descriptor_pb2.FileDescriptorProto(name="tempo.proto", package="tempopb", syntax="proto3", dependency=[COMMON])
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            add_field(message, *field.split())
    pool = descriptor_pool.Default()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tempopb.{name}")) for name in MESSAGES}


CLASSES = make()


def ask(channel, method, timeout, **fields):
    """Returns the messages of the stream."""
    request, answer = (CLASSES[name] for name in ANSWERS[method])
    call = channel.unary_stream(f"/tempopb.StreamingQuerier/{method}", request_serializer=request.SerializeToString,
                                response_deserializer=answer.FromString)
    return list(call(request(**fields), timeout=timeout))
