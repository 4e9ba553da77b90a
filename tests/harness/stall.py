# SPDX-License-Identifier: Apache-2.0
"""A disk that stops responding: tests/support/stall.c in the process under test, and its control."""

import pathlib
import subprocess

from braid import until

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "support" / "stall.c"


class Stall:
    """Calls named in `calls` on files whose path contains `path` (or ends with it, if it ends in $)
    wait while the disk is stalled."""

    def __init__(self, folder, calls, path):
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / "stall.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)
        self._gate, self._seen = folder / "gate", folder / "seen"
        self.env = {"LD_PRELOAD": str(library), "STALL_CALLS": ",".join(calls), "STALL_PATH": str(path),
                    "STALL_WHILE": str(self._gate), "STALL_SEEN": str(self._seen)}

    def begin(self):
        self._seen.unlink(missing_ok=True)
        self._gate.touch()

    def end(self):
        self._gate.unlink(missing_ok=True)

    def wait(self):
        """Waits until a call is blocked."""
        until(self._seen.exists, "a call that waits for the disk")
