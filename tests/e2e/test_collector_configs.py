"""Short configurations of the Collector, in the style of public repositories: which of them Braid accepts, and its messages."""
import os
import subprocess

import pytest

BINARY = os.environ.get("BRAID", "build/braid")
DEADLINE_S = 60


def braid(*args):
    return subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def config(tmp_path, sections="", pipeline="", service="", grpc="endpoint: '127.0.0.1:0'"):
    """The path of a file with a traces pipeline from otlp to nop. `sections` may contain a section `exporters`."""
    path = tmp_path / "collector.yaml"
    exporters = "" if "exporters:" in sections else "exporters: {nop: }\n"
    path.write_text(f"receivers: {{otlp: {{protocols: {{grpc: {{{grpc}}}}}}}}}\n{exporters}{sections}\n"
                    f"service: {{{service}pipelines: {{traces: {{receivers: [otlp], {pipeline or 'exporters: [nop]'}}}}}}}\n")
    return path


def validate(path, *options):
    return braid("validate", *options, "--config", path)


def migrate(path):
    return braid("migrate", path, "--rest", path.parent / "rest.yaml")


def succeeds(done, *words):
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stderr


def fails(done, *words):
    assert done.returncode == 1
    for word in words:
        assert word in done.stderr


def test_a_file_without_receivers_is_not_short_of_memory(tmp_path):
    path = tmp_path / "collector.yaml"
    path.write_text("processors: {geoip: }\nexporters: {nop: }\n"
                    "service: {pipelines: {traces: {receivers: [otlp], processors: [geoip], exporters: [nop]}}}\n")
    done = migrate(path)
    fails(done, 'receiver "otlp" is not defined')
    assert "memory" not in done.stderr


# Components of the Collector, of Jaeger and of others whose names resemble names of Braid's components.
@pytest.mark.parametrize("sections, pipeline, service", [
    ("extensions: {jaeger_storage: , jaeger_query: , k8s_leader_elector: }", "",
     "extensions: [jaeger_storage, jaeger_query, k8s_leader_elector], "),
    ("exporters: {nop: , awsemf: , clickhousetraces: , splunk_hec: }", "exporters: [nop, awsemf, clickhousetraces, splunk_hec]", ""),
], ids=["extensions", "exporters"])
def test_a_similar_name_is_not_a_typo(tmp_path, sections, pipeline, service):
    path = config(tmp_path, sections, pipeline, service)
    assert validate(path).returncode == 1
    succeeds(validate(path, "--skip-unsupported"), "left out: Braid does not support this ")
    succeeds(migrate(path))


@pytest.mark.parametrize("name", ["ecsattributes", "adaptive_sampling", "signozspanmetrics"])
def test_an_unknown_processor_is_removed_only_on_request(tmp_path, name):
    path = config(tmp_path, f"processors: {{{name}: }}", f"processors: [{name}], exporters: [nop]")
    fails(validate(path, "--skip-unsupported"), "cannot be removed without loss")
    succeeds(validate(path, "--skip-unsupported", "--accept-loss"))
    succeeds(migrate(path), "the Collector keeps it")


def test_a_typo_stays_an_error(tmp_path):
    path = config(tmp_path, "processors: {batsh: }", "processors: [batsh], exporters: [nop]")
    for done in (validate(path, "--skip-unsupported", "--accept-loss"), migrate(path)):
        fails(done, 'unknown processor "batsh"; did you mean "batch"?')


def test_components_of_the_collector_are_named_as_such(tmp_path):
    path = config(tmp_path, "exporters: {nop: , awsemf: }\nextensions: {k8s_leader_elector: , health_check: {port: 13133}}")
    done = validate(path)
    fails(done, '"awsemf": Braid does not support this exporter of the Collector',
          '"k8s_leader_elector": Braid does not support this extension of the Collector',
          'unknown key "port"; the port is a part of "endpoint"')
    assert "did you mean" not in done.stderr


def test_load_balancing_with_the_resolver_k8s(tmp_path):
    path = config(tmp_path, "exporters: {nop: , loadbalancing: {protocol: {otlp: {tls: {insecure: true}}}, "
                            "resolver: {k8s: {service: lb.default}}}}", "exporters: [nop, loadbalancing]")
    fails(validate(path), '"k8s": use dns with the name of a headless Service')
    succeeds(validate(path, "--skip-unsupported"), "exporters::loadbalancing", "left out")
    done = migrate(path)
    succeeds(done, "the Collector keeps it")
    assert "loadbalancing" in (tmp_path / "rest.yaml").read_text()


@pytest.mark.parametrize("source, lost", [("{from: resource_attribute, name: k8s.pod.uid}", False), ("{from: connection}", True)])
def test_batch_before_k8sattributes(tmp_path, source, lost):
    """The address of the client is lost after batch. This matters only if the address identifies the pod."""
    path = config(tmp_path, "processors: {batch: , k8sattributes: {auth_type: none, "
                            f"pod_association: [{{sources: [{source}]}}]}}}}", "processors: [batch, k8sattributes], exporters: [nop]")
    assert ('"client.address"' in validate(path).stderr) == lost


def test_values_above_braids_limits_are_lowered(tmp_path):
    path = config(tmp_path, "connectors: {spanmetrics: {aggregation_cardinality_limit: 100000}}", "exporters: [nop, spanmetrics]",
                  grpc="endpoint: '127.0.0.1:0', max_recv_msg_size_mib: 1000")
    succeeds(validate(path), "max_recv_msg_size_mib: is read as 255, the largest value that Braid supports",
             "aggregation_cardinality_limit: is read as 28672, the largest value that Braid supports")


