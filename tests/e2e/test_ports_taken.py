"""A start that fails because ports are in use lists all of them, and the arguments that change
them."""
import os
import re
import shlex
import socket
import subprocess

import pytest

BINARY = os.environ.get("BRAID", "build/braid")
DEADLINE_S = 60

CONFIG = """
receivers:
  otlp/a.b:
    protocols:
      grpc: {{endpoint: "localhost:{0}"}}
      http: {{endpoint: "127.0.0.1:{1}"}}
  pyroscope: {{protocols: {{http: {{endpoint: "localhost:{2}"}}}}}}
exporters: {{nop: }}
extensions: {{health_check: {{endpoint: "localhost:{3}"}}}}
service:
  extensions: [health_check]
  telemetry:
    metrics: {metrics}
  pipelines:
    traces: {{receivers: [otlp/a.b], exporters: [nop]}}
    profiles: {{receivers: [pyroscope], exporters: [nop]}}
"""
METRICS = {
    "address": "{{address: 'localhost:{4}'}}",
    "readers": "{{readers: [{{pull: {{exporter: {{prometheus: {{host: localhost, port: {4}}}}}}}}}]}}",
}


@pytest.fixture
def used_ports():
    """Five ports in use."""
    sockets = [socket.socket() for _ in range(5)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
        each.listen()
    yield [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()


def moved(port):
    return port + 10000 if port + 10000 <= 65535 else port - 10000


@pytest.mark.parametrize("kind", METRICS)
def test_all_ports_in_use_are_named_with_the_argument_that_changes_them(tmp_path, used_ports, kind):
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.replace("{metrics}", METRICS[kind]).format(*used_ports))
    done = subprocess.run([BINARY, "--config", "c.yaml"], capture_output=True, text=True, timeout=DEADLINE_S,
                          cwd=tmp_path)
    assert done.returncode == 1
    found = dict(re.findall(r"\terror\t(?:service\t)?(\S+ \S+): \S+: address already in use by another process; "
                            r"set another with --set (.*)", done.stderr))
    a, b, c, d, e = used_ports
    last = (f"service.telemetry.metrics.address=localhost:{moved(e)}" if kind == "address" else
            "service.telemetry.metrics.readers="
            f"'[{{pull: {{exporter: {{prometheus: {{host: \"localhost\", port: {moved(e)}}}}}}}}}]'")
    assert found == {
        "c.yaml:5:24: receivers::otlp/a.b::protocols::grpc::endpoint":
            f"receivers::otlp/a.b::protocols::grpc::endpoint=localhost:{moved(a)}",
        "c.yaml:6:24: receivers::otlp/a.b::protocols::http::endpoint":
            f"receivers::otlp/a.b::protocols::http::endpoint=127.0.0.1:{moved(b)}",
        "c.yaml:7:44: receivers::pyroscope::protocols::http::endpoint":
            f"receivers.pyroscope.protocols.http.endpoint=localhost:{moved(c)}",
        "c.yaml:9:39: extensions::health_check::endpoint": f"extensions.health_check.endpoint=localhost:{moved(d)}",
        ("c.yaml:13:24: service::telemetry::metrics::address" if kind == "address" else
         "c.yaml:13:24: service::telemetry::metrics::readers"): last,
    }
    sets = [word for value in found.values() for word in ("--set", *shlex.split(value))]
    done = subprocess.run([BINARY, "validate", "--config", "c.yaml", *sets], capture_output=True, text=True,
                          timeout=DEADLINE_S, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    shown = subprocess.run([BINARY, "print-config", "--config", "c.yaml", *sets], capture_output=True, text=True,
                           timeout=DEADLINE_S, cwd=tmp_path).stdout
    assert not any(re.search(rf"\b{port}\b", shown) for port in used_ports)


def test_a_port_used_twice_in_the_config_is_reported_as_such(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.replace("{metrics}", "{{level: none}}").format(port, port, 0, 0))
    done = subprocess.run([BINARY, "--config", "c.yaml"], capture_output=True, text=True, timeout=DEADLINE_S,
                          cwd=tmp_path)
    assert done.returncode == 1 and "by another process;" not in done.stderr
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr or f"cannot listen on localhost:{port}" in done.stderr
