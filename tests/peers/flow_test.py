"""The whole flow of bench_peers.py, with PyTorch on the CPU. Ours are planned for the emulated device, which
runs nothing on memory that is not its own: their gradients are computed by the reference. Left out by name
where PyTorch or the bridge is missing."""

import contextlib
import io
import json
import os
import sys
import tempfile
import types
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import bench_peers
import bridge
import sections
from problems import Comparison, Problem, Role

try:
    import cuda_double
    import accuracy
    import contestants
    import imported_contestants
    import timing
    import torch

    class Computed(contestants.Backlight):
        """Writes to the gradients, in the plan's layout and type."""

        def __init__(self, kernel, plan, problem, inputs):
            super().__init__(kernel, plan, problem, inputs)
            self.run = self._compute

        def _compute(self):
            inputs, group = self._inputs, self._inputs.problem.group
            for sequence in inputs.sequences():
                outputs = [inputs.of_sequence(x, sequence) for x in self._gradients]
                for head in range(inputs.problem.effective_heads_kv):
                    computed = accuracy.reference_gradients(inputs, sequence, head)
                    for output, value, first in zip(outputs, computed, (head * group, head, head)):
                        output[first : first + value.numel() // output[0].numel()] = value

    def _gradients(dout, q, k, v, scale, causal):
        """Of (batch, seqlen, heads, head_dim)."""
        inputs = [x.transpose(1, 2).detach().float().requires_grad_() for x in (q, k, v)]
        out, _ = cuda_double._attention(*inputs, scale, None, 0 if causal else None)
        gradients = torch.autograd.grad(out, inputs, dout.transpose(1, 2).float())
        return [x.transpose(1, 2).to(q.dtype) for x in gradients]

    def _flash_attn_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, softmax_scale=None, is_causal=False):
        for given, computed in zip((dq, dk, dv), _gradients(dout, q, k, v, softmax_scale, is_causal)):
            given.copy_(computed)

    def _flash_attn_bwd(q, k, v, out, dout, lse, softmax_scale=None, causal=False, softcap=0.0):
        return tuple(_gradients(dout, q, k, v, softmax_scale, causal))

    def modules(**functions):
        """Modules of these names, a dot for each "__", that have these functions."""
        made = {}
        for name, function in functions.items():
            module = made[name.replace("__", ".")] = types.ModuleType(name)
            setattr(module, function.__name__, function)
        return made

except ImportError:
    cuda_double = None

BRIDGE = Path(os.environ.get("BACKLIGHT_PEERS_BRIDGE", bridge.DEFAULT_PATH))

PLAIN = Problem(1, 2, 64, 64, True)
PEERS = ("cudnn", "cudnn_expanded", "fa2")
COMPARISONS = [
    Comparison("grouped", (Role("", replace(PLAIN, heads_kv=1), PEERS),), least_speed_ratio=(("cudnn", 0.5),)),
    Comparison(
        "window",
        (
            Role("", PLAIN, ("cudnn", "fa2")),
            Role("window", replace(PLAIN, window_left=9), ("cudnn", "fa2")),
            Role("deterministic", replace(PLAIN, deterministic=True), ("fa2",)),
            Role("64/32", replace(PLAIN, head_dim_v=32), ("fa2",)),
            Role("fp32", replace(PLAIN, gradient_type="fp32")),
        ),
        least_rate_ratio=0.5,
    ),
    Comparison(
        "packed",
        (Role("", PLAIN, ("fa2",)), Role("packed", Problem.packed((64, 1, 40), 2, 64, True), ("cudnn", "fa2"))),
        layout="bshd",
    ),
]


