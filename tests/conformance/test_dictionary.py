# SPDX-License-Identifier: Apache-2.0
"""Merging and splitting compared with an independent reader: random requests, encoded in every
legal way, must have the same meaning before and after. Needs the build directory: BRAID_BUILD,
by default build/."""

import collections
import gzip
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.profiles.v1development import profiles_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from restyle import Style, encode  # noqa: E402

TOOL = pathlib.Path(os.environ.get("BRAID_BUILD", ROOT / "build")) / "tests/support/dictionary_tool"
Profiles = profiles_service_pb2.ExportProfilesServiceRequest
Traces = trace_service_pb2.ExportTraceServiceRequest
SEEDS = range(int(os.environ.get("BRAID_SEEDS", "12")))
TABLES = ["mapping_table", "location_table", "function_table", "link_table", "string_table",
          "attribute_table", "stack_table"]


# --- Making --------------------------------------------------------------------------------------


class Maker:
    """Makes random valid requests. Those of one maker share a vocabulary, so that merging finds
    equal entries."""

    def __init__(self, rng):
        self.rng = rng
        self.words = [f"word{i}" + rng.choice(["", "ä", "x" * rng.randrange(200)]) for i in range(300)]

    def some(self, most):
        return range(self.rng.randrange(most + 1))

    def index(self, table):
        """Returns the index of any entry, including the zero one."""
        return self.rng.randrange(len(table))

    def indices(self, table, most):
        return [self.index(table) for _ in self.some(most)]

    def value(self, into, depth=0):
        rng = self.rng
        kind = rng.choice(["string", "string", "int", "bool", "double", "bytes", "reference", "empty"]
                          + ["array", "kvlist"] * (depth < 4))
        if kind == "string":
            into.string_value = rng.choice(self.words + [""])
        elif kind == "int":
            into.int_value = rng.choice([0, 1, -1, 2**62, -2**63])
        elif kind == "bool":
            into.bool_value = rng.random() < 0.5
        elif kind == "double":
            into.double_value = rng.random()
        elif kind == "bytes":
            into.bytes_value = rng.randbytes(rng.randrange(200))
        elif kind == "reference":
            into.string_value_strindex = self.index(self.strings)
        elif kind == "array":
            into.array_value.SetInParent()
            for _ in self.some(3):
                self.value(into.array_value.values.add(), depth + 1)
        elif kind == "kvlist":
            into.kvlist_value.SetInParent()
            for _ in self.some(3):
                self.pair(into.kvlist_value.values.add(), depth + 1)

    def pair(self, into, depth=0):
        """Writes a KeyValue, its key inline, referenced, or both."""
        how = self.rng.choice(["inline", "reference", "both"])
        if how != "reference":
            into.key = self.rng.choice(self.words)
        if how != "inline":
            into.key_strindex = self.index(self.strings)
        if self.rng.random() < 0.9:
            self.value(into.value, depth)

    def dictionary(self, d):
        rng = self.rng
        for table in TABLES:
            getattr(d, table).append("") if table == "string_table" else getattr(d, table).add()
        if rng.random() < 0.3:
            d.link_table[0].trace_id, d.link_table[0].span_id = bytes(16), bytes(8)
        self.strings = d.string_table
        d.string_table.extend(rng.choices(self.words, k=rng.choice([5, 30, 300])))
        for _ in self.some(20):
            e = d.attribute_table.add(key_strindex=self.index(d.string_table),
                                      unit_strindex=rng.choice([0, self.index(d.string_table)]))
            self.value(e.value)
        for _ in self.some(40):
            d.function_table.add(name_strindex=self.index(d.string_table),
                                 system_name_strindex=self.index(d.string_table),
                                 filename_strindex=self.index(d.string_table),
                                 start_line=rng.choice([0, 7, -1]))
        for _ in self.some(5):
            d.mapping_table.add(memory_start=rng.choice([0, 4096, 2**63]), memory_limit=rng.getrandbits(8),
                                file_offset=rng.choice([0, 300]), filename_strindex=self.index(d.string_table),
                                attribute_indices=self.indices(d.attribute_table, 3))
        for _ in range(rng.choice([1, 10, 200])):
            e = d.location_table.add(mapping_index=self.index(d.mapping_table),
                                     address=rng.choice([0, rng.getrandbits(6), rng.getrandbits(64)]),
                                     attribute_indices=self.indices(d.attribute_table, 2))
            for _ in self.some(rng.choice([1, 3, 30])):
                e.lines.add(function_index=self.index(d.function_table), line=rng.choice([0, 5, -9]),
                            column=rng.choice([0, 3]))
        for _ in self.some(30):
            d.link_table.add(trace_id=rng.choice([b"", bytes(16), rng.randbytes(16)]),
                             span_id=rng.choice([b"", bytes(8), rng.randbytes(8)]))
        for _ in self.some(40):
            d.stack_table.add(location_indices=self.indices(d.location_table, rng.choice([3, 30, 150])))

    def sample(self, s, d):
        rng = self.rng
        s.stack_index, s.link_index = self.index(d.stack_table), self.index(d.link_table)
        s.attribute_indices.extend(self.indices(d.attribute_table, rng.choice([1, 3, 140])))
        n = rng.choice([1, 1, 2, 50])
        what = rng.choice(["values", "times", "both"])
        if what != "times":
            s.values.extend(rng.choice([0, 1, -5, 2**40]) for _ in range(n))
        if what != "values":
            s.timestamps_unix_nano.extend(rng.getrandbits(60) for _ in range(n))

    def profile(self, p, d):
        rng = self.rng
        for t in (p.sample_type, p.period_type):
            if rng.random() < 0.8:
                t.type_strindex, t.unit_strindex = self.index(d.string_table), self.index(d.string_table)
        p.time_unix_nano, p.duration_nano, p.period = rng.getrandbits(60), rng.getrandbits(30), rng.choice([0, 99, -1])
        p.profile_id = rng.choice([b"", rng.randbytes(16)])
        p.dropped_attributes_count = rng.choice([0, 3])
        p.attribute_indices.extend(self.indices(d.attribute_table, 4))
        if rng.random() < 0.3:
            p.original_payload_format, p.original_payload = "pprof", rng.randbytes(rng.choice([1, 300]))
        for _ in self.some(rng.choice([0, 1, 20])):
            self.sample(p.samples.add(), d)

    def resource(self, r, scope):
        for _ in self.some(4):
            self.pair(r.resource.attributes.add())
        r.resource.dropped_attributes_count = self.rng.choice([0, 2])
        if self.rng.random() < 0.2:
            r.resource.entity_refs.add(type="service", id_keys=["service.name"])
        r.schema_url = self.rng.choice(["", "https://opentelemetry.io/schemas/1.30.0"])

    def scope(self, s):
        s.scope.name, s.scope.version = self.rng.choice(self.words), self.rng.choice(["", "2"])
        for _ in self.some(2):
            self.pair(s.scope.attributes.add())
        s.schema_url = self.rng.choice(["", "scope-schema"])

    def profiles(self):
        request = Profiles()
        d = request.dictionary
        self.dictionary(d)
        for _ in self.some(3):
            r = request.resource_profiles.add()
            self.resource(r, None)
            for _ in self.some(3):
                s = r.scope_profiles.add()
                self.scope(s)
                for _ in self.some(3):
                    self.profile(s.profiles.add(), d)
        return request

    def traces(self):
        request, self.strings = Traces(), [""]
        for _ in self.some(4):
            r = request.resource_spans.add()
            self.resource(r, None)
            for _ in self.some(3):
                s = r.scope_spans.add()
                self.scope(s)
                for _ in self.some(10):
                    span = s.spans.add(trace_id=self.rng.randbytes(16), span_id=self.rng.randbytes(8),
                                       name=self.rng.choice(self.words), end_time_unix_nano=1)
                    self.pair(span.attributes.add())
        return request


