# SPDX-License-Identifier: Apache-2.0
import pytest

import recipes


@pytest.fixture
def quickstart(braid, tmp_path):
    """Starts `braid` without a config."""
    return recipes.quickstart(braid, tmp_path / "data")


@pytest.fixture
def folder(tmp_path):
    """The directory for the files of a recipe."""
    (tmp_path / "recipe").mkdir()
    return tmp_path / "recipe"


@pytest.fixture
def recipe(quickstart, folder):
    """start(heading) runs the recipe under a heading, together with the files of `also`, another
    heading."""
    started = []

    def start(heading, also=None, **env):
        for name, content in recipes.files(recipes.section(also))[0].items() if also else ():
            (folder / name).write_text(content)
        started.append(recipes.Service(heading, folder, *recipes.addresses(quickstart), env=env))
        return started[-1]
    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
