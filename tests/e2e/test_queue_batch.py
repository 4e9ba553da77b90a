# SPDX-License-Identifier: Apache-2.0
"""The processor queue_batch: batch with the keys of an exporter's queue, as in the Collector (processor/queuebatchprocessor)."""

import subprocess

import pytest

import clients
import otlp
from braid import BINARY, DEADLINE_S, exporter, pipelines
from otlp import PROFILES, TRACES
from sink import REFUSE


def start(braid, sink, keys, signal=TRACES, name="queue_batch", **protocol):
    # The exporter's queue is off, so that its answers are those of the destination.
    return braid(pipelines(exporter("grpc", sink, sending_queue={"enabled": False}, retry_on_failure={"enabled": False}),
                           processors={name: keys}, signals=(signal.name,), grpc=protocol))


def send(server, signal, n_items, first, metadata=()):
    return clients.grpc(server.grpc, signal, otlp.request_of(signal, n_items, first=first).SerializeToString(), metadata=metadata)


def sizes(sink, signal):
    return sorted(len(otlp.items_of(signal, call.message)) for call in sink.of(signal))


@pytest.mark.parametrize("signal", [TRACES, PROFILES], ids=["traces", "profiles"])
@pytest.mark.parametrize("name, keys", [
    ("queue_batch", {"batch": {"flush_timeout": "1h", "min_size": 4}}),
    ("queuebatch", {"batch": {"enabled": True, "flush_timeout": "1h", "min_size": 4, "sizer": "items"}, "num_consumers": 1}),
], ids=["queue_batch", "queuebatch"])
def test_batches_by_size(braid, sink, signal, name, keys):
    server = start(braid, sink, keys, signal, name)
    for n in range(8):
        send(server, signal, 1, n + 1).expect_ok()
    sink.wait(signal, 8)
    assert sizes(sink, signal) == [4, 4]


def test_the_default_batches(braid, sink):
    """The default is 8192 records per batch, and the rest at the end."""
    server = start(braid, sink, {"batch": {"flush_timeout": "1h"}})
    for n in range(3):
        send(server, TRACES, 3000, 1 + 3000 * n).expect_ok()
    sink.wait(TRACES, 9000)
    assert sizes(sink, TRACES) == [9000]


def test_batches_by_bytes(braid, sink):
    """A batch without a unit uses the queue's."""
    size = len(otlp.request_of(TRACES, 10).SerializeToString())
    server = start(braid, sink, {"sizer": "bytes", "batch": {"flush_timeout": "1h", "min_size": 2 * size - size // 2}})
    for n in range(4):
        send(server, TRACES, 10, 1 + 10 * n).expect_ok()
    sink.wait(TRACES, 40)
    assert sizes(sink, TRACES) == [20, 20]


def test_a_large_batch_is_split(braid, sink):
    server = start(braid, sink, {"batch": {"flush_timeout": "1h", "min_size": 0, "max_size": 4}})
    send(server, TRACES, 10, 1).expect_ok()
    sink.wait(TRACES, 10)
    assert sizes(sink, TRACES) == [2, 4, 4]


def test_without_batches_requests_pass_unchanged(braid, sink):
    server = start(braid, sink, {"batch": {"enabled": False}})
    for n in range(3):
        send(server, TRACES, 2, 1 + 2 * n).expect_ok()
    sink.wait(TRACES, 6)
    assert sizes(sink, TRACES) == [2, 2, 2]


@pytest.mark.parametrize("keys, code", [({}, "OK"), ({"wait_for_result": True}, "INVALID_ARGUMENT")], ids=["early", "late"])
def test_status_of_a_rejected_batch(braid, sink, keys, code):
    sink.reply = REFUSE
    server = start(braid, sink, {"batch": {"flush_timeout": "1h", "min_size": 3}, **keys})
    answer = send(server, TRACES, 3, 1)
    assert answer.code == code


def test_tenants_are_not_mixed(braid, sink):
    keys = {"batch": {"flush_timeout": "1h", "min_size": 4, "partition": {"metadata_keys": ["x-tenant"], "cache_size": 10}}}
    server = start(braid, sink, keys, include_metadata=True)
    for n in range(8):
        send(server, TRACES, 1, n + 1, metadata=[("x-tenant", "blue" if n % 2 else "red")]).expect_ok()
    sink.wait(TRACES, 8)
    ids = [{int.from_bytes(span.span_id, "big") % 2 for _, _, span in otlp.items_of(TRACES, call.message)} for call in sink.of(TRACES)]
    assert sorted(map(sorted, ids)) == [[0], [1]]


@pytest.mark.parametrize("keys, text", [
    ("storage: file_storage", 'processors::queue_batch: "storage": a processor has no queue on disk'),
    ("batch: {min_size: 5, max_size: 4}", "processors::queue_batch::batch: max_size (4) must not be less than min_size (5)"),
    ("batch: {sizer: requests}", 'processors::queue_batch::batch::sizer: must be one of items, bytes, got "requests"'),
])
def test_invalid_options_are_rejected(tmp_path, keys, text):
    path = tmp_path / "config.yaml"
    path.write_text(f"receivers: {{nop: }}\nexporters: {{nop: }}\nprocessors: {{queue_batch: {{{keys}}}}}\nservice:\n"
                    "  pipelines: {traces: {receivers: [nop], processors: [queue_batch], exporters: [nop]}}\n")
    done = subprocess.run([BINARY, "validate", "--config", str(path)], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1 and text in done.stderr, done.stderr
