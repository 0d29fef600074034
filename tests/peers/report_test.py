"""What follows from samples and what is printed of it: samples are made up."""

import json
import shutil
import tempfile
import unittest
from dataclasses import dataclass, field
from pathlib import Path

import chart
import report
from problems import Comparison, Problem, Role

WHOLE = Problem(1, 16, 16384, 128, True)
ROLES = (Role("", WHOLE), Role("window", Problem(1, 16, 16384, 128, True, window_left=1024)))
FLOPS = {"": 2e12, "window": 0.5e12}


@dataclass
class Samples:
    """As timing.Samples, which needs PyTorch."""

    milliseconds: list
    late: list = field(default_factory=list)
    error: str | None = None
    sm_clock_mhz: list = field(default_factory=lambda: [1900.0])
    power_watts: list = field(default_factory=lambda: [None])

    def median(self):
        return self.milliseconds[0] if self.milliseconds else None


def timed(comparison, **milliseconds):
    samples = {name: Samples([value] if value else []) for name, value in milliseconds.items()}
    return report.timing_json(comparison, FLOPS, samples)


def document(comparison, result, errors=None):
    roles = {role.label: {"text": role.problem.name} for role in comparison.roles}
    return {
        "cells": [{
            "cell": comparison.name, "section": comparison.section, "roles": roles,
            "regimes": {"cool": result}, "errors": errors or {},
        }],
        "accuracy": [],
    }


class Figures(unittest.TestCase):
    def test_a_role_has_the_work_and_the_time_of_it_over_those_of_the_first(self):
        comparison = Comparison("window", ROLES, least_rate_ratio=1 / 1.3)
        result = timed(comparison, **{
            "backlight/default": 4.0, "backlight/default[window]": 1.25, "fa2[window]": 3.0, "fa2": 8.0,
        })
        ours, fa2 = result["figures"]
        self.assertEqual(
            {name: ours[name] for name in ("of", "to", "work_ratio", "time_ratio", "ratio", "holds")},
            {"of": "backlight/default[window]", "to": "backlight/default", "work_ratio": 0.25,
             "time_ratio": 0.3125, "ratio": 0.8, "holds": True},
        )
        self.assertAlmostEqual(fa2["ratio"], 0.25 * 8 / 3)
        self.assertNotIn("least", fa2)
        rates = {name: entry["tflops"] for name, entry in result["contestants"].items()}
        self.assertAlmostEqual(rates["backlight/default[window]"] / rates["backlight/default"], 0.8)

    def test_a_ratio_below_the_bound_does_not_hold(self):
        comparison = Comparison("window", ROLES, least_rate_ratio=1 / 1.3)
        result = timed(comparison, **{"backlight/default": 4.0, "backlight/default[window]": 1.31})
        self.assertFalse(result["figures"][0]["holds"])
        self.assertIn("DOES NOT HOLD", report.figure_line(result["figures"][0]))

    def test_a_peer_of_two_ways_is_taken_at_its_best(self):
        comparison = Comparison("grouped", ROLES[:1], least_speed_ratio=(("cudnn", 0.95),))
        result = timed(comparison, **{"backlight/default": 2.0, "cudnn": 2.5, "cudnn_expanded": 1.8})
        self.assertEqual(result["figures"], [{
            "figure": "speed", "of": "backlight/default", "to": "cudnn_expanded", "ratio": 0.9,
            "least": 0.95, "holds": False,
        }])

    def test_what_was_not_measured_has_no_figure(self):
        comparison = Comparison("window", ROLES, least_rate_ratio=1, least_speed_ratio=(("cudnn", 1),))
        result = timed(comparison, **{"backlight/default": None, "backlight/default[window]": 1.0})
        self.assertEqual(result["figures"], [])

    def test_speed_ratios_are_of_peers_on_the_same_problem(self):
        result = timed(Comparison("window", ROLES), **{
            "backlight/default": 4.0, "fa2": 8.0, "backlight/default[window]": 1.0, "fa2[window]": 3.0,
        })
        self.assertEqual(result["speed_ratios"], {
            "backlight/default": {"fa2": 2.0}, "backlight/default[window]": {"fa2[window]": 3.0},
        })

    def test_cells_have_no_figures(self):
        self.assertNotIn("figures", timed(Comparison("cells", ROLES[:1]), **{"backlight/default": 1.0}))


