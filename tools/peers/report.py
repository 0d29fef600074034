"""What is written and printed of the measurements: no GPU, no PyTorch."""

import json
import os
from pathlib import Path

from problems import contestant_name, split_name


def write_json(path, document):
    """Complete or not at all: a run that is stopped leaves its last whole document."""
    partial = Path(f"{path}.partial")
    partial.write_text(json.dumps(document, indent=1) + "\n")
    os.replace(partial, path)


def tflops(flops, milliseconds):
    return flops / milliseconds / 1e9


def timing_json(comparison, flops, samples):
    """Of one regime: every sample, medians, the ratios of each of ours to each peer of its role (above 1:
    ours is faster), and what the comparison is about. `flops`: of a label's problem."""
    contestants = {}
    for name, of_contestant in samples.items():
        median = of_contestant.median()
        entry = {
            "median_ms": median,
            "tflops": tflops(flops[split_name(name)[1]], median) if median else None,
            "samples_ms": of_contestant.milliseconds,
            "sm_clock_mhz": of_contestant.sm_clock_mhz,
            "power_watts": of_contestant.power_watts,
            "late": [i for i, late in enumerate(of_contestant.late) if late],
        }
        if of_contestant.error:
            entry["error"] = of_contestant.error
        contestants[name] = entry
    result = {"contestants": contestants, "speed_ratios": speed_ratios(contestants)}
    if comparison.section != "cells":
        result["figures"] = figures(comparison, flops, contestants)
    return result


def _medians(contestants):
    return {name: entry["median_ms"] for name, entry in contestants.items() if entry["median_ms"]}


def speed_ratios(contestants):
    """{ours: {peer: peer's median over ours}}; FlashAttention-3 and 4 over the other peers besides."""
    medians = _medians(contestants)
    ratios = {}
    for name, median in medians.items():
        contestant, label = split_name(name)
        if is_ours(name) or contestant in ("fa3", "fa4"):
            ratios[name] = {
                peer: medians[peer] / median
                for peer in medians
                if not is_ours(peer) and peer != name and split_name(peer)[1] == label
            }
    return ratios


def figures(comparison, flops, contestants):
    """Every contestant's rate on the labelled roles over that on the first, and ours over the peers that a
    least ratio is given for. `least` and `holds` are of ours, where there is a bound."""
    medians = _medians(contestants)
    return _rate_figures(comparison, flops, medians) + _speed_figures(comparison, medians)


def _bounded(figure, ratio, least):
    figure["ratio"] = ratio
    if least is not None:
        figure |= {"least": least, "holds": ratio >= least}
    return figure


def _rate_figures(comparison, flops, medians):
    found = []
    for role in comparison.roles[1:]:
        for name, median in medians.items():
            contestant, label = split_name(name)
            if label != role.label or contestant not in medians:
                continue
            figure = {
                "figure": "rate",
                "of": name,
                "to": contestant,
                "time_ratio": median / medians[contestant],
                "work_ratio": flops[role.label] / flops[""],
            }
            least = comparison.least_rate_ratio if is_ours(name) else None
            found.append(_bounded(figure, figure["work_ratio"] / figure["time_ratio"], least))
    return found


def _speed_figures(comparison, medians):
    found = []
    for name, median in medians.items():
        label = split_name(name)[1]
        for peer, least in comparison.least_speed_ratio if is_ours(name) else ():
            ways = [contestant_name(way, label) for way in (peer, f"{peer}_expanded")]
            ways = [way for way in ways if way in medians]
            if ways:
                best = min(ways, key=medians.get)
                figure = {"figure": "speed", "of": name, "to": best}
                found.append(_bounded(figure, medians[best] / median, least))
    return found


def is_ours(name):
    return name.startswith("backlight/")


def _mean(values):
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _number(value, form):
    return "-" if value is None else format(value, form)


def timing_line(result):
    """One regime of one comparison, for the eye of who waits."""
    parts = []
    for name, entry in result["contestants"].items():
        clock = _number(_mean(entry["sm_clock_mhz"]), ".0f")
        rate, median = _number(entry["tflops"], ".0f"), _number(entry["median_ms"], ".3f")
        parts.append(f"{name} {rate} ({median} ms, {clock} MHz)")
        if entry["late"]:
            parts[-1] += f" {len(entry['late'])} late"
        if "error" in entry:
            parts[-1] += f" FAILED: {entry['error'].splitlines()[0]}"
    return ", ".join(parts)


