# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Pyroscope's ingest side: /ingest and push.v1, by the rules of the real server
(2.x). It keeps the data that the real one would have stored, in a form that can be compared, and
rejects requests on demand."""

import base64
import collections
import dataclasses
import email
import gzip
import json
import re
import subprocess
import threading
import urllib.parse

import httpd
import pprof
from braid import until

_PUSH = pprof.messages("push_reader", {
    "PushRequest": "RawProfileSeries* series=1",
    "RawProfileSeries": "LabelPair* labels=1, RawSample* samples=2",
    "LabelPair": "string name=1, string value=2",
    "RawSample": "bytes raw_profile=1, string ID=2",
})
PushRequest = _PUSH["PushRequest"]

PUSH_PATH = "/push.v1.PusherService/Push"
MAX_LABELS, MAX_VALUE = 30, 2048
_CODES = {400: "invalid_argument", 401: "unauthenticated", 403: "permission_denied",
          404: "not_found", 429: "resource_exhausted", 500: "unknown", 503: "unavailable"}
_IDS = {"span_id": 16, "trace_id": 32}  # hex digits; any other length is ignored

# The series and stack of a value. type: "process_cpu:cpu:nanoseconds:cpu:nanoseconds".
Key = collections.namedtuple("Key", "labels type stack span_id trace_id")


@dataclasses.dataclass(frozen=True)
class Push:
    """One pprof (or any payload of /ingest) and the parameters sent with it."""
    labels: dict         # labels of its series, including __name__
    profile: object      # pprof.Profile, or None for other formats
    raw: bytes
    id: str = ""
    headers: dict = dataclasses.field(default_factory=dict)
    query: dict = dataclasses.field(default_factory=dict)  # query parameters of /ingest

    def names(self):
        return [kind for kind, _ in pprof.types(self.profile)[0]]


@dataclasses.dataclass
class Rule:
    """The answer to matching pushes. whole: nothing of their request is stored, as in servers
    before 2.0; else the other pushes of the request are. Neither message names the push. times:
    number of uses, None: unlimited."""
    match: object
    http: int = 400
    message: str = "refused by the stand-in"
    whole: bool = False
    times: int | None = None
    retry_after: int | None = None


class Refused(Exception):
    def __init__(self, status, message, retry_after=None):
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


def metric_name(types, config=None):
    """Returns the __name__ of a pprof on /ingest."""
    config = config or {"samples": {"display-name": "cpu"}, "goroutine": {"display-name": "goroutines"},
                        "contentions": {"display-name": "mutex_count"},
                        "delay": {"display-name": "mutex_duration"}}
    if "wall" in types:
        return "wall"
    for kind in types:
        name = config.get(kind, {}).get("display-name") or kind
        if "cpu" in name:
            return "process_cpu"
        if any(part in name for part in ("alloc_", "inuse_", "space", "objects")):
            return "memory"
        for prefix in ("mutex_", "block_"):
            if prefix in name:
                return prefix[:-1]
        if "goroutines" in name:
            return "goroutines"
    return (config.get(types[0], {}).get("display-name") or types[0]) if types else "unknown"


def repair(profile, spy):
    """Changes a pprof of /ingest as the server does. '-' is removed from types. For scripting
    languages a function's name gets its file as a prefix, unless the file is an absolute path of
    Python's."""
    strings = profile.string_table
    for kind in profile.sample_type:
        strings[kind.type] = strings[kind.type].replace("-", "_")
    for function in profile.function if spy in ("pyspy", "rbspy", "scripting") else ():
        if spy != "pyspy" or not strings[function.filename].startswith("/"):
            strings.append(f"{strings[function.filename]} {strings[function.name]}")
            function.name = len(strings) - 1


def parse_name(name):
    """Returns (application, labels) of `app{key=value,...}`."""
    app, _, rest = name.partition("{")
    labels = {}
    for pair in rest.rstrip("}").split(","):
        key, _, value = pair.partition("=")
        if key.strip() and (not key.startswith("__") or key == "__session_id__"):
            labels[key.strip()] = value.strip()
    if not app.strip():
        raise Refused(400, "name: service name is required")
    return app.strip(), labels


def check_labels(labels):
    if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", labels.get("__name__", "")):
        raise Refused(400, "invalid metric name")
    if len(labels) > MAX_LABELS:
        raise Refused(400, f"profile series has {len(labels)} label names; limit {MAX_LABELS}")
    for key, value in labels.items():
        if not key or len(value.encode()) > MAX_VALUE:
            raise Refused(400, f"label {key[:40]!r} is empty or its value too long")


