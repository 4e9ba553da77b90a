# SPDX-License-Identifier: Apache-2.0
"""OTLP for the tests: the two signals by the official classes, OTLP/JSON, and requests."""

import base64
import dataclasses
import json

from google.protobuf import json_format
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as profiles
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.common.v1 import common_pb2 as common


@dataclasses.dataclass(frozen=True)
class Signal:
    name: str
    method: str  # gRPC method
    path: str    # HTTP path
    request: type
    response: type
    rejected: str  # the field of partial_success

    def __str__(self):
        return self.name


TRACES = Signal("traces", "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
                "/v1/traces", traces.ExportTraceServiceRequest, traces.ExportTraceServiceResponse,
                "rejected_spans")
PROFILES = Signal("profiles",
                  "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
                  "/v1development/profiles", profiles.ExportProfilesServiceRequest,
                  profiles.ExportProfilesServiceResponse, "rejected_profiles")
SIGNALS = (TRACES, PROFILES)

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_IDS = ("traceId", "spanId", "parentSpanId", "profileId")


def _ids(node, convert):
    if isinstance(node, dict):
        return {key: convert(value) if key in _IDS else _ids(value, convert)
                for key, value in node.items()}
    return [_ids(each, convert) for each in node] if isinstance(node, list) else node


def to_json(message):
    """OTLP/JSON: proto3 JSON, but ids in hex and enums as numbers."""
    tree = json_format.MessageToDict(message, use_integers_for_enums=True)
    return json.dumps(_ids(tree, lambda text: base64.b64decode(text).hex())).encode()


def from_json(message_type, text):
    tree = _ids(json.loads(text), lambda hexa: base64.b64encode(bytes.fromhex(hexa)).decode())
    return json_format.ParseDict(tree, message_type())


def decode(message_type, content_type, body):
    return from_json(message_type, body) if content_type == JSON else message_type.FromString(body)


def encode(message, content_type):
    return to_json(message) if content_type == JSON else message.SerializeToString()


def attribute(key, value):
    kinds = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value",
             bytes: "bytes_value"}
    if isinstance(value, list):
        values = common.ArrayValue(values=[attribute("", each).value for each in value])
        return common.KeyValue(key=key, value=common.AnyValue(array_value=values))
    if isinstance(value, dict):
        values = common.KeyValueList(values=[attribute(*each) for each in value.items()])
        return common.KeyValue(key=key, value=common.AnyValue(kvlist_value=values))
    return common.KeyValue(key=key, value=common.AnyValue(**{kinds[type(value)]: value}))


def value_of(any_value):
    """Returns an AnyValue as a Python value."""
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(each) for each in any_value.array_value.values]
    if kind == "kvlist_value":
        return attributes_of(any_value.kvlist_value.values)
    return getattr(any_value, kind) if kind else None


def attributes_of(pairs):
    return {pair.key: value_of(pair.value) for pair in pairs}


def trace_request(n_spans=1, service="shop", first=1, size=0):
    """Returns spans with every field that a span can have; their ids count from `first`, and `size`
    pads each."""
    request = traces.ExportTraceServiceRequest()
    resource = request.resource_spans.add(schema_url="https://opentelemetry.io/schemas/1.30.0")
    resource.resource.attributes.append(attribute("service.name", service))
    resource.resource.dropped_attributes_count = 1
    scope = resource.scope_spans.add(schema_url="https://opentelemetry.io/schemas/1.29.0")
    scope.scope.name, scope.scope.version = "tests", "1.0"
    scope.scope.attributes.append(attribute("scope.key", True))
    for n in range(first, first + n_spans):
        span = scope.spans.add(
            trace_id=n.to_bytes(16, "big"), span_id=n.to_bytes(8, "big"), name=f"span {n}", kind=2,
            parent_span_id=(n + 1).to_bytes(8, "big"), trace_state="k=v", flags=0x101,
            start_time_unix_nano=1_700_000_000_000_000_000 + n,
            end_time_unix_nano=1_700_000_000_000_000_000 + n + 5_000_000,
            dropped_attributes_count=2, dropped_events_count=3, dropped_links_count=4)
        for key, value in {"s": "naïve ✓", "b": True, "i": -7, "d": 0.5, "raw": b"\0\xff",
                           "a": ["x", 1], "m": {"k": [False]}, "pad": "x" * size}.items():
            span.attributes.append(attribute(key, value))
        event = span.events.add(name="exception", time_unix_nano=1_700_000_000_000_000_001)
        event.attributes.append(attribute("exception.type", "Declined"))
        link = span.links.add(trace_id=b"\x11" * 16,
                              span_id=b"\x22" * 8,
                              trace_state="l=1",
                              flags=1)
        link.attributes.append(attribute("link.kind", "batch"))
        span.status.code, span.status.message = 2, "card declined"
    return request


def profile_request(n_samples=1, service="shop", first=1, linked=True, size=0):
    """Returns one CPU profile; sample n links to span n of trace_request."""
    request = profiles.ExportProfilesServiceRequest()
    words = ["", "cpu", "nanoseconds", "thread.name", "main", "priceCart", "cart.go", "/srv/shop",
             "x" * size]
    tables = request.dictionary
    tables.string_table.extend(words)
    tables.mapping_table.add()
    tables.mapping_table.add(memory_start=0x400000, memory_limit=0x800000, filename_strindex=7)
    tables.function_table.add()
    tables.function_table.add(name_strindex=4, filename_strindex=6, start_line=1)
    tables.function_table.add(name_strindex=5, filename_strindex=6, start_line=20)
    tables.location_table.add()
    for function in (1, 2):
        location = tables.location_table.add(mapping_index=1, address=0x400000 + function)
        location.lines.add(function_index=function, line=20 * function, column=3)
    tables.attribute_table.add()
    tables.attribute_table.add(key_strindex=3, value=attribute("", "worker-1").value)
    tables.stack_table.add()
    tables.stack_table.add(location_indices=[2, 1])
    tables.link_table.add()
    resource = request.resource_profiles.add()
    resource.resource.attributes.append(attribute("service.name", service))
    scope = resource.scope_profiles.add()
    scope.scope.name = "tests"
    profile = scope.profiles.add(
        time_unix_nano=1_700_000_000_000_000_000, duration_nano=10_000_000_000, period=10_000_000,
        profile_id=first.to_bytes(16, "big"))
    for kind in (profile.sample_type, profile.period_type):
        kind.type_strindex, kind.unit_strindex = 1, 2
    for n in range(first, first + n_samples):
        link = 0
        if linked:
            tables.link_table.add(trace_id=n.to_bytes(16, "big"), span_id=n.to_bytes(8, "big"))
            link = len(tables.link_table) - 1
        profile.samples.add(stack_index=1, attribute_indices=[1], link_index=link,
                            values=[10_000_000 * n])
    return request


def request_of(signal, n_items=1, **more):
    return (trace_request if signal is TRACES else profile_request)(n_items, **more)


def resources_of(signal, request):
    return request.resource_spans if signal is TRACES else request.resource_profiles


def spans_of(request):
    """Returns (resource, scope, span) of every span."""
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield resource.resource, scope.scope, span


def samples_of(request):
    """Returns (resource, profile, sample) of every sample."""
    for resource in request.resource_profiles:
        for scope in resource.scope_profiles:
            for profile in scope.profiles:
                for sample in profile.samples:
                    yield resource.resource, profile, sample


def items_of(signal, request):
    return list((spans_of if signal is TRACES else samples_of)(request))
