# SPDX-License-Identifier: Apache-2.0
"""Durable queues: what was acknowledged survives a killed process, a backend that is down, and a disk
that fails, and arrives once."""

import os
import random
import threading

import pytest

import clients
import otlp
from braid import exporter, pipelines, until
from numbered import SPANS, expected, names, request
from otlp import PROFILES, TRACES
from sink import BUSY, REFUSE, Reply

WRITE_EACH = {"write_after": "0s"}


def config(sink, folder, storage=None, queue=None, kind="grpc", **more):
    """Returns a config with a durable queue in front of the sink."""
    extension = {"directory": str(folder / "storage"), "create_directory": True, **(storage or {})}
    options = {"sending_queue": {"storage": "file_storage", **(queue or {})},
               "retry_on_failure": {"initial_interval": "50ms", "max_interval": "200ms"}}
    return pipelines(exporter(kind, sink, **options), extensions={"file_storage": extension}, **more)


def send(server, numbers):
    for number in numbers:
        clients.grpc(server.grpc, TRACES, request(number)).expect_ok()


def down():
    return Reply(BUSY.grpc, BUSY.http, "down")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["grpc", "proto"])
def test_killed_while_the_backend_is_down(braid, sink, new_sink, tmp_path, kind, workers):
    dead = new_sink()
    dead.reply = down()
    first = braid(config(dead, tmp_path, kind=kind, workers=workers))
    send(first, range(20))
    profile = otlp.profile_request(4)
    clients.grpc(first.grpc, PROFILES, profile.SerializeToString()).expect_ok()
    account = first.ledger("traces")
    assert account["received"] == account["stored"] == 20 * SPANS
    first.kill()
    second = braid(config(sink, tmp_path, kind=kind, workers=workers))
    sink.wait(TRACES, 20 * SPANS)
    sink.wait(PROFILES, len(otlp.items_of(PROFILES, profile)))
    assert names(sink) == expected(range(20))
    until(lambda: second.ledger("traces")["sent"] == 20 * SPANS)
    second.stop()
    third = braid(config(sink, tmp_path, storage=WRITE_EACH, kind=kind, workers=workers))
    send(third, [20])
    until(lambda: names(sink) == expected(range(21)))
    words = third.stop()
    assert words["traces"]["restored"] == words["traces"]["sent"] == SPANS


def test_shutdown_keeps_what_was_not_delivered(braid, sink, tmp_path):
    sink.reply = down()
    first = braid(config(sink, tmp_path), "--shutdown-timeout", "20s")
    send(first, range(30))
    words = first.stop()["traces"]
    assert words["received"] == 30 * SPANS
    assert words["sent"] == words["dropped"] == words["left"] == 0
    sink.reply = Reply()
    second = braid(config(sink, tmp_path))
    until(lambda: names(sink) == expected(range(30)))
    until(lambda: second.ledger("traces")["sent"] == 30 * SPANS)
    assert second.metrics()["braid_storage_restored_requests"]['extension="file_storage"'] == 30


def test_what_was_rejected_does_not_come_back(braid, sink, tmp_path):
    sink.reply = REFUSE
    first = braid(config(sink, tmp_path))
    send(first, range(3))
    until(lambda: first.ledger("traces")["dropped"] == 3 * SPANS)
    first.stop()
    sink.reply = Reply()
    second = braid(config(sink, tmp_path, storage=WRITE_EACH))
    send(second, [7])
    until(lambda: names(sink) == expected([7]))
    assert second.stop()["traces"]["restored"] == SPANS


def test_batches_keep_the_promise(braid, sink, tmp_path):
    batch = {"batch": {"flush_timeout": "10m", "min_size": 1000000}, "sizer": "items",
             "queue_size": 2000000}
    first = braid(config(sink, tmp_path, queue=batch))
    send(first, range(10))
    assert names(sink) == []
    first.kill()
    second = braid(config(sink, tmp_path))
    until(lambda: names(sink) == expected(range(10)))
    second.stop()


def test_a_full_queue_refuses(braid, sink, tmp_path):
    sink.reply = down()
    server = braid(config(sink, tmp_path, queue={"queue_size": 5}))
    send(server, range(5))
    answer = clients.grpc(server.grpc, TRACES, request(5))
    assert answer.code == "UNAVAILABLE"
    sink.reply = Reply()
    until(lambda: names(sink) == expected(range(5)))
    until(lambda: server.metrics()["otelcol_exporter_queue_size"]
          ['exporter="otlp",data_type="traces"'] == 0)
    send(server, [6])


def test_old_requests_are_given_up_only_with_max_age(braid, sink, tmp_path):
    sink.reply = down()
    first = braid(config(sink, tmp_path, storage={"max_age": "1s"}))
    send(first, range(3))
    until(lambda: first.ledger("traces")["dropped"] == 3 * SPANS)
    metrics = first.metrics()["braid_ledger_dropped"]
    assert metrics['signal="traces",reason="retries_exhausted"'] == 3 * SPANS


def test_the_backlog_on_disk_is_larger_than_memory(braid, sink, tmp_path):
    """The process keeps 32 MiB of requests in memory; the rest is read again in order."""
    sink.reply = down()
    server = braid(config(sink, tmp_path, queue={"queue_size": 100000}))
    big = "x" * 400000
    for number in range(120):
        made = otlp.trace_request(1)
        span = made.resource_spans[0].scope_spans[0].spans[0]
        span.name = str(number)
        span.attributes.add(key="big").value.string_value = big
        clients.grpc(server.grpc, TRACES, made.SerializeToString()).expect_ok()
    sink.reply = Reply()
    sink.wait(TRACES, 120)
    assert names(sink) == sorted(str(number) for number in range(120))
    until(lambda: server.ledger("traces")["sent"] == 120)