# --- Reading -------------------------------------------------------------------------------------


def unknown(message):
    return sorted((f.field_number, f.wire_type, f.data) for f in UnknownFieldSet(message))


class Reader:
    """A request with every reference resolved, and the dictionary entries used for that."""

    def __init__(self, request):
        self.request, self.d = request, request.dictionary
        self.used = {table: {0} for table in TABLES}
        self.references = 0

    def entry(self, table, i):
        self.used[table].add(i)
        entries = getattr(self.d, table)
        if i == 0 and not entries:
            return "" if table == "string_table" else self.zero(table)
        return entries[i]

    def zero(self, table):
        return {"mapping_table": profiles_pb2.Mapping, "location_table": profiles_pb2.Location,
                "function_table": profiles_pb2.Function, "link_table": profiles_pb2.Link,
                "attribute_table": profiles_pb2.KeyValueAndUnit, "stack_table": profiles_pb2.Stack}[table]()

    def string(self, i):
        return self.entry("string_table", i)

    def value(self, v):
        kind = v.WhichOneof("value")
        plain = getattr(v, kind) if kind else None
        if kind == "string_value_strindex":
            self.references += 1
            kind, plain = "string_value", self.string(plain)
        elif kind == "array_value":
            plain = [self.value(each) for each in plain.values], unknown(plain)
        elif kind == "kvlist_value":
            plain = [self.pair(each) for each in plain.values], unknown(plain)
        return kind, plain, unknown(v)

    def pair(self, p):
        self.references += p.key_strindex != 0
        return p.key or self.string(p.key_strindex), p.HasField("value"), self.value(p.value), unknown(p)

    def attributes(self, indices):
        out = []
        for i in indices:
            a = self.entry("attribute_table", i)
            out.append((self.string(a.key_strindex), self.string(a.unit_strindex), self.value(a.value),
                        unknown(a)))
        return out

    def type(self, t):
        return self.string(t.type_strindex), self.string(t.unit_strindex), unknown(t)

    def line(self, line):
        f = self.entry("function_table", line.function_index)
        return (self.string(f.name_strindex), self.string(f.system_name_strindex),
                self.string(f.filename_strindex), f.start_line, unknown(f), line.line, line.column,
                unknown(line))

    def frame(self, i):
        location = self.entry("location_table", i)
        m = self.entry("mapping_table", location.mapping_index)
        return (location.address, [self.line(line) for line in location.lines],
                self.attributes(location.attribute_indices), unknown(location), m.memory_start,
                m.memory_limit, m.file_offset, self.string(m.filename_strindex),
                self.attributes(m.attribute_indices), unknown(m))

    def sample(self, s):
        link, stack = self.entry("link_table", s.link_index), self.entry("stack_table", s.stack_index)
        ids = (link.trace_id.hex(), link.span_id.hex(), unknown(link)) if s.link_index else ("", "", [])
        return ([self.frame(i) for i in stack.location_indices], unknown(stack), ids,
                self.attributes(s.attribute_indices), list(s.values), list(s.timestamps_unix_nano),
                unknown(s))

    def resource(self, r):
        return ([self.pair(p) for p in r.resource.attributes], r.resource.dropped_attributes_count,
                [e.SerializeToString(deterministic=True) for e in r.resource.entity_refs],
                unknown(r.resource), r.HasField("resource"), r.schema_url, unknown(r))

    def scope(self, s):
        return (s.scope.name, s.scope.version, [self.pair(p) for p in s.scope.attributes],
                s.scope.dropped_attributes_count, unknown(s.scope), s.schema_url, unknown(s))

    def head(self, p):
        return (self.type(p.sample_type), self.type(p.period_type), p.time_unix_nano, p.duration_nano,
                p.period, p.profile_id, p.dropped_attributes_count, self.attributes(p.attribute_indices),
                unknown(p))

    def samples(self):
        """Returns every sample with everything above it, in order; an empty part counts as one."""
        out = []
        for r in self.request.resource_profiles:
            resource = self.resource(r)
            out += [(resource,)] * (not r.scope_profiles)
            for s in r.scope_profiles:
                scope = self.scope(s)
                out += [(resource, scope)] * (not s.profiles)
                for p in s.profiles:
                    above = resource, scope, self.head(p)
                    out += [above] * (not p.samples)
                    out += [(*above, self.sample(sample)) for sample in p.samples]
        return out


