# SPDX-License-Identifier: Apache-2.0
"""Reads Tempo's answers as strictly as Grafana's data source: an unknown field, or one of another
JSON type, fails.

The messages are those of tempopb (pkg/tempopb/tempo.proto) that the HTTP API answers with, under
the names and JSON types of its gogo/jsonpb: 64-bit integers are strings.
"""

import re


def _is_uint64(value):
    return isinstance(value, str) and re.fullmatch(r"0|[1-9]\d{0,19}", value) and int(value) < 1 << 64


def _is_int64(value):
    return isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value)


def _is_uint32(value):
    return type(value) is int and 0 <= value < 1 << 32


def _is_double(value):
    return type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity")


def _is_text(value):
    return isinstance(value, str)


def _is_bool(value):
    return isinstance(value, bool)


class List:
    def __init__(self, of):
        self.of = of


class Map:
    def __init__(self, of):
        self.of = of


ANY_VALUE = {"stringValue": _is_text, "boolValue": _is_bool, "intValue": _is_int64, "doubleValue": _is_double}
ANY_VALUE["arrayValue"] = {"values": List(ANY_VALUE)}
KEY_VALUE = {"key": _is_text, "value": ANY_VALUE}
SPAN = {"spanID": _is_text, "name": _is_text, "startTimeUnixNano": _is_uint64, "durationNanos": _is_uint64,
        "attributes": List(KEY_VALUE)}
SPAN_SET = {"spans": List(SPAN), "matched": _is_uint32, "attributes": List(KEY_VALUE)}
SERVICE_STATS = {"spanCount": _is_uint32, "errorCount": _is_uint32}
TRACE = {"traceID": _is_text, "rootServiceName": _is_text, "rootTraceName": _is_text, "startTimeUnixNano": _is_uint64,
         "durationMs": _is_uint32, "spanSet": SPAN_SET, "spanSets": List(SPAN_SET), "serviceStats": Map(SERVICE_STATS)}
METRICS = {"inspectedTraces": _is_uint32, "inspectedBytes": _is_uint64, "totalBlocks": _is_uint32,
           "completedJobs": _is_uint32, "totalJobs": _is_uint32, "totalBlockBytes": _is_uint64,
           "inspectedSpans": _is_uint64}
METADATA = {"inspectedBytes": _is_uint64, "totalJobs": _is_uint32, "completedJobs": _is_uint32,
            "totalBlocks": _is_uint32, "totalBlockBytes": _is_uint64}

SEARCH = {"traces": List(TRACE), "metrics": METRICS}
TAGS_V1 = {"tagNames": List(_is_text), "metrics": METADATA}
TAGS_V2 = {"scopes": List({"name": _is_text, "tags": List(_is_text)}), "metrics": METADATA}
VALUES_V1 = {"tagValues": List(_is_text), "metrics": METADATA}
VALUES_V2 = {"tagValues": List({"type": _is_text, "value": _is_text}), "metrics": METADATA}
RANGE = {"series": List({"labels": List(KEY_VALUE),
                         "samples": List({"timestampMs": _is_int64, "value": _is_double}),
                         "exemplars": List({"labels": List(KEY_VALUE), "timestampMs": _is_int64, "value": _is_double})}),
         "metrics": METRICS}
INSTANT = {"series": List({"labels": List(KEY_VALUE), "value": _is_double}), "metrics": METRICS}


def check(value, shape, at="answer"):
    """Returns the value; fails if it does not have the shape."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), (at, value)
        for name, each in value.items():
            assert name in shape, f'{at}: unknown field "{name}"'
            check(each, shape[name], f"{at}.{name}")
    elif isinstance(shape, List):
        assert isinstance(value, list), (at, value)
        for index, each in enumerate(value):
            check(each, shape.of, f"{at}[{index}]")
    elif isinstance(shape, Map):
        assert isinstance(value, dict), (at, value)
        for name, each in value.items():
            check(each, shape.of, f"{at}[{name!r}]")
    else:
        assert shape(value), (at, value)
    return value


def python(any_value):
    """Returns an AnyValue in JSON as a Python value."""
    [(kind, value)] = any_value.items()
    if kind == "arrayValue":
        return [python(each) for each in value["values"]]
    return int(value) if kind == "intValue" else value


def attributes(pairs):
    return {pair["key"]: python(pair["value"]) for pair in pairs}
