"""Problems, sections and what is asked for on the command line: no GPU, no PyTorch, no bridge."""

import contextlib
import io
import unittest
from dataclasses import replace

import bench_peers
import cells
import sections
from problems import Problem, contestant_name, split_name

PLAIN = Problem(8, 16, 4096, 128, True)


class Problems(unittest.TestCase):
    def test_a_plain_problem_is_called_as_cells_are(self):
        self.assertEqual(PLAIN.name, "8_16_4096_128_causal")
        self.assertEqual(cells.parse_cell(PLAIN.name), PLAIN)
        self.assertTrue(PLAIN.is_plain)

    def test_what_is_not_plain_is_in_the_name(self):
        general = replace(
            PLAIN, heads_kv=2, head_dim_v=64, window_left=5, gradient_type="fp32",
            accumulate_gradients=True, deterministic=True,
        )
        self.assertEqual(
            general.name,
            "8_16/2_4096_128/64_causal_window_5,all_fp32_accumulated_deterministic",
        )
        self.assertEqual(general.group, 8)
        self.assertFalse(general.is_plain)

    def test_json_has_what_is_given_and_leaves_the_rest_to_the_library(self):
        self.assertEqual(
            replace(PLAIN, window_left=0).as_json("fp16"),
            {
                "batch": 8, "heads": 16, "seqlen": 4096, "head_dim": 128, "causal": True,
                "window_left": 0, "dtype": "fp16", "gradient_type": "input",
                "accumulate_gradients": False, "deterministic": False,
            },
        )

    def test_inputs_are_shared_by_problems_that_differ_in_their_gradients_only(self):
        for change in ({"gradient_type": "fp32"}, {"accumulate_gradients": True}, {"deterministic": True}):
            self.assertEqual(replace(PLAIN, **change).with_plain_gradients(), PLAIN)
        windowed = replace(PLAIN, window_left=1)
        self.assertEqual(windowed.with_plain_gradients(), windowed)

    def test_packed_sequences_lie_one_after_another(self):
        packed = Problem.packed((64, 1, 40), 2, 128, True)
        self.assertEqual(packed.name, "3_2_packed105_128_causal")
        self.assertEqual((packed.batch, packed.seqlen, packed.rows), (3, 64, 105))
        self.assertEqual(packed.starts, [0, 64, 65, 105])
        self.assertEqual(packed.as_json("bf16")["lengths"], (64, 1, 40))

    def test_the_name_of_a_contestant_tells_its_role(self):
        for label in ("", "128/96"):
            self.assertEqual(split_name(contestant_name("backlight/v4:baked", label)),
                             ("backlight/v4:baked", label))


class Sections(unittest.TestCase):
    def test_every_section_compares_roles_of_different_labels_and_problems(self):
        for name in sections.NAMES:
            compared = sections.comparisons([name], ["cudnn", "fa2"])
            self.assertTrue(compared, name)
            self.assertEqual(len(compared), len({c.name for c in compared}), name)
            for comparison in compared:
                self.assertEqual(comparison.section, name)
                self.assertEqual(comparison.roles[0].label, "")
                for field in ("label", "problem"):
                    values = [getattr(role, field) for role in comparison.roles]
                    self.assertEqual(len(values), len(set(values)), f"{comparison.name} {field}")

    def test_the_dense_batch_beside_packed_sequences_has_about_their_pairs(self):
        lengths = sections.PACKED_LENGTHS
        self.assertEqual((len(lengths), min(lengths), max(lengths)), (16, 128, 4096))
        length = sections.equal_work_length(lengths)
        self.assertEqual(length % 128, 0)
        self.assertAlmostEqual(16 * length**2 / sum(n**2 for n in lengths), 1, delta=0.05)

    def test_peers_that_take_no_part_are_left_out_with_their_other_ways(self):
        def peers(wanted):
            return sections.comparisons(["grouped"], wanted)[0].roles[0].peers

        self.assertEqual(peers(["cudnn", "fa2"]), ("cudnn", "cudnn_expanded", "fa2"))
        self.assertEqual(peers(["fa2"]), ("fa2",))
        self.assertEqual(peers(["cudnn", "fa3"]), ("cudnn", "cudnn_expanded"))

    def test_fa3_and_fa4_take_part_where_the_problem_is_plain(self):
        for peer in ("fa3", "fa4"):
            roles = sections.comparisons(["types"], [peer])[0].roles
            self.assertEqual({role.label for role in roles if role.peers}, {"", "4095"})


class CommandLine(unittest.TestCase):
    def tasks(self, *arguments):
        return bench_peers.tasks_of(bench_peers.parse_arguments(arguments))

    def test_without_a_section_all_cells_are_timed_in_both_regimes(self):
        tasks = self.tasks("--no-accuracy")
        self.assertEqual([c.problem for c, _, _ in tasks], list(cells.ALL_CELLS))
        self.assertTrue(all(regimes == ["cool", "hot"] for _, _, regimes in tasks))

    def test_a_section_is_timed_cool_and_without_cells_that_are_not_named(self):
        tasks = self.tasks("--section", "window", "grouped", "--section", "window")
        self.assertEqual([c.section for c, _, _ in tasks], ["window"] + 4 * ["grouped"])
        self.assertTrue(all(regimes == ["cool"] for _, _, regimes in tasks))
        both = self.tasks("--section", "window", "--cells", "1_2_64_64_full", "--regime", "hot")
        self.assertEqual([(c.section, regimes) for c, _, regimes in both],
                         [("cells", ["hot"]), ("window", ["hot"])])

    def test_accuracy_alone_times_nothing(self):
        tasks = self.tasks("--section", "types", "--cells", "8_16_4096_128_full", "--accuracy-only")
        self.assertTrue(all(regimes == [] for _, _, regimes in tasks))
        self.assertEqual([dtype for _, dtype, _ in tasks], ["bf16", "bf16", "bf16", "fp16"])

    def test_what_is_not_taken_is_refused_by_name(self):
        for arguments, word in (
            (["--section", "nothing"], "nothing"),
            (["--cells", "8_16"], "8_16"),
            (["--repeats", "19"], "repeats is 19"),
            (["--peers", "fa5"], "fa5"),
            (["--plot", "peers.pdf"], "plot is 'peers.pdf'"),
            (["--plot-from", "peers.json"], "plot-from is given without plot"),
        ):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                bench_peers.parse_arguments(arguments)
            self.assertIn(word, said.getvalue())


if __name__ == "__main__":
    unittest.main()
