"""braid validate detects startup failures without opening anything."""
import os
import socket
import subprocess

import pytest

BINARY = os.environ.get("BRAID", "build/braid")
DEADLINE_S = 60
CERT = "cert_file: {dir}/cert.pem, key_file: {dir}/key.pem"

BASE = """
receivers:
  otlp:
    protocols:
      {protocols}
exporters:
  {exporter}
{extra}
service:
  {service}
  telemetry: {{metrics: {{{metrics}}}}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [{name}]}}
"""


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-subj", "/CN=localhost", "-days", "2", "-keyout", folder / "key.pem", "-out",
                    folder / "cert.pem"], check=True, capture_output=True, timeout=DEADLINE_S)
    return folder


def validate(tmp_path, protocols="http: {endpoint: 'localhost:0'}", exporter="nop:", extra="", service="",
             metrics="level: none", name="nop"):
    path = tmp_path / "config.yaml"
    path.write_text(BASE.format(protocols=protocols, exporter=exporter, extra=extra, service=service,
                                metrics=metrics, name=name))
    return subprocess.run([BINARY, "validate", "--config", path], capture_output=True, text=True, timeout=DEADLINE_S,
                          env={})


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def expect(done, words):
    assert done.returncode == 1, done.stderr
    assert words in done.stderr


def test_valid_tls_files(tmp_path, pki):
    tls = CERT.format(dir=pki)
    done = validate(tmp_path, protocols=f"http: {{endpoint: 'localhost:0', tls: {{{tls}}}}}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("tls, words", [
    ("cert_file: {dir}/cert.pem", "receivers::otlp::protocols::http::tls: cert_file is set without a key"),
    ("key_file: {dir}/key.pem", "receivers::otlp::protocols::http::tls: key_file is set without a certificate"),
    ("cert_file: {dir}/none.pem, key_file: {dir}/key.pem", "none.pem cannot be opened: No such file"),
    (CERT + ", client_ca_file: {dir}/none.pem", "none.pem cannot be opened: No such file"),
    (CERT + ", min_version: '1.9'", 'min_version is "1.9"'),
    (CERT + ", cipher_suites: [TLS_FISH]", 'cipher_suites: "TLS_FISH" is not a suite'),
    (CERT + ", curve_preferences: [P1]", 'curve_preferences: "P1" is not a curve'),
    ("cert_file: {dir}/key.pem, key_file: {dir}/key.pem", "does not contain a certificate in PEM form"),
])
def test_tls_of_servers(tmp_path, pki, tls, words):
    tls = tls.format(dir=pki)
    expect(validate(tmp_path, protocols=f"http: {{endpoint: 'localhost:0', tls: {{{tls}}}}}"), words)


@pytest.mark.parametrize("exporter", ["otlp: {endpoint: 'localhost:1', tls: {ca_file: /none.pem}}",
                                      "otlphttp: {endpoint: 'https://localhost:1', tls: {ca_file: /none.pem}}",
                                      "pyroscope: {endpoint: 'https://localhost:1', tls: {ca_file: /none.pem}}"])
def test_tls_of_clients(tmp_path, exporter):
    name = exporter.split(":")[0]
    if name == "pyroscope":
        config = BASE.replace("traces:", "profiles:")
    else:
        config = BASE
    path = tmp_path / "config.yaml"
    path.write_text(config.format(protocols="http: {endpoint: 'localhost:0'}", exporter=exporter, extra="",
                                  service="", metrics="level: none", name=name))
    done = subprocess.run([BINARY, "validate", "--config", path], capture_output=True, text=True, timeout=DEADLINE_S,
                          env={})
    expect(done, f"exporters::{name}: ")
    assert "/none.pem cannot be opened" in done.stderr


def test_one_port_twice(tmp_path):
    port = free_port()
    two = f"grpc: {{endpoint: 'localhost:{port}'}}\n      http: {{endpoint: '0.0.0.0:{port}'}}"
    done = validate(tmp_path, protocols=two)
    expect(done, f"http: 0.0.0.0:{port} is already used by receiver/otlp grpc")
    done = validate(tmp_path, protocols=f"http: {{endpoint: '127.0.0.1:{port}'}}",
                    extra=f"extensions: {{health_check: {{endpoint: 'localhost:{port}'}}}}",
                    service="extensions: [health_check]")
    expect(done, f"receivers::otlp: http: 127.0.0.1:{port} is already used by extension/health_check http")
    done = validate(tmp_path, protocols=f"http: {{endpoint: '127.0.0.1:{port}'}}",
                    metrics=f"address: 'localhost:{port}'")
    expect(done, f"service::telemetry::metrics: metrics: localhost:{port} is already used by receiver/otlp http")


def test_foreign_address(tmp_path):
    done = validate(tmp_path, protocols="http: {endpoint: '192.0.2.7:4318'}")
    expect(done, "receivers::otlp: http: cannot listen on 192.0.2.7:4318: Cannot assign requested address")


def test_port_of_a_running_process(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        done = validate(tmp_path, protocols=f"http: {{endpoint: '127.0.0.1:{s.getsockname()[1]}'}}")
        assert (done.returncode, done.stderr) == (0, "")


def test_files(tmp_path):
    out = tmp_path / "out.json"
    done = validate(tmp_path, exporter=f"file: {{path: {out}}}", name="file")
    assert (done.returncode, done.stderr) == (0, "") and not out.exists()
    out.write_text("kept")
    assert validate(tmp_path, exporter=f"file: {{path: {out}}}", name="file").returncode == 0
    assert out.read_text() == "kept"
    done = validate(tmp_path, exporter=f"file: {{path: {tmp_path}/none/out}}", name="file")
    expect(done, "none/out: No such file or directory")
    done = validate(tmp_path, exporter=f"file: {{path: {tmp_path}}}", name="file")
    expect(done, "Is a directory")
    done = validate(tmp_path, exporter=f"debug: {{output_paths: [stdout, {tmp_path}]}}", name="debug")
    expect(done, "output_paths: cannot open")
    done = validate(tmp_path, exporter=f"file: {{path: {tmp_path}/new/out, create_directory: true}}", name="file")
    assert done.returncode == 0 and not (tmp_path / "new").exists()


def test_all_at_once(tmp_path):
    done = validate(tmp_path, protocols="http: {endpoint: '192.0.2.7:4318'}",
                    exporter=f"file: {{path: {tmp_path}}}", name="file")
    expect(done, "receivers::otlp: ")
    expect(done, "config.yaml:7:9: exporters::file: ")
