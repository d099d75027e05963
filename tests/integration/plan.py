"""plan.py GRADUS: `gradus plan`, `--dry_run`, `gradus cache` and `--cache_limit`.

Uses only the standard library.
"""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRADUS = str(Path(sys.argv[1]).resolve())
VOCABULARY, WIDTH, LAYERS = 500, 64, 2


def run(folder, *words, code=0, **environment):
    done = subprocess.run([GRADUS, *words], cwd=folder, capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def make_files(folder):
    config = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": VOCABULARY,
        "n_positions": 64, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": 2, "bos_token_id": 0,
        "eos_token_id": 0
    }
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(config))
    rng = random.Random(1)
    tokens = [rng.randrange(VOCABULARY) for _ in range(64 * 40)]
    (folder / "tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))


LANGUAGE = [
    "--task", "causal-lm", "--config_name", "model", "--train_file", "tokens.bin", "--block_size",
    "64", "--output_dir", "out", "--per_device_train_batch_size", "4", "--num_train_epochs", "3",
    "--use_cpu", "--save_steps", "10"
]


def check_plan(folder):
    found = json.loads(run(folder, "plan", *LANGUAGE, "--json", "--gpu_memory", "100MB"))
    parameters = (VOCABULARY + 64) * WIDTH + LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) + 2 * WIDTH
    assert found["run"]["parameters"] == parameters, found
    assert found["run"]["rows"] == 40 and found["run"]["steps"] == 30, found
    assert found["run"]["tokens_per_row"] == 64 and found["run"]["checkpoints"] == 3, found
    memory = found["memory"]
    assert memory["weights"] == 4 * parameters and memory["optimizer"] == 8 * parameters, memory
    assert memory["activations"] == 16 * WIDTH * LAYERS * 4 * 64 * 4, memory
    terms = [value for name, value in memory.items() if name != "total"]
    assert abs(sum(terms) - memory["total"]) < 1, memory
    assert "measured" not in found and found["fits"] is True
    most = found["largest_batch"]
    for rows, fits in [(most, True), (most + 1, False)]:
        words = [*LANGUAGE, "--per_device_train_batch_size", str(rows)]
        again = json.loads(run(folder, "plan", *words, "--json", "--gpu_memory", "100MB"))
        assert again["fits"] is fits, (rows, again)
    many = json.loads(run(folder, "plan", *LANGUAGE, "--json", "--max_steps", str(2**63 - 1)))
    assert many["run"]["logs"] > 0 and many["run"]["checkpoints"] > 0, many
    small = json.loads(run(folder, "plan", *LANGUAGE, "--json", "--gpu_memory", "66MB"))
    assert small["fits"] is False and small["advice"], small
    assert small["advice"][0]["flag"] == "--bf16", small
    text = run(folder, "plan", *LANGUAGE, "--gpu_memory", "66MB")
    assert "It does not fit" in text and "with --bf16" in text, text
    # Planned for a card where there is none: bfloat16 weights with float32 masters, as there.
    words = [word for word in LANGUAGE if word != "--use_cpu"]
    card = json.loads(run(folder, "plan", *words, "--json", "--bf16", "--gpu_memory", "24GB",
                          "--no_measure"))["memory"]
    assert card["weights"] == 2 * parameters and card["masters"] == 4 * parameters, card
    measured = json.loads(run(folder, "plan", *LANGUAGE, "--json", "--measure"))["measured"]
    assert measured["step_seconds"] > 0
    assert abs(measured["run_seconds"] - 30 * measured["step_seconds"]) < 1e-9
    assert not (folder / "out").exists(), "a plan leaves nothing behind"
    assert "no size" in run(folder, "plan", *LANGUAGE, "--gpu_memory", "much", code=2)


def check_checkpoint_size(folder):
    """What a checkpoint is said to take is what it takes, whatever the optimizer keeps."""
    for optim in ("adamw_torch", "sgd", "lion_32bit"):
        words = [*LANGUAGE, "--optim", optim, "--max_steps", "2", "--save_steps", "2"]
        said = json.loads(run(folder, "plan", *words, "--json"))["run"]["checkpoint_bytes"]
        run(folder, "train", *words, "--overwrite_output_dir")
        checkpoint = folder / "out/checkpoint-2"
        taken = sum((checkpoint / name).stat().st_size for name in
                    ("model.safetensors", "optimizer.pt"))
        assert abs(said - taken) < 0.05 * taken, (optim, said, taken)
    shutil.rmtree(folder / "out")


def check_packed_rows(folder):
    """Four packed rows are one long row of the batch."""
    tokenizer = {
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"<end>": 0}, "unk_token": "<end>"}
    }
    (folder / "words").mkdir()
    (folder / "words/tokenizer.json").write_text(json.dumps(tokenizer))
    special = {"eos_token": "<end>", "pad_token": "<end>"}
    (folder / "words/tokenizer_config.json").write_text(json.dumps(special))
    (folder / "rows.jsonl").write_text((json.dumps({"input_ids": [1] * 64}) + "\n") * 40)
    words = [
        "--task", "sft", "--config_name", "model", "--tokenizer_name", "words", "--train_file",
        "rows.jsonl", "--output_dir", "out", "--per_device_train_batch_size", "4", "--max_length",
        "64", "--use_cpu", "--json", "--gpu_memory", "1GB"
    ]
    plain, packed = (json.loads(run(folder, "plan", *words, *more)) for more in ([], ["--packing"]))
    assert packed["run"]["tokens_per_row"] == 64, packed
    assert packed["memory"] == plain["memory"], (packed, plain)


