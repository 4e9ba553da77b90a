# SPDX-License-Identifier: Apache-2.0
"""Extensions control and adaptive: temporary rules that raise the sampling of a service, and
reduced sampling under load."""

import http.client
import json
import pathlib
import re
import subprocess
import time

import pytest

import clients
import otlp
import profile_view
from braid import BINARY, DEADLINE_S, exporter, pipelines, until
from otlp import PROFILES, TRACES
from scraped import OFF, config, go_program, of_type, target

README = pathlib.Path(__file__).parents[2] / "extensions" / "control" / "README.md"
TOKEN = "a-token-that-nobody-prints"
CONTROL = {"control": {"endpoint": "127.0.0.1:0", "token": TOKEN}}


def call(server, method="GET", path="", body=None, token=TOKEN):
    """Returns (status, headers, JSON) of a request to /v1/profiling."""
    connection = http.client.HTTPConnection(server.address("http", "extension/control"), timeout=DEADLINE_S)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, "/v1/profiling" + path, body if isinstance(body, (str, type(None)))
                           else json.dumps(body), headers)
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == "application/json"
        expected = {413: "Content Too Large", 422: "Unprocessable Content"}  # names changed by RFC 9110
        assert answer.reason == expected.get(answer.status, http.client.responses[answer.status])
        return answer.status, answer.headers, json.loads(answer.read())
    finally:
        connection.close()


def post(server, **override):
    status, headers, reply = call(server, "POST", body=override)
    assert status == 201, reply
    assert headers["Location"] == f"/v1/profiling/{reply['id']}"
    return reply


# --- Rules for a service


@pytest.fixture(scope="module")
def program():
    with go_program() as address:
        yield address


@pytest.mark.parametrize("workers", [1, 3])
def test_new_rule_scrapes_at_once_and_until_it_ends(braid, sink, program, workers):
    receiver = {"targets": [{**each, "on_demand": True} for each in target(program)], "scrape_interval": "1h",
                "profiles": {**OFF, "goroutine": {"enabled": True}}}
    server = braid(config(sink, receiver, extensions=CONTROL, workers=workers))
    assert call(server)[2] == {"collected": [], "overrides": [], "truncated": False,
                               "shedding": {"step": 0, "what": "nothing is shed"}}
    begun = time.monotonic()
    override = post(server, service="shop", profile_types=["mutex", "goroutine"], interval="1s", duration="3s")
    until(lambda: len({each["profile"][0] for each in of_type(sink, ("goroutine", "goroutine"))}) > 1,
          "goroutines, twice")
    _, _, reply = call(server)
    if time.monotonic() < begun + 2:
        assert [each["id"] for each in reply["overrides"]] == [override["id"]]
        assert {each["profile_type"] for each in reply["collected"]} == {"mutex", "goroutine"}
        for each in reply["collected"]:
            assert (each["service"], each["because"], each["override"]) == ("shop", "override", override["id"])
            assert (each["target"], each["interval"]) == (f"http://{program}", "1s")
    until(lambda: call(server)[2]["collected"] == [] == call(server)[2]["overrides"], "the end of the override")
    assert time.monotonic() - begun >= 3
    assert call(server, path=f"/{override['id']}")[0] == 404
    server.stop()


def links_of(sink, server, first):
    """Sends a span and a sample that links to it; returns whether the link was exported."""
    for signal in (TRACES, PROFILES):
        request = otlp.request_of(signal, 1, first=first)
        assert clients.grpc(server.grpc, signal, request.SerializeToString()).code == "OK"
    sink.wait(PROFILES, first)
    [sample] = profile_view.View(sink.of(PROFILES)[-1].message).samples()
    return sample["link"] is not None


