# SPDX-License-Identifier: Apache-2.0
"""Receiver pyroscope: the conversion of /ingest requests. Expected values come from Pyroscope's
source (pkg/og, api/model/labelset; named in the comments) and arithmetic."""

import datetime
import gzip
import json
import pathlib
import time
import zlib

import pytest
import zstandard

import otlp
import pprof
import profile_view
import snappy
from braid import Braid
from ingest import (OCTETS, START_NS, STACKS, Server, check_one, config, flat, form, http1,
                    ingest_path, make_pprof)

DATA = pathlib.Path(__file__).parents[1] / "data"
FOLDED = b"main;work 1\nmain 3\n"
# Nodes in depth-first order: length and bytes of a name, value, number of children.
TREE = b"\x00\x00\x01" b"\x04main\x03\x01" b"\x04work\x01\x00"
TRIE = b"\x00\x00\x01" b"\x04main\x03\x01" b"\x05;work\x01\x00"
SPEEDSCOPE = json.dumps({
    "$schema": "https://www.speedscope.app/file-format-schema.json",
    "shared": {"frames": [{"name": "main"}, {"name": "work"}]},
    "profiles": [{"type": "sampled", "name": "", "unit": "none", "startValue": 0, "endValue": 4,
                  "samples": [[0, 1], [0]], "weights": [1, 3]}]}).encode()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One process for all accepted requests; take() returns the result of the last one."""
    folder = tmp_path_factory.mktemp("ingest")
    process = Braid(config(folder / "profiles.json"), folder / "braid")
    yield Shared(process, folder / "profiles.json")
    process.stop()


class Shared(Server):
    def __init__(self, process, path):
        super().__init__(process, path)
        self._at = 0

    def take(self):
        """Returns the one request received since the last call. It arrives before the answer is
        sent."""
        with open(self._path, "rb") as file:
            file.seek(self._at)
            [line] = file.read().splitlines()
            self._at = file.tell()
        return otlp.from_json(otlp.PROFILES.request, line)

    def ingest(self, name, body, kind=OCTETS, encoding=None, **query):
        headers = {"Content-Type": kind, **({"Content-Encoding": encoding} if encoding else {})}
        answer = http1(self.address, ingest_path(name, **query), body, headers)
        assert (answer.code, answer.body) == (200, b"")
        return self.take()


# --- Formats and codings -------------------------------------------------------------------------

FORMATS = {
    "absent": (FOLDED, {}), "groups": (FOLDED, {}), "folded": (FOLDED, {}), "a new one": (FOLDED, {}),
    "lines": (b"main;work\nmain\nmain\nmain\n", {}), "tree": (TREE, {}), "trie": (TRIE, {}),
    "speedscope": (SPEEDSCOPE, {}), "pprof": (make_pprof(), {}),
    "by type: tree": (TREE, {"kind": "binary/octet-stream+tree"}),
    "by type: trie": (TRIE, {"kind": "binary/octet-stream+trie"}),
}
CODINGS = {
    None: bytes, "gzip": gzip.compress, "deflate": zlib.compress, "zlib": zlib.compress,
    "zstd": zstandard.compress, "snappy": snappy.block, "identity": bytes,
}


@pytest.mark.parametrize("coding", CODINGS, ids=str)
@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize("name", FORMATS)
def test_format(shared, name, layers, coding):
    body, more = FORMATS[name]
    for _ in range(layers):
        body = gzip.compress(body)
    query = {} if name == "absent" or more else {"format": name}
    request = shared.ingest("shop", CODINGS[coding](body), encoding=coding, **more, **query)
    check_one(request, "shop")


def test_two_gzip_members_form_one_body(shared):
    body = gzip.compress(FOLDED[:12]) + gzip.compress(FOLDED[12:])
    check_one(shared.ingest("shop", body), "shop")


def test_plain_data_declared_as_gzip_is_accepted(shared):
    """As in Pyroscope, which ignores the header: old SDKs declared plain data as gzip."""
    check_one(shared.ingest("shop", make_pprof(), encoding="gzip", format="pprof"), "shop")


FORMS = {
    "plain": (make_pprof(), {}), "gzip": (gzip.compress(make_pprof()), {}),
    "gzip twice": (gzip.compress(gzip.compress(make_pprof())), {}),
    "named pprof": (make_pprof(), {"format": "pprof"}),
    "named otherwise": (make_pprof(), {"format": "groups"}),
}


@pytest.mark.parametrize("coding", CODINGS, ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_form(shared, name, coding):
    profile, query = FORMS[name]
    kind, body = form(profile=profile)
    check_one(shared.ingest("shop", CODINGS[coding](body), kind, coding, **query), "shop")


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("head", [
    b"Content-Disposition: form-data; name=profile",
    b"content-disposition: FORM-DATA; filename=\"a;b\\\"c\"; name=\"profile\"\r\nContent-Type: x/y",
    b"Content-Disposition: form-data; name=\"profile\"\r\nContent-Length: 7\r\n"
    b"Content-Transfer-Encoding: binary",  # okhttp's
])
def test_parts(shared, head, pack):
    body = (b"preamble\r\n--a'b \r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n\r\n"
            b"--a'b\r\n" + head + b"\r\n\r\n" + pack(make_pprof()) + b"\r\n--a'b--\r\nepilogue")
    check_one(shared.ingest("shop", body, "Multipart/Form-Data; charset=x; boundary=\"a'b\""), "shop")


# --- Query: sampleRate, units, aggregationType, spyName, times ------------------------------------

@pytest.mark.parametrize("rate, period", [
    ({}, 10_000_000), ({"sampleRate": ""}, 10_000_000), ({"sampleRate": "100"}, 10_000_000),
    ({"sampleRate": "+50"}, 20_000_000), ({"sampleRate": "97"}, 1_000_000_000 // 97),
    ({"sampleRate": "0000000000250"}, 4_000_000), ({"sampleRate": "1000000000"}, 1),
    ({"sampleRate": "-5"}, 10_000_000), ({"sampleRate": "1e3"}, 10_000_000),
    ({"sampleRate": "99.9"}, 10_000_000), ({"sampleRate": "9" * 30}, 10_000_000),
])
@pytest.mark.parametrize("form_of", ["groups", "lines", "tree", "trie"])
def test_sample_rate(shared, rate, period, form_of):
    request = shared.ingest("shop", FORMATS[form_of][0], format=form_of, **rate)
    _, profile = check_one(request, "shop", stacks={("work", "main"): [period], ("main", ): [3 * period]})
    assert profile.period == period


def test_sample_rate_zero(shared):
    """Put: without a rate the values are not multiplied, and stay samples of count."""
    check_one(shared.ingest("shop", FOLDED, sampleRate=0), "shop", kind=("samples", "count"),
              stacks={("work", "main"): [1], ("main", ): [3]})


@pytest.mark.parametrize("units", ["", "samples", "bytes", "lock_nanoseconds", "no such"])
@pytest.mark.parametrize("aggregation", ["", "sum", "average", "no such"])
def test_units_and_aggregation_do_not_change_values(shared, units, aggregation):
    check_one(shared.ingest("shop", FOLDED, units=units, aggregationType=aggregation), "shop")


@pytest.mark.parametrize("spy, file, stacks", [
    ("", "app.py", STACKS), ("gospy", "app.py", STACKS), ("nodespy", "app.py", STACKS),
    ("pyspy", "/app.py", STACKS),  # FixFunctionNamesForScriptingLanguages: absolute paths are left out
    *((spy, "app.py", {("app.py work", "app.py main"): [10_000_000], ("app.py main", ): [30_000_000]})
      for spy in ("pyspy", "rbspy", "scripting")),
    ("rbspy", "/a.rb", {("/a.rb work", "/a.rb main"): [10_000_000], ("/a.rb main", ): [30_000_000]}),
])
def test_spy(shared, spy, file, stacks):
    body = make_pprof(file=file)
    resource, _ = check_one(shared.ingest("shop", body, format="pprof", spyName=spy), "shop", stacks=stacks)
    assert resource["pyroscope_spy"] == (spy or "unknown")


@pytest.mark.parametrize("spy", ["dotnetspy", "unknown"])
def test_dotnet(shared, spy):
    """fixSampleTypes; an unknown spy is .NET's when its config has inuse-space."""
    kind, body = form(profile=make_pprof(("inuse-space", "bytes"), values=((1, ), (3, ))),
                      sample_type_config=b'{"inuse-space":{"units":"bytes"}}')
    check_one(shared.ingest("shop", body, kind, spyName=spy), "shop", "memory", ("inuse_space", "bytes"),
              {("work", "main"): [1], ("main", ): [3]})


