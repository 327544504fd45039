"""The benchmarks still run, and every library in them computes the same."""

import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"


def smoke(program, folder, *more):
    """Runs a benchmark at toy size and returns what it prints."""
    command = [sys.executable, FOLDER / program, "--smoke", *more]
    done = subprocess.run(
        list(map(str, command)), cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full
def test_the_smallest_benchmark_finds_the_same_net_in_every_library(tmp_path):
    tables = tmp_path / "tables.md"
    smoke("run.py", tmp_path, "--markdown", tables)
    report = tables.read_text(encoding="utf-8")
    for peer in ("keras_attn", "Keras", "KerasHub"):
        assert f"| {peer} |" in report


@pytest.mark.full
def test_the_time_of_a_decoding_is_split_and_its_growth_drawn(tmp_path):
    plot = tmp_path / "growth.svg"
    printed = smoke("decoding.py", tmp_path, "--plot", plot)
    for row in ("| greedy 2 |", "| beam 2 |", "| target length | 3 | 6 |"):
        assert row in printed
    assert plot.read_text(encoding="utf-8").rstrip().endswith("</svg>")


@pytest.mark.full
def test_an_adopted_model_is_measured_beside_the_tutorials_loop(tmp_path):
    printed = smoke("adopted.py", tmp_path)
    columns = "| tutorial | recomputed | opened | cached |"
    assert f"| width {columns}" in printed  # memory
    assert f"| width | tokens {columns}" in printed
    assert "| 32 | 5 |" in printed


@pytest.mark.full
def test_a_shortlist_is_measured_beside_the_whole_vocabulary(tmp_path):
    printed = smoke("shortlist.py", tmp_path)
    assert "| texts | whole vocabulary | shortlist | ratio |" in printed
    assert "| 2 |" in printed


@pytest.mark.full
def test_outputs_of_a_set_are_measured_beside_all(tmp_path):
    printed = smoke("output_sets.py", tmp_path)
    assert "| set | MB | ms a step, 1 row | 32 rows |" in printed
    assert "| 100 texts, made in " in printed


@pytest.mark.full
def test_terms_are_measured_beside_none(tmp_path):
    printed = smoke("terms.py", tmp_path)
    assert "| terms of each row | ms a step, 1 row | 32 rows |" in printed
    assert "| entries | made in s | ms a text | 32 texts |" in printed


@pytest.mark.full
def test_onnx_runtime_is_measured_beside_tensorflow(tmp_path):
    printed = smoke("onnx_runtime.py", tmp_path)
    assert "| texts | TensorFlow | ONNX Runtime | ratio |" in printed
    for row in ("| W1, LSTM | greedy | 1 |", "| W1, Transformer | beam | 2 |"):
        assert row in printed


@pytest.mark.full
def test_a_transformer_is_timed(tmp_path):
    """CTranslate2 stands beside it where that is installed."""
    printed = smoke("transformer.py", tmp_path)
    rows = "| Translator | 10 |", "| Translator, ids | 10 |", "together"
    for row in (*rows, "| operations a step |"):
        assert row in printed


@pytest.mark.full
def test_an_export_compiled_by_xla_is_measured_beside_the_plain_one(tmp_path):
    printed = smoke("xla.py", tmp_path)
    for row in ("| 1 |", "| 3 |", "| XLA |", "| plain |", "| one version |"):
        assert row in printed


@pytest.mark.full
def test_models_of_keras_hub_are_timed_beside_generate(tmp_path):
    printed = smoke("keras_hub_generate.py", tmp_path)
    rows = [x.split(" | ") for x in printed.splitlines() if "ours, XLA" in x]
    families = ["BART", "T5", "T5Gemma", "T5Gemma 2", "Moonshine", "Whisper"]
    assert [x[0].strip("| ") for x in rows] == families
    beside = [["(" in cell for cell in x[2:]] for x in rows]
    assert beside[0] == [True, True]
    assert beside[2] == [True, False]  # its `generate` has no beams
    assert beside[-1] == [False, False]


@pytest.mark.full
def test_a_model_of_hugging_face_is_timed(tmp_path):
    """Its peers stand beside it where KERAS_ATTN_BENCH_HF names a Python."""
    printed = smoke("hugging_face.py", tmp_path)
    rows = "| keras_attn | 1 of 1 | 3 of 3 |", "| keras_attn | bfloat16 |"
    for row in (*rows, "| keras_attn, XLA |", "| keras_attn, shortlist |"):
        assert row in printed


@pytest.mark.full
def test_the_memory_of_every_signature_is_measured(tmp_path):
    printed = smoke("memory.py", tmp_path)
    rows = [x for x in printed.splitlines() if x.startswith("| `")]
    assert len(rows) == 9 and "| 4 x 8 hypotheses over 21 |" in printed


@pytest.mark.full
@pytest.mark.parametrize(
    ("program", "row"),
    [
        ("clients.py", "| deploy/batching.pbtxt | 8 |"),
        ("endurance.py", "| 2000 | 0 | 0 | 10 | 3 | 11 |"),
        ("hostile.py", "| 50 plain bytes | 50 closed |"),
    ],
)
def test_a_server_is_tried_hard(tmp_path, program, row):
    assert row in smoke(program, tmp_path)
