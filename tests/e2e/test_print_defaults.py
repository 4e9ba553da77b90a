"""braid print-config --defaults shows the effective config: every key of the components in use,
with its value."""
import json
import os
import pathlib
import subprocess

import pytest
import yaml

BINARY = os.environ.get("BRAID", "build/braid")
DEADLINE_S = 60
ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "config" / "examples").glob("*.yaml"))
ENV = {"TOKEN": "s3cret", "BACKEND_TOKEN": "s3cret", "BRAID_CONTROL_TOKEN": "0123456789abcdef"}
# Values that depend on others, as documented in the README of the component.
DERIVED = {"processors::redaction::allow_all_keys": True}  # neither this nor allowed_keys is set
SECTIONS = {"receivers": "receiver", "processors": "processor", "exporters": "exporter", "extensions": "extension"}


def run(*args, code=0):
    done = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=DEADLINE_S, env=ENV)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def tables():
    found = {}
    for each in json.loads(run("components", "--json").stdout):
        for name in {each["name"], each.get("alias") or each["name"]}:
            found[each["kind"], name] = each["options"]
    return found


def check(options, shown, given, path, named=()):
    """`shown` has every key of the table: with the file's value if it has one, else with the
    table's default."""
    names = set()
    given = given if isinstance(given, dict) else {}
    for option in options:
        name = option["name"]
        names.add(name)
        if option["type"] == "ignored" or "now" in option:  # older spellings
            continue
        assert name in shown, f"{path}::{name}"
        value, own = shown[name], given.get(name, given.get(option.get("alias")))
        if option["type"] == "map":
            if value != {"enabled": False}:
                check(option["options"], value, own, f"{path}::{name}", given)
        elif "true if the configuration contains the kind" in option["help"] and own is None:
            assert value is (option["default"] or bool(given) or path.split("::")[-1] in named), f"{path}::{name}"
        elif own is None and "default" in option and option["type"] != "duration":
            wanted = DERIVED.get(f"{path}::{name}", option["default"])
            assert value == wanted or str(value) == str(wanted), f"{path}::{name}"
        elif own is not None and isinstance(own, (int, bool, float)):
            assert value == own, f"{path}::{name}"
    assert set(shown) <= names, f"{path}: {set(shown) - names}"


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_key_of_the_used_components_is_shown(file, tables):
    merged = yaml.safe_load(run("print-config", "--config", file).stdout)
    shown = yaml.safe_load(run("print-config", "--defaults", "--config", file).stdout)
    for section, kind in SECTIONS.items():
        used = set(merged["service"].get(section) or []) if section == "extensions" else {
            name for pipeline in merged["service"]["pipelines"].values() for name in pipeline.get(section) or []}
        assert set(shown[section]) == used
        for name in used:
            check(tables[kind, name.split("/")[0]], shown[section][name], (merged.get(section) or {}).get(name),
                  f"{section}::{name}")
    pipelines = merged["service"]["pipelines"]
    assert {name: pipeline["exporters"] for name, pipeline in shown["service"]["pipelines"].items()} == {
        name: pipeline["exporters"] for name, pipeline in pipelines.items()}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_output_is_an_equivalent_config(file, tmp_path):
    once = run("print-config", "--defaults", "--config", file).stdout
    (tmp_path / "shown.yaml").write_text(once.replace('token: "[REDACTED]"', "token: " + 16 * "x"))
    assert run("print-config", "--defaults", "--config", tmp_path / "shown.yaml").stdout == once


def test_every_source_of_settings_is_shown(tmp_path):
    """Set in a second file, with --set, by the environment, with another spelling, and by a
    component's default."""
    (tmp_path / "a.yaml").write_text("""
receivers: {otlp_grpc: , otlp: {protocols: {grpc: {endpoint: "localhost:1"}}}}
processors: {batch: {timeout: 90s}, batch/unused: }
exporters:
  otlp_http: {endpoint: "https://a", headers: {X: "${env:TOKEN}"}, timeout: 1500ms}
service: {pipelines: {traces: {receivers: [otlp], processors: [batch], exporters: [otlp_http]}}}
""".replace("otlp_grpc: , ", ""))
    (tmp_path / "b.yaml").write_text("service: {workers: auto, telemetry: {metrics: {level: none}}}")
    done = run("print-config", "--defaults", "--config", tmp_path / "a.yaml", "--config", tmp_path / "b.yaml",
               "--set", "processors.batch.send_batch_size=7")
    shown = yaml.safe_load(done.stdout)
    assert shown["processors"].keys() == {"batch"}
    assert shown["processors"]["batch"]["timeout"] == "1m30s"
    assert shown["processors"]["batch"]["send_batch_size"] == 7
    exporter = shown["exporters"]["otlp_http"]
    assert exporter["timeout"] == "1.5s" and exporter["headers"] == {"X": "[REDACTED]"}
    assert exporter["sending_queue"]["queue_size"] == 1000
    assert shown["service"]["workers"] == "auto"
    assert shown["service"]["telemetry"]["metrics"]["address"] is None
    assert shown["receivers"]["otlp"]["protocols"]["http"] == {"enabled": False}
    assert "s3cret" not in done.stdout


def test_a_collectors_config(tmp_path):
    file = ROOT / "tests" / "data" / "collector" / "bearer_token.yaml"
    shown = yaml.safe_load(run("print-config", "--defaults", "--skip-unsupported", "--config", file).stdout)
    assert shown["exporters"]["otlphttp"]["auth"]["authenticator"] == "bearertokenauth/backend"
    assert shown["extensions"]["bearertokenauth/backend"]["token"] == "[REDACTED]"


def test_an_invalid_config_is_not_printed(tmp_path):
    (tmp_path / "a.yaml").write_text("receivers: {otlp: {protocol: }}")
    done = run("print-config", "--defaults", "--config", tmp_path / "a.yaml", code=1)
    assert done.stdout == "" and 'did you mean "protocols"?' in done.stderr
