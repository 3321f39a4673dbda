"""`hopf score` predicts what `hopf predict` does, from Parquet to Parquet."""

import numpy as np
import pandas as pd
import pytest

from hopf_jax.cli import main, serving
from tests import graphs
from tests.cli.test_commands import NAMED, run

LABELS = ["0", "1", "2"]


def write(frame, path):
    frame.to_parquet(path, index=False)
    return path


def make_tables(folder, *, multilabel=False, weighted=False, words=False):
    """Tables of a tiny graph: edges, features and labels; nodes are not in order."""
    graph = graphs.tiny("weighted" if weighted else "plain", multilabel=multilabel)
    arcs = graph.adjacency.tocoo()
    once = arcs.row <= arcs.col
    called = np.array([f"node {i}" if words else 100 - i for i in range(18)], object)
    ends = {"from": called[arcs.row[once]], "to": called[arcs.col[once]]}
    if weighted:
        ends["weight"] = arcs.data[once]
    rows = graph.features.tolist()
    features = pd.DataFrame(rows, columns=[f"x{i}" for i in range(7)])
    features.insert(0, "node", called)
    if multilabel:
        labels = pd.DataFrame(graph.labels, columns=LABELS)
    else:
        labels = pd.DataFrame({"label": graph.labels.argmax(axis=1).astype(str)})
    labels.insert(0, "node", called)
    sets = np.where(graph.train, "train", np.where(graph.validation, "validation", ""))
    return (
        write(pd.DataFrame(ends).infer_objects(), folder / "edges.parquet"),
        write(features.infer_objects(), folder / "features.parquet"),
        write(labels.assign(set=sets).infer_objects(), folder / "labels.parquet"),
    )


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ([], {"weighted": True}),
        (["--normalize", "--features-as", "sparse"], {"words": True}),
        (["--normalize"], {"multilabel": True}),
    ],
    ids=["weighted", "sparse", "several"],
)
def test_scores_are_those_of_predict(tmp_path, options, kinds):
    edges, features, labels = make_tables(tmp_path, **kinds)
    model, out = tmp_path / "model", tmp_path / "out.parquet"
    run("fit", edges, features, "--labels", labels, "--out", model, *NAMED, *options)
    tables = (model, edges, features, "--labels", labels, "--probabilities")
    run("predict", *tables, "--out", tmp_path / "out.csv")
    run("score", *tables, "--out", out, "--batch-rows", 5)
    found = pd.read_parquet(out)
    wanted = pd.read_csv(tmp_path / "out.csv", dtype={"node": str, "label": str})
    assert found["node"].tolist() == wanted["node"].tolist()
    assert np.allclose(found[LABELS], wanted[LABELS], atol=1e-6)
    if "labels" in found:
        listed = [[] if v != v else str(v).split(";") for v in wanted["labels"]]
        assert [list(row) for row in found["labels"]] == listed
        return
    assert found["label"].tolist() == wanted["label"].tolist()
    assert np.allclose(found["probability"], wanted["probability"], atol=1e-6)
    assert found["confidence"].between(0, 1).all()
    # Columns are found by name; without labels others are predicted.
    shuffled = pd.read_parquet(features)[
        ["node", *(f"x{i}" for i in (3, 1, 0, 2, 4, 5, 6))]
    ]
    write(shuffled, features)
    run("score", *tables, "--out", out)
    assert np.allclose(pd.read_parquet(out)[LABELS], found[LABELS], atol=1e-6)
    run("score", *tables[:3], "--out", out, "--chunk-edges", 3)
    alone = pd.read_parquet(out)
    assert list(alone) == ["node", "label", "probability", "confidence"]

    if not options:  # The same tables as a service reads them, whose nodes have names.
        result, graph = serving.read_served(model, tmp_path)
        assert list(graph.node_names) == wanted["node"].tolist()
        assert np.allclose(result.predict_proba(graph), found[LABELS], atol=1e-5)
        own = result.explain(graph.node_names[0], graph)
        assert {column.name for column in own.features()} <= set(graph.feature_names)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored")
    edges, features, labels = make_tables(folder)
    run("fit", edges, features, "--labels", labels, "--out", folder / "model", *NAMED)
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"edges": {"from": [1], "to": [100]}}, "row 1: node '1' is not in"),
        ({"edges": {"from": [100]}}, "edge list has two"),
        ({"edges": {"from": [100], "to": [99], "kind": [1]}}, "weight"),
        ({"edges": {"from": [99], "to": [100], "weight": ["a"]}}, "'weight' does not"),
        ({"features": {"node": [1], "x0": [1.0]}}, "'x1' is missing"),
        (
            {"features": {"node": [1, 1]} | {f"x{i}": [1.0, 2.0] for i in range(7)}},
            "lists node '1' twice",
        ),
        (
            {"features": {"node": [1]} | {f"x{i}": ["a"] for i in range(7)}},
            "does not hold numbers",
        ),
        (
            {
                "features": {"node": range(83, 101)}
                | {f"x{i}": np.nan for i in range(7)}
            },
            "missing",
        ),
        ({"features": {"node": []}}, "no rows"),
    ],
)
def test_mistakes_are_named(model, tmp_path, capsys, change, said):
    edges, features, _ = make_tables(tmp_path)
    for name, path in (("edges", edges), ("features", features)):
        if name in change:
            write(pd.DataFrame(change[name]), path)
    out = tmp_path / "out.parquet"
    command = ["score", model / "model", edges, features, "--out", out]
    assert main(list(map(str, command))) == 2
    assert said in capsys.readouterr().err and not out.exists()


def test_only_parquet_is_scored(model, capsys):
    for command in (
        ["score", "model", "edges.csv", "features.parquet", "--out", "o.parquet"],
        ["score", "model", "e.parquet", "f.parquet", "--out", "o.csv"],
    ):
        assert main(command) == 2
        assert "reads and writes .parquet" in capsys.readouterr().err
    zero = ["e.parquet", "f.parquet", "--out", "o.parquet", "--batch-rows", "0"]
    assert main(["score", "model", *zero]) == 2
