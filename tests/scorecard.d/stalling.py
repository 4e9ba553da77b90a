# SPDX-License-Identifier: Apache-2.0
"""The second part of line 27: files whose reader or writer is blocked."""

import contextlib
import os
import pathlib
import tempfile
import threading
import time

import clients
import otlp
from braid import pipelines
from certs import self_signed
from otlp import PROFILES
from stall import Stall

FILES = 150_000
STALLED_S, WATCHED_S = 2, 10
REQUESTS = 200
BODY = otlp.profile_request(5).SerializeToString()


def config(exporters, receivers=None):
    """Returns a config with traces, which the healthy client sends, and the profiles of the case,
    through different exporters."""
    made = pipelines({**exporters, "nop": {}}, workers=1)
    made["receivers"].update(receivers or {})
    made["service"]["pipelines"] = {
        "traces": {"receivers": ["otlp"], "exporters": ["nop"]},
        "profiles": {"receivers": list(made["receivers"]), "exporters": list(exporters) or ["nop"]}}
    return made


def send(server):
    return clients.http(server.http, PROFILES.path, BODY, otlp.PROTOBUF).code


@contextlib.contextmanager
def full_fifo(folder):
    path = folder / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opened, but never read
    yield config({"file": {"path": str(path)}}), {}, lambda server: [send(server) for _ in range(REQUESTS)]
    os.close(reader)


@contextlib.contextmanager
def stalled_disk(folder):
    disk = Stall(folder / "stall", ["writev"], "written.json")

    def act(server):
        codes = []
        disk.begin()
        threads = [threading.Thread(target=lambda: codes.append(send(server))) for _ in range(20)]
        for thread in threads:
            thread.start()
        disk.wait()
        time.sleep(STALLED_S)
        disk.end()
        for thread in threads:
            thread.join()
        return codes
    yield config({"file": {"path": str(folder / "written.json")}}), disk.env, act
    disk.end()


@contextlib.contextmanager
def stalled_certificates(folder):
    file = self_signed(folder)
    disk = Stall(folder / "stall", ["stat", "fopen"], file)
    made = config({})
    made["receivers"]["otlp"]["protocols"]["grpc"]["tls"] = {
        "cert_file": str(file), "key_file": str(file), "reload_interval": "10ms"}

    def act(server):
        disk.begin()
        disk.wait()
        codes = [send(server) for _ in range(REQUESTS)]
        disk.end()
        return codes
    yield made, disk.env, act
    disk.end()


@contextlib.contextmanager
def many_files(folder):
    """Each poll reads the whole directory; files are accepted meanwhile."""
    with tempfile.TemporaryDirectory(dir=folder) as watched:
        for n in range(FILES):
            (pathlib.Path(watched) / f"f{n}").write_bytes(b"main;work 1\n")

        def act(server):
            time.sleep(WATCHED_S)
            return [send(server)]
        yield config({}, {"pprof": {"file": {"path": watched, "poll_interval": "100ms"}}}), {}, act


CASES = {"a FIFO that nobody reads": full_fifo,
         "a disk that stalls under the file exporter": stalled_disk,
         "certificates that cannot be read": stalled_certificates,
         f"{FILES:,} files in a watched directory": many_files}