@pytest.mark.parametrize("workers", [1, 2])
def test_keeps_the_links_of_a_service(braid, sink, workers):
    join = {"join": {"keep": {"failed": False}}}
    server = braid(pipelines(exporter("grpc", sink), processors=join, extensions=CONTROL, workers=workers))
    assert call(server)[2]["collected"] == [
        {"component": "otlp", "profile_type": "pushed", "state": "ok", "because": "config"},
        {"component": "join", "profile_type": "links", "state": "some", "because": "config"}]
    assert not links_of(sink, server, 1)
    post(server, service="another", duration="1h", sampling_percentage=100)
    assert not links_of(sink, server, 2)
    override = post(server, service="shop", duration="1h", sampling_percentage=100)
    assert links_of(sink, server, 3)
    assert {each.get("service"): each["state"] for each in call(server)[2]["collected"]
            if each["component"] == "join"} == {None: "some", "another": "all", "shop": "all"}
    assert call(server, "DELETE", f"/{override['id']}")[2] == {"ended": 1}
    assert not links_of(sink, server, 4)
    post(server, service="shop", duration="1h", slow_threshold="5ms")  # the limit is the span's duration
    assert links_of(sink, server, 5)
    assert call(server, "DELETE", "?service=shop")[2] == {"ended": 1}
    post(server, service="shop", duration="1h", slow_threshold="6ms")
    assert not links_of(sink, server, 6)
    assert call(server, "DELETE")[2] == {"ended": 2}
    assert call(server)[2]["overrides"] == []
    server.stop()


@pytest.mark.parametrize("workers", [1, 2])
def test_rule_ends_after_its_duration(braid, sink, workers):
    join = {"join": {"keep": {"failed": False}}}
    server = braid(pipelines(exporter("grpc", sink), processors=join, extensions=CONTROL, workers=workers))
    assert not links_of(sink, server, 1)
    begun = time.monotonic()
    post(server, service="shop", duration="3s", sampling_percentage=100)
    kept = [links_of(sink, server, n) for n in range(2, 8)]
    if time.monotonic() < begun + 3:
        assert kept == [True] * 6  # on each of the workers
    until(lambda: call(server)[2]["overrides"] == [], "the end of the override")
    assert time.monotonic() - begun >= 3
    assert not any(links_of(sink, server, n) for n in range(8, 14))
    assert [each["state"] for each in call(server)[2]["collected"] if each["component"] == "join"] == ["some"]
    server.stop()


def test_impossible_rules_are_rejected(braid, sink):
    server = braid(pipelines(exporter("grpc", sink), processors={"join": None}, extensions=CONTROL))
    # without a target; every link is kept anyway
    for override in ({"profile_types": ["cpu"]}, {"sampling_percentage": 100}):
        status, _, reply = call(server, "POST", body={"service": "shop", "duration": "1m", **override})
        assert status == 422 and "no component can do that" in reply["error"]["message"]
    status, _, reply = call(server, "POST", body={"service": "shop", "duration": "2h"})
    assert (status, reply["error"]["field"]) == (400, "duration")
    assert call(server, "POST", body="{" * 5000)[0] == 400
    assert call(server, "POST", body=" " * 8193)[0] == 413
    server.stop()


