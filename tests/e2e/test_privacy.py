# SPDX-License-Identifier: Apache-2.0
"""GET /api/braid/privacy lists stored data that may be private, and redacted data with the rule
that applied."""

import json
import urllib.request

import otlp
import shop
from braid import DEADLINE_S, pipelines, until
from clients import grpc
from otlp import PROFILES, TRACES

RANGE = f"?start={shop.START // 1_000_000_000 - 60}&end={shop.START // 1_000_000_000 + 60}"
MAIL = "anna.berg@example.com"
CARD = "4111111111111111"


def fetch(running, path):
    url = f"http://{running.address('http', node='extension/query')}/api/braid/{path}"
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return json.load(answer)


def start(braid, folder, redaction=None):
    return braid(pipelines({"store": {"directory": str(folder)}}, processors={"redaction": redaction} if redaction is not None else {},
                           extensions={"query": {"endpoint": "127.0.0.1:0"}}))


def private_spans():
    request = shop.spans()
    span = request.resource_spans[0].scope_spans[0].spans[0]
    for key, value in (("user.id", "anna"), ("password", "hunter2"), ("note", f"written by {MAIL}, twice {MAIL}"),
                       ("order.items", "3"), ("payment", f"card {CARD} of bob")):
        span.attributes.append(otlp.attribute(key, value))
    request.resource_spans[0].resource.attributes.append(otlp.attribute("host.folder", "/home/anna/shop"))
    event = span.events.add(name="exception", time_unix_nano=shop.START)
    event.attributes.append(otlp.attribute("exception.message", f"no mail box {MAIL}"))
    return request


def send(running, spans, samples):
    for signal, request in ((TRACES, spans), (PROFILES, samples)):
        grpc(running.grpc, signal, request.SerializeToString()).expect_ok()
    until(lambda: fetch(running, "status")["store"]["samples"] >= sum(shop.COUNTS.values()))


def found(answer):
    return {(each["place"], each["key"], each["kind"]): each for each in answer["found"]}


def test_private_data_is_found_and_not_shown(braid, tmp_path):
    running = start(braid, tmp_path)
    samples = shop.Profiles().add("shop", "main;mail_to_anna@example.com", 15, shop.TRACE, shop.SPAN["checkout"])
    samples.add(f"box of {MAIL}", "main", 1)
    send(running, private_spans(), samples.request)
    answer = fetch(running, "privacy" + RANGE)
    rows = found(answer)
    assert {key: row["count"] for key, row in rows.items()} == {
        ("span", "user.id", "person, by its key"): 1,
        ("span", "password", "secret, by its key"): 1,
        ("span", "note", "mail address"): 1,
        ("span", "payment", "card number"): 1,
        ("resource", "host.folder", "home folder"): 1,
        ("event", "exception.message", "mail address"): 1,
        ("label", "service_name", "mail address"): 1,
        ("function", "", "mail address"): 1,
    }
    assert rows[("span", "note", "mail address")]["example"] == "written by [REDACTED], twice [REDACTED]"
    assert rows[("span", "payment", "card number")]["example"] == "card [REDACTED] of bob"
    assert rows[("span", "note", "mail address")]["span_id"] == shop.SPAN["checkout"].hex()
    assert rows[("span", "note", "mail address")]["trace_id"] == shop.TRACE.hex()
    text = json.dumps([{**each, "service": ""} for each in answer["found"]])
    for private in (MAIL, "hunter2", CARD, "/home/anna"):
        assert private not in text
    assert answer["looked_at"]["spans"] == 4 and answer["processors"] == [] and answer["masked"] == []
    assert answer["cut"] is None


