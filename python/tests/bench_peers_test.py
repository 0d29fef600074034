"""python -m backlight.bench_peers: what it finds and what it says of what is missing. No GPU, no PyTorch."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from backlight import bench_peers


class Parts(unittest.TestCase):
    def test_the_scripts_and_the_library_are_found_in_the_package(self):
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder)
            made = [package / "share/backlight/peers/bench_peers.py", package / "lib/backlight/libbacklight_peers.so"]
            for part in made:
                with self.assertRaisesRegex(SystemExit, f"there is no .*{part.name}: .*built without the tools"):
                    bench_peers.find_parts(package)
                part.parent.mkdir(parents=True)
                part.touch()
            self.assertEqual(bench_peers.find_parts(package), (made[0].parent, made[1]))

    def test_the_program_runs_or_says_what_the_package_lacks(self):
        command = [sys.executable, "-m", "backlight.bench_peers", "--dry-run", "--cells", "1_2_128_64_causal",
                   "--device", "emulated"]  # fmt: skip
        told = subprocess.run(command, capture_output=True, text=True)
        if told.returncode:
            self.assertIn("built without the tools", told.stderr)
        else:
            self.assertRegex(told.stdout, r"1_2_128_64_causal, cudnn, fa2, fa3, fa4, 0\.\d+ TFLOP")
            self.assertRegex(told.stdout, r"1_2_128_64_causal default: .* bytes of workspace")


if __name__ == "__main__":
    unittest.main()
