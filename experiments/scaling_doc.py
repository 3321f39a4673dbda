"""The tables of docs/scaling.md, from what was measured and from counting.

Reads docs/measured/*.json, as `experiments.halos`, `partitioned`, `large` and
`weak_scaling` wrote them, and writes each table between its marks in docs/scaling.md.
"""

import json
import pathlib
import statistics
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments import folders

DOC = folders.ROOT / "docs" / "scaling.md"
MEASURED = folders.ROOT / "docs" / "measured"
_HOSTS = (2, 4, 8, 16, 32, 64)
_HIDDEN = 128
_REACH = 4  # hops of full training, and iterations of one hop that read as far
_GB, _MB = 1e9, 1e6


class Size(NamedTuple):
    """A graph by its counts."""

    nodes: int
    arcs: int
    features: int
    labels: int


# GraphSAGE's file of Reddit has 11.6 million edges, two arcs each; the same posts with
# 57 million edges are in DGL and PyTorch Geometric. Citations of papers100M are read
# both ways.
GRAPHS = {
    "Reddit": Size(232_965, 2 * 11_606_919, 602, 41),
    "ogbn-papers100M": Size(111_059_956, 2 * 1_615_685_872, 128, 172),
}


def main() -> int:
    """Write the tables; returns the exit status."""
    folders.write_text(DOC, render(DOC.read_text(), read()))
    return 0


def read(folder: pathlib.Path = MEASURED) -> dict[str, Any]:
    """What was measured, by the name of its file."""
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def render(text: str, measured: Mapping[str, Any]) -> str:
    """The page with each table in its place."""
    made = {
        name: make(measured[of]) if of in measured else f"Not measured: {of}.json."
        for name, of, make in (
            ("halos", "halos", halo_table),
            ("simulation", "partitioned", simulation_table),
            ("large", "large", large_table),
            ("weak", "weak_scaling", weak_table),
        )
    }
    for name, size in GRAPHS.items():
        made[name] = size_table(size, measured["halos"])
    for name, table in made.items():
        begin, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        count = text.count(begin)
        before, _, rest = text.partition(begin)
        after = rest[rest.find(end) :]
        text = f"{before}{begin}{table}\n{after}"
        if count != 1:
            raise ValueError(f"{DOC.name} has {count} places for the table {name!r}.")
    return text


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown, numbers to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def halo_table(halos: Mapping[str, Any], hosts: tuple[int, ...] = (2, 8, 64)) -> str:
    """What hosts hold together, as a multiple of the graph's nodes."""
    hops = (1, 2, _REACH)
    header = [
        "graph",
        *[f"{h} hosts, {c} hop{'s' * (c > 1)}" for h in hosts for c in hops],
    ]
    rows = []
    for name, graph in halos["graphs"].items():
        cells = [
            " / ".join(
                f"{graph['held'][kind][str(h)]['nodes'][c - 1]:.2f}"
                for kind in ("metis", "random")
            )
            for h in hosts
            for c in hops
        ]
        rows.append([name, *cells])
    return table(header, rows)


def gain(halos: Mapping[str, Any], hosts: int, hops: int) -> float:
    """Halo by METIS over halo at random: the median of the graphs measured."""
    return statistics.median(
        (g["held"]["metis"][str(hosts)]["nodes"][hops - 1] - 1)
        / (g["held"]["random"][str(hosts)]["nodes"][hops - 1] - 1)
        for g in halos["graphs"].values()
    )


def held_at_random(size: Size, hosts: int, hops: int) -> float:
    """Nodes held together by hosts with random parts, as a multiple.

    A node is in a halo unless none of its neighbours is in the part. With one hop this
    is at most what equal degrees give, as the chance is concave in the degree; for more
    hops it takes the graph for a tree, which again is too many.
    """
    degree = size.arcs / size.nodes
    near = sum(degree**k for k in range(1, hops + 1))
    return 1 + (hosts - 1) * (1 - (1 - 1 / hosts) ** near)