def test_the_readme(braid, sink, program):
    """Runs the first command of the README, with another port."""
    config_of_readme = config(sink, {"targets": target(program), "scrape_interval": "60s"}, extensions=CONTROL)
    config_of_readme["receivers"]["pprof"]["targets"][0]["labels"]["service_name"] = "checkout"
    server = braid(config_of_readme)
    [command] = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    command = command.replace("localhost:13134", server.address("http", "extension/control"))
    done = subprocess.run(["sh", "-c", command.replace("curl ", "curl -sS --fail ")], capture_output=True, text=True,
                          timeout=DEADLINE_S, env={"BRAID_CONTROL_TOKEN": TOKEN, "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["profile_types"] == ["cpu"]
    server.stop()


# --- Authorization


def test_without_the_token(braid, sink):
    server = braid(pipelines(exporter("grpc", sink), extensions=CONTROL))
    for token in (None, "", TOKEN[:-1], TOKEN + "x", TOKEN.upper()):
        status, headers, reply = call(server, token=token)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert TOKEN not in json.dumps(reply)
    assert call(server)[0] == 200
    assert server.metrics()["braid_control_unauthorized"] == {'extension="control"': 5}
    server.stop()
    assert len(re.findall("did not have the token", server.log())) == 1
    assert TOKEN not in server.log()


def test_token_guesses_are_slowed_down(braid, sink):
    """A client with the token is not slowed down by the guesses of others."""
    server = braid(pipelines(exporter("grpc", sink), extensions=CONTROL))
    answers = [(call(server, token="x" * len(TOKEN)), call(server)[0]) for _ in range(40)]
    assert {right for _, right in answers} == {200}
    codes = [wrong[0] for wrong, _ in answers]
    assert codes[:10] == [401] * 10 and codes[10] == 429 and set(codes) == {401, 429}
    assert {wrong[1]["Retry-After"] for wrong, _ in answers if wrong[0] == 429} == {"1"}
    metrics = server.metrics()
    assert metrics["braid_control_unauthorized"] == {'extension="control"': 40}
    assert metrics["braid_control_throttled"] == {'extension="control"': codes.count(429)}
    server.stop()


def test_an_invalid_filter_ends_no_rule(braid, sink):
    join = {"join": {"keep": {"failed": False}}}
    server = braid(pipelines(exporter("grpc", sink), processors=join, extensions=CONTROL))
    override = post(server, service="shop", duration="1h", sampling_percentage=100)
    for query in ("?service=%zz", "?service=", "?service=a&service=b", "?servic=a"):
        status, _, reply = call(server, "DELETE", query)
        assert status == 400 and reply["error"]["message"]
    assert [each["id"] for each in call(server)[2]["overrides"]] == [override["id"]]
    server.stop()


def run(tmp_path, what, sink, **control):
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(pipelines(exporter("grpc", sink), extensions={"control": control})))
    done = subprocess.run([BINARY, what, "--config", str(path)], capture_output=True, text=True, timeout=DEADLINE_S)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("control, error", [
    ({}, "extensions::control::token: must be set, to 16 characters or more"),
    ({"token": "short"}, "extensions::control::token: must be set, to 16 characters or more"),
    ({"token": TOKEN, "endpoint": "0.0.0.0:13134"},
     "extensions::control::endpoint: is not a loopback address; set allow_remote: true"),
    ({"token": TOKEN, "endpoint": ":13134"},
     "extensions::control::endpoint: is not a loopback address; set allow_remote: true"),
])
def test_invalid_configs_are_rejected(tmp_path, sink, control, error):
    code, text = run(tmp_path, "validate", sink, **control)
    assert code != 0 and error in text
    assert TOKEN not in text


def test_the_printed_config(tmp_path, sink):
    code, text = run(tmp_path, "print-config", sink, token=TOKEN, endpoint="0.0.0.0:1", allow_remote=True)
    assert code == 0 and "[REDACTED]" in text and TOKEN not in text
    assert run(tmp_path, "validate", sink, token=TOKEN, endpoint="0.0.0.0:1", allow_remote=True)[0] == 0


# --- Load shedding


@pytest.mark.parametrize("shed_traces", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_adaptive_rejects_profiles_before_traces(braid, sink, shed_traces, workers):
    """Any load exceeds a limit of a millionth of a CPU."""
    adaptive = {"cpus": 0.000001, "check_interval": "100ms", "shed_traces": shed_traces}
    server = braid(pipelines(exporter("grpc", sink), extensions={"adaptive": adaptive, **CONTROL}, workers=workers))
    last = 4 if shed_traces else 3
    until(lambda: call(server)[2]["shedding"]["step"] == last, "the last step")
    assert server.metrics()["braid_adaptive_step"] == {'extension="adaptive"': last}

    def send(signal):
        request = otlp.request_of(signal, 1).SerializeToString()
        return [clients.grpc(server.grpc, signal, request).code for _ in range(4)]
    assert send(PROFILES) == ["UNAVAILABLE"] * 4
    assert send(TRACES) == ["UNAVAILABLE" if shed_traces else "OK"] * 4
    refused = server.metrics()["braid_shed_requests"]
    assert refused['signal="profiles",how="refused"'] == 4
    assert refused['signal="traces",how="refused"'] == (4 if shed_traces else 0)
    server.wait_log("CPU usage is .*: profiles are refused")
    steps = re.findall(r"CPU usage is [0-9]+%: (.*)", server.log())
    assert steps[:3] == ["one of two profiles is dropped", "three of four profiles are dropped",
                         "profiles are refused"]
    server.stop()


def test_adaptive_does_not_affect_an_idle_process(braid, sink):
    server = braid(pipelines(exporter("grpc", sink), extensions={"adaptive": {"check_interval": "100ms", "cpus": 4096}}))
    until(lambda: server.metrics()["braid_adaptive_cpu_percentage"]['extension="adaptive"'] > 0, "a look")
    for signal in (TRACES, PROFILES):
        request = otlp.request_of(signal, 3).SerializeToString()
        assert clients.grpc(server.grpc, signal, request).code == "OK"
    server.stop()