class _Labels:
    """Interprets the labels of a pprof's samples as the server does, which looks a name up in the
    string table once. Labels kept out of the series have as key the last string equal to
    `span_id`; a sample's id is that of the first one. If any sample has a label for the series,
    only the labels kept out remain, in a table of strings that is written anew
    (pprof.RenameLabel, LabelKeysByString, LabelID, SampleExporter).
    tests/sdks/test_pyroscope_reader.py checks this with the server's code."""

    def __init__(self, profile):
        self._strings = [*profile.string_table]
        if "profile_id" in self._strings and "span_id" not in self._strings:
            self._strings.append("span_id")
        first = {text: i for i, text in reversed([*enumerate(self._strings)])}
        last = {text: i for i, text in enumerate(self._strings)}
        self._renamed = {first["profile_id"]: first["span_id"]} if "profile_id" in first else {}
        self._hidden = {last[name]: name for name in _IDS if name in last}
        keys = {self._key(label) for sample in profile.sample for label in sample.label if label.str}
        anew = not keys <= self._hidden.keys()
        self._ids = {key: name for key, name in self._hidden.items() if anew or key == first[name]}

    def _key(self, label):
        return self._renamed.get(label.key, label.key)

    def of(self, sample):
        """Returns (labels of the series, {"span_id": ..., "trace_id": ...})."""
        labels, ids = {}, {}
        for label in sample.label:
            key, text = self._key(label), self._strings[label.str]
            name = self._ids.get(key)
            if name and re.fullmatch(f"[0-9a-fA-F]{{{_IDS[name]}}}", text):
                ids.setdefault(name, text.lower())
            if label.str and key not in self._hidden:
                labels.setdefault(self._strings[key], text)
        return labels, ids


def with_samples(push):
    """Returns the labels of each series made from a push: text labels of samples are labels of the
    series."""
    made = [push.labels]
    if push.profile:
        labels = _Labels(push.profile)
        made += [{**labels.of(sample)[0], **push.labels} for sample in push.profile.sample]
    return made


def stored(push):
    """Returns {Key: sum of values} of a pprof: every text label except the ids makes a separate
    series. Labels intended for the server are not kept (memdb.Head.Ingest)."""
    kept = collections.Counter()
    kinds, (period_type, period_unit), _, _ = pprof.types(push.profile)
    assert all((kind, unit) for kind, unit in kinds)
    series = {"service_name": "unknown_service", **push.labels}
    for name in ("__delta__", "__order__"):
        series.pop(name, None)
    found, labels = pprof.frames(push.profile), _Labels(push.profile)
    for sample in push.profile.sample:
        stack = tuple(frame for each in sample.location_id for frame in found[each])
        more, ids = labels.of(sample)
        of = {**more, **series}
        name = re.sub("^godeltaprof_", "", of.pop("__name__"))
        for (kind, unit), value in zip(kinds, sample.value):
            kept[Key(frozenset(of.items()), f"{name}:{kind}:{unit}:{period_type}:{period_unit}", stack,
                     ids.get("span_id", ""), ids.get("trace_id", ""))] += value
    return kept


class Pyroscope:
    """Listens on a free port. pushes: everything stored, in order. rules: see Rule."""

    def __init__(self, jfr_reader=None):
        """jfr_reader: the program of tests/sdks/jfr-reader; without it recordings are kept unread."""
        self.pushes, self.rules, self.n_requests, self.paths = [], [], 0, []
        self.jfr_reader = jfr_reader
        self._lock = threading.Lock()
        self._server = httpd.Server(("127.0.0.1", 0), _Handler)
        self._server.pyroscope = self
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.address}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def refuse(self, match, **how):
        self.rules.append(Rule(match, **how))

    def take(self, pushes):
        """Processes one request. Raises Refused if it is answered with an error."""
        with self._lock:
            self.n_requests += 1
            failed, good = None, []
            for push in pushes:
                try:
                    for labels in with_samples(push):
                        check_labels(labels)
                    self._apply_rules(push)
                    good.append(push)
                except Refused as error:
                    failed = failed or error  # 2.x answers only with the innermost error
                except _Whole as error:
                    raise Refused(error.status, str(error), error.retry_after) from None
            self.pushes += good
        if failed:
            raise failed

    def _apply_rules(self, push):
        for rule in self.rules:
            if rule.times == 0 or not rule.match(push):
                continue
            if rule.times:
                rule.times -= 1
            raise (_Whole if rule.whole else Refused)(rule.http, rule.message, rule.retry_after)

    def profiles(self):
        with self._lock:
            return list(self.pushes)

    def stored(self):
        """Returns all data that the real server would answer queries from: {Key: value}. Its
        compaction keeps one of several profiles of one series and time
        (block.DedupeProfileRowIterator)."""
        total, seen = collections.Counter(), set()
        for push in self.profiles():
            if push.profile is None:
                continue
            found = stored(push)
            at = push.profile.time_nanos
            series = {(key.labels, key.type, at) for key in found if at}
            total.update({key: value for key, value in found.items() if (key.labels, key.type, at) not in seen})
            seen |= series
        return total

    def wait(self, n_profiles):
        """Waits until that many profiles were stored, and returns them."""
        until(lambda: len(self.profiles()) >= n_profiles, f"{n_profiles} profiles at Pyroscope")
        return self.profiles()