def profiles_of(request):
    return [p for r in request.resource_profiles for s in r.scope_profiles for p in s.profiles]


def meaning(requests):
    """Returns the meaning of requests, and each original payload once."""
    payloads = [(p.original_payload_format, p.original_payload)
                for q in requests for p in profiles_of(q) if p.original_payload]
    other = [u for q in requests for u in unknown(q)]
    return [repr(s) for q in requests for s in Reader(q).samples()], payloads, other


def n_samples(request):
    return sum(len(p.samples) for p in profiles_of(request))


def check_dictionary(request):
    """The dictionary contains only used entries, each once, without references, and zero entries
    first."""
    reader = Reader(request)
    reader.samples()
    assert reader.references == 0
    for table in TABLES:
        entries = [e if isinstance(e, str) else e.SerializeToString()
                   for e in getattr(request.dictionary, table)]
        assert entries[0] in ("", b""), table
        assert reader.used[table] == set(range(len(entries))), table
        if table != "attribute_table":  # values are compared by their bytes, in any encoding
            assert len(set(entries)) == len(entries), table


# --- Checking ------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    def tool(mode, bodies, *n, message=Profiles):
        out = tmp_path / mode
        out.mkdir()
        files = []
        for i, body in enumerate(bodies):
            files.append(tmp_path / f"{mode}-{i}.in")
            files[-1].write_bytes(body)
        subprocess.run([TOOL, out, mode, *map(str, n), *files], check=True)
        results = [path.read_bytes() for path in sorted(out.iterdir())]
        return [message.FromString(r) for r in results], [len(r) for r in results]
    tool.tmp = tmp_path
    return tool


