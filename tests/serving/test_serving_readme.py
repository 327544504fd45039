"""The Python in serving/README.md runs, on the toy model."""

import pathlib
import re
import shutil
import subprocess

import pytest
from keras_attn_serving import Client
from support.serving import toy_model

README = pathlib.Path(__file__).parents[2] / "serving" / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
# These run in `tests/export/test_onnx_model.py` and `test_triton.py`.
ELSEWHERE = {
    next(i for i, x in enumerate(BLOCKS) if name in x)
    for name in ("OnnxModel", "tritonclient")
}


def test_the_readme_shows_client_stub_onnx_server_and_triton():
    assert len(BLOCKS) == 5


@pytest.mark.parametrize("number", sorted({*range(5)} - ELSEWHERE))
def test_the_readmes_python_runs(ours, toy_path, number):
    block = BLOCKS[number]
    for shown, here in {
        '"localhost:8500"': repr(ours),
        '"models/pronounce"': repr(str(toy_path.parent)),
        '"pronounce"': repr(toy_model.NAME),
    }.items():
        block = block.replace(shown, here)
    # Each block stands alone but the last, which uses the first's import.
    exec(f"from keras_attn_serving import Client\n{block}", {})


@pytest.mark.system
def test_the_readmes_javascript_runs(ours, our_rest):
    node = shutil.which("node") or pytest.skip("needs Node.js")
    (block,) = re.findall(r"```js\n(.*?)```", README.read_text(), re.DOTALL)
    shown = "http://localhost:8501/v1/models/pronounce"
    here = f"http://{our_rest}/v1/models/{toy_model.NAME}"
    assert shown in block
    done = subprocess.run(
        [node, "--input-type=module", "-e", block.replace(shown, here)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    with Client(ours, model=toy_model.NAME) as client:
        texts = client.predict(["attention", "memory"])["text"]
    written = done.stdout.strip().strip("[ ]").split(", ")
    assert [x.strip("' ") for x in written] == texts