def test_the_sender_can_wait_for_the_delivery(braid, sink, tmp_path):
    server = braid(config(sink, tmp_path, queue={"wait_for_result": True}))
    send(server, [1])
    assert names(sink) == expected([1])
    assert server.ledger("traces").get("stored", 0) == 0


def test_what_is_delivered_in_time_is_not_written(braid, sink, tmp_path):
    server = braid(config(sink, tmp_path, storage={"write_after": "10s"}))
    send(server, range(5))
    assert names(sink) == expected(range(5))
    assert server.ledger("traces").get("stored", 0) == 0
    sink.reply = down()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(clients.grpc(server.grpc, TRACES, request(5))))
    thread.start()
    until(lambda: len(sink.of(TRACES)) > 5 or server.ledger("traces")["held"] == SPANS)
    assert not answers
    sink.reply = Reply()
    thread.join(9)  # it is delivered before write_after
    answers[0].expect_ok()
    assert server.ledger("traces").get("stored", 0) == 0


def test_each_exporter_keeps_the_promise(braid, sink, new_sink, tmp_path):
    """One backend is fast and the other is down: the request is stored only for the second."""
    dead = new_sink()
    dead.reply = down()

    def both(one, other):
        made = config(one, tmp_path)
        second = config(other, tmp_path)["exporters"]["otlp"]
        made["exporters"]["otlp/2"] = second
        for pipeline in made["service"]["pipelines"].values():
            pipeline["exporters"] = ["otlp", "otlp/2"]
        return made
    first = braid(both(sink, dead))
    send(first, range(10))
    until(lambda: names(sink) == expected(range(10)))
    until(lambda: first.exporter_ledger("otlp", "traces")["sent"] == 10 * SPANS)
    assert first.exporter_ledger("otlp/2", "traces")["stored"] == 10 * SPANS
    first.ledger("traces")
    first.kill()
    alive, again = new_sink(), new_sink()
    second = braid(both(again, alive))
    until(lambda: names(alive) == expected(range(10)))
    until(lambda: second.ledger("traces")["held"] == 0)


def test_the_storage_must_exist(braid, sink, tmp_path):
    made = config(sink, tmp_path)
    made["service"]["extensions"] = []
    server = braid(made, command=["validate"])
    server.process.wait(30)
    server.killed = True
    assert "storage: must name a file_storage extension that is in service::extensions" in server.log()


def test_the_queue_must_be_enabled(braid, sink, tmp_path):
    made = config(sink, tmp_path, queue={"enabled": False})
    server = braid(made, command=["validate"])
    server.process.wait(30)
    server.killed = True
    assert "storage: needs the queue: set enabled: true, or remove storage" in server.log()


def test_a_batch_in_front_is_not_old(braid, sink, tmp_path):
    """max_age counts from the receipt of the data, also if a processor has made the request."""
    sink.reply = down()
    processors = {"batch": {"timeout": "10ms"}}
    server = braid(config(sink, tmp_path, storage={"max_age": "1h"}, processors=processors))
    send(server, [1])
    clients.grpc(server.grpc, PROFILES, otlp.profile_request(4).SerializeToString()).expect_ok()
    until(lambda: all(server.ledger(kind)["held"] for kind in ("traces", "profiles")))
    sink.reply = Reply()
    until(lambda: names(sink) == expected([1]))
    until(lambda: sink.items(PROFILES))
    assert server.ledger("traces")["dropped"] == server.ledger("profiles")["dropped"] == 0


def test_killed_at_random(braid, sink, tmp_path):
    """KILL_ROUNDS (20) rounds; the backend is down in half of them. Nothing acknowledged is lost, and
    nothing arrives twice but what was being sent when the process was killed."""
    rng = random.Random(28)
    acknowledged, sent, number, rounds = set(), set(), 0, int(os.environ.get("KILL_ROUNDS", 20))
    for n in range(rounds):
        sink.reply = down() if n % 2 else Reply()
        server = braid(config(sink, tmp_path))
        stop = threading.Event()
        address = server.grpc

        def load(first):
            at = first
            while not stop.is_set():
                sent.add(at)
                try:
                    clients.grpc(address, TRACES, request(at)).expect_ok()
                except Exception:  # the process is gone
                    return
                acknowledged.add(at)
                at += 4
        threads = [threading.Thread(target=load, args=(number + i,)) for i in range(4)]
        for each in threads:
            each.start()
        stop.wait(rng.uniform(0.05, 0.5))
        server.kill()
        stop.set()
        for each in threads:
            each.join()
        number = max(sent | {number}) + 1
        number += -number % 4
    sink.reply = Reply()
    last = braid(config(sink, tmp_path))
    until(lambda: set(expected(acknowledged)) <= set(names(sink)))
    until(lambda: last.ledger("traces")["held"] == 0)
    arrived = names(sink)
    assert set(arrived) <= set(expected(sent))
    # 10 requests are sent at the same time, and each of them can arrive twice in each round
    assert len(arrived) - len(set(arrived)) <= rounds * 10 * SPANS