def host_bytes(size: Size, hosts: int, held: float, arcs: float) -> float:
    """Memory of a host: features, summaries, three hidden states, CSR, own labels."""
    node = 4 * size.features + 4 * size.labels + 3 * 4 * _HIDDEN + 8
    own = size.nodes / hosts * size.labels
    return held * size.nodes / hosts * node + 4 * arcs * size.arcs / hosts + own


def size_table(size: Size, halos: Mapping[str, Any]) -> str:
    """Bytes sent and memory a host, against hosts."""
    header = [
        "hosts",
        "nodes held",
        "memory a host, GB",
        "summaries a host and iteration, MB",
        f"{_REACH} hops: nodes held",
        "memory a host, GB",
        "or hidden states a host and epoch, MB",
    ]
    rows = []
    for hosts in _HOSTS:
        cells: list[list[str]] = [[] for _ in header[1:]]
        for by_metis in (True, False):
            near, far = (
                1
                + (held_at_random(size, hosts, c) - 1)
                * (gain(halos, hosts, c) if by_metis else 1)
                for c in (1, _REACH)
            )
            received = (near - 1) * size.nodes / hosts  # halo nodes of a host
            values = (
                f"{near:.2f}",
                f"{host_bytes(size, hosts, near, 1) / _GB:.1f}",
                f"{4 * size.labels * received / _MB:,.0f}",
                f"{far:.2f}",
                f"{host_bytes(size, hosts, far, far) / _GB:.1f}",
                f"{2 * _REACH * 4 * _HIDDEN * received / _MB:,.0f}",
            )
            for cell, value in zip(cells, values, strict=True):
                cell.append(value)
        rows.append([str(hosts), *(" / ".join(cell) for cell in cells)])
    return table(header, rows)


def simulation_table(found: Mapping[str, Any]) -> str:
    """What the simulated hosts held, sent and predicted."""
    header = [
        f"{found['hosts']} hosts, {found['hops']} hop",
        "most nodes on a host",
        "summaries received by one, bytes",
        "largest difference of a probability",
        "test micro-F1",
    ]
    rows = [
        [
            name,
            f"{100 * g['held_share']:.1f}%",
            f"{g['received_bytes']:,}",
            f"{g['difference']:.1e}",
            f"{100 * g['test_micro_f1']:.1f}",
        ]
        for name, g in found["graphs"].items()
    ]
    return table(header, rows)


def large_table(found: Mapping[str, Any]) -> str:
    """Memory of a graph that is mapped."""
    graph, seconds = found["graph"], found["seconds"]
    names = ("RssAnon", "RssFile", "VmHWM")
    peaks = [f"{found[f'peak_{name}_bytes'] / _GB:.2f}" for name in names]
    header = ["nodes", "edges", "on disk, GB", *(f"{n}, GB" for n in names)]
    header += ["RssAnon bound, GB", "open, s", "fit, s"]
    row = [f"{graph['nodes']:,}", f"{graph['edges']:,}"]
    row += [f"{graph['bytes_on_disk'] / _GB:.2f}", *peaks]
    row += [f"{found['bound_bytes'] / _GB:.2f}"]
    row += [f"{seconds['open']:.0f}", f"{seconds['fit']:.0f}"]
    return table(header, [row])


def weak_table(found: Mapping[str, Any]) -> str:
    """Epochs against processes."""
    header = ["processes", "roots", "steps", "epoch, s", "least to most, s"]
    header += ["efficiency", "processor, s a process", "efficiency"]
    rows = [
        [
            count,
            f"{p['roots']:,}",
            str(p["steps"]),
            f"{p['epoch_seconds']:.3f}",
            f"{p['least_seconds']:.3f} to {p['most_seconds']:.3f}",
            f"{p['epoch_efficiency']:.2f}",
            f"{p['cpu_seconds']:.3f}",
            f"{p['cpu_efficiency']:.2f}",
        ]
        for count, p in found["points"].items()
    ]
    # A machine that does nothing else has a load of about as many as are measured.
    load = f"The machine's load was {found['load']:.0f}, on {found['cores']} cores."
    return f"{table(header, rows)}\n\n{load}"


if __name__ == "__main__":
    sys.exit(main())
