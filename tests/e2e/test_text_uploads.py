# SPDX-License-Identifier: Apache-2.0
"""Uploads of text formats of other tools: their functions, files and numbers."""

import gzip
import pathlib

import pytest

import clients
import otlp
from scraped import config, samples

DATA = pathlib.Path(__file__).parents[1] / "data"
BOM = b"\xef\xbb\xbf"
PERF = b"""app  2500/2510 [000] 186448.000001:     250000 cpu-clock:
\t    7fbc work (/opt/app/bin/server (deleted))
\t    7fbd run (/home/u/.wine/drive_c/Program Files (x86)/Game/game.exe)
\t    7fbe operator()(int) (/usr/lib/x.so)

app 2510 [000] 186449.000001:     250000 cpu-clock: 
\t    7fbc leaf+0x12 (/opt/app/server)
  server.c:42
\t    7fbd middle+0x4 (/opt/app/server)
  ??:0
\t    7fbe main+0x4 (/opt/app/server)
  /srv/a b/main.c:7 (discriminator 3)

"""


def upload(server, body, name="shop.cpu"):
    return clients.http(server.address("http", "receiver/pprof"), f"/v1/profiles/upload?name={name}", body, None)


def frames(sink):
    """Returns, for each sample, leaf first, the function, the binary, the file and the line."""
    found = []
    for request in (call.message for call in sink.of(otlp.PROFILES)):
        table = request.dictionary
        text = table.string_table
        for profile in (profile for resource in request.resource_profiles for scope in resource.scope_profiles
                        for profile in scope.profiles):
            for sample in profile.samples:
                stack = []
                for index in table.stack_table[sample.stack_index].location_indices:
                    place = table.location_table[index]
                    [line] = place.lines
                    function = table.function_table[line.function_index]
                    stack.append((text[function.name_strindex], text[table.mapping_table[place.mapping_index].filename_strindex],
                                  text[function.filename_strindex], line.line))
                found.append(stack)
    return found


def test_perf_script_names_binaries_files_and_lines(braid, sink):
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    assert upload(server, PERF).code == 200
    sink.wait(otlp.PROFILES, 2)
    assert sorted(frames(sink)) == [
        [("leaf", "/opt/app/server", "server.c", 42), ("middle", "/opt/app/server", "", 0),
         ("main", "/opt/app/server", "/srv/a b/main.c", 7)],
        [("work", "/opt/app/bin/server (deleted)", "", 0),
         ("run", "/home/u/.wine/drive_c/Program Files (x86)/Game/game.exe", "", 0), ("operator()(int)", "/usr/lib/x.so", "", 0)]]


@pytest.mark.parametrize("mark", [b"", BOM])
@pytest.mark.parametrize("text, want", [
    (b"main;work 12.5\nmain;idle 0.5\n", [5_000_000, 125_000_000]),
    (b"main;work 3\n", [30_000_000])])
def test_folded_text(braid, sink, mark, text, want):
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    assert upload(server, mark + text).code == 200
    sink.wait(otlp.PROFILES, len(want))
    assert sorted(each["values"][0] for each in samples(sink)) == want
    assert all(stack[-1][0] == "main" for stack in frames(sink))


def test_a_type_is_not_part_of_the_service(braid, sink):
    """As in the README, which uploads a pprof."""
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    body = (DATA / "pprof" / "cpu.pb.gz").read_bytes()
    for name in ("shop.cpu", "shop", "cpu", "my.shop"):
        assert upload(server, body, name).code == 200
    server.stop()
    assert {each["resource"]["service.name"] for each in samples(sink)} == {"shop", "cpu", "my.shop"}


def test_a_pprof_that_is_compressed_twice(braid, sink):
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    once = (DATA / "pprof" / "cpu.pb.gz").read_bytes()
    assert once[:2] == b"\x1f\x8b"
    assert upload(server, gzip.compress(once)).code == 200
    bad = upload(server, gzip.compress(gzip.compress(once)))
    assert bad.code == 400
    server.stop()
    assert samples(sink)


@pytest.mark.parametrize("body, why", [(b"\x04\x22\x4d\x18" + b"a" * 50, "LZ4"), (b"[object FormData]", "[object FormData]")])
def test_a_file_that_is_not_a_profile_is_named(braid, sink, body, why):
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    answer = upload(server, body)
    assert answer.code == 400 and why in answer.body.decode(), answer
