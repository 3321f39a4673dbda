"""Which way imports point, how long a module is, and where names may occur."""

import ast
import pathlib
import subprocess
import sys

import pytest

from hopf_jax import MODELS

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "hopf_jax"

# What each module may import of the package. A module that is not here fails: say where
# it stands. Nothing but these, so that the arrows cannot turn or close a circle.
_NUMBERS = {"checks", "graph", "sparse", "batching", "feeding", "spreading"}
_RULE = {"sparse", "aggregators", "models", "propagation", "noise"}
ALLOWED = {
    "checks": set(),
    "config": set(),
    "metrics": {"checks"},
    "noise": set(),
    "sparse": set(),
    "largest": {"sparse"},
    "plotting": set(),
    "interruption": set(),
    "showing": set(),
    "labels": {"checks"},
    "graph": {"checks", "labels"},
    "batching": {"graph", "sparse"},
    "storage": {"checks", "graph"},
    "processes": set(),
    "spreading": set(),
    "feeding": {"graph", "sparse", "batching", "spreading"},
    "lanes": _NUMBERS | {"processes"},
    "recurrent": {"sparse"},
    "aggregators": {"sparse", "recurrent"},
    "models": {"aggregators"},
    "propagation": {"sparse", "models"},
    "nets": _RULE | {"batching"},
    "patience": set(),
    "training": _NUMBERS | _RULE | {"nets", "config", "largest", "metrics", "patience"},
    "inference": _NUMBERS | _RULE | {"nets", "processes"},
    "summaries": _NUMBERS | {"nets", "inference", "config"},
    "ahead": _NUMBERS | {"models", "inference", "config"},
    "calibration": {"graph", "showing"},
    "explaining": _NUMBERS
    | {"nets", "inference", "summaries", "config", "plotting", "showing"},
    "archive": {"checks", "config", "nets"},
    "result": _NUMBERS
    | {"archive"}
    | {"nets", "models", "inference", "summaries", "config", "metrics", "plotting"}
    | {"calibration", "explaining", "processes"},
    "checkpoints": {"config", "graph", "interruption", "models", "training"}
    | {"patience"},
    "fitting": _NUMBERS
    | {"nets", "models", "training", "inference", "summaries", "result", "config"}
    | {"ahead", "metrics", "calibration", "checkpoints", "lanes", "processes"}
    | {"patience"},
    "together": _NUMBERS
    | {"nets", "models", "training", "inference", "summaries", "result", "config"}
    | {"ahead", "checkpoints", "fitting"},
    "logs": {"result"},
    "datasets": {"datasets", "graph", "checks", "storage"},
    "sklearn_api": {"checks", "config", "fitting", "graph", "models"},
    "comparison": {"graph", "metrics", "plotting", "result", "showing"},
    "comparing": {"checks", "comparison", "config", "datasets", "fitting", "graph"}
    | {"models", "result"},
    "tables": set(),
    "folder": {"datasets", "result"},
    "options": {"config", "models"},
    "cli": {"__init__", "comparing", "datasets", "fitting", "folder", "graph"}
    | {"options", "result", "tables"},
    "__main__": {"cli"},
    "__init__": {"aggregators", "config", "datasets", "fitting", "graph", "models"}
    | {"result", "batching", "calibration", "comparing", "comparison"}
    | {"explaining", "sklearn_api", "storage", "together"},
}


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def part(path):
    """The module a file belongs to; a sub-package is one."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(source, package="hopf_jax"):
    """The parts of the package that some source imports, at any depth of it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where they point"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == package:
                found.add(parts[1] if len(parts) > 1 else "__init__")
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    name = part(path)
    assert name in ALLOWED, f"{name} is new: say in ALLOWED what it may import"
    assert imported(path.read_text()) <= ALLOWED[name]


def test_what_is_allowed_has_no_circle():
    seen = {}

    def walk(name):
        assert seen.get(name) != "open", f"{name} imports itself in the end"
        if name not in seen:
            seen[name] = "open"
            for other in ALLOWED[name] - {name}:
                walk(other)
            seen[name] = "done"

    for name in ALLOWED:
        walk(name)
    assert set(seen) == set(ALLOWED)


def test_a_reversal_would_be_seen():
    assert imported("from hopf_jax.fitting import fit") == {"fitting"}
    assert imported("import hopf_jax.kernels.module as n") == {"nets"}
    assert imported("from hopf_jax import checks, graph") == {"checks", "graph"}
    assert imported("def f():\n    from hopf_jax import nets") == {"nets"}
    assert not imported("import hopf_jaxx") and not imported("import numpy")


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_the_package_knows_nothing_of_experiments_or_tests(path):
    source = path.read_text()
    assert not imported(source, "experiments")
    assert not imported(source, "tests")


def test_no_module_is_over_400_lines():
    files = [*modules(), *(ROOT / "experiments").rglob("*.py")]
    lengths = {str(f): len(f.read_text().splitlines()) for f in files}
    assert {f: n for f, n in lengths.items() if n > 400} == {}


def test_flax_is_known_in_one_file():
    knows = {part(p) for p in modules() if imported(p.read_text(), "flax")}
    assert knows == {"nets"}


def literals(path):
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_the_library_names_models_in_one_place():
    named = {part(f): literals(f) & set(MODELS) for f in modules()}
    named = {f: names for f, names in named.items() if names}
    assert named.pop("models") == set(MODELS)
    assert named == {}


def branches(source):
    """Names of models that some source compares with: `if model == "..."`."""
    return {
        leaf.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops)
        for leaf in (node.left, *node.comparators)
        if isinstance(leaf, ast.Constant) and leaf.value in MODELS
    }


def test_no_one_branches_on_a_models_name():
    # An experiment says which models it compares; what a model does is its row's.
    for path in [*modules(), *(ROOT / "experiments").rglob("*.py")]:
        assert not branches(path.read_text()), path
    assert branches("if model == 'gcn': pass") == {"gcn"}


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_is_quick():
    # Beyond jax's own import. Processor time, the best of three: others may be at work.
    code = (
        "import time, jax; jax.numpy; begun = time.process_time(); import hopf_jax; "
        "print(time.process_time() - begun)"
    )
    assert min(float(run(code)) for _ in range(3)) < 2


def test_importing_leaves_the_heavy_and_the_optional_alone():
    heavy = ("matplotlib", "torch", "networkx", "pandas", "sklearn", "orbax")
    code = (
        "import sys, hopf_jax; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    )
    assert not set(heavy) & set(run(code).split())


def test_the_public_names_are_there():
    import hopf_jax

    assert set(hopf_jax.__all__) >= {
        "fit",
        "load",
        "Config",
        "Graph",
        "MODELS",
        "Kernel",
    }
    assert all(hasattr(hopf_jax, name) for name in hopf_jax.__all__)
