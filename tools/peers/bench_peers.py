#!/usr/bin/env python3
"""Times Backlight's whole backward beside PyTorch's cuDNN and FlashAttention-2 backends and, where its
library is given, FlashAttention-3, and compares the gradients of all with fp32 (docs/measuring.md)."""

import argparse
import hashlib
import sys
import time
from pathlib import Path

import bridge
import cells
import report

PEERS = ("cudnn", "fa2", "fa3")
LEAST_REPEATS = 20


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cells", action="append", default=[], metavar="CELL",
        help="8_16_4096_128_causal, or a pattern such as '*_128_full'; may be repeated [all 24]",
    )
    parser.add_argument(
        "--kernel", action="append", metavar="NAME",
        help="default, a preset, or a name such as tile_64_64_8_2 or wgmma_64_128_16_3_heads_4; with :baked behind it, sequence lengths are "
        "constants of the kernel; may be repeated [default]",
    )
    parser.add_argument(
        "--peers", default="cudnn,fa2,fa3", help="[cudnn,fa2,fa3]; fa3 needs --fa3; none: an empty word"
    )
    parser.add_argument("--fa3", type=Path, metavar="LIBRARY", help="FlashAttention-3's backward")
    parser.add_argument("--regime", choices=("cool", "hot", "both"), default="both")
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
    parser.add_argument("--output", type=Path, default=Path("peers.json"), metavar="JSON")
    parser.add_argument("--dry-run", action="store_true", help="say what would be measured; no GPU is used")
    options = parser.parse_args(arguments)

    options.kernel = options.kernel or ["default"]
    options.peers = [peer for peer in options.peers.split(",") if peer]
    for peer in options.peers:
        if peer not in PEERS:
            parser.error(f"peers has '{peer}': each must be one of {', '.join(PEERS)}")
    if options.fa3 is None and "fa3" in options.peers:
        options.peers.remove("fa3")
    if options.fa3 is not None and not options.fa3.is_file():
        parser.error(f"fa3 is '{options.fa3}': there is no such file")
    if options.repeats < LEAST_REPEATS:
        parser.error(f"repeats is {options.repeats}: it must be {LEAST_REPEATS} or more")
    if not 1 <= options.spin_ms <= 100:
        parser.error(f"spin-ms is {options.spin_ms}: it must be from 1 to 100")
    if options.no_accuracy and options.accuracy_only:
        parser.error("no-accuracy and accuracy-only are both given: nothing would be left to do")
    try:
        options.cells = cells.select_cells(options.cells)
    except ValueError as error:
        parser.error(str(error))
    options.regimes = ["cool", "hot"] if options.regime == "both" else [options.regime]
    if options.accuracy_only:
        options.regimes = []
    return options


def accuracy_tasks(options):
    """Cells whose accuracy alone is looked at: in fp16, and in bf16 where nothing is timed."""
    if options.no_accuracy:
        return []
    fp16 = [(cell, "fp16") for cell in options.cells if cell in cells.FP16_CELLS]
    bf16 = [(cell, "bf16") for cell in options.cells] if options.accuracy_only else []
    return bf16 + fp16


def dry_run(options):
    names = [f"backlight/{kernel}" for kernel in options.kernel] + options.peers
    print(f"{len(options.cells)} cells, {len(names)} contestants: {', '.join(names)}")
    print(f"regimes: {', '.join(options.regimes) or 'none'}; {options.repeats} repetitions")
    for cell in options.cells:
        print(f"  {cell.name}  {cell.flops / 1e12:.3f} TFLOP")
    for cell, dtype in accuracy_tasks(options):
        print(f"  {cell.name} {dtype}: accuracy only")
    if not options.bridge.is_file():
        print(f"bridge: {options.bridge} is missing; the target backlight_peers_bridge makes it")
        return 1
    loaded = bridge.Bridge(options.bridge)
    try:
        session = bridge.Session(loaded, options.device)
    except bridge.BridgeError as error:
        print(f"bridge: loaded; device {options.device}: {error}")
        return 0
    for kernel in options.kernel:
        try:
            plan = session.plan(options.cells[0], "bf16", kernel)
            print(f"bridge: {options.cells[0].name} {kernel}: {plan.description['config']}, "
                  f"{plan.workspace_bytes} bytes of workspace")
            plan.free()
        except bridge.BridgeError as error:
            print(f"bridge: {options.cells[0].name} {kernel}: {error}")
    session.close()
    return 0


