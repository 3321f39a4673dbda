"""Folders in which the files of a dataset are looked for."""

import os
from pathlib import Path

from hopf_jax.datasets.registry import Dataset, Layout

# The source tree, if the package is run from one.
CHECKOUT = Path(__file__).resolve().parents[2]


def cache_folder() -> Path:
    """Return `HOPF_CACHE`, or the cache folder of the platform."""
    # Lazy: pooch imports tqdm.auto, which in notebooks asks for ipywidgets.
    import pooch

    return Path(os.environ.get("HOPF_CACHE") or pooch.os_cache("hopf_jax"))


def search_path(data_dir: str | Path | None = None) -> list[Path]:
    """Return the folders searched before the cache; each has one folder per dataset.

    They are `data_dir`, `HOPF_DATA` and, in a checkout of the sources,
    ../shared/datasets beside it. They may be read-only.
    """
    folders = [data_dir, os.environ.get("HOPF_DATA")]
    if (CHECKOUT / "pyproject.toml").exists() or (CHECKOUT / ".git").exists():
        shared = CHECKOUT.parent / "shared" / "datasets"
        folders.append(shared if shared.is_dir() else None)
    return [Path(folder).expanduser() for folder in folders if folder]


def find_files(
    dataset: Dataset, data_dir: str | Path | None, *, in_cache: bool
) -> tuple[Path, Layout] | None:
    """Return the first folder with all files of a layout, and that layout."""
    roots = [*search_path(data_dir), *([cache_folder()] if in_cache else [])]
    for folder in (root / dataset.name for root in roots):
        for layout in dataset.layouts:
            if all((folder / name).is_file() for name in layout.files):
                return folder, layout
    return None
