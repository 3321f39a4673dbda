"""The documentation builds without warnings; its examples run; what it names exists."""

import doctest
import importlib
import pathlib
import re
import subprocess
import sys
import types

import pytest

import hopf_jax
from hopf_jax import MODELS, Config
from hopf_jax.datasets import make_planted
from tests.project.test_readme import python_blocks

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
EXPERIMENTS = ROOT / "experiments" / "README.md"
PAGES = sorted(
    p for p in DOCS.rglob("*.md") if not {"_build", "measured"} & set(p.parts)
)
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "hopf_jax").rglob("*.py")
    if ">>> " in path.read_text()
)
WITH_COMMANDS = [*PAGES, CONTRIBUTING, ROOT / "README.md", EXPERIMENTS]
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml|txt)|Makefile)`")


def modules_to_run(page):
    """The modules of the experiments that a page runs."""
    return re.findall(r"python -m\s+(experiments[\w.]*\w)", page.read_text())


@pytest.fixture(scope="module")
def locate():
    """The module docs/locate.py."""
    sys.path.insert(0, str(DOCS))
    try:
        yield importlib.import_module("locate")
    finally:
        sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    target = tmp_path_factory.mktemp("docs")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"),
            *("-d", str(target / "trees"), str(DOCS), str(target / "html")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target / "html"


def test_every_page_is_built(built):
    assert len(PAGES) >= 14
    for page in PAGES:
        assert (built / page.relative_to(DOCS).with_suffix(".html")).is_file(), page


def test_equations_link_to_lines(built):
    text = (built / "equations.html").read_text()
    found = set(re.findall(r'href="(_source/[^"#]+)#(line-\d+)"', text))
    assert len(found) > 40
    for page, anchor in found:
        assert f'id="{anchor}"' in (built / page).read_text(), (page, anchor)


def test_every_public_name_is_in_the_api_reference(built):
    text = (built / "api.html").read_text()
    for name in set(hopf_jax.__all__) - {"MODELS"}:
        is_module = isinstance(getattr(hopf_jax, name), types.ModuleType)
        identifier = f'id="hopf_jax.{name}' + ("." if is_module else '"')
        assert identifier in text, name


def test_every_room_is_in_the_api_reference():
    text = (DOCS / "api.md").read_text()
    paths = (ROOT / "hopf_jax").glob("[!_]*")
    rooms = [path.stem for path in paths if path.is_dir() or path.suffix == ".py"]
    assert len(rooms) >= 14
    for room in rooms:
        assert f"`hopf_jax.{room}`" in text, room


def test_names_in_the_equations_exist(locate):
    names = locate.names_in((DOCS / "equations.md").read_text())
    assert len(names) > 40
    for name in names:
        path, line = locate.locate(name)
        said = (ROOT / path).read_text().splitlines()[line - 1]
        last = re.split(r"[.\[]", name.rstrip("]"))[-1]
        assert last in said, (name, path, line)
    for model, kernel in MODELS.items():
        path, line = locate.locate(f"hopf_jax.kernels.table.MODELS[{model}]")
        said = (ROOT / path).read_text().splitlines()[line - 1]
        assert f'"{model}"' in said and "Kernel(" in said
        assert all(f'"{signal}"' in said for signal in kernel.phi + kernel.psi)


@pytest.mark.parametrize(
    "wrong",
    [
        "hopf_jax.kernels.table.NOTHING",
        "nowhere.at.all",
        "hopf_jax.kernels.table.MODELS[x]",
    ],
)
def test_unknown_names_are_refused(locate, wrong):
    with pytest.raises(ValueError, match=re.escape(wrong)):
        locate.locate(wrong)


def test_paths_in_contributing_exist():
    found = set(PATH.findall(CONTRIBUTING.read_text()))
    assert len(found) > 40
    assert {path for path in found if not (ROOT / path).exists()} == set()


def test_the_aggregator_of_contributing_works():
    space: dict = {}
    for block in python_blocks(CONTRIBUTING):
        exec(compile(block, CONTRIBUTING.name, "exec"), space)
    graph = make_planted(60, 200, 4, 2, homophily=0.9, seed=1)
    config = Config(num_hops=2, hidden_size=4, max_epochs=2, min_epochs=1)
    result = hopf_jax.fit(graph, space["kernel"], config, progress=False)
    assert result.predict_proba().shape == (60, 2)


def test_examples_and_commands_are_found():
    # The tests of single pages below pass where there is nothing to try.
    examples = {page.stem: len(python_blocks(page)) for page in PAGES}
    assert examples["quickstart"] >= 3
    assert examples["graphs"] >= 2 and examples["models"] >= 2
    assert len(WITH_EXAMPLES) >= 9
    assert sum(len(modules_to_run(page)) for page in WITH_COMMANDS) >= 15


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_examples_of_a_page_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    for block in python_blocks(page):
        exec(compile(block, page.name, "exec"), space)
    if page.stem == "quickstart":
        assert space["result"].scores["test"]["micro_f1"] > 0.7
        assert "34 nodes" in capsys.readouterr().out
    if page.stem == "graphs":
        assert "senders[1] is 9" in capsys.readouterr().out


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_of_docstrings(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried > 0 and failed == 0


def test_commands_of_the_guide_parse(capsys):
    from hopf_jax.cli.options import make_parser

    text = (DOCS / "guides" / "command-line.md").read_text()
    commands = re.findall(r"^hopf (.*?)(?:  +#.*|>.*)?$", text, re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        make_parser("0").parse_args(command.split())


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda p: p.stem)
def test_modules_to_run_exist(page):
    for name in modules_to_run(page):
        path = ROOT.joinpath(*name.split("."))
        assert path.with_suffix(".py").is_file() or path.is_dir(), name