class Tables(unittest.TestCase):
    def test_a_section_tells_rates_figures_and_what_was_refused(self):
        comparison = Comparison("window", ROLES, least_rate_ratio=0.5)
        result = timed(comparison, **{"backlight/default": 4.0, "backlight/default[window]": 1.25})
        refused = {"fa2[window]": "BridgeError: unsupported: window_left is 1024\nmore"}
        text = report.section_table(document(comparison, result, refused), "window", "cool")
        for words in ("window, cool", ROLES[1].problem.name, "1.250", "400", "rate ratio 0.800",
                      "fa2[window]: BridgeError: unsupported: window_left is 1024"):
            self.assertIn(words, text)
        self.assertNotIn("more", text)
        self.assertEqual(report.section_table(document(comparison, result), "window", "hot"), "")

    def test_cells_have_a_table_of_their_own(self):
        comparison = Comparison("cells", ROLES[:1])
        result = timed(comparison, **{"backlight/default": 4.0, "cudnn": 8.0})
        text = report.table(document(comparison, result), "cells", "cool")
        self.assertIn("over cudnn", text)
        self.assertRegex(text, rf"{WHOLE.name} +500 +250 +default +2\.00")

    def test_gradients_that_are_wrong_are_named_and_only_ours_count(self):
        def result(accurate):
            return {"against_fp32": {"d_q": {"relative_l2": 0.5}}, "not_finite": {"d_q": 0},
                    "accurate": accurate}

        contestants = {
            "backlight/default": result(True), "backlight/v4": result(False), "fa2": result(False),
            "cudnn": {"error": "ValueError: no"},
        }
        wrong = {"cells": [], "accuracy": [{"cell": "c", "dtype": "bf16", "contestants": contestants}]}
        self.assertEqual(report.inaccurate_of_ours(wrong), ["c bf16 backlight/v4"])
        self.assertEqual(report.accuracy_table(wrong).count("INACCURATE"), 2)
        self.assertIn("ValueError: no", report.accuracy_table(wrong))

    def test_a_chart_has_a_group_of_bars_a_cell_causal_ones_first(self):
        cells = []
        for causal, fa2 in ((False, 8.0), (True, None)):
            comparison = Comparison("cells", (Role("", Problem(1, 16, 16384, 128, causal)),))
            result = timed(comparison, fa2=fa2, **{"backlight/default": 4.0})
            entry = {"batch": 1, "heads": 16, "seqlen": 16384, "head_dim": 128, "causal": causal}
            cells.append(entry | {"section": "cells", "regimes": {"cool": result}})
        drawn = {"gpu": {"name": "H200"}, "cells": cells}
        script = chart.gnuplot_script(drawn, "cool", Path("it's.svg"))
        self.assertIn('"1,16,16384,128" 500.0 NaN\n"1,16,16384,128 full" 500.0 250.0\n', script)
        self.assertIn("set output 'it''s.svg'", script)
        self.assertLess(script.index("title 'Backlight'"), script.index("title 'FlashAttention-2'"))
        with self.assertRaisesRegex(ValueError, "regime hot"):
            chart.gnuplot_script(drawn, "hot", Path("x.svg"))
        if shutil.which(chart.PROGRAM):
            with tempfile.TemporaryDirectory() as folder:
                chart.draw(drawn, Path(folder) / "peers.svg")
                self.assertIn("Backlight", (Path(folder) / "peers.svg").read_text())

    def test_a_document_is_written_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "peers.json"
            report.write_json(path, {"cells": [1]})
            self.assertEqual(json.loads(path.read_text()), {"cells": [1]})
            self.assertEqual([file.name for file in Path(folder).iterdir()], ["peers.json"])


if __name__ == "__main__":
    unittest.main()
