"""The documentation builds without a warning, and what it says runs and is there."""

import doctest
import importlib
import pathlib
import re
import subprocess
import sys

import pytest

from hopf_jax import MODELS
from tests.project.test_readme import python_blocks

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    p for p in DOCS.rglob("*.md") if not {"_build", "measured"} & set(p.parts)
)
# Modules whose docstrings have examples; a module that gets some is found missing.
WITH_EXAMPLES = (
    *("config", "fitting", "graph", "largest", "metrics", "models", "tables"),
    *("datasets.loading", "datasets.splits"),
)


def locate():
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("locate")
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
    for page in PAGES:
        assert (built / page.relative_to(DOCS).with_suffix(".html")).is_file(), page


def test_the_equations_lead_to_their_lines(built):
    text = (built / "equations.html").read_text()
    found = set(re.findall(r'href="(_source/[^"#]+)#(line-\d+)"', text))
    assert len(found) > 40
    for page, anchor in found:
        assert f'id="{anchor}"' in (built / page).read_text(), (page, anchor)


def test_the_api_is_there(built):
    text = (built / "api.html").read_text()
    import hopf_jax

    for name in set(hopf_jax.__all__) - {"MODELS"}:
        assert f'id="hopf_jax.{name}"' in text, name


def test_names_that_the_equations_lead_to_exist():
    find = locate().locate
    names = locate().names_in((DOCS / "equations.md").read_text())
    assert len(names) > 40
    for name in names:
        path, line = find(name)
        said = (ROOT / path).read_text().splitlines()[line - 1]
        last = re.split(r"[.\[]", name.rstrip("]"))[-1]
        assert last in said, (name, path, line)
    for model, row in MODELS.items():
        path, line = find(f"hopf_jax.kernels.table.MODELS[{model}]")
        said = (ROOT / path).read_text().splitlines()[line - 1]
        assert f'"{model}"' in said and "Kernel(" in said
        assert all(f'"{signal}"' in said for signal in row.phi + row.psi)
    for wrong in (
        "hopf_jax.kernels.table.NOTHING",
        "nowhere.at.all",
        "hopf_jax.kernels.table.MODELS[x]",
    ):
        with pytest.raises(ValueError, match=re.escape(wrong)):
            find(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch, capsys):
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
    module = importlib.import_module(f"hopf_jax.{name}")
    failed, tried = doctest.testmod(module)
    assert tried > 0 and failed == 0


def test_no_example_is_left_out():
    found = {
        ".".join(path.relative_to(ROOT / "hopf_jax").with_suffix("").parts)
        for path in (ROOT / "hopf_jax").rglob("*.py")
        if ">>> " in path.read_text()
    }
    assert found == set(WITH_EXAMPLES)


def test_the_commands_of_the_guide_parse(capsys):
    from hopf_jax.cli.options import make_parser

    text = (DOCS / "guides" / "command-line.md").read_text()
    commands = re.findall(r"^hopf (.*?)(?:  +#.*|>.*)?$", text, re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        make_parser("0").parse_args(command.split())
