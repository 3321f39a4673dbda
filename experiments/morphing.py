"""Node information morphing: how much of a node's own information each kernel keeps.

First in the linear kernels, where the weight of h_0 by hop has a formula: the formula
beside what the library computes, on a regular graph. Then in trained models: the share
of each hop in a prediction, from Jacobians, kernels side by side. Writes morphing.png
and morphing.json to WORKDIR/morphing.
"""

import sys
from collections.abc import Sequence
from typing import Any

import hopf_jax
from experiments import arguments, drawing, folders, jacobians, kernels, paper
from hopf_jax.datasets import DatasetError, load_dataset

_MODULE = "experiments.morphing"
_MODELS = ("gcn", "gcn-s", "gcn-mean", "gs-mean", "nip-mean", "i-nip-mean")
_LINEAR_HOPS = 6


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = arguments.parser(__doc__, _MODULE)
    parser.add_argument("--dataset", type=arguments.dataset_names, default=("cora",))
    parser.add_argument("--models", type=arguments.model_names, default=_MODELS)
    parser.add_argument(
        "--hops",
        type=arguments.numbers,
        default=(2, 4),
        help="of the trained models (default: 2,4)",
    )
    parser.add_argument(
        "--degree", type=arguments.positive, default=4, help="of the regular graph"
    )
    parser.add_argument(
        "--nodes", type=arguments.positive, default=64, help="test nodes looked at"
    )
    parser.add_argument("--seed", type=arguments.seed, default=0)
    arguments.add_max_epochs(parser)
    options = parser.parse_args(argv)
    if len(options.dataset) != 1:
        parser.error("one dataset at a time")
    linear = kernels.decay(options.degree, _LINEAR_HOPS)
    print(f"Share of h_0 by hop, linear kernels, {options.degree}-regular graph:")
    for name, entry in linear.items():
        said = " ".join(f"{share:.4f}" for share in entry["measured"])
        worst = entry["largest_relative_error"]
        print(f"{name:<20} {said}   = {entry['formula']} (within {worst:.0e})")
    try:
        trained = _trained(options)
    except (DatasetError, ValueError) as error:
        parser.error(str(error))
    folder = options.workdir / "morphing"
    data = {
        "linear": {"degree": options.degree, "kernels": linear},
        "trained": {"dataset": options.dataset[0], "hops": trained},
    }
    provenance = folders.provenance([_MODULE, *argv])
    folders.write_json(folder / "morphing.json", data | provenance)
    drawing.save(_draw(linear, trained, options), folder / "morphing.png")
    print(f"Written: {folder}/morphing.json, morphing.png")
    return 0


def _trained(options: Any) -> dict[str, Any]:
    (dataset,) = options.dataset
    graph = load_dataset(dataset)
    print(f"Share of each hop in predictions, trained on {dataset} (fold 1):")
    found: dict[str, Any] = {}
    for hops in options.hops:
        found[str(hops)] = {}
        config = arguments.shortened(
            paper.config_for(dataset, hops), options.max_epochs
        )
        for model in options.models:
            result = hopf_jax.fit(
                graph, model, config, seed=options.seed, progress=False
            )
            entry = jacobians.hop_shares(result, graph, options.nodes, options.seed)
            entry["test_micro_f1"] = 100 * result.scores["test"]["micro_f1"]
            found[str(hops)][model] = entry
            said = " ".join(f"{share:.3f}" for share in entry["shares"])
            f1 = entry["test_micro_f1"]
            print(f"{hops} hops  {model:<12} {said}   micro-F1 {f1:.1f}", flush=True)
    return found


def _draw(linear: dict[str, Any], trained: dict[str, Any], options: Any) -> Any:
    figure = drawing.new(6 + 4.6 * len(trained), 4.6)
    panels = figure.subplots(1, 1 + len(trained), squeeze=False)[0]
    hops = range(_LINEAR_HOPS + 1)
    for i, (name, entry) in enumerate(linear.items()):
        colour = drawing.COLOURS[i % len(drawing.COLOURS)]
        style = "-" if i < len(drawing.COLOURS) else ":"
        panels[0].plot(hops, entry["expected"], style, color=colour, linewidth=1)
        label = f"{name}: {entry['formula']}"
        marker = "osv^DxP*"[i % 8]
        panels[0].plot(hops, entry["measured"], marker, color=colour, ms=5, label=label)
    panels[0].set_yscale("log")
    panels[0].yaxis.set_major_formatter("{x:g}")
    drawing.tidy(
        panels[0],
        xlabel="hop k",
        ylabel="share of $h_0$ in $h_k$ (log scale)",
        title=f"Linear kernels, d = {options.degree}: lines formula, marks measured",
    )
    panels[0].legend(frameon=False, fontsize="small", loc="lower left")
    for panel, (count, models) in zip(panels[1:], trained.items(), strict=True):
        drawing.shares(
            panel,
            list(models),
            [entry["shares"] for entry in models.values()],
            title=f"Trained on {options.dataset[0]}, {count} hops",
            xlabel="share of the Jacobian",
        )
    return figure


if __name__ == "__main__":
    sys.exit(main())
