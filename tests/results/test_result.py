"""Predicting with a result, saving, loading and drawing it."""

import dataclasses
import os
import pathlib
import shutil

import numpy as np
import pytest

from hopf_jax import Config, Execution, Graph, fit, load
from hopf_jax.results import Decision
from tests import graphs

SAVED_BY_0_1 = pathlib.Path(__file__).with_name("saved_by_0.1.npz")


@pytest.fixture
def path(result, tmp_path):
    result.save(tmp_path / "result.npz")
    return tmp_path / "result.npz"


def assert_same(one, other):
    np.testing.assert_array_equal(one.probabilities, other.probabilities)
    assert len(one.weights) == len(other.weights)
    for a, b in zip(one.weights, other.weights, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert a[name].dtype == b[name].dtype
            np.testing.assert_array_equal(a[name], b[name])


# Predictions


def test_predictions_of_some_nodes(result):
    every_node = result.predict_proba()
    assert every_node.shape == (18, 3)
    np.testing.assert_allclose(every_node.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(result.predict_proba([4, 2]), every_node[[4, 2]])
    mask = np.arange(18) < 5
    np.testing.assert_array_equal(result.predict_proba(mask), every_node[:5])
    np.testing.assert_array_equal(result.predict(), every_node.argmax(axis=1))
    np.testing.assert_array_equal(result.predict([3]), every_node[3:4].argmax(axis=1))
    with pytest.raises(ValueError, match=r"nodes\[1\] is 18"):
        result.predict([0, 18])
    with pytest.raises(ValueError, match=r"nodes is a mask of shape \(3,\)"):
        result.predict([True, False, True])


@pytest.mark.parametrize("model", ["i-nip-mean", "gs-max", "gcn", "wl"])
def test_the_fitted_graph_as_a_new_graph_gives_the_same(model, result):
    graph = graphs.tiny("all", sparse=model == "gcn")
    if model == "i-nip-mean":
        graph = graphs.tiny("weighted")
    else:
        result = fit(graph, model, Config(hidden_size=5, max_epochs=1))
    np.testing.assert_array_equal(result.predict_proba(graph), result.probabilities)


def test_a_new_graph_may_be_without_labels(result):
    graph = graphs.tiny("weighted")
    bare = Graph.from_scipy(graph.adjacency, graph.features)
    predicted = result.predict_proba(bare)
    assert predicted.shape == (18, 3)
    assert np.isfinite(predicted).all()
    assert result.iteration > 1  # Otherwise known labels have no effect.
    assert (predicted != result.probabilities).any()
    # Labels of nodes outside the training set are not read either.
    labelled = Graph.from_scipy(graph.adjacency, graph.features, graph.labels)
    np.testing.assert_array_equal(result.predict_proba(labelled), predicted)
    smaller = Graph.from_scipy(graph.adjacency[:11, :11], graph.features[:11])
    assert result.predict(smaller).shape == (11,)


def test_a_new_graph_must_fit_the_weights(result):
    graph = graphs.tiny("weighted")
    with pytest.raises(ValueError, match="2 features, but the model learned from 7"):
        result.predict(Graph.from_scipy(graph.adjacency, graph.features[:, :2]))
    other = Graph.from_scipy(
        graph.adjacency, graph.features, np.arange(18) % 5, train=[0]
    )
    with pytest.raises(ValueError, match="have 5 labels, but the model knows 3"):
        result.predict(other)


# Saving and loading


def test_a_loaded_result_is_the_same(result, config, path):
    loaded = load(path)
    for name in (
        *("kernel", "config", "sizes", "seed", "multilabel", "label_names"),
        *("iteration", "scores", "calibration"),
    ):
        assert getattr(loaded, name) == getattr(result, name), name
    assert loaded.config == config != Config()
    assert_same(loaded, result)
    for one, other in zip(loaded.history, result.history, strict=True):
        assert one == {k: v for k, v in other.items() if k != "seconds"}
    assert repr(loaded) == repr(result)
    assert f"iteration {result.iteration} of 3; " in repr(result)
    np.testing.assert_array_equal(loaded.predict(), result.predict())
    again = loaded.predict_proba(graphs.tiny("weighted"))
    np.testing.assert_array_equal(again, result.probabilities)
    before = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == before


def test_settings_and_names_that_json_changes(multilabel_result, tmp_path):
    names = ("ä", "b", "c")
    one = dataclasses.replace(multilabel_result, label_names=names)
    one.save(tmp_path / "r")
    loaded = load(tmp_path / "r")
    assert loaded.config == one.config and loaded.config.fanouts == (3, 2)
    assert loaded.label_names == names and loaded.multilabel
    assert loaded.calibration == one.calibration
    graph = graphs.tiny("weighted", multilabel=True).with_split()
    np.testing.assert_array_equal(loaded.predict(graph), one.predict(graph))


def test_a_result_saved_by_version_0_1(tmp_path):
    """Its settings include some that are now settings of execution."""
    path = shutil.copy(SAVED_BY_0_1, tmp_path / "result.npz")
    with np.load(path) as archive:
        meta = archive["meta"].tobytes()
        weight = archive["2/w_1_psi"]
    assert b'"memory_budget": 12345' in meta and b'"chunk_edges": 77' in meta
    loaded = load(path)
    assert loaded.execution == Execution(chunk_edges=77)
    assert loaded.config == Config(
        hidden_size=2,
        num_hops=1,
        num_iterations=2,
        max_epochs=1,
        min_epochs=0,
        training_summaries="as-printed",
        summary_dropout=0.0,
        scale_summaries=False,
        features="as-is",
        metric="as-trained",
        directions="given",
        folds=0,
        bias=False,
        init_weights="fan-out",
        weighted_loss=True,
        batch_size=128,
        l2=1e-3,
    )
    assert loaded.decision == Decision("as-trained")
    assert loaded.iteration == 2 and loaded.scores["train"]["micro_f1"] == 0.5
    np.testing.assert_array_equal(loaded.weights[1]["w_1_psi"], weight)
    # The same graph gives the numbers of that version.
    predicted = loaded.predict_proba(graphs.tiny("weighted"))
    np.testing.assert_allclose(predicted, loaded.probabilities, atol=1e-6)
    loaded.save(path)
    assert_same(load(path), loaded)


def test_a_kernel_with_an_aggregator_of_ones_own(result, tmp_path):
    own = dataclasses.replace(result.kernel.aggregate, name="my own")
    mine = dataclasses.replace(result.kernel, aggregate=own)
    dataclasses.replace(result, kernel=mine).save(tmp_path / "r")
    with pytest.raises(ValueError, match=r"'my own'.*Pass the kernel"):
        load(tmp_path / "r")
    loaded = load(tmp_path / "r", kernel=mine)
    assert loaded.kernel == mine
    again = loaded.predict_proba(graphs.tiny("weighted"))
    np.testing.assert_array_equal(again, result.probabilities)


def test_a_kernel_that_does_not_fit_the_weights_is_refused(path):
    for kernel in ("gcn", "nip-mean"):
        with pytest.raises(ValueError, match="kernel= is not the one"):
            load(path, kernel=kernel)
    assert load(path, kernel="i-nip-mean").kernel == load(path).kernel


def test_no_pickle_and_no_time_is_saved(path):
    with np.load(path, allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)
        assert b"seconds" not in archive["meta"].tobytes()


# Damaged files


def test_a_missing_file_or_folder(result, tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        result.save(tmp_path / "no" / "result")


def test_other_files_are_refused(path, tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello")
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "arrays.npz", x=np.zeros(3))
    np.savez(tmp_path / "meta.npz", meta=np.frombuffer(b"[1]", np.uint8))
    for name in ("empty", "text", "array.npy", "arrays.npz", "meta.npz", "."):
        with pytest.raises(ValueError, match="is not a result saved by this library"):
            load(tmp_path / name)
    with np.load(path) as archive:
        arrays = dict(archive)
    text = arrays["meta"].tobytes().replace(b'"format": 3', b'"format": 9')
    np.savez(tmp_path / "r.npz", **arrays | {"meta": np.frombuffer(text, np.uint8)})
    with pytest.raises(ValueError, match="format 9"):
        load(tmp_path / "r.npz")


def test_damaged_files_are_refused(path, result):
    whole = path.read_bytes()
    for end in range(0, len(whole), 211):
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match="not a result"):
            load(path)
    refused = 0
    for at in range(0, len(whole), 53):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:  # Only a changed date in the archive is not refused.
            loaded = load(path)
        except ValueError:
            refused += 1
        else:
            assert_same(loaded, result)
    assert refused > 50


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_no_incomplete_file_is_left(result, path, monkeypatch, fails):
    before = path.read_bytes()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space left"):
        result.save(path)
    assert os.listdir(path.parent) == [path.name]
    assert path.read_bytes() == before


# Shown


def test_a_result_is_drawn(result, path):
    for one in (result, load(path)):
        figure = one.plot()
        losses, _, scores = figure.axes
        assert len(losses.get_lines()) >= 2
        assert losses.get_xlabel() == "epoch"
        assert scores.get_xlabel() == "iteration"
        # What IPython shows for an object that it has no printer for.
        assert figure._repr_png_().startswith(b"\x89PNG")
