# SPDX-License-Identifier: Apache-2.0
"""The resource processor compared with a second implementation of its actions, written here from
the documentation of the Collector's attributes processor: random rules on random resources."""

import base64
import decimal
import hashlib
import json
import math
import random
import re
import struct
import urllib.request

import pytest
from opentelemetry.proto.common.v1 import common_pb2 as common

import otlp
from braid import DEADLINE_S, pipelines, until
from otlp import PROFILES, TRACES, attribute

KEYS = ["a", "b", "c", "k8s.pod.name", "k8s.node.name", "url"]
PATTERNS = ["k8s", "^k8s\\.", "[ab]", "l$", "^.$"]
EXTRACTS = ["^(?P<scheme>[a-z]+)://(?P<a>[^/]*)(?P<rest>/.*)?$", "(?P<b>\\d+)", "^(?P<c>.)(?P<d>.*)$"]
TEXTS = ["", "x", "12", "-7", "+3", "1.5", "1e3", "0x1p4", "inf", "nan", " 1", "http://h/p?q=1", "https://h",
         "naïve ✓", "9223372036854775807", "9223372036854775808", "<&>", "a\"b\\c", "007"]
DOUBLES = [0.0, -0.0, 0.5, -1.25, 100.0, 1e20, 1e21, 1e-6, 1e-7, 123456.789, 5e-324,
           1.7976931348623157e308, math.inf, -math.inf, 9.3e18]


