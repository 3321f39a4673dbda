"""Run the Python examples of a page, and show below each what it prints and draws.

A page is plain Markdown with `python` fences, so that it reads well in the
repository too. `make docs` runs the examples of a page in one process, one after the
other, and inserts their output. What was run before with the same code and the same
library is not run again.
"""

import ast
import concurrent.futures
import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A fence may be indented, as in a list; its closing fence is indented alike.
FENCE = re.compile(r"^( *)```python\n(.*?)^\1```$\n?", re.DOTALL | re.MULTILINE)
AT_ONCE = 2  # Pages that run at the same time.


def python_blocks(text):
    """Return the code of all `python` fences of a page."""
    return [
        re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
        for indent, code in FENCE.findall(text)
    ]


def run(blocks, name, folder):
    """Execute the blocks in one namespace; return the outputs of each.

    An output is a pair: "text" and what was printed, "html" and a fragment, or "image"
    and the name of a PNG file in `folder` with its description. As in a notebook, the
    value of a last expression is shown.
    """
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"figure.dpi": 100, "savefig.dpi": 160, "font.size": 10})
    space: dict = {"__name__": "__main__"}
    shown = []
    for number, block in enumerate(blocks, start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            value = execute(block, f"{name}, example {number}", space)
        outputs = []
        if printed.getvalue().strip():
            outputs.append(["text", printed.getvalue().rstrip()])
        figures = [plt.figure(n) for n in plt.get_fignums()]
        if isinstance(value, matplotlib.figure.Figure) and value not in figures:
            figures.append(value)
        for figure in figures:
            file = f"{name.replace('/', '-')}-{number}-{len(outputs)}.png"
            figure.savefig(folder / file, bbox_inches="tight", facecolor="white")
            outputs.append(["image", file, described(figure)])
        plt.close("all")
        drawn = isinstance(value, matplotlib.figure.Figure)
        html = None if drawn else getattr(value, "_repr_html_", None)
        if html:
            outputs.append(["html", html()])
        elif value is not None and not figures:  # Not what an axis or legend returns.
            outputs.append(["text", repr(value)])
        shown.append(outputs)
    return shown


def execute(block, name, space):
    """Execute code; return the value of its last statement if it is an expression."""
    tree = ast.parse(block)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    exec(compile(tree, name, "exec"), space)
    return eval(compile(last, name, "eval"), space) if last else None


def described(figure):
    """Return the titles of a figure, as its description."""
    titles = [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
    return "; ".join(title for title in titles if title) or "Drawn by the code above"


def with_outputs(text, shown, folder):
    """Return a page with the outputs of each block below it."""
    outputs = iter(shown)

    def replace(match):
        indent, parts = match[1], [match[0]]
        for kind, what, *more in next(outputs):
            parts.append(as_markdown(kind, what, *more, folder=folder))
        return "\n".join(
            [parts[0], *(re.sub("^", indent, p, flags=re.MULTILINE) for p in parts[1:])]
        )

    return FENCE.sub(replace, text)


def as_markdown(kind, what, description="", *, folder):
    """Return one output as MyST Markdown."""
    if kind == "text":
        return f"`````{{code-block}} text\n:class: output\n{what}\n`````\n"
    if kind == "html":
        what = re.sub(r"\n\s*\n", "\n", what)
        return f'`````{{raw}} html\n<div class="output">{what}</div>\n`````\n'
    description = " ".join(description.split())
    return f"```{{image}} {folder}/{what}\n:alt: {description}\n:class: output\n```\n"


def pages_with_examples(source):
    """Return the pages of a folder that have examples, by name."""
    found = {}
    for path in sorted(source.rglob("*.md")):
        name = path.relative_to(source).with_suffix("").as_posix()
        if not name.startswith(("_build", "measured")):
            blocks = python_blocks(path.read_text())
            if blocks:
                found[name] = blocks
    return found


def digest(blocks):
    """Return a digest of examples and of all that they run with."""
    made = hashlib.sha256(json.dumps(blocks).encode())
    for path in [pathlib.Path(__file__), *sorted((ROOT / "hopf_jax").rglob("*.py"))]:
        made.update(path.read_bytes())
    return made.hexdigest()[:16]


def run_pages(pages, folder):
    """Run the examples of each page in a process; return the outputs by page."""
    folder.mkdir(parents=True, exist_ok=True)

    def outputs(name):
        blocks = pages[name]
        kept = folder / f"{name.replace('/', '-')}-{digest(blocks)}.json"
        if not kept.is_file():
            paths = (str(ROOT), os.environ.get("PYTHONPATH", ""))
            env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
            done = subprocess.run(
                [sys.executable, __file__, name, str(folder), str(kept)],
                input=json.dumps(blocks),
                env=env,
                capture_output=True,
                text=True,
            )
            if done.returncode:
                raise RuntimeError(f"An example of {name} failed:\n{done.stderr}")
        return json.loads(kept.read_text())

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(pages, pool.map(outputs, pages), strict=True))


def main(name, folder, kept):
    """Run the blocks given on stdin in an empty folder, and write their outputs."""
    import hopf_jax

    blocks = json.load(sys.stdin)
    # What is documented must not warn, or must say so.
    warnings.simplefilter("error", hopf_jax.HopfWarning)
    with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
        shown = run(blocks, name, pathlib.Path(folder))
    part = pathlib.Path(f"{kept}.part")
    part.write_text(json.dumps(shown))
    part.rename(kept)


def setup(app):
    """Run all examples before pages are read, and show their outputs in them."""
    app.add_config_value("run_examples", True, "env", types=[bool])
    outputs = {}

    def before(app):
        if app.config.run_examples:
            pages = pages_with_examples(pathlib.Path(app.srcdir))
            outputs.update(run_pages(pages, folder(app)))

    def read(app, name, source):
        if name in outputs:
            page = pathlib.Path(app.srcdir, name).parent
            relative = pathlib.Path(os.path.relpath(folder(app), page)).as_posix()
            source[0] = with_outputs(source[0], outputs[name], relative)

    def folder(app):
        return pathlib.Path(app.doctreedir).parent / "examples"

    app.connect("builder-inited", before)
    app.connect("source-read", read)
    return {"parallel_read_safe": False}


if __name__ == "__main__":
    main(*sys.argv[1:])
