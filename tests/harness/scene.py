# SPDX-License-Identifier: Apache-2.0
"""The real clients of e2e/clients: runs them, and checks their scene when it arrives."""

import json
import os
import pathlib
import subprocess
import sys

import otlp

_TESTS = pathlib.Path(__file__).parents[1]
_HERE = _TESTS / "e2e" / "clients"
_GO = os.environ.get("GO_CLIENTS", str(_TESTS.parent / "build" / "clients"))
_PYTHON = [sys.executable, str(_HERE / "python_sdk.py")]

TRACE_CLIENTS = {
    "python-grpc": lambda braid, coding: [*_PYTHON, "grpc", braid.grpc, coding],
    "python-http": lambda braid, coding: [*_PYTHON, "http", braid.http, coding],
    "node-json": lambda braid, coding:
    ["node", str(_HERE / "node" / "scene.js"), braid.http, coding],
    "go-grpc": lambda braid, coding:
    [_GO, "traces", "-endpoint", braid.grpc, "-compression", coding],
}
PROFILE_TRANSPORTS = ("grpc", "proto", "json")


def _run(command, stdin=""):
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def send_traces(client, braid, coding="none"):
    """Runs a client; returns the (trace id, span id) that it printed, the root first."""
    return [tuple(json.loads(line)) for line in _run(TRACE_CLIENTS[client](braid, coding)).splitlines()]


def send_profiles(transport, endpoint, coding="none", service=None, spans=None):
    """Runs the Go client; returns the request that it printed. Samples link to `spans` in rotation."""
    command = [_GO, "profiles", "-endpoint", endpoint, "-transport", transport, "-compression", coding]
    if service:
        command += ["-service", service]
    if spans:
        command.append("-linked")
    stdin = "".join(json.dumps(ids) + "\n" for ids in spans or ())
    return otlp.from_json(otlp.PROFILES.request, _run(command, stdin))


def check(spans, language, sent):
    """Checks the scene of clients/README.md, with the ids that were sent."""
    assert {(span.trace_id.hex(), span.span_id.hex()) for _, _, span in spans} == sent
    assert len({trace for trace, _ in sent}) == 1
    for resource, scope, span in spans:
        attributes = otlp.attributes_of(resource.attributes)
        assert attributes["service.name"] == f"shop-{language}"
        assert attributes["service.version"] == "1.2.3"
        assert (scope.name, scope.version) == ("scene", "0.1")
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    by_name = {}
    for _, _, span in spans:
        by_name.setdefault(span.name, []).append(span)
    [root], [charge], ticks = (by_name.pop(name)
                               for name in ("POST /checkout", "charge card", "tick"))
    assert not by_name

    assert (root.kind, root.parent_span_id, root.status.code) == (2, b"", 1)
    assert otlp.attributes_of(root.attributes) == {
        "http.route": "/checkout", "http.response.status_code": 503, "cart.total": 12.5,
        "cart.paid": True, "cart.items": ["apple", "pear"], "note": "naïve ✓"}
    [link] = root.links
    assert (link.trace_id, link.span_id) == ((1).to_bytes(16, "big"), (2).to_bytes(8, "big"))
    assert otlp.attributes_of(link.attributes) == {"link.kind": "batch"}

    assert (charge.kind, charge.parent_span_id) == (3, root.span_id)
    assert (charge.status.code, charge.status.message) == (2, "card declined")
    [event] = charge.events
    assert (event.name, otlp.attributes_of(event.attributes)) == ("retry", {"attempt": 2})
    assert event.time_unix_nano > 0

    assert sorted(otlp.attributes_of(tick.attributes)["n"] for tick in ticks) == list(range(100))
    assert all((tick.kind, tick.parent_span_id, tick.status.code) == (1, root.span_id, 0)
               for tick in ticks)
