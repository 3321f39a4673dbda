"""The command line: the same as the Python calls, with exit codes and clear lines."""

import csv
import dataclasses
import importlib
import io
import pathlib
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from hopf_jax import Config, Graph, datasets, fit, load
from hopf_jax.cli import commands, options
from hopf_jax.datasets import load_dataset, make_planted
from tests import graphs

ROOT = pathlib.Path(__file__).parents[2]
SHORT = Config(hidden_size=4, num_iterations=2, max_epochs=2, min_epochs=1)
SETTINGS = (
    *("--hidden-size", "4", "--num-iterations", "2"),
    *("--max-epochs", "2", "--min-epochs", "1", "--quiet"),
)


def planted():
    return make_planted(40, 60, 3, 2, seed=3)


def name(i):
    return f"node {i}, ü"  # With a comma, so that it is quoted.


def write(path, header, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def write_tables(graph, folder, *, name=name, sets=True):
    """The three tables of a graph, as a user may have them."""
    arcs = graph.adjacency.tocoo()
    edges = [
        (name(j), name(i)) for i, j in zip(arcs.row, arcs.col, strict=True) if i <= j
    ]
    width = graph.num_features
    features = [(name(i), *row.tolist()) for i, row in enumerate(dense(graph))]
    classes = [graph.label_names[row.argmax()] for row in graph.labels]
    member = ["" for _ in classes]
    for each in ("train", "validation", "test") if sets else ():
        for i in np.flatnonzero(getattr(graph, each)):
            member[i] = each
    rows = [
        (name(i), c, s) for i, (c, s) in enumerate(zip(classes, member, strict=True))
    ]
    header = ["node", "label", "set"] if sets else ["node", "label"]
    return (
        write(folder / "edges.csv", ["from", "to"], edges),
        write(
            folder / "features.csv",
            ["node", *map(str, "abcdefgh"[:width])]
            if width < 9
            else ["node", *(f"x{i}" for i in range(width))],
            features,
        ),
        "--labels",
        write(folder / "labels.csv", header, [row[: len(header)] for row in rows]),
    )


def dense(graph):
    features = graph.features
    return features.toarray() if sp.issparse(features) else np.asarray(features)


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def tables(folder):
    return write_tables(planted(), folder)


@pytest.fixture(scope="module")
def model(folder, tables):
    assert (
        commands.main(["fit", *tables, "--out", str(folder / "model"), *SETTINGS]) == 0
    )
    return folder / "model"


@pytest.fixture(scope="module")
def result():
    return fit(planted(), config=SHORT)


# The same as the Python calls


def test_predictions_are_those_of_the_python_call(model, result, capsys):
    assert commands.main(["predict", str(model), "--probabilities"]) == 0
    rows = read(capsys.readouterr().out)
    assert [row["node"] for row in rows] == [name(i) for i in range(40)]
    wanted = [result.label_names[i] for i in result.predict()]
    assert [row["label"] for row in rows] == wanted
    said = [[float(row[c]) for c in result.label_names] for row in rows]
    np.testing.assert_array_equal(np.array(said, np.float32), result.probabilities)
    likeliest = [float(row["probability"]) for row in rows]
    np.testing.assert_array_equal(likeliest, result.probabilities.max(axis=1))


def test_the_saved_result_has_the_same_bytes(model, result, tmp_path):
    result.save(tmp_path / "r.npz")
    assert (model / "result.npz").read_bytes() == (tmp_path / "r.npz").read_bytes()
    assert sorted(p.name for p in model.iterdir()) == ["model.json", "result.npz"]


def test_fit_prints_scores(tables, folder, tmp_path, result, capsys, monkeypatch):
    monkeypatch.setattr(commands, "fit", lambda *_, **__: result)
    assert commands.main(["fit", *tables, "--out", str(tmp_path / "m")]) == 0
    done = capsys.readouterr()
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert lines[0] == ["set", "nodes", "micro_f1", "macro_f1"]
    assert lines[3][:3] == ["test", "8", f"{result.scores['test']['micro_f1']:.4f}"]
    assert "40 nodes" in done.err and "Written to" in done.err


def test_a_new_graph(model, tables, result, capsys, tmp_path):
    out = tmp_path / "new.csv"
    assert commands.main(["predict", str(model), *tables, "--out", str(out)]) == 0
    assert capsys.readouterr().out == ""
    wanted = [result.label_names[i] for i in result.predict(planted())]
    assert [row["label"] for row in read(out.read_text())] == wanted
    # Without labels nothing is lent; columns may come in another order.
    bare = planted().with_split()
    frame = pd.read_csv(tables[1])[["node", "c", "a", "b"]]
    frame.to_csv(tmp_path / "f.csv", index=False)
    commands.main(["predict", str(model), tables[0], str(tmp_path / "f.csv")])
    rows = read(capsys.readouterr().out)
    assert [row["label"] for row in rows] == [
        result.label_names[i] for i in result.predict(bare)
    ]


def test_a_split_from_a_file_or_drawn(tables, tmp_path, monkeypatch, result):
    seen = []

    def remember(graph, *_, **__):
        seen.append(graph)
        return result

    monkeypatch.setattr(commands, "fit", remember)
    out = ["--out", str(tmp_path / "m"), "--quiet"]
    split = write(
        tmp_path / "split.csv",
        ["node", "set"],
        [(name(3), "train"), (name(1), "val"), (name(0), "test"), (name(2), "")],
    )
    assert commands.main(["fit", *tables, "--split", split, *out]) == 0
    found = [
        np.flatnonzero(getattr(seen[0], s)).tolist()
        for s in ("train", "validation", "test")
    ]
    assert found == [[3], [1], [0]]
    bare = write_tables(planted(), tmp_path, sets=False)
    drawn = ["--percent", "20", "--fold", "2", "--seed", "5"]
    assert commands.main(["fit", *bare, *drawn, *out]) == 0
    wanted = datasets.draw_split(np.ones(40, bool), percent=20, fold=2, seed=5)
    for each, mask in wanted.items():
        np.testing.assert_array_equal(getattr(seen[1], each), mask)


@graphs.needs("cora")
@pytest.mark.slow
def test_cora_as_tables_gives_the_same(tmp_path, capsys):
    graph = load_dataset("cora", fold=2)
    tables = write_tables(graph, tmp_path, name=lambda i: f"paper-{7 * i}")
    names = ["--label-names", ",".join(graph.label_names)]
    short = ["--max-epochs", "60", "--hidden-size", "16", "--num-iterations", "2"]
    out = str(tmp_path / "model")
    assert commands.main(["fit", *tables, *names, "--out", out, *short]) == 0
    capsys.readouterr()
    assert commands.main(["predict", out]) == 0
    config = Config(max_epochs=60, hidden_size=16, num_iterations=2)
    result = fit(graph, config=config)
    assert result.scores["test"]["micro_f1"] > 0.7
    rows = read(capsys.readouterr().out)
    assert [row["node"] for row in rows] == [f"paper-{7 * i}" for i in range(2708)]
    assert [row["label"] for row in rows] == [
        graph.label_names[i] for i in result.predict()
    ]
    again = load(tmp_path / "model" / "result.npz")
    np.testing.assert_array_equal(again.probabilities, result.probabilities)


# Tables in other forms


def graphs_of(monkeypatch, *arguments, result):
    """The graph that `fit` would be given."""
    seen = []
    monkeypatch.setattr(
        commands, "fit", lambda graph, *_, **__: seen.append(graph) or result
    )
    assert commands.main(["fit", *arguments, "--quiet"]) == 0
    return seen[0]


def assert_same_graph(one, other):
    np.testing.assert_array_equal(one.adjacency.toarray(), other.adjacency.toarray())
    np.testing.assert_array_equal(dense(one), dense(other))
    np.testing.assert_array_equal(one.labels, other.labels)
    assert one.label_names == other.label_names
    for each in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(one, each), getattr(other, each))


