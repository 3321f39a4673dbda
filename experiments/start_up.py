"""Measure how much sooner the README's example starts with kept programs.

Two processes run its code up to the fit, the first with an empty folder of programs.
Seconds are from the start of Python, by the clock and of the processors, to the end of
the first epoch and to the end of the fit. Writes start_up.json to WORKDIR.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from experiments.common import arguments, output

_BEFORE = """
import time
import hopf_jax
hopf_jax.keep_programs()
seconds = []
def note(record=None):
    seconds.append((time.perf_counter() - begun, time.process_time()))
"""
_AFTER = """
note()
print(*seconds[0], *seconds[-1])
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = arguments.parser(__doc__, "experiments.start_up")
    about = "the model to fit (default: fit chooses one, as in the README)"
    parser.option("model", str, help=about)
    options = parser.parse_args(argv)
    script = _script(options.model)
    names = ("first_epoch", "first_epoch_processor", "fit", "fit_processor")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for which in ("compiled", "kept"):
            done = subprocess.run(
                [sys.executable, "-c", script],
                env=os.environ | {"HOPF_CACHE": folder},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            values = map(float, done.stdout.split())
            found[which] = dict(zip(names, values, strict=True))
            print(f"{which}:", _line(found[which]), flush=True)
    shares = {name: found["kept"][name] / found["compiled"][name] for name in names}
    print("kept / compiled:", ", ".join(f"{n} {s:.0%}" for n, s in shares.items()))
    data = {"seconds": found, "shares": shares}
    output.write_results(options.workdir / "start_up.json", data, options.invocation)
    return 0


def _script(model: str | None) -> str:
    """Return the README's example up to the fit, which notes when epochs end."""
    text = (output.ROOT / "README.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    before, call, _ = example.partition("hopf_jax.fit(graph)")
    assert call, "The README's example fits a graph."
    which = "" if model is None else f", {model!r}"
    fit = f"hopf_jax.fit(graph{which}, progress=False, callbacks=[note])"
    return f"import time\nbegun = time.perf_counter(){_BEFORE}{before}{fit}\n{_AFTER}"


def _line(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())


if __name__ == "__main__":
    sys.exit(main())
