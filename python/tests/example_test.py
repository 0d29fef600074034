"""docs/examples/train_char_gpt.py on the CPU: a few steps of PyTorch's own. Left out where there is no PyTorch."""

import contextlib
import io
import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("there is no PyTorch") from error

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "examples"))
import char_gpt_checks
import train_char_gpt

TINY = ("--device", "cpu", "--backward", "pytorch", "--batch", "2", "--seqlen", "32", "--layers", "1", "--heads", "2",
        "--head-dim", "8")  # fmt: skip


def options(*more):
    return train_char_gpt.parse_arguments((*TINY, *more))


class Data(unittest.TestCase):
    def test_the_text_is_the_same_every_time_and_no_longer_than_asked(self):
        text = train_char_gpt.read_text(50_000)
        self.assertEqual(len(text), 50_000)
        self.assertEqual(text, train_char_gpt.read_text(60_000)[:50_000])
        self.assertIn(b"import", text)

    def test_batches_depend_on_the_seed_and_the_step_alone(self):
        text = train_char_gpt.read_text(5_000)
        batches, again = (train_char_gpt.Batches(text, options("--steps", "4")) for _ in range(2))
        self.assertEqual(batches[3].shape, (2, 33))
        self.assertTrue(torch.equal(batches[3], again[3]))
        self.assertFalse(torch.equal(batches[2], batches[3]))
        self.assertFalse(torch.equal(batches[3], train_char_gpt.Batches(text, options("--steps", "4", "--seed", "2"))[3]))
        self.assertLess(batches[3].max(), batches.vocabulary)


class Training(unittest.TestCase):
    def test_the_loss_falls_and_is_the_same_from_the_same_seed(self):
        asked = options("--steps", "30")
        batches = train_char_gpt.Batches(train_char_gpt.read_text(20_000), asked)
        trainers = [train_char_gpt.Trainer("pytorch", batches, asked) for _ in range(2)]
        with contextlib.redirect_stdout(io.StringIO()):
            train_char_gpt.train(trainers, 30)
        first, second = (trainer.result() for trainer in trainers)
        self.assertEqual(first["losses"], second["losses"])
        uniform = torch.tensor(float(batches.vocabulary)).log().item()
        self.assertAlmostEqual(first["losses"][0], uniform, delta=0.2)
        self.assertLess(first["losses"][-1], uniform - 0.05)
        self.assertGreater(first["tokens_per_second"], 0)

    def test_no_token_sees_those_after_it(self):
        asked = options()
        torch.manual_seed(1)
        model = train_char_gpt.Gpt(10, asked, train_char_gpt.attention_of("pytorch"))
        tokens = torch.randint(10, (1, 32))
        changed = tokens.clone()
        changed[0, 20] = (tokens[0, 20] + 1) % 10
        difference = (model(tokens) - model(changed)).abs().amax(-1)[0]
        self.assertEqual(difference[:20].max(), 0)
        self.assertGreater(difference[20:].min(), 0)

    def test_the_script_writes_what_it_measured_and_draws_it(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            losses, picture = str(Path(folder, "losses.json")), str(Path(folder, "losses.svg"))
            self.assertEqual(train_char_gpt.main((*TINY, "--steps", "2", "--json", losses)), 0)
            document = json.loads(Path(losses).read_text())
            self.assertEqual(len(document["runs"]["pytorch"]["losses"]), 2)
            self.assertIsNone(document["runs"]["pytorch"]["tokens_per_second"])
            self.assertEqual(document["shape"]["seqlen"], 32)
            if shutil.which("gnuplot"):
                train_char_gpt.main(("--plot-from", losses, "--plot", picture))
                self.assertIn("pytorch", Path(picture).read_text())

    def test_what_cannot_be_is_refused(self):
        for more, words in (
            (("--graph",), "no graph"), (("--steps", "0"), "steps is 0"), (("--heads", "0"), "heads is 0"),
            (("--plot", "losses.pdf"), "losses.pdf"), (("--plot-from", "losses.json"), "without plot"),
        ):  # fmt: skip
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                options(*more)
            self.assertIn(words, said.getvalue())


class Checks(unittest.TestCase):
    def test_losses_that_are_apart_or_no_number_fail(self):
        eager = torch.tensor([4.0, 2.0])
        losses = {"eager": eager, "graph": eager * 1.001, "compile": eager * 1.05, "pytorch": eager * torch.nan}
        differences, failures = char_gpt_checks.compare_losses(losses)
        self.assertAlmostEqual(differences["graph"], 0.001, places=5)
        self.assertEqual(len(failures), 2)
        self.assertIn("compile", failures[0])

    def test_what_grows_in_the_second_half_is_a_leak(self):
        def memory(grown, room):
            steps = [(10, 100), (20, 200), (30, 200), (40, 200 + grown)]
            return [{"step": s, "allocated": b, "host_resident": b * room} for s, b in steps]

        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(char_gpt_checks.find_leaks(memory(0, 1), 20), [])
            (leak,) = char_gpt_checks.find_leaks(memory(512, 1), 20)
            self.assertIn("allocated grew by 512 bytes from step 20 to 40", leak)
            self.assertEqual(len(char_gpt_checks.find_leaks(memory(512, 1 << 20), 20)), 2)


if __name__ == "__main__":
    unittest.main()
