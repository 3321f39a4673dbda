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
    if name == "symmetric-loops":
        root = np.diag(1 / np.sqrt(degree + 1))
        return root @ (A + np.eye(n)) @ root @ x
    if name == "attention":
        heads, width = w["sender"].shape
        out = np.zeros_like(x)
        for i in range(n):
            for head in range(heads):
                part = x[:, head * width : (head + 1) * width]
                read = [*neighbours[i], i]
                score = part[read] @ w["sender"][head] + part[i] @ w["receiver"][head]
                share = softmax(np.where(score > 0, score, 0.2 * score)[None])
                out[i, head * width : (head + 1) * width] = (share @ part[read])[0]
        return out
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


def gate(gate, degree, learned=None):
    scale = gate.scale if learned is None else learned
    return scale * (degree + 1) ** gate.power


def normalized(norm, x, p, k):
    """Layer normalisation, or that by given means and variances of a batch."""
    if norm == "none":
        return x
    mean, variance = x.mean(axis=1)[:, None], x.var(axis=1)[:, None]
    if norm == "batch":
        mean, variance = p[f"n_{k}_mean"], p[f"n_{k}_variance"]
    each = (x - mean) / np.sqrt(variance + 1e-5)
    return each * p[f"n_{k}_scale"] + p[f"n_{k}_shift"]


def forward(row, params, graph, x, summary, num_hops, norm="none"):
    """Logits and h_K of all nodes (Eq. 1), [N, C] and [N, *].

    Of a row that reads out all hops, h_0 to h_K side by side.
    """
    p = {name: np.asarray(w, np.float64) for name, w in params.items()}
    A, neighbours = adjacency(graph)
    degree = A.sum(axis=1)[:, None]
    x = np.asarray(x, np.float64)
    h0 = x
    if row.input_layer:
        h0 = relu(normalized(norm, x @ p["w_0"] + p.get("b_0", 0), p, 0))
    h = h0
    hops = [h]
    reads_hops = "h" in row.phi or "h" in row.psi or row.skip_from > 0
    for k in range(1, (num_hops if reads_hops else min(num_hops, 1)) + 1):
        signals = {"h0": h0, "h": h, "y": summary}
        parts = []
        alpha = gate(row.alpha, degree, p.get(f"g_{k}_alpha"))
        beta = gate(row.beta, degree, p.get(f"g_{k}_beta"))
        weights = {
            part: p[f"w_{k}_{'psi' if row.shared_weights else part}"]
            for part in ("phi", "psi")
            if row.learned_hops and getattr(row, part)
        }
        if row.identity:
            share = np.log(row.identity / k + 1)
            weights = {
                part: (1 - share) * np.eye(len(w)) + share * w
                for part, w in weights.items()
            }
        if row.phi:
            own = np.concatenate([signals[s] for s in row.phi], axis=1)
            if row.learned_hops:
                own = own @ weights["phi"]
            parts.append(alpha * own)
            features = [s for s in row.phi if s != "y"]
            if k == 1 and features and row.learned_hops and not row.input_layer:
                # h_0 is what the first hop makes of the node's own features.
                blocks = [x if s != "y" else 0 * summary for s in row.phi]
                h0 = relu(np.concatenate(blocks, axis=1) @ weights["phi"])
        if row.psi:
            read = np.concatenate([signals[s] for s in row.psi], axis=1)
            extra = {
                name: p[f"w_{k}_{name}"]
                for name in ("pool", "input", "recurrent", "sender", "receiver")
                if f"w_{k}_{name}" in p
            }
            name = row.aggregate.name
            if name == "attention":  # It depends on what the weights make of Psi.
                read = aggregate(name, A, neighbours, read @ weights["psi"], extra)
            else:
                read = aggregate(name, A, neighbours, read, extra)
                read = read @ weights["psi"] if row.learned_hops else read
            parts.append(beta * read)
        new = np.concatenate(parts, axis=1) if row.concat else sum(parts)
        new = new + p.get(f"b_{k}", 0)
        if row.second_layer:
            new = relu(new) @ p[f"w_{k}_second"] + p.get(f"b_{k}_second", 0)
        if row.learned_hops:
            new = normalized(norm, new, p, k)
        if row.skip_from and k >= row.skip_from:
            new = new + (h0 if k == 1 else h)
        h = relu(new) if row.learned_hops else new
        hops.append(h)
    if row.reads_out == "ends" and num_hops:
        h = np.concatenate([hops[0], hops[-1]], axis=1)
    elif row.reads_out not in ("last", "ends"):
        every = np.concatenate(hops, axis=1)
        if row.reads_out == "weighted":
            h = sum(share * each for share, each in zip(p["gamma"], hops, strict=True))
        else:
            h = np.concatenate(
                [
                    relu(each @ p[f"w_{k}_read"] + p.get(f"b_{k}_read", 0))
                    for k, each in enumerate(hops)
                ],
                axis=1,
            )
        return h @ p["w_output"] + p.get("b_output", 0), every
    read = h
    if row.votes is not None:
        votes = aggregate(row.votes.name, A, neighbours, np.asarray(summary), {})
        read = np.concatenate([h, votes], axis=1)
    return read @ p["w_output"] + p.get("b_output", 0), h


def cross_entropy(logits, labels, weights, multilabel):
    """Sum over labels of omega CE, for each node."""
    labels = np.asarray(labels, np.float64)
    if multilabel:
        q = sigmoid(logits)
        each = -(labels * np.log(q) + (1 - labels) * np.log(1 - q))
    else:
        each = -labels * np.log(softmax(logits))
    return (each * weights).sum(axis=1)
