"""`Result.export`: the prediction as a program that runs without this library."""

import dataclasses
import hashlib
import io
import json
import os
import pathlib
import zipfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

from hopf_jax.batching import portable_products
from hopf_jax.graph import Graph, Scaling
from hopf_jax.inference import EdgeList, whole_program
from hopf_jax.kernels import MODELS
from hopf_jax.results.decisions import Decision
from hopf_jax.runtime import did_you_mean, import_or_explain, new_folder

if TYPE_CHECKING:
    from hopf_jax.results.result import Result

_FORMAT = 1
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_PROGRAM, _MANIFEST, _EXAMPLE = "prediction.stablehlo", "manifest.json", "example.npz"
_READER = (
    "flatbuffers.zip"  # jax reads programs by this package, and does not ask for it.
)
_SCRIPT = pathlib.Path(__file__).with_name("predict_template.py")
_EXAMPLE_NODES = 40
_TINY = 1e-30  # As calibration has it.
_LEAST_REST = 3e-8  # As calibration has it: half the distance from 1 to the next.

Program = Callable[..., tuple[jax.Array, jax.Array, jax.Array]]


def export(
    result: "Result", folder: str | os.PathLike, platforms: tuple[str, ...]
) -> None:
    """Write the prediction to a new folder; see `Result.export`."""
    _check(result, platforms)
    program = make_program(result)
    with portable_products(), jax.default_matmul_precision("highest"):
        try:
            exported = jax_export.export(jax.jit(program), platforms=platforms)(
                *_shapes(result)
            )
        except Exception as error:
            raise ValueError(
                f"The kernel cannot be a program for graphs of any size: {error}"
            ) from error
    reader = import_or_explain("flatbuffers", "export")
    files: dict[str, bytes] = {
        _READER: _zipped(pathlib.Path(reader.__file__).parent),
        _PROGRAM: bytes(exported.serialize()),
        _EXAMPLE: _example(result),
        _SCRIPT.name.replace("_template", ""): _SCRIPT.read_bytes(),
    }
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifest = _manifest(result, platforms, digests)
    files[_MANIFEST] = (json.dumps(manifest, indent=2) + "\n").encode()
    with new_folder(folder) as path:
        for name, data in files.items():
            (path / name).write_bytes(data)


def make_program(result: "Result") -> Program:
    """Return the prediction as a function of arrays.

    It takes features [N, F] as a graph is given them, senders, receivers and weights
    [E], training nodes [N] and their labels [N, C]; it returns probabilities [N, C],
    these at the temperature of the calibration, and what is decided: class ids [N], or
    0 and 1 [N, C] if nodes have several labels.
    """
    # Lazy: it imports this module's room.
    from hopf_jax.results.result import make_net

    net = make_net(result.kernel, result.config, result.sizes).with_dropout(0.0, 0.0)
    weights = [
        {name: jnp.asarray(array) for name, array in params.items()}
        for params in result.weights[: result.iteration]
    ]
    run = whole_program(net, weights, result.config, result.multilabel)

    def program(features, senders, receivers, weights, train, labels):
        x = features
        if result.scaling is not None:
            x = _scaled(result.scaling, features)
        said = run(x, EdgeList(senders, receivers, weights), train, labels)
        said = _corrected(result.decision, said)
        sure = said
        if result.calibration is not None:
            temperature = result.calibration.temperature
            sure = _softened(said, temperature, result.multilabel)
        return said, sure, _decided(result.decision, said)

    return program


