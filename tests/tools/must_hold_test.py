"""benchmarks/gpu/must_hold: figures found in recorded output, order, time, going on, the table."""
import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
GPU = os.path.join(HERE, "../../benchmarks/gpu")
sys.path.insert(0, GPU)
from card_checks import Check, Line, checks  # noqa: E402

loader = importlib.machinery.SourceFileLoader("must_hold", os.path.join(GPU, "must_hold"))
must_hold = importlib.util.module_from_spec(importlib.util.spec_from_loader("must_hold", loader))
loader.exec_module(must_hold)

# What the scripts printed on an H200 or print, and the figures of the check's lines in order.
TRL = "| workload | side | ms/step | rollout ms | peak GB | loss, first and last |\n"
RECORDED = {
    "ctest": ("91% tests passed, 1 tests failed out of 11\n\nThe following tests did not run:\n"
              "\t 12 - unit_models_gpu (Skipped)\n\nThe following tests FAILED:\n"
              "\t 14 - golden_gpu (Failed)\n", [1, 11, 1]),
    "nccl": ("gpt2-124m, round 1, alone: 30.850 ms, 6.81 GB\ngpt2-124m, round 1, nccl: 30.97 ms, "
             "6.90 GB\ngpt2-124m: alone 30.885 ms, with NCCL 30.970 ms: 1.0028 (bound 1.02); "
             "losses are 1.2e-03 apart, 9.0e-04 without a group\n", [30.885, 6.81, 1.0028]),
    "wav2vec2": ("wav2vec2: 2.16 times as fast (wanted 2)\n", [2.16]),
    "bigbird": ("bigbird: 3.81 times as fast (wanted 3)\n", [3.81]),
    "plan": ("| {0} | 6.66 | 6.81 | -2.2 % | 30.9 | 640 | 9 |\n"
             "| {0} checkpointed | 5.01 | 4.59 | +9.1 % | 40.1 | 640 | 9 |\n", [-2.2, 9.1]),
    "trl sft-lora-llama-1b": (TRL + "| sft-lora-llama-1b | trl | 625.6 |  | 7.57 | 9.1, 8.0 |\n"
                              "| sft-lora-llama-1b | gradus | 144.5 (0.23 x, ≤ 0.45) |  | 3.54 "
                              "(memory 0.47 of trl's) | 9.1, 8.0 |\n", [0.23, 0.47]),
    "trl dpo-qwen-0.5b": (TRL + "| dpo-qwen-0.5b | gradus | 89.1 (0.25 x, ≤ 0.5) |  | 7.99 "
                          "(memory 0.81 of trl's) | 0.69, 0.61 |\n", [0.25]),
    "trl grpo-qwen-0.5b": (TRL + "| grpo-qwen-0.5b | gradus | 771.1 (0.12 x, ≤ 0.3) | 653 (trl "
                           "takes 9.6 x) | 9.12 | 0.0, 0.0 |\n", [0.12, 9.6]),
    "exported": ("| {0} | gradus | 43.7 | 0.89 (≤ 0.9) | 374,914 | 11.5 | 8.1 |\n"
                 "| {0} | python compiled | 48.9 | 1.00 | 335,000 | 13.5 | 8.1 |\n", [0.89]),
    "run": ("| {0} | gradus | 120.3 (**above 102**) | 68,093 | 23.5 (**above 20**) | 0.51 | "
            "4.9 |\n", [120.3, 23.5]),
    "8 bits": ("Mean of the last 100 steps: bf16 6.1, optim adamw_bnb_8bit 6.1 (+0.12 %). A step: "
               "bf16 1.1 ms, optim adamw_bnb_8bit 1.2 ms (0.92 times as fast).\n", [0.12]),
    "memcheck": ("========= ERROR SUMMARY: 0 errors\n", [0]),
    "fp8": ("Mean of the last 100 steps: bf16 4.8977, fp8 4.8755 (-0.45 %). A step: bf16 121.8 ms, "
            "fp8 99.4 ms (1.22 times as fast).\n", [1.22, -0.45]),
    "qlora": ("4 bits, nested: 410.5 ms a step, peak 9.80 GB by the trainer's count, metrics {}\n"
              "bfloat16: 380.1 ms a step, peak 20.10 GB by the trainer's count, metrics {}\n",
              [9.8, 410.5, 380.1]),
    "profile": ("| GEMM | 70.1 | 400 | 66.00 | 4.1 |\n"
                "| **step** | 120.40 | 812 | 98.75 | 21.65 |\n", [98.75]),
    "curves": ("Mean distance: two seeds of Python 0.01210; gradus from Python with the same seed "
               "0.00870, 0.72 of the seeds'; largest 0.02100.\n", [0.0121, 0.72]),
    "compiled": ("| {0} | gradus | 30.9 (≤ 31) | 530,226 | 6.81 (≤ 7) | 0.4 | 8.1 |\n"
                 "| {0} | python compiled | 46.7 | 350,839 | 11.6 | 0.27 | 8.1 |\n", [46.7]),
    "text to text": ("| a training step | 21.50 ms | 68.90 ms | 3.20 | >= 2 |\n"
                     "| generation, 4 beams | 0.67 s | 5.41 s | 8.05 | >= 3 |\n", [3.2, 8.05]),
}


