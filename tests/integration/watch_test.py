"""watch_test.py GRADUS: `gradus watch` in a real terminal (tmux) and as text.

A run is watched from its beginning, through a change of the terminal's size, an interruption and a
restart, to its end. Exits 77 where tmux is missing.
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import study_file  # noqa: E402

GRADUS = str(Path(sys.argv[1]).resolve())
SOCKET = f"gradus-watch-{os.getpid()}"


def tmux(*words):
    socket = f"{SOCKET}-{Terminal.count}"  # a server that ends must not be taken for a new one
    return subprocess.run(["tmux", "-L", socket, "-f", "/dev/null", *map(str, words)],
                          capture_output=True, text=True, timeout=60)


class Terminal:
    """A terminal in which a command runs."""
    count = 0

    def __init__(self, width, height, *command):
        Terminal.count += 1
        line = " ".join(f"'{word}'" for word in map(str, command))
        done = tmux("new-session", "-d", "-s", "w", "-x", width, "-y", height,
                    f"LC_ALL=C.UTF-8 {line}; echo exit code $?; exec sleep 1000")
        assert done.returncode == 0, done.stderr

    def screen(self):
        return tmux("capture-pane", "-p", "-t", "w").stdout

    def wait(self, *texts, patience=90):
        end = time.monotonic() + patience
        while True:
            screen = self.screen()
            if all(text in screen for text in texts):
                return screen
            if time.monotonic() > end:
                raise AssertionError(f"expected {texts} in:\n{screen}")
            time.sleep(0.05)

    def resize(self, width, height):
        tmux("resize-window", "-t", "w", "-x", width, "-y", height)

    def keys(self, *keys):
        tmux("send-keys", "-t", "w", *keys)

    def close(self):
        tmux("kill-server")


def fits(screen, width, height):
    lines = screen.split("\n")
    assert len(lines) <= height + 1, len(lines)
    assert all(len(line) <= width for line in lines), max(map(len, lines))


def make_data(folder):
    pixels = bytes((i * 37 + i // 784 * 11) % 256 for i in range(400 * 784))
    (folder / "images.idx").write_bytes(struct.pack(">4i", 2051, 400, 28, 28) + pixels)
    (folder / "labels.idx").write_bytes(
        struct.pack(">2i", 2049, 400) + bytes(i % 10 for i in range(400)))


def start_run(folder, steps, *more):
    words = [GRADUS, "train", "--task", "image-classification", "--use_cpu", "--output_dir", "run",
             "--max_steps", steps, "--logging_steps", 5, "--save_steps", 50, "--eval_strategy",
             "steps", "--eval_steps", 25, "--save_total_limit", 3, "--disable_tqdm",
             "--per_device_train_batch_size", 8]
    for split in ("train", "validation"):
        words += [f"--{split}_images", "images.idx", f"--{split}_labels", "labels.idx"]
    return subprocess.Popen([*map(str, words), *map(str, more)], cwd=folder,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def entries(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_live_run(folder):
    make_data(folder)
    (folder / "run").mkdir()
    terminal = Terminal(80, 24, GRADUS, "watch", folder / "run")
    try:
        fits(terminal.wait("nothing yet", "q quit"), 80, 24)
        run = start_run(folder, 100000)
        screen = terminal.wait("running", "loss", "eval_loss", "learning_rate", "grad_norm",
                               "checkpoints 50", "steps/s", " left", "CPU")
        fits(screen, 80, 24)
        assert any(0x2800 < ord(letter) < 0x2900 for letter in screen), "no curve"

        terminal.resize(200, 60)
        screen = terminal.wait("steps_per_second", "eval_accuracy")
        fits(screen, 200, 60)
        assert max(map(len, screen.split("\n"))) > 120, "the width is not used"
        terminal.resize(40, 12)
        fits(terminal.wait("running"), 40, 12)
        terminal.resize(80, 24)

        run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=120) in (143, -signal.SIGTERM), run.returncode
        terminal.wait("interrupted")
        stopped = max(int(path.name[11:]) for path in (folder / "run").glob("checkpoint-*"))
        run = start_run(folder, stopped + 60, "--resume_from_checkpoint", "last")
        terminal.wait("running")
        assert run.wait(timeout=120) == 0
        screen = terminal.wait("finished", "100 %")
        terminal.keys("l")
        terminal.wait("linear axis")
        terminal.keys("q")
        terminal.wait("exit code 0")
    finally:
        terminal.close()

    log = entries(folder / "run" / "run_log.jsonl")
    begins = [line for line in log if line.get("event") == "begin"]
    ends = [line["how"] for line in log if line.get("event") == "end"]
    assert [line["step"] for line in begins] == [0, stopped], begins
    assert ends == ["interrupted", "finished"], ends
    assert begins[0]["settings"]["task"] == "image-classification"
    # The log is the Trainer's: same keys and values as in trainer_state.json.
    state = json.loads((folder / "run" / "trainer_state.json").read_text())
    ours = [line for line in log if "event" not in line]
    for entry in state["log_history"]:
        assert any(entry.items() <= line.items() for line in ours), entry


def write_log(file, lines, key="loss"):
    with open(file, "w") as out:
        for step in range(1, lines + 1):
            out.write('{"step": %d, "epoch": %.3f, "grad_norm": 1.25, "learning_rate": 5e-05, '
                      '"%s": %.6f}\n' % (step, step / 1000, key, 3 / (1 + step / 1000)))


def test_a_long_log(folder):
    (folder / "long").mkdir()
    write_log(folder / "long" / "log.jsonl", 1_000_000)
    began = time.monotonic()
    terminal = Terminal(80, 24, GRADUS, "watch", folder / "long")
    try:
        terminal.wait("loss", "learning_rate")
        first = time.monotonic() - began
        terminal.wait("step 1000000")
        print(f"a log of a million lines: first page after {first:.2f} s, all read after "
              f"{time.monotonic() - began:.2f} s")
        terminal.keys("C-c")
        terminal.wait("exit code 0")
    finally:
        terminal.close()


def test_several_runs(folder):
    for name in ("one", "two"):
        (folder / "many" / name).mkdir(parents=True)
        write_log(folder / "many" / name / "log.jsonl", 300)
    terminal = Terminal(100, 30, GRADUS, "watch", folder / "many")
    try:
        screen = terminal.wait("many/one", "many/two", "runs (2)")
        head = next(line for line in screen.split("\n") if "many/one" in line)
        assert "many/two" in head, "not side by side"
        (folder / "many" / "three").mkdir()  # a run that comes later
        write_log(folder / "many" / "three" / "log.jsonl", 10)
        terminal.wait("runs (3)")
        terminal.keys("Right")
        terminal.wait("many/three")
    finally:
        terminal.close()


def test_a_folder_that_waits(folder):
    """A folder without runs is shown until the first one comes, however it is written."""
    for number, words in enumerate((["waits0/"], ["waits1", "./waits1/."])):
        place = folder / f"waits{number}"
        place.mkdir()
        terminal = Terminal(100, 30, "env", "-C", folder, GRADUS, "watch", *words)
        try:
            terminal.wait("nothing yet")
            (place / "one").mkdir()
            write_log(place / "one" / "log.jsonl", 300)
            screen = terminal.wait(f"waits{number}/one", "step 300")
            assert "runs (" not in screen and "nothing yet" not in screen, screen
        finally:
            terminal.close()


def test_a_terminal_that_cannot_draw(folder):
    (folder / "dumb").mkdir()
    write_log(folder / "dumb" / "log.jsonl", 300)
    for kind in ("TERM=dumb", "TERM="):
        terminal = Terminal(80, 40, "env", kind, GRADUS, "watch", folder / "dumb")
        try:
            screen = terminal.wait("step 300", "exit code 0")
            assert "q quit" not in screen, screen
        finally:
            terminal.close()


def run(*words, **more):
    return subprocess.run([GRADUS, *map(str, words)], capture_output=True, text=True, timeout=120,
                          **more)


def test_text(folder):
    (folder / "text").mkdir()
    write_log(folder / "text" / "log.jsonl", 500)
    done = run("watch", folder / "text", "--once")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout and "loss" in done.stdout and "step 500" in done.stdout
    done = run("watch", folder / "text" / "log.jsonl", "--once", "--metrics", "grad_norm")
    assert "grad_norm 1.25" in done.stdout and "no checkpoints" in done.stdout, done.stdout
    done = run("watch", folder / "text")  # no terminal: ends, because nothing runs
    assert done.returncode == 0 and "step 500" in done.stdout, done.stdout + done.stderr
    done = run("watch", folder / "nowhere")
    assert done.returncode == 2 and "G-CLI-5" in done.stderr, done.stderr
    done = run("watch")
    assert done.returncode == 2 and "G-CLI-4" in done.stderr, done.stderr
    # A run that another one lies in is shown beside it.
    (folder / "outer" / "sub").mkdir(parents=True)
    for where, key in (("outer", "outer_loss"), ("outer/sub", "inner_loss")):
        write_log(folder / where / "run_log.jsonl", 5, key)
    done = run("watch", ".", "--once", cwd=folder / "outer")
    assert "outer_loss" in done.stdout and "inner_loss" in done.stdout, done.stdout
    # A hostile log cannot control the terminal.
    (folder / "text" / "log.jsonl").write_text('{"step": 1, "\x1b[31mred": 1.0}\n')
    done = run("watch", folder / "text", "--once")
    assert "\x1b" not in done.stdout, done.stdout


def test_numbers_at_the_axis(folder):
    """What stands at an axis is never cut: "4.887e-" is no number."""
    (folder / "axis").mkdir()
    with open(folder / "axis" / "log.jsonl", "w") as out:
        for step in range(1, 100):
            out.write(json.dumps({"step": step, "a": 4.887e-7 * step, "b": -1.234e-5 * step,
                                  "c": 1.7e308 * (-1)**step}) + "\n")
    done = run("watch", folder / "axis", "--once")
    before = [line.split("│")[0].split() for line in done.stdout.splitlines() if "│" in line]
    labels = [words[-1] for words in before if words]
    assert {"4.8e-05", "4.9e-07", "2e+308", "-2e+308"} <= set(labels), done.stdout
    assert " -1e-05 │" in done.stdout, done.stdout


def test_report(folder):
    """`gradus report`: a picture of the runs that have curves, and clear words where none has."""
    for number in range(9):
        (folder / "report" / f"a{number}").mkdir(parents=True)
        (folder / "report" / f"a{number}" / "log.jsonl").write_text('{"step": 1, "loss": NaN}\n')
    done = run("report", folder / "report", "--png", folder / "x.png")
    assert done.returncode == 2 and "no finite value" in done.stderr, done.stderr
    for number in range(10):
        (folder / "report" / f"b{number}").mkdir()
        write_log(folder / "report" / f"b{number}" / "log.jsonl", 10)
    done = run("report", folder / "report", "--png", folder / "x.png")
    assert done.returncode == 0 and "first 8 of 10 runs" in done.stderr, done.stderr
    assert done.stdout == f"{folder}/x.png\n", done.stdout
    done = run("report", folder / "report", "--png", folder / "x.png", "--metrics", "los")
    assert done.returncode == 2 and "Did you mean loss?" in done.stderr, done.stderr
    words = [GRADUS, "report", str(folder / "report"), "--png", "/dev/stdout"]
    done = subprocess.run(words, capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stdout == (folder / "x.png").read_bytes(), done.stderr
    assert os.path.islink("/dev/stdout")
    # What is printed next does not lie over it, also where the output is a file.
    page = folder / "page"
    with open(page, "wb") as out:
        done = subprocess.run([*words, "--html", str(folder / "x.html")], stdout=out, timeout=60)
    found = page.read_bytes()
    assert done.returncode == 0, found
    assert (folder / "x.png").read_bytes() in found, "what was printed lies over the picture"
    assert f"{folder}/x.html\n".encode() in found


def test_a_search_as_text(folder):
    (folder / "sweep" / "run-0").mkdir(parents=True)
    write_log(folder / "sweep" / "run-0" / "log.jsonl", 50)
    study_file.write_study(folder / "sweep" / "study.db").close()
    (folder / "sweep" / "other.db").write_bytes(b"not a database")
    before = (folder / "sweep" / "study.db").read_bytes()
    done = run("watch", folder / "sweep", "--once")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("7 trials"))
    assert lines[at] == ("7 trials · 4 complete · 1 fail · 1 pruned · 1 running · minimize "
                         "eval_loss"), lines[at]
    assert lines[at + 1] == "best 0.35 of trial 4  learning_rate 0.1  optim sgd", lines[at + 1]
    trials = [line.split() for line in lines[at + 2:at + 9]]
    assert [trial[0] for trial in trials] == [str(i) for i in range(7)], trials
    assert [trial[1] for trial in trials][2:] == ["pruned", "complete", "complete", "fail",
                                                  "running"], trials
    assert ["*" in trial for trial in trials] == [True, True, False, False, True, False, False]
    assert trials[6][2:5] == ["0.66", "step", "10"], trials[6]
    assert "step 50" in done.stdout, "the run of the trial is shown, too"
    assert (folder / "sweep" / "study.db").read_bytes() == before
    assert sorted(path.name for path in (folder / "sweep").iterdir()) == ["other.db", "run-0",
                                                                          "study.db"]


def test_a_search(folder):
    study = study_file.sqlite3.connect(folder / "sweep" / "study.db")
    terminal = Terminal(100, 30, GRADUS, "watch", folder / "sweep")
    try:
        screen = terminal.wait("7 trials", "best 0.35 of trial 4", "best so far", "6 running",
                               "t runs")
        fits(screen, 100, 30)
        study_file.add_trial(study, 7, "COMPLETE", 0.25, 0.02, 2)
        terminal.wait("8 trials", "best 0.25 of trial 7", "7 complete       0.25 *")
        terminal.keys("t")
        terminal.wait("sweep/run-0", "t trials")
        terminal.keys("t")
        terminal.resize(60, 8)
        fits(terminal.wait("best 0.25 of trial 7", "7 complete"), 60, 8)
        terminal.keys("Up")
        terminal.keys("Up")
        terminal.wait("2 pruned", "5 fail")
        terminal.keys("q")
        terminal.wait("exit code 0")
    finally:
        terminal.close()
        study.close()


def main():
    folder = Path(tempfile.mkdtemp(prefix="gradus-watch-"))
    try:
        test_text(folder)
        test_numbers_at_the_axis(folder)
        test_report(folder)
        test_a_search_as_text(folder)
        if not shutil.which("tmux"):
            print("tmux is missing: the view in a terminal is not tested; tools/setup --browser "
                  "installs it")
            sys.exit(77)
        test_several_runs(folder)
        test_a_folder_that_waits(folder)
        test_a_terminal_that_cannot_draw(folder)
        test_a_search(folder)
        test_a_long_log(folder)
        test_a_live_run(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
