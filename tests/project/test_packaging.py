"""The wheel and the sdist hold what users need, and say so in their metadata."""

import email
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import textwrap
import zipfile

import pytest
import yaml

import hopf_jax

ROOT = pathlib.Path(__file__).parents[2]
NOT_SOURCE = (
    ".git",
    ".venv*",
    "_build",
    "*.egg-info",
    "__pycache__",
    "results",
    ".*_cache",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheel and the sdist of a copy of this checkout."""
    made = tmp_path_factory.mktemp("build")
    shutil.copytree(ROOT, made / "copy", ignore=shutil.ignore_patterns(*NOT_SOURCE))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--sdist"),
            *("--outdir", str(made / "dist"), str(made / "copy")),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return made / "dist"


def test_the_wheel_is_the_library_alone(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"hopf_jax"}
    page = (f"serving/page/{name}" for name in ("index.html", "page.css", "page.js"))
    lists = (f"datasets/{name}" for name in ("GIT_IDS", "SHA256SUMS", "SIZES"))
    files = ("py.typed", *lists, "fitting.py", *page)
    for needed in files:
        assert f"hopf_jax/{needed}" in names


def test_the_metadata_name_what_users_install(built):
    (wheel,) = built.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    (path,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    metadata = email.message_from_bytes(archive.read(path))
    assert metadata["Version"] == hopf_jax.__version__
    extras = set(metadata.get_all("Provides-Extra"))
    assert extras >= {"notebook", "tpu", "cuda12", "dev", "docs", "serve", "tables"}
    assert "hopf_jax.fit(" in metadata.get_payload()  # the README


def test_the_sdist_can_be_tested_and_documented(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"README.md", "LICENSE", "CITATION.cff", "Makefile", "requirements.txt"}
    assert needed | {"docs/conf.py", "tests/graphs.py", "experiments/paper.py"} <= names
    assert not [name for name in names if "__pycache__" in name or "_build" in name]


def test_the_citation_file_is_valid():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["license"] == "Apache-2.0"
    paper = cited["preferred-citation"]
    assert paper["title"].startswith("HOPF:") and len(paper["authors"]) == 5
    in_readme = (ROOT / "README.md").read_text()
    assert all(author["family-names"] in in_readme for author in paper["authors"])


@pytest.mark.slow
def test_a_type_checker_sees_the_types(tmp_path):
    code = """
        import hopf_jax

        def label(graph: hopf_jax.Graph) -> hopf_jax.Result:
            return hopf_jax.fit(graph, seed="zero")
    """
    (tmp_path / "user.py").write_text(textwrap.dedent(code))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--follow-imports=silent"),
            *("--config-file=", "--ignore-missing-imports", "user.py"),
        ],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1 and 'Argument "seed"' in errors[0], done.stdout
