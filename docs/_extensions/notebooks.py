"""Show notebooks of the repository as pages, with the outputs that are stored in them.

A page with `<!-- notebook: path/of/a.ipynb -->` shows that notebook, and a page with
`<!-- gallery -->` a card for each notebook page beside it.
"""

import base64
import html
import json
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOK = re.compile(r"^<!-- notebook: (\S+) -->$", re.MULTILINE)
GALLERY = "<!-- gallery -->"


def text_of(lines):
    """Return a field of a notebook, a string or a list of lines, as a string."""
    return lines if isinstance(lines, str) else "".join(lines)


def to_markdown(notebook, name, folder, relative):
    """Return a notebook as MyST Markdown; pictures are written into `folder`."""
    parts = []
    for number, cell in enumerate(notebook["cells"], start=1):
        source = text_of(cell["source"]).rstrip()
        if cell["cell_type"] == "markdown":
            parts.append(source + "\n")
        elif cell["cell_type"] == "code" and source:
            parts.append(f"```{{code-block}} python\n{source}\n```\n")
            for output in cell["outputs"]:
                shown = show(output, f"{name}-{number}.png", folder, relative)
                if shown:
                    parts.append(shown)
    return "\n".join(parts)


def show(output, file, folder, relative):
    """Return one output of a cell as MyST Markdown, or None for progress bars."""
    if output["output_type"] == "stream":
        if output["name"] == "stderr":
            return None
        return literal(text_of(output["text"]))
    data = output.get("data", {})
    if "image/png" in data:
        (folder / file).write_bytes(base64.b64decode(text_of(data["image/png"])))
        alt = "Drawn by the cell above"
        return f"```{{image}} {relative}/{file}\n:alt: {alt}\n:class: output\n```\n"
    if "text/html" in data:
        body = re.sub(r"\n\s*\n", "\n", text_of(data["text/html"]))
        return f'`````{{raw}} html\n<div class="output">{body}</div>\n`````\n'
    if "text/plain" in data:
        return literal(text_of(data["text/plain"]))
    return None


def literal(text):
    """Return printed text as a block."""
    if not text.strip():
        return None
    return f"`````{{code-block}} text\n:class: output\n{text.rstrip()}\n`````\n"


def first_words(notebook):
    """Return the title and the first paragraph of a notebook."""
    text = text_of(notebook["cells"][0]["source"])
    title, _, rest = text.partition("\n")
    paragraph = re.sub(r"[`$*]", "", " ".join(rest.strip().split("\n\n")[0].split()))
    # A last sentence that leads to a formula is left out.
    sentences = re.match(r".*[.!?](?=\s|$)", paragraph)
    return title.lstrip("# "), sentences[0] if sentences else paragraph


def cards(pages, folder, relative):
    """Return a card for each notebook page: first picture, title, first words."""
    made = []
    for name, path in pages.items():
        notebook = json.loads(path.read_text())
        title, words = (html.escape(text) for text in first_words(notebook))
        picture = next((p for p in sorted(folder.glob(f"{name}-*.png"))), None)
        image = f'<img src="{relative}/{picture.name}" alt="">' if picture else ""
        link = f"{pathlib.PurePath(name).name}.html"
        words = f"<b>{title}</b><span>{words}</span>"
        made.append(f'<a class="card" href="{link}">{image}{words}</a>')
    body = "\n".join(made)
    return f'`````{{raw}} html\n<div class="cards">\n{body}\n</div>\n`````\n'


def setup(app):
    """Expand notebook pages and the gallery when they are read."""

    def pages_of(folder):
        found = {}
        for page in sorted(folder.glob("*.md")):
            match = NOTEBOOK.search(page.read_text())
            if match:
                found[page.stem] = ROOT / match[1]
        return found

    def read(app, name, source):
        page = pathlib.Path(app.srcdir, name)
        folder = pathlib.Path(app.outdir) / "_images" / "notebooks"
        folder.mkdir(parents=True, exist_ok=True)
        relative = pathlib.Path(os.path.relpath(folder, page.parent)).as_posix()
        match = NOTEBOOK.search(source[0])
        if match:
            path = ROOT / match[1]
            app.env.note_dependency(str(path))
            notebook = json.loads(path.read_text())
            made = to_markdown(notebook, page.name, folder, relative)
            source[0] = NOTEBOOK.sub(lambda _: made, source[0])
        if GALLERY in source[0]:
            listed = source[0].splitlines()  # The order of the table of contents.
            pages = pages_of(page.parent)
            pages = {name: pages[name] for name in sorted(pages, key=listed.index)}
            for stem, path in pages.items():  # The gallery may be read first.
                to_markdown(json.loads(path.read_text()), stem, folder, relative)
            shown = pathlib.Path(
                os.path.relpath("_images/notebooks", pathlib.PurePath(name).parent)
            )
            source[0] = source[0].replace(
                GALLERY, cards(pages, folder, shown.as_posix())
            )

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
