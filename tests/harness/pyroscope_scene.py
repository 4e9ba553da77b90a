# SPDX-License-Identifier: Apache-2.0
"""Profiles of four services as SDKs push them, and queries for them in Pyroscope's API: for a real
Pyroscope and for Braid alike. Nothing is random, and all times are fixed."""

import hashlib
import random
import uuid

import pprof

START_S, STEP_S, TURNS = 1_795_645_320, 15, 16
START_MS, END_MS = START_S * 1000, (START_S + (TURNS + 2) * STEP_S) * 1000

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
WALL, WALL_CPU = "wall:wall:nanoseconds:wall:nanoseconds", "wall:cpu:nanoseconds:wall:nanoseconds"
HEAP = "memory:inuse_space:bytes:space:bytes"
SPAN, TRACE = "46854045a7a33469", "52e17a697f2d01d82d1378f3a27824a3"


def made_id(*parts, size=8):
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:2 * size]


class Made:
    """A pprof under construction."""

    def __init__(self, types, period, time_s):
        self.profile = pprof.Profile(time_nanos=time_s * 10**9, duration_nanos=STEP_S * 10**9, period=period[2])
        self.texts, self.functions = {}, {}
        self.text("")
        for kind, unit in types:
            self.profile.sample_type.add(type=self.text(kind), unit=self.text(unit))
        self.profile.period_type.type, self.profile.period_type.unit = self.text(period[0]), self.text(period[1])
        self.profile.mapping.add(id=1, memory_start=0x400000, memory_limit=0x900000, filename=self.text("/bin/app"),
                                 has_functions=True)

    def text(self, value):
        if value not in self.texts:
            self.texts[value] = len(self.texts)
            self.profile.string_table.append(value)
        return self.texts[value]

    def location(self, name):
        if name not in self.functions:
            number = self.functions[name] = len(self.functions) + 1
            self.profile.function.add(id=number, name=self.text(name), system_name=self.text(name),
                                      filename=self.text("app.src"))
            self.profile.location.add(id=number, mapping_id=1, address=0x400000 + 16 * number).line.add(
                function_id=number, line=10 + number)
        return self.functions[name]

    def add(self, stack, values, **labels):
        """Adds a sample. stack: names separated by `;`, the root first; "": a sample without one."""
        sample = self.profile.sample.add(location_id=[self.location(name) for name in reversed(stack.split(";")) if name],
                                         value=values)
        for key, value in labels.items():
            sample.label.add(key=self.text(key.replace("__", ".")), str=self.text(value))


def go(turn, time_s, rng):
    made = Made([("samples", "count"), ("cpu", "nanoseconds")], ("cpu", "nanoseconds", 10_000_000), time_s)
    for n, stack in enumerate(("main.main;main.serve;main.work", "main.main;main.serve;main.work;main.hash",
                               "main.main;main.serve;main.child", "runtime.mcall;runtime.schedule;runtime.findRunnable",
                               "main.main;main.serve;main.work;main.hash;crypto.sum;crypto.block;crypto.round")):
        samples = 5 * rng.randrange(1, 5) + n  # different for each n of a round
        labels = {"span__name": "child" if "child" in stack else "GET /r"} if stack.startswith("main") else {}
        if n == 1 and turn == 3:
            labels |= {"span_id": SPAN, "trace_id": TRACE}
        elif labels:
            labels |= {"span_id": made_id("go", turn, n), "trace_id": made_id("trace", turn, size=16)}
        made.add(stack, [samples, samples * 10_000_000], **labels)
    yield {"__name__": "process_cpu", "service_name": "go-steady", "region": "eu", "pyroscope_spy": "gospy"}, made.profile
    made = Made([("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"),
                 ("inuse_space", "bytes")], ("space", "bytes", 524288), time_s)
    for n, stack in enumerate(("main.main;main.cache", "main.main;main.serve;main.buffer", "main.main;main.init")):
        made.add(stack, [rng.randrange(100), rng.randrange(10**7), 10 * (n + 1), 4_000_000 * (n + 1) + turn])
    yield {"__name__": "memory", "service_name": "go-steady", "region": "eu", "pyroscope_spy": "gospy"}, made.profile


