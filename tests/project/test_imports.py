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
# An installed keras_attn has no checkout around it.
beside_serving = pytest.mark.skipif(
    not SERVING.exists(), reason="no serving distribution beside"
)

# Files of general use, beside the rooms. They know Keras and each other.
GENERAL = {
    "arguments",
    "backend",
    "caller",
    "keras_internals",
    "placement",
    "progress",
    "renamed",
    "structures",
}

# Every room, and the rooms that it may import. A room within a room may import
# what stands here for it alone.
ROOMS = {
    "layers.parts": set(),
    "layers.loops": set(),
    "layers.gelu_tanh": set(),
    "layers.log_mel_spectrogram": set(),
    "layers.logit_bias": set(),
    "layers.positions": set(),
    "layers.scores": {"layers.parts"},
    "layers.tied_embedding": set(),
    "layers.alignments": {"layers.parts"},
    "layers.cells": set(),
    "layers.attention": {"layers.scores", "layers.alignments", "layers.loops"},
    "layers.decoder": {"layers.attention", "layers.cells", "layers.loops"},
    "layers.marginal": {"layers.attention", "layers.decoder", "layers.loops"},
    "graph": set(),
    "text": set(),
    "incremental": {"layers", "graph"},
    "decoding": {"text"},
    "decoding.output_sets": {"decoding", "text"},
    "decoding.phrases": {"decoding", "text"},
    "decoding.translator": {
        "decoding",
        "decoding.output_sets",
        "decoding.phrases",
        "incremental",
        "graph",
        "text",
        "export",
        "models.adopted",
        "models.hugging_face",
        "models.keras_hub",
    },
    "export": {"incremental", "decoding", "decoding.phrases", "text"},
    "command": {"decoding.translator"},
    "models.adopted": {"incremental", "graph", "text"},
    "models.hugging_face": {"layers", "decoding", "text", "models.keras_hub"},
    "models.keras_hub": {"layers", "incremental", "decoding", "text"},
    "models.tf_addons": {"layers"},
    "diagnostics": {"graph", "text", "training.functional_model"},
    "reranking": {"decoding", "decoding.translator", "training.metrics"},
    "training": {"layers", "incremental", "text"},
    "training.callbacks": {"training.metrics", "viewing.plots"},
    "training.distillation": {"training.metrics"},
    "training.metrics": {"training.losses", "training.padded", "text"},
    "viewing.plots": {"viewing.shown"},
    "viewing.html": {"viewing.shown"},
    "viewing.words": set(),
    "viewing.shown": {"viewing.words"},
    "viewing.saliency": {"graph", "decoding.translator"},
}

# What a room may import beside Keras, NumPy, the standard library and ours.
OUTSIDE = {
    "backend": {"tensorflow", "jax", "torch"},
    "layers.loops": {"tensorflow"},
    "text": {"tensorflow", "tensorflow_text", "sentencepiece"},
    "decoding": {"tensorflow"},
    "decoding.output_sets": {"tensorflow", "outlines_core"},
    "decoding.phrases": {"tensorflow"},
    "decoding.translator": {"tensorflow"},
    "export": {
        "tensorflow",
        "tensorflow_serving",
        "onnx",
        "onnxruntime",
        "tf2onnx",
    },
    "models.hugging_face": {"tensorflow", "safetensors", "h5py", "ml_dtypes"},
    "models.keras_hub": {"keras_hub"},
    "models.tf_addons": {"tensorflow"},
    "graph": {"tensorflow", "jax", "torch"},
    "reranking": {"sacrebleu"},
    "training": {"tensorflow"},
    "training.callbacks": {"tensorflow"},
    "training.metrics": {"rapidfuzz", "sacrebleu"},
    "viewing.plots": {"matplotlib"},
    "viewing.saliency": {"tensorflow"},
}

# Nothing else of the package imports these.
LEAVES = {
    "command",
    "diagnostics",
    "models.tf_addons",
    "reranking",
    "training",
    "viewing",
}


def modules(folder):
    """`{file: what it imports}`, ours by their paths within the package."""
    return {
        str(path.relative_to(folder)): imports(path)
        for path in sorted(folder.rglob("*.py"))
    }


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
            top, _, rest = name.partition(".")
            if top == "keras_attn" and rest:
                found.add(f"keras_attn.{rest}")
            elif top not in sys.stdlib_module_names:
                found.add(top)
    return found


