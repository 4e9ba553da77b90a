# SPDX-License-Identifier: Apache-2.0
"""A request that is split into pieces and rejected as a whole gets the answer of a small request,
at every receiver. A request of which a part was accepted succeeds with a rejected part."""

import os

import pytest

import clients
import ingest
import otlp
from braid import exporter, pipelines, until
from otlp import PROFILES, TRACES
from sink import REFUSE, Reply

LINES = b"".join(b"main;f%d;g%d;h%d 1\n" % (i % 50, i % 997, i) for i in range(60_000))
DIRECT = {"sending_queue": {"enabled": False}, "retry_on_failure": {"enabled": False}}


@pytest.fixture
def server(braid, sink, tmp_path):
    config = pipelines(exporter("proto", sink, **DIRECT))
    config["receivers"] |= {
        "pyroscope": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}},
        "pprof": {"http": {"endpoint": "127.0.0.1:0"},
                  "file": {"path": str(tmp_path / "watched"), "poll_interval": "50ms", "after": "delete"}}}
    config["service"]["pipelines"]["profiles"] = {**config["service"]["pipelines"]["profiles"],
                                                  "receivers": ["otlp", "pyroscope", "pprof"]}
    (tmp_path / "watched").mkdir()
    return braid(config)


def send(server, what):
    """Sends a large request. Returns (HTTP status, answer)."""
    if what == "traces":
        body = otlp.request_of(TRACES, 20_000).SerializeToString()
        answer = clients.http(server.http, TRACES.path, body)
    elif what == "profiles":
        body = otlp.request_of(PROFILES, 20_000).SerializeToString()
        answer = clients.http(server.http, PROFILES.path, body)
    elif what == "ingest":
        answer = ingest.http1(server.address("http", "receiver/pyroscope"), "/ingest?name=x.cpu", LINES,
                              {"content-type": "text/plain"})
    else:
        answer = ingest.http1(server.address("http", "receiver/pprof"), "/v1/profiles/upload?name=x.cpu", LINES,
                              {"content-type": "text/plain"})
    return answer


@pytest.mark.parametrize("what", ["traces", "profiles", "ingest", "upload"])
def test_a_request_rejected_as_a_whole_is_answered_as_rejected(server, sink, what):
    sink.reply = REFUSE
    answer = send(server, what)
    assert answer.code == 400 and b"refused by the sink" in answer.body, answer
    kind = "traces" if what == "traces" else "profiles"
    account = server.ledger(kind)
    assert account["rejected"] == account["received"] > 10_000 and account["dropped"] == 0


@pytest.mark.parametrize("what", ["traces", "profiles", "ingest", "upload"])
def test_a_partially_accepted_request_is_a_success(server, sink, what):
    sink.script, sink.reply = [Reply()], REFUSE
    answer = send(server, what)
    assert answer.code == 200, answer
    account = server.ledger("traces" if what == "traces" else "profiles")
    assert account["sent"] > 0 and account["dropped"] > 0 and account["rejected"] == 0


def test_a_file_that_was_not_delivered_is_kept(server, sink, tmp_path):
    sink.reply = REFUSE
    for name, text in (("small.folded", b"main;f 1\n"), ("large.folded", LINES)):
        (tmp_path / "watched" / "part").write_bytes(text)
        os.rename(tmp_path / "watched" / "part", tmp_path / "watched" / name)

    def results():
        return {labels: n for labels, n in server.metrics()["braid_receiver_pprof_files"].items() if n}
    until(lambda: sum(results().values()) >= 2, "both files were read")
    assert all('result="failed"' in labels for labels in results()), results()
    assert {path.name for path in (tmp_path / "watched").iterdir()} >= {"small.folded", "large.folded"}
