"""optimizers_test.py [FOLDER]: every optimizer name trains a small Llama in gradus and in
transformers' Trainer, on the same rows with the same flags, and the losses are equal.

FOLDER has the packages that the names stand for, and anyprecision_optimizer.py of torchdistx:
tests/parity/optim/make_fixtures.py says which, and peer_packages.py beside it what is changed so
that they run on a CPU. A name whose package is not there is passed over; the end says which were.
Without the peer: exit code 77.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
GRADUS = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/gradus"
PACKAGES = sys.argv[1] if len(sys.argv) > 1 else None
sys.path.append(str(ROOT / "tests/parity/optim"))
try:
    import numpy
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

VOCAB, TOKENS, ROWS, STEPS = 320, 16, 40, 6
CONFIG = dict(model_type="llama", vocab_size=VOCAB, hidden_size=64, intermediate_size=128,
              num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=64, tie_word_embeddings=False)
# In Python these need other hardware, or always fail.
ONLY_HERE = {"adamw_torch_xla", "adamw_torch_npu_fused", "galore_adafactor_layerwise"}
MOST = 1e-5  # of a loss


def flags_of(name):
    flags = {
        "optim": name, "learning_rate": 2e-3, "weight_decay": 0.1, "max_steps": STEPS,
        "per_device_train_batch_size": 4, "logging_steps": 1, "save_strategy": "steps",
        "save_steps": STEPS, "report_to": "none", "use_cpu": True, "disable_tqdm": True
    }
    if name.startswith(("galore", "apollo")):
        flags |= {
            "optim_target_modules": ["self_attn", "mlp"], "optim_args": "rank=8,update_proj_gap=2"
        }
    if name.endswith("layerwise"):  # in transformers schedules do not reach these
        flags["lr_scheduler_type"] = "constant"
    return flags


def losses_of(state):
    return [entry["loss"] for entry in state["log_history"] if "loss" in entry]


def ours(name, folder, rows):
    words = []
    for flag, value in flags_of(name).items():
        words += [f"--{flag}"] if value is True else [
            f"--{flag}", *map(str, value if isinstance(value, list) else [value])
        ]
    output = folder / f"ours-{name}"
    done = subprocess.run([
        GRADUS, "train", "--task", "causal-lm", "--model_name_or_path",
        str(folder), "--train_file",
        str(rows), "--block_size",
        str(TOKENS), "--output_dir",
        str(output), *words
    ], capture_output=True, text=True)
    assert done.returncode == 0, (name, done.stderr)
    return losses_of(json.loads((output / f"checkpoint-{STEPS}/trainer_state.json").read_text()))


def theirs(name, folder, rows):
    if "bitsandbytes" in sys.modules:  # it remembers parameters by an address that is used again
        sys.modules["bitsandbytes"].optim.GlobalOptimManager._instance = None
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    args = transformers.TrainingArguments(str(folder / f"theirs-{name}"),
                                          **{**flags_of(name), "save_strategy": "no"})
    dataset = [{"input_ids": torch.tensor(row), "labels": torch.tensor(row)} for row in rows]
    trainer = transformers.Trainer(model, args, train_dataset=dataset)
    if name == "stable_adamw":
        cls, kwargs = trainer.get_optimizer_cls_and_kwargs(args)
        trainer.optimizer_cls_and_kwargs = cls, {**kwargs, "triton": False}
    trainer.train()
    return losses_of({"log_history": trainer.state.log_history})


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    if PACKAGES:
        sys.path.append(PACKAGES)
        import peer_packages
        torchdistx = pathlib.Path(PACKAGES) / "anyprecision_optimizer.py"
        if torchdistx.exists():
            peer_packages.load_torchdistx(torchdistx)
        peer_packages.patch()
    rng = random.Random(3)
    passed_over, worst = [], {}
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        torch.manual_seed(1)
        transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**CONFIG)).save_pretrained(folder)
        rows = [[rng.randrange(VOCAB) for _ in range(TOKENS)] for _ in range(ROWS)]
        numpy.array(rows, dtype=numpy.uint16).tofile(folder / "rows.bin")
        for name in [each.value for each in transformers.training_args.OptimizerNames]:
            mine = ours(name, folder, folder / "rows.bin")
            assert len(mine) == STEPS and mine[-1] == mine[-1], (name, mine)
            if name in ONLY_HERE:
                continue
            try:
                expected = theirs(name, folder, rows)
            except (ImportError, ValueError) as error:
                passed_over.append(f"{name} ({str(error).splitlines()[0][:60]})")
                continue
            worst[name] = max(abs(a - b) / b for a, b in zip(mine, expected))
            assert worst[name] <= MOST, (name, mine, expected)
    for name, difference in sorted(worst.items(), key=lambda item: -item[1]):
        print(f"{name}: losses differ by {difference:.1e}")
    print(f"{len(worst)} optimizers are equal; passed over: {', '.join(passed_over) or 'none'}")


if __name__ == "__main__":
    main()
