"""Which way imports point, and where names may occur."""

import ast
import pathlib
import subprocess
import sys

import pytest

import hopf_jax
from hopf_jax import MODELS

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "hopf_jax"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Rooms and single modules, each of which may import those before it.
ROOMS = [
    "suggestions", "config", "runtime", "graph", "metrics", "datasets", "baselines",
    "batching", "kernels", "inference", "learning", "results", "parts", "fitting",
    "comparison", "tuning", "sklearn_api", "__init__", "serving", "cli", "__main__",
]  # fmt: skip

# Its room does not export it: it imports matplotlib, which must stay lazy.
LAZY = ("results", "plots")


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(source, package="hopf_jax"):
    """Dotted names that some source imports from a package, without its name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where they point"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        parts = [name.split(".") for name in names]
        found += [p[1:] or ["__init__"] for p in parts if p[0] == package]
    return found


def wrong_imports(own, source):
    """Imports that point back, or past the __init__ of another room."""
    wrong = []
    for name in imported(source):
        other, *rest = name
        if other == own:
            continue
        if other not in ROOMS:  # A name that the __init__ of the package exports.
            other = "__init__"
        # `import hopf_jax.graph.splits` and `from hopf_jax.graph import splits` too.
        module = rest and (PACKAGE / other / f"{rest[0]}.py").exists()
        inside = own != "__init__" and (len(rest) > 1 or module)
        back = ROOMS.index(other) >= ROOMS.index(own)
        if back or (inside and tuple(name) != LAZY):
            wrong.append(".".join(name))
    return wrong


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way_and_through_the_rooms(path):
    source = path.read_text()
    assert wrong_imports(room(path), source) == []
    assert not imported(source, "experiments") and not imported(source, "tests")


@pytest.mark.parametrize(
    "line",
    [
        "import hopf_jax.graph.splits",
        "import hopf_jax.graph.splits as s",
        "from hopf_jax.graph import splits",
        "from hopf_jax.graph.splits import SPLITS",
        "from hopf_jax.fitting import fit",
        "import hopf_jax.fitting",
        "import hopf_jax",
        "from hopf_jax import fit",
    ],
)
def test_a_wrong_import_would_be_seen(line):
    assert len(wrong_imports("kernels", line)) == 1
    assert wrong_imports("kernels", "from hopf_jax.graph import Graph") == []
    assert wrong_imports("kernels", "import hopf_jax.kernels.lstm") == []


def test_imports_are_found_in_every_form():
    assert imported("from hopf_jax.fitting import fit") == [["fitting", "fit"]]
    assert imported("import hopf_jax.kernels.module as n") == [["kernels", "module"]]
    assert imported("def f():\n    from hopf_jax import metrics") == [["metrics"]]
    assert not imported("import hopf_jaxx") and not imported("import numpy")


def test_the_house_is_small_at_the_door():
    files = [path for path in PACKAGE.iterdir() if path.is_file()]
    assert len(files) <= 11, sorted(path.name for path in files)
    assert {room(path) for path in MODULES} == set(ROOMS)


def test_library_tests_know_nothing_of_experiments():
    for path in (ROOT / "tests").rglob("*.py"):
        if path.relative_to(ROOT / "tests").parts[0] != "experiments":
            assert not imported(path.read_text(), "experiments"), path


def test_flax_is_imported_in_one_file():
    knows = [path.name for path in MODULES if imported(path.read_text(), "flax")]
    assert knows == ["module.py"]


def literals(path):
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_the_library_names_models_in_one_place():
    named = {path.name: literals(path) & set(MODELS) for path in MODULES}
    named = {name: models for name, models in named.items() if models}
    assert named == {"table.py": set(MODELS)}


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


def test_no_one_branches_on_the_name_of_a_model():
    for path in [*MODULES, *(ROOT / "experiments").rglob("*.py")]:
        assert not branches(path.read_text()), path
    assert branches("if model == 'gcn': pass") == {"gcn"}


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_is_quick_and_lazy():
    # Beyond jax's own import. Processor time, the best of two: others may be at work.
    code = (
        "import sys, time, jax; jax.numpy; begun = time.process_time(); "
        "import hopf_jax; print(time.process_time() - begun, "
        "*{m.split('.')[0] for m in sys.modules})"
    )
    runs = [run(code).split() for _ in range(2)]
    assert min(float(seconds) for seconds, *_ in runs) < 2
    heavy = {"matplotlib", "torch", "networkx", "pandas", "sklearn", "orbax"}
    heavy |= {"starlette", "uvicorn", "pydantic", "prometheus_client"}
    assert not heavy & set(runs[0])


def test_the_public_names_are_there():
    assert set(hopf_jax.__all__) >= {"fit", "load", "Config", "Graph", "MODELS", "Row"}
    assert all(hasattr(hopf_jax, name) for name in hopf_jax.__all__)
    assert hopf_jax.Row is hopf_jax.Kernel
