"""Continuous integration runs every test in the course of a few runs."""

import os
import pathlib
import re
import shlex
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]

# In place of the tests, so that only the choice of the part runs.
MAKEFILE = """\
PARTS = 1 2 3
test:
\t@echo make test
test-part:
\t@echo testing part $(PART) $(MARKS)
"""


def run(*command, cwd):
    # `make test` tells each inner make that it is one, which then prints more.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def parts():
    (found,) = re.findall(
        r"^PARTS = (.*)$", (ROOT / "Makefile").read_text(), re.M
    )
    return found.split()


def test_every_file_of_tests_is_in_one_part_of_all_tests():
    files = []
    for part in parts():
        line = run(
            *("make", "--dry-run", "--no-print-directory", "--old-file"),
            *(".venv/test", "test-part", f"PART={part}"),
            cwd=ROOT,
        ).splitlines()[-1]
        words = shlex.split(line)
        left_out = [
            words[i + 1] for i, x in enumerate(words) if x == "--deselect"
        ]
        for word in words:
            if word.startswith("tests/") and word not in left_out:
                for path in sorted(ROOT.glob(word)):
                    found = path.rglob("test_*.py") if path.is_dir() else [path]
                    files += [
                        x
                        for x in found
                        if not word_of(x).startswith(tuple(left_out))
                    ]
    assert sorted(map(word_of, files)) == sorted(
        word_of(x) for x in (ROOT / "tests").rglob("test_*.py")
    )


def word_of(path):
    return str(path.relative_to(ROOT))


@pytest.fixture
def checkout(tmp_path):
    """A repository of four commits, with the gate and three parts."""
    folder = tmp_path / "checkout"
    (folder / ".ci").mkdir(parents=True)
    (folder / ".ci/run").write_text((ROOT / ".ci/run").read_text())
    (folder / ".ci/run").chmod(0o755)
    (folder / "Makefile").write_text(MAKEFILE)
    run("git", "init", "--quiet", cwd=folder)
    for number in range(4):
        (folder / "number").write_text(str(number))
        run("git", "add", ".", cwd=folder)
        run(
            *("git", "-c", "user.name=a", "-c", "user.email=a@b.c"),
            *("commit", "--quiet", "--message", str(number)),
            cwd=folder,
        )
    return folder


def part_of(checkout):
    printed = run(".ci/run", cwd=checkout)
    (part,) = re.findall(r"^testing part (\d+) full$", printed, re.M)
    assert printed.startswith("make test\n")
    assert f"To repeat it: make test-part PART={part} MARKS=full\n" in printed
    return part


def test_each_commit_runs_another_part(checkout):
    found = []
    for back in range(3):
        run("git", "checkout", "--quiet", f"HEAD~{min(back, 1)}", cwd=checkout)
        found.append(part_of(checkout))
    assert sorted(found) == ["1", "2", "3"]


def test_the_hash_chooses_the_part_of_a_shallow_clone(checkout, tmp_path):
    shallow = tmp_path / "shallow"
    run(
        *("git", "clone", "--quiet", "--depth=1"),
        *(f"file://{checkout}", shallow),
        cwd=tmp_path,
    )
    commit = run("git", "rev-parse", "HEAD", cwd=shallow)
    assert part_of(shallow) == "123"[int(commit[:7], 16) % 3]


def test_a_copy_without_git_runs_a_part(checkout, tmp_path):
    copy = tmp_path / "copy"
    (copy / ".ci").mkdir(parents=True)
    for name in (".ci/run", "Makefile"):
        (copy / name).write_bytes((checkout / name).read_bytes())
    (copy / ".ci/run").chmod(0o755)
    assert part_of(copy) in ("1", "2", "3")


def test_the_workflow_fetches_the_whole_history():
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    assert re.search(
        r"actions/checkout@.*\n\s+with:\n\s+fetch-depth: 0\b", workflow
    )