def random_value(rng, depth=0):
    kind = rng.randrange(9 if depth < 2 else 6)
    if kind < 2:
        return rng.choice(TEXTS)
    if kind == 2:
        return rng.choice([True, False])
    if kind == 3:
        return rng.choice([0, 1, -1, 42, 2 ** 63 - 1, -2 ** 63, rng.randrange(10 ** 9)])
    if kind == 4:
        return rng.choice(DOUBLES)
    if kind == 5:
        return rng.randbytes(rng.randrange(5))
    if kind == 6:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    if kind == 7:
        return {rng.choice(TEXTS[1:]): random_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return None


def any_value(value):
    if value is None:
        return common.AnyValue()
    if isinstance(value, list):
        return common.AnyValue(array_value=common.ArrayValue(values=map(any_value, value)))
    if isinstance(value, dict):
        pairs = [common.KeyValue(key=key, value=any_value(each)) for key, each in value.items()]
        return common.AnyValue(kvlist_value=common.KeyValueList(values=pairs))
    return attribute("", value).value


# --- The second implementation -----------------------------------------------------------------

def number_text(v):
    """ECMAScript's Number::toString, from Python's shortest digits."""
    if math.isnan(v) or math.isinf(v):
        return "NaN" if math.isnan(v) else "Infinity" if v > 0 else "-Infinity"
    if v == 0:
        return "-0" if math.copysign(1, v) < 0 else "0"
    mantissa, _, exponent = f"{v!r}".partition("e")
    if not 1e-6 <= abs(v) < 1e21:
        shortest = next(f"{v:.{n}e}" for n in range(18) if float(f"{v:.{n}e}") == v)
        digits, power = shortest.split("e")
        return f"{digits}e{'-' if power[0] == '-' else '+'}{abs(int(power))}"
    if exponent:
        return format(decimal.Decimal(repr(v)), "f")
    return mantissa.removesuffix(".0")


def plain(value):
    """A value as JSON text."""
    kind = value.WhichOneof("value")
    if kind is None:
        return "null"
    if kind == "array_value":
        return "[" + ",".join(map(plain, value.array_value.values)) + "]"
    if kind == "kvlist_value":
        pairs = {each.key: plain(each.value) for each in value.kvlist_value.values}
        return "{" + ",".join(quoted(key) + ":" + pairs[key]
                              for key in sorted(pairs, key=str.encode)) + "}"
    if kind == "string_value":
        return quoted(value.string_value)
    text = as_text(value)
    odd = kind == "double_value" and not math.isfinite(value.double_value)
    return quoted(text) if kind == "bytes_value" or odd else text


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def as_text(value):
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    if kind == "string_value":
        return value.string_value
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind == "int_value":
        return str(value.int_value)
    if kind == "double_value":
        return number_text(value.double_value)
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return plain(value)


def hashed(value):
    kind = value.WhichOneof("value")
    data = {"string_value": lambda: value.string_value.encode(),
            "bool_value": lambda: bytes([value.bool_value]),
            "int_value": lambda: struct.pack("<q", value.int_value),
            "double_value": lambda: struct.pack("<d", value.double_value)}.get(kind)
    return any_value(hashlib.sha256(data()).hexdigest() if data else "")


def parse_double(text):
    if re.fullmatch(r"[+-]?0[xX][0-9a-fA-F]+[pP][+-]?\d+", text):
        return float.fromhex(text)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        value = float(text)
        return None if math.isinf(value) else value
    if re.fullmatch(r"(?i)[+-]?inf(inity)?|nan", text):
        return float(text)
    return None


def converted(value, to):
    kind = value.WhichOneof("value")
    if to == "string":
        return any_value(as_text(value))
    if to == "int":
        if kind == "double_value" and -2.0 ** 63 <= value.double_value < 2.0 ** 63:
            return any_value(int(value.double_value))
        if kind == "bool_value":
            return any_value(int(value.bool_value))
        if kind == "string_value" and re.fullmatch(r"[+-]?\d+", value.string_value) and \
                -2 ** 63 <= int(value.string_value) < 2 ** 63:
            return any_value(int(value.string_value))
    if to == "double":
        if kind == "int_value":
            return any_value(float(value.int_value))
        if kind == "bool_value":
            return any_value(float(value.bool_value))
        number = parse_double(value.string_value) if kind == "string_value" else None
        if number is not None:
            return any_value(number)
    return value


def source(rule, attributes, headers):
    if "value" in rule:
        return any_value(rule["value"])
    if "from_context" in rule:
        header = headers.get(rule["from_context"].removeprefix("metadata."))
        if header is not None:
            return any_value(header)
    if rule.get("from_attribute") in attributes:
        return attributes[rule["from_attribute"]]
    return any_value(rule["default_value"]) if "default_value" in rule else None


def apply(rule, attributes, headers):
    action, key = rule["action"].lower(), rule.get("key")
    if action in ("insert", "update", "upsert"):
        value = source(rule, attributes, headers)
        if value is not None and (action == "upsert" or (action == "insert") == (key not in attributes)):
            attributes[key] = value
    elif action in ("delete", "hash"):
        for name in list(attributes):
            times = (name == key) + ("pattern" in rule and bool(re.search(rule["pattern"], name)))
            if times and action == "delete":
                del attributes[name]
            for _ in range(times if action == "hash" else 0):
                attributes[name] = hashed(attributes[name])
    elif action == "extract" and key in attributes and \
            attributes[key].WhichOneof("value") == "string_value":
        found = re.search(rule["pattern"], attributes[key].string_value, re.ASCII)
        for name, text in found.groupdict("").items() if found else ():
            attributes[name] = any_value(text)
    elif action == "convert" and key in attributes:
        attributes[key] = converted(attributes[key], rule["converted_type"])


def random_rule(rng):
    action = rng.choice(["insert", "update", "UPSERT", "delete", "hash", "extract", "convert"])
    rule = {"action": action, "key": rng.choice(KEYS)}
    if action in ("insert", "update", "UPSERT"):
        kind = rng.randrange(4)
        if kind == 0:
            rule["value"] = rng.choice(["text", "12", 12, -1.5, True, ["x", 1], {"k": [False]}])
        elif kind == 1:
            rule["from_attribute"] = rng.choice(KEYS)
        elif kind == 2:
            rule["from_context"] = rng.choice(["metadata.x-tenant", "x-tenant", "metadata.x-none"])
        if kind == 3 or (kind and rng.random() < 0.5):
            rule["default_value"] = rng.choice(["none", 0])
    elif action in ("delete", "hash"):
        if rng.random() < 0.5:
            rule["pattern"] = rng.choice(PATTERNS)
            if rng.random() < 0.5:
                del rule["key"]
    elif action == "extract":
        rule["pattern"] = rng.choice(EXTRACTS)
    else:
        rule["converted_type"] = rng.choice(["string", "int", "double"])
    return rule


# --- The tests ---------------------------------------------------------------------------------

def post(braid, signal, request, **headers):
    call = urllib.request.Request(f"http://{braid.http}{signal.path}", request.SerializeToString(),
                                  {"content-type": otlp.PROTOBUF, **headers})
    with urllib.request.urlopen(call, timeout=DEADLINE_S) as answer:
        assert answer.status == 200


def records(path):
    """Returns the requests in a file of `format: proto`, each behind its length."""
    data = path.read_bytes()
    while data:
        size = int.from_bytes(data[:4], "big")
        yield data[4:4 + size]
        data = data[4 + size:]


def by_reference(request, resource, attributes):
    """Writes attributes with their texts in the dictionary."""
    words = request.dictionary.string_table

    def index(text):
        words.append(text)
        return len(words) - 1

    for key, value in attributes.items():
        at = resource.attributes.add(key_strindex=index(key), value=value)
        if value.WhichOneof("value") == "string_value":
            at.value.string_value_strindex = index(value.string_value)


def same(a, b):
    return a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)


