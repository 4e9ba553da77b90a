# SPDX-License-Identifier: Apache-2.0
"""Recordings of Java's Flight Recorder, read without any code of ours: every event by the metadata of its
chunk. And what Pyroscope makes of them. Sources: jdk.jfr's ChunkParser; jfr-parser 0.18, pprof/."""

import collections
import re
import struct

import pprof

_HEADER = struct.Struct(">4sHHQQQQQQQI")

_LABELS = pprof.messages("jfr_labels", {
    "Entry": "int64 key=1, Context value=2",
    "Context": "Label* labels=1",
    "Label": "int64 key=1, int64 value=2",
    "Text": "int64 key=1, string value=2",
    "Snapshot": "Entry* contexts=1, Text* strings=2",
})


class _Bytes:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, n):
        self.at += n
        return self.data[self.at - n:self.at]

    def byte(self):
        return self.take(1)[0]

    def number(self):
        """Seven bits a byte, but for the ninth, which has eight."""
        value = 0
        for i in range(9):
            byte = self.byte()
            value |= (byte if i == 8 else byte & 0x7f) << 7 * i
            if byte < 0x80:
                break
        return value

    def text(self, pool=None):
        kind = self.byte()
        if kind in (0, 1):
            return ""
        if kind == 2:
            return _Reference("java.lang.String", self.number())
        if kind == 4:
            return "".join(chr(self.number()) for _ in range(self.number()))
        return self.take(self.number()).decode({3: "utf-8", 5: "latin-1"}[kind])


_Reference = collections.namedtuple("_Reference", "kind id")


class _Chunk:
    """events: (name, {field: value}), with references to the constant pools resolved by get()."""

    def __init__(self, data):
        (magic, *_, size, _, metadata, _, _, _, _, features) = _HEADER.unpack_from(data)
        assert magic == b"FLR\0" and features & 1
        self.size, self._data, self._pools, self.events = size, data[:size], {}, []
        self._read_metadata(metadata)
        at, events = _HEADER.size, []
        while at < size:
            record = _Bytes(self._data, at)
            at += record.number()
            kind = record.number()
            if kind == 1:
                self._read_pools(record)
            elif kind in self._classes and kind != 0:
                events.append((kind, record))
        self.events = [(self._names[kind], self._read(kind, record)) for kind, record in events]

    def _read_metadata(self, at):
        b = _Bytes(self._data, at)
        for _ in range(5):  # size, type, start, duration, id
            b.number()
        strings = [b.text() for _ in range(b.number())]

        def element():
            name = strings[b.number()]
            attributes = {strings[b.number()]: strings[b.number()] for _ in range(b.number())}
            return name, attributes, [element() for _ in range(b.number())]

        _, _, children = element()
        [(_, _, classes)] = [each for each in children if each[0] == "metadata"]
        self._names, self._classes = {}, {}
        for name, attributes, fields in classes:
            if name == "class":
                number = int(attributes["id"])
                self._names[number] = attributes["name"]
                self._classes[number] = [each for kind, each, _ in fields if kind == "field"]

    def _read_pools(self, b):
        for _ in range(3):  # start, duration, distance
            b.number()
        b.byte()  # which kind of checkpoint
        for _ in range(b.number()):
            kind = b.number()
            pool = self._pools.setdefault(self._names[kind], {})
            for _ in range(b.number()):
                key = b.number()
                pool[key] = self._read(kind, b)

    def _read(self, kind, b):
        name = self._names[kind]
        if name in ("long", "int", "short", "char"):
            return b.number()
        if name == "java.lang.String":
            return b.text()
        if name in ("byte", "boolean"):
            return b.byte()
        if name in ("float", "double"):
            return b.take({"float": 4, "double": 8}[name])
        return {field["name"]: self._read_field(field, b) for field in self._classes[kind]}

    def _read_field(self, field, b):
        kind = int(field["class"])
        if field.get("dimension") == "1":
            return [self._read_one(field, kind, b) for _ in range(b.number())]
        return self._read_one(field, kind, b)

    def _read_one(self, field, kind, b):
        if field.get("constantPool") == "true":
            return _Reference(self._names[kind], b.number())
        return self._read(kind, b)

    def get(self, value):
        """What a reference leads to, or None."""
        while isinstance(value, _Reference):
            value = self._pools.get(value.kind, {}).get(value.id)
        return value


def chunks(data):
    while data:
        chunk = _Chunk(data)
        yield chunk
        data = data[chunk.size:]


# Names that differ from run to run.
_GENERATED = [
    (r"^(jdk/internal/reflect/GeneratedMethodAccessor)\d+$", r"\1_"),
    (r"^(.+\$\$Lambda)(\$[a-zA-Z][\w$]*?)?(?:(?:\$\d+)?[./](?:0x)?[\da-f]+|\$?\d+)$", r"\1\2_"),
    (r"^(?:\.?/tmp/)?libzstd-jni-\d+\.\d+\.\d+-\d+\.so(?: \(deleted\))?$", "libzstd-jni-_.so"),
    (r"^(.+\$\$EnhancerBySpringCGLIB\$\$).*$", r"\1_"),
]


def _symbol(text):
    for pattern, to in _GENERATED:
        text = re.sub(pattern, to, text, flags=re.ASCII)
    return text


