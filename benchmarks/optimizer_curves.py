"""Loss curves of every optimizer with states of 8 or 4 bits beside its form of 32 bits.

    python benchmarks/optimizer_curves.py [--gradus build/release/bin/gradus] [--steps 1000]
                                          [--seeds 42 43 44] [--only NAME...] [--results FILE]

All runs train the same small GPT-2 (GaLore: a Llama) from the same weights on the bytes of this
repository's pages and headers, in the same order. Prints the mean loss of the last 50 steps, over
all seeds, and how far the two forms are apart; exit status 1 if one is more than 1 % above. With
one seed, rounding alone moves that mean by up to 1 %. A run takes minutes on a CPU, so that this is
no part of run.py.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOUND = 0.01
LAST = 50

GPT2 = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 256,
    "n_positions": 64, "n_embd": 128, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0
}
# GaLore works on linear layers, which GPT-2 has none of.
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 256,
    "max_position_embeddings": 64, "hidden_size": 128, "intermediate_size": 344,
    "num_hidden_layers": 2, "num_attention_heads": 4, "bos_token_id": 0, "eos_token_id": 0
}
GALORE = ["--optim_target_modules", "attn", "mlp", "--optim_args", "rank=32,update_proj_gap=50"]

# The name, the form of 32 bits that it is compared with, and the flags of both.
PAIRS = [
    ("adamw_8bit", "adamw_torch", ["--learning_rate", "2e-3"]),
    ("adamw_bnb_8bit", "adamw_torch", ["--learning_rate", "2e-3"]),
    ("paged_adamw_8bit", "paged_adamw_32bit", ["--learning_rate", "2e-3"]),
    ("adamw_torch_8bit", "adamw_torch", ["--learning_rate", "2e-3"]),
    ("adamw_torch_4bit", "adamw_torch", ["--learning_rate", "2e-3"]),
    ("lion_8bit", "lion_32bit", ["--learning_rate", "3e-4"]),
    ("paged_lion_8bit", "paged_lion_32bit", ["--learning_rate", "3e-4"]),
    ("ademamix_8bit", "ademamix", ["--learning_rate", "2e-3"]),
    ("paged_ademamix_8bit", "paged_ademamix_32bit", ["--learning_rate", "2e-3"]),
    ("rmsprop_bnb_8bit", "rmsprop_bnb_32bit", ["--learning_rate", "5e-4"]),
    ("galore_adamw_8bit", "galore_adamw", ["--learning_rate", "5e-3", *GALORE]),
    ("galore_adamw_8bit_layerwise", "galore_adamw_layerwise",
     ["--learning_rate", "5e-3", *GALORE]),
]


def text_of_repository():
    files = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("include/**/*.h")])
    return b"\n".join(file.read_bytes() for file in files)


def prepare(folder):
    """Writes the folders of the models' config.json, and the file of tokens: two bytes each."""
    for config in (GPT2, LLAMA):
        (folder / config["model_type"]).mkdir()
        (folder / config["model_type"] / "config.json").write_text(json.dumps(config))
    text = text_of_repository()
    (folder / "text.bin").write_bytes(bytes(part for byte in text for part in (byte, 0)))


def last_loss(options, folder, optimizer, flags, seed):
    """The mean loss of the last steps of a run."""
    config = LLAMA if optimizer.startswith("galore") else GPT2
    model, data = folder / config["model_type"], folder / "text.bin"
    out = folder / optimizer
    command = [
        options.gradus, "train", "--task", "causal-lm", "--config_name", model, "--train_file",
        data, "--block_size", "64", "--output_dir", out, "--overwrite_output_dir", "--optim",
        optimizer, "--per_device_train_batch_size", "4", "--max_steps", options.steps,
        "--logging_steps", "1", "--warmup_steps", "50", "--lr_scheduler_type", "linear", "--seed",
        seed, "--save_strategy", "no", "--disable_tqdm", "--report_to", "none", "--use_cpu",
        "--weight_decay", "0.01", *flags
    ]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{optimizer}: {done.stdout[-2000:]}")
    with open(out / "trainer_state.json") as file:
        history = json.load(file)["log_history"]
    return statistics.mean([entry["loss"] for entry in history if "loss" in entry][-LAST:])


def main_of_curves():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradus", default=ROOT / "build/release/bin/gradus")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="*", default=[42, 43, 44])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--results", default="")
    options = parser.parse_args()
    lines = ["| optimizer | loss | compared with | loss | apart |", "|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    known, missed = {}, False
    with tempfile.TemporaryDirectory(prefix="gradus-curves-") as folder:
        prepare(Path(folder))
        for name, usual, flags in PAIRS:
            if options.only and name not in options.only:
                continue
            for optimizer in (usual, name):
                key = (optimizer, *flags)
                if key not in known:
                    known[key] = statistics.mean(
                        last_loss(options, Path(folder), optimizer, flags, seed)
                        for seed in options.seeds)
            low, full = known[(name, *flags)], known[(usual, *flags)]
            apart = (low - full) / full
            missed |= apart > BOUND
            lines.append(f"| {name} | {low:.4f} | {usual} | {full:.4f} | {100 * apart:+.2f} % |")
            print(lines[-1], flush=True)
    if options.results:
        Path(options.results).write_text("\n".join(lines) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main_of_curves())
