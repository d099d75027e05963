"""`--debug underflow_overflow` beside transformers' DebugUnderflowOverflow: the same model with one
infinite weight.

The frames of layers with weights must have the same names and the same magnitudes, digit for digit,
back to where the shorter report begins; those of layers without weights are Python's alone. What an
RMSNorm reads is another thing here: its scaling, after the division. Without the peer: exit code
77.
"""
import contextlib
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRADUS = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/gradus"
VOCAB, TOKENS, ROWS = 40, 8, 4
MODELS = {
    "transformer.ln_f.weight": dict(model_type="gpt2", vocab_size=VOCAB, n_positions=16, n_embd=16,
                                    n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
                                    attn_pdrop=0.0, bos_token_id=0, eos_token_id=0),
    "model.layers.1.mlp.up_proj.weight": dict(model_type="llama", vocab_size=VOCAB, hidden_size=16,
                                              intermediate_size=32, num_hidden_layers=2,
                                              num_attention_heads=2, num_key_value_heads=1,
                                              max_position_embeddings=16, bos_token_id=0,
                                              eos_token_id=0, tie_word_embeddings=False),
}


def frames_of(report):
    """[(name of the module, {weight, bias, input[0], output: magnitudes})] of the layers with
    weights.
    """
    frames = []
    for line in report.split("forward frames:\n")[1].splitlines():
        if module := re.fullmatch(r" {18}(\S*) \w+", line):
            frames.append((module[1], {}))
        elif frames and (value := re.fullmatch(r"( *\S+ +\S+) ((?:weight|bias|input|output)\S*)",
                                               line)):
            frames[-1][1][value[2]] = value[1]
    return [(name, values) for name, values in frames if "weight" in values]


def python_report(model, rows, folder):
    dataset = [{"input_ids": torch.tensor(row), "labels": torch.tensor(row)} for row in rows]
    args = transformers.TrainingArguments(f"{folder}/python", max_steps=1,
                                          per_device_train_batch_size=ROWS,
                                          debug="underflow_overflow", report_to="none",
                                          use_cpu=True, disable_tqdm=True)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            transformers.Trainer(model, args, train_dataset=dataset).train()
        except ValueError as error:
            assert "inf/nan detected, aborting as there is no point running further" in str(
                error), error
    return said.getvalue()


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    rng = random.Random(3)
    for weight, config in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(1)
            model = transformers.AutoModelForCausalLM.from_config(
                transformers.AutoConfig.for_model(**config))
            with torch.no_grad():
                model.get_parameter(weight).view(-1)[0] = float("inf")
            model.save_pretrained(folder)
            rows = [[rng.randrange(VOCAB) for _ in range(TOKENS)] for _ in range(ROWS)]
            numpy.array(rows, dtype=numpy.uint16).tofile(f"{folder}/rows.bin")
            ours = subprocess.run([
                GRADUS, "train", "--task", "causal-lm", "--model_name_or_path", folder,
                "--train_file", f"{folder}/rows.bin", "--block_size",
                str(TOKENS), "--output_dir", f"{folder}/ours", "--max_steps", "1",
                "--per_device_train_batch_size",
                str(ROWS), "--debug", "underflow_overflow", "--report_to", "none", "--use_cpu",
                "--disable_tqdm"
            ], capture_output=True, text=True)
            assert ours.returncode == 1, (ours.returncode, ours.stderr)
            assert "[G-TRAIN-16]" in ours.stderr, ours.stderr
            mine = frames_of(ours.stdout + ours.stderr)
            theirs = frames_of(python_report(model, rows, folder))
            assert mine[-1][0] == weight.rsplit(".",
                                                1)[0] and "inf" in mine[-1][1]["weight"], mine[-1]
            for (name, values), (other, expected) in zip(reversed(mine), reversed(theirs)):
                assert name == other, (name, other)
                if "norm" in name and config["model_type"] == "llama":
                    values, expected = ({
                        key: value for key, value in each.items() if key != "input[0]"
                    } for each in (values, expected))
                assert values == expected, (name, json.dumps(values), json.dumps(expected))
            print(f"{config['model_type']}: {min(len(mine), len(theirs))} frames are equal")
            assert min(len(mine), len(theirs)) >= 8


if __name__ == "__main__":
    main()
