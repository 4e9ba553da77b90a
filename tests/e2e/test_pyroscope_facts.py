# SPDX-License-Identifier: Apache-2.0
"""The same queries for the same profiles: recorded answers of a real Pyroscope compared with
Braid's.

harness/pyroscope_scene.py has profiles and queries; data/pyroscope/answers.jsonl the answers of
Pyroscope 2 (commit 3fe6a45 of August 2026, one process, storage v2) to them. With
PYROSCOPE=<binary> that server is started and queried instead; with RECORD=1 as well, its answers
are written to the file. Known differences are listed here, and in the README of extensions/query."""

import base64
import collections
import json
import os
import pathlib
import urllib.parse

import pytest

import ingest
import peers
import pyroscope_scene as scene
from braid import Braid

ANSWERS = pathlib.Path(__file__).parents[1] / "data" / "pyroscope" / "answers.jsonl"
PUSH = "/push.v1.PusherService/Push"
QUESTIONS = list(scene.questions())


def text(value):
    return json.dumps(value, sort_keys=True)


def answer_of(call, question):
    """Returns (status, body) of an answer; call: as peers.Peer.call."""
    method, asked, accept = question
    if method.startswith("/"):
        return call(f"{method}?{urllib.parse.urlencode(asked)}", accept=accept)
    return call(f"/querier.v1.QuerierService/{method}", json.dumps(asked).encode(), accept=accept)


def push(call):
    for each in scene.series():
        status, body = call(PUSH, ingest.push_request(each).SerializeToString(), "application/proto")
        assert status == 200, body


def accepted(answer):
    return answer if answer[0] == 200 else None


