"""Random changes of a graph, and the same graph kept as plain Python data."""

import numpy as np
import scipy.sparse as sp

from hopf_jax import Graph


class PlainGraph:
    """A graph as dictionaries by name, from which it can be made anew."""

    def __init__(self, graph):
        self.like = graph
        names = graph.node_names or range(graph.num_nodes)
        features = graph.features
        dense = features.toarray() if sp.issparse(features) else features
        self.features = dict(zip(names, np.asarray(dense), strict=True))
        rows = zip(graph.labels, graph.train, graph.validation, strict=True)
        self.labels = {
            name: (row, train, validation)
            for name, (row, train, validation) in zip(names, rows, strict=True)
        }
        entries = graph.adjacency.tocoo()
        names = list(names)
        ends = zip(*entries.coords, entries.data.tolist(), strict=True)
        self.edges = {(names[s], names[r]): w for r, s, w in ends}

    @property
    def names(self):
        return list(self.features)

    def add(self, source, target, weight=1.0):
        if source == target:
            return
        pairs = {(source, target)}
        if not self.like.directed:
            pairs.add((target, source))
        for pair in pairs:
            old = self.edges.get(pair, 0.0) if self.like.weights is not None else 0
            self.edges[pair] = old + weight

    def remove(self, source, target):
        self.edges.pop((source, target))
        if not self.like.directed:
            self.edges.pop((target, source), None)

    def drop(self, name):
        del self.features[name], self.labels[name]
        self.edges = {p: w for p, w in self.edges.items() if name not in p}

    def graph(self):
        """The graph made anew, by the public constructor."""
        names, like = self.names, self.like
        features = np.stack([self.features[name] for name in names])
        pairs, weights = list(self.edges), list(self.edges.values())
        width = like.num_labels
        labels = np.array([self.labels[n][0] for n in names], float).reshape(-1, width)
        labels[labels.sum(axis=1) == 0] = np.nan
        masks = np.array([self.labels[name][1:] for name in names], bool)
        return Graph.from_edges(
            [source for source, _ in pairs],
            [target for _, target in pairs],
            sp.csr_array(features) if sp.issparse(like.features) else features,
            labels,
            weights=None if like.weights is None else weights,
            directed=like.directed,
            self_loops="keep",
            multilabel=like.multilabel,
            label_names=like.label_names,
            node_names=names,
            train=masks[:, 0],
            validation=masks[:, 1],
        )


def random_changes(plain, rng, number):
    """Change a plain graph; return keywords of `Result.update` that do the same."""
    like, kind = plain.like, rng.integers(7)
    names = plain.names
    pick = lambda n=1: [names[i] for i in rng.choice(len(names), n, replace=False)]  # noqa: E731
    weight = round(float(rng.uniform(0.3, 2)), 3)
    triple = (weight,) if like.weights is not None else ()
    changes = {}
    if kind == 0:  # A node with some edges.
        own, row = f"new {number}", rng.normal(size=like.num_features).astype("f")
        row[rng.random(len(row)) < 0.4] = 0
        pairs = [(own, other) for other in pick(3)]
        pairs[0] = pairs[0][::-1]
        changes = {"add_nodes": {own: row}, "add_edges": [(*p, *triple) for p in pairs]}
        plain.features[own] = row
        plain.labels[own] = (np.zeros(like.num_labels, np.uint8), False, False)
        for pair in pairs:
            plain.add(*pair, *triple)
    elif kind == 1 and len(names) > 9:
        changes = {"drop": pick(int(rng.integers(1, 3)))}
        for name in changes["drop"]:
            plain.drop(name)
    elif kind in (2, 3):
        pairs = [tuple(pick(2)) for _ in range(2)]
        changes = {"add_edges": [(*pair, *triple) for pair in pairs]}
        together = {}
        for source, target in pairs:
            key = (source, target) if like.directed else tuple(sorted((source, target)))
            same = key in together and tuple(pairs[0]) != (source, target)
            if not same:  # Of both directions the larger counts, not the sum.
                plain.add(source, target, *triple)
            together[key] = True
    elif kind == 4 and plain.edges:
        pairs = list(plain.edges)
        pair = pairs[int(rng.integers(len(pairs)))]
        changes = {"drop_edges": [pair]}
        plain.remove(*pair)
    elif kind == 5:
        (node,) = pick()
        label = np.zeros(like.num_labels, np.uint8)
        if rng.random() < 0.3:
            changes = {"labels": {node: None}}
            plain.labels[node] = (label, False, False)
        else:
            label[int(rng.integers(len(label)))] = 1
            own = label if like.multilabel else like.label_names[int(label.argmax())]
            changes = {"labels": {node: own}}
            plain.labels[node] = (label, True, False)
    else:
        (node,) = pick()
        row = rng.normal(size=like.num_features).astype("f")
        changes = {"features": {node: row}}
        plain.features[node] = row
    return changes
