"""The documentation builds without warnings; its examples run; what it names exists."""

import doctest
import importlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tomllib
import types

import pytest

import hopf_jax
from hopf_jax import MODELS, Config
from hopf_jax.datasets import make_planted
from tests.project.pages import (
    CONTRIBUTING,
    DOCS,
    PAGES,
    README,
    ROOT,
    WITH_COMMANDS,
    commands,
    extension,
    python_blocks,
    run_examples,
    train_briefly,
)

WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "hopf_jax").rglob("*.py")
    if ">>> " in path.read_text()
)
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml|txt)|Makefile)`")
by_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(DOCS))
)
by_command = pytest.mark.parametrize(
    "page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT))
)


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
            # Examples are run below, briefly and with other tests at the same time.
            *("-D", "run_examples=0"),
            *("-d", str(target / "trees"), str(DOCS), str(target / "html")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target / "html"


def test_every_page_is_built(built):
    assert len(PAGES) >= 26
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
    examples = {page: len(python_blocks(page)) for page in PAGES}
    for guide in (DOCS / "guides").glob("*.md"):
        if guide.stem not in ("command-line", "mistakes"):
            assert examples[guide] >= 1, guide
    assert sum(examples.values()) >= 35
    assert len(WITH_EXAMPLES) >= 9
    assert sum(len(commands(page)) for page in WITH_COMMANDS) >= 15
    assert sum(len(modules_to_run(page)) for page in WITH_COMMANDS) >= 15


@by_page
def test_examples_of_a_page_run(page, tmp_path, monkeypatch):
    if page.stem != "first-graph":  # That one is for the labels it prints.
        train_briefly(monkeypatch)
    blocks = python_blocks(page)
    outputs = run_examples(page, tmp_path, monkeypatch) if blocks else []
    kinds = {kind for shown in outputs for kind, *_ in shown}
    if page.parent.name == "guides" and blocks and page.stem != "mistakes":
        assert "image" in kinds, "Every guide has a picture."
    if page.stem == "first-graph":
        printed = "".join(
            x for shown in outputs for kind, x, *_ in shown if kind == "text"
        )
        assert "students" in printed and "gang" in printed


@by_page
def test_code_is_marked_as_what_it_is(page):
    """A fence without a language, or of console, would escape the tests."""
    for language, code in re.findall(
        r"^ *```([\w{}-]*)\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.M
    ):
        if language in ("", "console", "text"):
            first = code.split()[:1]
            assert first not in (["make"], ["pip"], ["hopf"], ["python"]), code


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_of_docstrings(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried > 0 and failed == 0


def modules_to_run(page):
    """The modules of the experiments that a page runs."""
    return re.findall(r"python -m\s+(experiments[\w.]*\w)", page.read_text())


@by_command
def test_modules_to_run_exist(page):
    for name in modules_to_run(page):
        path = ROOT.joinpath(*name.split("."))
        assert path.with_suffix(".py").is_file() or path.is_dir(), name


@by_command
def test_targets_of_make_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    text = page.read_text()
    (given,) = re.findall(r"^GIVEN := (.*)$", makefile, re.MULTILINE)
    for target, more in re.findall(
        r"(?:`|^)make ([a-z][a-z-]*)((?: \w+=)*)", text, re.M
    ):
        assert re.search(f"^{target}:", makefile, re.MULTILINE), target
        assert set(re.findall(r"(\w+)=", more)) <= set(given.split()), more


@by_command
def test_commands_are_right(page, capsys):
    for command in commands(page):
        check_command(command, page)
    capsys.readouterr()


def check_command(command, page):
    """Check the program and the options of one line of a shell block."""
    program, *words = shlex.split(command.partition(" > ")[0])
    while "=" in program:  # A=1 command
        program, *words = words
    if program == "hopf":
        from hopf_jax.cli.options import make_parser

        make_parser("0").parse_args(words)
    elif program == "pip":
        check_installation(words)
    elif program == "python" and words[0] == "-m":
        name, *options = words[1:]
        if name.startswith("experiments"):
            check_options(name, options)
        else:
            assert importlib.util.find_spec(name), command
    elif program == "python":
        assert (ROOT / words[0]).is_file(), command
    elif program != "make":  # test_targets_of_make_exist
        known = ("cd", "curl", "git", "docker", "sbatch", "kubectl")
        assert program in known, command


def check_installation(words):
    """Check that what `pip install` names is this package, with known extras."""
    assert words[0] == "install"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word in words[1:]:
        if not word.startswith("-"):
            name, _, extras = word.rstrip("]").partition("[")
            assert name in (".", project["name"]), word
            known = project["optional-dependencies"]
            assert set(extras.split(",")) - {""} <= set(known), word


def check_options(name, options):
    """Check that a module of the experiments has the options that it is given."""
    package = ROOT.joinpath(*name.split(".")).is_dir()
    module = importlib.import_module(f"{name}.__main__" if package else name)
    given = [x.partition("=")[0] for x in options if x.startswith("--") and x != "--"]
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert not ended.value.code
    for option in given:
        assert f"--{option[2:]}" in pathlib.Path(module.__file__).read_text() or any(
            option[2:] in path.read_text()
            for path in (ROOT / "experiments" / "common").glob("*.py")
        ), (name, option)


def test_wrong_commands_are_found():
    for wrong in (
        "hopf fit edges.csv --no-such-option",
        "pip install '.[nothing]'",
        "python -m experiments.job --no-such-option",
        "unknown-program",
    ):
        with pytest.raises((AssertionError, SystemExit)):
            check_command(wrong, README)


def test_llms_txt_leads_to_pages(built):
    text = (DOCS / "llms.txt").read_text()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 15
    for link in links:
        assert (DOCS / link).is_file() and (built / link).is_file(), link
    guides = {f"guides/{path.name}" for path in (DOCS / "guides").glob("*.md")}
    assert guides <= set(links)
    assert (built / "llms.txt").read_text() == text


def test_the_example_of_llms_txt_runs(tmp_path, monkeypatch):
    train_briefly(monkeypatch)
    run_examples(DOCS / "llms.txt", tmp_path, monkeypatch)


def test_nothing_is_fetched_by_a_page(built):
    """Fonts, formulas and scripts are beside the pages."""
    for page in built.rglob("*.html"):
        for url in re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', page.read_text()
        ):
            assert not url.startswith(("http:", "https:", "//")), (page.name, url)
    assert (built / "_static" / "tex-svg.js").stat().st_size > 1_000_000