def real_answers(folder):
    server = peers.pyroscope(folder)
    try:
        peers.ready(server, lambda: server.call("/querier.v1.QuerierService/ProfileTypes", b"{}")[0] == 200, "Pyroscope")
        push(lambda *request: peers.ready(server, lambda: accepted(server.call(*request)), "Pyroscope's push"))
        return {text(question): [status, peers.as_json(body)]
                for question in QUESTIONS for status, body in [answer_of(server.call, question)]}
    finally:
        server.stop()


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Returns {query: [status, answer]} of Pyroscope."""
    if not peers.PYROSCOPE:
        return dict(map(json.loads, ANSWERS.read_text().splitlines()))
    found = real_answers(tmp_path_factory.mktemp("pyroscope"))
    if os.environ.get("RECORD"):
        ANSWERS.write_text("".join(text(each) + "\n" for each in found.items()))
    return found


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pyroscope-facts")
    server = Braid({"receivers": {"pyroscope": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}},
                    "exporters": {"store": {"directory": str(folder / "store"), "retention": {"max_age": "0s"}}},
                    "extensions": {"query": {"endpoint": "127.0.0.1:0"}},
                    "service": {"extensions": ["query"], "telemetry": {"metrics": {"level": "none"}},
                                "pipelines": {"profiles": {"receivers": ["pyroscope"], "exporters": ["store"]}}}},
                   folder / "braid")
    try:
        at = {True: server.address("http", "receiver/pyroscope"), False: server.address("http", "extension/query")}

        def send(path, *rest, **headers):
            peer = peers.Peer.__new__(peers.Peer)
            peer.address = at[path == PUSH]
            return peer.call(path, *rest, **headers)
        push(send)
        yield send
        server.stop()
    finally:
        server.kill()


# --- Compared parts of an answer: unordered values are compared without their order ------------------------------------

def bars(flame, step=4):
    """Returns {path of names: (total, self)}; for a difference with both sides."""
    names, levels, above, found = flame.get("names", []), flame.get("levels", []), [], {}
    for level in levels:
        values = [int(value) for value in (level.get("values", []) if isinstance(level, dict) else level)]
        at, row = [0, 0], []
        for i in range(0, len(values), step):
            bar = values[i:i + step]
            sides = [bar[:3]] if step == 4 else [bar[:3], bar[3:6]]
            begin = sum(place + side[0] for place, side in zip(at, sides))
            at = [place + side[0] + side[1] for place, side in zip(at, sides)] + [0] * (2 - len(sides))
            row.append((begin, sum(at), names[bar[-1]], tuple(side[1:] for side in sides)))
        placed = []
        for begin, end, name, figures in row:
            path = next((f"{upper};{name}" for low, high, upper in above if low <= begin and end <= high), name)
            placed.append((begin, end, path))
            found[path] = figures
        above = placed
    return found


def pprof_of(profile):
    texts = profile.get("stringTable", [])
    functions = {each["id"]: texts[int(each.get("name", 0))] for each in profile.get("function", [])}
    places = {each["id"]: [functions[line["functionId"]] for line in each["line"]] for each in profile.get("location", [])}
    stacks = collections.Counter()
    for sample in profile.get("sample", []):
        stacks[";".join(name for place in sample.get("locationId", []) for name in places[place])] += int(sample["value"][0])
    return {"types": [[texts[int(kind.get("type", 0))], texts[int(kind.get("unit", 0))]]
                      for kind in profile.get("sampleType", [])], "stacks": stacks}


def labels(pairs):
    return tuple(sorted((pair["name"], pair["value"]) for pair in pairs or ()))


def point(each):
    """Ids of profiles differ between servers."""
    found = [round(each.get("value", 0), 3)]
    for exemplar in each.get("exemplars", []):
        found.append((exemplar["value"], exemplar["timestamp"], exemplar.get("spanId"), labels(exemplar.get("labels"))))
    return found


def slots(series):
    return {slot["timestamp"]: (slot.get("yMin"), slot.get("counts"), sorted(
        (each["value"], each["timestamp"], each.get("spanId", "")) for each in slot.get("exemplars", [])))
            for slot in series.get("slots", [])}


def shape(method, answer):
    """Returns the compared parts of an answer with status 200."""
    if isinstance(answer, str):
        return answer
    if method in ("SelectMergeStacktraces", "SelectMergeSpanProfile") and not ("pprof" in answer or "tree" in answer):
        flame = answer.get("flamegraph", {})
        return int(flame.get("total", 0)), int(flame.get("maxSelf", 0)), bars(flame)
    if method == "SelectMergeProfile" or "pprof" in answer:
        return pprof_of(answer["pprof"].get("profile", {}) if "pprof" in answer else answer)
    if "tree" in answer:
        return base64.b64decode(answer["tree"])
    if method in ("LabelNames", "LabelValues"):
        return sorted(answer.get("names", []))
    if method == "ProfileTypes":
        return sorted(map(text, answer.get("profileTypes", [])))
    if method == "Series":
        return sorted(labels(each.get("labels")) for each in answer.get("labelsSet", []))
    if method == "SelectSeries":
        return {labels(each.get("labels")): {int(one["timestamp"]): point(one) for one in each["points"] if one.get("value")}
                for each in answer.get("series", [])}
    if method == "SelectHeatmap":
        return {labels(each.get("labels")): slots(each) for each in answer.get("series", [])}
    if method in ("Diff", "/pyroscope/render-diff"):
        flame = answer.get("flamegraph", answer)
        return int(flame.get("leftTicks", 0)), int(flame.get("rightTicks", 0)), bars(flame.get("flamebearer", flame), 7)
    if method == "/pyroscope/render":
        lines = {name: answer["timeline"] if name == "" else (answer["groups"] or {})[name]
                 for name in ["", *(answer["groups"] or {})]}
        return {"bars": bars(answer["flamebearer"]), "ticks": answer["flamebearer"]["numTicks"],
                "metadata": {key: value for key, value in answer["metadata"].items() if key != "spyName"},
                "lines": {name: (line["startTime"], line["durationDelta"],
                                 {i: value for i, value in enumerate(line["samples"]) if value})
                          for name, line in lines.items()}}
    return answer


def known(question):
    """Returns the reason why Braid's answer to a query differs; None: it does not."""
    method, asked, _ = question
    if asked.get("format") in ("PROFILE_FORMAT_DOT", "dot"):
        return "drawings of Graphviz are not made"
    if asked.get("spanSelector") and asked.get("traceIdSelector"):
        return "span_selector and trace_id_selector may be combined"
    if asked.get("traceIdSelector") == ["ab"]:
        return "short trace ids are padded with zeros"
    if asked.get("exemplarType") == "EXEMPLAR_TYPE_SPAN" and method == "SelectSeries":
        return "series have exemplars of spans"
    if method == "SelectSeries" and "stackTraceSelector" in asked:
        return "Pyroscope ignores stack_trace_selector here"
    if asked.get("aggregation") == "TIME_SERIES_AGGREGATION_TYPE_AVERAGE" and asked["step"] == 60:
        return "Pyroscope adds up where an average is asked for"
    if method == "/pyroscope/label-values":
        return "times may be called from and until"
    return None


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: f"{question[0]}-{QUESTIONS.index(question)}")
def test_answer_equals_pyroscopes(answers, call, question):
    method = question[0]
    status, expected = answers[text(question)]
    got_status, body = answer_of(call, question)
    got = peers.as_json(body)
    equal = (got_status == 200) == (status == 200) and (status != 200 or shape(method, got) == shape(method, expected))
    if known(question):
        assert not equal, "no longer different"
    elif status == got_status == 200:
        assert shape(method, got) == shape(method, expected)
    else:
        assert equal, (status, expected, got_status, got)