def py(turn, time_s, rng):
    made = Made([("cpu", "nanoseconds")], ("cpu", "nanoseconds", 10_000_000), time_s)
    for stack in ("<module>;serve;work", "<module>;serve", "Thread._bootstrap;Thread._bootstrap_inner;Thread.run;burn",
                  "Thread._bootstrap;Thread._bootstrap_inner;Thread.run;burn;square"):
        made.add(stack, [rng.randrange(1, 12) * 10_000_000],
                 **({"span__name": "GET /r", "span_id": made_id("py", turn, stack)} if "burn" in stack else {}))
    if turn % 5 == 2:
        made.add("", [10_000_000])
    yield {"__name__": "process_cpu", "service_name": "py-steady", "region": "eu", "pyroscope_spy": "pyspy"}, made.profile


def node(turn, time_s, rng):
    made = Made([("samples", "count"), ("wall", "nanoseconds"), ("cpu", "nanoseconds")],
                ("wall", "nanoseconds", 10_000_000), time_s)
    for stack, name in (("(anonymous);handle;burn", "GET /r"), ("(anonymous);handle;child", "child"), ("(anonymous);idle", "")):
        samples = rng.randrange(1, 30)
        made.add(stack, [samples, samples * 10_000_000, rng.randrange(samples * 10_000_000)],
                 **({"span__name": name, "span_id": made_id("node", turn, name)} if name else {}))
    yield {"__name__": "wall", "service_name": "node-steady", "pyroscope_spy": "nodespy"}, made.profile


def checkout(turn, time_s, rng):
    made = Made([("cpu", "nanoseconds")], ("cpu", "nanoseconds", 10_000_000), time_s)
    for n in range(30):
        made.add(f"main;checkout;step{n % 7};leaf{n}", [rng.randrange(1, 9) * 10_000_000])
    yield {"__name__": "process_cpu", "service_name": "checkout-service"}, made.profile
    made = Made([("contentions", "count"), ("delay", "nanoseconds")], ("mutex", "count", 1), time_s)
    made.add("main;lock;unlock", [rng.randrange(1, 9), rng.randrange(10**9)])
    yield {"__name__": "mutex", "service_name": "checkout-service"}, made.profile


def series():
    """Returns [(labels, [(pprof, id)])], for ingest.push_request."""
    for service in (go, py, node, checkout):
        rng = random.Random(service.__name__)
        for turn in range(TURNS):
            for labels, profile in service(turn, START_S + turn * STEP_S, rng):
                pprof.check(profile)
                number = str(uuid.UUID(made_id(turn, sorted(labels.items()), size=16)))
                yield labels, [(profile.SerializeToString(), number)]


# --- Queries -----------------------------------------------------------------------------------------------------------

SERVICES = 'service_name=~"go-steady|py-steady|node-steady|checkout-service|rust-service"'
RANGE = {"start": START_MS, "end": END_MS}


def names():
    yield "ProfileTypes", RANGE
    yield "ProfileTypes", {"start": 1000, "end": 4000}
    everything = {"matchers": ["{%s}" % SERVICES], **RANGE}
    yield "LabelNames", everything
    yield "LabelNames", everything, "application/json;allow-utf8-labelnames=true"
    for matchers in (['{service_name="go-steady"}', '{service_name="py-steady"}'], ['{service_name="nobody"}'],
                     ['{__profile_type__="%s", service_name="go-steady"}' % CPU],
                     ['{service_name="go-steady"}', '{region="eu"}']):
        yield "LabelNames", {"matchers": matchers, **RANGE}
    for name in ("service_name", "region", "span.name", "__profile_type__", "__type__", "__unit__", "__name__",
                 "__period_type__", "nothing", "pyroscope_spy", "__session_id__", "__service_name__"):
        yield "LabelValues", {"name": name, **everything}
    yield "LabelValues", {"name": "service_name", "matchers": ['{__profile_type__="%s", %s}' % (CPU, SERVICES)], **RANGE}
    yield "LabelValues", {"name": "service_name", "matchers": ['{region="eu"}', '{pyroscope_spy="pyspy"}'], **RANGE}
    yield "Series", {"labelNames": ["service_name", "__profile_type__"], **everything}
    yield "Series", everything
    yield "Series", everything, "application/json;allow-utf8-labelnames=true"
    for service, wanted in (("node-steady", ["__profile_type__", "span.name"]), ("py-steady", ["region", "absent"])):
        yield "Series", {"matchers": ['{service_name="%s"}' % service], "labelNames": wanted, **RANGE}
    yield "Series", {"matchers": ['{service_name="node-steady"}', '{service_name="py-steady"}'], "labelNames": ["region"],
                     **RANGE}