def test_suggested_options_remove_private_data(braid, tmp_path):
    """With the suggested options in a redaction before the store, no private data is found any
    more."""
    running = start(braid, tmp_path / "first")
    send(running, private_spans(), shop.samples())
    answer = fetch(running, "privacy" + RANGE)
    named = {each["kind"] for each in answer["found"]}
    config = {}
    for kind in answer["kinds"]:
        if kind["name"] in named:
            config.setdefault(kind["option"], []).append(kind["pattern"])
    running.stop()
    redacted = start(braid, tmp_path / "second", config)
    send(redacted, private_spans(), shop.samples())
    assert len(answer["found"]) == 6
    assert fetch(redacted, "privacy" + RANGE)["found"] == []


def test_masked_data_is_reported_with_its_rule(braid, tmp_path):
    running = start(braid, tmp_path, {
        "blocked_values": ["4[0-9]{15}", "[a-z.]+@example"], "function_names": {"words": ["checkout", "price"]},
        "file_paths": {"patterns": ["^sho"]}, "span_names": {"words": ["reserve"]}, "blocked_key_patterns": ["^user[.]"],
        "blocked_key_words": ["passw", "secret"]})
    samples = shop.Profiles().add("shop", "main;checkout;price", 15, shop.TRACE, shop.SPAN["checkout"])
    samples.label("user.id", "anna")
    spans = private_spans()
    send(running, spans, samples.request)
    again = private_spans()
    grpc(running.grpc, TRACES, again.SerializeToString()).expect_ok()
    answer = fetch(running, "privacy" + RANGE)
    assert answer["processors"] == ["redaction"]
    rows = {(row["place"], row["key"], row["rule"], row["became"]): row["count"] for row in answer["masked"]}
    mask = "[REDACTED]"
    assert rows == {
        ("span", "user.id", "blocked_key_patterns: ^user[.]", mask): 2,
        ("span", "password", "blocked_key_words: passw, secret", mask): 2,
        ("span", "note", "blocked_values: [a-z.]+@example", f"written by {mask}.com, twice {mask}.com"): 2,
        ("span", "payment", "blocked_values: 4[0-9]{15}", f"card {mask} of bob"): 2,
        ("event", "exception.message", "blocked_values: [a-z.]+@example", f"no mail box {mask}.com"): 2,
        ("name", "", "span_names.words: reserve", mask): 2,
        ("profile", "user.id", "blocked_key_patterns: ^user[.]", mask): 1,
        ("function", "", "function_names.words: checkout, price", mask): 2,
        ("path", "", "file_paths.patterns: ^sho", f"{mask}p.go"): 1,
    }
    assert answer["masked_left_out"] == 0
    for private in (MAIL, "hunter2", CARD, "anna"):
        assert private not in json.dumps([row["became"] for row in answer["masked"]])


def test_removed_keys_are_reported(braid, tmp_path):
    running = start(braid, tmp_path, {"allowed_keys": ["service.name", "step"]})
    grpc(running.grpc, TRACES, private_spans().SerializeToString()).expect_ok()
    until(lambda: fetch(running, "status")["store"]["spans"] == 4)
    rows = {(row["place"], row["key"], row["rule"], row["became"], row["count"]) for row in fetch(running, "privacy" + RANGE)["masked"]}
    assert rows == {("span", key, "allowed_keys", "", 1) for key in ("user.id", "password", "note", "order.items", "payment")} | {
        ("resource", "host.folder", "allowed_keys", "", 1), ("event", "exception.message", "allowed_keys", "", 1)}


def test_the_table_is_bounded(braid, tmp_path):
    running = start(braid, tmp_path, {"blocked_key_patterns": ["^secret"]})
    request = shop.spans()
    span = request.resource_spans[0].scope_spans[0].spans[0]
    for number in range(1200):
        span.attributes.append(otlp.attribute(f"secret {number} {'x' * 300}", "y"))
    grpc(running.grpc, TRACES, request.SerializeToString()).expect_ok()
    until(lambda: fetch(running, "status")["store"]["spans"] == 4)
    answer = fetch(running, "privacy" + RANGE)
    assert len(answer["masked"]) == 1000 and answer["masked_left_out"] == 200
    assert all(len(row["key"]) == 200 for row in answer["masked"])