def stamp(text):
    moment = datetime.datetime.strptime(text, "%Y%m%d").replace(tzinfo=datetime.timezone.utc)
    return int(moment.timestamp()) * 10**9


@pytest.mark.parametrize("start, end, expected", [
    *((str(START_NS)[:n], str(START_NS + 10 * 10**9)[:n], (START_NS, 10 * 10**9)) for n in (10, 13, 16, 19)),
    # each time's unit is derived from its number of digits
    (str(START_NS)[:10], str(START_NS + 10 * 10**9), (START_NS, 10 * 10**9)),
    ("20260101", "20260102", (stamp("20260101"), 86400 * 10**9)),
    ("1767225600", "1767225590", (START_NS, 0)),  # Go's SDK when it is stopped
])
def test_times(shared, start, end, expected):
    for body, query in ((FOLDED, {}), (SPEEDSCOPE, {"format": "speedscope"}), (TREE, {"format": "tree"})):
        request = shared.ingest("shop", body, **{"from": start, "until": end}, **query)
        profile = flat(request)[0][4]
        assert (profile.time_unix_nano, profile.duration_nano) == expected


@pytest.mark.parametrize("query, ago", [
    ({}, 0), ({"from": "", "until": ""}, 0), ({"from": "now"}, 0), ({"from": "now-1h"}, 3600),
    ({"from": "now-1h30min"}, 5400), ({"from": "now-2d"}, 172800), ({"from": "no time"}, 0),
])
def test_times_from_now(shared, query, ago):
    before = time.time_ns()
    profile = flat(shared.ingest("shop", FOLDED, **query))[0][4]
    assert before <= profile.time_unix_nano + ago * 10**9 <= time.time_ns()
    assert abs(profile.duration_nano - ago * 10**9) < 10**9


