"""`PartsResult`, which `fit` returns for a graph in parts."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from hopf_jax.parts.manifest import Part, Parts, folder_of
from hopf_jax.parts.store import Store
from hopf_jax.results import Result
from hopf_jax.runtime import import_or_explain, write_atomically

_ROWS_AT_ONCE = 1 << 16


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PartsResult:
    """A net trained on a graph in parts, with the predictions of the held parts.

    Attributes:
      model: The trained kernel with its scores and history, without predictions. It
        predicts new graphs (`model.predict(graph)`), and can be saved.
      parts: The graph.
      held: The parts of this process.
      store: Their outputs.
    """

    model: Result
    parts: Parts
    held: Mapping[int, Part]
    store: Store

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """F1 scores of all training, validation and test nodes."""
        return self.model.scores

    @property
    def history(self) -> list[dict[str, float]]:
        """One record per epoch, as `Result.history`."""
        return self.model.history

    @property
    def iterations(self) -> list[dict[str, Any]]:
        """One record per iteration, as `Result.iterations`.

        `exchanged_bytes` counts the label summaries sent by all processes.
        """
        return self.model.iterations

    def __repr__(self) -> str:
        return repr(self.model).replace("Result(", f"PartsResult({len(self.parts)}, ")

    def predict_proba(self, part: int) -> np.ndarray:
        """Return probabilities [n, C] of the own nodes of a part, in order of ids."""
        return self.model.decision.correct(np.asarray(self._output(part)))

    def nodes(self, part: int) -> np.ndarray:
        """Return the ids of the own nodes of a part, [n], ascending."""
        own = self._find(part)
        return np.asarray(own.ids[: own.num_own])

    def _find(self, part: int) -> Part:
        if part not in self.held:
            mine = f"{min(self.held)} to {max(self.held)}"
            raise ValueError(
                f"Part {part!r} is not held by this process, which has {mine}."
            )
        return self.held[part]

    def _output(self, part: int) -> np.ndarray:
        return self.store.read(self._find(part), self.model.iteration, "output")

    def write_predictions(self, folder: str | os.PathLike) -> list[pathlib.Path]:
        """Write the predictions of this process's parts, one Parquet file per part.

        Columns are those of `Result.to_frame`. All processes of a job must call it.

        Returns:
          The files that this process wrote.
        """
        arrow = import_or_explain("pyarrow", "write_predictions")
        parquet = import_or_explain("pyarrow.parquet", "write_predictions", "pyarrow")
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for number, part in self.held.items():
            said = self._output(number)

            def write(file: Any, part: Part = part, said: np.ndarray = said) -> None:
                names, writer = part.read_names(), None
                for start in range(0, len(said), _ROWS_AT_ONCE):
                    rows = slice(start, min(start + _ROWS_AT_ONCE, len(said)))
                    frame = self._frame(said[rows], names[rows])
                    if not names:
                        frame["node"] = part.ids[rows]
                    table = arrow.Table.from_pandas(frame, preserve_index=False)
                    writer = writer or parquet.ParquetWriter(file, table.schema)
                    writer.write_table(table)
                if writer is not None:
                    writer.close()

            paths.append(folder / f"{folder_of(number)}.parquet")
            write_atomically(paths[-1], write)
        return paths

    def _frame(self, said: np.ndarray, names: tuple[Any, ...]) -> Any:
        said = self.model.decision.correct(np.asarray(said))
        some = dataclasses.replace(self.model, probabilities=said, node_names=names)
        return some.to_frame()

    def save(self, path: str | os.PathLike) -> None:
        """Save the model in one file, which `hopf_jax.load` reads, without predictions.

        In a job of several processes, the first one writes the file.
        """
        self.model.save(path)
