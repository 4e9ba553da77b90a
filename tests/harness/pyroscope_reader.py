# SPDX-License-Identifier: Apache-2.0
"""What Pyroscope has of what was pushed to its stand-in, by the server's own code (tests/sdks/pyroscope-reader)."""

import base64
import collections
import json
import subprocess

import programs


def _pprof(push):
    """What /ingest makes of a body is the stand-in's work."""
    return push.profile.SerializeToString() if push.query else push.raw


def stacks(pyroscope):
    """{(type, span): {functions, the leaf first: value}}; the span "" stands for all samples of the type."""
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
    """The same of what the stand-in has. What has no stack is in no flame graph."""
    found = collections.Counter()
    for key, value in stored.items():
        for span in {"", key.span_id} if key.stack else ():
            found[key.type, span] += value
    return +found
