"""Files and folders that are complete or absent, and locks of folders.

Whatever is published is written under a temporary name beside its target, brought to
disk, and renamed. The temporary name says who writes, so that the next writer in the
folder can remove what dead ones left.
"""

import contextlib
import errno
import itertools
import json
import os
import pathlib
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Self

from hopf_jax.runtime.hopf_warning import HopfWarning

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Seconds after which an untouched temporary file of another host counts as left behind.
_ABANDONED = 24 * 3600.0
LOCK = "run.lock"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class TemporaryError(ValueError):
    """An error that may pass: the same call later can succeed."""


def write_atomically(
    path: str | os.PathLike, content: bytes | Callable[[BinaryIO], object]
) -> None:
    """Write a file that takes its name only once it is complete and on disk.

    A file that is replaced keeps its mode, and a symbolic link its place: the file that
    it points to is replaced.

    Args:
      path: A local path, or one that etils knows, such as gs://.
      content: The bytes, or a function that writes them to an open local file.

    Raises:
      ValueError: The path is a folder, a device, a FIFO or a socket.
    """
    if "://" in os.fspath(path):
        # Lazy: etils is slow to import, and rarely needed. Objects are atomic as such.
        from etils import epath

        assert isinstance(content, bytes)
        epath.Path(path).write_bytes(content)
        return
    target = pathlib.Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"There is no folder {str(target.parent)!r} to write {target.name!r} into. "
            "Make it first."
        )
    mode = _mode_of_file(target)
    sweep(target.parent)
    name = _temporary_name(target)
    # Not mkstemp, which ignores the umask and leaves the file to its owner alone.
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            if mode is not None:
                os.chmod(name, mode)
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    _sync_folder(target.parent)


class AppendedLines:
    """A file of lines, each of which is on disk when `append` returns.

    A last line that is damaged is put into a file beside, `<name>.damaged-0`, with a
    warning: most likely a crash left it, and its writer was never told that it was
    kept.

    Attributes:
      found: The lines that the file held.

    Raises:
      ValueError: A line before the last is damaged, or the path is not a file.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = pathlib.Path(path)
        new = _mode_of_file(self.path) is None
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            with os.fdopen(os.dup(self._handle), "rb") as file:
                self.found, self._size = _intact_lines(file, self.path)
                file.seek(self._size)
                if damaged := file.read():
                    self._set_aside(damaged)
            os.ftruncate(self._handle, self._size)
        except BaseException:
            os.close(self._handle)
            raise
        if new:
            _sync_folder(self.path.parent)

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        os.close(self._handle)

    def _set_aside(self, damaged: bytes) -> None:
        paths = (
            self.path.with_name(f"{self.path.name}.damaged-{i}")
            for i in itertools.count()
        )
        aside = next(path for path in paths if not os.path.lexists(path))
        write_atomically(aside, damaged)
        warnings.warn(
            f"The last line of {self.path} is damaged, and is put into {aside}. If the "
            "process that wrote it was not stopped in the middle of it, a confirmed "
            "change is lost.",
            HopfWarning,
            stacklevel=4,
        )

    def append(self, line: bytes) -> None:
        """Add a line, without line feeds in it.

        Raises:
          OSError: It could not be written, and is not in the file.
        """
        content = _checked(line)
        try:
            written = os.pwrite(self._handle, content, self._size)
            if written < len(content):
                raise OSError(errno.ENOSPC, "it was not written whole", str(self.path))
            os.fsync(self._handle)
        except OSError:
            os.ftruncate(self._handle, self._size)
            raise
        self._size += len(content)


def _checked(line: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(line), line)


def _intact_lines(file: BinaryIO, path: pathlib.Path) -> tuple[list[bytes], int]:
    """Return the lines of a file and their size, without a last one that is damaged."""
    lines: list[bytes] = []
    size, damaged = 0, 0
    for number, content in enumerate(file, start=1):
        if damaged:
            raise ValueError(f"{path}, line {damaged}: its checksum is wrong.")
        line = content[9:-1]
        if content == _checked(line):
            lines.append(line)
            size += len(content)
        else:
            damaged = number
    return lines, size


@contextlib.contextmanager
def new_folder(
    path: str | os.PathLike, *, replace: bool = False
) -> Iterator[pathlib.Path]:
    """Yield a folder to write to; it takes its name once it is complete and on disk.

    Args:
      path: Its name.
      replace: Put it in the place of a folder that exists, which is then removed.

    Raises:
      ValueError: The path exists already, before or after the folder is written, and
        is not to be replaced.
    """
    target = pathlib.Path(path)
    taken = f"{target} already exists. Give another name, or remove it."
    if os.path.lexists(target) and not replace:
        raise ValueError(taken)
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    made, old = _temporary_name(target), _temporary_name(target)
    made.mkdir()
    try:
        yield made
        _sync_tree(made)
        if replace:
            with contextlib.suppress(FileNotFoundError):
                os.rename(target, old)
        elif os.path.lexists(target):  # A rename would replace an empty folder.
            raise ValueError(taken)
        os.rename(made, target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    _sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def scratch_folder(parent: str | os.PathLike | None = None) -> Iterator[pathlib.Path]:
    """Yield a folder of this process alone, which is removed at the end.

    If the process is killed, the next writer in `parent` removes it.

    Args:
      parent: Where to make it; None for the temporary folder of the system.
    """
    folder = pathlib.Path(tempfile.gettempdir() if parent is None else parent)
    sweep(folder)
    made = _temporary_name(folder / "scratch")
    made.mkdir(mode=0o700)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _mode_of_file(target: pathlib.Path) -> int | None:
    """Return the mode of a regular file, None if it is new; raise for other things."""
    try:
        found = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found):
        kind = _KINDS.get(stat.S_IFMT(found), "no regular file")
        raise ValueError(f"{target} is {kind}; give the path of a file.")
    return stat.S_IMODE(found)


def _sync_folder(folder: pathlib.Path) -> None:
    """Bring the names in a folder to disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sync_tree(folder: pathlib.Path) -> None:
    for path in folder.rglob("*"):
        if path.is_dir():
            _sync_folder(path)
        else:
            with path.open("rb+") as file:
                os.fsync(file.fileno())
    _sync_folder(folder)


