# SPDX-License-Identifier: Apache-2.0
"""Data that Pyroscope would store of the pushes to its stand-in, computed by the server's code
(tests/sdks/pyroscope-reader)."""

import base64
import collections
import json
import subprocess

import programs


def _pprof(push):
    """The stand-in has already converted bodies of /ingest."""
    return push.profile.SerializeToString() if push.query else push.raw


def stacks(pyroscope):
    """Returns {(type, span): {functions, the leaf first: value}}; the span "" stands for all
    samples of the type."""
    pushes = [{"labels": push.labels, "pprof": base64.b64encode(_pprof(push)).decode()}
              for push in pyroscope.profiles() if push.profile is not None]
    done = subprocess.run([programs.PYROSCOPE_READER], input=json.dumps(pushes), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = collections.defaultdict(collections.Counter)
    for row in json.loads(done.stdout):
        for span in {"", row["span"]}:
            found[row["type"], span][tuple(row["stack"])] += row["value"]
    return dict(found)


def totals(found):
    return {key: sum(values.values()) for key, values in found.items()}


def totals_of_stored(stored):
    """Returns the same for the data of the stand-in. Samples without a stack are not in any flame
    graph."""
    found = collections.Counter()
    for key, value in stored.items():
        for span in {"", key.span_id} if key.stack else ():
            found[key.type, span] += value
    return +found