def _check(result: "Result", platforms: tuple[str, ...]) -> None:
    """Raise `ValueError` for what cannot be exported."""
    for platform in platforms:
        if platform not in _PLATFORMS:
            hint = did_you_mean(platform, _PLATFORMS)
            raise ValueError(
                f"platforms has {platform!r}; use some of {', '.join(_PLATFORMS)}. "
                f"{hint}".rstrip()
            )
    if not platforms:
        raise ValueError("platforms is empty; name one, such as 'cpu'.")
    config, why = result.config, ""
    if result.positions:
        why = "it reads positions in the graph that was fitted, not features"
    elif config.ghost_edges:
        why = "ghost_edges are random walks over the whole graph"
    elif config.neighbor_fraction < 1:
        why = "neighbor_fraction draws neighbours at random"
    elif result.kernel.aggregate.ordered:
        why = f"{result.kernel.aggregate.name} reads neighbours in a random order"
    if why:
        raise ValueError(
            f"This model cannot be exported, as {why}. Use result.save and "
            "hopf_jax.load, or fit another model."
        )


def _shapes(result: "Result") -> tuple[jax.ShapeDtypeStruct, ...]:
    """Return the inputs, of any number of nodes and edges."""
    n, e = jax_export.symbolic_shape("n, e")
    f, c = _num_columns(result), result.sizes.labels
    shapes: list[tuple[Any, Any]] = [
        ((n, f), jnp.float32),
        ((e,), jnp.int32),
        ((e,), jnp.int32),
        ((e,), jnp.float32),
        ((n,), jnp.bool_),
        ((n, c), jnp.float32),
    ]
    return tuple(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes)


def _num_columns(result: "Result") -> int:
    """Return the number of columns of the features as they are given."""
    scaling = result.scaling
    return result.sizes.features if scaling is None else scaling.num_features


def _manifest(
    result: "Result", platforms: tuple[str, ...], digests: dict[str, str]
) -> dict[str, Any]:
    """Return what a caller has to know, as plain data."""
    f, c = _num_columns(result), result.sizes.labels
    known = [name for name, kernel in MODELS.items() if kernel == result.kernel]
    inputs = [
        ("features", ["n", f], "float32", "as the graph was given them, not scaled"),
        ("senders", ["e"], "int32", "the node that is read, by its row"),
        ("receivers", ["e"], "int32", "the node that reads; n is padding"),
        ("weights", ["e"], "float32", "of edges; 1 if they have none"),
        ("train", ["n"], "bool", "nodes whose label is known, and read by others"),
        ("labels", ["n", c], "float32", "their labels, 0 or 1; other rows are ignored"),
    ]
    decided = ["n", c] if result.multilabel else ["n"]
    outputs = [
        ("probabilities", ["n", c], "float32", "as predict_proba"),
        ("confidence", ["n", c], "float32", "calibrated, as confidence"),
        ("labels", decided, "int32", "class ids; 0 and 1 if nodes have several"),
    ]
    fields = ("name", "shape", "dtype", "about")
    return {
        "format": _FORMAT,
        "program": _PROGRAM,
        "platforms": list(platforms),
        "jax": jax.__version__,
        "model": known[0] if known else "own kernel",
        "inputs": [dict(zip(fields, each, strict=True)) for each in inputs],
        "outputs": [dict(zip(fields, each, strict=True)) for each in outputs],
        "feature_names": list(result.feature_names),
        "label_names": list(result.label_names),
        "multilabel": result.multilabel,
        "read_both_directions": result.config.directions == "both",
        "missing_features": "NaN where the fitted graph had some, else refused",
        "iterations": result.iteration,
        "sha256": digests,
    }


def _example(result: "Result") -> bytes:
    """Return a made-up graph with the predictions of this library, as an npz file."""
    rng, count = np.random.default_rng(0), _EXAMPLE_NODES
    features = _made_up(result, rng, count)
    senders, receivers = rng.integers(0, count, (2, 3 * count))
    label_rows = np.zeros((count, result.sizes.labels), np.uint8)
    chosen = rng.integers(0, result.sizes.labels, count)
    label_rows[np.arange(count), chosen] = 1
    graph = Graph.from_edges(
        senders,
        receivers,
        features,
        label_rows,
        missing="mean",
        train=np.arange(0, count, 4),
        multilabel=result.multilabel,
        label_names=result.label_names,
    )
    graph = dataclasses.replace(graph, feature_names=result.feature_names)
    matrix = graph.adjacency.tocoo()
    arrays = {
        "features": features,
        "senders": matrix.coords[1].astype(np.int32),
        "receivers": matrix.coords[0].astype(np.int32),
        "weights": matrix.data.astype(np.float32),
        "train": graph.train,
        "labels": graph.labels.astype(np.float32),
        "probabilities": result.predict_proba(graph),
    }
    memory = io.BytesIO()
    np.savez(memory, **arrays)
    return memory.getvalue()


