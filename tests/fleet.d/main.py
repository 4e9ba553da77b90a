# SPDX-License-Identifier: Apache-2.0
"""See tests/fleet."""

import argparse
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "harness"), str(pathlib.Path(__file__).parent)]

import balancing  # noqa: E402
import brokers  # noqa: E402
import network as networks  # noqa: E402
from load import Backend, Load  # noqa: E402
from verdict import Changes, Verdict  # noqa: E402

WAYS = ("late", "durable", "kafka", "late-sampled", "durable-sampled", "kafka-sampled")
SCENARIOS = ("added", "stopped", "killed", "frozen", "cut", "entrance")  # methods of a fleet
QUIET = 24  # traces that begin and end between two events


def fleet(way, folder, network, backend, jars):
    way, _, sampled = way.partition("-")
    if way == "kafka":
        return brokers.Group(folder, network, backend, jars, bool(sampled))
    return balancing.Balancing(folder, network, backend, way == "durable", bool(sampled))


def rounds(made, changes, load, names, minutes):
    """Runs each scenario once, or again until the time is over."""
    end = time.monotonic() + 60 * minutes
    while True:
        for name in names:
            for _ in getattr(made, name)(changes, load):
                load.wait(QUIET)
        if time.monotonic() > end:
            return


def measure(way, folder, network, args):
    backend, changes = Backend(network.gate), Changes()
    made = fleet(way, folder, network, backend, args.kafka)
    try:
        made.start()
        load = Load(made.entrances, backend, changes, made.sampling)
        made.watch(changes)
        load.start()
        load.wait(QUIET)
        rounds(made, changes, load, args.events or SCENARIOS, args.minutes)
        load.stop()
        verdict = Verdict(load, backend, changes)
        made.end()
        return verdict
    finally:
        made.close()
        backend.close()


def parse():
    parser = argparse.ArgumentParser(prog="tests/fleet")
    parser.add_argument("--minutes", type=float, default=0, help="repeat the events for this time")
    parser.add_argument("--events", nargs="+", choices=SCENARIOS, help="only these; default: all")
    parser.add_argument("--kafka", type=pathlib.Path, help="directory with the jars of Kafka; default: a mock cluster")
    parser.add_argument("--keep", type=pathlib.Path, help="keep configs and logs in this directory")
    parser.add_argument("ways", nargs="*", metavar="way", help=", ".join(WAYS))
    args = parser.parse_args()
    if unknown := set(args.ways) - set(WAYS):
        parser.error(f"no way {min(unknown)}; there are {', '.join(WAYS)}")
    if args.keep and args.keep.is_dir() and any(args.keep.iterdir()):
        parser.error(f"--keep: {args.keep} must be empty or must not exist")
    return args


def main():
    args = parse()
    networks.isolate([sys.executable, *sys.argv])
    network, good = networks.network(), True
    if not network.can_cut:
        print("SKIP cut off: this process is not permitted to create network namespaces")
    try:
        for way in args.ways or WAYS:
            with tempfile.TemporaryDirectory(prefix="fleet-") as temporary:
                folder = (args.keep or pathlib.Path(temporary)) / way
                folder.mkdir(parents=True)
                verdict = measure(way, folder, network, args)
            good = good and verdict.good
            print(f"{'PASS' if verdict.good else 'FAIL'} {way}")
            for line in verdict.lines():
                print(f"    {line}", flush=True)
    finally:
        network.close()
    return not good


if __name__ == "__main__":
    sys.exit(main())
