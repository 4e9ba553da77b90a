# SPDX-License-Identifier: Apache-2.0
"""Makes the sdk_* profiles beside it: of the SDKs in tests/sdks that push pprof, one that has samples
of spans, and what Go's own reader says of it:

    python tests/data/pprof/make_sdks.py
"""

import gzip
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "harness"))

import programs  # noqa: E402
from pyroscope import Pyroscope  # noqa: E402
from sink import Sink  # noqa: E402


def plain(raw):
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


for sdk in ("python", "python-old", "node", "node-old", "rust"):
    stand_in, sink = Pyroscope(), Sink()
    try:
        programs.run(sdk, stand_in.url.removeprefix("http://"), sink.http)
        profiles = [plain(push.raw) for push in stand_in.pushes]
    finally:
        stand_in.close()
        sink.close()
    path = HERE / f"sdk_{sdk.replace('-', '_')}.pb.gz"
    path.write_bytes(gzip.compress(max((p for p in profiles if b"span_id" in p), key=len), mtime=0))
    text = subprocess.run(["go", "tool", "pprof", "-raw", path], capture_output=True, check=True).stdout
    path.with_name(path.name.replace(".pb.gz", ".txt")).write_bytes(text)
