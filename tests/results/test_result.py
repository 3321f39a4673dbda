"""What `fit` returns: predicts, is saved, loaded and drawn."""

import dataclasses
import os

import numpy as np
import pytest

from hopf_jax import Aggregate, Config, Graph, Kernel, fit, load
from tests import graphs
from tests.test_fitting import ITERATIVE, SHORT, heaviest

KEYWORDS = {"graph": graphs.tiny("weighted"), "model": ITERATIVE, "config": SHORT}


@pytest.fixture(scope="module")
def result():
    return fit(**KEYWORDS)


@pytest.fixture
def path(result, tmp_path):
    result.save(tmp_path / "result.npz")
    return tmp_path / "result.npz"


# Predictions


def test_predictions_of_some_nodes(result):
    everyone = result.predict_proba()
    assert everyone.shape == (18, 3)
    np.testing.assert_allclose(everyone.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(result.predict_proba([4, 2]), everyone[[4, 2]])
    mask = np.arange(18) < 5
    np.testing.assert_array_equal(result.predict_proba(mask), everyone[:5])
    np.testing.assert_array_equal(result.predict(), everyone.argmax(axis=1))
    np.testing.assert_array_equal(result.predict([3]), everyone[3:4].argmax(axis=1))
    with pytest.raises(ValueError, match=r"nodes\[1\] is 18"):
        result.predict([0, 18])
    with pytest.raises(ValueError, match=r"nodes is a mask of shape \(3,\)"):
        result.predict([True, False, True])


def test_the_same_graph_again_gives_the_same(result):
    again = result.predict_proba(graphs.tiny("weighted"))
    np.testing.assert_array_equal(again, result.probabilities)


@pytest.mark.parametrize("model", ["gs-max", "gcn", "wl"])
def test_the_same_graph_again_gives_the_same_for_other_rows(model):
    graph = graphs.tiny("all", sparse=model == "gcn")
    other = fit(graph, model, dataclasses.replace(SHORT, max_epochs=1))
    np.testing.assert_array_equal(other.predict_proba(graph), other.probabilities)


def test_a_new_graph_may_be_without_labels(result):
    graph = graphs.tiny("weighted")
    bare = Graph.from_scipy(graph.adjacency, graph.features)
    predicted = result.predict_proba(bare)
    assert predicted.shape == (18, 3)
    assert np.isfinite(predicted).all()
    assert result.iteration > 1  # Otherwise no label was lent to anyone.
    assert (predicted != result.probabilities).any()
    # Labels of nodes that are not trained on are not read either.
    labelled = Graph.from_scipy(graph.adjacency, graph.features, graph.labels)
    np.testing.assert_array_equal(result.predict_proba(labelled), predicted)


def test_a_new_graph_of_another_size(result):
    graph = graphs.tiny("weighted")
    part = np.arange(11)
    smaller = Graph.from_scipy(
        graph.adjacency[:11, :11], graph.features[part], graph.labels[part]
    )
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


# Saved and loaded


def test_a_result_survives_saving_bit_for_bit(result, path):
    loaded = load(path)
    for name in ("row", "config", "sizes", "seed", "multilabel", "label_names"):
        assert getattr(loaded, name) == getattr(result, name), name
    assert (loaded.iteration, loaded.scores) == (result.iteration, result.scores)
    np.testing.assert_array_equal(loaded.probabilities, result.probabilities)
    assert len(loaded.weights) == len(result.weights) == 3
    for one, other in zip(loaded.weights, result.weights, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].dtype == other[name].dtype
            np.testing.assert_array_equal(one[name], other[name])
    assert [r["train_loss"] for r in loaded.history] == [
        r["train_loss"] for r in result.history
    ]
    before = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == before


def test_a_loaded_result_predicts(result, path):
    loaded = load(path)
    graph = graphs.tiny("weighted")
    np.testing.assert_array_equal(loaded.predict(), result.predict())
    np.testing.assert_array_equal(loaded.predict_proba(graph), result.probabilities)
    assert repr(loaded) == repr(result)


def test_settings_that_json_would_change_survive(tmp_path):
    config = dataclasses.replace(SHORT, fanouts=(3, 2), max_epochs=1, num_iterations=1)
    graph = graphs.tiny("weighted", multilabel=True)
    one = fit(graph, ITERATIVE, config)
    one.save(tmp_path / "r")
    loaded = load(tmp_path / "r")
    assert loaded.config == config
    assert loaded.multilabel
    np.testing.assert_array_equal(loaded.predict(graph), one.predict())


def test_label_names_survive(tmp_path):
    graph = graphs.tiny("weighted")
    named = dataclasses.replace(graph, label_names=("ä", "b", "c"))
    config = dataclasses.replace(SHORT, max_epochs=1, num_iterations=1)
    fit(named, ITERATIVE, config).save(tmp_path / "r")
    assert load(tmp_path / "r").label_names == ("ä", "b", "c")


def test_a_row_with_an_aggregate_of_ones_own(tmp_path):
    mine = Kernel(("h0",), ("h", "y"), Aggregate("half-sum", heaviest))
    one = fit(graphs.tiny("weighted"), mine, SHORT)
    one.save(tmp_path / "r")
    with pytest.raises(ValueError, match=r"'half-sum'.*Pass the row"):
        load(tmp_path / "r")
    loaded = load(tmp_path / "r", kernel=mine)
    again = loaded.predict_proba(graphs.tiny("weighted"))
    np.testing.assert_array_equal(again, one.probabilities)


def test_a_row_that_the_weights_are_not_of_is_refused(path):
    for row in ("gcn", "nip-mean"):
        with pytest.raises(ValueError, match="row= is not the row that was"):
            load(path, kernel=row)
    assert load(path, kernel=ITERATIVE).kernel == load(path).kernel


def test_no_pickle_and_no_time_is_saved(path):
    with np.load(path, allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)
        assert b"seconds" not in archive["meta"].tobytes()


# Damage


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere")


def test_files_of_others_are_refused(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello")
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "arrays.npz", x=np.zeros(3))
    np.savez(tmp_path / "meta.npz", meta=np.frombuffer(b"[1]", np.uint8))
    for name in ("empty", "text", "array.npy", "arrays.npz", "meta.npz", "."):
        with pytest.raises(ValueError, match="is not a result saved by this library"):
            load(tmp_path / name)


def test_another_format_is_refused(path, tmp_path):
    with np.load(path) as archive:
        arrays = dict(archive)
    text = arrays["meta"].tobytes().replace(b'"format": 2', b'"format": 9')
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
        try:  # A flipped date in the archive does no harm; anything else is told.
            loaded = load(path)
        except ValueError:
            refused += 1
        else:
            np.testing.assert_array_equal(loaded.probabilities, result.probabilities)
            for one, other in zip(loaded.weights, result.weights, strict=True):
                for name in other:
                    np.testing.assert_array_equal(one[name], other[name])
    assert refused > 50


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_nothing_half_written_is_left(result, path, monkeypatch, fails):
    before = path.read_bytes()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space left"):
        result.save(path)
    assert os.listdir(path.parent) == [path.name]
    assert path.read_bytes() == before


def test_saving_where_there_is_no_folder(result, tmp_path):
    with pytest.raises(FileNotFoundError):
        result.save(tmp_path / "no" / "result")


# Shown


def test_it_is_drawn(result, path):
    for one in (result, load(path)):
        figure = one.plot()
        losses, scores = figure.axes
        assert len(losses.get_lines()) >= 2
        assert losses.get_xlabel() == "epoch"
        assert scores.get_xlabel() == "iteration"
        figure.savefig(path.with_suffix(".png"))


def test_a_notebook_shows_it(result):
    # What IPython asks of an object that it has no printer of its own for.
    assert result.plot()._repr_png_().startswith(b"\x89PNG")


def test_it_is_printed(result):
    assert f"iteration {result.iteration} of 3" in repr(result)
    assert "12 epochs" in repr(result)


def test_config_is_kept_whole(path):
    assert load(path).config == SHORT != Config()
