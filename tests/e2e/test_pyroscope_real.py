# SPDX-License-Identifier: Apache-2.0
"""Profiles sent to a real Pyroscope that rejects some, is unavailable, or restarts. Each is stored
once, by the sums of its functions before compaction. PYROSCOPE=<binary> names the server
(harness/peers.py); test_pyroscope_exporter.py has a stand-in that rejects in the same way."""

import collections
import json
import time

import pytest

import ingest
import peers
from braid import until
from pyroscope_scene import CPU, Made

pytestmark = pytest.mark.skipif(not peers.PYROSCOPE, reason="PYROSCOPE names no server")

PUSH = "/push.v1.PusherService/Push"
PROFILES, FUNCTIONS = 40, 1000
PERIOD = 10_000_000
WAIT_S = 120


class Server:
    """A real Pyroscope that can be stopped and restarted at its address."""

    def __init__(self, folder, **flags):
        self.folder, self.flags, self.ports = folder, flags, peers.free_ports(4)
        self.start()

    def start(self):
        self.peer = peers.pyroscope(self.folder, self.ports, **self.flags)
        warm = Made([("cpu", "nanoseconds")], ("cpu", "nanoseconds", PERIOD), int(time.time()))
        warm.add("warm", [PERIOD])
        body = ingest.push_request(({"__name__": "process_cpu", "service_name": "warm"},
                                    [(warm.profile.SerializeToString(), "")])).SerializeToString()
        peers.ready(self.peer, lambda: self.peer.call(PUSH, body, "application/proto")[0] == 200, "Pyroscope")

    def functions(self):
        """Returns {function: value} of all stored data of the services under test."""
        now = int(time.time() * 1000)
        status, body = self.peer.call("/querier.v1.QuerierService/SelectMergeProfile", json.dumps(
            {"profileTypeID": CPU, "labelSelector": '{service_name=~"shop.*"}', "start": now - 3_600_000,
             "end": now + 60_000}).encode())
        assert status == 200, body
        profile, found = json.loads(body), collections.Counter()
        texts = profile.get("stringTable", [])
        names = {each["id"]: texts[int(each["name"])] for each in profile.get("function", [])}
        leaves = {each["id"]: names[each["line"][0]["functionId"]] for each in profile.get("location", [])}
        for sample in profile.get("sample", []):
            found[leaves[sample["locationId"][0]]] += int(sample["value"][0])
        return found


@pytest.fixture
def real(tmp_path):
    servers = []

    def begin(**flags):
        servers.append(Server(tmp_path / "pyroscope", **flags))
        return servers[-1]
    yield begin
    for server in servers:
        server.peer.stop()


@pytest.fixture
def through(braid):
    def begin(server, **options):
        return braid({"receivers": {"pyroscope": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}},
                      "processors": {"batch": {"timeout": "500ms"}},  # so that many profiles are sent at once
                      "exporters": {"pyroscope": {"endpoint": f"http://{server.peer.address}",
                                                  "retry_on_failure": {"initial_interval": "500ms"}, **options}},
                      "service": {"pipelines": {"profiles": {"receivers": ["pyroscope"], "processors": ["batch"],
                                                           "exporters": ["pyroscope"]}},
                                  "telemetry": {"metrics": {"readers": [{"pull": {"exporter": {"prometheus": {
                                      "host": "127.0.0.1", "port": 0}}}}]}}}})
    return begin


def name_of(n, k):
    """Returns the name of function k of profile n; the first 50 are in all profiles."""
    return f"github.com/example/shop/internal/service.(*Handler).function-{k if k < 50 else f'{n}-{k}'}-{'x' * 80}"


def send(braid, count, n_functions=FUNCTIONS, labels=None):
    """Pushes that many profiles, and returns their sums by function."""
    sums, address = collections.Counter(), braid.address("http", "receiver/pyroscope")
    for n in range(count):
        made = Made([("cpu", "nanoseconds")], ("cpu", "nanoseconds", PERIOD), int(time.time()) - n)
        for k in range(n_functions):
            name = name_of(n, k)
            made.add(f"main;{name}", [(1 + k % 7) * PERIOD])
            sums[name] += (1 + k % 7) * PERIOD
        request = ingest.push_request(({"__name__": "process_cpu", "service_name": f"shop-{n}", **(labels or {}).get(n, {})},
                                       [(made.profile.SerializeToString(), "")]))
        answer = ingest.http1(address, PUSH, request.SerializeToString(), {"content-type": "application/proto"})
        assert answer.code == 200, answer
    return sums


def delivered(braid, n_samples):
    def look():
        account = braid.ledger("profiles")
        return account if account["sent"] + account["dropped"] + account["rejected"] >= n_samples else None
    return until(look, "everything was settled", WAIT_S)


def test_a_burst_is_stored_once(real, through):
    """The server accepts 1 MiB at once and half a MiB per second, and rejects any profile above
    that with 429."""
    server = real(distributor__ingestion_rate_limit_mb="0.5", distributor__ingestion_burst_size_mb="1")
    braid = through(server)
    sums = send(braid, PROFILES)
    account = delivered(braid, PROFILES * FUNCTIONS)
    assert (account["sent"], account["dropped"]) == (PROFILES * FUNCTIONS, 0)
    assert server.functions() == sums


def test_profiles_beside_a_bad_one_are_stored_once(real, through):
    """One of 40 profiles has more labels than the server accepts."""
    server = real()
    braid = through(server, labels={"max": 60, "sample_attributes": ["*"], "resource_attributes": ["*"]})
    many = {f"label{i}": "x" for i in range(40)}
    sums = send(braid, PROFILES, 60, labels={7: many})
    for k in range(60):
        sums[name_of(7, k)] -= (1 + k % 7) * PERIOD
    account = delivered(braid, PROFILES * 60)
    assert (account["sent"], account["dropped"]) == ((PROFILES - 1) * 60, 60)
    assert server.functions() == +sums


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])
def test_profiles_are_stored_once_after_a_server_restart(real, through, kill):
    server = real()
    braid = through(server)
    sums = send(braid, 10)
    delivered(braid, 10 * FUNCTIONS)
    server.peer.stop(kill=kill)
    sums += send(braid, 10)
    braid.wait_log("not delivered")
    server.start()
    account = delivered(braid, 20 * FUNCTIONS)
    assert (account["sent"], account["dropped"]) == (20 * FUNCTIONS, 0)
    assert server.functions() == sums