@pytest.mark.parametrize("seed", range(30))
def test_random_rules(braid, tmp_path, seed):
    rng = random.Random(seed)
    rules = [random_rule(rng) for _ in range(rng.randrange(1, 7))]
    out = tmp_path / "out"
    server = braid(pipelines({"file": {"path": str(out), "format": "proto"}}, http={"include_metadata": True},
                             processors={"resource": {"attributes": rules}}))
    sent = []
    for _ in range(25):
        signal = rng.choice([TRACES, PROFILES])
        request = otlp.request_of(signal)
        resource = otlp.resources_of(signal, request)[0].resource
        resource.ClearField("attributes")
        keys = rng.sample(KEYS, rng.randrange(len(KEYS)))
        before = {key: any_value(random_value(rng)) for key in keys}
        headers = {"x-tenant": rng.choice(["one", "two"])} if rng.random() < 0.6 else {}
        if signal is PROFILES and rng.random() < 0.5:
            by_reference(request, resource, before)
        else:
            resource.attributes.extend(common.KeyValue(key=key, value=value)
                                       for key, value in before.items())
        after = dict(before)
        for rule in rules:
            apply(rule, after, headers)
        for _ in range(rng.randrange(1, 3)):  # the second time from the cache
            post(server, signal, request, **headers)
            sent.append((signal, before, after, headers))
    got = list(records(out))
    assert len(got) == len(sent)
    for data, (signal, before, after, headers) in zip(got, sent):
        request = signal.request.FromString(data)
        resource = otlp.resources_of(signal, request)[0].resource
        found = {each.key: each.value for each in resource.attributes}
        assert len(found) == len(resource.attributes)
        assert found.keys() == after.keys(), (rules, before, headers)
        for key, value in after.items():
            assert same(found[key], value), (rules, before, headers, key, found[key], value)


def test_metadata_of_several_processors(braid, tmp_path):
    """Each processor gets the headers that it needs, and batches are separated only by these."""
    out = tmp_path / "out"
    server = braid(pipelines(
        {"file": {"path": str(out), "format": "proto"}}, http={"include_metadata": True},
        processors={"resource": {"attributes": [{"key": "user", "from_context": "metadata.X-User",
                                                 "action": "insert"}]},
                    "batch": {"timeout": "1h", "send_batch_size": 4, "metadata_keys": ["x-tenant"]}}))
    for n in range(4):
        for tenant in "ab":
            post(server, TRACES, otlp.trace_request(first=n + 1), **{"x-tenant": tenant, "x-user": str(n)})
    until(lambda: len(list(records(out))) == 2, "both batches")
    got = [TRACES.request.FromString(each) for each in records(out)]
    for request in got:
        users = [otlp.attributes_of(each.resource.attributes)["user"] for each in request.resource_spans]
        assert users == ["0", "1", "2", "3"]
