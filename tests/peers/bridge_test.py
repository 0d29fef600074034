"""What crosses between Python and the library: needs the bridge, no GPU, no PyTorch."""

import os
import unittest
from dataclasses import replace
from pathlib import Path

import bridge
import sections
from problems import Problem

PATH = Path(os.environ.get("BACKLIGHT_PEERS_BRIDGE", bridge.DEFAULT_PATH))
PLAIN = Problem(2, 4, 256, 64, True)


@unittest.skipUnless(PATH.is_file(), f"there is no {PATH}")
class Bridge(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bridge = bridge.Bridge(PATH)

    def test_the_library_tells_pairs_and_flops(self):
        plain = self.bridge.description_of(PLAIN, "bf16")
        self.assertEqual(plain["attended_pairs"], 256 * 256 / 2)
        self.assertEqual(plain["flops"], 2 * 4 * 10 * 64 * 256 * 256 / 2)
        windowed = self.bridge.description_of(replace(PLAIN, window_left=0, head_dim_v=32), "bf16")
        self.assertEqual(windowed["attended_pairs"], 256)
        self.assertEqual(windowed["flops"], 2 * 4 * 256 * (6 * 64 + 4 * 32))

    def test_every_field_of_a_problem_arrives(self):
        problem = replace(
            PLAIN, heads_kv=2, head_dim_v=32, window_left=3, window_right=5, gradient_type="fp32",
            accumulate_gradients=True, deterministic=True,
        )
        arrived = self.bridge.description_of(problem, "fp16")["problem"]
        sent = problem.as_json("fp16")
        seqlen = sent.pop("seqlen")
        self.assertEqual((arrived["seqlen_q"], arrived["seqlen_kv"]), (seqlen, seqlen))
        self.assertEqual({name: arrived[name] for name in sent}, sent)
        self.assertAlmostEqual(arrived["softmax_scale"], problem.softmax_scale)

    def test_the_library_understands_the_problems_of_all_sections(self):
        for comparison in sections.comparisons(sections.NAMES, ["cudnn", "fa2"]):
            for role in comparison.roles:
                self.assertGreater(self.bridge.description_of(role.problem, "bf16")["flops"], 0)

    def test_packed_sequences_have_the_pairs_of_each(self):
        described = self.bridge.description_of(Problem.packed((3, 5, 0), 2, 64, False), "bf16")
        self.assertEqual(described["attended_pairs"], 9 + 25)
        self.assertEqual(described["flops"], 2 * 34 * 10 * 64)
        self.assertEqual(described["lengths"], [3, 5, 0])
        with self.assertRaises(bridge.BridgeError) as refused:
            self.bridge.description_of(Problem.packed((3, -1), 2, 64, False), "bf16")
        self.assertIn("lengths is [3,-1]", str(refused.exception))

    def test_what_is_no_problem_is_refused_with_the_field(self):
        for changed, words in (
            ({"heads": 0}, "heads is 0"), ({"window_left": -1}, "window_left"), ({"gradient_type": "fp64"}, "fp64"),
        ):
            with self.assertRaises(bridge.BridgeError) as refused:
                self.bridge.description_of(replace(PLAIN, **changed), "bf16")
            self.assertIn(words, str(refused.exception))

    def test_a_problem_that_no_kernel_takes_is_refused_with_the_library_s_text(self):
        session = bridge.Session(self.bridge, "emulated")
        with self.assertRaises(bridge.BridgeError) as refused:
            session.plan(replace(PLAIN, head_dim=264), "bf16", "default")
        self.assertIn("head_dim is 264", str(refused.exception))
        session.close()


if __name__ == "__main__":
    unittest.main()
