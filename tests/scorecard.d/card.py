# SPDX-License-Identifier: Apache-2.0
"""A line of the scorecard: a number, what it is about, its target, and a function that measures it."""

import dataclasses
from collections.abc import Callable

LINES = {}
OPTIONS = {}  # minutes: how long the lines take that can be as long as one likes


@dataclasses.dataclass(frozen=True)
class Figure:
    text: str
    good: bool  # the target is met, all of it


@dataclasses.dataclass(frozen=True)
class Line:
    number: int
    name: str
    target: str
    fast: bool  # a few seconds
    measure: Callable  # (folder, fast) -> Figure


def line(number, name, target, fast=False):
    """Makes a line of a function that takes a folder of its own, and whether only the fast lines are asked for."""
    def register(function):
        LINES[number] = Line(number, name, target, fast, function)
        return function
    return register


def minutes(otherwise):
    return OPTIONS.get("minutes") or otherwise


def joined(*figures):
    """One figure of several: good when all are."""
    return Figure("; ".join(each.text for each in figures), all(each.good for each in figures))
