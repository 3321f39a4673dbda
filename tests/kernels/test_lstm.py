"""The packed LSTM: values and gradients against one that goes node by node."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopf_jax.batching.sparse import Rows, Transpose
from hopf_jax.kernels.lstm import last_outputs, num_steps
from tests import graphs

NUM_SENDERS, HIDDEN = 9, 3
# More rows than blocks, degrees from none to beyond the longest, not sorted.
DEGREES = np.array([0, 5, 1, 9, 0, 2, 7, 3, 1, 1, 4, 0, 6, 2, 8, 1, 3, 5, 2, 0, 1, 9])
LONGEST = 6
PADDING = 4


def problem(degrees=DEGREES, seed=0):
    """Rows with padding entries, an order to read them in, inputs and weights."""
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    senders = np.concatenate(
        [rng.choice(NUM_SENDERS, d, replace=False) for d in degrees]
    ).astype(int)
    row = np.repeat(np.arange(len(degrees)), degrees)
    by_sender = np.argsort(senders, kind="stable")
    starts = np.searchsorted(senders[by_sender], np.arange(NUM_SENDERS + 1))
    # Each row's own entries, shuffled.
    entries = np.lexsort((rng.random(len(senders)), row))

    def fill(values, value):
        values = np.concatenate([values, np.full(PADDING, value)])
        return jnp.asarray(values, jnp.int32)

    transpose = Transpose(
        jnp.asarray(starts, jnp.int32), fill(row[by_sender], 0), fill(by_sender, 0)
    )
    rows = Rows(jnp.asarray(indptr, jnp.int32), fill(senders, 0), transpose)
    entries = jnp.concatenate([entries, len(entries) + jnp.arange(PADDING)])
    inputs = rng.normal(size=(NUM_SENDERS, 4 * HIDDEN)).astype(np.float32)
    recurrent = rng.normal(size=(HIDDEN, 4 * HIDDEN)).astype(np.float32)
    return rows, entries, jnp.asarray(inputs), jnp.asarray(recurrent)


def node_by_node(rows, entries, inputs, recurrent):
    """The same from the equations of an LSTM, one node and neighbour at a time."""
    out = []
    for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        memory = output = jnp.zeros(HIDDEN)
        for entry in entries[int(start) : min(int(stop), int(start) + LONGEST)]:
            gates = inputs[rows.indices[entry]] + output @ recurrent
            into, forget, out_gate, new = gates.reshape(4, HIDDEN)
            memory = jax.nn.sigmoid(forget + 1) * memory
            memory += jax.nn.sigmoid(into) * jnp.tanh(new)
            output = jax.nn.sigmoid(out_gate) * jnp.tanh(memory)
        out.append(output)
    return jnp.stack(out)


def slopes(function, rows, entries, inputs, recurrent):
    """Gradients of a weighted sum of the outputs, by inputs and by weights."""

    def weighted(inputs, recurrent):
        out = function(rows, entries, inputs, recurrent)
        return jnp.sum(out * jnp.cos(jnp.arange(out.size)).reshape(out.shape))

    return jax.grad(weighted, argnums=(0, 1))(inputs, recurrent)


def packed(*case):
    return last_outputs(LONGEST, *case)


packed_values = graphs.quick_jit(packed)
packed_slopes = graphs.quick_jit(functools.partial(slopes, packed))


def test_outputs_and_gradients_are_those_of_an_lstm_node_by_node():
    case = problem()
    got = packed_values(*case)
    np.testing.assert_allclose(got, node_by_node(*case), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got[DEGREES == 0], 0)
    for want, got in zip(
        slopes(node_by_node, *case), packed_slopes(*case), strict=True
    ):
        assert np.abs(want).max() > 0.1
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("degrees", [[0, 0, 0], [1], [9], [0] * 40 + [9]])
def test_few_rows_no_edges_and_a_hub_among_lonely_nodes(degrees):
    rows, entries, *weights = problem(np.array(degrees))
    want = node_by_node(rows, entries, *weights)
    got = packed_values(rows, entries, *weights)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    to_inputs, _ = packed_slopes(rows, entries, *weights)
    read = entries[: min(sum(degrees), LONGEST)]  # All are of one row.
    met = np.isin(np.arange(NUM_SENDERS), rows.indices[read])
    np.testing.assert_array_equal(np.any(to_inputs, axis=1), met)


def test_steps_stay_within_what_is_kept():
    for degrees in (DEGREES, np.array([9] * 30), np.array([9] + [1] * 31)):
        rows, *_ = problem(degrees)
        steps, size = num_steps(len(degrees), int(rows.indices.shape[0]), LONGEST)
        lengths = np.sort(np.minimum(degrees, LONGEST))[::-1]
        assert lengths[::size].sum() <= steps
        assert steps * size <= rows.indices.shape[0] + LONGEST * size


def test_under_vmap_each_has_its_own_steps():
    cases = [problem(seed=0), problem(DEGREES[::-1].copy(), seed=1)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *cases)
    together = jax.vmap(functools.partial(slopes, packed))
    got, _ = graphs.quick_jit(together)(*stacked)
    for i, case in enumerate(cases):
        want, _ = packed_slopes(*case)
        np.testing.assert_allclose(got[i], want, rtol=1e-5, atol=1e-6)


def test_rows_for_inference_have_no_gradient():
    rows, *case = problem()
    rows = rows._replace(transpose=None)
    assert packed_values(rows, *case).shape == (len(DEGREES), HIDDEN)
    with pytest.raises(ValueError, match="without a transpose"):
        packed_slopes(rows, *case)
