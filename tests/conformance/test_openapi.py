# SPDX-License-Identifier: Apache-2.0
"""Braid's query API compared with its OpenAPI document: schemathesis generates requests from it,
valid and invalid ones, and checks the answers."""

import json
import pathlib
import urllib.request

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (content_type_conformance, response_schema_conformance,
                                               status_code_conformance)

import clients
import shop
from braid import DEADLINE_S, pipelines, until
from otlp import PROFILES, TRACES

EXAMPLES = 25  # per operation
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
DOCUMENT = json.loads((pathlib.Path(__file__).parents[2] / "extensions/query/openapi.json").read_text())
PATHS = [path for path in DOCUMENT["paths"] if not path.endswith("/tail")]  # its answer does not end


@pytest.fixture
def api(braid, tmp_path):
    server = braid(pipelines({"store": {"directory": str(tmp_path / "data")}}, processors={"join": {}},
                             extensions={"query": {"endpoint": "127.0.0.1:0"}}))
    url = "http://" + server.address("http", "extension/query")
    for signal, request in ((TRACES, shop.spans()), (PROFILES, shop.samples())):
        clients.grpc(server.grpc, signal, request.SerializeToString()).expect_ok()

    def get(path):
        with urllib.request.urlopen(url + "/api/braid/" + path, timeout=DEADLINE_S) as answer:
            return json.load(answer)
    schema = schemathesis.openapi.from_dict(get("openapi.json"))
    schema.config.update(base_url=url)
    return schema


def asked():
    """Each path with valid requests, and with invalid ones if it has parameters that could be
    wrong."""
    for path in PATHS:
        yield path, schemathesis.GenerationMode.POSITIVE
        if DOCUMENT["paths"][path]["get"].get("parameters"):
            yield path, schemathesis.GenerationMode.NEGATIVE


@pytest.mark.parametrize("path, mode", asked(), ids=lambda part: getattr(part, "value", part))
def test_answers_match_the_document(api, path, mode):
    @hypothesis.given(case=api[path]["GET"].as_strategy(generation_mode=mode))
    @hypothesis.settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
                         suppress_health_check=list(hypothesis.HealthCheck))
    def run_case(case):
        case.call_and_validate(timeout=DEADLINE_S, checks=CHECKS)
    run_case()
