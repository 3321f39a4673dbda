"""Write the tables of docs/scaling.md, from measurements and from counts.

Reads docs/measured/*.json, written by `halos`, `parts`, `large_graph` and
`weak_scaling`, and writes each table between its marks in docs/scaling.md.
"""

import json
import pathlib
import statistics
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments.common import output
from experiments.common.markdown import markdown_table

DOC = output.ROOT / "docs" / "scaling.md"
MEASURED = output.ROOT / "docs" / "measured"
_HOSTS = (2, 4, 8, 16, 32, 64)
_HIDDEN = 128
_REACH = 4  # Hops of full training, or iterations of one hop each.
_GB, _MB = 1e9, 1e6


class Size(NamedTuple):
    """The size of a graph."""

    nodes: int
    arcs: int
    features: int
    labels: int


# Reddit as in GraphSAGE's file; DGL and PyTorch Geometric have more edges. Citations of
# papers100M are read both ways.
GRAPHS = {
    "Reddit": Size(232_965, 2 * 11_606_919, 602, 41),
    "ogbn-papers100M": Size(111_059_956, 2 * 1_615_685_872, 128, 172),
}


def main() -> int:
    """Write the tables; return the exit status."""
    output.write_text(DOC, render(DOC.read_text(), read()))
    return 0