@pytest.mark.parametrize("form", ["parquet", "tsv", "csv.gz", "no-header"])
def test_other_formats_hold_the_same(form, tables, tmp_path, monkeypatch, result):
    paths, flags = [], []
    for source in (tables[0], tables[1], tables[3]):
        frame = pd.read_csv(source, dtype={"set": str, "label": str})
        path = tmp_path / pathlib.Path(source).with_suffix(f".{form}").name
        if form == "parquet":
            frame.to_parquet(path)
        elif form == "no-header":
            path = path.with_suffix(".csv")
            frame = frame[[c for c in frame if c != "set"]]
            frame.to_csv(path, index=False, header=False)
            flags = ["--no-header", "--percent", "20"]
        else:
            frame.to_csv(path, index=False, sep="\t" if form == "tsv" else ",")
        paths.append(str(path))
    arguments = [*paths[:2], "--labels", paths[2], "--out", str(tmp_path / "m"), *flags]
    wanted = planted()
    if form == "no-header":
        wanted = datasets.split_graph(wanted, percent=20)
    assert_same_graph(graphs_of(monkeypatch, *arguments, result=result), wanted)


@pytest.mark.parametrize("sparse", [False, True])
def test_npz_holds_the_same(sparse, tmp_path, monkeypatch, result):
    graph = planted()
    arcs = graph.adjacency.tocoo()
    np.savez(
        tmp_path / "e.npz", a=arcs.col + 100, b=arcs.row + 100, weight=arcs.data * 2
    )
    nodes = np.arange(40) + 100
    features = {"features": dense(graph)}
    if sparse:
        matrix = sp.csr_array(dense(graph))
        features = {n: getattr(matrix, n) for n in ("data", "indices", "indptr")}
        features["shape"] = matrix.shape
    np.savez(tmp_path / "f.npz", nodes=nodes, **features)
    sets = np.where(graph.train, "train", np.where(graph.validation, "validation", ""))
    np.savez(tmp_path / "l.npz", nodes=nodes, label=graph.labels[:, 1], set=sets)
    paths = [str(tmp_path / f"{n}.npz") for n in "efl"]
    found = graphs_of(
        monkeypatch, *paths[:2], "--labels", paths[2], "--out", str(tmp_path / "m"),
        *("--features-as", "sparse" if sparse else "dense"), result=result,
    )  # fmt: skip
    assert (found.weights == 2).all() and sp.issparse(found.features) == sparse
    assert_same_graph(
        dataclasses.replace(found, weights=None),
        graph.with_split(train=graph.train, validation=graph.validation),
    )


