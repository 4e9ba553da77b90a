# SPDX-License-Identifier: Apache-2.0
"""The config of docs/using/recipes.md for profilers that are scraped, write files, or upload. It
runs with only its ports and its directory changed, and accepts the data of these profilers."""

import gzip
import json
import os
import pathlib
import re
import socket
import subprocess
import urllib.request

import pytest

import clients
import programs
import recipes
from braid import until
from otlp import PROFILES

DATA = pathlib.Path(__file__).parents[1] / "data"
SECTION = "Profilers that need a config"
RAW = "main (shop.py:9);work (shop.py:2) 40\nmain (shop.py:9) 2\n"  # as py-spy writes it


@pytest.fixture
def scraped():
    """Returns the address of the scraped program."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    return address


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "profiles").mkdir()
    return tmp_path / "profiles"


@pytest.fixture
def server(braid, tmp_path, directory, scraped):
    (text,) = (fence[2] for fence in recipes.FENCE.finditer(recipes.section(SECTION)) if fence[1] == "yaml")
    text = text.replace("http://localhost:6060", f"http://{scraped}").replace("/var/lib/braid/profiles", str(directory))
    text, n = re.subn(r"localhost:\d+", "127.0.0.1:0", text)
    assert n == 5
    return braid(text, "--set=service.telemetry.metrics.level=none", "--set=receivers.pprof.scrape_interval=2s",
                 env={"XDG_DATA_HOME": str(tmp_path / "data")})


def wait_for_cpu(server, service):
    """Waits until CPU samples of a service are stored; returns its profile types."""
    def types():
        url = f"http://{server.address('http', node='extension/query')}/api/braid/services"
        with urllib.request.urlopen(url, timeout=60) as answer:
            services = json.load(answer)["services"]
        types = {kind for each in services if each["name"] == service for kind in each["profile_types"]}
        return types if any(kind.startswith("process_cpu:cpu:") for kind in types) else None
    return until(types, f"CPU samples of {service}")


def put(directory, name, data):
    (directory.parent / name).write_bytes(data)
    os.rename(directory.parent / name, directory / name)


def test_files(server, directory):
    put(directory, "shop.txt", RAW.encode())
    put(directory, "shop.jfr", gzip.decompress((DATA / "jfr" / "jdk17-default.jfr.gz").read_bytes()))
    wait_for_cpu(server, "nightly")
    until(lambda: not list(directory.iterdir()), "both files to be taken")


def test_upload(server, tmp_path):
    (tmp_path / "shop.txt").write_text(RAW)
    (command,) = re.findall(r"^    (curl .*)$", recipes.section("Uploads"), re.M)
    command = command.replace("localhost:4041", server.address("http", "receiver/pprof"))
    subprocess.run(["bash", "-ec", command.replace("curl", "curl --fail -sS")], cwd=tmp_path, check=True, timeout=60)
    assert wait_for_cpu(server, "shop") == {recipes.CPU}
    top = recipes.ask(server, "top", "--query", '{service_name="shop"}', "--type", recipes.CPU)
    assert top["functions"][0]["name"].startswith("work")


def test_datadog(server):
    programs.datadog(server.address("http", "receiver/pprof"), "python")
    wait_for_cpu(server, "shop")


def test_scraped(server, scraped):
    """Its spans have flame graphs: the bridge alone labels the samples of `net/http/pprof`."""
    spans = programs.serve(scraped, server.http)
    child = next({"trace_id": trace, "span_id": span} for trace, span, name in spans if name == "charge card")
    until(lambda: recipes.seconds_of(server, child) > 0 or recipes.seconds_of(
        server, {"trace_id": spans[0][0], "span_id": spans[0][1]}) > 0, "samples of the request")


def test_a_host(server):
    clients.grpc(server.grpc, PROFILES, gzip.decompress((DATA / "ebpf" / "1.pb.gz").read_bytes())).expect_ok()
    until(lambda: recipes.ask(server, "top", "--query", "{}"), "the samples")
