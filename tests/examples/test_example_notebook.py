"""The notebook runs from its first cell to its last."""

import json

import pytest
from support.programs import PROGRAM

NOTEBOOK = PROGRAM.with_name("tour.ipynb")


def outputs(cells):
    """Returns what the cells of code print and show, without pictures."""
    return [
        [
            "".join(x.get("text", x.get("data", {}).get("text/plain", "")))
            for x in cell["outputs"]
        ]
        for cell in cells
        if cell["cell_type"] == "code"
    ]


@pytest.mark.full
def test_it_reads_dates_draws_and_asks_a_server(tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:  # a toy
        cell.source = cell.source.replace("EPOCHS = 5", "EPOCHS = 2")
    nbclient.NotebookClient(
        notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    *_, answer = outputs(notebook.cells)
    assert "2026-11-21" in "".join(answer)
    pictures = [
        output.data["image/png"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 1


def test_it_is_kept_with_its_outputs_and_names_no_machine():
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    cells = notebook["cells"]
    found = outputs(cells)
    assert "200 dates are read right" in "".join(sum(found, []))
    assert any(
        "image/png" in x.get("data", {})
        for c in cells
        for x in c.get("outputs", ())
    )
    assert not any(
        x.get("name") == "stderr" for c in cells for x in c.get("outputs", ())
    )
    # Kept as it was run: in order, once.
    counts = [c["execution_count"] for c in cells if "execution_count" in c]
    assert counts == [*range(1, len(counts) + 1)]
    assert "/home/" not in NOTEBOOK.read_text("utf-8")