def read(folder: pathlib.Path = MEASURED) -> dict[str, Any]:
    """Return the measurements by the name of their file."""
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def render(text: str, measured: Mapping[str, Any]) -> str:
    """Return the page with each table in its place."""
    made = {
        name: f"{make(measured[of])}\n\n{commit_line(measured[of])}"
        if of in measured
        else f"Not measured: {of}.json."
        for name, of, make in (
            ("halos", "halos", halo_table),
            ("parts", "parts", parts_table),
            ("parts-curve", "parts-curve", parts_table),
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


def commit_line(found: Mapping[str, Any]) -> str:
    """Return a sentence with the commit that was measured."""
    commit, _, changed = (found["commit"] or "unknown").partition("-")
    note = ", with changes that were not committed" if changed else ""
    return f"Measured at commit {commit[:7]}{note}."


def halo_table(halos: Mapping[str, Any], hosts: tuple[int, ...] = (2, 8, 64)) -> str:
    """Return what all hosts hold, as a multiple of the nodes of the graph."""
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
    return markdown_table(header, rows)


def gain(halos: Mapping[str, Any], hosts: int, hops: int) -> float:
    """Return the halo by METIS over the halo at random, the median over graphs."""
    return statistics.median(
        (g["held"]["metis"][str(hosts)]["nodes"][hops - 1] - 1)
        / (g["held"]["random"][str(hosts)]["nodes"][hops - 1] - 1)
        for g in halos["graphs"].values()
    )


def held_at_random(size: Size, hosts: int, hops: int) -> float:
    """Bound the nodes that hosts with random parts hold, as a multiple.

    A node is in a halo unless none of its neighbours is in the part. Equal degrees are
    an upper bound for one hop, as the probability is concave in the degree; for more
    hops, the graph is taken for a tree, which is another.
    """
    degree = size.arcs / size.nodes
    near = sum(degree**k for k in range(1, hops + 1))
    return 1 + (hosts - 1) * (1 - (1 - 1 / hosts) ** near)


def host_bytes(size: Size, hosts: int, held: float, arcs: float) -> float:
    """Return the bytes of a host: features, summaries, hidden states, CSR, labels."""
    node = 4 * size.features + 4 * size.labels + 3 * 4 * _HIDDEN + 8
    own = size.nodes / hosts * size.labels
    return held * size.nodes / hosts * node + 4 * arcs * size.arcs / hosts + own


def size_table(size: Size, halos: Mapping[str, Any]) -> str:
    """Return the bytes sent and the memory per host, by number of hosts."""
    header = [
        "hosts",
        "nodes held",
        "memory per host, GB",
        "summaries per host and iteration, MB",
        f"{_REACH} hops: nodes held",
        "memory per host, GB",
        "or hidden states per host and epoch, MB",
    ]

    def values(hosts: int, by_metis: bool) -> list[str]:
        near, far = (
            1 + (held_at_random(size, hosts, c) - 1)
            * (gain(halos, hosts, c) if by_metis else 1)
            for c in (1, _REACH)
        )  # fmt: skip
        received = (near - 1) * size.nodes / hosts  # Halo nodes per host.
        return [
            f"{near:.2f}",
            f"{host_bytes(size, hosts, near, 1) / _GB:.1f}",
            f"{4 * size.labels * received / _MB:,.0f}",
            f"{far:.2f}",
            f"{host_bytes(size, hosts, far, far) / _GB:.1f}",
            f"{2 * _REACH * 4 * _HIDDEN * received / _MB:,.0f}",
        ]

    rows = []
    for hosts in _HOSTS:
        pairs = zip(values(hosts, True), values(hosts, False), strict=True)
        rows.append([str(hosts), *(" / ".join(pair) for pair in pairs)])
    return markdown_table(header, rows)


def parts_table(found: Mapping[str, Any]) -> str:
    """Return what parts of a graph hold, take and exchange, by their number."""
    header = [
        "parts",
        "nodes held",
        "edges cut",
        "partitioned in, s",
        "peak, GB",
        "job, s",
        "RssAnon per process, GB",
        "predicted",
        "off by",
        "bytes exchanged per iteration",
        "counted",
    ]
    rows = []
    for run in found["runs"]:
        peaks = [process["RssAnon"] for process in run["process"]]
        predicted = run["predicted_bytes"]
        peak = run["partition"]["peak_bytes"]
        rows.append(
            [
                str(run["parts"]),
                f"{run['halo']:.2f}",
                f"{run['cut']:.2%}",
                f"{run['partition']['seconds']:.0f}",
                "-" if peak is None else f"{peak / _GB:.2f}",
                f"{run['seconds']:.0f}",
                " and ".join(f"{each / _GB:.2f}" for each in peaks),
                f"{predicted / _GB:.2f}",
                f"{predicted / max(peaks) - 1:+.0%}",
                f"{run['exchanged']:,}",
                f"{run['counted']:,}",
            ]
        )
    load = max(process["load"] for run in found["runs"] for process in run["process"])
    about = (
        f"{found['nodes']:,} nodes, {found['edges']:,} edges drawn, halo of "
        f"{found['hops']} hops, {found['hidden']} hidden units, {found['processes']} "
        f"processes. The machine's load was up to {load:.0f}, on "
        f"{found['runs'][0]['process'][0]['cores']} cores."
    )
    return f"{markdown_table(header, rows)}\n\n{about}"


def large_table(found: Mapping[str, Any]) -> str:
    """Return the memory of a run on a memory-mapped graph."""
    graph, seconds = found["graph"], found["seconds"]
    names = ("RssAnon", "RssFile", "VmHWM")
    peaks = [f"{found[f'peak_{name}_bytes'] / _GB:.2f}" for name in names]
    header = ["nodes", "edges", "on disk, GB", *(f"{n}, GB" for n in names)]
    header += ["RssAnon bound, GB", "open, s", "fit, s"]
    row = [f"{graph['nodes']:,}", f"{graph['edges']:,}"]
    row += [f"{graph['bytes_on_disk'] / _GB:.2f}", *peaks]
    row += [f"{found['bound_bytes'] / _GB:.2f}"]
    row += [f"{seconds['open']:.0f}", f"{seconds['fit']:.0f}"]
    return markdown_table(header, [row])


def weak_table(found: Mapping[str, Any]) -> str:
    """Return epochs by number of processes."""
    header = ["processes", "roots", "steps", "epoch, s", "least to most, s"]
    header += ["efficiency", "processor seconds per process", "efficiency"]
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
    load = f"The machine's load was {found['load']:.0f}, on {found['cores']} cores."
    return f"{markdown_table(header, rows)}\n\n{load}"


if __name__ == "__main__":
    sys.exit(main())
