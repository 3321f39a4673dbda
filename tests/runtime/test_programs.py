"""Compiled programs: a process that works on graph after graph keeps a few only."""

import pathlib
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from hopf_jax.runtime import compiled, programs, releasing_programs


@pytest.fixture(autouse=True)
def none_before(monkeypatch):
    monkeypatch.setattr(programs, "_programs", type(programs._programs)())


@pytest.fixture
def double():
    """A function that is compiled, and the sizes it was compiled for."""
    traced = []

    def function(x):
        traced.append(len(x))
        return jnp.sin(x) * 2 + x[::-1]

    return compiled()(function), traced


def num_maps():
    return len(pathlib.Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="memory maps are Linux's")
def test_many_sizes_leave_few_memory_maps(double):
    call, traced = double
    maps = []
    for size in range(1, 4 * programs._KEPT):
        with releasing_programs():
            call(np.zeros(size, np.float32))
        maps.append(num_maps())
    assert len(traced) == len(maps) and len(programs._programs) <= programs._KEPT + 1
    kept = maps[programs._KEPT]
    assert kept > maps[0] + programs._KEPT  # A program does take some.
    assert max(maps) < kept + programs._KEPT / 2


def test_the_same_work_again_compiles_nothing(double):
    call, traced = double
    sizes = range(1, 3 * programs._KEPT)
    for _ in range(3):
        with releasing_programs():
            for size in sizes:
                call(np.zeros(size, np.float32))
    assert traced == list(sizes)


def test_a_block_within_another_frees_nothing(double):
    call, traced = double
    with releasing_programs():
        for _ in range(2):
            for size in range(1, 2 * programs._KEPT):
                with releasing_programs():
                    call(np.zeros(size, np.float32))
    assert traced == list(range(1, 2 * programs._KEPT))


def test_programs_for_few_numbers_are_compiled_quickly():
    call = compiled()(lambda x: x + 1)
    few, many = (call._find((np.zeros(n, np.float32),)) for n in (10, 200_000))
    told = compiled(1, quickly=bool)(lambda quickly, x: x + 1)
    yes, no = (told._find((flag, np.zeros(10))) for flag in (True, False))
    assert [entry.quickly for entry in (few, many, yes, no)] == [1, 0, 1, 0]
    np.testing.assert_array_equal(call(np.zeros(10, np.float32)), 1)
    assert programs._quick_options()  # This compiler knows them.