def select(selector, kind=CPU, **more):
    return {"profileTypeID": kind, "labelSelector": selector, "maxNodes": 100000, **RANGE, **more}


def stacktraces():
    method = "SelectMergeStacktraces"
    go_, py_ = '{service_name="go-steady"}', '{service_name="py-steady"}'
    for selector in (go_, py_, "{%s}" % SERVICES, '{service_name=~"py.*"}', '{service_name!="py-steady",%s}' % SERVICES,
                     '{service_name!~"py.*",%s}' % SERVICES, '{service_name="go-steady", region="eu"}',
                     '{service_name="go-steady", region=""}', '{service_name="go-steady", region!=""}',
                     '{service_name="go-steady", nothing=""}', '{"service_name"="go-steady"}',
                     '{service_name="go-steady", "span.name"="GET /r"}', '{service_name="go-steady", "span.name"!=""}',
                     '{service_name="go-steady", "span.name"=""}', '{service_name="nobody"}',
                     '{service_name="go-steady", __name__="process_cpu"}', '{service_name="go-steady",__type__="cpu"}'):
        yield method, select(selector)
    for selector, kind in (('{service_name="node-steady"}', WALL), ('{service_name="node-steady"}', WALL_CPU), (go_, HEAP),
                           (go_, "process_cpu:samples:count:cpu:nanoseconds"),
                           ('{service_name="checkout-service"}', "mutex:delay:nanoseconds:mutex:count")):
        yield method, select(selector, kind)
    yield method, {**select(py_), "maxNodes": 5}
    yield method, {**select(go_), "maxNodes": 16}
    yield method, {key: value for key, value in select('{service_name="checkout-service"}').items() if key != "maxNodes"}
    yield method, {**select(py_), "start": START_MS + 30_000, "end": START_MS + 60_000}
    for wrong in (select("{bad"), select(go_, "nope"), select('{service_name=~"("}'),
                  {**select(go_), "start": END_MS, "end": START_MS}):
        yield method, wrong
    spans = "SelectMergeSpanProfile"
    for ids in ([SPAN], [SPAN, "000000000000def0"], ["ffffffffffffffff"], ["zz"], []):
        yield spans, select("{}", spanSelector=ids)
    yield spans, select(go_, spanSelector=[SPAN])
    yield method, select("{%s}" % SERVICES, spanSelector=[SPAN])
    yield method, select("{%s}" % SERVICES, traceIdSelector=[TRACE])
    yield method, select("{%s}" % SERVICES, traceIdSelector=[TRACE], spanSelector=[SPAN])
    yield method, select("{%s}" % SERVICES, traceIdSelector=["ab"])
    for site in (["<module>"], ["Thread._bootstrap", "Thread._bootstrap_inner"], ["nobody"]):
        yield method, select(py_, stackTraceSelector={"callSite": [{"name": name} for name in site]})
    for kind in ("PPROF", "TREE", "DOT"):
        yield method, select(py_, format=f"PROFILE_FORMAT_{kind}")
    yield method, select(go_, format="PROFILE_FORMAT_TREE")
    yield method, select(py_, profileIdSelector=["7c9e6679-7425-40de-944b-e07fc1f90ae7"])
    merge = "SelectMergeProfile"
    yield merge, select(go_)
    yield merge, select('{service_name="checkout-service"}')
    yield merge, select(go_, traceIdSelector=[TRACE])
    for keep in (5, 1, 0):
        yield merge, select(go_, stackTraceSelector={"goPgo": {"keepLocations": keep, "aggregateCallees": True}})


