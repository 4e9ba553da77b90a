# SPDX-License-Identifier: Apache-2.0
"""The process: ports, metrics, shutdown, and the output of exporters without a peer."""

import fcntl
import json
import os
import pathlib
import re
import resource
import shutil
import signal as signals
import socket
import subprocess
import tempfile
import threading

import pytest

import clients
import otlp
from braid import BINARY, DEADLINE_S, exporter, pipelines, until
from otlp import PROFILES, SIGNALS, TRACES
from raw import Raw
from sink import BUSY, Reply

each_signal = pytest.mark.parametrize("signal", SIGNALS, ids=str)


def send(server, signal, n_items=1, **more):
    body = otlp.request_of(signal, n_items, **more).SerializeToString()
    return clients.grpc(server.grpc, signal, body)


@each_signal
def test_ledger_balances(braid, sink, signal):
    server = braid(pipelines(exporter("grpc", sink)))
    for n in range(1, 11):
        send(server, signal, n).expect_ok()
    sink.wait(signal, 55)
    until(lambda: server.ledger(signal)["held"] == 0, "the last answer")
    assert server.ledger(signal) == {"received": 55, "sent": 55, "rejected": 0, "dropped": 0, "held": 0}


def test_a_port_in_use_is_a_startup_error(tmp_path, sink):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps(pipelines(exporter("grpc", sink), grpc={"endpoint": endpoint})))
        done = subprocess.run([BINARY, "--config", str(config)], capture_output=True, text=True,
                              timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
    assert done.returncode not in (0, -signals.SIGSEGV, -signals.SIGABRT)
    assert endpoint in done.stderr and "ddress already in use" in done.stderr


@pytest.mark.parametrize("number", [signals.SIGTERM, signals.SIGINT])
def test_stops_on(braid, sink, number):
    server = braid(pipelines(exporter("grpc", sink)))
    send(server, TRACES, 3).expect_ok()
    server.terminate(number)
    server.stop()
    sink.wait(TRACES, 3)


@each_signal
def test_acknowledged_data_is_sent_before_exit(braid, sink, signal):
    """The queue is full of requests and the destination is slow when SIGTERM is sent."""
    server = braid(pipelines(exporter("grpc", sink, sending_queue={"num_consumers": 1}),
                             processors={"batch": {"timeout": "1h", "send_batch_size": 7}}))
    gate = threading.Event()
    sink.script = [Reply(hold=gate)]
    for n in range(50):
        send(server, signal, 1, first=n + 1).expect_ok()
    server.terminate()
    gate.set()
    server.stop()
    sink.wait(signal, 50)


def test_stops_while_clients_send(braid, sink):
    """Every request answered with OK has arrived; a request that is too late is answered with an
    error."""
    server = braid(pipelines(exporter("grpc", sink), processors={"batch": {"timeout": "20ms"}}))
    address, body = server.grpc, otlp.trace_request(10).SerializeToString()
    acknowledged = []

    def load():
        while (answer := clients.grpc(address, TRACES, body)).ok:
            acknowledged.append(10)
        assert answer.code in ("UNAVAILABLE", "CANCELLED")
    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(acknowledged) > 50, "traffic")
    server.stop()
    for thread in threads:
        thread.join()
    assert len(sink.items(TRACES)) >= sum(acknowledged)


def test_last_lines_report_lost_data(braid, sink):
    """The destination rejects until the end, and the client was answered with OK long before."""
    sink.reply = BUSY
    server = braid(pipelines(exporter("grpc", sink, retry_on_failure={"initial_interval": "10ms", "max_elapsed_time": "100ms"})))
    send(server, TRACES, 42).expect_ok()
    words = server.stop()
    assert words["traces"] == {"received": 42, "sent": 0, "rejected": 0, "dropped": 42, "left": 0}
    assert words["profiles"] == {"received": 0, "sent": 0, "rejected": 0, "dropped": 0, "left": 0}


