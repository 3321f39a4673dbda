"""Requests and responses: JSON objects, validated field by field.

These classes are the whole contract of the service: requests are parsed by them, and
the page about the interface is made from them.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

_MOST_NODES = 1000  # Per request.
_MOST_CHANGES = 10_000  # Of each kind, per request.
_MOST_DRAWN = 100

_Plain = bool | int | float | Annotated[str, Field(max_length=1000)]
Name = (
    _Plain | Annotated[list[_Plain], Field(max_length=8)]
)  # A list stands for a tuple.
ClassLabel = bool | int | Annotated[str, Field(max_length=1000)]


class Message(BaseModel):
    """A JSON object without unknown fields and without type conversion."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class PredictRequest(Message):
    """Nodes to predict: names, or ids if the graph has no names."""

    nodes: Annotated[list[Name], Field(min_length=1, max_length=_MOST_NODES)]
    probabilities: Annotated[
        bool, Field(description="Add the calibrated probability of each label.")
    ] = False


class Prediction(Message):
    """The predicted label of a node, or its labels where nodes have several."""

    node: Name
    label: ClassLabel | list[ClassLabel]
    confidence: Annotated[
        float | None, Field(description="Probability that the label is right.")
    ]
    probabilities: dict[str, float] | None


class PredictResponse(Message):
    """Predictions, in the order of the request."""

    version: Annotated[int, Field(description="Number of updates before this answer.")]
    predictions: list[Prediction]


class ExplainRequest(Message):
    """A node whose prediction is to be explained."""

    node: Name
    label: Annotated[
        ClassLabel | None, Field(description="null explains the predicted label.")
    ] = None
    most: Annotated[
        int, Field(ge=1, le=_MOST_DRAWN, description="Number of nodes to draw.")
    ] = 24


class Share(Message):
    """A contribution to a prediction, as a share of the whole."""

    name: str
    share: float


class DrawnNode(Message):
    """A node that a prediction depends on, with its position in the drawing."""

    node: Name
    hop: int
    share: float
    label: ClassLabel
    x: float
    y: float


class ExplainResponse(Message):
    """What a prediction depends on, as shares of the whole prediction."""

    version: int
    node: Name
    label: ClassLabel
    confidence: float
    shares: Annotated[
        list[Share],
        Field(description="Own attributes, those of each hop, and label summaries."),
    ]
    features: Annotated[list[Share], Field(description="Columns that mattered most.")]
    nodes: Annotated[list[DrawnNode], Field(description="The node itself first.")]
    edges: Annotated[
        list[tuple[int, int]],
        Field(description="Places in nodes: the first reads the second."),
    ]
    left_out: Annotated[int, Field(description="Nodes that are read, but not listed.")]


Value = bool | int | float | Annotated[str, Field(max_length=1000)] | None
Features = Annotated[
    list[int | float | None] | dict[str, Value],
    Field(
        description="One number per column, in order; or a value per column, by name."
    ),
]


class Neighbour(Message):
    """A neighbour of the new node."""

    node: Name
    weight: Annotated[float, Field(ge=0)] = 1.0


class PredictNewRequest(Message):
    """A node outside the graph, which is predicted but not added."""

    features: Features
    neighbours: Annotated[list[Neighbour], Field(max_length=_MOST_CHANGES)] = []


class PredictNewResponse(Message):
    """The prediction for a node that is not in the graph."""

    version: int
    label: ClassLabel | list[ClassLabel]
    confidence: float | None
    probabilities: dict[str, float]


class NodeFeatures(Message):
    """A node and its features."""

    node: Name
    features: Features


class Edge(Message):
    """An edge; in an undirected graph its ends may be swapped."""

    source: Name
    target: Name


class WeightedEdge(Edge):
    """An edge to add; if it exists, its weight is increased."""

    weight: Annotated[float, Field(ge=0)] = 1.0


class NodeLabel(Message):
    """The known label of a node; null removes it."""

    node: Name
    label: ClassLabel | Annotated[list[ClassLabel], Field(max_length=1000)] | None


class UpdateRequest(Message):
    """Changes to the graph, which are applied all or none."""

    add_nodes: Annotated[list[NodeFeatures], Field(max_length=_MOST_CHANGES)] = []
    add_edges: Annotated[list[WeightedEdge], Field(max_length=_MOST_CHANGES)] = []
    drop: Annotated[
        list[Name],
        Field(
            max_length=_MOST_CHANGES, description="Nodes to remove, with their edges."
        ),
    ] = []
    drop_edges: Annotated[list[Edge], Field(max_length=_MOST_CHANGES)] = []
    labels: Annotated[list[NodeLabel], Field(max_length=_MOST_CHANGES)] = []
    features: Annotated[list[NodeFeatures], Field(max_length=_MOST_CHANGES)] = []
    if_version: Annotated[
        int | None,
        Field(description="Refuse with status 409 unless this is the current version."),
    ] = None


class UpdateResponse(Message):
    """The effect of an update."""

    version: int
    nodes: Annotated[int, Field(description="Number of nodes now.")]
    recomputed: Annotated[int, Field(description="Number of nodes computed again.")]
    changed: Annotated[int, Field(description="Number of nodes predicted otherwise.")]
    relabelled: Annotated[
        list[Name],
        Field(description="Nodes with another label than before; the first of them."),
    ]
    stored: Annotated[bool, Field(description="Whether it outlives a restart.")]


class SearchRequest(Message):
    """A search for nodes by the beginning of their names."""

    prefix: Annotated[str, Field(max_length=1000)]
    most: Annotated[int, Field(ge=1, le=50)] = 8


class SearchResponse(Message):
    """Nodes whose names match, ignoring case, sorted by name."""

    nodes: list[Name]


class HealthResponse(Message):
    """The status of the service, with its model and graph."""

    status: Literal["ready"]
    model: str
    labels: list[ClassLabel]
    nodes: int
    edges: int
    version: Annotated[int, Field(description="Number of updates so far.")]
    updates: Annotated[bool, Field(description="Whether updates are accepted.")]
    examples: Annotated[list[Name], Field(description="Some nodes.")]


class ErrorResponse(Message):
    """An error: what is wrong with the request, where, and what to do."""

    error: str
