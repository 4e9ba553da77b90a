# SPDX-License-Identifier: Apache-2.0
"""The bridge for Node.js (bridges/node) with a fake profiler controlled by the test:
node-bridge/test_bridge.js."""

import pathlib
import subprocess

TEST = pathlib.Path(__file__).parent / "node-bridge" / "test_bridge.js"


def test_bridge_node():
    done = subprocess.run(["node", "--test", "--test-reporter=spec", str(TEST)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
