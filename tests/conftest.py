# SPDX-License-Identifier: Apache-2.0
import signal

import pytest

from braid import Braid
from pyroscope import Pyroscope
from sink import Sink
from tap import Tap

# A shell starts a background job with these ignored, and the servers of the tests would inherit that.
for each in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(each) == signal.SIG_IGN:
        signal.signal(each, signal.SIG_DFL if each == signal.SIGQUIT else signal.default_int_handler)


@pytest.fixture
def new_sink():
    """new_sink(**options) makes a Sink that dies with the test."""
    made = []

    def make(**options):
        made.append(Sink(**options))
        return made[-1]
    yield make
    for each in made:
        each.close()


@pytest.fixture
def sink(new_sink):
    return new_sink()


@pytest.fixture
def pyroscope():
    """A stand-in for Pyroscope."""
    made = Pyroscope()
    yield made
    made.close()


@pytest.fixture
def tap():
    """tap(address) makes a Tap in front of it."""
    made = []

    def make(target):
        made.append(Tap(target))
        return made[-1]
    yield make
    for each in made:
        each.close()


@pytest.fixture
def braid(tmp_path, new_sink, tap):
    """start(config, *args, command=(), env=None) runs the binary; each must stop with 0, before the sinks
    and taps go, unless the test killed it."""
    started = []

    def start(config, *args, **how):
        started.append(Braid(config, tmp_path / f"braid-{len(started)}", *args, **how))
        return started[-1]
    yield start
    try:
        for each in started:
            if not each.killed:
                each.stop()
    finally:
        for each in started:
            each.kill()
