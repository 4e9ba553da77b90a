# SPDX-License-Identifier: Apache-2.0
"""Programs of docs/using/recipes.md, run unchanged with `braid` without a config. The flame graph
of each span contains its function with the CPU time that the program measured, and none during
its sleep (harness/recipes.py)."""

import recipes


def test_go(recipe, quickstart):
    recipes.check(quickstart, lambda: recipe("Go"))


def test_node(recipe, quickstart):
    """One thread, whose requests alternate at each `await`. CPU time is recorded beside the
    wall-clock samples. A sample may hit the code that starts and ends the sleeping span; other
    requests take 0.2 s meanwhile."""
    recipes.check(quickstart, lambda: recipe("Node.js"), profile_type="wall:cpu:nanoseconds:wall:nanoseconds",
                  sleeping=0.02)


def test_java(recipe, quickstart):
    """The JVM uses some CPU time to begin and to end a span, so that a sleeping span may have a
    sample."""
    recipes.check(quickstart, lambda: recipe("Java"), sleeping=0.01)