def says(*words, code=0):
    return [sys.executable, "-c", f"print({' '.join(words)!r}); raise SystemExit({code})"]


def figure(issue=14, most=2.0):
    return Line(issue, "a figure", r"figure ([\d.]+)", most=most)


def is_running(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Call:
    """A call of must_hold with checks of a test."""
    def __init__(self, folder):
        self.folder = folder

    def file(self, name):
        return os.path.join(self.folder, name + ".json")

    def __call__(self, checks, name="first", **more):
        options = dict(results=self.file(name), after=None, seconds=60, only=[], tiny=False)
        session = must_hold.Session(argparse.Namespace(**{**options, **more}), checks)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            session.run_all()
            session.write()
        self.said = said.getvalue()
        with open(self.file(name)) as file:
            return json.load(file)["checks"]


class MustHold(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.call = Call(folder.name)

    def test_every_line_is_found_in_what_the_scripts_print(self):
        for check in checks("/build", "/work"):
            if not check.lines:
                continue
            words = check.name.split(" ", 1)
            text, figures = RECORDED.get(check.name) or RECORDED[words[0]]
            text = text.replace("{0}", words[-1])
            if words[0] == "run":
                figures = figures[:len(check.lines)]
            found = [must_hold.figure_of(line, text) for line in check.lines]
            self.assertEqual(found, figures, check.name)

    def test_lines_are_not_found_elsewhere(self):
        for check in checks("/build", "/work"):
            for line in check.lines:
                if not line.is_count:
                    self.assertIsNone(must_hold.figure_of(line, "Traceback: 3 GB 12 ms\n"))

    def test_scripts_and_names(self):
        every = checks("/build", "/work")
        names = [check.name for check in every]
        self.assertEqual(len(names), len(set(names)))
        for check in every:
            self.assertIn(check.beside, ["", *names])
            for word in check.command:
                if word.startswith(GPU):
                    self.assertTrue(os.access(word, os.X_OK), word)
        self.assertEqual(names[0], "ctest")
        issues = {line.issue for check in every for line in check.lines}
        self.assertLessEqual({14, 16, 18, 19, 20, 21, 22}, issues)

    def test_bounds(self):
        self.assertTrue(Line(1, "", "", most=31.5).holds(31.5))
        self.assertFalse(Line(1, "", "", most=31.5).holds(31.51))
        self.assertFalse(Line(1, "", "", least=2).holds(1.99))
        both = Line(1, "", "", -10, 10)
        self.assertEqual([both.holds(x) for x in (-10.1, -10, 10, 10.1)],
                         [False, True, True, False])
        self.assertEqual(both.wanted(), "-10 to 10")

    def test_a_failure_does_not_stop_the_others_and_keeps_its_last_lines(self):
        found = self.call([
            Check("bad", says("the reason", code=3), 1, [figure()]),
            Check("absent", ["/no/such/program"], 1, [figure()]),
            Check("good", says("figure 1.5"), 1, [figure(16)]),
        ])
        self.assertEqual([check["state"] for check in found.values()], ["failed", "failed", "done"])
        self.assertIn("the reason", found["bad"]["tail"])
        self.assertIn("/no/such/program", found["absent"]["tail"])
        self.assertEqual(found["good"]["figures"], {"a figure": 1.5})
        with open(os.path.join(self.call.folder, "first.log")) as log:
            self.assertIn("## bad: failed\nthe reason", log.read())

    def test_what_takes_too_long_is_ended_with_all_that_it_started(self):
        child = os.path.join(self.call.folder, "child")
        command = ["bash", "-c", f"echo begun; sleep 60 & echo $! >{child}; wait"]
        found = self.call([
            Check("slow", command, 1, [figure()], limit=2),
            Check("next", says("figure 1"), 1, [figure()])
        ])
        self.assertEqual(found["slow"]["state"], "too slow")
        self.assertIn("begun", found["slow"]["tail"])
        self.assertEqual(found["next"]["state"], "done")
        with open(child) as file:
            self.assertFalse(is_running(file.read().strip()))

    def test_a_process_that_stays_is_not_waited_for(self):
        done = os.path.join(self.call.folder, "done")
        stays = f"setsid bash -c 'sleep 4; touch {done}' & echo figure 1"
        found = self.call([Check("leaves one", ["bash", "-c", stays], 1, [figure()])])
        self.assertFalse(os.path.exists(done))
        self.assertEqual(found["leaves one"]["figures"], {"a figure": 1})

    def test_what_does_not_fit_is_left_and_the_next_call_goes_on(self):
        listed = [
            Check("long", says("figure 1.25"), 1000, [figure(18)]),
            Check("cut", ["sleep", "60"], 0, [figure(19)]),
        ]
        found = self.call(listed, seconds=must_hold.SPARE + 2)
        self.assertEqual([(name, check["state"]) for name, check in found.items()],
                         [("cut", "cut off")])
        self.assertIn("long: takes about 1000 s, left for later", self.call.said)
        listed[1].command = says("figure 7")
        found = self.call(listed, "second", after=self.call.file("first"), seconds=2000)
        self.assertEqual({name: check["figures"]["a figure"] for name, check in found.items()},
                         {"long": 1.25, "cut": 7})
        for check in listed:
            check.command = says("figure 99")
        found = self.call(listed, "third", after=self.call.file("second"), only=["cut"])
        self.assertEqual({name: check["figures"]["a figure"] for name, check in found.items()},
                         {"long": 1.25, "cut": 99})

    def test_an_earlier_call_that_left_no_file_costs_nothing(self):
        found = self.call([Check("a", says("figure 1"), 1, [figure()])],
                          after=self.call.file("never"))
        self.assertEqual(found["a"]["state"], "done")

    def test_only_an_issue(self):
        listed = [
            Check("a", says("figure 1"), 1, [figure(14)]),
            Check("b", says("figure 1"), 1, [figure(16)])
        ]
        self.assertEqual(list(self.call(listed, only=["16"])), ["b"])

    def test_what_needs_no_clock_runs_beside(self):
        both = os.path.join(self.call.folder, "both")
        wait = f"for i in $(seq 500); do [ -e {both} ] && break; sleep 0.02; done; [ -e {both} ]"
        found = self.call([
            Check("timed", ["bash", "-c", wait], 1),
            Check("export", ["touch", both], 1, beside="timed")
        ])
        self.assertEqual({name: check["state"] for name, check in found.items()},
                         {"timed": "done", "export": "done"})

    def test_tiny(self):
        listed = [
            Check("a", says("figure 9"), 100, [figure()], tiny=says("figure 1")),
            Check("card only", says("figure 9"), 1, [figure()])
        ]
        found = self.call(listed, tiny=True)
        self.assertEqual(list(found), ["a"])
        self.assertEqual(found["a"]["figures"], {"a figure": 1})

    def test_table(self):
        listed = [
            Check("late", says("figure 3"), 1, [figure(18)]),
            Check("good", says("figure 1"), 1,
                  [figure(14), Line(14, "told", r"figure (\d)")]),
            Check("left", says("figure 1"), 9999, [figure(15)]),
            Check("bad", says("nothing", code=1), 1, [figure(16)]),
            Check("mute", says("nothing"), 1, [figure(17)]),
        ]
        record = {"checks": self.call(listed)}
        self.assertEqual(
            must_hold.table(listed, record).splitlines()[2:], [
                "| 14 | a figure | ≤ 2 | 1 | holds |",
                "| 14 | told |  | 1 |  |",
                "| 15 | a figure | ≤ 2 |  | not run |",
                "| 16 | a figure | ≤ 2 |  | failed |",
                "| 17 | a figure | ≤ 2 |  | no figure |",
                "| 18 | a figure | ≤ 2 | 3 | **does not hold** |",
            ])
        self.assertFalse(must_hold.all_hold(listed, record))
        self.assertTrue(must_hold.all_hold(listed[1:2], record))


if __name__ == "__main__":
    unittest.main()
