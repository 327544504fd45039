"""The files around the code: locked versions, CI, and what SECURITY.md says."""

import pathlib
import re
import tomllib

import keras_attn_serving
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import keras_attn

ROOT = pathlib.Path(__file__).parents[2]
GITHUB = ROOT / ".github"


def locked():
    """Returns the locked versions by the names of packages."""
    lines = (GITHUB / "constraints.txt").read_text().splitlines()
    pairs = [x.split("==") for x in lines if x and not x.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("project", [".", "serving"])
def test_every_dependency_has_a_locked_version_that_it_allows(project):
    known = tomllib.loads((ROOT / project / "pyproject.toml").read_text())
    known = known["project"]
    extras = known["optional-dependencies"].values()
    versions = locked()
    for text in [*known["dependencies"], *(x for y in extras for x in y)]:
        required = Requirement(text)
        version = versions[canonicalize_name(required.name)]
        assert required.specifier.contains(version), text


def test_the_lock_names_the_command_that_made_it_and_no_registry():
    text = (GITHUB / "constraints.txt").read_text()
    command = re.search(r"^#    (uv pip compile .*)$", text, re.M)[1]
    page = (GITHUB / "CONTRIBUTING.md").read_text()
    said = re.sub(r" \\\n +", " ", page)
    assert command in said
    assert "://" not in text and "--index" not in text


def test_actions_are_pinned_by_their_commits():
    for file in GITHUB.glob("workflows/*.yml"):
        jobs = yaml.safe_load(file.read_text())["jobs"].values()
        used = [x["uses"] for job in jobs for x in job["steps"] if "uses" in x]
        assert used
        for action in used:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action


def test_the_present_version_is_supported():
    page = (GITHUB / "SECURITY.md").read_text()
    for package in keras_attn, keras_attn_serving:
        minor = package.__version__.rpartition(".")[0]
        assert re.search(
            rf"^\| {re.escape(minor)} of .* \| yes \|$", page, re.M
        )
    assert "--ssl_config_file" in page and "no encryption" not in page