@each_signal
def test_every_destination_gets_everything(braid, new_sink, signal):
    first, second = new_sink(), new_sink()
    server = braid(pipelines({**exporter("grpc", first, "/first"), **exporter("grpc", second, "/second"),
                              **exporter("proto", second, "/third")}))
    request = otlp.request_of(signal, 4)
    send(server, signal, 4).expect_ok()
    first.wait(signal, 4)
    second.wait(signal, 8)
    assert {call.raw for sink in (first, second) for call in sink.of(signal)} == {request.SerializeToString()}


@each_signal
def test_file_exporter_writes_lines_of_json(braid, tmp_path, signal):
    path = tmp_path / "out.json"
    server = braid(pipelines({"file": {"path": str(path)}}, signals=(signal.name,)))
    requests = [otlp.request_of(signal, n, first=10 * n) for n in (1, 2, 3)]
    for request in requests:
        clients.grpc(server.grpc, signal, request.SerializeToString()).expect_ok()
    server.stop()
    lines = path.read_bytes().splitlines()
    assert [otlp.from_json(signal.request, line) for line in lines] == requests


@pytest.mark.parametrize("verbosity, expected", [("basic", ()), ("detailed", ("span 1", "naïve ✓", "shop"))])
def test_debug_exporter(braid, verbosity, expected):
    server = braid(pipelines({"debug": {"verbosity": verbosity}}))
    send(server, TRACES, 3).expect_ok()
    server.stop()
    written = server.log() + server.stdout_path.read_text()
    assert '"spans": 3' in written or "spans=3" in written or "3 spans" in written
    assert all(each in written for each in expected)


def test_health_check(braid, sink):
    server = braid(pipelines(exporter("grpc", sink), extensions={"health_check": {"endpoint": "127.0.0.1:0"}}))
    address = server.address("http", node="extension/health_check")
    assert clients.http(address, "/", None, None, method="GET").code == 200


def test_workers_share_the_ports(braid, sink):
    server = braid(pipelines(exporter("grpc", sink), workers=4))
    for n in range(40):
        assert send(server, SIGNALS[n % 2]).ok
    sink.wait(TRACES, 20)
    sink.wait(PROFILES, 20)
    assert server.ledger("traces")["received"] == 20


def test_a_limiter_logs_once(braid):
    """One log line, regardless of the number of pipelines and workers; another limiter logs its
    own."""
    limit = {"check_interval": "1s", "limit_mib": 100}
    processors = {"memory_limiter": limit, "memory_limiter/more": {**limit, "limit_mib": 200}}
    server = braid(pipelines({"nop": {}}, processors=processors, workers=3))
    server.wait_log("ready: 3 workers")
    server.stop()
    logged = re.findall(r"processor/(\S+)\thard limit (\d+) MiB", server.log())
    assert sorted(logged) == [("memory_limiter", "100"), ("memory_limiter/more", "200")]


