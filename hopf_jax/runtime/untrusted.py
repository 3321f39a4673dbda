"""Reading of files that nobody vouches for: damaged, forged, or not files at all.

Everything the library reads from disk comes through here. What a header claims is
compared with the size of the file before memory is allocated, nothing is unpickled, and
every malformed file is a `ValueError`.
"""

import contextlib
import gzip
import io
import json
import math
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from hopf_jax.runtime.memory import check_memory

Path = str | os.PathLike

LIMIT_VARIABLE = "HOPF_MAX_BYTES"
# Without that variable, the contents of a file may take this many bytes, or this many
# times the size of the file: more than honest data does when it is compressed.
_LEAST_LIMIT = 64 << 20
_LEAST_LIMIT_OF_TEXT = 16 << 20  # Its cells take many times their characters.
_EXPANSION = 100

# What contents of the wrong kind raise, where they are taken apart.
MALFORMED = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    RecursionError,
)

_MAX_HEADER = 1 << 16
_MAX_DIRECTORY = 16 << 20  # Some hundred thousand members.
_READ_AT_ONCE = 1 << 20
_ITEM = (
    r"""(['"])(descr|fortran_order|shape)\1\s*:\s*(['"][^'"]*['"]|\w+|\([\dL,\s]*\))"""
)
_DESCRIPTION = re.compile(r"[<>|=]?([?biufcmMSU])(\d{0,9})(\[\d*[a-zA-Z]+\])?")
_DIMENSION = re.compile(r"\d{1,19}")


def limit_of(size: int, least: int = _LEAST_LIMIT) -> int:
    """Return how many bytes the contents of a file of `size` bytes may take."""
    given = os.environ.get(LIMIT_VARIABLE)
    if given is None:
        return max(least, _EXPANSION * size)
    if not re.fullmatch(r"\d{1,18}", given):
        raise ValueError(
            f"{LIMIT_VARIABLE} is {given!r}; it must be a number of bytes."
        )
    return int(given)


def check_limit(claimed: int, size: int, what: str, least: int = _LEAST_LIMIT) -> None:
    """Raise `ValueError` if contents take more than a file of `size` bytes may."""
    if claimed > limit_of(size, least):
        raise ValueError(
            f"{what} would take {claimed} bytes, but the file has {size}. More than "
            f"{limit_of(size, least)} are not read; if you trust the file, set the "
            f"environment variable {LIMIT_VARIABLE} to a higher number."
        )


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file for reading; refuse pipes, devices and folders, which may not end.

    Raises:
      OSError: There is no such file, or it may not be read.
      ValueError: It is not a regular file.
    """
    # Without O_NONBLOCK, opening a pipe waits for someone to write to it.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError(
            f"{os.fspath(path)} is not a regular file. Pipes, devices and folders are "
            "not read: write the data to a file first."
        )
    return open(handle, "rb")


@contextlib.contextmanager
def reading(path: Path, what: str) -> Iterator[tuple[BinaryIO, int]]:
    """Yield an open file and its size; turn what its contents cause into `ValueError`.

    Args:
      path: The file.
      what: What it should be, for the message, as in "npz".
    """
    with open_regular(path) as file:
        try:
            yield file, os.fstat(file.fileno()).st_size
        except Exception as error:  # Damage can make a parser raise anything.
            reason = str(error) or type(error).__name__
            raise ValueError(
                f"{os.fspath(path)} cannot be read as {what}: {reason.rstrip('.')}."
            ) from error


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a regular file."""
    with open_regular(path) as file:
        _check_size(os.fstat(file.fileno()).st_size)
        return file.read()


def read_json(path: Path, **keywords: Any) -> Any:
    """Return what a JSON file holds; `keywords` are those of `json.loads`."""
    with reading(path, "JSON") as (file, size):
        _check_size(size)
        return json.loads(file.read(), **keywords)