def _entries(document, section, regime):
    return [e for e in document["cells"] if e["section"] == section and regime in e["regimes"]]


def table(document, section, regime):
    """TFLOP/s of all cells, and the best of ours to each peer; empty where there is none."""
    cells = _entries(document, section, regime)
    names = list(dict.fromkeys(n for c in cells for n in c["regimes"][regime]["contestants"]))
    peers = [name for name in names if not is_ours(name)]
    rows = [["cell", *names, "best of ours", *(f"over {peer}" for peer in peers)]]
    for cell in cells:
        entries = cell["regimes"][regime]["contestants"]
        ours = {n: e["median_ms"] for n, e in entries.items() if is_ours(n) and e["median_ms"]}
        best = min(ours, key=ours.get) if ours else None
        row = [cell["cell"]]
        row += [_number(entries.get(name, {}).get("tflops"), ".0f") for name in names]
        row.append(best.removeprefix("backlight/") if best else "-")
        ratios = cell["regimes"][regime]["speed_ratios"].get(best, {})
        row += [_number(ratios.get(peer), ".2f") for peer in peers]
        rows.append(row)
    return f"{regime}: TFLOP/s of the whole backward\n" + _aligned(rows) if cells else ""


def section_table(document, section, regime):
    """Of every comparison: a line a contestant, what could not be had and why, and its figures; empty where
    there is none."""
    blocks = []
    for entry in _entries(document, section, regime):
        result = entry["regimes"][regime]
        rows = [["contestant", "problem", "ms", "TFLOP/s"]]
        for name, timed in result["contestants"].items():
            role = entry["roles"][split_name(name)[1]]
            rows.append([name, role["text"], _number(timed["median_ms"], ".3f"),
                         _number(timed["tflops"], ".0f")])
        lines = [_aligned(rows)]
        lines += [f"{name}: {_reason(error)}" for name, error in entry["errors"].items()]
        lines += [figure_line(figure) for figure in result["figures"]]
        lines += [f"{ours}: {', '.join(f'{ratio:.2f} times {peer}' for peer, ratio in ratios.items())}"
                  for ours, ratios in result["speed_ratios"].items() if ratios]
        blocks.append("\n".join(lines))
    return "\n\n".join([f"{section}, {regime}", *blocks]) if blocks else ""


def _reason(error):
    return error.splitlines()[0] if error else "no word"


def figure_line(figure):
    if figure["figure"] == "rate":
        text = (f"{figure['of']}: {figure['work_ratio']:.3f} of the work of {figure['to']} in "
                f"{figure['time_ratio']:.3f} of its time, rate ratio {figure['ratio']:.3f}")
    else:
        text = f"{figure['of']}: {figure['ratio']:.3f} times the speed of {figure['to']}"
    if "least" in figure:
        text += f", at least {figure['least']:.3f}: {'holds' if figure['holds'] else 'DOES NOT HOLD'}"
    return text


def accuracy_table(document):
    """Relative L2 errors of dQ, dK, dV against fp32."""
    rows = [["cell", "dtype", "contestant", "dQ", "dK", "dV", "not finite", ""]]
    failures = []
    for entry in document["accuracy"]:
        for name, result in entry["contestants"].items():
            row = [entry["cell"], entry["dtype"], name]
            if "error" in result:
                failures.append(f"{' '.join(row)}: {_reason(result['error'])}")
                continue
            row += [_number(e["relative_l2"], ".2e") for e in result["against_fp32"].values()]
            wrong = "" if result["accurate"] else "INACCURATE"
            rows.append([*row, str(sum(result["not_finite"].values())), wrong])
    return "\n".join(["Relative L2 error against fp32", _aligned(rows), *failures])


def inaccurate_of_ours(document):
    """["cell dtype contestant", …]: those of ours whose gradients are not accurate."""
    return [
        f"{entry['cell']} {entry['dtype']} {name}"
        for entry in document["accuracy"]
        for name, result in entry["contestants"].items()
        if is_ours(name) and not result.get("accurate", True)
    ]


def _aligned(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(x.ljust(w) for x, w in zip(row, widths)).rstrip() for row in rows)