class _Whole(Refused):
    pass


def _plain(data):
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def _form(content_type, body):
    """Returns {name: bytes} of a multipart form."""
    message = email.message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    return {part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
            for part in message.get_payload()}


def _read_jfr(reader, form, query, more):
    """Returns the pushes of a recording, made by Pyroscope's reader."""
    app, labels = parse_name(query.get("name", ""))
    request = {"JFR": _plain(form["jfr"]), "Labels": _plain(form.get("labels", b"")), "App": app,
               "Spy": query.get("spyName") or "unknown", "Series": labels,
               "Rate": int(query.get("sampleRate") or 100),
               "From": int(query.get("from") or 0), "Until": int(query.get("until") or 0)}
    done = subprocess.run([reader], input=json.dumps(request, default=_base64), capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(422, f"the recording cannot be read: {done.stderr}")
    return [Push(series["labels"], pprof.parse(base64.b64decode(series["pprof"])), **more)
            for series in json.loads(done.stdout)]


def _base64(data):
    return base64.b64encode(data).decode()


def _ingest(query, headers, body, jfr_reader=None):
    """Returns the pushes of a request to /ingest."""
    app, labels = parse_name(query.get("name", ""))
    kind, content_type = query.get("format", ""), headers.get("content-type", "")
    config, data, form = None, body, {"jfr": body}
    multipart = "multipart/form-data" in content_type
    if multipart and kind in ("", "jfr"):
        form = _form(content_type, body)
        data = form.get("jfr" if kind else "profile")
        if data is None:
            raise Refused(400, "the form has no profile")
        kind = kind or "pprof"
        if form.get("sample_type_config"):
            config = json.loads(form["sample_type_config"])
    more = {"raw": data, "headers": headers, "query": query}
    if kind == "jfr" and jfr_reader:
        return _read_jfr(jfr_reader, form, query, more)
    if kind != "pprof" and "service_name" in labels:
        labels["app_name"] = app
    labels = {"__delta__": "false", "pyroscope_spy": query.get("spyName") or "unknown",
              "service_name": app, **labels}
    if kind != "pprof":
        return [Push({"__name__": kind or "groups", **labels}, None, **more)]
    try:
        profile = pprof.parse(_plain(data))
    except Exception as error:
        raise Refused(422, f"the profile cannot be read: {error}") from None
    repair(profile, labels["pyroscope_spy"])
    name = metric_name([kind for kind, _ in pprof.types(profile)[0]], config)
    return [Push({"__name__": name, **labels}, profile, **more)]


def _push(headers, body):
    """Returns the pushes of a request to push.v1."""
    if headers.get("content-encoding", "identity") == "gzip":
        body = gzip.decompress(body)
    elif headers.get("content-encoding", "identity") != "identity":
        raise Refused(501, "unknown compression: supported encodings are gzip")
    request = PushRequest.FromString(body)
    pushes = []
    for series in request.series:
        labels = {each.name: each.value for each in series.labels}
        if len(labels) != len(series.labels):
            raise Refused(400, "duplicate label name")
        for sample in series.samples:
            pushes.append(Push(labels, pprof.parse(sample.raw_profile), sample.raw_profile, sample.ID,
                               headers))
    if not pushes:
        raise Refused(400, "no profiles received")
    return pushes


class _Handler(httpd.Handler):
    def do_POST(self):
        body, url = self.body(), urllib.parse.urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.pyroscope.paths.append(url.path)
        try:
            if url.path in ("/ingest", "/pyroscope/ingest"):
                query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
                self.server.pyroscope.take(_ingest(query, headers, body, self.server.pyroscope.jfr_reader))
                return self._answer(200, None, b"")
            if not url.path.endswith(PUSH_PATH):
                return self._error(404, "Not Found")
            if headers.get("content-type") != "application/proto":
                return self._answer(415, None, b"")
            self.server.pyroscope.take(_push(headers, body))
            return self._answer(200, "application/proto", b"")
        except Refused as error:
            return self._error(error.status, str(error), error.retry_after)

    def _error(self, status, message, retry_after=None):
        body = {"code": _CODES.get(status, "unknown"), "message": message}
        self._answer(status, "application/json", json.dumps(body).encode(), retry_after)

    def _answer(self, status, kind, body, retry_after=None):
        self.send_response(status)
        if kind:
            self.send_header("content-type", kind)
        if retry_after is not None:
            self.send_header("retry-after", str(retry_after))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
