# SPDX-License-Identifier: Apache-2.0
"""Profilers' requests to Pyroscope, over each transport, and the results, read from the file
exporter's output by the official classes."""

import collections
import hashlib
import http.client
import urllib.parse
import uuid

import clients
import otlp
import pprof
import pytest
from braid import until
from otlp import PROFILES
from pyroscope import PushRequest

NODE = "receiver/pyroscope"
ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
START_NS = 1_767_225_600 * 10**9
OCTETS = "binary/octet-stream"


# --- Requests ------------------------------------------------------------------------------------

def make_pprof(*types, values=((10_000_000, ), (30_000_000, )), labels=None, time_ns=START_NS,
               file="app.py", period=None):
    """Returns a pprof by the independent schema: stacks main;work and main. labels: text, or
    (number, unit); period: (type, unit, number)."""
    profile = pprof.Profile(time_nanos=time_ns, duration_nanos=10 * 10**9)
    strings = profile.string_table
    strings.append("")

    def text(value):
        if value not in list(strings):
            strings.append(value)
        return list(strings).index(value)
    for kind, unit in types or (("cpu", "nanoseconds"), ):
        profile.sample_type.add(type=text(kind), unit=text(unit))
    for number, name in enumerate(("main", "work"), 1):
        profile.function.add(id=number, name=text(name), filename=text(file))
        profile.location.add(id=number).line.add(function_id=number, line=number)
    for stack, value in zip(((2, 1), (1, )), values):
        sample = profile.sample.add(location_id=stack, value=value)
        for key, value in (labels or {}).items():
            if isinstance(value, str):
                sample.label.add(key=text(key), str=text(value))
            else:
                sample.label.add(key=text(key), num=value[0], num_unit=text(value[1]))
    if period:
        profile.period_type.type, profile.period_type.unit = text(period[0]), text(period[1])
        profile.period = period[2]
    return profile.SerializeToString()


def form(**fields):
    """multipart/form-data as Go's mime/multipart writes it. Returns (content type, body)."""
    # the same in each process that collects the tests: parametrised ids must not differ
    boundary = hashlib.sha256(repr(fields).encode()).hexdigest()
    parts = [(f"--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"; "
              f"filename=\"{name}.bin\"\r\nContent-Type: application/octet-stream\r\n\r\n").encode()
             + data + b"\r\n" for name, data in fields.items()]
    return (f"multipart/form-data; boundary={boundary}",
            b"".join(parts) + f"--{boundary}--\r\n".encode())


def push_request(*series):
    """series: (labels, [(raw, id)])."""
    request = PushRequest()
    for labels, samples in series:
        added = request.series.add()
        for name, value in labels.items():
            added.labels.add(name=name, value=value)
        for raw, number in samples:
            added.samples.add(raw_profile=raw, ID=number)
    return request


Answer = collections.namedtuple("Answer", "code headers body")


def http1(address, path, body, headers, method="POST"):
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def chunked(address, path, body, headers, method="POST"):
    pieces = (body[i:i + 100] for i in range(0, len(body), 100))
    return http1(address, path, pieces, headers, method)


def http2(address, path, body, headers, method="POST"):
    connection = clients.H2(address)
    try:
        names = {name.lower(): value for name, value in headers.items()}
        got, answer = connection.request(path, names, body, method)
        return Answer(int(got[":status"]), got, answer)
    finally:
        connection.close()


every = pytest.mark.parametrize("send", [http1, chunked, http2])


def ingest_path(name, path="/ingest", **query):
    return path + "?" + urllib.parse.urlencode({"name": name, **query})


# --- The service ---------------------------------------------------------------------------------

def config(path, receiver=None, exporter=None, exporters=None):
    return {
        "receivers": {"pyroscope": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}},
                                    **(receiver or {})}},
        "exporters": exporters or {"file": {"path": str(path), **(exporter or {})}},
        "service": {"pipelines": {"profiles": {"receivers": ["pyroscope"],
                                               "exporters": list(exporters or ["file"])}},
                    "telemetry": {"metrics": {"level": "normal", "readers": [{"pull": {
                        "exporter": {"prometheus": {"host": "127.0.0.1", "port": 0}}}}]}}}}


class Server:
    def __init__(self, process, path):
        self.process, self._path = process, path
        self.address = process.address("http", NODE)

    def requests(self):
        """Returns the content of the file as export requests."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [otlp.from_json(PROFILES.request, line) for line in lines]

    def take(self):
        """Returns the one request received."""
        requests = until(self.requests, "a request in the file")
        assert len(requests) == 1
        return requests[0]


def attributes(pairs):
    return {pair.key: otlp.value_of(pair.value) for pair in pairs}


def flat(request):
    """Returns [(resource attributes, pyroscope.name, type, unit, profile, {stack: value})]."""
    tables = request.dictionary
    text = tables.string_table

    def stack(sample):
        locations = tables.stack_table[sample.stack_index].location_indices
        return tuple(text[tables.function_table[line.function_index].name_strindex]
                     for each in locations for line in tables.location_table[each].lines)
    return [(attributes(resource.resource.attributes),
             attributes(scope.scope.attributes).get("pyroscope.name"),
             text[profile.sample_type.type_strindex], text[profile.sample_type.unit_strindex],
             profile, {stack(sample): list(sample.values) for sample in profile.samples})
            for resource in request.resource_profiles for scope in resource.scope_profiles
            for profile in scope.profiles]


STACKS = {("work", "main"): [10_000_000], ("main", ): [30_000_000]}


def check_one(request, service, name="process_cpu", kind=("cpu", "nanoseconds"), stacks=None):
    [(resource, pyroscope_name, *types, profile, found)] = flat(request)
    assert resource["service.name"] == service
    assert (pyroscope_name, *types) == (name, *kind)
    assert found == (stacks or STACKS)
    return resource, profile


