"""What is written and printed of the measurements: no GPU, no PyTorch."""

import json
import os
from pathlib import Path


def write_json(path, document):
    """Complete or not at all: a run that is stopped leaves its last whole document."""
    partial = Path(f"{path}.partial")
    partial.write_text(json.dumps(document, indent=1) + "\n")
    os.replace(partial, path)


def tflops(cell, milliseconds):
    return cell.flops / milliseconds / 1e9


def timing_json(cell, samples):
    """Of one regime: every sample, medians, and the ratios of each of ours to each peer (above 1: ours is
    faster)."""
    contestants = {}
    for name, of_contestant in samples.items():
        median = of_contestant.median()
        entry = {
            "median_ms": median,
            "tflops": tflops(cell, median) if median else None,
            "samples_ms": of_contestant.milliseconds,
            "sm_clock_mhz": of_contestant.sm_clock_mhz,
            "power_watts": of_contestant.power_watts,
            "late": [i for i, late in enumerate(of_contestant.late) if late],
        }
        if of_contestant.error:
            entry["error"] = of_contestant.error
        contestants[name] = entry
    return {"contestants": contestants, "speed_ratios": speed_ratios(contestants)}


def speed_ratios(contestants):
    """{ours: {peer: peer's median over ours}}; FlashAttention-3 over the other peers besides."""
    medians = {name: entry["median_ms"] for name, entry in contestants.items() if entry["median_ms"]}
    ratios = {}
    for name, median in medians.items():
        if is_ours(name) or name == "fa3":
            ratios[name] = {
                peer: medians[peer] / median
                for peer in medians
                if not is_ours(peer) and peer != name
            }
    return ratios


def is_ours(name):
    return name.startswith("backlight/")


def _mean(values):
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _number(value, form):
    return "-" if value is None else format(value, form)


def timing_line(result):
    """One regime of one cell, for the eye of who waits."""
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


def table(document, regime):
    """TFLOP/s of all cells, and the best of ours to each peer."""
    cells = [c for c in document["cells"] if regime in c["regimes"]]
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
    return f"{regime}: TFLOP/s of the whole backward\n" + _aligned(rows)


def accuracy_table(document):
    """Relative L2 errors of dQ, dK, dV against fp32."""
    rows = [["cell", "dtype", "contestant", "dQ", "dK", "dV", "not finite"]]
    failures = []
    for entry in document["accuracy"]:
        for name, result in entry["contestants"].items():
            row = [entry["cell"], entry["dtype"], name]
            if "error" in result:
                failures.append(f"{' '.join(row)}: {result['error'].splitlines()[0]}")
                continue
            row += [_number(e["relative_l2"], ".2e") for e in result["against_fp32"].values()]
            rows.append([*row, str(sum(result["not_finite"].values()))])
    return "\n".join(["Relative L2 error against fp32", _aligned(rows), *failures])


def _aligned(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(x.ljust(w) for x, w in zip(row, widths)).rstrip() for row in rows)