def check_dry_run(folder):
    before = sorted(path.name for path in folder.iterdir())
    text = run(folder, "train", *LANGUAGE, "--dry_run")
    assert "30 steps in 3 passes" in text and "nothing was kept" in text, text
    assert "3 checkpoints" in text, text
    assert sorted(path.name for path in folder.iterdir()) == before
    # What the run itself would be refused for.
    for more in (["--resume_from_checkpoint", "nowhere"], ["--resume_from_checkpoint", "true"]):
        assert "G-CKPT-1" in run(folder, "train", *LANGUAGE, "--dry_run", *more, code=1)
    said = run(folder, "train", *LANGUAGE, "--resume_from_checkpoint", "nowhere", code=1)
    assert "no complete checkpoint in this folder." in said, said
    assert not (folder / "out").exists() or not list((folder / "out").glob("checkpoint-*"))
    (folder / "out/checkpoint-10").mkdir(parents=True)
    run(folder, "train", *LANGUAGE, "--max_steps", "2", "--save_steps", "2",
        "--overwrite_output_dir")
    assert "G-TASK-2" in run(folder, "train", *LANGUAGE, "--dry_run", code=2)
    run(folder, "train", *LANGUAGE, "--dry_run", "--overwrite_output_dir")
    run(folder, "train", *LANGUAGE, "--dry_run", "--resume_from_checkpoint", "last")
    shutil.rmtree(folder / "out")
    two = run(folder, "launch", "--nproc", "2", "--", GRADUS, "train", *LANGUAGE, "--dry_run",
              GLOO_SOCKET_IFNAME="lo")
    assert two.count("nothing was kept") == 1, two
    for stage in ("eval", "predict"):
        said = run(folder, stage, *LANGUAGE, "--dry_run", code=2)
        assert "look at training" in said and "G-CLI-4" in said, said
    said = run(folder, "train", *LANGUAGE, "--dry_run", "--train_file", "no.bin", code=2)
    assert "no.bin" in said, said


def check_cache(folder):
    data = folder / "cache/gradus/datasets"
    data.mkdir(parents=True)
    now = time.time()
    for name, size, days in [("old", 3000, 40), ("middle", 2000, 10), ("new", 1000, 0)]:
        file = data / f"{name}.arrow"
        file.write_bytes(b"x" * size)
        os.utime(file, (now - days * 86400, now - days * 86400))
    (data / "note.txt").write_text("not ours")
    # What a killed process and one that is at work have begun.
    killed = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True).stdout.strip()
    for process, days in [(killed, 50), (os.getpid(), 50), (killed, 0)]:
        file = data / f".tmp-a.arrow-{process}-x01234567{days:08}"
        file.write_bytes(b"x" * 500)
        os.utime(file, (now - days * 86400, now - days * 86400))
    begun = f".tmp-a.arrow-{killed}-x0123456700000050"
    cache = {"XDG_CACHE_HOME": str(folder / "cache")}

    def names(*words):
        found = json.loads(run(folder, "cache", *words, "--json", **cache))
        files = [Path(row["path"]) for row in found.get("files", found.get("removed"))]
        return [file.stem if file.suffix == ".arrow" else file.name for file in files]

    assert names("list") == [begun, "old", "middle", "new"]
    assert names("clean", "--cache_limit", "6200") == [begun]
    assert "6.00 kB" in run(folder, "cache", "list", **cache)
    assert names("clean", "--cache_limit", "10KB") == []
    assert names("clean", "--cache_limit", "4KB") == ["old"]
    for days in ("30", "1e300", "inf"):
        assert names("clean", "--days", days) == [], days
    assert names("clean", "--days", "5") == ["middle"]
    run(folder, "train", *LANGUAGE, "--max_steps", "1", "--cache_limit", "10", **cache)
    assert names("list") == ["new"], "what was used of late stays"
    os.utime(data / "new.arrow", (now - 86400, now - 86400))
    run(folder, "train", *LANGUAGE, "--max_steps", "1", "--cache_limit", "10",
        "--overwrite_output_dir", **cache)
    assert names("list") == []
    assert names("clean") == [] and (data / "note.txt").exists()
    assert "list and clean" in run(folder, "cache", "empty", code=2)
    assert "no size" in run(folder, "train", *LANGUAGE, "--cache_limit", "much", code=2)


def main():
    with tempfile.TemporaryDirectory(prefix="gradus_plan_") as name:
        folder = Path(name)
        make_files(folder)
        check_plan(folder)
        check_packed_rows(folder)
        check_checkpoint_size(folder)
        check_dry_run(folder)
        check_cache(folder)
    print("plan, dry run and cache")


main()