def read_npy(path: Path) -> np.ndarray:
    """Return the array of an .npy file."""
    with reading(path, "npy") as (file, size):
        return _read_array(file, size)


def map_npy(path: Path) -> np.ndarray:
    """Return the array of an .npy file as a read-only memory map."""
    with reading(path, "npy") as (file, size):
        header = _read_header(file, size)
        if header.nbytes == 0:  # Which cannot be mapped.
            return np.zeros(header.shape, header.dtype)
        if not header.dtype.isnative:
            raise ValueError("its bytes are in the order of another machine")
        order: Any = "F" if header.fortran_order else "C"
        return np.memmap(file, header.dtype, "r", header.length, header.shape, order)


def load_npz(path: Path, *, compressed: bool = True) -> dict[str, np.ndarray]:
    """Return all arrays of an .npz file.

    Args:
      path: The file.
      compressed: False if no honest file of this kind is compressed.
    """
    with reading(path, "npz") as (file, size), open_zip(file, size) as archive:
        arrays = {}
        for info in archive.infolist():
            if info.compress_type and not compressed:
                raise ValueError("it is compressed")
            with archive.open(info) as member:
                name = info.filename.removesuffix(".npy")
                arrays[name] = _read_array(member, info.file_size)
        return arrays


@contextlib.contextmanager
def open_zip(file: BinaryIO, size: int) -> Iterator[zipfile.ZipFile]:
    """Yield an archive whose members are distinct, apart, and not too large."""
    _check_directory_size(file, size)
    with zipfile.ZipFile(file) as archive:
        members = sorted(archive.infolist(), key=lambda info: info.header_offset)
        if len({info.filename for info in members}) < len(members):
            raise ValueError("two members have one name")
        check_limit(sum(info.file_size for info in members), size, "its members")
        starts = [info.header_offset for info in members]
        for info, following in zip(
            members, [*starts[1:], archive.start_dir], strict=True
        ):
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{info.filename!r} is compressed in an unusual way")
            stored = info.compress_type == zipfile.ZIP_STORED
            if stored and info.compress_size != info.file_size:
                raise ValueError(f"{info.filename!r} has two sizes")
            if _end_of(file, info) > following:
                raise ValueError(f"{info.filename!r} overlaps what follows it")
        yield archive


@contextlib.contextmanager
def open_text(path: Path, *, packed: bool) -> Iterator[io.TextIOWrapper]:
    """Yield a file as UTF-8 text; gzip is unpacked, up to the limit of the file."""
    with open_regular(path) as file:
        binary: Any = file
        try:
            if packed:
                _check_unpacked(file, path)
                binary = gzip.GzipFile(fileobj=file)
            with io.TextIOWrapper(binary, "utf-8-sig", newline="") as text:
                yield text
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text: {error}.") from None
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} cannot be read: {error}.") from None


def _check_unpacked(file: BinaryIO, path: Path) -> None:
    """Unpack gzip once, keep nothing of it, and refuse what exceeds the limit."""
    size, unpacked = os.fstat(file.fileno()).st_size, 0
    stream = gzip.GzipFile(fileobj=file)
    while part := stream.read(_READ_AT_ONCE):
        unpacked += len(part)
        check_limit(unpacked, size, f"{path}, unpacked,", _LEAST_LIMIT_OF_TEXT)
    file.seek(0)


