# SPDX-License-Identifier: Apache-2.0
"""Files on a disk that does not respond, or a FIFO whose reader has stopped: requests for them wait
or are rejected, and everything else continues."""

import contextlib
import os
import ssl
import threading
import urllib.error
import urllib.request

import pytest

import clients
import otlp
from braid import pipelines, until
from certs import self_signed
from otlp import TRACES
from raw import sanitized
from stall import Stall

pytestmark = [pytest.mark.release,
              pytest.mark.skipif(bool(sanitized()), reason="a sanitizer's library has to be loaded first")]

BODY = otlp.trace_request(5).SerializeToString()


@pytest.fixture
def stall(tmp_path):
    """stall(calls, path) makes a Stall that ends with the test."""
    made = []

    def make(calls, path):
        made.append(Stall(tmp_path / f"stall-{len(made)}", calls, path))
        return made[-1]
    yield make
    for each in made:
        each.end()


def beside(exporters, **more):
    """Traces go to `exporters`, profiles elsewhere; with a health check."""
    config = pipelines({**exporters, "nop": {}}, extensions={"health_check": {"endpoint": "127.0.0.1:0"}}, **more)
    config["service"]["pipelines"] = {"traces": {"receivers": ["otlp"], "exporters": list(exporters)},
                                      "profiles": {"receivers": ["otlp"], "exporters": ["nop"]}}
    return config


def serves(server):
    """Checks everything except the file: other requests, health, metrics."""
    profiles = otlp.profile_request(2).SerializeToString()
    for _ in range(3):
        clients.http(server.http, otlp.PROFILES.path, profiles, otlp.PROTOBUF).expect_ok()
    health = server.address("http", node="extension/health_check")
    assert urllib.request.urlopen(f"http://{health}/", timeout=10).status == 200
    assert server.metrics()


def in_background(function, *args):
    thread = threading.Thread(target=function, args=args)
    thread.start()
    return thread


@pytest.mark.parametrize("workers", [1, 2])
def test_disk_behind_the_file_exporter(braid, stall, tmp_path, workers):
    """One write does not return: other data, health and metrics do not wait for it. Afterwards
    everything is written."""
    path = tmp_path / "disk" / "t.json"
    disk = stall(["writev"], path)
    server = braid(beside({"file": {"path": str(path), "create_directory": True}}, workers=workers), env=disk.env)
    server.wait_log("ready")
    disk.begin()
    answers = []
    threads = [in_background(lambda: answers.append(clients.http(server.http, TRACES.path, BODY, otlp.PROTOBUF)))
               for _ in range(4)]
    disk.wait()
    serves(server)
    disk.end()
    for thread in threads:
        thread.join()
    n_taken = sum(answer.ok for answer in answers)
    assert n_taken >= 1 and {answer.code for answer in answers} <= {200, 503}
    assert path.read_text().count("\n") == n_taken
    server.stop()


