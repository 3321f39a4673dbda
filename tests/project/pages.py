"""The pages of the repository: where they are, and the code and commands in them."""

import dataclasses
import importlib.util
import pathlib
import re

from hopf_jax import fitting

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = sorted(
    p for p in DOCS.rglob("*.md") if not {"_build", "measured"} & set(p.parts)
)
WITH_COMMANDS = [
    *(*PAGES, README, CONTRIBUTING, ROOT / "experiments" / "README.md"),
    ROOT / "experiments" / "jobs" / "README.md",
]


def extension(name):
    """Load a module of docs/_extensions."""
    path = DOCS / "_extensions" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python_blocks(page):
    """The Python examples of a page of Markdown."""
    return extension("examples").python_blocks(page.read_text())


def commands(page):
    """The lines of the shell blocks of a page, without comments."""
    blocks = re.findall(
        r"^ *```(?:shell|bash|sh)\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.M
    )
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [
        line for line in (re.sub(r"(^|\s+)#.*", "", x).strip() for x in lines) if line
    ]


def train_briefly(monkeypatch, max_epochs=3):
    """Let every net train for a few epochs only."""
    learn = fitting.learn

    def briefly(population, params, inputs, config, *others, **more):
        config = dataclasses.replace(config, max_epochs=max_epochs)
        return learn(population, params, inputs, config, *others, **more)

    monkeypatch.setattr(fitting, "learn", briefly)


def run_examples(page, folder, monkeypatch):
    """Execute the examples of a page in an empty folder; return their outputs."""
    import matplotlib.pyplot as plt

    monkeypatch.chdir(folder)
    try:
        return extension("examples").run(python_blocks(page), page.stem, folder)
    finally:
        plt.close("all")