@unittest.skipUnless(cuda_double, "there is no PyTorch")
@unittest.skipUnless(BRIDGE.is_file(), f"there is no {BRIDGE}")
class Flow(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as patches:
            output = Path(folder) / "peers.json"
            for where, name, value in (
                (timing, "FLUSH_BYTES", 1 << 10),
                (timing, "COOL_PAUSE_SECONDS", 0),
                (timing.Timer, "_cycles_of", staticmethod(lambda milliseconds: 0)),
                (bench_peers, "LEAST_REPEATS", 3),
                (bridge.Session, "environment", lambda self: {"gpu": {"name": "none"}}),
                (contestants, "Backlight", Computed),
                (bridge.Session, "clocks", lambda self: (1000.0, None)),
                (sections, "comparisons", lambda names, peers: COMPARISONS),
            ):
                patches.enter_context(mock.patch.object(where, name, value))
            # As older releases of FlashAttention-3 have it, which write, and first ones of 4, which return.
            patches.enter_context(mock.patch.dict(sys.modules, {
                **modules(flash_attn_interface=_flash_attn_backward, flash_attn__cute__interface=_flash_attn_bwd),
                "flash_attn": types.ModuleType("flash_attn"), "flash_attn.cute": types.ModuleType("flash_attn.cute"),
            }))
            cls.said = patches.enter_context(contextlib.redirect_stdout(io.StringIO()))
            patches.enter_context(mock.patch("sys.argv", [
                "bench_peers.py", "--section", "grouped", "--cells", "1_1_64_64_full", "--device",
                "emulated", "--repeats", "3", "--bridge", str(BRIDGE), "--output", str(output),
            ]))
            cls.result = bench_peers.main()
            cls.document = json.loads(output.read_text())

    def test_it_ends_well_and_all_that_ran_is_accurate(self):
        self.assertEqual(self.result, 0, self.said.getvalue())
        self.assertNotIn("failed_cells", self.document)
        for entry in self.document["accuracy"]:
            for name, result in entry["contestants"].items():
                if "error" not in result:
                    self.assertTrue(result["accurate"], f"{entry['cell']} {name}: {result}")

    def entry(self, section):
        return next(e for e in self.document["cells"] if e["section"] == section)

    def test_a_cell_is_timed_in_both_regimes_by_all(self):
        cell = self.entry("cells")
        for regime in ("cool", "hot"):
            timed = cell["regimes"][regime]["contestants"]
            self.assertEqual(list(timed), ["backlight/default", "cudnn", "fa2", "fa3", "fa4"])
            self.assertTrue(all(len(e["samples_ms"]) == 3 and e["median_ms"] for e in timed.values()))

    def test_what_is_imported_is_told_and_compared_with_fp32(self):
        self.assertEqual(self.document["fa3"]["module"], "flash_attn_interface")
        self.assertEqual(self.document["fa4"]["function"], "_flash_attn_bwd")
        self.assertEqual(self.document["absent"], {})
        (accuracy,) = [e for e in self.document["accuracy"] if e["section"] == "cells"]
        for peer in ("fa3", "fa4"):
            self.assertTrue(accuracy["contestants"][peer]["accurate"], peer)

    def test_what_cannot_be_imported_is_left_out_with_the_reason(self):
        with mock.patch.dict(sys.modules, {"flash_attn_interface": types.ModuleType("other"), "flash_attn": None}):
            found, absent = imported_contestants.find_imported(["fa3", "fa4"])
        self.assertEqual(found, {})
        self.assertIn("_flash_attn_backward", absent["fa3"])
        self.assertIn("flash_attn", absent["fa4"])

    def test_a_peer_that_takes_a_role_is_timed_on_it(self):
        timed = self.entry("grouped")["regimes"]["cool"]["contestants"]
        self.assertLessEqual({"cudnn", "cudnn_expanded", "fa2"}, set(timed))
        timed = self.entry("window")["regimes"]["cool"]["contestants"]
        self.assertLessEqual({"fa2", "fa2[window]", "fa2[deterministic]", "fa2[64/32]"}, set(timed))

    def test_who_does_not_take_a_role_says_why_in_its_place(self):
        errors = self.entry("window")["errors"]
        self.assertIn("takes no window", errors["cudnn[window]"])
        # Whatever the library does not take on this device, it says so; the rest is timed.
        entries = self.document["cells"]
        for entry in entries:
            timed = entry["regimes"]["cool"]["contestants"]
            for label in entry["roles"]:
                ours = f"backlight/default[{label}]" if label else "backlight/default"
                self.assertTrue(ours in timed or "unsupported" in entry["errors"].get(ours, ""), ours)

    def test_packed_sequences_are_computed_each_by_itself(self):
        entry = self.entry("packed")
        self.assertIn("fa2[packed]", entry["regimes"]["cool"]["contestants"])
        self.assertIn("takes no packed sequences", entry["errors"]["cudnn[packed]"])
        pairs = entry["roles"]["packed"]["attended_pairs"]
        self.assertEqual(pairs, (64 * 64 + 1 + 40 * 40) / 2)
        (accuracy,) = [e for e in self.document["accuracy"] if e["section"] == "packed"]
        # The first and the last sequence.
        self.assertEqual(accuracy["contestants"]["fa2[packed]"]["heads"], [[0, 0], [2, 1]])

    def test_pairs_and_flops_are_the_library_s(self):
        roles = self.entry("window")["roles"]
        self.assertEqual(roles[""]["attended_pairs"], 64 * 64 / 2)
        self.assertEqual(roles["window"]["attended_pairs"], 10 * 64 - 45)
        self.assertEqual(roles["64/32"]["flops"], 2 * 2048 * (6 * 64 + 4 * 32))
        figure = next(f for f in self.entry("window")["regimes"]["cool"]["figures"] if f["of"] == "fa2[window]")
        self.assertAlmostEqual(figure["work_ratio"], (10 * 64 - 45) / 2048)

    def test_determinism_is_asked_of_its_own_role_alone(self):
        asked = {deterministic for name, deterministic in cuda_double.calls if name == "_flash_attention_backward"}
        self.assertEqual(asked, {True, False})
        forwards = {deterministic for name, deterministic in cuda_double.calls if "cudnn" in name}
        self.assertEqual(forwards, {False})


if __name__ == "__main__":
    unittest.main()