def test_every_kernel_has_a_section_with_equation_and_picture(built):
    text = (built / "kernels.html").read_text()
    for name in MODELS:
        section = text[text.index(f"<h2>{name}<") :]
        section = section[: section.find("</section>")]
        assert "h_k = " in section and f"kernel-{name}.png" in section, name
        assert len(re.sub("<[^>]+>", "", section)) > 200, f"Say when to use {name}."


def test_a_new_kernel_needs_no_text(tmp_path):
    from hopf_jax import Gate, Kernel
    from hopf_jax.kernels import symmetric

    made = Kernel(("h0",), ("h", "y"), symmetric, Gate(0.5), Gate(-1.0))
    text = extension("kernel_pages").sections({"mine": made}, {}, tmp_path, "pictures")
    assert "## mine" in text and r"[h_{k-1}, \hat Y^{t-1}]" in text
    assert (tmp_path / "kernel-mine.png").stat().st_size > 5_000


def test_influence_is_that_of_the_formula():
    """On a path of three nodes, by hand."""
    import numpy as np

    path = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], float)
    influence = extension("kernel_pages").influence
    features, labels = influence(MODELS["bl-node"], path, 2)
    assert features.tolist() == [2, 0, 0] and not labels.any()
    features, labels = influence(MODELS["wl"], path, 2)
    assert features.tolist() == [2, 2, 1]  # (I + A)^2
    features, labels = influence(MODELS["ss-ica"], path, 2)
    assert features.tolist() == [1, 0, 0] and labels.tolist() == [0, 1, 0]
    features, labels = influence(MODELS["gat"], path, 2)  # ((I + D)^-1 (I + A))^2
    assert np.allclose(features, [5 / 12, 5 / 12, 1 / 6]) and not labels.any()


def test_notebooks_are_shown_with_their_outputs(built):
    for path in sorted((ROOT / "experiments" / "notebooks").glob("*.ipynb")):
        text = (built / "gallery" / f"{path.stem}.html").read_text()
        cells = json.loads(path.read_text())["cells"]
        pictures = sum(
            "image/png" in output.get("data", {})
            for cell in cells
            for output in cell.get("outputs", ())
        )
        assert text.count('class="output"') + text.count("output align") >= pictures
        assert f"{path.stem}.html" in (built / "gallery" / "index.html").read_text()


def test_outputs_of_examples_are_shown(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(
        "Text\n\n```python\nprint('said')\n'value'\n```\n\n- item\n\n"
        "  ```python\n  import matplotlib.pyplot as plt\n"
        "  plt.figure().suptitle('Curve')\n  ```\n"
    )
    outputs = run_examples(page, tmp_path, monkeypatch)
    assert outputs[0] == [["text", "said"], ["text", "'value'"]]
    ((kind, file, title),) = outputs[1]
    assert (kind, title) == ("image", "Curve") and (tmp_path / file).is_file()
    made = extension("examples").with_outputs(page.read_text(), outputs, "pictures")
    assert "said\n`````" in made
    assert f"  ```{{image}} pictures/{file}\n  :alt: Curve" in made