def make(seed, method):
    rng = random.Random(seed)
    maker = Maker(rng)
    requests = [getattr(maker, method)() for _ in range(rng.randint(1, 6))]
    if len(requests) > 2:  # entries that a sender repeats, more each time
        requests[1] = type(requests[0]).FromString(requests[0].SerializeToString())
        if method == "profiles":
            requests[1].dictionary.string_table.extend(["more", "and more"])
    bodies = [encode(request, Style(rng)) for request in requests]
    return bodies, [type(r).FromString(b) for r, b in zip(requests, bodies)]


@pytest.mark.parametrize("seed", SEEDS)
def test_encoder(seed):
    """The test's encoder gives the same result as the runtime's."""
    rng = random.Random(seed)
    request = Maker(rng).profiles()
    assert Profiles.FromString(encode(request, Style(rng, unknown=0))) == request


@pytest.mark.parametrize("seed", SEEDS)
def test_merge(run, seed):
    bodies, requests = make(seed, "profiles")
    merged, _ = run("merge", bodies)
    assert meaning(merged) == meaning(requests)
    if any(q.resource_profiles for q in requests):
        check_dictionary(merged[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_roundtrip(run, seed):
    """One merger is used for all requests, and emptied between them."""
    bodies, requests = make(seed, "profiles")
    results, _ = run("roundtrip", bodies)
    assert [meaning([r]) for r in results] == [meaning([q]) for q in requests]
    for result in results:
        if result.resource_profiles:
            check_dictionary(result)


def change(rng, maker, request):
    """Changes a sender's dictionary as between two requests: more entries at the end, or another
    entry somewhere, on which others may depend."""
    d = request.dictionary
    maker.strings = d.string_table
    for _ in maker.some(3):
        table = rng.choice(TABLES)
        entries = getattr(d, table)
        if table == "string_table":
            entries.append("new")
            if rng.random() < 0.5 and len(entries) > 2:
                entries[rng.randrange(1, len(entries))] = "changed"
        elif rng.random() < 0.5 and len(entries) > 2:
            entries[rng.randrange(1, len(entries))].CopyFrom(entries[rng.randrange(1, len(entries))])
        else:
            entries.add().CopyFrom(rng.choice(entries))


@pytest.mark.parametrize("seed", SEEDS)
def test_merge_like_before(run, seed):
    """Cached results of the previous dictionary must not survive a change."""
    rng = random.Random(seed)
    maker = Maker(rng)
    request = maker.profiles()
    while not n_samples(request):
        request = maker.profiles()
    requests = []
    for _ in range(8):
        requests.append(Profiles.FromString(request.SerializeToString()))
        change(rng, maker, request)
    merged, _ = run("merge", [q.SerializeToString() for q in requests])
    assert meaning(merged) == meaning(requests)
    check_dictionary(merged[0])


REFERS_TO = {"stack_index": "stack_table", "link_index": "link_table", "mapping_index": "mapping_table",
             "function_index": "function_table", "location_indices": "location_table",
             "attribute_indices": "attribute_table"}


def refer(message, places):
    """Replaces every index in a message and its submessages by its entry in `places`."""
    for field, value in message.ListFields():
        table = "string_table" if field.name.endswith("_strindex") else REFERS_TO.get(field.name)
        repeated = hasattr(value, "extend")
        if table and repeated:
            value[:] = [places[table][i] for i in value]
        elif table:
            setattr(message, field.name, places[table][value])
        elif field.message_type:
            for each in value if repeated else [value]:
                refer(each, places)


def in_another_order(rng, request):
    """Returns the same request with all tables in another order."""
    request = Profiles.FromString(request.SerializeToString())
    places = {}
    for table in TABLES:
        entries = getattr(request.dictionary, table)
        order = [0, *rng.sample(range(1, len(entries)), len(entries) - 1)]
        places[table] = {old: new for new, old in enumerate(order)}
        before = [e if isinstance(e, str) else type(e).FromString(e.SerializeToString()) for e in entries]
        del entries[:]
        entries.extend(before[old] for old in order)
    refer(request, places)
    return request


@pytest.mark.parametrize("seed", SEEDS)
def test_merge_in_another_order(run, seed):
    """The merged dictionary contains each entry once, for any order of the originals."""
    rng = random.Random(seed)
    maker = Maker(rng)
    request = maker.profiles()
    while n_samples(request) < 20:
        request = maker.profiles()
    requests = [request, *(in_another_order(rng, request) for _ in range(5))]
    assert meaning(requests[1:2]) == meaning([request])
    bodies = [each.SerializeToString() for each in requests]  # values are compared by their bytes
    merged, _ = run("merge", bodies)
    assert meaning(merged) == meaning(requests)
    check_dictionary(merged[0])
    alone, _ = run("roundtrip", bodies[:1])
    for table in TABLES:
        assert len(getattr(merged[0].dictionary, table)) == len(getattr(alone[0].dictionary, table)), table


def check_split(pieces, requests, most):
    assert meaning(pieces) == meaning(requests)
    for piece in pieces:
        if piece.resource_profiles:
            check_dictionary(piece)
        assert n_samples(piece) <= most


@pytest.mark.parametrize("seed", SEEDS)
def test_split(run, seed):
    bodies, requests = make(seed, "profiles")
    n = random.Random(seed).choice([1, 2, 7, 40])
    pieces, _ = run("split", bodies, n)
    check_split(pieces, requests, n)
    least = sum(max(math.ceil(n_samples(q) / n), bool(q.resource_profiles or unknown(q))) for q in requests)
    assert len(pieces) == least


@pytest.mark.parametrize("seed", SEEDS)
def test_split_by_bytes(run, seed):
    bodies, requests = make(seed, "profiles")
    n = random.Random(seed).choice([1, 500, 4000, 100000])
    pieces, sizes = run("split-bytes", bodies, n)
    check_split(pieces, requests, 2**32)
    for piece, size in zip(pieces, sizes):
        assert size <= n or n_samples(piece) <= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_merge_and_split(run, seed):
    bodies, requests = make(seed, "profiles")
    pieces, _ = run("merge-split", bodies, 9)
    check_split(pieces, requests, 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_inline(run, seed):
    """Only the references change: the tables keep their length."""
    bodies, requests = make(seed, "profiles")
    results, _ = run("inline", bodies)
    assert [meaning([r]) for r in results] == [meaning([q]) for q in requests]
    for before, after in zip(requests, results):
        reader = Reader(after)
        reader.samples()
        reader.attributes(range(len(after.dictionary.attribute_table)))
        assert reader.references == 0
        for table in TABLES:
            assert len(getattr(before.dictionary, table)) == len(getattr(after.dictionary, table))


def spans_of(requests):
    out = []
    for q in requests:
        for r in q.resource_spans:
            above = [r.resource.SerializeToString(), r.schema_url, unknown(r)]
            out += [repr(above)] * (not r.scope_spans)
            for s in r.scope_spans:
                scope = [s.scope.SerializeToString(), s.schema_url, unknown(s)]
                out += [repr((above, scope))] * (not s.spans)
                out += [repr((above, scope, span.SerializeToString())) for span in s.spans]
    return out, [u for q in requests for u in unknown(q)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode, n", [("traces-split", 3), ("traces-split-bytes", 2000)])
def test_traces_split(run, seed, mode, n):
    bodies, requests = make(seed, "traces")
    pieces, sizes = run(mode, bodies, n, message=Traces)
    assert spans_of(pieces) == spans_of(requests)
    for piece, size in zip(pieces, sizes):
        spans = sum(len(s.spans) for r in piece.resource_spans for s in r.scope_spans)
        assert spans <= 3 if mode == "traces-split" else size <= n or spans <= 1


def test_common_is_current():
    """The reader supports the references: key_strindex and string_value_strindex were added in
    1.10."""
    assert common_pb2.KeyValue.DESCRIPTOR.fields_by_name["key_strindex"].number == 3
    assert profiles_pb2.Sample.DESCRIPTOR.fields_by_name["values"].number == 4


# --- Dividing by trace ---------------------------------------------------------------------------

BUCKETS = 5


def instance_of(reader, resource):
    """Returns the value of service.instance.id; None: there is none."""
    found = None
    for key, _, (kind, plain, _), _ in [reader.pair(p) for p in resource.attributes]:
        if key == "service.instance.id" and kind == "string_value" and plain:
            found = plain
    return found


def keys_of(request):
    """Returns, for each sample, its meaning and bucket; the bucket is None if the key is the
    encoded Resource."""
    reader, out = Reader(request), []
    for r in request.resource_profiles:
        instance = instance_of(reader, r.resource)
        rest = None if instance is None else sum(instance.encode()) % BUCKETS
        for s in r.scope_profiles:
            for p in s.profiles:
                above = reader.resource(r), reader.scope(s), reader.head(p)
                for sample in p.samples:
                    link = reader.entry("link_table", sample.link_index)
                    linked = sample.link_index and any(link.trace_id)
                    bucket = link.trace_id[0] % BUCKETS if linked else rest
                    out.append((bucket, repr((*above, reader.sample(sample)))))
    return out


def total(requests):
    return sum(v for q in requests for p in profiles_of(q) for s in p.samples for v in s.values)


def divided(run, bodies, message=Profiles):
    """Returns, for each body, its groups by bucket."""
    out = []
    for body in bodies:
        mode = "divide" if message is Profiles else "traces-divide"
        for old in run.tmp.glob(f"{mode}*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        run(mode, [body], BUCKETS, message=message)
        out.append({int(path.stem.split("-")[1]): message.FromString(path.read_bytes())
                    for path in (run.tmp / mode).iterdir()})
    return out


@pytest.mark.parametrize("seed", SEEDS)
def test_divide_profiles(run, seed):
    """Samples of a trace are in the group of the trace; all others in that of their process.
    Every sample is in one group."""
    rng = random.Random(seed)
    maker = Maker(rng)
    requests = [maker.profiles() for _ in range(4)]
    for r in (r for q in requests for r in q.resource_profiles):
        if rng.random() < 0.7:
            r.resource.attributes.add(key="service.instance.id").value.string_value = rng.choice(maker.words)
    bodies = [encode(q, Style(rng)) for q in requests]
    for body, groups in zip(bodies, divided(run, bodies)):
        request = Profiles.FromString(body)
        whole, parts = meaning([request]), meaning(groups.values())
        rest = [s for s in Reader(request).samples() if len(s) == 4]
        assert sorted(s for s in parts[0] if s in set(map(repr, rest))) == sorted(map(repr, rest))
        assert sorted(set(parts[0])) == sorted(set(whole[0])) and sorted(parts[1]) == sorted(whole[1])
        assert total(groups.values()) == total([request])
        buckets = collections.defaultdict(set)
        for number, group in groups.items():
            check_dictionary(group)
            for _, what in keys_of(group):
                buckets[what].add(number)
        for bucket, what in keys_of(request):
            assert bucket is None or bucket in buckets[what]
        if groups:
            assert parts[2] == whole[2]


@pytest.mark.parametrize("seed", SEEDS)
def test_divide_traces(run, seed):
    bodies, requests = make(seed, "traces")
    for request, groups in zip(requests, divided(run, bodies, Traces)):
        spans = collections.Counter()
        for number, group in groups.items():
            for r in group.resource_spans:
                for s in r.scope_spans:
                    for span in s.spans:
                        assert span.trace_id[0] % BUCKETS == number
                        spans[repr((r.resource, r.schema_url, s.scope, s.schema_url, span))] += 1
        assert spans == collections.Counter(
            repr((r.resource, r.schema_url, s.scope, s.schema_url, span))
            for r in request.resource_spans for s in r.scope_spans for span in s.spans)


@pytest.mark.parametrize("path", ["ebpf/1.pb.gz", "ebpf/2.pb.gz", "ebpf/3.pb.gz", "async-profiler/itimer.otlp"])
def test_divide_real_profiles(run, path):
    """Requests of real profilers, with a link of one of 20 traces added to three of four samples."""
    data = (ROOT / "tests/data" / path).read_bytes()
    request = Profiles.FromString(gzip.decompress(data) if path.endswith(".gz") else data)
    del request.dictionary.link_table[:]
    request.dictionary.link_table.add()
    for i in range(20):
        request.dictionary.link_table.add(trace_id=bytes([i]) * 16, span_id=bytes([i]) * 8)
    samples = [s for p in profiles_of(request) for s in p.samples]
    for i, sample in enumerate(samples):
        sample.link_index = i % 20 + 1 if i % 4 else 0
    groups, = divided(run, [request.SerializeToString()])
    linked = collections.Counter((i % 20) % BUCKETS for i in range(len(samples)) if i % 4)
    assert sorted(meaning(groups.values())[0]) == sorted(meaning([request])[0])
    for number, group in groups.items():
        assert sum(s.link_index > 0 for p in profiles_of(group) for s in p.samples) == linked[number]
        check_dictionary(group)
    assert total(groups.values()) == total([request])