def test_several_labels_a_node(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    features = write(tmp_path / "f.csv", ["n", "x"], [(i, i / 7) for i in range(12)])
    edges = write(tmp_path / "e.csv", ["a", "b"], [(i, i + 1) for i in range(11)])
    matrix = rng.integers(0, 2, (12, 3))
    rows = [(i, *row, ["train", "validation"][i % 2]) for i, row in enumerate(matrix)]
    rows[11] = (11, "", "", "", "")
    labels = write(tmp_path / "l.csv", ["n", "red", "blue", "odd", "set"], rows)
    out = str(tmp_path / "m")
    arguments = ["fit", edges, features, "--labels", labels, "--out", out, *SETTINGS]
    assert commands.main([*arguments, "--normalize", "--bias"]) == 0
    capsys.readouterr()
    assert commands.main(["predict", out, "--probabilities"]) == 0
    known = np.arange(12) < 11
    graph = Graph.from_edges(
        np.arange(11), np.arange(1, 12),
        np.minimum(np.arange(12), 1)[:, None],  # Normalized: 0 and 1.
        np.where(known[:, None], matrix, np.nan),
        multilabel=True, label_names=["red", "blue", "odd"],
        train=np.arange(0, 12, 2), validation=np.arange(1, 11, 2),
    )  # fmt: skip
    wanted = fit(graph, config=dataclasses.replace(SHORT, bias=True))
    rows = read(capsys.readouterr().out)
    for row, labels, said in zip(
        rows, wanted.predict(), wanted.probabilities, strict=True
    ):
        names = [n for n, label in zip(graph.label_names, labels, strict=True) if label]
        assert row["labels"] == ";".join(names)
        assert np.float32(row["blue"]) == said[1]


def test_classes_that_are_numbers_are_in_their_order(tmp_path, monkeypatch, result):
    features = write(tmp_path / "f.csv", ["n", "x"], [(i, i) for i in range(40)])
    edges = write(tmp_path / "e.csv", ["a", "b"], [(0, 1)])
    labels = write(tmp_path / "l.csv", ["n", "y"], [(i, i % 12) for i in range(40)])
    found = graphs_of(
        monkeypatch,
        edges,
        features,
        "--labels",
        labels,
        "--out",
        str(tmp_path / "m"),
        result=result,
    )
    assert found.label_names == tuple(map(str, range(12)))


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
def test_bad_tables_are_told(case, tables, tmp_path, capsys):
    which, content, message = CASES[case]
    arguments = list(tables)
    if case == "NaN":
        text = pathlib.Path(tables[1]).read_text().splitlines()
        text[1] = ",".join(['"node 0, ü"', "nan", "1", "1"])
        content = "\n".join(text)
    path = tmp_path / (which or "nowhere.csv")
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    place = {"edges": 0, "features": 1, "labels": 3}.get(path.name.split(".")[0], 0)
    arguments[place] = str(path)
    said = bad(capsys, "fit", *arguments, "--out", tmp_path / "m", "--quiet")
    assert re.search(message, said), said
    assert not (tmp_path / "m").exists()


def test_bad_settings_are_told(tables, tmp_path, capsys):
    out = ("--out", tmp_path / "m")
    for option, value, message in (
        ("--num-hops", "99", "num_hops is 99"),
        ("--dropout", "high", "invalid float value"),
        ("--model", "gcm", "No model is called 'gcm'"),
        ("--seed", "-1", "seed is -1"),
        ("--summary", "both", "invalid choice"),
        ("--fanouts", "a,b", "is not a list like 10,5"),
        ("--label-names", "a", "'1', which label_names does not list|'0', which"),
    ):
        said = bad(capsys, "fit", *tables, *out, "--quiet", option, value)
        assert re.search(message, said), said
    assert "required: EDGES" in bad(capsys, "fit", *out)
    assert "unrecognized arguments: --max-epoch 2" in bad(
        capsys, "fit", *tables, *out, "--max-epoch", "2"
    )
    assert "invalid choice: 'train'" in bad(capsys, "train")
    (tmp_path / "file").touch()
    assert "is a file" in bad(capsys, "fit", *tables, "--out", tmp_path / "file")


def test_bad_models_are_told(model, tables, tmp_path, capsys):
    assert "holds no model" in bad(capsys, "predict", tmp_path)
    assert "needs EDGES and FEATURES" in bad(capsys, "predict", model, tables[0])
    assert "are of a new graph" in bad(capsys, "predict", model, *tables[2:])
    frame = pd.read_csv(tables[1]).rename(columns={"b": "z"})
    frame.to_csv(tmp_path / "f.csv", index=False)
    said = bad(capsys, "predict", model, tables[0], tmp_path / "f.csv")
    assert "'b' is missing" in said
    broken = tmp_path / "broken"
    broken.mkdir()
    for part in ("result.npz", "model.json"):
        (broken / part).write_bytes((model / part).read_bytes())
    text = (model / "model.json").read_text()
    (broken / "model.json").write_text(text.replace('"sha256": "', '"sha256": "0'))
    assert "are of two fits" in bad(capsys, "predict", broken)
    for damaged in ("{", "[]", '{"format": 1, "sha256": "", "reading": {}}', "\x00"):
        (broken / "model.json").write_text(damaged)
        assert "model.json cannot be read" in bad(capsys, "predict", broken)
    (broken / "model.json").write_text(text)
    (broken / "result.npz").write_bytes(b"PK")
    assert "is not a result" in bad(capsys, "predict", broken)


def test_an_interrupt_is_130(tables, tmp_path, monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "fit", stop)
    assert (
        commands.main(["fit", *tables, "--out", str(tmp_path / "m"), "--quiet"]) == 130
    )
    assert capsys.readouterr().err == "hopf fit: interrupted\n"
    assert not (tmp_path / "m").exists()


# The other commands


def test_compare(tables, capsys):
    arguments = ["compare", *tables, "--models", "bl-node", "--folds", "2"]
    assert commands.main([*arguments, "--percent", "25", "--csv", *SETTINGS]) == 0
    rows = read(capsys.readouterr().out)
    assert {row["model"] for row in rows} == {"bl-node"}
    assert all(0 <= float(row["score"]) <= 100 for row in rows)
    said = bad(capsys, *arguments[:-1], "0", "--quiet")
    assert "folds is 0" in said


def test_data_lists_and_exports(capsys, tmp_path):
    assert commands.main(["data"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(datasets.DATASETS)
    assert commands.main(["data", "planted", "chain"]) == 0
    assert "chain\t6\t10\t6\t2\t2\t2\t2" in capsys.readouterr().out
    assert commands.main(["data", "chain", "--export", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("\n") == 3
    assert (tmp_path / "edges.csv").read_text().startswith("source,target\n1,0\n2,1\n")
    assert (tmp_path / "labels.csv").read_text().splitlines()[1] == "0,0,train"
    assert "Unknown dataset 'korra'" in bad(capsys, "data", "korra")
    assert "name it" in bad(capsys, "data", "--export", tmp_path)


@pytest.mark.parametrize("multilabel", [False, True])
def test_what_is_exported_is_read_back(multilabel, tmp_path, monkeypatch, result):
    graph = planted()
    if multilabel:
        labels = np.random.default_rng(0).integers(0, 2, (40, 3))
        graph = Graph.from_scipy(
            graph.adjacency * 0.5, graph.features, labels, multilabel=True,
            train=graph.train, validation=graph.validation, test=graph.test,
            label_names=["x", "y", "z"],
        )  # fmt: skip
    commands._export(graph, tmp_path)
    paths = [str(tmp_path / p) for p in ("edges.csv", "features.csv", "labels.csv")]
    found = graphs_of(
        monkeypatch, *paths[:2], "--labels", paths[2], "--out", str(tmp_path / "m"),
        result=result,
    )  # fmt: skip
    assert found.multilabel == multilabel
    assert_same_graph(found, graph)


def test_reproduce_runs_the_experiments_of_a_clone(monkeypatch, capsys, tmp_path):
    seen = []
    module = importlib.import_module("experiments.reproduce")
    monkeypatch.setattr(module, "main", lambda rest: seen.append(rest) or 0)
    assert commands.main(["reproduce", "--dataset", "cora", "--folds", "1"]) == 0
    assert seen == [["--dataset", "cora", "--folds", "1"]]
    monkeypatch.chdir(tmp_path)
    for name in [m for m in sys.modules if m.split(".")[0] == "experiments"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(
        sys,
        "path",
        [p for p in sys.path if not (pathlib.Path(p) / "experiments").is_dir()],
    )
    assert "Clone the repository" in bad(capsys, "reproduce", "--dataset", "cora")


def test_every_setting_is_an_option_with_help():
    parser = options.make_parser("0")
    given = parser.parse_args(["fit", "e", "f", "--labels", "l", "--out", "o"])
    assert options.config_of(given) == Config()
    text = subprocess.run(
        [sys.executable, "-m", "hopf_jax", "fit", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for field in dataclasses.fields(Config):
        assert f"--{field.name.replace('_', '-')}" in text
    assert "Traceback" not in text and "tab-separated" in text


def test_the_module_is_the_command(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "hopf_jax", "predict", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "holds no model" in done.stderr