class _Header(NamedTuple):
    dtype: np.dtype
    fortran_order: bool
    shape: tuple[int, ...]
    length: int  # Of the header itself, in bytes.

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def _read_header(file: Any, size: int) -> _Header:
    """Read what precedes the numbers in an .npy file of `size` bytes, and check it.

    `np.load` would evaluate the header as Python, and allocate whatever it claims.
    """
    start = _exactly(file, 10)
    if start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
        raise ValueError("it does not begin as an array does")
    if start[6] == 1:
        length, at = struct.unpack("<H", start[8:])[0], 10
    else:
        length, at = struct.unpack("<I", start[8:] + _exactly(file, 2))[0], 12
    if length > min(_MAX_HEADER, size):
        raise ValueError(f"its header has {length} bytes")
    text = _exactly(file, length).decode("latin1")
    items = {name: value for _, name, value in re.findall(_ITEM, text)}
    if re.sub(_ITEM, "", text).strip(" \n{},") or len(items) != 3:
        raise ValueError("its header does not describe an array")
    kind = _DESCRIPTION.fullmatch(items["descr"].strip("'\""))
    if kind is None:
        raise ValueError(
            f"it has dtype {items['descr']}; only numbers, texts and dates are read"
        )
    shape = tuple(int(n) for n in _DIMENSION.findall(items["shape"]))
    order = {"True": True, "False": False}[items["fortran_order"]]
    header = _Header(np.dtype(kind[0]), order, shape, at + length)
    if header.dtype.itemsize == 0:
        raise ValueError(f"it has dtype {kind[0]}, of no bytes")
    if header.nbytes != size - header.length:
        raise ValueError(
            f"its header describes {header.nbytes} bytes, but {size - header.length} "
            "follow"
        )
    return header


def _read_array(file: Any, size: int) -> np.ndarray:
    header = _read_header(file, size)
    _check_size(header.nbytes)
    flat = np.empty(header.nbytes, np.uint8)
    for start in range(0, header.nbytes, _READ_AT_ONCE):
        part = _exactly(file, min(_READ_AT_ONCE, header.nbytes - start))
        flat[start : start + len(part)] = np.frombuffer(part, np.uint8)
    if file.read(1):  # Also makes zipfile compare the checksum.
        raise ValueError("there are bytes after its end")
    array = flat.view(header.dtype) if flat.size else np.zeros(0, header.dtype)
    order: Any = "F" if header.fortran_order else "C"
    array = array.reshape(header.shape, order=order)
    check_encoding(array)
    return array.astype(header.dtype.newbyteorder("="), copy=False)


def check_encoding(array: np.ndarray) -> None:
    """Raise `ValueError` for bytes that no bool, and no text, consists of.

    Arithmetic on a bool of value 2 is undefined, and such text cannot be printed.
    """
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ValueError("its truth values are neither 0 nor 1")
    if array.dtype.kind == "U" and array.size:
        order = array.dtype.byteorder
        codes = np.ascontiguousarray(array).reshape(-1).view(f"{order}u4")
        if codes.max() > 0x10FFFF or ((codes >= 0xD800) & (codes <= 0xDFFF)).any():
            raise ValueError("its text is not Unicode")


def _check_size(nbytes: int) -> None:
    check_memory(nbytes, "what it holds", "Read it on a larger machine.")


def _exactly(file: Any, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise ValueError("it ends too early")
    return data


def _check_directory_size(file: BinaryIO, size: int) -> None:
    """Bound the list of members, which zipfile reads and unpacks as a whole."""
    tail = 98  # Two records that zip64 adds, and the last one, without a comment.
    file.seek(max(0, size - tail))
    end = file.read(tail)
    if end[-22:-18] != b"PK\x05\x06":
        raise ValueError("it does not end as a zip archive does")
    directory = struct.unpack("<L", end[-10:-6])[0]
    if end[:4] == b"PK\x06\x06" and end[-42:-38] == b"PK\x06\x07":
        directory = struct.unpack("<Q", end[40:48])[0]
    elif end[-42:-38] == b"PK\x06\x07":
        raise ValueError("its end is damaged")
    if directory > min(_MAX_DIRECTORY, size):
        raise ValueError(f"its list of members has {directory} bytes")


def _end_of(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Return where a member ends, by the lengths in its own header."""
    file.seek(info.header_offset)
    header = _exactly(file, 30)
    if header[:4] != b"PK\x03\x04":
        raise ValueError(f"{info.filename!r} is not where the list of members says")
    lengths = struct.unpack("<HH", header[26:])
    return info.header_offset + 30 + sum(lengths) + info.compress_size
