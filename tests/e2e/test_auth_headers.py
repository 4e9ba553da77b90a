# SPDX-License-Identifier: Apache-2.0
"""The extension headers_setter, and attributes of the authenticated client in processors and headers."""

import json
import subprocess

import pytest

import otlp
from auth import guarded, post, send_grpc
from braid import BINARY, DEADLINE_S, exporter, pipelines, until

USERS = {"basicauth": {"htpasswd": {"inline": "alice:one\nbob:two"}}}


def headers_of(sink, n=1):
    until(lambda: len(sink.calls) >= n, "a request")
    return {name.lower(): value for name, value in sink.calls[n - 1].headers.items()}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_attributes_take_the_authenticated_user(braid, sink, protocol, workers):
    """auth.username is the user, even if the client sends a header of that name."""
    actions = [{"key": "user", "from_context": "auth.username", "action": "insert"},
               {"key": "none", "from_context": "auth.absent", "action": "insert"},
               {"key": "forged", "from_context": "metadata.auth.username", "action": "insert"}]
    server = braid(guarded(sink, USERS, processors={"attributes": {"actions": actions}}, workers=workers))
    if protocol == "http":
        assert post(server, auth=("alice", "one"), headers={"auth.username": "root"}).status_code == 200
    else:
        basic = "Basic YWxpY2U6b25l"  # alice:one
        assert send_grpc(server, ("authorization", basic), ("auth.username", "root")).ok
    spans = otlp.spans_of(until(lambda: sink.calls, "a request")[0].message)
    for _, _, span in spans:
        attributes = otlp.attributes_of(span.attributes)
        assert (attributes["user"], "none" in attributes, attributes["forged"]) == ("alice", False, "alice")


@pytest.mark.parametrize("kind", ["grpc", "proto"])
def test_actions_on_headers(braid, sink, kind, tmp_path):
    (tmp_path / "value").write_text("from-file\n")
    rules = [{"key": "X-Insert", "value": "1", "action": "insert"}, {"key": "x-there", "value": "2", "action": "insert"},
             {"key": "X-Update", "value": "3", "action": "update"}, {"key": "x-absent", "value": "4", "action": "update"},
             {"key": "X-Upsert", "value": "5"}, {"key": "x-delete", "action": "delete"},
             {"key": "x-file", "value_file": str(tmp_path / "value")},
             {"key": "x-tenant", "from_context": "X-Tenant"}, {"key": "x-default", "from_context": "nothing", "default_value": "d"},
             {"key": "x-nothing", "from_context": "nothing"},
             {"key": "x-user", "from_attribute": "username", "default_value": "nobody"}]
    own = {name: "own" for name in ("X-There", "x-update", "x-upsert", "X-Delete", "x-kept")}
    out = exporter(kind, sink, headers=own, auth={"authenticator": "headers_setter"})
    config = pipelines(out, extensions={"headers_setter": {"headers": rules}}, http={"include_metadata": True})
    server = braid(config)
    assert post(server, headers={"X-Tenant": "acme"}).status_code == 200
    headers = headers_of(sink)
    expected = {"x-insert": "1", "x-there": "own", "x-update": "3", "x-absent": None, "x-upsert": "5", "x-delete": None,
                "x-kept": "own", "x-file": "from-file", "x-tenant": "acme", "x-default": "d", "x-nothing": None,
                "x-user": "nobody"}
    assert {name: headers.get(name) for name in expected} == expected


def test_user_of_each_request_becomes_a_tenant(braid, sink):
    config = guarded(sink, USERS)
    config["extensions"]["headers_setter"] = {"headers": [{"key": "X-Scope-OrgID", "from_attribute": "username"}]}
    config["service"]["extensions"].append("headers_setter")
    config["exporters"] = exporter("proto", sink, auth={"authenticator": "headers_setter"})
    for pipeline in config["service"]["pipelines"].values():
        pipeline["exporters"] = list(config["exporters"])
    server = braid(config)
    for i, (name, password) in enumerate((("alice", "one"), ("bob", "two"), ("alice", "one")), 1):
        assert post(server, auth=(name, password)).status_code == 200
        assert headers_of(sink, i)["x-scope-orgid"] == name


@pytest.mark.parametrize("rule, error", [
    ({"key": "a"}, "headers[0]: needs exactly one of value, value_file, from_context and from_attribute"),
    ({"key": "a", "value": "1", "from_context": "b"}, "headers[0]: needs exactly one of"),
    ({"key": "a b", "value": "1"}, "headers[0]::key: must be the name of a header"),
    ({"key": "a", "value": "1", "default_value": "2"}, "headers[0]::default_value: belongs to"),
])
def test_rules_are_checked(sink, tmp_path, rule, error):
    config = pipelines(exporter("grpc", sink), extensions={"headers_setter": {"headers": [rule]}})
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    done = subprocess.run([BINARY, "validate", "--config", tmp_path / "config.yaml"], capture_output=True, text=True,
                          timeout=DEADLINE_S)
    assert done.returncode != 0 and f"extensions::headers_setter::{error}" in done.stderr


def test_headers_of_clients_need_include_metadata(sink, tmp_path):
    rule = {"key": "x-tenant", "from_context": "X-Tenant"}
    config = pipelines(exporter("grpc", sink, auth={"authenticator": "headers_setter"}),
                       extensions={"headers_setter": {"headers": [rule]}})
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    done = subprocess.run([BINARY, "validate", "--config", tmp_path / "config.yaml"], capture_output=True, text=True,
                          timeout=DEADLINE_S)
    assert 'exporter otlp reads the client metadata "X-Tenant", which is kept only with include_metadata' in done.stderr
