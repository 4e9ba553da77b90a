# SPDX-License-Identifier: Apache-2.0
"""Shared by the lines about the durable queue: a server with one, numbered requests, the backend."""

import contextlib
import threading
import time

import clients
import otlp
from braid import Braid, exporter, pipelines
from otlp import TRACES
from sink import BUSY, Reply, Sink

DOWN = Reply(BUSY.grpc, BUSY.http, "down")
CLIENTS = 4


def config(sink, directory, out=None, grpc=None, extensions=None, **storage):
    options = {"sending_queue": {"storage": "file_storage", "queue_size": 1000000},
               "retry_on_failure": {"initial_interval": "50ms", "max_interval": "200ms"}, **(out or {})}
    storage = {"directory": str(directory), "create_directory": True, **storage}
    return pipelines(exporter("grpc", sink, **options), signals=["traces"], workers=1, grpc=grpc,
                     extensions={"file_storage": storage, **(extensions or {})})


def request(number, size=0):
    """Returns a request of one span, whose id is the number and which has `size` bytes more."""
    return otlp.trace_request(1, first=number, size=size).SerializeToString()


def arrived(sink):
    """Returns the numbers that the backend has accepted, those that came twice twice."""
    return [int.from_bytes(span.span_id, "big") for call in sink.of(TRACES) for _, _, span in otlp.spans_of(call.message)]


class Numbers:
    """Clients that send numbered requests until they are stopped or the server is gone."""

    def __init__(self, address, first):
        self.acknowledged = {}  # number: time of the answer
        self.next = first
        self._address, self._lock, self._stop = address, threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(CLIENTS)]
        for each in self._threads:
            each.start()

    def _run(self):
        while not self._stop.is_set():
            with self._lock:
                number, self.next = self.next, self.next + 1
            answer = clients.grpc(self._address, TRACES, request(number))
            if answer.ok:
                self.acknowledged[number] = time.monotonic()
            else:
                self._stop.wait(0.01)

    def stop(self):
        self._stop.set()
        for each in self._threads:
            each.join()


@contextlib.contextmanager
def backend(reply=None):
    sink = Sink()
    sink.reply = reply or Reply()
    try:
        yield sink
    finally:
        sink.close()


@contextlib.contextmanager
def running(made, folder, *args, **more):
    server = Braid(made, folder, *args, **more)
    try:
        yield server
    finally:
        server.kill()


def missing(server, sink, numbers, seconds=20):
    """Waits until these numbers have arrived, as long as some arrive within `seconds`. Returns how many have not."""
    wanted, count, end = set(numbers), -1, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        here = set(arrived(sink))
        if wanted <= here and drained(server):
            break
        if len(here) > count:
            count, end = len(here), time.monotonic() + seconds
        time.sleep(0.05 + 2 * (time.monotonic() - began))  # leaves the machine to the backend
    return len(wanted - set(arrived(sink)))


def drained(server):
    account = server.ledger("traces")
    return account["held"] + account.get("stored", 0) - account.get("restored", 0) <= 0


def emptied(server):
    """Returns whether all requests that were stored at the start have been delivered."""
    account = server.ledger("traces")
    found = sum(server.metrics()["braid_storage_restored_requests"].values())
    return account["held"] == 0 and account["sent"] >= found  # a request has one span
