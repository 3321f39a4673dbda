"""The paper's equations in dense NumPy: what every fast path is compared with.

Written from the paper and the columns of its Table 1, with a dense A, float64 and loops
over nodes; shares no code with the library but the rows.
"""

import numpy as np


def relu(x):
    return np.maximum(x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def adjacency(graph):
    """A, dense, and each node's neighbours in the order they are stored in."""
    n = graph.num_nodes
    A = np.zeros((n, n))
    neighbours = []
    for i in range(n):
        own = range(graph.indptr[i], graph.indptr[i + 1])
        neighbours.append([int(graph.indices[e]) for e in own])
        for e in own:
            A[i, graph.indices[e]] = 1 if graph.weights is None else graph.weights[e]
    return A, neighbours


def aggregate(name, A, neighbours, x, w):
    """F(A) x, by the name of F."""
    n, degree = len(A), A.sum(axis=1)
    if name == "sum":
        return A @ x
    if name == "mean":
        out = np.zeros((n, x.shape[1]))
        for i in range(n):
            if degree[i] > 0:
                out[i] = (A[i] @ x) / degree[i]
        return out
    if name == "symmetric":
        root = np.diag(1 / np.sqrt(degree + 1))
        return root @ A @ root @ x
    if name == "max":
        pooled = relu(x @ w["pool"])
        out = np.zeros((n, pooled.shape[1]))
        for i in range(n):
            if neighbours[i]:
                out[i] = pooled[neighbours[i]].max(axis=0)
        return out
    assert name.startswith("lstm-"), name
    most = int(name.removeprefix("lstm-"))
    hidden = w["recurrent"].shape[0]
    out = np.zeros((n, hidden))
    for i in range(n):
        state, output = np.zeros(hidden), np.zeros(hidden)
        for j in neighbours[i][:most]:
            gates = x[j] @ w["input"] + output @ w["recurrent"]
            i_gate, f_gate, o_gate, new = gates.reshape(4, hidden)
            state = sigmoid(f_gate + 1) * state + sigmoid(i_gate) * np.tanh(new)
            output = sigmoid(o_gate) * np.tanh(state)
        out[i] = output
    return out


def gate(gate, degree):
    return gate.scale * (degree + 1) ** gate.power


def forward(row, params, graph, x, summary, num_hops):
    """Logits and h_K of all nodes (Eq. 1), [N, C] and [N, *]."""
    p = {name: np.asarray(w, np.float64) for name, w in params.items()}
    A, neighbours = adjacency(graph)
    degree = A.sum(axis=1)[:, None]
    alpha, beta = gate(row.alpha, degree), gate(row.beta, degree)
    x = np.asarray(x, np.float64)
    h0 = x
    if row.learned_input:
        h0 = relu(x @ p["w_0"] + p.get("b_0", 0))
    h = h0
    reads_hops = "h" in row.phi or "h" in row.psi or row.skip_from > 0
    for k in range(1, (num_hops if reads_hops else min(num_hops, 1)) + 1):
        signals = {"h0": h0, "h": h, "y": summary}
        parts = []
        if row.phi:
            own = np.concatenate([signals[s] for s in row.phi], axis=1)
            if row.learned_hops:
                shared = row.shared_weights
                own = own @ p[f"w_{k}_psi" if shared else f"w_{k}_phi"]
            parts.append(alpha * own)
        if row.psi:
            read = np.concatenate([signals[s] for s in row.psi], axis=1)
            extra = {
                name: p[f"w_{k}_{name}"]
                for name in ("pool", "input", "recurrent")
                if f"w_{k}_{name}" in p
            }
            read = aggregate(row.aggregate.name, A, neighbours, read, extra)
            if row.learned_hops:
                read = read @ p[f"w_{k}_psi"]
            parts.append(beta * read)
        new = np.concatenate(parts, axis=1) if row.concat else sum(parts)
        new = new + p.get(f"b_{k}", 0)
        if row.skip_from and k >= row.skip_from:
            new = new + h
        h = relu(new) if row.learned_hops else new
    return h @ p["w_output"] + p.get("b_output", 0), h


def cross_entropy(logits, labels, weights, multilabel):
    """Sum over labels of omega CE, for each node."""
    labels = np.asarray(labels, np.float64)
    if multilabel:
        q = sigmoid(logits)
        each = -(labels * np.log(q) + (1 - labels) * np.log(1 - q))
    else:
        each = -labels * np.log(softmax(logits))
    return (each * weights).sum(axis=1)