@pytest.mark.parametrize("exporter, names", [("otlphttp: {endpoint: 'http://localhost:1', compression: %s}", ["snappy", "lz4", "x-snappy-framed"]),
                                             ("otlp: {endpoint: 'localhost:1', compression: %s}", ["snappy"])])
def test_compression_that_only_the_collector_has(tmp_path, exporter, names):
    for name in names:
        path = config(tmp_path, f"exporters: {{{exporter % name}}}", f"exporters: [{exporter.split(':')[0]}]")
        fails(validate(path), f'compression: Braid does not support "{name}"; must be gzip, zstd')
        succeeds(validate(path, "--skip-unsupported"), "compression: left out")


@pytest.mark.parametrize("auth", ["kubeConfig", "tls"])
def test_kubernetes_credentials_that_only_the_collector_uses(tmp_path, auth):
    """Without its credentials the processor would not find a pod, so it is left out as a whole."""
    path = config(tmp_path, f"processors: {{k8sattributes: {{auth_type: {auth}}}}}", "processors: [k8sattributes], exporters: [nop]")
    fails(validate(path), f'auth_type: Braid does not support "{auth}"')
    succeeds(validate(path, "--skip-unsupported"), "processors::k8sattributes: left out")
    succeeds(migrate(path), "processors::k8sattributes: left out: the Collector keeps it")


DETECTION = "processors: {resourcedetection: {%s}}"
DETECTS = "processors: [resourcedetection], exporters: [nop]"


@pytest.mark.parametrize("section, words", [("eks: {resource_attributes: {k8s.cluster.name: {enabled: true}}}", "eks::"),
                                            ("ec2: {tags: ['^x$']}", "ec2::tags"), ("gcp: {labels: [x]}", "gcp::labels")])
def test_settings_of_detectors_count_only_if_listed(tmp_path, section, words):
    succeeds(validate(config(tmp_path, DETECTION % f"detectors: [env], {section}", DETECTS)))
    detector = section.split(":")[0]
    fails(validate(config(tmp_path, DETECTION % f"detectors: [{detector}], {section}", DETECTS)), words)


def test_an_unknown_detector_is_left_out_alone(tmp_path):
    path = config(tmp_path, DETECTION % "detectors: [env, dynatrace, system]", DETECTS)
    fails(validate(path), 'the detector "dynatrace" is not supported')
    done = validate(path, "--skip-unsupported")
    succeeds(done, 'detectors[1]: an entry is left out: the detector "dynatrace" is not supported')
    assert "resourcedetection: left out" not in done.stderr
    done = migrate(path)
    succeeds(done)
    path = config(tmp_path, DETECTION % "detectors: [dynatrace, consul]", DETECTS)
    succeeds(validate(path, "--skip-unsupported"), "processors::resourcedetection: left out")


def test_an_exporter_of_logs_needs_no_endpoint_for_traces(tmp_path):
    exporters = "exporters: {nop: , otlp_http/logs: {logs_endpoint: 'http://localhost:1/v1/logs'}}"
    succeeds(validate(config(tmp_path, exporters)))
    fails(validate(config(tmp_path, exporters, "exporters: [otlp_http/logs]")), "endpoint or traces_endpoint is required")
    fails(validate(config(tmp_path, "exporters: {nop: , otlp_http: }")), "endpoint is required")


def test_dimensions_that_are_one_label_in_prometheus(tmp_path):
    """The Collector accepts the three dimensions; Prometheus would reject the metrics."""
    names = "[{name: status_code}, {name: http.method}, {name: http_method}]"
    path = config(tmp_path, f"connectors: {{spanmetrics: {{dimensions: {names}}}}}", "exporters: [nop, spanmetrics]")
    fails(validate(path), 'dimensions[0]: the label of "status_code" would be "status_code"',
          'dimensions[2]: the label of "http_method" would be "http_method", but another label has this name')
    succeeds(validate(path, "--skip-unsupported"), "left out")
    path = config(tmp_path, "connectors: {spanmetrics: {dimensions: [{name: a}, {name: a}]}}", "exporters: [nop, spanmetrics]")
    fails(validate(path, "--skip-unsupported"), '"a" is already a dimension')


def test_a_host_name_of_another_machine(tmp_path):
    """The Collector's validate does not resolve names. A start of Braid on this machine fails."""
    path = config(tmp_path, grpc="endpoint: 'collector.invalid:0'")
    succeeds(validate(path), "receivers::otlp::protocols::grpc::endpoint: this machine cannot resolve collector.invalid: ",
             "Braid starts only on a machine that can resolve the name")
    fails(braid("--config", path), "cannot resolve collector.invalid: ")
    service = "telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: collector.invalid, port: 0}}}}]}}, "
    succeeds(validate(config(tmp_path, service=service)), "this machine cannot resolve collector.invalid: ")


def test_a_folder_that_the_exporter_creates(tmp_path):
    folder = tmp_path / "none"
    file = f"exporters: {{file: {{path: {folder}/traces.json%s}}}}"
    succeeds(validate(config(tmp_path, file % ", create_directory: true", "exporters: [file]")))
    fails(validate(config(tmp_path, file % "", "exporters: [file]")), "No such file or directory")
    assert not folder.exists()


def test_wording(tmp_path):
    processors = "processors: {memory_limiter: {check_interval: 1s}, filter: {traces: {span: ['attributes[\"x\"] =~ \".*-test\"']}}}"
    fails(validate(config(tmp_path, processors, "processors: [memory_limiter, filter], exporters: [nop]")),
          "processors::memory_limiter: limit_mib or limit_percentage must be greater than zero",
          "=~ is not an operator; write IsMatch(value, pattern)")