def _stack(chunk, reference):
    """((function, file, line) ...), or None."""
    trace, frames = chunk.get(reference), []
    if trace is None:
        return None
    for frame in trace["frames"]:
        method = chunk.get(frame["method"])
        owner = method and chunk.get(method["type"])
        if owner is None:
            continue
        names = [_symbol(chunk.get((chunk.get(each) or {}).get("string", "")) or "")
                 for each in (owner["name"], method["name"])]
        frames.append((".".join(names), "", frame["lineNumber"]))
    return tuple(frames)


class _Snapshot:
    def __init__(self, data):
        message = _LABELS["Snapshot"].FromString(data)
        self.strings = {each.key: each.value for each in message.strings}
        self.contexts = {each.key: each.value for each in message.contexts}

    def of(self, event):
        """Labels of an event, as pprof has them."""
        found = {self.strings.get(each.key, ""): self.strings.get(each.value, "") for each in
                 (self.contexts[event["contextId"]].labels
                  if event.get("contextId") in self.contexts else ())}
        if event.get("spanId"):
            found["profile_id"] = f"{event['spanId']:016x}"
        if self.strings.get(event.get("spanName")):
            found["span_name"] = self.strings[event["spanName"]]
        if event.get("traceIdHi") or event.get("traceIdLo"):
            found["trace_id"] = f"{event['traceIdHi']:016x}{event['traceIdLo']:016x}"
        return tuple(sorted(found.items()))


# Kind of profile: name, sample types, period type.
_TLAB = "alloc_in_new_tlab", "alloc_outside_tlab", "alloc_sample", "malloc"
_KINDS = {
    "cpu": ("process_cpu", [("cpu", "nanoseconds")], ("cpu", "nanoseconds")),
    "wall": ("wall", [("wall", "nanoseconds")], ("wall", "nanoseconds")),
    "lock": ("mutex", [("contentions", "count"), ("delay", "nanoseconds")], ("mutex", "count")),
    "park": ("block", [("contentions", "count"), ("delay", "nanoseconds")], ("block", "count")),
    "live": ("memory", [("live", "count")], ("objects", "count")),
    **{kind: ("memory", [(f"{kind}_objects", "count"), (f"{kind}_bytes", "bytes")],
              ("space", "bytes") if kind != "malloc" else ("", "")) for kind in _TLAB},
}

# Event: kind of profile, and the field that is its second value.
_EVENTS = {
    "jdk.ObjectAllocationInNewTLAB": ("alloc_in_new_tlab", "tlabSize"),
    "jdk.ObjectAllocationOutsideTLAB": ("alloc_outside_tlab", "allocationSize"),
    "jdk.ObjectAllocationSample": ("alloc_sample", "weight"),
    "jdk.JavaMonitorEnter": ("lock", "duration"),
    "jdk.ThreadPark": ("park", "duration"),
    "profiler.LiveObject": ("live", None),
    "profiler.Malloc": ("malloc", "size"),
}
_LABELLED = {"jdk.ExecutionSample", "profiler.WallClockSample", "jdk.ObjectAllocationInNewTLAB",
             "jdk.ObjectAllocationOutsideTLAB", "jdk.JavaMonitorEnter"}


def _uses(chunk, name, event, profiler, period):
    """(kind of profile, values) that an event counts for."""
    state = (chunk.get(event.get("state")) or {}).get("name")
    if name == "jdk.ExecutionSample":
        if state and state != "STATE_SLEEPING":
            yield "cpu", (period, )
        if profiler == "wall":
            yield "wall", (period, )
    elif name == "profiler.WallClockSample":
        if state == "STATE_RUNNABLE" and profiler == "wall":
            yield "cpu", (event["samples"] * period, )
        yield "wall", (event["samples"] * period, )
    elif name in _EVENTS:
        kind, field = _EVENTS[name]
        yield kind, (1, event[field]) if field else (1, )


def _pprof(kind, samples):
    """A Profile of {(stack, labels): values}."""
    _, types, period = _KINDS[kind]
    made, strings, frames = pprof.Profile(), {"": 0}, {}

    def text(value):
        return strings.setdefault(value, len(strings))

    def location(frame):
        if frame not in frames:
            frames[frame] = number = len(frames) + 1
            made.function.add(id=number, name=text(frame[0]), filename=text(frame[1]))
            made.location.add(id=number).line.add(function_id=number, line=frame[2])
        return frames[frame]

    for name, unit in types:
        made.sample_type.add(type=text(name), unit=text(unit))
    made.period_type.type, made.period_type.unit = map(text, period)
    for (stack, labels), values in samples.items():
        sample = made.sample.add(location_id=map(location, stack), value=values)
        for key, value in labels:
            sample.label.add(key=text(key), str=text(value))
    made.string_table.extend(strings)
    return made


def profiles(data, labels=b"", sample_rate=100):
    """([(name, pprof.Profile)], what the profiler sampled by: "itimer", "wall" ...)."""
    snapshot, profiler = _Snapshot(labels), ""
    kinds = collections.defaultdict(dict)
    for chunk in chunks(data):
        for name, event in chunk.events:
            if name == "jdk.ActiveSetting" and chunk.get(event["name"]) == "event":
                profiler = chunk.get(event["value"])
            for kind, values in _uses(chunk, name, event, profiler, 10**9 // sample_rate):
                stack = _stack(chunk, event["stackTrace"])
                if stack is None:
                    continue
                key = stack, snapshot.of(event) if name in _LABELLED else ()
                old = kinds[kind].get(key, (0, ) * len(values))
                kinds[kind][key] = tuple(a + b for a, b in zip(old, values))
    return [(_KINDS[kind][0], _pprof(kind, samples)) for kind, samples in kinds.items()], profiler
