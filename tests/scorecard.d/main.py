# SPDX-License-Identifier: Apache-2.0
"""See tests/scorecard."""

import argparse
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/contributing/scorecard.md"
sys.path[:0] = [str(ROOT / "tests" / "harness"), str(pathlib.Path(__file__).parent)]

import card  # noqa: E402
import beside  # noqa: E402,F401
import conform  # noqa: E402,F401
import delivery  # noqa: E402,F401
import durable  # noqa: E402,F401
import durable_disk  # noqa: E402,F401
import fairness  # noqa: E402,F401
import faults  # noqa: E402,F401
import hostile  # noqa: E402,F401
import memory  # noqa: E402,F401
import network  # noqa: E402,F401
import program  # noqa: E402,F401
import reload  # noqa: E402,F401
import soak  # noqa: E402,F401
import starving  # noqa: E402,F401

HEAD = "| # | figure | target | measured | | commit | command |\n|---|---|---|---|---|---|---|\n"


def commit():
    def git(*args):
        return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    changes = git("status", "--porcelain", "-uno", "--", ".", f":!{PAGE.relative_to(ROOT)}")
    return git("rev-parse", "--short", "HEAD") + (" and changes" if changes else "")


def verdict(figure):
    if figure.skipped:
        return "SKIP"
    return "PASS" if figure.good else "FAIL"


def row(line, figure, where, command):
    result = verdict(figure)
    cells = [line.number, line.name, line.target, figure.text, result, where, f"`{command}`"]
    return "| " + " | ".join(str(each).replace("|", "\\|") for each in cells) + " |\n"


def write(figures, options):
    """Replaces the rows of the measured lines."""
    text, where = PAGE.read_text(), commit()
    before, table, after = re.fullmatch(r"(.*?)(\| # \|.*?\n)(\n.*|)", text, re.DOTALL).groups()
    rows = {int(each.split("|")[1]): each + "\n" for each in table.splitlines()[2:]}
    for number, figure in figures.items():
        command = f"tests/scorecard {options}{number}"
        rows[number] = row(card.LINES[number], figure, where, command)
    PAGE.write_text(before + HEAD + "".join(rows[number] for number in sorted(rows)) + after)


def measure(line, fast):
    with tempfile.TemporaryDirectory(prefix="scorecard-") as folder:
        try:
            return line.measure(pathlib.Path(folder), fast)
        except Exception as error:  # after any error the line has no figure, and the next line is measured
            return card.Figure(f"no figure: {type(error).__name__}: {str(error)[:300]}", False)


def main():
    parser = argparse.ArgumentParser(prog="tests/scorecard")
    parser.add_argument("--fast", action="store_true", help="only lines of a few seconds")
    parser.add_argument("--minutes", type=int, help="how long lines 12 and 26 take (1 and 3)")
    parser.add_argument("--write", action="store_true", help="keep the figures in docs/contributing/scorecard.md")
    parser.add_argument("lines", nargs="*", type=int, metavar="line")
    args = parser.parse_args()
    card.OPTIONS["minutes"] = args.minutes
    # Does not use `choices`: Python 3.11 rejects the empty list with them.
    unknown = set(args.lines) - set(card.LINES)
    if unknown:
        parser.error(f"no line {min(unknown)}; there are {', '.join(map(str, sorted(card.LINES)))}")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = args.lines or [number for number, line in card.LINES.items() if line.fast or not args.fast]
    figures = {}
    for number in sorted(wanted):
        line = card.LINES[number]
        figures[number] = figure = measure(line, args.fast)
        print(f"{verdict(figure)} {number:2} {line.name}\n        target: {line.target}\n"
              f"        figure: {figure.text}", flush=True)
        if args.write:
            write({number: figure}, "--fast " * args.fast + f"--minutes {args.minutes} " * bool(args.minutes))
    skipped = sum(figure.skipped for figure in figures.values())
    missed = sum(not figure.good and not figure.skipped for figure in figures.values())
    print(f"{len(figures) - missed - skipped} of {len(figures)} lines meet their targets, {skipped} skipped")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