def _zipped(package: pathlib.Path) -> bytes:
    """Return the Python files of a package as a zip archive to import it from."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.glob("*.py")):
            # A fixed date, so that the same export gives the same bytes.
            entry = zipfile.ZipInfo(f"{package.name}/{path.name}")
            archive.writestr(entry, path.read_bytes())
    return memory.getvalue()


def _made_up(result: "Result", rng: np.random.Generator, count: int) -> np.ndarray:
    """Return features such as the fitted graph could have had."""
    drawn = rng.normal(size=(count, _num_columns(result)))
    scaling = result.scaling
    if scaling is None:
        return drawn.astype(np.float32)
    if scaling.kind == "dense":
        drawn = scaling.centre + drawn * np.where(scaling.scale > 0, scaling.scale, 0)
        drawn[0, scaling.gaps] = np.nan
    else:
        drawn = np.abs(drawn) * (rng.random(drawn.shape) < 0.2)
    return drawn.astype(np.float32)


# Parts of the program


def _scaled(scaling: Scaling, features: jax.Array) -> jax.Array:
    """Return what `Scaling.apply` does."""
    missing = jnp.isnan(features)
    kept = np.flatnonzero(scaling.scale > 0)
    if scaling.kind == "bag of words":
        rows = jnp.where(missing, 0, features)[:, kept]
        sums = jnp.abs(rows).sum(axis=1, keepdims=True)
        rows = rows / jnp.where(sums > 0, sums, 1)
        return rows / jnp.asarray(scaling.scale[kept], jnp.float32)[None]
    # Centres in two parts: one 32-bit number would lose digits of a year.
    high = scaling.centre.astype(np.float32)
    low = (scaling.centre - high).astype(np.float32)
    moved = jnp.where(missing, 0, (features - high[None]) - low[None])[:, kept]
    shares = scaling.gap_shares
    flags = missing[:, scaling.gaps] - jnp.asarray(shares, jnp.float32)[None]
    flags = flags / jnp.asarray(np.sqrt(shares * (1 - shares)), jnp.float32)[None]
    scaled = moved / jnp.asarray(scaling.scale[kept], jnp.float32)[None]
    limit = scaling.limit
    return jnp.clip(jnp.concatenate([scaled, flags], axis=1), -limit, limit)


def _corrected(decision: Decision, said: jax.Array) -> jax.Array:
    """Return what `Decision.correct` does."""
    if not decision.weights:
        return said
    true = said / jnp.asarray(decision.divisors, jnp.float32)[None]
    return true / true.sum(axis=1, keepdims=True)


def _softened(said: jax.Array, temperature: float, multilabel: bool) -> jax.Array:
    """Return what `soften` does."""
    if multilabel:
        rest = jnp.where(said < 1, jnp.log1p(-said), np.log(_LEAST_REST))
        odds = jnp.log(jnp.maximum(said, _TINY)) - rest
        return jax.nn.sigmoid(odds / temperature)
    return jax.nn.softmax(jnp.log(jnp.maximum(said, _TINY)) / temperature)


def _decided(decision: Decision, said: jax.Array) -> jax.Array:
    """Return what `Decision.decide` does."""
    if decision.multilabel:
        limits = jnp.asarray(decision.thresholds or (0.5,), jnp.float32)
        return (said > limits[None]).astype(jnp.int32)
    if decision.power:
        said = said / jnp.asarray(decision.rarity, jnp.float32)[None]
    return said.argmax(axis=1).astype(jnp.int32)