def within(module, rooms):
    """The longest of `rooms` that a module stands in, or `None`."""
    parts = module.split(".")
    paths = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((x for x in paths if x in rooms), None)


OURS = modules(PACKAGE)
NOT_IN_ROOMS = {"__init__.py", *(f"{x}.py" for x in GENERAL)}


def room_of(file):
    module = file.removesuffix(".py").removesuffix("__init__")
    return within(module.replace("/", ".").strip("."), ROOMS)


@pytest.mark.parametrize("file", [x for x in OURS if x not in NOT_IN_ROOMS])
def test_a_room_imports_only_what_it_may(file):
    room = room_of(file)
    if file.endswith("/__init__.py") and room is None:
        assert not OURS[file]  # a room of rooms says only what it is
        return
    assert room, f"Say in this test what {file} may import."
    for name in OURS[file]:
        if not name.startswith("keras_attn."):
            allowed = {"keras", "numpy"} | OUTSIDE.get(room, set())
            assert name in allowed, (file, name)
            continue
        module = name.removeprefix("keras_attn.")
        if module.split(".")[0] in GENERAL:
            continue
        own = within(module, ROOMS) == room
        assert own or within(module, ROOMS[room]), (file, name)


@pytest.mark.parametrize("file", [f"{x}.py" for x in sorted(GENERAL)])
def test_files_of_general_use_import_no_room(file):
    for name in OURS[file]:
        module = name.removeprefix("keras_attn.").split(".")[0]
        outside = {"keras", "numpy"} | OUTSIDE.get(file[:-3], set())
        assert module in GENERAL | outside, (file, name)


def test_the_page_names_the_rooms_that_each_may_import():
    """The table of the package's README."""
    wanted: dict[str, set] = {}
    for room, others in ROOMS.items():
        top = room.split(".")[0]
        tops = {x.split(".")[0] for x in others}
        wanted.setdefault(top, set()).update(tops - {top})
    page = (PACKAGE / "README.md").read_text("utf-8")
    _, _, table = page.partition("| room | imports |")
    rows = re.findall(r"^\| ([a-z].*?) \| (.*?) \|", table, re.MULTILINE)
    found = {
        room: set(re.findall(r"\w+", cell)) & wanted.keys()
        for rooms, cell in rows[: len(wanted)]
        for room in rooms.split(", ")
        if room in wanted
    }
    assert found == wanted


def test_no_test_module_imports_another():
    """Helpers of several tests are in `tests/support`."""
    folder = pathlib.Path(__file__).parents[1]
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                last = (node.module or "").rpartition(".")[2]
                assert not last.startswith("test_"), (path, node.module)


def test_nobody_imports_a_leaf():
    for file, imported in OURS.items():
        room = room_of(file) or ""
        if within(room, LEAVES) or file in NOT_IN_ROOMS:
            continue
        for name in imported:
            module = name.removeprefix("keras_attn.")
            leaf = within(module, LEAVES)
            assert not leaf, (file, name)


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


@beside_serving
def test_the_server_s_distribution_and_ours_never_meet():
    for file, imported in OURS.items():
        assert "keras_attn_serving" not in imported, file
    for file, imported in modules(SERVING).items():
        assert not imported & {"keras", "tf_keras", "keras_attn"}, file
        assert not any(x.startswith("keras_attn.") for x in imported), file


# Rooms of the serving distribution; `quiet` and `xla` are anybody's.
SERVING_ROOMS = {
    "wire": set(),
    "client": {"wire"},
    "onnx": {"wire"},
    "server": {"wire"},
    "command": {"wire", "client", "server"},
}


@beside_serving
@pytest.mark.parametrize("room", SERVING_ROOMS)
def test_a_room_of_serving_imports_only_what_it_may(room):
    for path, tree in trees(SERVING / room):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                top, *rest = node.module.split(".")
                there = rest[0] if rest else None
                if top == "keras_attn_serving" and there in SERVING_ROOMS:
                    assert there in SERVING_ROOMS[room] | {room}, path


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
    assert "keras_attn.layers.decoder" in imported
    for name in ("tensorflow_text", "tensorflow_serving"):
        assert name not in imported
    assert "keras_attn.decoding" not in imported


@pytest.mark.sample_cases(1)
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


@pytest.mark.full
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
