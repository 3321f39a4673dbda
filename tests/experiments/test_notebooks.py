"""The notebooks run, and their committed outputs are complete."""

import dataclasses
import json
import pathlib

import pytest

from hopf_jax import fitting

FOLDER = pathlib.Path(__file__).parents[2] / "experiments" / "notebooks"
MOST_BYTES = 300_000

every_notebook = pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem
)


def code_cells(path):
    cells = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_the_notebooks_are_there():
    names = {path.stem for path in FOLDER.glob("*.ipynb")}
    assert names >= {"quickstart", "kernels", "inductive", "own_kernel"}


def test_a_new_user_needs_fifteen_lines():
    """From a networkx graph to labelled nodes, a picture and a saved model."""
    _, *cells = code_cells(FOLDER / "quickstart.ipynb")  # The first makes the graph.
    code = "".join("".join(cell["source"]) + "\n" for cell in cells)
    code = code[: code.index("result.save(")] + "result.save(...)"
    for step in ("from_networkx(", "fit(", ".plot()", ".predict("):
        assert step in code
    assert len([line for line in code.splitlines() if line.strip()]) <= 15


def run(path, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "agg")
    space: dict = {}
    for number, cell in enumerate(code_cells(path), start=1):
        code = compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec")
        exec(code, space)


@every_notebook
def test_it_runs_with_few_epochs(path, tmp_path, monkeypatch):
    learn = fitting.learn

    def briefly(population, params, inputs, config, *others, **more):
        config = dataclasses.replace(config, max_epochs=3)
        return learn(population, params, inputs, config, *others, **more)

    monkeypatch.setattr(fitting, "learn", briefly)
    run(path, tmp_path, monkeypatch)


@pytest.mark.slow
@every_notebook
def test_it_runs(path, tmp_path, monkeypatch):
    run(path, tmp_path, monkeypatch)


@every_notebook
def test_it_was_run_top_to_bottom_and_is_small(path):
    cells = code_cells(path)
    counts = [cell["execution_count"] for cell in cells]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    kinds = {output["output_type"] for output in outputs}
    assert kinds and "error" not in kinds
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert path.stat().st_size < MOST_BYTES
