"""Wheels built from both distributions work outside the checkout."""

import os
import pathlib
import shutil
import subprocess
import sys
import venv

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def run(*command, cwd, **environment):
    """Runs a command away from the checkout; returns what it printed."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Both wheels, built in this environment and without an index."""
    out = tmp_path_factory.mktemp("wheels")
    built = {}
    for name, source in (("main", ROOT), ("serving", ROOT / "serving")):
        folder = out / name
        # setuptools leaves files beside what it builds: not in the checkout
        copy = out / f"{name}-source"
        unwanted = shutil.ignore_patterns(".*", "build", "*.egg-info", "runs")
        shutil.copytree(source, copy, ignore=unwanted)
        run(
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
            *("--no-build-isolation", "--wheel-dir", folder, copy),
            cwd=out,
        )
        (built[name],) = folder.glob("*.whl")
    return built


def install(wheel, folder):
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
        *("--target", folder, wheel),
        cwd=folder.parent,
    )


@pytest.mark.full
def test_the_library_works_from_its_wheel(wheels, tmp_path):
    site = tmp_path / "site"
    install(wheels["main"], site)
    printed = run(
        sys.executable,
        "-c",
        "import keras_attn, numpy as np\n"
        "layer = keras_attn.BahdanauAttention(4)\n"
        "print(layer(np.ones((1, 2, 3)), np.ones((1, 5, 3))).shape)\n"
        "print(keras_attn.Text, keras_attn.Translator, keras_attn.__file__)\n"
        "print(keras_attn.attention_html([])[-8:])",
        cwd=tmp_path,
        PYTHONPATH=str(site),
    )
    assert "1, 2, 3" in printed
    assert str(site) in printed
    assert "</html>" in printed  # from the files of the page
    assert (site / "keras_attn" / "py.typed").exists()


def test_the_server_starts_from_its_wheel(wheels, tmp_path):
    site = tmp_path / "site"
    install(wheels["serving"], site)
    printed = run(
        *(sys.executable, "-m", "keras_attn_serving", "--help"),
        cwd=tmp_path,
        PYTHONPATH=str(site),
    )
    assert "--model_base_path" in printed
    assert (site / "keras_attn_serving" / "py.typed").exists()


@pytest.mark.full
def test_the_client_works_where_there_is_no_tensorflow(wheels, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(
        *(python, "-m", "pip", "install", "--quiet", wheels["serving"]),
        cwd=tmp_path,
    )
    printed = run(
        python,
        "-c",
        "import importlib.util, keras_attn_serving as serving\n"
        "assert importlib.util.find_spec('tensorflow') is None\n"
        "client = serving.Client('localhost:1', model='m', timeout=5)\n"
        "try:\n"
        "    client.predict(['text'])\n"
        "except serving.ServingError as error:\n"
        "    print(error.code.name)",
        cwd=tmp_path,
    )
    assert printed.strip() == "UNAVAILABLE"


def test_the_server_without_its_extra_says_what_to_install(wheels, tmp_path):
    site = tmp_path / "site"
    install(wheels["serving"], site)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.modules['tensorflow'] = None\n"
            "import runpy; sys.argv = ['x', '--model_base_path=/nowhere',"
            " '--model_name=m']\n"
            "runpy.run_module('keras_attn_serving', run_name='__main__')",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "server" in done.stderr and "pip install" in done.stderr
