"""A measurement under way: the document grows comparison by comparison and is written after each."""

import concurrent.futures
import hashlib
import sys
import time

import torch

import accuracy
import bridge
import contestants
import general_contestants
import imported_contestants
import report
import timing
from inputs import Inputs
from problems import contestant_name, split_name

# Who computes the forward that all others are given: the first of these that can.
LENDERS = ("fa2", "cudnn", "cudnn_expanded", "fa3", "fa4")


class Run:
    """`tasks`: (comparison, dtype, regimes). `imported`: {peer: ImportedFlashAttention}."""

    def __init__(self, options, tasks, imported):
        if not torch.cuda.is_available():
            sys.exit("bench_peers: PyTorch finds no CUDA device: it must have one")
        self.options, self.tasks = options, tasks
        torch.cuda.set_device(f"cuda:{options.device}")
        torch.cuda.init()
        torch.zeros(1, device="cuda")  # Makes the primary context, which the library shares.
        self.session = bridge.Session(bridge.Bridge(options.bridge), options.device)
        self.imported = imported
        self.fa3 = contestants.FlashAttention3Library(options.fa3) if options.fa3 else imported.get("fa3")
        self.timer = timing.Timer(self.session.clocks, options.spin_ms)
        self.begun = time.monotonic()
        # Compiled beside each other, before anything is timed.
        self.planning = concurrent.futures.ThreadPoolExecutor()
        self.plans = {
            (index, role.label, kernel): self.planning.submit(self.session.plan, role.problem, dtype, kernel)
            for index, (comparison, dtype, _) in enumerate(tasks)
            for role in comparison.roles
            for kernel in options.kernel
        }
        concurrent.futures.wait(self.plans.values())
        self.document = self.session.environment() | {
            "torch": {
                "version": torch.__version__,
                "cuda": torch.version.cuda,
                "cudnn": torch.backends.cudnn.version(),
            },
            "fa3": self.fa3.description if self.fa3 else None,
            "fa4": imported["fa4"].description if "fa4" in imported else None,
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
                "flops": "10·B·H·N²·d, half when causal; with other masks or head dimensions "
                "(6·d + 4·d_v)·B·H·pairs of a query and a key that it attends to",
            },
            "cells": [],
            "accuracy": [],
        }

    def _make_peer(self, name, comparison, problem, inputs):
        of_problem = inputs.shared_with(problem)
        if name == "cudnn_expanded":
            return general_contestants.ExpandedCudnn(of_problem)
        if name in self.imported:
            return imported_contestants.FlashAttention(self.imported[name], of_problem)
        if name == "fa3":
            return contestants.FlashAttention3(self.fa3, of_problem)
        if name == "fa2" and comparison.section != "cells":
            return general_contestants.FlashAttention2(of_problem)
        return contestants.PyTorchBackend(name, of_problem)

    def make_contestants(self, index, role, inputs, errors):
        """Those of one role that can be made and run; why not, for the others, goes into `errors`."""
        comparison = self.tasks[index][0]
        made = []

        def add(contestant, make):
            name = contestant_name(contestant, role.label)
            try:
                one = make()
                one.name = name
                self.timer.warm_up(one)
                made.append(one)
                return one
            except timing.DeviceLost:
                errors[name] = "the device was lost while it ran"
                raise
            except Exception as error:  # Whatever one contestant does, the others are measured.
                errors[name] = f"{type(error).__name__}: {error}"
                timing.check_device()
                return None

        # Those with a forward of their own come first, as it is lent to the others.
        for name in sorted(role.peers, key=LENDERS.index):
            if name in ("fa3", "fa4") and inputs.out is None:
                inputs.compute_forward()
            peer = add(name, lambda: self._make_peer(name, comparison, role.problem, inputs))
            if peer is not None and inputs.out is None:
                inputs.set_forward(peer.out, peer.lse)
        if inputs.out is None:
            inputs.compute_forward()
        for kernel in self.options.kernel:
            plan = self.plans.pop((index, role.label, kernel))
            add(f"backlight/{kernel}",
                lambda: contestants.Backlight(kernel, plan.result(), role.problem, inputs))
        order = [f"backlight/{kernel}" for kernel in self.options.kernel] + list(role.peers)
        return sorted(made, key=lambda c: order.index(split_name(c.name)[0]))

    def entry_of(self, comparison, dtype):
        problem = comparison.problem
        roles = {
            role.label: self.session.bridge.description_of(role.problem, dtype) for role in comparison.roles
        }
        return {
            "cell": comparison.name,
            "section": comparison.section,
            "batch": problem.batch,
            "heads": problem.heads,
            "seqlen": problem.seqlen,
            "head_dim": problem.head_dim,
            "causal": problem.causal,
            "dtype": dtype,
            "layout": comparison.layout or self.options.layout,
            "flops": roles[""]["flops"],
            "roles": roles,
            "regimes": {},
            "errors": {},
        }

    def measure(self, index):
        comparison, dtype, regimes = self.tasks[index]
        entry = self.entry_of(comparison, dtype)
        if regimes:
            self.document["cells"].append(entry)
        shared, taking_part = {}, {}
        try:
            for role in comparison.roles:
                key = role.problem.with_plain_gradients()
                if key not in shared:
                    shared[key] = Inputs(key, dtype, comparison.layout or self.options.layout)
                made = self.make_contestants(index, role, shared[key], entry["errors"])
                taking_part.setdefault(key, []).extend(made)
            together = [contestant for made in taking_part.values() for contestant in made]
            entry["contestants"] = {c.name: c.description for c in together}
            flops = {label: role["flops"] for label, role in entry["roles"].items()}
            for regime in regimes:
                samples = self.timer.time_interleaved(together, self.options.repeats, regime)
                entry["regimes"][regime] = report.timing_json(comparison, flops, samples)
                print(f"    {regime}: {report.timing_line(entry['regimes'][regime])}", flush=True)
            if not self.options.no_accuracy:
                results = {}
                for key, made in taking_part.items():
                    results |= accuracy.accuracy_of(shared[key], made)
                results |= {name: {"error": error} for name, error in entry["errors"].items()}
                self.document["accuracy"].append(
                    {"cell": comparison.name, "section": comparison.section, "dtype": dtype,
                     "contestants": results}
                )
        finally:
            for made in taking_part.values():
                for contestant in made:
                    contestant.close()
            for name, error in entry["errors"].items():
                print(f"    {name} FAILED: {error}", flush=True)

    def run(self):
        options = self.options
        # About what a comparison costs: pauses and setting up, then the work itself.
        costs = [
            (1 + len(regimes)) * sum(1 + self._flops(role, dtype) / 4e12 for role in comparison.roles)
            for comparison, dtype, regimes in self.tasks
        ]
        stream = torch.cuda.Stream()
        for index, (comparison, dtype, _) in enumerate(self.tasks):
            what = f"{comparison.section} {comparison.name} {dtype}".removeprefix("cells ")
            elapsed = time.monotonic() - self.begun
            left = elapsed * sum(costs[index:]) / sum(costs[:index]) if index else None
            print(f"[{index + 1}/{len(self.tasks)}] {what}, {elapsed:.0f} s"
                  + (f", about {left:.0f} s left" if left is not None else ""), flush=True)
            if elapsed > options.seconds:
                self.document["stopped"] = f"{options.seconds} s were over before {what}"
                print(f"stopped: {self.document['stopped']}")
                break
            try:
                with torch.cuda.stream(stream):
                    self.measure(index)
            except timing.DeviceLost as error:
                self.document["stopped"] = f"the device was lost at {what}: {error}"
                print(f"stopped: {self.document['stopped']}")
                return False
            except Exception as error:  # The comparison's own, such as memory that does not suffice.
                self.document.setdefault("failed_cells", {})[what] = str(error)
                print(f"    FAILED: {type(error).__name__}: {error}")
            finally:
                report.write_json(options.output, self.document)
        return True

    def _flops(self, role, dtype):
        return self.session.bridge.description_of(role.problem, dtype)["flops"]
