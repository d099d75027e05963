"""How tests run trl's trainers in two processes beside ours; both sides use Gloo on 127.0.0.1."""
import json
import pathlib
import sys
import tempfile

from processes_test import TIMEOUT, run_together
from trl_runs import BIN, failures_of, without_clocks

ARGS = dict(ddp_backend="gloo", ddp_timeout=60)


def worker(trained_by_trl, questions, answers):
    """One of the Python processes."""
    results = []
    for job in json.loads(pathlib.Path(questions).read_text()):
        with tempfile.TemporaryDirectory() as place:
            job["args"]["output_dir"] = place
            results.append(trained_by_trl(job))
    pathlib.Path(answers).write_text(json.dumps(results))


def logs(answer):
    return list(map(without_clocks, answer["log_history"]))


def compare_in_processes(script, tool, make_cases, more):
    """As `compare` of trl_runs.py, within 1e-4."""
    failures = []
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        cases = make_cases(place)
        for number, (_, job) in enumerate(cases):
            job["args"] |= dict(ARGS, output_dir=str(place / f"run{number}"))
        (place / "questions.json").write_text(json.dumps([job for _, job in cases]))
        timeout = max(TIMEOUT, 40 * len(cases))  # all cases run in one process per rank
        theirs = run_together([sys.executable, script, "--worker"], place, timeout)
        ours = run_together([BIN / tool], place, timeout)
        for i, (label, _) in enumerate(cases):
            found = failures_of(label, ours[0][i], theirs[0][i], bound=(1e-4, 1e-4), more=more)
            if logs(ours[0][i]) != logs(ours[1][i]):
                found.append(f"{label}: process 1 logs other values than process 0")
            print(f"{label}: {'failed' if found else 'equal'}")
            failures += found
    print("\n".join(failures[:60]))
    print(f"{len(cases)} runs in two processes, {len(failures)} differences")
    return 1 if failures else 0


def main(script, tool, make_cases, trained_by_trl, more=None):
    """Ends the process: this one compares, or is one of Python's (`--worker`)."""
    if sys.argv[1:2] == ["--worker"]:
        sys.exit(worker(trained_by_trl, *sys.argv[2:]))
    sys.exit(compare_in_processes(script, tool, make_cases, more))
