# SPDX-License-Identifier: Apache-2.0
"""A trace and its samples whose sums can be computed by hand, for tests of the store and its
queries.

    checkout 0-100 ms (shop)          10 ms in main;checkout
      price 10-60 ms (shop)           20 ms in main;checkout;price
        query 20-50 ms (shop)         30 ms in main;checkout;price;sql
        reserve 30-40 ms (stock)      40 ms in main;reserve
                                      50 ms of shop in main;gc, without a span
A sample is 10 ms of CPU."""

import otlp

START = 1_700_000_000_000_000_000
MS = 1_000_000
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
TRACE = bytes.fromhex("000651916cd43dd8448eb211c80319c7")
SPAN = {"checkout": bytes.fromhex("b7ad6b7169203331"), "price": bytes.fromhex("00f067aa0ba902b7"),
        "query": bytes.fromhex("53995c3f42cd8ad8"), "reserve": bytes.fromhex("72f067aa0ba902b7")}
# name, parent, service, from and to in ms
TREE = [("checkout", None, "shop", 0, 100), ("price", "checkout", "shop", 10, 60), ("query", "price", "shop", 20, 50),
        ("reserve", "price", "stock", 30, 40)]
STACKS = {"checkout": "main;checkout", "price": "main;checkout;price", "query": "main;checkout;price;sql",
          "reserve": "main;reserve", None: "main;gc"}
COUNTS = {"checkout": 1, "price": 2, "query": 3, "reserve": 4, None: 5}
PERIOD = 10 * MS


def spans():
    """Returns the trace, a ResourceSpans for each service."""
    request = otlp.traces.ExportTraceServiceRequest()
    for service in ("shop", "stock"):
        resource = request.resource_spans.add()
        resource.resource.attributes.append(otlp.attribute("service.name", service))
        scope = resource.scope_spans.add()
        scope.scope.name = "scene"
        for name, parent, of, begin, end in TREE:
            if of == service:
                span = scope.spans.add(trace_id=TRACE, span_id=SPAN[name], name=name, kind=1 if parent else 2,
                                       parent_span_id=SPAN[parent] if parent else b"",
                                       start_time_unix_nano=START + begin * MS, end_time_unix_nano=START + end * MS)
                span.attributes.append(otlp.attribute("step", name))
                span.status.code = 2 if name == "reserve" else 0
    return request


class Profiles:
    """A request of CPU profiles, one for each service that samples are added to."""

    def __init__(self):
        self.request = otlp.profiles.ExportProfilesServiceRequest()
        self._tables = self.request.dictionary
        for table in ("mapping_table", "location_table", "function_table", "attribute_table", "stack_table",
                      "link_table"):
            getattr(self._tables, table).add()
        self._strings, self._functions, self._profiles = {}, {}, {}
        self._string("")

    def _string(self, text):
        if text not in self._strings:
            self._strings[text] = len(self._tables.string_table)
            self._tables.string_table.append(text)
        return self._strings[text]

    def _location(self, name):
        if name not in self._functions:
            self._functions[name] = len(self._tables.location_table)
            self._tables.function_table.add(name_strindex=self._string(name), filename_strindex=self._string("shop.go"))
            self._tables.location_table.add().lines.add(function_index=self._functions[name], line=1)
        return self._functions[name]

    def _profile(self, service):
        if service not in self._profiles:
            resource = self.request.resource_profiles.add()
            resource.resource.attributes.append(otlp.attribute("service.name", service))
            profile = resource.scope_profiles.add().profiles.add(
                time_unix_nano=START, duration_nano=100 * MS, period=PERIOD, profile_id=service.encode()[:16].ljust(16))
            for kind in (profile.sample_type, profile.period_type):
                kind.type_strindex, kind.unit_strindex = self._string("cpu"), self._string("nanoseconds")
            self._profiles[service] = profile
        return self._profiles[service]

    def add(self, service, stack, count, trace=None, span=None, at=START):
        """Adds `count` samples of a stack, written from the root down ("": none), with a span or
        without."""
        tables, profile = self._tables, self._profile(service)
        tables.stack_table.add(location_indices=[self._location(name) for name in reversed(stack.split(";")) if name])
        if span:
            tables.link_table.add(trace_id=trace, span_id=span)
        for n in range(count):
            profile.samples.add(stack_index=len(tables.stack_table) - 1, values=[PERIOD],
                                link_index=len(tables.link_table) - 1 if span else 0,
                                timestamps_unix_nano=[at + n * MS])
        return self

    def add_values(self, service, stacks):
        """Adds samples of {stack: value}, without a span."""
        for stack, value in stacks.items():
            self.add(service, stack, 1)
            self._profiles[service].samples[-1].values[0] = value

    def label(self, key, text):
        """Adds an attribute to every sample so far."""
        self._tables.attribute_table.add(key_strindex=self._string(key), value=otlp.attribute("", text).value)
        for profile in self._profiles.values():
            for sample in profile.samples:
                sample.attribute_indices.append(len(self._tables.attribute_table) - 1)


def samples():
    """Returns the samples of the trace."""
    made, begins = Profiles(), {name: begin for name, _, _, begin, _ in TREE}
    for name, stack in STACKS.items():
        made.add("stock" if name == "reserve" else "shop", stack, COUNTS[name], TRACE, SPAN.get(name),
                 START + begins.get(name, 0) * MS)
    return made.request


def folded(*names):
    """Returns the stacks of these spans (None: samples without a span), as {stack: ns}."""
    return {STACKS[name]: COUNTS[name] * PERIOD for name in names}


def stacks_of(flamebearer):
    """Returns the self values of the bars of a flamebearer, as {stack: value}. Checks the
    arithmetic of the format: bars of a row do not overlap, children lie inside their parent, and
    a bar's total is its self value plus its children."""
    names, found, parents = flamebearer["names"], {}, [(0, flamebearer["numTicks"], 0, ())]
    for depth, row in enumerate(flamebearer["levels"]):
        end, bars, filled = 0, [], {}
        for delta, total, own, name in zip(*[iter(row)] * 4):
            begin = end + delta
            end = begin + total
            assert delta >= 0 and 0 <= own <= total
            inside = [index for index, bar in enumerate(parents) if bar[0] <= begin and end <= bar[1]]
            assert inside, (depth, begin, end)
            path = parents[inside[-1]][3] + ((names[name],) if depth else ())
            filled[inside[-1]] = filled.get(inside[-1], 0) + total
            bars.append((begin + own, end, total - own, path))
            if own:
                found[";".join(path)] = found.get(";".join(path), 0) + own
        if depth:
            for index, bar in enumerate(parents):
                assert filled.get(index, 0) == bar[2], (depth, bar)
        parents = bars
    assert all(bar[2] == 0 for bar in parents)
    assert sum(found.values()) == flamebearer["numTicks"]
    assert max(found.values(), default=0) == flamebearer["maxSelf"]
    return found
