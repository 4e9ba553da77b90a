"""braid migrate and --skip-unsupported, run as a program."""
import os
import pathlib
import re
import stat
import subprocess
import textwrap

import pytest

BINARY = os.environ.get("BRAID", "build/braid")
CASES = pathlib.Path(__file__).parent.parent / "conformance" / "migrate"
DEADLINE_S = 60


def braid(*args):
    return subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=DEADLINE_S,
                          env={"MY_POD_IP": "127.0.0.1"})


def test_migrated_config_is_valid(tmp_path):
    done = braid("migrate", CASES / "agent.yaml", "--rest", tmp_path / "rest.yaml")
    assert done.returncode == 0, done.stderr
    assert "agent.yaml:36:3: receivers::filelog: left out: " in done.stderr
    (tmp_path / "braid.yaml").write_text(done.stdout)
    checked = braid("validate", "--config", tmp_path / "braid.yaml")
    assert checked.returncode == 0, checked.stderr
    assert "prometheus:" in (tmp_path / "rest.yaml").read_text()
    assert stat.S_IMODE((tmp_path / "rest.yaml").stat().st_mode) == 0o600


def test_rest_file_is_never_overwritten(tmp_path):
    (tmp_path / "rest.yaml").write_text("mine")
    done = braid("migrate", CASES / "agent.yaml", "--rest", tmp_path / "rest.yaml")
    assert done.returncode == 1 and done.stdout == ""
    assert "rest.yaml cannot be written: File exists" in done.stderr
    assert (tmp_path / "rest.yaml").read_text() == "mine"


def test_nothing_to_run():
    done = braid("migrate", CASES / "metrics_only.yaml")
    assert done.returncode == 1 and done.stdout == ""
    assert "service::pipelines: no pipeline remains" in done.stderr


def test_skip_unsupported():
    assert braid("validate", "--config", CASES / "agent.yaml").returncode == 1
    done = braid("validate", "--skip-unsupported", "--config", CASES / "agent.yaml")
    assert done.returncode == 0, done.stderr
    assert "receivers::prometheus: left out: no remaining pipeline uses it" in done.stderr


# Short configs in the style of public repositories: (config, the rest of its traces pipeline).
MANNERS = {
    "helm chart": ("""
        extensions: {health_check: {endpoint: "${env:MY_POD_IP}:13133"}}
        receivers:
          otlp: {protocols: {grpc: {endpoint: "${env:MY_POD_IP}:4317"}, http: {endpoint: "${env:MY_POD_IP}:4318"}}}
          jaeger: {protocols: {grpc: {endpoint: "${env:MY_POD_IP}:14250"}}}
          zipkin: {endpoint: "${env:MY_POD_IP}:9411"}
          prometheus: {config: {scrape_configs: [{job_name: own, static_configs: [{targets: ["${env:MY_POD_IP}:8888"]}]}]}}
        processors:
          memory_limiter: {check_interval: 5s, limit_percentage: 80, spike_limit_percentage: 25}
          k8sattributes: {passthrough: false, extract: {metadata: [k8s.pod.name]}}
          batch: {}
        exporters: {debug: {}}
        service:
          telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: "${env:MY_POD_IP}", port: 8888}}}}]}}
          extensions: [health_check]
          pipelines:
            traces: {receivers: [otlp, jaeger, zipkin], processors: [k8sattributes, memory_limiter, batch], exporters: [debug]}
            metrics: {receivers: [otlp, prometheus], processors: [memory_limiter, batch], exporters: [debug]}
        """, (["otlp", "jaeger", "zipkin"], ["k8sattributes", "memory_limiter", "batch"], ["debug"])),
    "vendor's agent": ("""
        extensions: {zpages: {}, headers_setter: {headers: [{action: insert, key: X-Token, value: x}]}}
        receivers: {otlp: {protocols: {grpc: , http: }}, hostmetrics: {scrapers: {cpu: }}}
        processors: {batch: {metadata_keys: [X-Token]}, resourcedetection: {detectors: [system]},
                     resource/add: {attributes: [{action: insert, key: deployment.environment, value: test}]}}
        exporters:
          otlphttp: {traces_endpoint: "https://ingest.example/v2/trace/otlp", headers: {X-Token: "${env:TOKEN}"}, auth: {authenticator: headers_setter}}
          signalfx: {access_token: "${env:TOKEN}", realm: us0}
        service:
          extensions: [zpages, headers_setter]
          pipelines:
            traces: {receivers: [otlp], processors: [resourcedetection, batch, resource/add], exporters: [otlphttp, signalfx]}
            metrics: {receivers: [hostmetrics], exporters: [signalfx]}
        """, (["otlp"], ["resourcedetection", "batch", "resource/add"], ["otlphttp"])),
    "demo": ("""
        receivers: {otlp: {protocols: {http: {cors: {allowed_origins: ["http://*", "https://*"]}}}}}
        processors: {batch: , transform: {error_mode: ignore, trace_statements: [{context: span, statements: ['set(name, "x")']}]}}
        exporters: {otlp/jaeger: {endpoint: "jaeger:4317", tls: {insecure: true}}, debug: , opensearch: {http: {endpoint: "http://o:9200"}}}
        connectors: {spanmetrics: {}}
        service:
          pipelines:
            traces: {receivers: [otlp], processors: [transform, batch], exporters: [otlp/jaeger, debug, spanmetrics]}
            metrics: {receivers: [spanmetrics], exporters: [debug]}
            logs: {receivers: [otlp], exporters: [opensearch, debug]}
        """, (["otlp"], ["transform", "batch"], ["otlp/jaeger", "debug", "spanmetrics"])),
}


@pytest.mark.parametrize("manner", MANNERS)
def test_styles_of_public_configs(tmp_path, manner):
    """If all losses are accepted, each config is converted without the parts that Braid does not have."""
    text, (receivers, processors, exporters) = MANNERS[manner]
    env = {**os.environ, "MY_POD_IP": "127.0.0.1", "TOKEN": "t"}
    file, converted = tmp_path / "collector.yaml", tmp_path / "braid.yaml"
    file.write_text(textwrap.dedent(text))

    def run(*args):
        done = subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=DEADLINE_S, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout
    assert subprocess.run([BINARY, "validate", "--config", str(file)], capture_output=True, env=env).returncode == 1
    run("validate", "--skip-unsupported", "--accept-loss", "--config", str(file))
    converted.write_text(run("migrate", "--accept-loss", str(file)))
    run("validate", "--config", str(converted))
    shown = run("print-config", "--config", str(converted))
    traces = shown[shown.index("    traces:"):]
    assert "metrics:" not in traces and "logs:" not in traces
    found = {kind: re.findall(r"- (\S+)", block) for kind, block in
             re.findall(r"      (receivers|processors|exporters):\n((?:        - \S+\n)+)", traces)}
    assert found == {"receivers": receivers, "processors": processors, "exporters": exporters}
