"""A prediction as a program that needs jax and numpy alone."""

import dataclasses
import json
import pathlib
import runpy
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax import MODELS, Config, Graph, fit
from hopf_jax.cli import tables
from hopf_jax.results import predict_template
from tests import graphs

pytest.importorskip("flatbuffers", reason="hopf-jax[export] is not installed")

# Whatever is not there in an environment with jax alone.
ABSENT = ("hopf_jax", "flax", "jraph", "optax", "chex", "pandas", "sklearn", "networkx")
QUICK = Config(hidden_size=4, num_iterations=2, max_epochs=2, min_epochs=1)


def last(result):
    """The result with all iterations, whichever was the best."""
    return dataclasses.replace(result, iteration=len(result.weights))


def test_cells_that_spreadsheets_execute_are_text():
    for text in ("=1+1", "+1", "-x", "@x", "\tx", "\rx", "'=x", "''-", "x=1", "'x", ""):
        assert predict_template.as_text(text) == tables._as_text(text)


def arrays_of(graph):
    matrix, features = graph.adjacency.tocoo(), graph.features
    return {
        "features": features.toarray() if sp.issparse(features) else features,
        "senders": matrix.coords[1],
        "receivers": matrix.coords[0],
        "weights": matrix.data,
        "train": graph.train,
        "labels": graph.labels,
    }


def predictor(folder):
    return runpy.run_path(str(folder / "predict.py"))["load"](folder)[1]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    graph = graphs.tiny("all")
    result = last(fit(graph, "i-nip-mean", QUICK, members=2, caution="share"))
    folder = tmp_path_factory.mktemp("exported") / "model"
    result.export(folder)
    return graph, result, folder


def assert_same(result, folder, graph):
    found = predictor(folder)(arrays_of(graph))
    want = result.predict_proba(graph)
    np.testing.assert_allclose(found["probabilities"], want, atol=1e-6)
    sure = result.confidence(graph)
    np.testing.assert_allclose(found["confidence"], sure.probabilities, atol=1e-5)
    np.testing.assert_array_equal(found["labels"], result.decision.decide(want))


def test_it_gives_the_same_on_graphs_of_any_size(exported):
    graph, result, folder = exported
    assert_same(result, folder, graph)
    smaller = Graph.from_scipy(graph.adjacency[:11, :11], graph.features[:11])
    smaller = dataclasses.replace(smaller, labels=np.zeros((11, 3), np.uint8))
    alone = Graph.from_edges([], [], graph.features)
    alone = dataclasses.replace(alone, labels=np.zeros((18, 3), np.uint8))
    for other in (smaller, alone):
        found = predictor(folder)(arrays_of(other))["probabilities"]
        np.testing.assert_allclose(found, result.predict_proba(other), atol=1e-6)


def test_it_runs_where_only_jax_is(exported):
    *_, folder = exported
    code = (
        "import sys, runpy\n"
        f"sys.modules.update(dict.fromkeys({ABSENT!r}))\n"  # An import of None fails.
        "sys.argv = ['predict.py']\n"
        f"runpy.run_path({str(folder / 'predict.py')!r}, run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "largest difference" in done.stdout


def test_the_manifest_says_what_the_program_reads(exported):
    _, result, folder = exported
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["label_names"] == list(result.label_names)
    assert manifest["platforms"] == ["cpu", "tpu"]
    assert manifest["inputs"][0]["shape"] == ["n", 7]
    program = folder / manifest["program"]
    broken = folder.with_name("broken")
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / program.name).write_bytes(program.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match="damaged"):
        predictor(broken)
    with pytest.raises(ValueError, match="already exists"):
        result.export(folder)


def test_the_script_writes_a_table(exported, tmp_path):
    graph, result, folder = exported
    np.savez(tmp_path / "graph.npz", **arrays_of(graph))
    main = runpy.run_path(str(folder / "predict.py"))["main"]
    assert main([str(tmp_path / "graph.npz"), str(tmp_path / "out.csv")]) == 0
    rows = (tmp_path / "out.csv").read_text().splitlines()
    assert len(rows) == 19 and rows[0] == "node,label,0,1,2"
    names = [row.split(",")[1] for row in rows[1:]]
    assert names == result.predict(graph).astype(str).tolist()
    bad = arrays_of(graph) | {"features": np.ones((18, 2))}
    with pytest.raises(ValueError, match="reads 7 columns"):
        predictor(folder)(bad)


@pytest.mark.parametrize("model", [m for m in MODELS if m != "gs-lstm"])
def test_all_kernels_that_read_neighbours_in_no_order(model, tmp_path):
    multilabel = model in ("i-nip-mean", "gcn")
    graph = graphs.tiny("plain", multilabel=multilabel, sparse=True)
    result = last(fit(graph, model, QUICK, metric="macro"))
    result.export(tmp_path / "model", platforms=["cpu"])
    assert_same(result, tmp_path / "model", graph)


def test_scaling_is_part_of_the_program(tmp_path):
    rng = np.random.default_rng(0)
    features = rng.normal([2000, 0.001, 5], [3, 0.0002, 0.1], (30, 3))
    features[::7, 1] = np.nan
    graph = Graph.from_edges(
        rng.integers(0, 30, 60), rng.integers(0, 30, 60), features,
        rng.integers(0, 2, 30), missing="mean",
    )  # fmt: skip
    result = fit(graph, "gcn", QUICK, folds=2)
    result.export(tmp_path / "model")
    assert_same(result, tmp_path / "model", graph)


def test_what_cannot_be_a_program_is_refused(tmp_path):
    result = fit(graphs.tiny(), "bl-node", QUICK)
    for changes, why in (
        ({"ghost_edges": 2}, "random walks"),
        ({"neighbor_fraction": 0.5}, "at random"),
    ):
        other = dataclasses.replace(
            result, config=dataclasses.replace(result.config, **changes)
        )
        with pytest.raises(ValueError, match=why):
            other.export(tmp_path / "model")
    lstm = dataclasses.replace(result, kernel=MODELS["gs-lstm"])
    with pytest.raises(ValueError, match="random order"):
        lstm.export(tmp_path / "model")
    placed = dataclasses.replace(result, positions=(0.5,))
    with pytest.raises(ValueError, match="positions"):
        placed.export(tmp_path / "model")
    with pytest.raises(ValueError, match="platforms has 'cpus'"):
        result.export(tmp_path / "model", platforms=["cpus"])
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_it_runs_in_an_environment_of_its_own(exported, tmp_path):
    """Packages of this environment by link, jax and what it needs alone."""
    import importlib.metadata

    *_, folder = exported
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True
    )
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    for name in ("jax", "jaxlib", "numpy", "scipy", "ml_dtypes", "opt_einsum"):
        found = importlib.metadata.distribution(name)
        for part in {file.parts[0] for file in found.files or ()} - {"..", "."}:
            source = pathlib.Path(str(found.locate_file(part)))
            if source.exists() and not (site / part).exists():
                (site / part).symlink_to(source)
    run = [tmp_path / "env/bin/python", folder / "predict.py"]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    absent = [run[0], "-c", "import hopf_jax"]
    assert subprocess.run(absent, capture_output=True, cwd=tmp_path).returncode != 0
