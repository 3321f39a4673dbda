"""The command line: the same numbers as the Python calls, exit codes and messages."""

import concurrent.futures
import csv
import dataclasses
import io
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from hopf_jax import (
    Comparison,
    Config,
    Execution,
    Graph,
    datasets,
    fit,
    load,
    results,
    runtime,
)
from hopf_jax.cli import commands, model_folder, options, tables
from hopf_jax.datasets import load_dataset, make_planted
from tests import graphs

ROOT = pathlib.Path(__file__).parents[2]
SPLITS = ("train", "validation", "test")
SHORT = Config(num_hops=1, hidden_size=4, num_iterations=2, max_epochs=2, min_epochs=1)
SETTINGS = (
    *("--num-hops", "1", "--hidden-size", "4", "--num-iterations", "2"),
    *("--max-epochs", "2", "--min-epochs", "1", "--quiet"),
)
NAMED = (*SETTINGS, "--model", "i-nip-mean")


def planted():
    return make_planted(40, 60, 3, 2, seed=3)


def name(i):
    return f"node {i}, ü"  # With a comma, so that it is quoted.


def write(path, header, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def write_tables(graph, folder, *, name=name, sets=True):
    """The arguments that name the three tables of a graph, as a user may have them."""
    arcs = graph.adjacency.tocoo()
    ends = zip(arcs.row, arcs.col, strict=True)
    edges = [(name(j), name(i)) for i, j in ends if i <= j]
    features = [(name(i), *row) for i, row in enumerate(dense(graph).tolist())]
    columns = [f"x{i}" for i in range(graph.num_features)]
    member = np.full(graph.num_nodes, "", object)
    for each in SPLITS:
        member[getattr(graph, each)] = each
    labels = [
        (name(i), graph.label_names[row.argmax()], *[member[i]][:sets])
        for i, row in enumerate(graph.labels)
    ]
    return (
        write(folder / "edges.csv", ["from", "to"], edges),
        write(folder / "features.csv", ["node", *columns], features),
        "--labels",
        write(folder / "labels.csv", ["node", "label", *["set"][:sets]], labels),
    )


def dense(graph):
    features = graph.features
    return features.toarray() if sp.issparse(features) else np.asarray(features)


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def run(*arguments):
    assert commands.main([str(a) for a in arguments]) == 0


def named(result, labels):
    return [str(label) for label in labels]


@pytest.fixture(scope="module")
def tables_of_planted(tmp_path_factory):
    return write_tables(planted(), tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def model(tables_of_planted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    run("fit", *tables_of_planted, "--out", folder, *NAMED)
    return folder


@pytest.fixture(scope="module")
def result():
    graph = planted()
    names = tuple(name(i) for i in range(graph.num_nodes))
    columns = tuple(f"x{i}" for i in range(graph.num_features))
    graph = dataclasses.replace(graph, node_names=names, feature_names=columns)
    return fit(graph, "i-nip-mean", config=SHORT)


@pytest.fixture
def fitted_graphs(monkeypatch, result):
    """The graphs that `hopf fit` would train on, without training."""
    seen = []
    monkeypatch.setattr(
        commands, "fit", lambda graph, *_, **__: seen.append(graph) or result
    )
    return seen


# The same as the Python calls


def test_a_model_is_that_of_the_python_call(model, result, capsys, tmp_path):
    result.save(tmp_path / "r.npz")
    assert [p.name for p in model.iterdir()] == ["result.npz"]
    load(model / "result.npz").save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "r.npz").read_bytes()
    capsys.readouterr()
    run("predict", model, "--probabilities")
    rows = read(capsys.readouterr().out)
    assert [row["node"] for row in rows] == [name(i) for i in range(40)]
    loaded = load(model / "result.npz")
    assert loaded.to_frame()["node"].tolist() == [name(i) for i in range(40)]
    assert loaded.read_names == list(result.feature_names)
    assert [row["label"] for row in rows] == named(result, result.predict())
    said = [[float(row[c]) for c in result.label_names] for row in rows]
    np.testing.assert_array_equal(np.array(said, np.float32), result.probabilities)
    highest = [float(row["probability"]) for row in rows]
    np.testing.assert_array_equal(highest, result.probabilities.max(axis=1))


def test_fit_prints_scores(tables_of_planted, tmp_path, result, capsys, fitted_graphs):
    run("fit", *tables_of_planted, "--out", tmp_path / "m")
    done = capsys.readouterr()
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert lines[0] == ["set", "nodes", "micro_f1", "macro_f1"]
    assert lines[3][:3] == ["test", "8", f"{result.scores['test']['micro_f1']:.4f}"]
    assert "40 nodes" in done.err and "Written to" in done.err


def test_a_new_graph(model, tables_of_planted, result, capsys, tmp_path):
    out = tmp_path / "new.csv"
    run("predict", model, *tables_of_planted, "--out", out)
    assert capsys.readouterr().out == ""
    rows = read(out.read_text())
    assert [row["label"] for row in rows] == named(result, result.predict(planted()))
    # Without labels none is known; columns may be in another order.
    frame = pd.read_csv(tables_of_planted[1])[["node", "x2", "x0", "x1"]]
    frame.to_csv(tmp_path / "f.csv", index=False)
    run("predict", model, tables_of_planted[0], tmp_path / "f.csv")
    rows = read(capsys.readouterr().out)
    wanted = result.predict(planted().with_split())
    assert [row["label"] for row in rows] == named(result, wanted)


def test_a_split_from_a_file_or_drawn(tables_of_planted, tmp_path, fitted_graphs):
    out = ["--out", tmp_path / "m", "--quiet"]
    rows = [(name(3), "train"), (name(1), "val"), (name(0), "test"), (name(2), "")]
    split = write(tmp_path / "split.csv", ["node", "set"], rows)
    run("fit", *tables_of_planted, "--split", split, *out)
    found = [np.flatnonzero(getattr(fitted_graphs[0], s)).tolist() for s in SPLITS]
    assert found == [[3], [1], [0]]
    bare = write_tables(planted(), tmp_path, sets=False)
    run("fit", *bare, "--train", "0.5", "--test", "0.25", "--seed", "5", *out)
    wanted = datasets.split_graph(planted(), train=0.5, test=0.25, seed=5)
    for each in SPLITS:
        mask = getattr(wanted, each)
        np.testing.assert_array_equal(getattr(fitted_graphs[1], each), mask)


def test_without_a_split_or_a_model_it_does_as_fit_does(
    tables_of_planted, tmp_path, capsys
):
    edges, features, *labels = write_tables(planted(), tmp_path, sets=False)
    out = tmp_path / "m"
    run("fit", edges, features, *labels, "--out", out, *SETTINGS[:-1])
    done = capsys.readouterr()
    names = tuple(name(i) for i in range(40))
    graph = dataclasses.replace(planted().with_split(), node_names=names)
    result = fit(graph, config=SHORT, progress=True)
    assert "fit gcn (2 of 4)" in capsys.readouterr().err
    loaded = load(out / "result.npz")
    assert loaded.model == result.model
    np.testing.assert_array_equal(loaded.probabilities, result.probabilities)
    assert f"Chose {result.model} by score and loss on held-out labels: " in done.err
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert ["cross-validated", "40"] in [row[:2] for row in rows]
    arguments = [*tables_of_planted, "--out", out, "--test", "0.2"]
    assert "--test draws a split" in bad(capsys, "fit", *arguments)


@graphs.needs("cora")
@pytest.mark.slow
def test_cora_as_tables_gives_the_same(tmp_path, capsys):
    graph = load_dataset("cora", fold=2)
    arguments = write_tables(graph, tmp_path, name=lambda i: f"paper-{7 * i}")
    names = ["--label-names", ",".join(graph.label_names)]
    short = ["--max-epochs", "60", "--hidden-size", "16", "--num-iterations", "2"]
    short += ["--model", "i-nip-mean"]
    run("fit", *arguments, *names, "--out", tmp_path / "model", *short)
    capsys.readouterr()
    run("predict", tmp_path / "model")
    config = Config(max_epochs=60, hidden_size=16, num_iterations=2)
    result = fit(graph, "i-nip-mean", config=config)
    assert result.scores["test"]["micro_f1"] > 0.7
    rows = read(capsys.readouterr().out)
    assert [row["node"] for row in rows] == [f"paper-{7 * i}" for i in range(2708)]
    assert [row["label"] for row in rows] == named(graph, result.predict())
    again = load(tmp_path / "model" / "result.npz")
    np.testing.assert_array_equal(again.probabilities, result.probabilities)


# Tables in other formats


def assert_same_graph(one, other):
    np.testing.assert_array_equal(one.adjacency.toarray(), other.adjacency.toarray())
    np.testing.assert_array_equal(dense(one), dense(other))
    np.testing.assert_array_equal(one.labels, other.labels)
    assert one.label_names == other.label_names
    for each in SPLITS:
        np.testing.assert_array_equal(getattr(one, each), getattr(other, each))


@pytest.mark.parametrize("form", ["parquet", "tsv", "csv.gz", "no-header"])
def test_other_formats_hold_the_same(form, tables_of_planted, tmp_path, fitted_graphs):
    paths, flags, wanted = [], [], planted()
    for source in (*tables_of_planted[:2], tables_of_planted[3]):
        frame = pd.read_csv(source, dtype={"set": str, "label": str})
        path = tmp_path / pathlib.Path(source).with_suffix(f".{form}").name
        if form == "parquet":
            frame.to_parquet(path)
        elif form == "no-header":
            path = path.with_suffix(".csv")
            frame = frame[[c for c in frame if c != "set"]]
            frame.to_csv(path, index=False, header=False)
            flags = ["--no-header"]
            wanted = planted().with_split()
        else:
            frame.to_csv(path, index=False, sep="\t" if form == "tsv" else ",")
        paths.append(path)
    arguments = [*paths[:2], "--labels", paths[2], "--out", tmp_path / "m", *flags]
    run("fit", *arguments, "--quiet")
    assert_same_graph(fitted_graphs[0], wanted)


@pytest.mark.parametrize("sparse", [False, True])
def test_npz_holds_the_same(sparse, tmp_path, fitted_graphs):
    graph = planted()
    arcs = graph.adjacency.tocoo()
    ends = {"a": arcs.col + 100, "b": arcs.row + 100, "weight": arcs.data * 2}
    np.savez(tmp_path / "e.npz", **ends)
    nodes = np.arange(40) + 100
    features = {"features": dense(graph)}
    if sparse:
        matrix = sp.csr_array(dense(graph))
        features = {n: getattr(matrix, n) for n in ("data", "indices", "indptr")}
        features["shape"] = matrix.shape
    np.savez(tmp_path / "f.npz", nodes=nodes, **features)
    sets = np.where(graph.train, "train", np.where(graph.validation, "validation", ""))
    np.savez(tmp_path / "l.npz", nodes=nodes, label=graph.labels[:, 1], set=sets)
    paths = tmp_path / "e.npz", tmp_path / "f.npz", "--labels", tmp_path / "l.npz"
    kind = "sparse" if sparse else "dense"
    run("fit", *paths, "--out", tmp_path / "m", "--features-as", kind, "--quiet")
    (found,) = fitted_graphs
    assert (found.weights == 2).all() and sp.issparse(found.features) == sparse
    assert_same_graph(
        dataclasses.replace(found, weights=None),
        graph.with_split(train=graph.train, validation=graph.validation),
    )


def test_several_labels_per_node(tmp_path, capsys):
    rng = np.random.default_rng(0)
    features = write(tmp_path / "f.csv", ["n", "x"], [(i, i / 7) for i in range(12)])
    edges = write(tmp_path / "e.csv", ["a", "b"], [(i, i + 1) for i in range(11)])
    matrix = rng.integers(0, 2, (12, 3))
    rows = [(i, *row, ["train", "validation"][i % 2]) for i, row in enumerate(matrix)]
    rows[11] = (11, "", "", "", "")
    labels = write(tmp_path / "l.csv", ["n", "red", "blue", "odd", "set"], rows)
    arguments = [edges, features, "--labels", labels, "--out", tmp_path / "m"]
    run("fit", *arguments, *NAMED, "--normalize", "--bias")
    capsys.readouterr()
    run("predict", tmp_path / "m", "--probabilities")
    known = np.arange(12) < 11
    graph = Graph.from_edges(
        np.arange(11), np.arange(1, 12),
        datasets.normalize_rows(np.arange(12, dtype=np.float32)[:, None] / 7),
        np.where(known[:, None], matrix, np.nan),
        multilabel=True, label_names=["red", "blue", "odd"],
        train=np.arange(0, 12, 2), validation=np.arange(1, 11, 2),
    )  # fmt: skip
    wanted = fit(graph, "i-nip-mean", config=dataclasses.replace(SHORT, bias=True))
    rows = read(capsys.readouterr().out)
    for row, said, decided in zip(
        rows, wanted.probabilities, wanted.predict(), strict=True
    ):
        assert row["labels"] == ";".join(wanted.classes_[decided > 0])
        assert np.float32(row["blue"]) == said[1]


def test_classes_that_are_numbers_are_sorted_as_numbers(tmp_path, fitted_graphs):
    features = write(tmp_path / "f.csv", ["n", "x"], [(i, i) for i in range(40)])
    edges = write(tmp_path / "e.csv", ["a", "b"], [(0, 1)])
    labels = write(tmp_path / "l.csv", ["n", "y"], [(i, i % 12) for i in range(40)])
    run("fit", edges, features, "--labels", labels, "--out", tmp_path / "m")
    assert fitted_graphs[0].label_names == tuple(map(str, range(12)))


# Bad input: exit code 2, one line, no traceback


def bad(capsys, *arguments):
    try:
        code = commands.main([str(a) for a in arguments])
    except SystemExit as exit:  # argparse's own.
        code = exit.code
    done = capsys.readouterr()
    assert code == 2 and done.out == "" and done.err.count("\n") == 1, done.err
    assert done.err.startswith("hopf")
    return done.err


CASES = {
    "missing file": (None, None, "No such file"),
    "unknown node": ("edges.csv", 'a,b\n"node 0, ü",ghost\n', "row 1: node 'ghost'"),
    "three columns": ("edges.csv", "from,to,kind\n", "may have a third called weight"),
    "no header": ("edges.csv", '"node 0, ü","node 1, ü"\n', "Say --no-header"),
    "empty": ("edges.csv", "", "is empty"),
    "not text": ("edges.csv", b"\xff\xfe\x00a", "is not UTF-8"),
    "word": ("features.csv", "node,a\nx,1\ny,two\n", "line 3: 'two' in column 'a'"),
    "ragged": ("features.csv", "node,a,b\nx,1\n", "line 2: 2 cells"),
    "twice": ("features.csv", "node,a\nx,1\nx,2\n", "lists node 'x' twice"),
    "numbers first": ("features.csv", "7,1.5\n8,2\n", "Say --no-header"),
    "NaN": ("features.csv", None, r"features\[0, 0\] is nan"),
    "labels of others": ("labels.csv", "node,label\nghost,1\n", "node 'ghost'"),
    "no labels": ("labels.csv", 'node\n"node 0, ü"\n', "no column of labels"),
    "no such set": ("labels.csv", 'node,label,set\n"node 0, ü",1,tset\n', "'tset'"),
    "not npz": ("features.npz", b"PK\x03\x04", "cannot be read as npz"),
    "not parquet": ("features.parquet", b"PAR1", "cannot be read as Parquet"),
    "other suffix": ("features.xlsx", b"", "must end in"),
    "damaged gzip": ("features.csv.gz", b"\x1f\x8b\x08", "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bad_tables(case, tables_of_planted, tmp_path, capsys):
    which, content, message = CASES[case]
    arguments = list(tables_of_planted)
    if case == "NaN":
        text = pathlib.Path(arguments[1]).read_text().splitlines()
        text[1] = ",".join(['"node 0, ü"', "nan", "1", "1"])
        content = "\n".join(text)
    path = tmp_path / (which or "nowhere.csv")
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    place = {"edges": 0, "features": 1, "labels": 3}.get(path.name.split(".")[0], 0)
    arguments[place] = str(path)
    error = bad(capsys, "fit", *arguments, "--out", tmp_path / "m", "--quiet")
    assert re.search(message, error), error
    assert not (tmp_path / "m").exists()


def test_bad_settings(tables_of_planted, tmp_path, capsys):
    out = ("--out", tmp_path / "m")
    for option, value, message in (
        ("--num-hops", "99", "num_hops is 99"),
        ("--chunk-edges", "0", "chunk_edges is 0"),
        ("--dropout", "high", "invalid float value"),
        ("--model", "gcm", "No model is called 'gcm'"),
        ("--seed", "-1", "seed is -1"),
        ("--summary", "both", "invalid choice"),
        ("--fanouts", "a,b", "is not a list like 10,5"),
        ("--label-names", "a", "'1', which label_names does not list|'0', which"),
    ):
        error = bad(capsys, "fit", *tables_of_planted, *out, "--quiet", option, value)
        assert re.search(message, error), error
    assert "required: EDGES" in bad(capsys, "fit", *out)
    error = bad(capsys, "fit", *tables_of_planted, *out, "--max-epoch", "2")
    assert "arguments: --max-epoch 2 (did you mean '--max-epochs'?)" in error
    assert "invalid choice: 'train'" in bad(capsys, "train")
    (tmp_path / "file").touch()
    error = bad(capsys, "fit", *tables_of_planted, "--out", tmp_path / "file")
    assert "is a file" in error


def as_version_0_1(model, folder):
    """Write a model as two files; return the second."""
    result, reading = results.load_with_notes(model / "result.npz")
    result.save(folder / "result.npz")
    digest = runtime.sha256(folder / "result.npz")
    text = json.dumps({"format": 1, "sha256": digest, "reading": reading})
    (folder / "model.json").write_text(text)
    return text


def test_a_model_of_version_0_1_is_read_and_replaced(
    model, tables_of_planted, fitted_graphs, tmp_path, capsys
):
    as_version_0_1(model, tmp_path)
    run("predict", model)
    expected = capsys.readouterr().out
    run("predict", tmp_path)
    assert capsys.readouterr().out == expected
    run("fit", *tables_of_planted, "--out", tmp_path, "--quiet")
    assert not (tmp_path / "model.json").exists()
    run("predict", tmp_path)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_while_a_model_is_replaced_leaves_one_of_the_two(
    model, tables_of_planted, result, tmp_path, capsys, monkeypatch, moment
):
    as_version_0_1(model, tmp_path)
    other = dataclasses.replace(result, seed=1)
    monkeypatch.setattr(commands, "fit", lambda *_, **__: other)
    real = os.replace

    def killed(*names):
        if moment == "after":
            real(*names)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    command = ["fit", *tables_of_planted, "--out", tmp_path, "--quiet"]
    assert commands.main([str(word) for word in command]) == 130
    monkeypatch.undo()
    capsys.readouterr()
    run("predict", tmp_path)  # With the nodes of the same model.
    assert len(read(capsys.readouterr().out)) == 40


def test_two_that_write_a_model_at_once_leave_one_of_the_two(tmp_path):
    saved = load(ROOT / "tests" / "results" / "saved_by_0.1.npz")
    count = len(saved.probabilities)

    def write(seed):
        names = [f"{seed} {i}" for i in range(count)]
        read = model_folder.ReadSettings(names, (), False, "drop", False, False)
        for _ in range(20):
            result = dataclasses.replace(saved, seed=seed)
            model_folder.save_model(tmp_path / "m", result, read)

    write(0)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, seed) for seed in (1, 2)]
        while not all(writer.done() for writer in writers):
            result, settings = model_folder.load_model(tmp_path / "m")
            assert settings.nodes[0] == f"{result.seed} 0"
        for writer in writers:
            writer.result()


def test_bad_models(model, tables_of_planted, tmp_path, capsys):
    edges, features, *labels = tables_of_planted
    assert "holds no model" in bad(capsys, "predict", tmp_path)
    assert "needs EDGES and FEATURES" in bad(capsys, "predict", model, edges)
    assert "are of a new graph" in bad(capsys, "predict", model, *labels)
    frame = pd.read_csv(features).rename(columns={"x1": "z"})
    frame.to_csv(tmp_path / "f.csv", index=False)
    error = bad(capsys, "predict", model, edges, tmp_path / "f.csv")
    assert "'x1' is missing" in error
    broken = tmp_path / "broken"
    broken.mkdir()
    text = as_version_0_1(model, broken)
    (broken / "model.json").write_text(text.replace('"sha256": "', '"sha256": "0'))
    assert "is of another fit" in bad(capsys, "predict", broken)
    (broken / "model.json").unlink()
    assert "model.json is missing" in bad(capsys, "predict", broken)
    for damaged in (
        *("{", "[]", '{"format": 1, "sha256": "", "reading": {}}', "\x00"),
        text.replace('"directed": false', '"directed": 0'),
    ):
        (broken / "model.json").write_text(damaged)
        assert "model.json cannot be read" in bad(capsys, "predict", broken)
    (broken / "model.json").write_text(text)
    (broken / "result.npz").write_bytes(b"PK")
    assert "is not a result" in bad(capsys, "predict", broken)


def test_an_interrupt_is_130(tables_of_planted, tmp_path, monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "fit", stop)
    arguments = ["fit", *tables_of_planted, "--out", str(tmp_path / "m"), "--quiet"]
    assert commands.main(arguments) == 130
    assert capsys.readouterr().err == "hopf fit: interrupted\n"
    assert not (tmp_path / "m").exists()


# The other commands


def test_compare(tables_of_planted, result, capsys, monkeypatch):
    seen = {}

    def fake(graph, models, folds, **keywords):
        seen.update(keywords, models=models, folds=folds)
        return Comparison({"bl-node": (result,)}, (graph,))

    arguments = ["compare", *tables_of_planted, "--models", "bl-node", "--folds"]
    assert "folds is 0" in bad(capsys, *arguments, "0", "--quiet")
    monkeypatch.setattr(commands, "compare", fake)
    run(*arguments, "2", "--share", "0.25", "--chunk-edges", "9", "--csv", *SETTINGS)
    (row,) = read(capsys.readouterr().out)
    assert row["model"] == "bl-node" and 0 <= float(row["score"]) <= 100
    assert seen["config"] == SHORT and seen["execution"] == Execution(chunk_edges=9)
    assert (seen["models"], seen["folds"], seen["share"]) == (["bl-node"], 2, 0.25)


def test_tune(tables_of_planted, capsys, tmp_path):
    pytest.importorskip("optuna")
    out = tmp_path / "model"
    arguments = ["tune", *tables_of_planted, "--models", "bl-node,gcn"]
    arguments += ["--budget", "2", "--workers", "1", "--out", out, *SETTINGS]
    run(*arguments, "--workdir", tmp_path / "trials")
    printed = capsys.readouterr().out
    assert "2 trials" in printed.splitlines()[0] and "learning_rate" in printed
    run("predict", out)
    assert len(read(capsys.readouterr().out)) == 40
    assert "budget is 0" in bad(capsys, *arguments, "--budget", "0")


def test_data_lists_and_exports(capsys, tmp_path):
    run("data")
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(datasets.DATASETS)
    run("data", "planted", "chain")
    assert "chain\t6\t10\t6\t2\t2\t2\t2" in capsys.readouterr().out
    run("data", "chain", "--export", tmp_path)
    assert capsys.readouterr().out.count("\n") == 3
    assert (tmp_path / "edges.csv").read_text().startswith("source,target\n1,0\n2,1\n")
    assert (tmp_path / "labels.csv").read_text().splitlines()[1] == "0,0,train"
    assert "Unknown dataset 'korra'" in bad(capsys, "data", "korra")
    assert "name it" in bad(capsys, "data", "--export", tmp_path)


@pytest.mark.parametrize("multilabel", [False, True])
def test_an_exported_graph_is_read_back(multilabel, tmp_path, fitted_graphs):
    graph = planted()
    if multilabel:
        labels = np.random.default_rng(0).integers(0, 2, (40, 3))
        graph = Graph.from_scipy(
            graph.adjacency * 0.5, graph.features, labels, multilabel=True,
            train=graph.train, validation=graph.validation, test=graph.test,
            label_names=["x", "y", "z"],
        )  # fmt: skip
    edges, features, labels = tables.export_graph(graph, tmp_path)
    run("fit", edges, features, "--labels", labels, "--out", tmp_path / "m", "--quiet")
    assert fitted_graphs[0].multilabel == multilabel
    assert_same_graph(fitted_graphs[0], graph)


def test_reproduce_runs_the_experiments_of_a_clone(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    for module in [m for m in sys.modules if m.split(".")[0] == "experiments"]:
        monkeypatch.delitem(sys.modules, module)
    other = [p for p in sys.path if not (pathlib.Path(p) / "experiments").is_dir()]
    monkeypatch.setattr(sys, "path", other)
    assert "Clone the repository" in bad(capsys, "reproduce", "--dataset", "cora")
    clone = tmp_path / "clone"
    (clone / "experiments").mkdir(parents=True)
    script = "def main(options):\n    print(*options)\n    return 0\n"
    (clone / "experiments" / "reproduce.py").write_text(script)
    monkeypatch.chdir(clone)
    run("reproduce", "--dataset", "cora", "--folds", "1")
    assert capsys.readouterr().out == "--dataset cora --folds 1\n"
    for module in ("experiments", "experiments.reproduce"):
        monkeypatch.delitem(sys.modules, module)


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_every_setting_is_an_option_with_help(command, capsys):
    parser = options.make_parser("0")
    out = ["--out", "o"] if command == "fit" else []
    given = parser.parse_args([command, "e", "f", "--labels", "l", *out])
    assert options.settings_of(given, Config) == Config()
    assert options.settings_of(given, Execution) == Execution()
    with pytest.raises(SystemExit) as exit:
        commands.main([command, "--help"])
    assert exit.value.code == 0
    text = capsys.readouterr().out
    for field in (*dataclasses.fields(Config), *dataclasses.fields(Execution)):
        if field.name in options._NO_OPTIONS:
            assert f"--{field.name.replace('_', '-')}" not in text
            continue
        name = {"folds": "cross-validation"}.get(field.name, field.name)
        assert f"--{name.replace('_', '-')}" in text
    assert "exit codes" in text


def test_the_module_is_the_command(tmp_path):
    command = [sys.executable, "-m", "hopf_jax", "predict", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "holds no model" in done.stderr


FORMULAS = (
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "'=1",
    "''@x",
    "=cmd|' /C calc'!A0",
    "'quoted",
)


def test_cells_that_spreadsheets_execute_are_text():
    rows = [[text, 0.5, -2] for text in FORMULAS]
    made = tables.to_csv(["node", "=x", "y"], rows)
    for line in csv.reader(io.StringIO(made)):
        assert line[0][:1] not in set("=+-@\t\r")
        assert not line[1].startswith("=")
    assert ",-2\n" in made, "numbers stay numbers"


@pytest.mark.parametrize("tab", ["\t=1", "\r=1"])
def test_blanks_that_spreadsheets_skip(tab):
    assert tables.to_csv(["node"], [[tab]]).splitlines()[1].strip('"').startswith("'")


def test_neutralised_cells_are_read_back(tmp_path):
    path = tmp_path / "features.csv"
    path.write_text(tables.to_csv(["node", "x"], [[t, 1] for t in FORMULAS]))
    assert tables.read_features(path, True).nodes == list(FORMULAS)
    path = tmp_path / "edges.csv"
    path.write_text(tables.to_csv(["a", "b"], [FORMULAS[:2]]))
    assert tables.read_edges(path, FORMULAS, True).receivers.tolist() == [1]


def test_parquet_of_mixed_columns(tmp_path):
    frame = pd.DataFrame(
        {"node": ["a", "b"], "x": [0.5, 1.5], "y": [True, False], "z": [1, 2]}
    )
    frame.to_parquet(tmp_path / "f.parquet")
    found = tables.read_features(tmp_path / "f.parquet", True)
    assert found.columns == ["x", "y", "z"]
    assert found.matrix.tolist() == [[0.5, 1, 1], [1.5, 0, 2]]
    frame.assign(w=["p", "q"]).to_parquet(tmp_path / "f.parquet")
    with pytest.raises(ValueError, match="column 'w' does not hold numbers"):
        tables.read_features(tmp_path / "f.parquet", True)


def test_a_parquet_bomb(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    same = np.zeros(20_000_000)
    pq.write_table(pa.table({"node": same, "x": same}), tmp_path / "f.parquet")
    assert (tmp_path / "f.parquet").stat().st_size < 1 << 20
    with pytest.raises(ValueError, match="HOPF_MAX_BYTES"):
        tables.read_features(tmp_path / "f.parquet", True)
