# SPDX-License-Identifier: Apache-2.0
"""Spans that a receiver has converted from another format, as the sink received them."""

import dataclasses

import otlp
from braid import exporter


def config(sink, name, receiver, **options):
    """Returns a config with one receiver of spans, and an exporter to the sink with these options."""
    reader = {"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": 0}}}}
    return {"receivers": {name: receiver}, "exporters": exporter("proto", sink, **options),
            "service": {"pipelines": {"traces": {"receivers": [name], "exporters": ["otlphttp"]}},
                        "telemetry": {"metrics": {"readers": [reader]}}}}


@dataclasses.dataclass
class Span:
    """The fields of a span as Python values; ids are in hex."""
    resource: dict
    scope: tuple
    span: object

    def __getattr__(self, name):
        value = getattr(self.span, name)
        return value.hex() if name.endswith("_id") else value

    @property
    def attributes(self):
        return otlp.attributes_of(self.span.attributes)

    @property
    def status(self):
        return self.span.status.code, self.span.status.message

    @property
    def events(self):
        return [(event.time_unix_nano, event.name, otlp.attributes_of(event.attributes)) for event in self.span.events]

    @property
    def links(self):
        return [(link.trace_id.hex(), link.span_id.hex(), otlp.attributes_of(link.attributes)) for link in self.span.links]


def spans(sink, count):
    """Waits for exactly `count` spans and returns them by name."""
    sink.wait(otlp.TRACES, count)
    found = {}
    for call in sink.of(otlp.TRACES):
        for resource in call.message.resource_spans:
            attributes = otlp.attributes_of(resource.resource.attributes)
            for scope in resource.scope_spans:
                for span in scope.spans:
                    found[span.name] = Span(attributes, (scope.scope.name, scope.scope.version), span)
    assert len(found) == count
    return found
