"""An LSTM over neighbours, for nodes of very different degree.

Nodes sorted by falling degree are cut into blocks, and each block runs for as many
steps as its first node needs: at most one step per edge in all, and those of one more
block. The gradient is written by hand, as JAX has none for a loop of unknown length: it
runs over the same steps backwards, and sums over neighbours in one sparse product.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap

from hopf_jax.batching import Rows, row_of_entry, spmm

# More blocks waste fewer steps, but products of few rows are slow.
_BLOCKS = 16


class _Blocks(NamedTuple):
    """The nodes in blocks [G, B] of similar degree; padding has no edges."""

    node: jax.Array  # [G, B]; R or more is padding
    start: jax.Array  # [G, B], the first edge of a node
    length: jax.Array  # [G, B], the number of edges that are read
    first: jax.Array  # [G], the first step of a block among those of all blocks


class _Kept(NamedTuple):
    """What the gradient needs of each step, [steps, B, *]."""

    gates: jax.Array  # [steps, B, 4H], after their nonlinearity
    memory: jax.Array  # [steps, B, H]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def last_outputs(
    longest: int,
    rows: Rows,
    entries: jax.Array,
    inputs: jax.Array,
    recurrent: jax.Array,
) -> jax.Array:
    """Return the last output [R, H] of an LSTM per row; 0 for a row without entries.

    Args:
      longest: Maximum number of steps; further entries of a row are left out.
      rows: A matrix [R, S]: which inputs a row reads.
      entries: [E], the order in which a row reads its entries.
      inputs: [S, 4H], inputs times the weights of the gates (in, forget, out, new).
      recurrent: [H, 4H], the weights of the gates for the previous output.
    """
    blocks = _blocks(longest, rows)
    outputs, _ = _forward(blocks, rows.indices[entries], inputs, recurrent, None)
    return _by_node(blocks, outputs, rows)


def num_steps(num_rows: int, num_entries: int, longest: int) -> tuple[int, int]:
    """Return the maximum number of steps, and the number of rows per step."""
    size = -(-num_rows // _BLOCKS)
    longest = min(longest, num_entries)
    # Every row of a block has at least as many edges as the next block has steps.
    return min(longest * -(-num_rows // size), longest + num_entries // size), size


def _save(longest, rows, entries, inputs, recurrent):
    blocks = _blocks(longest, rows)
    steps, size = num_steps(rows.indptr.shape[0] - 1, entries.shape[0], longest)
    hidden = recurrent.shape[0]
    empty = _Kept(*(jnp.zeros((steps, size, n * hidden), inputs.dtype) for n in (4, 1)))
    senders = rows.indices[entries]
    outputs, kept = _forward(blocks, senders, inputs, recurrent, empty)
    return _by_node(blocks, outputs, rows), (rows, entries, blocks, kept, recurrent)


def _restore(longest, saved, cotangent):
    rows, entries, blocks, kept, recurrent = saved
    if rows.transpose is None:
        raise ValueError("Rows without a transpose have no gradient.")
    arriving = jnp.take(cotangent, blocks.node, axis=0, mode="fill", fill_value=0)
    to_gates, to_recurrent = _backward(blocks, arriving, kept, recurrent)
    # The step at which each entry was read.
    num_entries = entries.shape[0]
    row = row_of_entry(rows.indptr, num_entries)
    count, size = blocks.node.shape
    place = jnp.zeros(rows.indptr.shape[0], jnp.int32)
    place = place.at[blocks.node.ravel()].set(jnp.arange(count * size), mode="drop")
    block, lane = jnp.divmod(place[row], size)
    time = jnp.arange(num_entries) - rows.indptr[row]
    read = time < blocks.length[block, lane]
    step = jnp.where(read, (blocks.first[block] + time) * size + lane, 0)
    step, read = (jnp.zeros_like(v).at[entries].set(v) for v in (step, read))
    indptr, _, order = rows.transpose
    to_inputs = spmm(
        Rows(indptr, step[order]),
        read[order].astype(jnp.float32),
        to_gates.reshape(-1, to_gates.shape[2]),
    )
    return None, None, to_inputs, to_recurrent.astype(recurrent.dtype)


last_outputs.defvjp(_save, _restore)


def _blocks(longest: int, rows: Rows) -> _Blocks:
    num_rows = rows.indptr.shape[0] - 1
    _, size = num_steps(num_rows, rows.indices.shape[0], longest)
    count = -(-num_rows // size)
    length = jnp.minimum(jnp.diff(rows.indptr), longest)
    node = jnp.argsort(-length)
    node = jnp.pad(node, (0, count * size - num_rows), constant_values=num_rows)
    length = jnp.take(length, node, mode="fill", fill_value=0).reshape(count, size)
    start = jnp.take(rows.indptr, node, mode="clip").reshape(count, size)
    steps = length[:, 0]
    return _Blocks(node.reshape(count, size), start, length, jnp.cumsum(steps) - steps)


def _by_node(blocks: _Blocks, outputs: jax.Array, rows: Rows) -> jax.Array:
    shape = rows.indptr.shape[0] - 1, outputs.shape[2]
    return jnp.zeros(shape, outputs.dtype).at[blocks.node].set(outputs, mode="drop")


def _step(inputs, recurrent, memory, output):
    into, forget, out, new = jnp.split(inputs + output @ recurrent, 4, axis=1)
    # The usual constant keeps the forget gate open at first, without a bias.
    gates = (*map(jax.nn.sigmoid, (into, forget + 1, out)), jnp.tanh(new))
    memory = gates[1] * memory + gates[0] * gates[3]
    return gates, memory, gates[2] * jnp.tanh(memory)


def _read(block: _Blocks, senders, inputs, time):
    at = jnp.take(senders, block.start + time, mode="clip")
    return jnp.take(inputs, at, axis=0, mode="clip"), (time < block.length)[:, None]


@sequential_vmap  # Each for its own number of steps.
def _forward(blocks, senders, inputs, recurrent, kept):
    """Return the last outputs [G, B, H], and what the gradient needs if kept."""

    def run(kept, block):
        def step(time, state):
            memory, output, kept = state
            slot, alive = _read(block, senders, inputs, time)
            gates, new_memory, new_output = _step(slot, recurrent, memory, output)
            memory = jnp.where(alive, new_memory, memory)
            output = jnp.where(alive, new_output, output)
            if kept is not None:
                at = block.first + time
                kept = _Kept(
                    kept.gates.at[at].set(jnp.concatenate(gates, axis=1)),
                    kept.memory.at[at].set(memory),
                )
            return memory, output, kept

        zeros = jnp.zeros((block.node.shape[0], recurrent.shape[0]), inputs.dtype)
        state = zeros, zeros, kept
        _, output, kept = jax.lax.fori_loop(0, block.length[0], step, state)
        return kept, output

    kept, outputs = jax.lax.scan(run, kept, blocks)
    return outputs, kept


@sequential_vmap
def _backward(blocks, arriving, kept, recurrent):
    """Return the gradients of the gates [steps, B, 4H] and of the weights."""

    def run(state, of_block):
        block, to_output = of_block

        def step(back, state):
            to_output, to_memory, to_steps, to_recurrent = state
            time = block.length[0] - 1 - back
            at = block.first + time
            into, forget, out, new = jnp.split(kept.gates[at], 4, axis=1)
            memory = jnp.tanh(kept.memory[at])
            # Of the previous step; all is 0 at the first one.
            begun = (time > 0).astype(memory.dtype)
            before = jnp.maximum(at - 1, 0)
            last_memory = begun * kept.memory[before]
            last_out = jnp.split(kept.gates[before], 4, axis=1)[2]
            last_output = last_out * jnp.tanh(last_memory)
            alive = (time < block.length)[:, None]
            carried = to_memory + to_output * out * (1 - memory**2)
            to_gates = jnp.concatenate(
                (
                    carried * new * into * (1 - into),
                    carried * last_memory * forget * (1 - forget),
                    to_output * memory * out * (1 - out),
                    carried * into * (1 - new**2),
                ),
                axis=1,
            )
            to_gates = jnp.where(alive, to_gates, 0)
            # Transposed explicitly: a product that transposes is slower.
            turned = jax.lax.optimization_barrier(last_output.T)
            return (
                jnp.where(alive, to_gates @ recurrent.T, to_output),
                jnp.where(alive, carried * forget, to_memory),
                to_steps.at[at].set(to_gates),
                to_recurrent + (turned @ to_gates).astype(jnp.float32),
            )

        state = to_output, jnp.zeros_like(to_output), *state
        state = jax.lax.fori_loop(0, block.length[0], step, state)
        return state[2:], None

    # Not in place of the gates: a loop that reads what it writes copies all of it.
    empty = jnp.zeros_like(kept.gates), jnp.zeros(recurrent.shape, jnp.float32)
    (to_steps, to_recurrent), _ = jax.lax.scan(run, empty, (blocks, arriving))
    return to_steps, to_recurrent
