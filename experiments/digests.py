"""Print a digest of the predictions of every kernel, to compare two commits.

Run it before and after a change that must not change any number:

    python -m experiments.digests > before.txt

It uses nothing but the public interface, so that it runs on older versions too. Cora is
left out where it is missing.
"""

import argparse
import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import hopf_jax

# The algorithm as printed and the paper's settings, all that the first version had.
_PRINTED: dict[str, Any] = {
    "features": "as-is",
    "training_summaries": "as-printed",
    "summary_dropout": 0.0,
    "scale_summaries": False,
    "warm_start": True,
    "metric": "as-trained",
    "directions": "given",
    "folds": 0,
    "bias": False,
    "init_weights": "fan-out",
    "weighted_loss": True,
    "batch_size": 128,
    "l2": 1e-3,
}
_FIELDS = {field.name for field in dataclasses.fields(hopf_jax.Config)}
_CONFIG = hopf_jax.Config(
    num_hops=2,
    hidden_size=16,
    num_iterations=2,
    max_epochs=5,
    min_epochs=1,
    **{name: value for name, value in _PRINTED.items() if name in _FIELDS},
)


def dense_graph(num_nodes: int = 600, seed: int = 0) -> hopf_jax.Graph:
    """Return a graph of four noisy blocks with dense features and weighted edges."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(4, size=num_nodes)
    senders, receivers = rng.integers(num_nodes, size=(2, 12 * num_nodes))
    kept = (classes[senders] == classes[receivers]) | (rng.random(len(senders)) < 0.2)
    features = rng.normal(size=(num_nodes, 12)) + np.eye(4, 12)[classes]
    sets = rng.permutation(num_nodes)
    return hopf_jax.Graph.from_edges(
        senders[kept],
        receivers[kept],
        features.astype(np.float32),
        classes,
        weights=rng.uniform(0.5, 2, kept.sum()).astype(np.float32),
        train=sets[:200],
        validation=sets[200:300],
        test=sets[300:],
    )


def cases() -> Iterator[tuple[str, hopf_jax.Graph, hopf_jax.Config]]:
    """Yield a name, a graph and settings for each way to run a kernel."""
    dense = dense_graph()
    yield "dense", dense, _CONFIG
    yield "dense, no dropout", dense, dataclasses.replace(_CONFIG, dropout=0.0)
    sampled = dataclasses.replace(_CONFIG, fanouts=(5, 3), bias=True)
    yield "dense, fan-outs, bias", dense, sampled
    lanes = dataclasses.replace(_CONFIG, batches_per_step=2, batch_size=32)
    yield "dense, two batches per step", dense, lanes
    hidden = dataclasses.replace(_CONFIG, summary="hidden", num_hops=3, dropout=0.0)
    yield "dense, hidden summaries, three hops", dense, hidden
    try:
        yield "cora", hopf_jax.load_dataset("cora", fold=1), _CONFIG
    except (ValueError, OSError) as error:
        print(f"cora is left out: {error}", file=sys.stderr)


def digest(result: hopf_jax.Result, graph: hopf_jax.Graph) -> str:
    """Return a digest of what was predicted, and of what is predicted on replay."""
    state = hashlib.sha256()
    for array in (result.predict_proba(), result.predict_proba(graph)):
        state.update(np.ascontiguousarray(array).tobytes())
    scores = [(r["train_loss"], r["validation_loss"]) for r in result.history]
    state.update(json.dumps(scores).encode())
    return state.hexdigest()[:16]


def main(argv: list[str] | None = None) -> None:
    """Print one line per case and kernel: case, kernel, digest."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--save", help="also write all probabilities to this npz file")
    parser.add_argument("--models", default=",".join(hopf_jax.MODELS))
    options = parser.parse_args(argv)
    kept = {}
    for case, graph, config in cases():
        for name in options.models.split(","):
            result = hopf_jax.fit(graph, name, config, progress=False)
            kept[f"{case}: {name}"] = result.predict_proba()
            print(f"{case}\t{name}\t{digest(result, graph)}", flush=True)
    if options.save:
        np.savez(options.save, **kept)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
