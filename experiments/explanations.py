"""Why a cell falls short of the paper's figure, as an experiment showed.

{(dataset, model): sentence}; the report prints it where the cell does fall short.
"""

from collections.abc import Mapping
from types import MappingProxyType

EXPLANATIONS: Mapping[tuple[str, str], str] = MappingProxyType({})