class Run:
    """A measurement under way: the document grows cell by cell and is written after each."""

    def __init__(self, options):
        import contestants
        import torch

        import accuracy
        import timing

        self.options, self.torch = options, torch
        self.contestants, self.timing, self.accuracy = contestants, timing, accuracy
        torch.cuda.set_device(int(options.device))
        torch.cuda.init()
        torch.zeros(1, device="cuda")  # Makes the primary context, which the library shares.
        self.session = bridge.Session(bridge.Bridge(options.bridge), options.device)
        self.fa3 = contestants.FlashAttention3Library(options.fa3) if "fa3" in options.peers else None
        self.timer = timing.Timer(self.session.clocks, options.spin_ms)
        self.begun = time.monotonic()
        self.document = self.session.environment() | {
            "torch": {
                "version": torch.__version__,
                "cuda": torch.version.cuda,
                "cudnn": torch.backends.cudnn.version(),
            },
            "fa3": self.fa3.description if self.fa3 else None,
            "bridge": {"sha256": hashlib.sha256(options.bridge.read_bytes()).hexdigest()},
            "protocol": {
                "clock": "CUDA events around the whole backward",
                "statistic": "median of the samples that are not late",
                "repeats": options.repeats,
                "warm_up": timing.WARM_UP,
                "interleaved": True,
                "pause_ms": {"cool": timing.COOL_PAUSE_SECONDS * 1e3, "hot": 0},
                "spin_ms": options.spin_ms,
                "flush_bytes": timing.FLUSH_BYTES,
                "layout": options.layout,
                "inputs": "N(0, 1); O and LSE of PyTorch's forward",
                "flops": "10·B·H·N²·d, half when causal",
            },
            "cells": [],
            "accuracy": [],
        }

    def make_contestants(self, inputs, errors):
        """Those that can be made and run; why not, for the others, goes into `errors`."""
        made = []

        def add(name, make):
            try:
                contestant = make()
                self.timer.warm_up(contestant)
                made.append(contestant)
                return contestant
            except self.timing.DeviceLost:
                errors[name] = "the device was lost while it ran"
                raise
            except Exception as error:  # Whatever one contestant does, the others are measured.
                errors[name] = f"{type(error).__name__}: {error}"
                self.timing.check_device()
                return None

        backends = {}
        for name in ("fa2", "cudnn"):
            # One of them has to lend its forward even if neither takes part.
            if name in self.options.peers or not backends:
                backends[name] = add(name, lambda: self.contestants.PyTorchBackend(name, inputs))
                if backends[name] is None:
                    del backends[name]
                elif inputs.out is None:
                    inputs.set_forward(backends[name].out, backends[name].lse)
        if inputs.out is not None:
            if self.fa3 and inputs.dtype == "bf16":
                add("fa3", lambda: self.contestants.FlashAttention3(self.fa3, inputs))
            for kernel in self.options.kernel:
                add(f"backlight/{kernel}",
                    lambda: self.contestants.Backlight(self.session, kernel, inputs))
        wanted = [c for c in made if report.is_ours(c.name) or c.name in self.options.peers]
        order = [f"backlight/{kernel}" for kernel in self.options.kernel] + list(PEERS)
        return sorted(wanted, key=lambda c: order.index(c.name))

    def measure(self, cell, dtype, regimes):
        inputs = self.contestants.Inputs(cell, dtype, self.options.layout)
        entry = {
            "cell": cell.name,
            "batch": cell.batch,
            "heads": cell.heads,
            "seqlen": cell.seqlen,
            "head_dim": cell.head_dim,
            "causal": cell.causal,
            "dtype": dtype,
            "flops": cell.flops,
            "regimes": {},
            "errors": {},
        }
        if regimes:
            self.document["cells"].append(entry)
        taking_part = []
        try:
            taking_part = self.make_contestants(inputs, entry["errors"])
            entry["contestants"] = {c.name: c.description for c in taking_part}
            for regime in regimes:
                samples = self.timer.time_interleaved(taking_part, self.options.repeats, regime)
                entry["regimes"][regime] = report.timing_json(cell, samples)
                print(f"    {regime}: {report.timing_line(entry['regimes'][regime])}", flush=True)
            if not self.options.no_accuracy:
                results = self.accuracy.accuracy_of(inputs, taking_part)
                results |= {name: {"error": error} for name, error in entry["errors"].items()}
                self.document["accuracy"].append(
                    {"cell": cell.name, "dtype": dtype, "contestants": results}
                )
        finally:
            for contestant in taking_part:
                contestant.close()
            for name, error in entry["errors"].items():
                print(f"    {name} FAILED: {error}", flush=True)

    def run(self):
        options = self.options
        tasks = [] if options.accuracy_only else [(c, "bf16", options.regimes) for c in options.cells]
        tasks += [(cell, dtype, []) for cell, dtype in accuracy_tasks(options)]
        # About what a cell costs: pauses and setting up, then the work itself.
        costs = [(1 + len(regimes)) * (1 + cell.flops / 4e12) for cell, _, regimes in tasks]
        stream = self.torch.cuda.Stream()
        for index, (cell, dtype, regimes) in enumerate(tasks):
            elapsed = time.monotonic() - self.begun
            left = elapsed * sum(costs[index:]) / sum(costs[:index]) if index else None
            print(f"[{index + 1}/{len(tasks)}] {cell.name} {dtype}, {elapsed:.0f} s"
                  + (f", about {left:.0f} s left" if left is not None else ""), flush=True)
            if elapsed > options.seconds:
                self.document["stopped"] = f"{options.seconds} s were over before {cell.name} {dtype}"
                print(f"stopped: {self.document['stopped']}")
                break
            try:
                with self.torch.cuda.stream(stream):
                    self.measure(cell, dtype, regimes)
            except self.timing.DeviceLost as error:
                self.document["stopped"] = f"the device was lost at {cell.name} {dtype}: {error}"
                print(f"stopped: {self.document['stopped']}")
                return False
            except Exception as error:  # The cell's own, such as memory that does not suffice.
                self.document.setdefault("failed_cells", {})[f"{cell.name} {dtype}"] = str(error)
                print(f"    FAILED: {type(error).__name__}: {error}")
            finally:
                report.write_json(options.output, self.document)
        return True


def main():
    options = parse_arguments()
    if options.dry_run:
        return dry_run(options)
    run = Run(options)
    complete = run.run()
    run.document["seconds"] = time.monotonic() - run.begun
    report.write_json(options.output, run.document)
    for regime in options.regimes:
        print("\n" + report.table(run.document, regime))
    if not options.no_accuracy:
        print("\n" + report.accuracy_table(run.document))
    print(f"\n{options.output}: written after {run.document['seconds']:.0f} s")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
