"""The notebooks run, and what is committed of them ran."""

import json
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "experiments" / "notebooks"
MOST_BYTES = 300_000

every_notebook = pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem
)


def code_cells(path):
    cells = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def outputs(path):
    return [output for cell in code_cells(path) for output in cell["outputs"]]


def test_there_are_notebooks():
    assert FOLDER / "quickstart.ipynb" in FOLDER.iterdir()


@every_notebook
def test_it_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    space: dict = {}
    for number, cell in enumerate(code_cells(path), start=1):
        code = compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec")
        exec(code, space)


@every_notebook
def test_it_was_run_top_to_bottom(path):
    counts = [cell["execution_count"] for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))


@every_notebook
def test_its_outputs_are_kept(path):
    kinds = {output["output_type"] for output in outputs(path)}
    assert kinds and "error" not in kinds
    assert any("image/png" in output.get("data", {}) for output in outputs(path))


@every_notebook
def test_it_is_small(path):
    assert path.stat().st_size < MOST_BYTES
