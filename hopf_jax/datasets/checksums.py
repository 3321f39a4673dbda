"""Checksums of the files of datasets: sha256, or where it is not known, git's own."""

import hashlib
import io
import os
from pathlib import Path

from hopf_jax.runtime import open_regular


def checksum(source: Path | bytes, registered: str) -> str:
    """Return the checksum of a file or its content, of the kind of a registered one.

    64 digits are a sha256. 40 are the id of the file in a git repository, the SHA-1 of
    its size and content.
    """
    with io.BytesIO(source) if isinstance(source, bytes) else open_regular(source) as f:
        if len(registered) == 64:
            return hashlib.file_digest(f, "sha256").hexdigest()
        header = b"blob %d\0" % f.seek(0, os.SEEK_END)
        f.seek(0)
        return hashlib.file_digest(f, lambda: hashlib.sha1(header)).hexdigest()
