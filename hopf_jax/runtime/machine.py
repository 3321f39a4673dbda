"""What the library runs on: versions, devices, and compiled programs on disk."""

import importlib.metadata
import os
import pathlib
import platform
import stat
import sys

import jax

PROGRAMS_VARIABLE = "HOPF_KEEP_PROGRAMS"
_OFF = ("0", "off", "false", "no")
_PACKAGES = (
    *("hopf-jax", "jax", "jaxlib", "flax", "optax", "jraph", "numpy", "scipy"),
    *("scikit-learn", "pandas", "networkx", "matplotlib", "orbax-checkpoint"),
)


def devices() -> list[jax.Device]:
    """Return the devices that JAX computes on, in this process.

    >>> len(devices()) > 0
    True
    """
    return jax.local_devices()


def show_versions() -> None:
    """Print versions of Python, packages and devices, to paste into a bug report."""
    about = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": str(os.cpu_count()),
    }
    for package in _PACKAGES:
        try:
            about[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            about[package] = "not installed"
    about["devices"] = ", ".join(str(device) for device in devices())
    about["kept programs"] = cache_of_programs() or "none"
    width = max(map(len, about))
    print("\n".join(f"{name.ljust(width)}  {value}" for name, value in about.items()))


def keep_programs(folder: str | os.PathLike | None = None) -> pathlib.Path:
    """Keep compiled programs on disk, so that later runs start faster.

    Call it once, before the first fit. It switches on JAX's persistent compilation
    cache; results do not change. Since the programs in the folder are executed, it must
    belong to you, and others must not be able to write to it.

    Args:
      folder: The folder, which is made if necessary; None for one in your cache
        (`HOPF_CACHE`, or the platform's). Delete it to free the space.

    Returns:
      The folder.

    Raises:
      ValueError: Others may write to the folder, or it belongs to someone else.
    """
    path = default_folder() if folder is None else pathlib.Path(folder)
    path = path.expanduser().absolute()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(path)
    jax.config.update("jax_compilation_cache_dir", str(path))
    # All of them: dozens of small programs take as long as one that is large.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path


def keep_programs_by_default() -> None:
    """Keep programs as commands do: unless told otherwise, and never with an error.

    `HOPF_KEEP_PROGRAMS=0` switches it off, `HOPF_KEEP_PROGRAMS=folder` names another
    folder. A cache that JAX was told of by its own settings stays.
    """
    told = os.environ.get(PROGRAMS_VARIABLE, "")
    if told.lower() in _OFF or cache_of_programs():
        return
    try:
        keep_programs(None if told.lower() in ("", "1", "on") else told)
    except (OSError, ValueError) as error:
        print(f"Compiled programs are not kept: {error}", file=sys.stderr)


def default_folder() -> pathlib.Path:
    """Return the folder for programs: in `HOPF_CACHE`, or the cache of the platform."""
    given = os.environ.get("HOPF_CACHE")
    if given:
        return pathlib.Path(given) / "programs"
    import pooch  # Lazy: it imports tqdm.auto, which asks notebooks for ipywidgets.

    return pathlib.Path(pooch.os_cache("hopf_jax")) / "programs"


def cache_of_programs() -> str | None:
    """Return the folder of JAX's compilation cache, if it has one."""
    return getattr(jax.config, "jax_compilation_cache_dir", None)


def _check_private(path: pathlib.Path) -> None:
    """Raise `ValueError` if someone else could put a program into a folder."""
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode):
        raise ValueError(f"{path} is not a folder, or a link to one. Give a folder.")
    if not hasattr(os, "getuid"):  # Windows, where folders of a user are private.
        return
    if about.st_uid != os.getuid():
        raise ValueError(f"{path} belongs to another user. Give a folder of your own.")
    if stat.S_IMODE(about.st_mode) & 0o022:
        raise ValueError(
            f"Other users may write to {path}, and the programs in it are executed. "
            "Give a folder that only you may write to, such as a new one."
        )