def status_for(address, path, host, **headers):
    """Returns the status of a GET with a custom Host, which no library would send."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers.items())]
    with Raw(address, ("\r\n".join(lines) + "\r\n\r\n").encode()) as client:
        client.wait(lambda: len(client.got) > 12)
        return int(client.got[9:12])


@pytest.mark.parametrize("allowed", [None, ["braid.example"]])
@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0"])
def test_foreign_hosts_are_rejected(braid, sink, bound, allowed):
    """A web page whose name resolves to loopback (DNS rebinding) cannot read from Braid."""
    more = {"allowed_hosts": allowed} if allowed else {}
    token = "a-token-that-nobody-prints"
    reader = {"pull": {"exporter": {"prometheus": {"host": bound, "port": 0}}}}
    server = braid(pipelines(
        exporter("grpc", sink), telemetry={"metrics": {"readers": [reader], **more}},
        extensions={"health_check": {"endpoint": f"{bound}:0", **more},
                    "control": {"endpoint": f"{bound}:0", "token": token, "allow_remote": True, **more}}))
    servers = {"/metrics": ("metrics", None), "/": ("http", "extension/health_check"),
               "/v1/profiling": ("http", "extension/control")}
    for path, where in servers.items():
        port = server.address(*where).rsplit(":", 1)[1]
        expected = {"localhost": True, f"localhost:{port}": True, "127.0.0.1:1": True, "[::1]:1": True,
                    "evil.example": bound == "0.0.0.0" and not allowed, "10.0.0.1": bound == "0.0.0.0",
                    f"braid.example:{port}": bound == "0.0.0.0" or bool(allowed)}
        found = {host: status_for(f"127.0.0.1:{port}", path, host, Authorization=f"Bearer {token}")
                 for host in expected}
        assert found == {host: 200 if right else 403 for host, right in expected.items()}, path


@pytest.mark.parametrize("stream", ["stderr", "stdout"])
def test_unread_output_does_not_block(tmp_path, sink, stream):
    """The reader of the log, or of the debug exporter, hangs: traffic continues, and shutdown
    completes."""
    config = tmp_path / "config.yaml"
    telemetry = {"logs": {"level": "debug"}, "metrics": {"readers": [
        {"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": 0}}}}]}}
    exporters = {**exporter("grpc", sink), "debug": {"verbosity": "detailed"}}
    config.write_text(json.dumps(pipelines(exporters, telemetry=telemetry)))
    log = {"stderr": subprocess.PIPE, "stdout": (tmp_path / "stdout").open("wb")}
    if stream == "stdout":
        log = {"stderr": (tmp_path / "stderr").open("wb"), "stdout": subprocess.PIPE}
    process = subprocess.Popen([BINARY, "--config", str(config)], stdin=subprocess.DEVNULL, **log)
    try:
        fcntl.fcntl(getattr(process, stream), fcntl.F_SETPIPE_SZ, 4096)
        logged = b""

        def ready():
            nonlocal logged
            if stream == "stderr":
                logged += process.stderr.readline()
            else:
                logged = (tmp_path / "stderr").read_bytes()
            return b"ready: " in logged
        until(ready, "the start")
        http, metrics = (re.search(rb"\t%s listening on (\S+)" % what, logged).group(1).decode()
                         for what in (b"http", b"metrics"))
        body = otlp.trace_request(5).SerializeToString()
        for _ in range(5000 if stream == "stderr" else 50):  # closing a connection logs a line
            clients.http(http, TRACES.path, body).expect_ok()
        if stream == "stderr":
            text = clients.http(metrics, "/metrics", None, None, method="GET").body.decode()
            assert float(re.search(r"^braid_log_dropped_lines(?:_total)? (\S+)", text, re.MULTILINE).group(1)) > 0
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()


NOBODY = 65534


@pytest.mark.parametrize("asked", [False, True])
def test_no_core_dumps_by_default(asked):
    """Memory contains secrets. /proc files of a process that may not be dumped belong to root; this
    test checks that the owner differs."""
    user = NOBODY if os.getuid() == 0 else os.getuid()
    sanitizers = {name: os.environ.get(name, "") + ":disable_coredump=0" for name in ("ASAN_OPTIONS", "TSAN_OPTIONS")}
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        binary = shutil.copy(BINARY, folder)
        config = pipelines({"nop": {}})
        process = subprocess.Popen(
            [binary, "--config", "yaml:" + json.dumps(config), *(["--core-dumps"] if asked else [])],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, user=user, cwd="/",
            env=os.environ | sanitizers,  # sanitizers set the soft limit to 0 themselves
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096)))
        try:
            until(lambda: b"ready: " in process.stderr.readline(), "the start")
            limits = pathlib.Path(f"/proc/{process.pid}/limits").read_text()
            assert re.search(r"Max core file size +(\d+) +(\d+)", limits).groups() == (("4096", ) * 2 if asked
                                                                                     else ("0", "0"))
            assert os.stat(f"/proc/{process.pid}/environ").st_uid == (user if asked else 0)
        finally:
            process.kill()
            process.communicate()
