"""What `make test-tpu` counts and captures, without the compiler for TPUs."""

import importlib.util

import jax
import jax.numpy as jnp
import pytest

from experiments import accelerators
from hopf_jax.datasets import make_planted


def compiled_text(function, *arguments):
    return jax.jit(function).lower(*arguments).compile().as_text()


def test_operations_of_a_compiled_program_are_counted():
    at, values = jnp.array([3, 1, 3]), jnp.ones(3)
    text = compiled_text(lambda at, v: jnp.zeros(9).at[at].add(v)[at + 1], at, values)
    counted = accelerators.count_operations(text)
    # XLA may expand a scatter for the CPU into a loop, but not a gather.
    assert counted["gathers"] == 1
    assert not counted["host_callbacks"] and not counted["all_gathers"]


def test_scatters_are_counted_whatever_their_shape():
    text = """
      %scatter.1 = f32[9,4]{1,0:T(8,128)} scatter(%a, %b, %c), to_apply=%add
      ROOT %scatter.2 = (f32[9]{0:T(256)}, s32[9]{0}) scatter(%a, %b, %c, %d, %e)
      %fused = f32[9]{0} fusion(%scatter.1), kind=kLoop, calls=%scatter_computation
      %sum = (f32[2]{0}, f32[2]{0}) all-gather-start(%fused)
      %all-reduce.1 = f32[2]{0} all-reduce(%fused), to_apply=%add
    """
    counted = accelerators.count_operations(text)
    assert counted["scatters"] == 2
    assert counted["all_gathers"] == counted["all_reduces"] == 1
    assert counted["gathers"] == 0


def test_a_host_callback_is_found():
    def reported(x):
        jax.debug.print("{}", x.sum())
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((3,), x.dtype), x)

    text = compiled_text(reported, jnp.ones(3))
    assert accelerators.count_operations(text)["host_callbacks"] == 2
    assert accelerators.count_operations("%s = () send(%a), is_host_transfer=true")[
        "host_callbacks"
    ]


@pytest.mark.parametrize("model", ["nip-mean", "i-nip-mean"])
def test_the_programs_of_a_fit_are_captured_once_each(model):
    graph = make_planted(60, 120, 4, 2, seed=0)
    calls = accelerators.calls_of_fit(graph, model, "float32", 1)
    names = [call.name for call in calls]
    assert names.count(accelerators.TRAINING) == 1
    assert names.count("_predict_at_once") == 1
    # Without a TPU, the same programs compile for this device.
    for call in calls:
        program = accelerators.compile_call(call, jax.devices())
        text = program.as_text()
        assert "csr" not in text, "TPUs have no CSR kernel"
        assert not accelerators.count_operations(text)["host_callbacks"]


@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is not None, reason="libtpu is installed"
)
def test_without_libtpu_it_says_what_installs_it(capsys, tmp_path):
    assert accelerators.main(["--workdir", str(tmp_path)]) == 2
    assert "make test-tpu" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", ["float16", "", "float32,float64"])
def test_unknown_precisions_are_refused(wrong, capsys):
    with pytest.raises(SystemExit):
        accelerators.main(["--precisions", wrong])
    assert "float32, bfloat16" in capsys.readouterr().err


def test_a_program_that_does_not_compile_is_a_finding():
    def broken(x):
        raise NotImplementedError("no such operation")

    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    call = accelerators.Call(broken, (), (shape,), (jax.sharding.PartitionSpec(),))
    row = accelerators.compile_all([call], jax.devices()[:1])
    assert row["error"] == "broken: NotImplementedError: no such operation"
