# SPDX-License-Identifier: Apache-2.0
"""Trace requests with a number each, so that a test knows which of them arrived, and how often."""

import otlp
from otlp import TRACES

SPANS = 3


def request(number):
    """Returns a trace request whose spans are named after the number."""
    made = otlp.trace_request(SPANS)
    for each in made.resource_spans:
        for scope in each.scope_spans:
            for index, span in enumerate(scope.spans):
                span.name = f"{number}.{index}"
    return made.SerializeToString()


def names(sink):
    """Returns the names of all spans that a sink has received, sorted."""
    return sorted(span.name for call in sink.of(TRACES) for resource in call.message.resource_spans
                  for scope in resource.scope_spans for span in scope.spans)


def expected(numbers):
    """Returns the names of the spans of these requests, sorted."""
    return sorted(f"{number}.{index}" for number in numbers for index in range(SPANS))