def test_fifo_behind_the_file_exporter(braid, tmp_path):
    """The process starts without a reader, rejects data for the FIFO, and serves the rest."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    server = braid(beside({"file": {"path": str(path)}}))
    answer = clients.http(server.http, TRACES.path, BODY, otlp.PROTOBUF)
    assert answer.code == 503 and "no process reads" in str(answer)
    serves(server)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    clients.http(server.http, TRACES.path, BODY, otlp.PROTOBUF).expect_ok()
    assert os.read(reader, 1 << 16).count(b"\n") == 1

    def refused():
        return clients.http(server.http, TRACES.path, BODY, otlp.PROTOBUF).code == 503
    until(refused, "a full pipe")
    serves(server)
    os.close(reader)
    server.stop()


def test_directory_that_is_watched(braid, stall, tmp_path):
    """The directory cannot be listed for a while, nor its files be opened: nothing else waits, and
    the files are read later."""
    watched = tmp_path / "watched"
    watched.mkdir()
    disk = stall(["opendir", "stat", "open"], watched)
    config = beside({"nop/traces": {}})
    config["receivers"]["pprof"] = {"file": {"path": str(watched), "poll_interval": "10ms", "after": "delete"}}
    config["service"]["pipelines"]["profiles"]["receivers"] = ["otlp", "pprof"]
    server = braid(config, env=disk.env)
    server.wait_log("ready")
    for round in range(3):
        disk.begin()
        path = watched / f"{round}.folded"
        path.write_text("main;work 3\n")
        disk.wait()
        serves(server)
        disk.end()
        until(lambda path=path: not path.exists(), "the file to be taken")
    server.stop()


def test_disk_behind_the_debug_exporter(braid, stall, tmp_path):
    """Requests do not wait for the output of earlier requests, which is written when it can be."""
    path = tmp_path / "text"
    disk = stall(["write"], path)
    server = braid(beside({"debug": {"output_paths": [str(path)]}}), env=disk.env)
    server.wait_log("ready")
    disk.begin()
    for _ in range(3):
        clients.http(server.http, TRACES.path, BODY, otlp.PROTOBUF).expect_ok()
    disk.wait()
    serves(server)
    disk.end()
    server.stop()
    assert path.read_text().count("Traces: resource spans") == 3


def test_old_partition_that_cannot_be_removed(braid, stall, tmp_path):
    """Neither the metrics of the store nor anything else waits for the removal of its file."""
    disk = stall(["unlink"], tmp_path / "store" / "partition-00000001.db$")
    config = beside({"store": {"directory": str(tmp_path / "store"), "partition": {"rows": 1000},
                               "retention": {"max_age": "1ms"}}})
    config["extensions"]["query"] = {"endpoint": "127.0.0.1:0"}
    config["service"]["extensions"].append("query")
    server = braid(config, env=disk.env)
    server.wait_log("ready")
    query = server.address("http", node="extension/query")
    disk.begin()
    body = otlp.trace_request(1000).SerializeToString()
    writers = [in_background(clients.http, server.http, TRACES.path, body, otlp.PROTOBUF) for _ in range(5)]
    disk.wait()
    serves(server)
    assert urllib.request.urlopen(f"http://{query}/api/braid/status", timeout=10).status == 200
    disk.end()
    for writer in writers:
        writer.join()
    server.wait_log("was removed: it exceeds the retention")
    server.stop()


def ssl_text(file):
    text = file.read_text()
    return text[text.index("-----BEGIN CERTIFICATE"):].split()


def certificate(address):
    host, port = address.rsplit(":", 1)
    return ssl.get_server_certificate((host, int(port)), timeout=10)


def test_certificates(braid, stall, tmp_path):
    """Unreadable TLS files do not block anything; the new ones are used as soon as they can be
    read."""
    file = self_signed(tmp_path)
    disk = stall(["stat", "fopen"], file)
    tls = {"cert_file": str(file), "key_file": str(file), "reload_interval": "10ms"}
    config = beside({"nop/traces": {}})
    config["receivers"]["otlp"]["protocols"]["grpc"]["tls"] = tls
    server = braid(config, env=disk.env)
    old = certificate(server.grpc)
    disk.begin()
    disk.wait()
    self_signed(tmp_path)
    serves(server)
    assert certificate(server.grpc) == old
    disk.end()
    until(lambda: certificate(server.grpc) != old, "the new certificate")
    assert certificate(server.grpc).split() == ssl_text(file)
    file.write_text("half a certif")
    server.wait_log(r"TLS files were not reloaded, the old ones stay in use: .* does not contain a certificate")
    assert certificate(server.grpc).split() == ssl_text(tmp_path / "server.crt")
    server.stop()


# --- SIGTERM ----------------------------------------------------------------------------------------------------


def send(server):
    """Sends a request that may not be answered."""
    with contextlib.suppress(OSError):
        clients.http(server.http, TRACES.path, BODY, otlp.PROTOBUF)


def store(path, **more):
    return pipelines({"store": {"directory": str(path), **more}}, extensions={"query": {"endpoint": "127.0.0.1:0"}})


HELD = {"received": 5, "sent": 0, "rejected": 0, "dropped": 0, "left": 5}
SENT = {"received": 5, "sent": 5, "rejected": 0, "dropped": 0, "left": 0}


@pytest.mark.parametrize("exporter, call", [("store", "fdatasync"), ("store", "pwrite"), ("file", "writev")])
@pytest.mark.parametrize("workers", [1, 2])
def test_shutdown_while_a_write_waits(braid, stall, tmp_path, exporter, call, workers):
    """The disk never responds. The process ends nevertheless, and its last lines report the data
    that was not written."""
    path = tmp_path / "disk"
    disk = stall([call], path)
    path.mkdir()
    config = store(path, sync="full") if exporter == "store" else pipelines({"file": {"path": str(path / "t.json")}})
    config["service"]["workers"] = workers
    server = braid(config, "--shutdown-timeout", "500ms", env=disk.env)
    server.wait_log("ready")
    disk.begin()
    sender = in_background(send, server)
    disk.wait()
    words = server.stop(code=1)
    assert words["traces"] == HELD
    assert "threads are blocked: 1 with files, 0 with queries, 0 with requests" in server.log()
    sender.join()


def test_shutdown_while_a_query_reads(braid, stall, tmp_path):
    disk = stall(["pread"], tmp_path / "disk")
    server = braid(store(tmp_path / "disk"), "--shutdown-timeout", "500ms", env=disk.env)
    clients.http(server.http, TRACES.path, BODY, otlp.PROTOBUF).expect_ok()
    query = server.address("http", node="extension/query")
    disk.begin()

    def ask():
        with contextlib.suppress(OSError, urllib.error.URLError):
            urllib.request.urlopen(f"http://{query}/api/search?limit=5", timeout=60)
    client = in_background(ask)
    disk.wait()
    words = server.stop(code=1)
    assert words["traces"] == SENT
    assert "threads are blocked: 0 with files, 1 with queries, 0 with requests" in server.log()
    client.join()


def test_shutdown_while_the_store_is_closed(braid, stall, tmp_path):
    """All data is stored, and the last checkpoint waits for the disk."""
    disk = stall(["fdatasync"], tmp_path / "disk")
    server = braid(store(tmp_path / "disk"), "--shutdown-timeout", "500ms", env=disk.env)
    clients.http(server.http, TRACES.path, BODY, otlp.PROTOBUF).expect_ok()
    disk.begin()
    assert server.stop(code=1)["traces"] == SENT
    assert "files could not be closed in time" in server.log()


def test_shutdown_during_the_start(braid, stall, tmp_path):
    """The directory of the store cannot be listed: the process never listens, and ends on SIGTERM."""
    disk = stall(["opendir"], tmp_path / "disk")
    disk.begin()
    server = braid(store(tmp_path / "disk"), "--shutdown-timeout", "500ms", env=disk.env)
    disk.wait()
    assert server.stop(code=1)["traces"]["received"] == 0
    assert "a worker did not end in time" in server.log()
