"""Who may import whom, read from the source files."""

import ast
import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest

import keras_attn

PACKAGE = pathlib.Path(keras_attn.__file__).parent
SERVING = PACKAGE.parent / "serving" / "keras_attn_serving"

# Every module or folder, and what it may import beside the standard library
# and itself. `keras_attn.losses` and the like are nobody's to import.
MAY_IMPORT = {
    "keras_internals": {"keras"},
    "backend": {"keras", "tensorflow", "jax", "torch"},
    "arguments": set(),
    "caller": set(),
    "probabilities": {"keras", "numpy"},
    "rounding": {"keras", "numpy", "keras_internals"},
    "parts": {"keras", "arguments"},
    "scores": {"keras", "arguments", "parts", "backend"},
    "alignments": {"keras", "arguments", "parts", "backend"},
    "loops": {"keras", "tensorflow", "backend"},
    "cells": {"keras", "arguments", "keras_internals", "placement"},
    "attention": {
        "keras",
        "keras_internals",
        "arguments",
        "scores",
        "alignments",
        "loops",
        "placement",
        "backend",
    },
    "decoder": {
        "keras",
        "arguments",
        "keras_internals",
        "attention",
        "loops",
        "cells",
        "placement",
        "backend",
    },
    "marginal": {
        "keras",
        "arguments",
        "keras_internals",
        "attention",
        "loops",
        "backend",
        "decoder",
    },
    "incremental": {
        "rounding",
        "keras",
        "arguments",
        "keras_internals",
        "numpy",
        "attention",
        "backend",
        "decoder",
        "marginal",
        "cells",
        "loops",
        "placement",
        "structures",
    },
    "search": {"keras", "arguments", "numpy", "tensorflow", "structures"},
    "structures": {"keras"},
    "special_tokens": set(),
    "text": {
        "keras",
        "arguments",
        "caller",
        "numpy",
        "tensorflow",
        "tensorflow_text",
        "sentencepiece",
        "special_tokens",
    },
    "batches": {"caller", "tensorflow", "numpy", "text"},
    "placement": {"keras"},
    "hub": {
        "keras",
        "keras_hub",
        "numpy",
        "incremental",
        "search",
        "special_tokens",
        "text",
    },
    "translator": {
        "caller",
        "probabilities",
        "rounding",
        "keras",
        "hub",
        "keras_internals",
        "tensorflow",
        "numpy",
        "incremental",
        "placement",
        "arguments",
        "search",
        "shortlist",
        "structures",
        "text",
        "export",
    },
    "shortlist": {"arguments", "numpy", "search", "tensorflow", "text"},
    "export": {
        "caller",
        "keras",
        "arguments",
        "keras_internals",
        "tensorflow",
        "tensorflow_serving",
        "numpy",
        "onnx",
        "onnxruntime",
        "tf2onnx",
        "incremental",
        "search",
        "structures",
        "text",
    },
}
LEAVES = {
    "callbacks",
    "findings",
    "gradients",
    "html",
    "losses",
    "metrics",
    "plots",
    "positions",
    "regularizers",
    "reinforce",
    "scheduled_sampling",
    "schedules",
    "migration",
}
MAY_IMPORT |= {
    "findings": {
        "caller",
        "backend",
        "arguments",
        "functional",
        "probabilities",
        "rounding",
        "keras",
        "numpy",
        "tensorflow",
        "jax",
        "torch",
        "flat_graph",
        "incremental",
        "keras_internals",
        "special_tokens",
    },
    "flat_graph": {"keras", "incremental", "keras_internals"},
    "gradients": {"keras", "numpy", "tensorflow", "flat_graph", "translator"},
    "html": {"numpy", "shown"},
    "callbacks": {
        "keras",
        "numpy",
        "tensorflow",
        "arguments",
        "keras_internals",
        "metrics",
        "plots",
    },
    "losses": {"keras", "arguments", "backend", "padded", "special_tokens"},
    "metrics": {
        "keras",
        "numpy",
        "rapidfuzz",
        "sacrebleu",
        "arguments",
        "losses",
        "padded",
        "special_tokens",
    },
    "functional": {"keras"},
    "padded": {"keras"},
    "plots": {"matplotlib", "numpy", "shown"},
    "shown": {"numpy", "words"},
    "words": {"numpy"},
    "positions": {"keras", "arguments", "backend"},
    "regularizers": {"keras"},
    "reinforce": {
        "keras",
        "arguments",
        "backend",
        "functional",
        "special_tokens",
    },
    "scheduled_sampling": {
        "keras",
        "arguments",
        "functional",
        "incremental",
        "loops",
        "special_tokens",
    },
    "schedules": {"keras", "arguments"},
    "migration": {
        "keras",
        "numpy",
        "tensorflow",
        "attention",
        "scores",
        "alignments",
        "decoder",
    },
}


def modules(folder):
    """`{(module or subfolder, file): what it imports}`."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).parts[0].removesuffix(".py")
        found[name, str(path.relative_to(folder))] = imports(path)
    return found


def imports(path):
    """Top packages that a file imports anywhere; our own by their modules."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, *rest = name.split(".")
            if top == "keras_attn" and rest:
                found.add(rest[0])
            elif top not in sys.stdlib_module_names:
                found.add(top)
    return found


OURS = modules(PACKAGE)


@pytest.mark.parametrize(
    "name, file", [key for key in OURS if key[0] != "__init__"]
)
def test_a_module_imports_only_what_stands_to_its_left(name, file):
    assert name in MAY_IMPORT, f"Say in this test what {name} may import."
    allowed = MAY_IMPORT[name] | {name}
    assert OURS[name, file] <= allowed, OURS[name, file] - allowed


