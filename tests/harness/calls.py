# SPDX-License-Identifier: Apache-2.0
"""Requests across services, whose spans and samples are made by hand."""

import itertools

import otlp
import shop
from braid import pipelines, until
from query_api import QueryApi
from shop import MS, START

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = range(1, 6)
OTHERS = [50, 101]  # durations of the requests that are neither slow nor typical; these have no child spans


class Requests:
    """Spans of several services, and their samples of 10 ms of CPU time."""

    def __init__(self):
        self.request, self.profiles = otlp.traces.ExportTraceServiceRequest(), shop.Profiles()
        self.n_spans, self.n_samples, self._ids, self._scopes = 0, 0, itertools.count(1), {}

    def _scope(self, service):
        if service not in self._scopes:
            resource = self.request.resource_spans.add()
            resource.resource.attributes.append(otlp.attribute("service.name", service))
            self._scopes[service] = resource.scope_spans.add()
        return self._scopes[service]

    def add(self, operation, begin, end, *children, kind=SERVER, samples=0, stack=None):
        """Adds a request, a tree of spans (`span`). Returns its trace id."""
        trace = next(self._ids).to_bytes(16, "big")
        self._add(trace, b"", span(operation, begin, end, *children, kind=kind, samples=samples, stack=stack))
        return trace

    def _add(self, trace, parent, made):
        (service, name), begin, end, children, kind, samples, stack = made
        span_id = next(self._ids).to_bytes(8, "big")
        self._scope(service).spans.add(trace_id=trace, span_id=span_id, parent_span_id=parent, name=name, kind=kind,
                                       start_time_unix_nano=START + begin * MS, end_time_unix_nano=START + end * MS)
        self.n_spans += 1
        self.n_samples += samples
        if samples:
            self.profiles.add(service, f"main;{stack or name}", samples, trace, span_id)
        for child in children:
            self._add(trace, span_id, child)

    def add_five(self, operation, typical, slow):
        """Adds five requests. `typical` and `slow` are functions that add a request."""
        typical()
        typical()
        slow()
        for duration in OTHERS:
            self.add(operation, 0, duration)


def span(operation, begin, end, *children, kind=SERVER, samples=0, stack=None):
    return operation, begin, end, children, kind, samples, stack


def parts_of(answer):
    """Returns {(service, name) or kind: (typical ms, slow ms)} of the parts."""
    return {(part["service"], part["name"]) if part["kind"] == "operation" else part["kind"]:
            (part["typical_ns"] / MS, part["slow_ns"] / MS) for part in answer["parts"]}


def serve(braid, folder, made):
    """Starts a server that has stored the requests."""
    api = QueryApi(braid(pipelines({"store": {"directory": str(folder / "data")}}, processors={"join": {}},
                                   extensions={"query": {"endpoint": "127.0.0.1:0"}})))
    api.send(made.request)
    if made.n_samples:
        api.send(made.profiles.request)
    until(lambda: api.braid("status")["store"]["spans"] >= made.n_spans, "spans")
    api.stored(made.n_samples)
    return api
