# SPDX-License-Identifier: Apache-2.0
"""pprofs of Go's runtime and of the SDKs of other languages: the output of Go's `pprof -raw`
compared with Braid's conversion.

tests/data/pprof contains both, and the programs that made them: make.go and make_sdks.py.
"""

import json
import os
import pathlib
import re
import subprocess
from datetime import datetime, timezone

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("BRAID_BUILD", ROOT / "build")) / "tests/support/profile_tool"
DATA = ROOT / "tests/data/pprof"
NAMES = sorted(path.name.removesuffix(".pb.gz") for path in DATA.glob("*.pb.gz"))


def convert(name, *options):
    result = subprocess.run([TOOL, "pprof", DATA / f"{name}.pb.gz", *options],
                            capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


# --- Go's view --------------------------------------------------------------------------------


class Raw:
    """The text of `go tool pprof -raw`."""

    def __init__(self, name):
        head, rest = (DATA / f"{name}.txt").read_text().split("Samples:\n")
        samples, rest = rest.split("Locations\n")
        locations, mappings = rest.split("Mappings\n")
        self.head = dict(line.split(": ", 1) for line in head.splitlines())
        self.mappings = dict(self.mapping(line) for line in mappings.splitlines() if line)
        self.locations = {}
        self.read_locations(locations)
        types, *samples = samples.splitlines()
        self.types = [re.fullmatch(r"(.+)/(.+?)(\[dflt\])?", t).groups() for t in types.split()]
        self.samples = []
        for line in samples:
            if match := re.fullmatch(r" *([-\d ]+): ([\d ]*)", line):
                values = [int(v) for v in match[1].split()]
                stack = [self.locations[i] for i in match[2].split()]
                self.samples.append((values, stack, {}))
            else:
                self.samples[-1][2].update(re.findall(r"(\w+):\[(.*?)\]", line))

    @staticmethod
    def mapping(line):
        match = re.fullmatch(r"(\d+): (\S+)/(\S+)/(\S+) (\S*) (\S*) ?((?:\[..\])*)", line)
        flags = re.findall(r"\[(..)\]", match[7])
        mapping = (*(int(match[i], 16) for i in (2, 3, 4)), match[5], match[6], flags)
        return match[1], mapping if any(mapping) else None  # pprof adds a missing mapping

    def read_locations(self, text):
        for line in text.splitlines():
            if match := re.fullmatch(r" *(\d+): (\S+) (?:M=(\d+) )?(.*)", line):
                address, mapping, frames = int(match[2], 16), self.mappings.get(match[3]), []
                self.locations[match[1]] = (address, mapping, frames)
                line = match[4]
            if match := re.fullmatch(r" *(.*?) (<.*>|\S*):(\d+):(\d+) s=(\d+)(?:\((.*)\))?", line):
                system = match[1] if match[6] is None else match[6]  # the system name is in brackets if it differs
                frames.append((match[1], system, match[2], *(int(match[i]) for i in (3, 4, 5))))


# --- Ours -------------------------------------------------------------------------------------


class Ours:
    """An export request with its indices resolved."""

    FLAGS = {"functions": "FN", "filenames": "FL", "line_numbers": "LN", "inline_frames": "IN"}

    def __init__(self, request):
        self.tables = request["dictionary"]
        (resource,) = request["resourceProfiles"]
        (self.scope,) = resource["scopeProfiles"]
        self.profiles = self.scope["profiles"]

    def at(self, table, i):
        return self.tables[table][i]

    def text(self, i):
        return self.tables["stringTable"][i]

    def attributes(self, indices):
        found = {}
        for i in indices:
            entry = self.at("attributeTable", i)
            (value,) = entry["value"].values()
            found[self.text(entry["keyStrindex"])] = value
        return found

    def type(self, message):
        return self.text(message.get("typeStrindex", 0)), self.text(message.get("unitStrindex", 0))

    def mapping(self, i):
        if not i:
            return None
        m = self.at("mappingTable", i)
        attributes = self.attributes(m.get("attributeIndices", []))
        build_id = attributes.pop("process.executable.build_id.gnu", "")
        flags = [self.FLAGS[key.removeprefix("pprof.mapping.has_")] for key in attributes]
        return (int(m.get("memoryStart", 0)), int(m.get("memoryLimit", 0)),
                int(m.get("fileOffset", 0)), self.text(m.get("filenameStrindex", 0)), build_id, flags)

    def location(self, i):
        entry = self.at("locationTable", i)
        frames = []
        for line in entry.get("lines", []):
            f = self.at("functionTable", line.get("functionIndex", 0))
            frames.append((self.text(f.get("nameStrindex", 0)), self.text(f.get("systemNameStrindex", 0)),
                           self.text(f.get("filenameStrindex", 0)), int(line.get("line", 0)), int(line.get("column", 0)),
                           int(f.get("startLine", 0))))
        return int(entry.get("address", 0)), self.mapping(entry.get("mappingIndex", 0)), frames

    def stack(self, sample):
        stack = self.at("stackTable", sample.get("stackIndex", 0))
        return [self.location(i) for i in stack.get("locationIndices", [])]

    def link(self, sample):
        entry = self.at("linkTable", sample.get("linkIndex", 0))
        return entry.get("traceId", ""), entry.get("spanId", "")


@pytest.mark.parametrize("name", [n for n in NAMES if n != "empty"])
def test_conversion_equals_gos_output(name):
    raw, ours = Raw(name), Ours(convert(name))
    assert [ours.type(p["sampleType"]) for p in ours.profiles] == [t[:2] for t in raw.types]
    for k, profile in enumerate(ours.profiles):
        samples = profile["samples"]
        assert len(samples) == len(raw.samples)
        for sample, (values, stack, labels) in zip(samples, raw.samples):
            assert [int(v) for v in sample["values"]] == [values[k]]
            assert ours.stack(sample) == stack
            assert ours.attributes(sample.get("attributeIndices", [])) == labels


@pytest.mark.parametrize("name", [n for n in NAMES if n != "empty"])
def test_time_duration_and_period(name):
    raw, ours = Raw(name), Ours(convert(name))
    when = re.sub(r"(\.\d+)? \+0000 UTC.*", "", raw.head["Time"])
    second = datetime.strptime(when, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    fraction = int((re.search(r"\.(\d+)", raw.head["Time"]) or ["", "0"])[1].ljust(9, "0"))
    for profile in ours.profiles:
        assert int(profile["timeUnixNano"]) == int(second) * 10**9 + fraction
        assert " ".join(ours.type(profile["periodType"])) == raw.head["PeriodType"]
        assert int(profile["period"]) == int(raw.head["Period"])
        ns = int(profile.get("durationNano", 0))
        duration = f"{ns / 1e9:.9g}s" if ns >= 10**9 else f"{ns / 1e6:.9g}ms"
        assert duration[:4] == raw.head.get("Duration", "0ms")
    default = [t[0] for t in raw.types if t[2]]
    scope = {a["key"]: a["value"] for a in ours.scope["scope"]["attributes"]}
    want = [{"stringValue": default[0]}] if default else []
    assert [v for k, v in scope.items() if k == "pprof.scope.default_sample_type"] == want
    order = scope["pprof.scope.sample_type_order"]["arrayValue"]["values"]
    assert [int(v["intValue"]) for v in order] == list(range(len(raw.types)))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "empty"])
def test_links(name):
    """Ids in labels as Go reads them; short ones are numbers."""
    found = set()
    for profile in (ours := Ours(convert(name))).profiles:
        for sample in profile["samples"]:
            labels = ours.attributes(sample.get("attributeIndices", []))
            span = labels.get("span_id", "").lower()
            trace = labels.get("trace_id", "0" * 32) if span else ""
            assert ours.link(sample) == (trace, span and span.zfill(16))
            found.add(span)
    if name == "cpu":
        assert found >= {"00f067aa0ba902b7", "00f067aa0ba902b8"}
    elif name == "goroutine":
        assert found == {"", "1"}
    assert len(found) > 1 or not name.startswith("sdk_")


def test_empty():
    assert convert("empty") == {}
