# SPDX-License-Identifier: Apache-2.0
"""Programs of docs/using/recipes.md, run to the letter against `braid` without a config: the flame graph of each span has its
function with the CPU time that the program measured itself, and none where it slept (harness/recipes.py)."""

import recipes


def test_go(recipe, quickstart):
    recipes.check(quickstart, lambda: recipe("Go"))


def test_node(recipe, quickstart):
    """One thread, whose requests take turns at each `await`. CPU time is beside the wall-clock samples. A sample may hit the
    code that starts and ends the span that sleeps; what other requests do meanwhile takes 0.2 s."""
    recipes.check(quickstart, lambda: recipe("Node.js"), profile_type="wall:cpu:nanoseconds:wall:nanoseconds",
                  sleeping=0.02)


def test_java(recipe, quickstart):
    """The JVM uses some CPU time to begin and to end a span, so that a span which sleeps may have a sample."""
    recipes.check(quickstart, lambda: recipe("Java"), sleeping=0.01)
