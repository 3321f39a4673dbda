"""Logistic regression on the attributes of the nodes, an independent check of bl-node.

scikit-learn's, with balanced classes as in WCE, and its regularization chosen on
validation nodes. For datasets with one label per node. Writes logistic_regression.json
to WORKDIR.
"""

import sys
import warnings
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from experiments.common import arguments, output, score_table
from hopf_jax.datasets import load_dataset

_STRENGTHS = tuple(10.0**e for e in range(-2, 5))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.logistic_regression")
    parser.option("dataset", arguments.dataset_names, ("cora", "citeseer"))
    arguments.add_folds(parser)
    options = parser.parse_args(argv)
    found = {}
    for name in options.dataset:
        scores = [_score(name, fold) for fold in options.folds]
        found[name] = score_table.summarise([100 * score for score in scores])
        shown = score_table.plus_minus(found[name])
        print(f"{name:<12} logistic regression {shown}", flush=True)
    path = options.workdir / "logistic_regression.json"
    output.write_results(path, {"micro_f1": found}, options.invocation)
    return 0


def _score(name: str, fold: int) -> float:
    """Return the test accuracy with the strength that is best on validation nodes."""
    # Lazy: scikit-learn is slow to import.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    graph = load_dataset(name, fold=fold)
    if graph.multilabel:
        raise SystemExit(f"{name} has several labels per node; choose another dataset.")
    x = sp.csr_matrix(graph.features)
    y = graph.labels.argmax(axis=1)
    best = (-1.0, 0.0)
    for strength in _STRENGTHS:
        model = LogisticRegression(C=strength, class_weight="balanced", max_iter=2000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x[graph.train], y[graph.train])
        held, test = (
            float(np.mean(model.predict(x[mask]) == y[mask]))
            for mask in (graph.validation, graph.test)
        )
        best = max(best, (held, test), key=lambda pair: pair[0])
    return best[1]


if __name__ == "__main__":
    sys.exit(main())
