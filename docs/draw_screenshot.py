"""Draw docs/_static/serving.png: the page of `hopf serve`, in Chromium."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import networkx as nx

import hopf_jax

TARGET = pathlib.Path(__file__).parent / "_static" / "serving.png"


def main():
    """Fit, serve, and take a picture of what is served."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("There is no Chromium. On Debian: apt-get install chromium.")
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        known = dict.fromkeys(["Myriel", "MlleBaptistine", "MmeMagloire"], "bishop")
        known |= dict.fromkeys(["Enjolras", "Courfeyrac", "Combeferre"], "students")
        known |= dict.fromkeys(["Thenardier", "Gueulemer", "Montparnasse"], "gang")
        known |= dict.fromkeys(["Judge", "Champmathieu", "Brevet"], "court")
        story = nx.les_miserables_graph()
        graph = hopf_jax.Graph.from_networkx(story, labels=known)
        result = hopf_jax.fit(graph, "i-nip-mean", num_iterations=3)
        result.save(folder / "model.npz")
        hopf_jax.write_graph(graph, folder / "graph")
        command = [
            *(sys.executable, "-m", "hopf_jax", "serve", str(folder / "model.npz")),
            *("--graph", str(folder / "graph"), "--port", "0"),
        ]
        service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            address = re.search(r"http://\S+", service.stdout.readline())[0]
            subprocess.run(
                [
                    *(browser, "--headless", "--no-sandbox", "--disable-gpu"),
                    *("--hide-scrollbars", "--window-size=1100,860"),
                    *("--virtual-time-budget=10000", f"--screenshot={TARGET}"),
                    f"{address}/#Javert",
                ],
                check=True,
                stderr=subprocess.DEVNULL,
            )
        finally:
            service.terminate()
            service.wait()


if __name__ == "__main__":
    main()
