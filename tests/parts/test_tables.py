"""Tables larger than memory: the same graph as `Graph.from_edges` makes of them."""

import gzip
import os

import numpy as np
import pandas as pd
import pytest

import hopf_jax
from hopf_jax.cli import main

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables of edges, nodes and labels, and their frames."""
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    names = [f"n{i}" for i in rng.permutation(80)]
    nodes = pd.DataFrame({"node": names, "a": rng.normal(size=80), "b": range(80)})
    ends = {name: rng.choice(names, 300) for name in ("from", "to")}
    edges = pd.DataFrame(ends | {"weight": rng.random(300)})
    sets = rng.choice(["train", "val", "test"], 50)
    classes = rng.choice(["x", "y", "z"], 50)
    labels = pd.DataFrame({"node": names[:50], "class": classes, "set": sets})
    nodes.to_parquet(folder / "nodes.parquet")
    edges.to_csv(folder / "edges.csv.gz", index=False)
    labels.to_csv(folder / "labels.csv", index=False)
    return folder, edges, nodes, labels


def same(graph, other):
    for name in ("indptr", "indices", "labels", "known"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(other, name))
    np.testing.assert_allclose(graph.features, other.features, rtol=1e-6)


def test_tables_make_the_same_graph(tables, tmp_path):
    folder, edges, nodes, labels = tables
    hopf_jax.import_tables(
        folder / "edges.csv.gz",
        tmp_path / "g",
        folder / "nodes.parquet",
        folder / "labels.csv",
    )
    graph = hopf_jax.open_graph(tmp_path / "g")
    classes = labels.set_index("node")["class"].reindex(nodes["node"])
    other = hopf_jax.Graph.from_edges(
        edges["from"],
        edges["to"],
        nodes.set_index("node"),
        classes.where(classes.notna(), None),
        weights=edges["weight"],
        node_names=nodes["node"].tolist(),
    )
    same(graph, other)
    np.testing.assert_allclose(graph.weights, other.weights, rtol=1e-6)
    assert graph.label_names == ("x", "y", "z") and graph.feature_names == ("a", "b")
    assert graph.validation.sum() == (labels["set"] == "val").sum()


def test_a_benchmark_folder_makes_the_same_graph(tmp_path):
    rng, folder = np.random.default_rng(1), tmp_path / "ogb"
    edges, nodes = rng.integers(0, 60, (200, 2)), rng.normal(size=(60, 3)).round(3)
    classes, order = rng.integers(0, 3, 60), rng.permutation(60)
    sets = {"train": order[:20], "valid": order[20:30], "test": order[30:50]}
    tables = {"raw/edge": edges, "raw/node-feat": nodes, "raw/node-label": classes}
    tables |= {f"split/time/{name}": ids for name, ids in sets.items()}
    for name, table in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            np.savetxt(file, table, fmt="%g", delimiter=",")
    hopf_jax.import_tables(folder, tmp_path / "g")
    graph = hopf_jax.open_graph(tmp_path / "g")
    same(graph, hopf_jax.Graph.from_edges(edges[:, 0], edges[:, 1], nodes, classes))
    np.testing.assert_array_equal(np.flatnonzero(graph.train), np.sort(order[:20]))
    np.testing.assert_array_equal(np.flatnonzero(graph.test), np.sort(order[30:50]))


def test_the_command_divides_tables_and_names_stay(tables, tmp_path, capsys):
    folder, _, nodes, _ = tables
    given = ["partition", folder / "edges.csv.gz", "--nodes", folder / "nodes.parquet"]
    given += ["--labels", folder / "labels.csv", "--out", tmp_path / "p"]
    given += ["--parts", 2, "--hops", 1, "--quiet"]
    assert main([str(each) for each in given]) == 0
    assert "80 nodes" in capsys.readouterr().out
    part = hopf_jax.open_parts(tmp_path / "p").open(1)
    wanted = nodes["node"].to_numpy()[part.ids[: part.num_own]]
    assert part.read_names() == tuple(wanted)


def write(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        ("s,t\na,c\n", "node,x\na,1\nb,2\n", "1 rows of the edges name nodes"),
        ("s,t\na,b\n", "node,x\na,1\na,2\n", "Node 'a' occurs twice"),
        ("s,t\na,b\n", "node,x\na,red\nb,blue\n", "Features must be numbers"),
        ("s,t\na,b\n", "node,x\na,1\nb,\n", "Row 2 of the nodes has no number"),
        ("s,t,u\na,b,c\n", "node,x\na,1\nb,2\n", "may be a third called weight"),
        ("s,t,weight\na,b,-1\n", "node,x\na,1\nb,2\n", "not a number of 0 or more"),
        ("s,t,weight\na,b,1e39\n", "node,x\na,1\nb,2\n", "beyond 32-bit numbers"),
        ("s,t\n0.5,1\n", "node,x\n0,1\n1,2\n", "1 rows of the edges name nodes"),
        ("s,t\na\nb,c,d\n", "node,x\nb,1\nc,2\n", "The tables cannot be read"),
    ],
)
def test_what_is_wrong_with_tables_is_said(tmp_path, edges, nodes, message):
    one = write(tmp_path, "edges.csv", edges)
    other = write(tmp_path, "nodes.csv", nodes)
    with pytest.raises(ValueError, match=message):
        hopf_jax.import_tables(one, tmp_path / "g", other)
    assert not (tmp_path / "g").exists()


def test_a_node_is_labelled_once(tmp_path):
    edges = write(tmp_path, "edges.csv", "s,t\na,b\n")
    nodes = write(tmp_path, "nodes.csv", "node,x\na,1\nb,2\n")
    labels = write(tmp_path, "labels.csv", "node,id\na,1\na,2\n")
    with pytest.raises(ValueError, match="Node 'a' occurs twice among the labels"):
        hopf_jax.import_tables(edges, tmp_path / "g", nodes, labels)
    assert not (tmp_path / "g").exists()


def test_a_table_is_one_regular_file(tmp_path):
    nodes = write(tmp_path, "nodes.csv", "node,x\na,1\nb,2\n")
    # DuckDB reads all files that a pattern matches.
    write(tmp_path, "edges1.csv", "s,t\na,nobody\n")
    edges = write(tmp_path, "edges*.csv", "s,t\na,b\n")
    hopf_jax.import_tables(edges, tmp_path / "g", nodes)
    assert hopf_jax.open_graph(tmp_path / "g").num_edges == 2
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="not a regular file"):
        hopf_jax.import_tables(tmp_path / "pipe.csv", tmp_path / "h", nodes)
