"""Tokens per second on one thread: gradus' encode_batch beside Python's tokenizers, on the same
lines in the same run.

The text is the Python source of the peer's own packages (about 8 MB); the tokenizers are real ones
where they lie in ~/.cache/gradus/tokenizers/{gpt2,minilm}, else the small ones of
tests/parity/text. "full" is with offsets and word ids (what transformers always asks for), "ids
only" without them (`encode_batch_fast`).
"""

import json
import os
import pathlib
import subprocess
import tempfile

from benchmark_row import Skip, at_least

ROOT = pathlib.Path(__file__).resolve().parents[1]
CACHE = pathlib.Path.home() / ".cache/gradus"
PYTHON = pathlib.Path(os.environ.get("GRADUS_PEER_PYTHON", CACHE / "peer/bin/python"))
# both programs in turn, the best of each: other work on the machine then hits both alike
ROUNDS = 3
PEER = """
import json, sys, time
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
tokenizer.no_truncation(); tokenizer.no_padding()
lines = open(sys.argv[2], encoding="utf-8").read().split("\\n")[:-1]
result = {}
for name, encode in (("full", tokenizer.encode_batch), ("ids_only", tokenizer.encode_batch_fast)):
    best = 1e300
    for _ in range(int(sys.argv[3])):
        start, tokens = time.perf_counter(), 0
        for begin in range(0, len(lines), 1000):
            tokens += sum(len(encoding.ids) for encoding in encode(lines[begin:begin + 1000]))
        best = min(best, time.perf_counter() - start)
    result["tokens"], result[name] = tokens, tokens / best
print(json.dumps(result))
"""


def sample_lines(limit=8_000_000):
    lines, size = [], 0
    for path in sorted(
            PYTHON.parent.parent.glob("lib/python3*/site-packages/transformers/models/*/*.py")):
        for line in path.read_text(encoding="utf-8").splitlines():
            line = line.strip()
            if line:
                lines.append(line)
                size += len(line)
        if size > limit:
            break
    return lines


def folders():
    for name, small in (("gpt2", "bpe"), ("minilm", "wordpiece")):
        real = CACHE / "tokenizers" / name
        if (real / "tokenizer.json").exists():
            yield name, real
        else:
            yield small, ROOT / "tests/parity/text/fixtures" / small


def keep_best(best, command, environment):
    for name, value in json.loads(
            subprocess.run(command, env=environment, capture_output=True,
                           check=True).stdout).items():
        best[name] = max(best.get(name, 0), value)


def main(build):
    if not PYTHON.exists():
        raise Skip("the Python peer is not there; `make peer` makes it")
    program = build / "bin/bench_tokenizer_speed"
    if not program.exists():
        raise Skip(f"{program} is not built; configure with -DGRADUS_BENCHMARKS=ON")
    one_thread = {
        **os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1"
    }
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        text = pathlib.Path(temporary) / "text.txt"
        text.write_text("\n".join(sample_lines()) + "\n", encoding="utf-8")
        for name, folder in folders():
            theirs, ours = {}, {}
            for _ in range(ROUNDS):
                keep_best(theirs, [PYTHON, "-c", PEER, folder, text, "2"], one_thread)
                keep_best(ours, [program, folder, text, "1", "2"], one_thread)
            if ours["tokens"] != theirs["tokens"]:
                raise RuntimeError(
                    f"{name}: gradus made {ours['tokens']} tokens, Python {theirs['tokens']}")
            for kind, words in (("full", "full"), ("ids_only", "ids only")):
                rows.append(
                    at_least(1.0, quantity=f"{name}, {words}, one thread", gradus=ours[kind],
                             other=theirs[kind], unit="tokens/s", other_name="Python tokenizers"))
    return rows