@pytest.mark.parametrize("given, expected", [
    (START_NS + 5, START_NS + 5),           # the profile's time is preferred
    (0, START_NS), (START_NS // 1000, START_NS), (1, START_NS),  # fixTime: times of 1970 are ignored
])
def test_time_of_pprof(shared, given, expected):
    request = shared.ingest("shop", make_pprof(time_ns=given), format="pprof", **{"from": 1767225600})
    profile = flat(request)[0][4]
    assert (profile.time_unix_nano, profile.duration_nano) == (expected, 10 * 10**9)


# --- Names ---------------------------------------------------------------------------------------

# name: result with text, and with pprof if it differs
NAMES = {
    "shop": {"service.name": "shop"},
    "shop{}": {"service.name": "shop"},
    "shop{": {"service.name": "shop"},
    " shop { a = b , c=d }": {"service.name": "shop", "a": "b", "c": "d"},
    "shop{a=b,c=d}": {"service.name": "shop", "a": "b", "c": "d"},
    "shop{a=1,a=2}": {"service.name": "shop", "a": "2"},
    "shop{otel.scope.name=x/y,k8s.pod=p-1}": {"service.name": "shop", "otel.scope.name": "x/y", "k8s.pod": "p-1"},
    "shop{__session_id__=7,__hidden__=x}": {"service.name": "shop", "__session_id__": "7"},
    "shop{__name__=other}": {"service.name": "other"},
    "team/shop-1_a": {"service.name": "team/shop-1_a"},
    "shop{a=\"quoted\"}": {"service.name": "shop", "a": "\"quoted\""},
    "shop{a=ü€}": {"service.name": "shop", "a": "ü€"},
    "shop{a=x=y}": {"service.name": "shop", "a": "x=y"},
    "shop{service_name=x}": ({"service.name": "x", "app_name": "shop"}, {"service.name": "x"}),
    "shop{service_name=x,app_name=y}": {"service.name": "x", "app_name": "y"},
    "shop{app_name=y}": {"service.name": "shop", "app_name": "y"},
}
ADDED = {"pyroscope_spy": "unknown", "__delta__": "false"}


@pytest.mark.parametrize("name", NAMES)
def test_name(shared, name):
    expected = NAMES[name] if isinstance(NAMES[name], tuple) else (NAMES[name], NAMES[name])
    for body, query, labels in ((FOLDED, {}, expected[0]), (make_pprof(), {"format": "pprof"}, expected[1])):
        assert flat(shared.ingest(name, body, **query))[0][0] == {**labels, **ADDED}


COUNTS = {("work", "main"): [1], ("main", ): [3]}
# convertMetadata and Put, pkg/ingester/pyroscope/ingest_adapter.go
SUFFIXES = {
    "cpu": ("process_cpu", "cpu", "nanoseconds"), "itimer": ("process_cpu", "cpu", "nanoseconds"),
    **{unit: ("wall", "wall", "nanoseconds")
       for unit in ("wall", "seconds", "milliseconds", "microseconds", "nanoseconds")},
    "inuse_objects": ("memory", "inuse_objects", "count"), "alloc_objects": ("memory", "alloc_objects", "count"),
    "inuse_space": ("memory", "inuse_space", "bytes"), "alloc_space": ("memory", "alloc_space", "bytes"),
    "bytes": ("memory", "samples", "bytes"), "live": ("memory", "live", "count"),
    "goroutines": ("goroutine", "goroutines", "count"), "exceptions": ("exceptions", "samples", "count"),
    **{f"alloc_{where}_tlab_{what}": ("memory", f"alloc_{where}_tlab_{what}",
                                      "bytes" if what == "bytes" else "count")
       for where in ("in_new", "outside") for what in ("objects", "bytes")},
    **{f"{what}_count": (name, "contentions", "count")
       for what, name in (("mutex", "mutex"), ("block", "block"), ("lock", "block"))},
    **{f"{what}_duration": (name, "delay", "nanoseconds")
       for what, name in (("mutex", "mutex"), ("block", "block"), ("lock", "block"))},
}


@pytest.mark.parametrize("form_of", ["groups", "lines", "tree", "trie", "speedscope"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_suffix(shared, suffix, form_of):
    name, kind, unit = SUFFIXES[suffix]
    request = shared.ingest(f"team.shop.{suffix}{{a=b}}", FORMATS[form_of][0], format=form_of)
    check_one(request, "team.shop", name, (kind, unit), STACKS if kind in ("cpu", "wall") else COUNTS)


def test_the_suffix_is_kept_in_formats_with_types(shared):
    check_one(shared.ingest("team.shop.cpu", make_pprof(), format="pprof"), "team.shop.cpu")


# --- pprof ---------------------------------------------------------------------------------------

# metricName, pkg/og/convert/pprof/profile.go: (sample types, display names): __name__
METRICS = [
    (["cpu"], {}, "process_cpu"), (["samples", "cpu"], {}, "process_cpu"), (["samples"], {}, "process_cpu"),
    (["samples", "wall"], {}, "wall"), (["cpu", "wall"], {}, "wall"), (["inuse_space"], {}, "memory"),
    (["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"], {}, "memory"),
    (["space"], {}, "memory"), (["objects"], {}, "memory"), (["goroutine"], {}, "goroutines"),
    (["contentions", "delay"], {}, "mutex"), (["threadcreate"], {}, "threadcreate"),
    (["contentions", "delay"], {"contentions": "block_count", "delay": "block_duration"}, "block"),
    (["contentions"], {"other": "block_count"}, "contentions"), (["samples"], {"samples": ""}, "samples"),
    (["goroutine"], {"goroutine": "goroutines"}, "goroutines"), (["a", "b"], {}, "b"),
]


@pytest.mark.parametrize("types, display, name", METRICS)
def test_metric_name(shared, types, display, name):
    body = make_pprof(*((kind, "count") for kind in types), values=((1, ) * len(types), (3, ) * len(types)))
    fields = {"profile": body}
    if display:
        fields["sample_type_config"] = json.dumps({key: {"display-name": text} for key, text in display.items()}).encode()
    kind, data = form(**fields)
    found = flat(shared.ingest("shop", data, kind))
    assert [(each[1], each[2], each[5]) for each in found] == [(name, kind, COUNTS) for kind in types]


@pytest.mark.parametrize("given, marked", [
    ({}, []), ({"alloc_space": {"cumulative": True}}, ["alloc_space"]),
    ({"alloc_space": {"cumulative": False}, "inuse_space": None}, []),
    ({"alloc_space": {"Cumulative": True, "units": "bytes", "aggregation": "sum", "sampled": True, "more": [1]},
      "inuse_space": {"cumulative": True}}, ["alloc_space", "inuse_space"]),
])
def test_cumulative(shared, given, marked):
    kind, data = form(profile=make_pprof(("alloc_space", "bytes"), ("inuse_space", "bytes"), values=((1, 2), (3, 4))),
                      sample_type_config=json.dumps(given).encode())
    samples = profile_view.samples(shared.ingest("shop", data, kind))
    found = {each["type"][0] for each in samples if "pprof.profile.cumulative" in each["profile"][3]}
    assert len(samples) == 4 and sorted(found) == marked


SPAN, TRACE = "00f067aa0ba902b7", "4bf92f3577b34da6a3ce929d0e0e4736"
OTHER, ZEROS = "1112131415161718", "0" * 32
LABELS = [
    ({"span_id": SPAN, "trace_id": TRACE}, (TRACE, SPAN)), ({"span_id": SPAN}, (ZEROS, SPAN)),
    ({"profile_id": SPAN}, (ZEROS, SPAN)), ({"profile_id": SPAN, "trace_id": TRACE, "span": "GET /"}, (TRACE, SPAN)),
    ({"span_id": SPAN, "profile_id": OTHER}, (ZEROS, SPAN)), ({"span_id": SPAN.upper()}, (ZEROS, SPAN)),
    ({"span_id": SPAN[2:], "trace_id": TRACE[1:]}, ("0" + TRACE[1:], SPAN)),  # missing leading zeros
    ({"span_id": SPAN, "trace_id": "1" + TRACE}, (ZEROS, SPAN)), ({"trace_id": TRACE}, None),
    ({"span_id": "1" + SPAN}, None), ({"span_id": "x" * 16}, None),
    ({"span_id": "0" * 16}, None),
    ({"span_id": (7, "")}, None), ({}, None), ({"thread": "worker"}, None),
    ({"bytes": (1024, "bytes")}, None), ({"bytes": (-1, ""), "size": (7, "kilobytes"), "span_id": SPAN}, (ZEROS, SPAN)),
]


@pytest.mark.parametrize("labels, link", LABELS)
def test_labels(shared, labels, link):
    """All labels are kept, numbers with their unit; those that name a span also become a link."""
    kept = {key: (value, "") if isinstance(value, str) else value for key, value in labels.items()}
    for sample in profile_view.samples(shared.ingest("shop", make_pprof(labels=labels), format="pprof")):
        assert (sample["attributes"], sample["link"]) == (kept, link)


@pytest.mark.parametrize("period", [None, ("cpu", "nanoseconds", 10_000_000), ("space", "bytes", 524288)])
def test_period(shared, period):
    for sample in profile_view.samples(shared.ingest("shop", make_pprof(period=period), format="pprof")):
        assert (*sample["period_type"], sample["period"]) == (period or ("", "", 0))


@pytest.mark.parametrize("name", ["allocs", "block", "cpu", "goroutine", "heap", "mutex", "threadcreate"])
def test_go(shared, name):
    """Each value in files of Go's runtime, compared with an independent reader."""
    raw = (DATA / "pprof" / f"{name}.pb.gz").read_bytes()
    profile = pprof.parse(raw)
    kinds, period_type, period, default = pprof.types(profile)
    samples = profile_view.samples(shared.ingest("shop", raw, format="pprof"))
    stacks = pprof.frames(profile)
    expected = [(kind, pprof.labels_of(profile, each), each.value[at],
                 tuple(frame for location in each.location_id for frame in stacks[location]))
                for each in profile.sample for at, kind in enumerate(kinds)]
    found = [(each["type"], tuple(sorted((key, value) if isinstance(value, str) else (key, value, unit)
                                         for key, (value, unit) in each["attributes"].items())),
              each["values"][0],
              tuple((line[0], line[2], line[4]) for frame in each["frames"] for line in frame["lines"]))
             for each in samples]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert {(each["period_type"], each["period"]) for each in samples} <= {(period_type, period)}
    scope = samples[0]["scope"][1] if samples else {}
    assert scope.get("pprof.scope.default_sample_type", "") == default


# --- JFR -----------------------------------------------------------------------------------------

def jfr_view(request):
    """Returns {(name, type, unit, period type, period unit): {(stack, labels): value}}, and the
    resource."""
    found = {}
    for each in profile_view.samples(request):
        key = each["scope"][1]["pyroscope.name"], *each["type"], *each["period_type"]
        stack = ";".join(f"{line[0]}:{line[4]}" for frame in each["frames"] for line in frame["lines"])
        labels = ",".join(f"{key}={value[0]}" for key, value in sorted(each["attributes"].items()))
        lines = found.setdefault(key, {})
        lines[stack, labels] = lines.get((stack, labels), 0) + each["values"][0]
        ids = {key: value[0] for key, value in each["attributes"].items()}
        assert each["link"] == ((ids["trace_id"], ids["profile_id"]) if "profile_id" in ids else None)
    return found


def jfr_expected(name):
    """Returns the result of Pyroscope's jfr-parser, in the same form (tests/data/jfr/README.md)."""
    found, text = {}, gzip.decompress((DATA / "jfr" / f"{name}.expected.gz").read_bytes()).decode()
    for line in text.splitlines()[1:]:
        if line.startswith("# "):
            lines = found.setdefault(tuple((line[2:].split(" ") + [""] * 5)[:5]), {})
            continue
        rest, value = line.rsplit(" ", 1)
        stack, _, labels = rest.partition("|")
        lines[stack, labels] = int(value)
    return found


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda data: gzip.compress(gzip.compress(data))],
                         ids=["plain", "gzip", "gzip twice"])
@pytest.mark.parametrize("coding", [None, "gzip", "zstd"])
def test_jfr_form(shared, pack, coding):
    """io.pyroscope's Java agent: service_name comes from its labels, and the name's suffix is kept."""
    recording = gzip.decompress((DATA / "jfr" / "agent-itimer.jfr.gz").read_bytes())
    labels = (DATA / "jfr" / "agent-itimer.labels.pb").read_bytes()
    kind, body = form(jfr=pack(recording), labels=pack(labels))
    request = shared.ingest("shop.itimer{service_name=cart}", CODINGS[coding](body), kind, coding, format="jfr",
                            spyName="javaspy", sampleRate=100, **{"from": 1767225600, "until": 1767225610})
    assert jfr_view(request) == jfr_expected("agent-itimer")
    for resource, _, _, _, profile, _ in flat(request):
        assert resource == {"service.name": "cart", "app_name": "shop.itimer", "jfr_event": "itimer",
                            "pyroscope_spy": "javaspy", "__delta__": "false"}
        assert profile.time_unix_nano == START_NS


@pytest.mark.parametrize("coding", [None, "gzip", "zstd"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_jfr_raw(shared, pack, coding):
    """The recording is the whole body, which the real server accepts only uncompressed; without
    labels only ids remain."""
    recording = pack(gzip.decompress((DATA / "jfr" / "agent-itimer.jfr.gz").read_bytes()))
    request = shared.ingest("shop", CODINGS[coding](recording), encoding=coding, format="jfr", sampleRate=100)
    found, expected = jfr_view(request), jfr_expected("agent-itimer")
    assert found.keys() == expected.keys()
    for key, lines in found.items():
        assert sum(lines.values()) == sum(expected[key].values())
        assert not any("customer" in labels or "region" in labels for _, labels in lines)