def test_nobody_imports_a_leaf():
    for (name, file), imported in OURS.items():
        if name not in LEAVES | {"__init__"}:
            assert not imported & LEAVES, file


def trees(folder):
    """`(file, syntax tree)` of each file of a folder."""
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text("utf-8"))


def private(names):
    return {x for x in names if re.fullmatch(r"_[a-z]\w*", x)}


def test_keras_s_private_names_stand_in_one_file():
    home = PACKAGE / "keras_internals.py"
    (known,) = [tree for path, tree in trees(PACKAGE) if path == home]
    forbidden = {
        x.attr for x in ast.walk(known) if isinstance(x, ast.Attribute)
    } | {
        x.value
        for x in ast.walk(known)
        if isinstance(x, ast.Constant) and isinstance(x.value, str)
    }
    forbidden = private(forbidden) | {"_keras_mask"}
    assert {"_keras_history", "_query_dense", "_loss_tracker"} < forbidden
    for path, tree in trees(PACKAGE):
        if path == home:
            continue
        for x in ast.walk(tree):
            if isinstance(x, ast.ImportFrom):
                assert not x.module.startswith("keras.src"), path
            elif isinstance(x, ast.Import):
                for alias in x.names:
                    assert not alias.name.startswith("keras.src"), path
            elif isinstance(x, ast.Attribute):
                assert x.attr not in forbidden | {"src"}, (path, x.lineno)
            elif isinstance(x, ast.Constant):
                assert x.value not in forbidden, (path, x.lineno)


def test_nobody_reads_the_private_attributes_of_others():
    """But of an object that the same file makes."""
    of_tuples = {"_replace", "_asdict", "_fields", "_make"}
    for path, tree in trees(PACKAGE):
        if path.name == "keras_internals.py":
            continue
        attributes = [x for x in ast.walk(tree) if isinstance(x, ast.Attribute)]
        own = {x.attr for x in attributes if _is_self(x.value)}
        own |= {
            x.name for x in ast.walk(tree) if isinstance(x, ast.FunctionDef)
        }
        for x in attributes:
            if not _is_self(x.value):
                allowed = own | of_tuples
                assert not private({x.attr}) - allowed, (path, x.lineno)


def _is_self(x):
    return isinstance(x, ast.Name) and x.id in ("self", "cls")


def test_the_server_s_distribution_and_ours_never_meet():
    for (_, file), imported in OURS.items():
        assert "keras_attn_serving" not in imported, file
    if not SERVING.exists():
        pytest.skip("No checkout of the serving distribution beside.")
    for (_, file), imported in modules(SERVING).items():
        assert not imported & {"keras", "tf_keras", "keras_attn"}, file
        assert not imported & set(MAY_IMPORT) - {"tensorflow"}, file


def run(program):
    return subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()


def test_importing_the_layers_imports_no_text_and_no_search():
    program = (
        "import sys, keras_attn\n"
        "assert 'Translator' in dir(keras_attn)\n"
        "print(*sys.modules)"
    )
    imported = run(program)
    assert "keras_attn.decoder" in imported
    for name in ("tensorflow_text", "tensorflow_serving"):
        assert name not in imported
    assert "keras_attn.search" not in imported


@pytest.mark.few(1)
@pytest.mark.parametrize("missing", ["tensorflow", "tensorflow_text"])
def test_what_needs_tensorflow_says_so_where_it_is_missing(missing):
    program = (
        "import sys, keras_attn\n"
        f"sys.modules[{missing!r}] = None\n"
        "try:\n"
        "    keras_attn.Text\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)"
    )
    message = " ".join(run(program))
    assert message.startswith("`keras_attn.Text` needs TensorFlow and")
    assert f"Missing: {missing}." in message
    assert "pip install" in message


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Transformer'"):
        _ = keras_attn.Transformer


def public_names():
    names = {name for name in dir(keras_attn) if not name.startswith("_")}
    return sorted(
        name
        for name in names
        if not inspect.ismodule(getattr(keras_attn, name))
    )


def test_dir_lists_what_is_imported_on_first_use():
    lazy = {"Text", "pairs", "Translator", "BeamSearch", "GreedySearch"}
    assert lazy < set(public_names())
    assert keras_attn.__version__


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_has_a_docstring(name):
    documented = getattr(keras_attn, name)
    assert documented.__doc__ and documented.__doc__.strip()
    # A dataclass or named tuple without one of its own gets its signature.
    assert not documented.__doc__.startswith(f"{name}(")


@pytest.mark.parametrize("name", public_names())
def test_every_public_method_has_a_docstring(name):
    if not inspect.isclass(getattr(keras_attn, name)):
        return
    keras_s_own = {"build", "call", "from_config", "get_config"}
    for method, function in vars(getattr(keras_attn, name)).items():
        if method.startswith(("_", "compute_")) or method in keras_s_own:
            continue
        if inspect.isfunction(function):
            assert inspect.getdoc(function), method


def test_no_module_uses_what_is_deprecated():
    program = (
        "import importlib, pathlib, pkgutil, keras_attn, keras_attn_serving\n"
        "for package in keras_attn, keras_attn_serving:\n"
        "    for module in pkgutil.walk_packages(\n"
        "        package.__path__, package.__name__ + '.'\n"
        "    ):\n"
        "        found = importlib.import_module(module.name)\n"
        "        source = pathlib.Path(found.__file__).read_text()\n"
        "        compile(source, found.__file__, 'exec')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        cwd=SERVING.parent,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    assert done.returncode == 0, done.stderr