def over_time():
    method = "SelectSeries"
    asked = {"profileTypeID": CPU, "labelSelector": "{%s}" % SERVICES, "step": 15, **RANGE}
    for by in ([], ["service_name"], ["service_name", "region"], ["span.name"], ["nothing"]):
        yield method, {**asked, "groupBy": by}
    go_ = {**asked, "labelSelector": '{service_name="go-steady"}'}
    average = {"aggregation": "TIME_SERIES_AGGREGATION_TYPE_AVERAGE"}
    yield method, {**go_, "step": 5}
    yield method, {**go_, "step": 60}
    yield method, {**go_, **average}
    yield method, {**go_, **average, "step": 60}
    yield method, {**asked, **average, "groupBy": ["service_name"], "step": 60}
    yield method, {**go_, **average, "profileTypeID": HEAP, "step": 60}
    yield method, {**asked, "groupBy": ["service_name"], "limit": 2}
    yield method, {**go_, "exemplarType": "EXEMPLAR_TYPE_INDIVIDUAL"}
    yield method, {**go_, "exemplarType": "EXEMPLAR_TYPE_SPAN"}
    for site in ("Thread._bootstrap", "nobody"):
        yield method, {**asked, "labelSelector": '{service_name="py-steady"}',
                       "stackTraceSelector": {"callSite": [{"name": site}]}}
    yield method, {**go_, "step": 0}
    for kind in ("INDIVIDUAL", "SPAN"):
        yield "SelectHeatmap", {**go_, "queryType": f"HEATMAP_QUERY_TYPE_{kind}", "exemplarType": f"EXEMPLAR_TYPE_{kind}",
                                "limit": 10}


def differences():
    left, right = select('{service_name="go-steady"}'), select('{service_name="py-steady"}')
    yield "Diff", {"left": left, "right": right}
    yield "Diff", {"left": left, "right": left}
    yield "Diff", {"left": {**left, "end": START_MS + 100_000}, "right": {**left, "start": START_MS + 100_000}}
    yield "Diff", {"left": left, "right": {**right, "profileTypeID": WALL}}
    yield "AnalyzeQuery", {"query": '{service_name="go-steady"}', **RANGE}
    yield "GetProfileStats", {}


def rendered():
    path, go_ = "/pyroscope/render", '{service_name="go-steady"}'
    between = {"from": START_MS, "until": END_MS}
    yield path, {"query": CPU + go_, "format": "json", **between}
    yield path, {"query": CPU + go_, "format": "json", "max-nodes": 100000, **between}
    yield path, {"query": CPU + "{}", "groupBy": "service_name", **between}
    yield path, {"query": CPU + go_, "groupBy": "region", **between}
    yield path, {"query": CPU + go_, "from": START_MS // 1000, "until": END_MS // 1000}
    yield path, {"query": CPU + go_, "format": "dot", "max-nodes": 100, **between}
    yield path, {"query": HEAP + go_, "aggregation": "avg", **between}
    yield path, {"query": HEAP + go_, **between}
    yield path, {"query": "x{", **between}
    yield "/pyroscope/render-diff", {"leftQuery": CPU + go_, "leftFrom": START_MS, "leftUntil": END_MS,
                                     "rightQuery": CPU + '{service_name="py-steady"}', "rightFrom": START_MS,
                                     "rightUntil": END_MS, "max-nodes": 16384}
    yield "/pyroscope/label-values", {"label": "service_name", **between}


def questions():
    """Returns [(method or path, message or parameters, Accept)]."""
    for question in (*names(), *stacktraces(), *over_time(), *differences(), *rendered()):
        yield question if len(question) == 3 else (*question, "application/json")
