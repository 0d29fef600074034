#!/usr/bin/env python3
"""Times Backlight's whole backward beside PyTorch's cuDNN and FlashAttention-2 backends and, where its
library is given or they can be imported, FlashAttention-3 and 4, on the field's own benchmarks and on other
problems, and compares the gradients of all with fp32 (docs/measuring.md)."""

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import bridge
import cells
import chart
import report
import sections

PEERS = ("cudnn", "fa2", "fa3", "fa4")
LEAST_REPEATS = 20


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cells", action="append", default=[], metavar="CELL",
        help="8_16_4096_128_causal, or a pattern such as '*_128_full'; may be repeated [all 24, or none "
        "where there is a section]",
    )
    parser.add_argument(
        "--section", nargs="+", action="extend", default=[], choices=sections.NAMES, metavar="NAME",
        help=f"problems that the cells do not have: {', '.join(sections.NAMES)}",
    )
    parser.add_argument(
        "--kernel", action="append", metavar="NAME",
        help="default, a preset, or a name such as tile_64_64_8_2 or wgmma_64_128_16_3_heads_4; with :baked behind it, sequence lengths are "
        "constants of the kernel; may be repeated [default]",
    )
    parser.add_argument(
        "--peers", default=",".join(PEERS),
        help=f"[{','.join(PEERS)}]; fa3 (flash_attn_interface, or --fa3) and fa4 (flash_attn.cute) take part where they "
        "can be had; none: an empty word"
    )
    parser.add_argument("--fa3", type=Path, metavar="LIBRARY", help="FlashAttention-3's backward")
    parser.add_argument(
        "--regime", choices=("cool", "hot", "both"), help="[both for cells, cool for sections]"
    )
    parser.add_argument("--repeats", type=int, default=24, help=f"at least {LEAST_REPEATS} [24]")
    parser.add_argument("--spin-ms", type=float, default=1.5, help="at least 1 [1.5]")
    parser.add_argument("--layout", choices=("bhsd", "bshd"), default="bhsd")
    parser.add_argument("--no-accuracy", action="store_true", help="do not compare the gradients")
    parser.add_argument("--accuracy-only", action="store_true", help="time nothing")
    parser.add_argument(
        "--seconds", type=float, default=540, help="begin no further cell after so long [540]"
    )
    parser.add_argument("--device", default="0", help="number of the CUDA device [0]")
    parser.add_argument("--bridge", type=Path, default=bridge.DEFAULT_PATH, metavar="LIBRARY")
    parser.add_argument("--output", "--json", type=Path, default=Path("peers.json"), metavar="JSON", help="[peers.json]")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="the cells' TFLOP/s as .svg or .png, by gnuplot")
    parser.add_argument(
        "--plot-from", type=Path, metavar="JSON", help="draw --plot from what an earlier run wrote; no GPU is used"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be measured; no GPU is used")
    options = parser.parse_args(arguments)

    options.kernel = options.kernel or ["default"]
    options.peers = [peer for peer in options.peers.split(",") if peer]
    for peer in options.peers:
        if peer not in PEERS:
            parser.error(f"peers has '{peer}': each must be one of {', '.join(PEERS)}")
    if options.fa3 is not None and not options.fa3.is_file():
        parser.error(f"fa3 is '{options.fa3}': there is no such file")
    if options.repeats < LEAST_REPEATS:
        parser.error(f"repeats is {options.repeats}: it must be {LEAST_REPEATS} or more")
    if not 1 <= options.spin_ms <= 100:
        parser.error(f"spin-ms is {options.spin_ms}: it must be from 1 to 100")
    if options.no_accuracy and options.accuracy_only:
        parser.error("no-accuracy and accuracy-only are both given: nothing would be left to do")
    if options.plot_from is not None and options.plot is None:
        parser.error("plot-from is given without plot: there is no file to draw into")
    problem = options.plot and chart.check_plot(options.plot)
    if problem:
        parser.error(problem)
    try:
        options.cells = cells.select_cells(options.cells) if options.cells or not options.section else []
    except ValueError as error:
        parser.error(str(error))
    return options


def tasks_of(options):
    """(comparison, dtype, regimes): cells and sections, then what is looked at for its accuracy alone, which
    is fp16."""

    def regimes(usual):
        regime = options.regime or usual
        timed = ["cool", "hot"] if regime == "both" else [regime]
        return [] if options.accuracy_only else timed

    of_cells = {cell: cells.comparison_of(cell, options.peers) for cell in options.cells}
    tasks = [(comparison, "bf16", regimes("both")) for comparison in of_cells.values()]
    tasks += [
        (comparison, "bf16", regimes("cool"))
        for comparison in sections.comparisons(options.section, options.peers)
    ]
    if not options.no_accuracy:
        tasks += [(of_cells[cell], "fp16", []) for cell in options.cells if cell in cells.FP16_CELLS]
    return tasks


def dry_run(options, tasks):
    names = [f"backlight/{kernel}" for kernel in options.kernel] + options.peers
    print(f"{len(tasks)} comparisons, contestants: {', '.join(names)}; {options.repeats} repetitions")
    loaded = bridge.Bridge(options.bridge) if options.bridge.is_file() else None
    for comparison, dtype, regimes in tasks:
        print(f"  {comparison.section}: {comparison.name} {dtype}, {', '.join(regimes) or 'accuracy only'}")
        for role in comparison.roles:
            line = f"    {role.label or '-'}: {role.problem.name}, {', '.join(role.peers) or 'no peers'}"
            if loaded:
                line += f", {loaded.description_of(role.problem, dtype)['flops'] / 1e12:.3f} TFLOP"
            print(line)
    if not loaded:
        print(f"bridge: {options.bridge} is missing; the target backlight_peers_bridge makes it")
        return 1
    try:
        session = bridge.Session(loaded, options.device)
    except bridge.BridgeError as error:
        print(f"bridge: loaded; device {options.device}: {error}")
        return 0
    # The first of each section tells what the library takes.
    firsts = {comparison.section: comparison for comparison, _, _ in reversed(tasks)}
    for comparison in reversed(firsts.values()):
        for role, kernel in itertools.product(comparison.roles, options.kernel):
            what = f"bridge: {comparison.section} {role.problem.name} {kernel}"
            try:
                plan = session.plan(role.problem, "bf16", kernel)
                print(f"{what}: {plan.description['config']}, {plan.workspace_bytes} bytes of workspace")
                plan.free()
            except bridge.BridgeError as error:
                print(f"{what}: {error}")
    session.close()
    return 0


def print_tables(document):
    for regime in ("cool", "hot"):
        for section in dict.fromkeys(entry["section"] for entry in document["cells"]):
            of_section = report.table if section == "cells" else report.section_table
            text = of_section(document, section, regime)
            if text:
                print("\n" + text)
    if document["accuracy"]:
        print("\n" + report.accuracy_table(document))


def draw_plot(document, path):
    try:
        chart.draw(document, path)
    except (KeyError, ValueError) as error:
        print(error)
        return 1
    print(f"{path}: drawn")
    return 0


def main(arguments=None):
    options = parse_arguments(arguments)
    if options.plot_from:
        return draw_plot(json.loads(options.plot_from.read_text()), options.plot)
    if options.dry_run:
        return dry_run(options, tasks_of(options))
    import imported_contestants  # These need PyTorch, which a dry run does not.
    import measurement

    imported, absent = imported_contestants.find_imported(
        [peer for peer in options.peers if peer in imported_contestants.MODULES and not (peer == "fa3" and options.fa3)]
    )
    for peer, reason in absent.items():
        print(f"{peer} is left out: {reason}")
    options.peers = [peer for peer in options.peers if peer not in absent]
    run = measurement.Run(options, tasks_of(options), imported)
    run.document["absent"] = absent
    complete = run.run()
    run.document["seconds"] = time.monotonic() - run.begun
    report.write_json(options.output, run.document)
    print_tables(run.document)
    for inaccurate in report.inaccurate_of_ours(run.document):
        print(f"inaccurate: {inaccurate}")
    print(f"\n{options.output}: written after {run.document['seconds']:.0f} s")
    failed = draw_plot(run.document, options.plot) if options.plot else 0
    return 0 if complete and not failed and not report.inaccurate_of_ours(run.document) else 1


if __name__ == "__main__":
    sys.exit(main())
