# SPDX-License-Identifier: Apache-2.0
"""A line of the scorecard: a number, its subject, its target, and a function that measures it."""

import dataclasses
from collections.abc import Callable

LINES = {}
OPTIONS = {}  # minutes: duration of the lines whose duration can be chosen


@dataclasses.dataclass(frozen=True)
class Figure:
    text: str
    good: bool  # the whole target is met
    skipped: bool = False  # the machine cannot measure it; `text` contains the reason


@dataclasses.dataclass(frozen=True)
class Line:
    number: int
    name: str
    target: str
    fast: bool  # a few seconds
    measure: Callable  # (folder, fast) -> Figure


def line(number, name, target, fast=False):
    """Makes a line from a function whose arguments are a temporary directory, and whether only the
    fast lines are run."""
    def register(function):
        LINES[number] = Line(number, name, target, fast, function)
        return function
    return register


def minutes(otherwise):
    return OPTIONS.get("minutes") or otherwise


def joined(*figures):
    """Combines several figures into one: good if all are."""
    return Figure("; ".join(each.text for each in figures), all(each.good for each in figures))
