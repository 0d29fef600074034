"""A picture of the cells' TFLOP/s, drawn by gnuplot. No GPU, no PyTorch."""

import shutil
import subprocess
from pathlib import Path

from report import is_ours

PROGRAM = "gnuplot"
_NAMES = {"cudnn": "cuDNN", "fa2": "FlashAttention-2", "fa3": "FlashAttention-3", "fa4": "FlashAttention-4"}


def check_plot(path):
    """Why a picture cannot be drawn into the file, or nothing: told before anything is measured."""
    if path.suffix not in (".svg", ".png"):
        return f"plot is '{path}': it must end in .svg or .png"
    if shutil.which(PROGRAM) is None:
        return (
            f"plot is '{path}': it is drawn by gnuplot, which is not on the PATH (Debian package gnuplot-nox); "
            "--plot-from draws it elsewhere from the JSON"
        )
    return None


def _shown(name):
    if name == "backlight/default":
        return "Backlight"
    return _NAMES.get(name, name)


def gnuplot_script(document, regime, path):
    """A group of bars a cell, causal ones first, a colour a contestant; raises ValueError where no cell was timed
    in the regime."""
    cells = [e for e in document["cells"] if e.get("section", "cells") == "cells" and regime in e["regimes"]]
    if not cells:
        raise ValueError(f"plot-from: no cell was timed in the regime {regime}")
    cells.sort(key=lambda cell: not cell["causal"])
    names = list(dict.fromkeys(n for c in cells for n in c["regimes"][regime]["contestants"]))
    names.sort(key=lambda name: not is_ours(name))
    lines = ["$cells << END_OF_DATA"]
    for cell in cells:
        timed = cell["regimes"][regime]["contestants"]
        rates = (timed.get(name, {}).get("tflops") for name in names)
        label = f'{cell["batch"]},{cell["heads"]},{cell["seqlen"]},{cell["head_dim"]}{"" if cell["causal"] else " full"}'
        lines.append(" ".join([f'"{label}"', *("NaN" if rate is None else f"{rate:.1f}" for rate in rates)]))
    terminal = "svg" if path.suffix == ".svg" else "pngcairo"
    background = " background rgb 'white'" if terminal == "svg" else ""
    gpu = str(document["gpu"]["name"]).replace("'", " ")
    lines += [
        "END_OF_DATA",
        f"set terminal {terminal} size {max(700, 200 + 55 * len(cells))},520 noenhanced{background}",
        "set output '" + str(path).replace("'", "''") + "'",
        f"set title '{gpu}, bf16, the whole attention backward: batch,heads,N,head_dim, causal unless full ({regime})'",
        "set ylabel 'TFLOP/s'",
        "set yrange [0:*]",
        "set grid ytics",
        "set key outside right",
        "set xtics rotate by -45",
        "set style data histogram",
        "set style histogram clustered gap 1",
        "set style fill solid 0.85 border -1",
        "plot " + ", ".join(
            f"$cells using {column + 2}{':xtic(1)' if column == 0 else ''} title '{_shown(name)}'"
            for column, name in enumerate(names)
        ),
    ]
    return "\n".join(lines) + "\n"


def draw(document, path):
    """The regime is cool where it was measured. Raises ValueError with what is wrong."""
    cool = any("cool" in entry["regimes"] for entry in document["cells"])
    script = gnuplot_script(document, "cool" if cool else "hot", Path(path))
    told = subprocess.run([PROGRAM], input=script, capture_output=True, text=True)
    if told.returncode or not Path(path).is_file():
        raise ValueError(f"plot is '{path}': gnuplot failed: {told.stderr}")