# Writers, and what dead ones leave

_TEMPORARY = re.compile(
    r"\..+\.(?P<host>[\w-]+)\.(?P<process>\d+)\.(?P<started>\d+)\.[0-9a-f]{8}\.part",
    re.DOTALL,
)


def sweep(folder: str | os.PathLike[str]) -> None:
    """Remove the temporary files and folders of writers that are dead.

    Whether a process of another host lives is unknown: what it wrote is removed a day
    after it was touched last.
    """
    with (
        contextlib.suppress(FileNotFoundError),
        os.scandir(os.fspath(folder)) as entries,
    ):
        for entry in entries:
            found = _TEMPORARY.fullmatch(entry.name)
            with contextlib.suppress(OSError):  # Perhaps swept by another writer.
                if not found or not _abandoned(entry, **found.groupdict()):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)


def _abandoned(entry: os.DirEntry, host: str, process: str, started: str) -> bool:
    if host != _host():
        age = time.time() - entry.stat(follow_symlinks=False).st_mtime
        return age > _ABANDONED
    return not _alive(int(process), int(started))


def _temporary_name(target: pathlib.Path) -> pathlib.Path:
    process = os.getpid()
    writer = f"{_host()}.{process}.{_started(process) or 0}"
    # A name has 255 bytes at most, and a letter up to four.
    short = target.name[:36]
    return target.with_name(f".{short}.{writer}.{secrets.token_hex(4)}.part")


def _host() -> str:
    return re.sub(r"[^\w-]", "-", socket.gethostname(), flags=re.ASCII)[:48] or "host"


def _started(process: int) -> int | None:
    """Return when a process of this host started, in ticks; None if unknown."""
    try:
        line = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    # The second field, the name, may contain spaces and parentheses.
    return int(line.rpartition(")")[2].split()[19])


def _alive(process: int, started: int) -> bool:
    """Return whether a process lives, and is not another with the same number."""
    if started and _started(os.getpid()) is not None:
        return _started(process) == started
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # It is another user's.
        pass
    return True


# The lock of a folder


@contextlib.contextmanager
def held_folder(folder: pathlib.Path) -> Iterator[None]:
    """Hold a folder, so that no other process works in it; do not wait.

    The lock is a file `run.lock` that names its holder. The system releases it when the
    process ends, however it ends; a file that is left behind holds nobody up. Where
    there are no locks (object storage, some network file systems), nothing is held.

    Raises:
      TemporaryError: Another process, or another thread of this one, holds it.
    """
    if fcntl is None or "://" in os.fspath(folder):
        yield
        return
    path = folder / LOCK
    handle = _lock(path)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)  # While it is held: nobody else's is removed.
            os.close(handle)


def _lock(path: pathlib.Path) -> int | None:
    while True:
        # A link that someone planted would lead to a file elsewhere.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(handle)
            os.close(handle)
            raise TemporaryError(
                f"{path.parent} is in use by {holder}. Wait until it has ended, or "
                "give another workdir."
            ) from None
        except OSError:  # This file system has no locks.
            os.close(handle)
            return None
        # The last holder may have removed the file between the two calls above.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                own = {"host": socket.gethostname(), "process": os.getpid()}
                os.ftruncate(handle, 0)
                os.pwrite(handle, (json.dumps(own) + "\n").encode(), 0)
                return handle
        os.close(handle)


def _holder(handle: int) -> str:
    try:
        found: dict[str, Any] = json.loads(os.pread(handle, 4096, 0))
        return f"process {found['process']} on {found['host']}"
    except (OSError, ValueError, LookupError, TypeError):  # Not written yet.
        return "another process"
