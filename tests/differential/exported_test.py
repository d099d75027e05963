"""One model that gradus has no code for (OPT): exported here, trained by `gradus train`.

Gradients of the first step against eager ones (1e-5), 20 steps against transformers' Trainer (loss,
gradient norm, rate; 1e-4 relative), evaluation, a resumed run bit for bit, the weights back into
Python, a checkpoint of Python's Trainer resumed here, the same model as TorchScript, two processes
against one, and what damaged or unfit folders are answered. GRADUS_FULL_MATRIX=1 tries the
exporter's options, too (exported_options.py). Without the peer: exit code 77.
"""
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import exported_options
import exported_runs as runs

VOCAB, TOKENS = 99, 24
CONFIG = dict(vocab_size=VOCAB, hidden_size=32, ffn_dim=64, num_hidden_layers=2,
              num_attention_heads=4, max_position_embeddings=32, word_embed_proj_dim=32,
              pad_token_id=1, bos_token_id=2, eos_token_id=2)
FLAGS = dict(max_steps=runs.STEPS, per_device_train_batch_size=4, learning_rate=1e-3,
             warmup_steps=4, weight_decay=0.01, max_grad_norm=0.5, logging_steps=1, seed=11,
             gradient_accumulation_steps=2, per_device_eval_batch_size=3)


def train(model, data, output, *more, processes=1):
    flags = [f"--{name}={value}" for name, value in FLAGS.items()]
    launch = ["launch", "--nproc", str(processes)] if processes > 1 else []
    command = [
        runs.BUILD / "bin/gradus", *launch, "train", "--task", "causal-lm", "--model_name_or_path",
        model, "--train_file", data, "--validation_file", data, "--block_size",
        str(TOKENS), "--do_train", "--do_eval", "--output_dir", output, "--disable_tqdm",
        "--use_cpu", *flags, *more
    ]
    return subprocess.run(command, capture_output=True, text=True)


def history(folder):
    return json.loads((folder / "trainer_state.json").read_text())["log_history"]


def python_trainer(source, ids, output, **more):
    rows = [{"input_ids": row, "labels": row} for row in ids]
    trainer = runs.WithoutDropout(
        source.model,
        transformers.TrainingArguments(output_dir=output, report_to="none", disable_tqdm=True,
                                       use_cpu=True, **FLAGS, **more), train_dataset=rows,
        eval_dataset=rows, data_collator=transformers.default_data_collator)
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def compare(ours, theirs, what, most=1e-4):
    """Losses, norms and rates of every step."""
    mine, other = ([e for e in log if "loss" in e] for log in (ours, theirs))
    assert len(mine) == len(other), (what, len(mine), len(other))
    worst = 0.0
    for a, b in zip(mine, other):
        for key in ("loss", "grad_norm", "learning_rate"):
            difference = abs(a[key] - b[key]) / max(abs(b[key]), 1e-3)
            assert difference <= most, (what, a["step"], key, a[key], b[key])
            worst = max(worst, difference)
    print(f"{what}: {len(mine)} steps, largest relative difference {worst:.1e}")


def changed(exported, work, change):
    """A copy of the folder, of which `change(folder, exported.json)` may change all."""
    folder = work / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(exported, folder)
    text = json.loads((folder / "exported.json").read_text())
    change(folder, text)
    (folder / "exported.json").write_text(json.dumps(text))
    return folder


def expect_error(folder, data, work, wanted, *parts):
    done = train(folder, data, work / "refused", "--overwrite_output_dir")
    assert done.returncode == 1 and f"[{wanted}]" in done.stderr, (wanted, done.returncode,
                                                                   done.stderr[-800:])
    for part in parts:
        assert part in done.stderr, (part, done.stderr)
    print(f"{wanted}: {done.stderr.splitlines()[0]}")


def check_errors(exported, data, work):
    step = "train-cpu.pt2"

    def cut(folder, _):
        (folder / step).write_bytes((folder / step).read_bytes()[:-100])

    def damage(folder, _):
        content = bytearray((folder / step).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / step).write_bytes(content)

    def escape(folder, text):
        with zipfile.ZipFile(folder / step, "w") as archive:
            archive.writestr("model/../../../outside.so", b"x")
        content = (folder / step).read_bytes()
        text["packages"][0]["train"].update(bytes=len(content),
                                            checksum=f"crc32:{zlib.crc32(content):08x}")

    def other_torch(_, text):
        text["packages"][0]["torch_version"] = "2.4.1"

    def other_device(_, text):
        text["packages"][0]["device"] = "cuda"

    def without_step(folder, _):
        (folder / step).unlink()

    def wrong_shape(_, text):
        text["parameters"][0]["shape"][0] += 1

    def without_weights(folder, _):
        (folder / "model.safetensors").unlink()

    def without_inputs(_, text):
        del text["inputs"]

    def small_bound(_, text):
        text["dims"]["length"]["max"] = TOKENS - 1

    def other_task(_, text):
        text["task"] = "masked_lm"

    again = "tools/export_model.py"
    expect_error(changed(exported, work, cut), data, work, "G-EXPORT-2", "bytes", again)
    expect_error(changed(exported, work, damage), data, work, "G-EXPORT-2", "checksum")
    expect_error(changed(exported, work, escape), data, work, "G-EXPORT-2", "outside of its folder")
    expect_error(changed(exported, work, without_step), data, work, "G-EXPORT-2", again)
    expect_error(changed(exported, work, other_torch), data, work, "G-EXPORT-3", "2.4.1",
                 "pip install torch==")
    expect_error(changed(exported, work, other_device), data, work, "G-EXPORT-3", "--device cpu")
    expect_error(changed(exported, work, wrong_shape), data, work, "G-MODEL-8")
    expect_error(changed(exported, work, without_weights), data, work, "G-MODEL-7")
    expect_error(changed(exported, work, without_inputs), data, work, "G-EXPORT-1", "inputs")
    expect_error(changed(exported, work, small_bound), data, work, "G-EXPORT-4",
                 f"--max_length {TOKENS}")
    expect_error(changed(exported, work, other_task), data, work, "G-EXPORT-5", "masked_lm")
    foreign = work / "foreign.bin"
    foreign.write_bytes(struct.pack("<256H", *[VOCAB + 3] * 256))
    expect_error(exported, foreign, work, "G-SRC-13", f"id {VOCAB + 3}", f"vocabulary of {VOCAB}")
    done = train(exported, data, work / "refused", "--label_smoothing_factor=0.1")
    assert done.returncode == 1 and "[G-EXPORT-4]" in done.stderr, done.stderr[-500:]


def check_processes(model, data, work, one):
    """Two processes with the rows of one: plain data parallelism and ZeRO-1, 2, 3."""
    rows = f"--per_device_train_batch_size={FLAGS['per_device_train_batch_size'] // 2}"
    for stage in range(4):
        output = work / f"{model.name}-processes-{stage}"
        done = train(model, data, output, rows, f"--zero_stage={stage}", "--save_steps=10",
                     processes=2)
        assert done.returncode == 0, (stage, done.stderr[-2000:])
        compare(history(output), history(one), f"two processes, ZeRO-{stage}, and one", 1e-5)
        done = train(model, data, work / f"{model.name}-on-{stage}", "--resume_from_checkpoint",
                     output / "checkpoint-10", "--save_strategy=no")
        assert done.returncode == 0, (stage, done.stderr[-2000:])
        compare(history(work / f"{model.name}-on-{stage}"), history(one),
                f"from two processes, ZeRO-{stage}, to one", 1e-5)


def check_other_languages(exported, work):
    """The programs of examples/c and examples/rust, which call the C interface."""
    library = runs.BUILD / "lib"
    flags = ["-L", library, "-lgradus", f"-Wl,-rpath,{library}", "-Wl,--allow-shlib-undefined"]
    commands = {
        "C": [
            "cc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-I",
            runs.ROOT / "include", runs.ROOT / "examples/c/train.c", *flags, "-o", work / "in-c"
        ], "Rust": [
            "rustc", "--edition", "2021", runs.ROOT / "examples/rust/train.rs", "-L", library,
            "-C", f"link-arg=-Wl,-rpath,{library}", "-C", "link-arg=-Wl,--allow-shlib-undefined",
            "-o", work / "in-rust"
        ]
    }
    for language, command in commands.items():
        if shutil.which(command[0]) is None:
            print(f"{language}: no {command[0]} here")
            continue
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        done = subprocess.run([command[-1], exported, work / f"{language}-output"],
                              capture_output=True, text=True)
        assert done.returncode == 0, (language, done.returncode, done.stderr[-2000:])
        print(f"{language}: {done.stdout.strip()}")


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        transformers.OPTConfig(**CONFIG).save_pretrained(work / "model")
        exported = work / "exported"
        source, made, seconds = runs.export([
            str(work / "model"), "--auto_class", "CausalLM", "--random_weights", "--max_batch", "8",
            "--length", "16"
        ], exported)
        print(f"exported {made['class_name']} in {seconds:.0f} s")
        worst = runs.check_gradients(source, exported, work)
        assert worst <= 1e-5, worst
        print(f"gradients: largest difference {worst:.1e}")

        rng = random.Random(1)
        ids = torch.tensor([[rng.randrange(5, VOCAB) for _ in range(TOKENS)] for _ in range(60)])
        data = work / "tokens.bin"
        data.write_bytes(struct.pack(f"<{ids.numel()}H", *ids.flatten().tolist()))
        done = train(exported, data, work / "ours", "--save_steps", "10")
        assert done.returncode == 0, done.stderr[-2000:]
        trainer = python_trainer(source, ids, work / "theirs", save_steps=10)
        trainer.train()
        compare(history(work / "ours"), trainer.state.log_history, "gradus and Python")
        ours = json.loads((work / "ours/eval_results.json").read_text())["eval_loss"]
        theirs = trainer.evaluate()["eval_loss"]
        assert abs(ours - theirs) <= 1e-4 * theirs, (ours, theirs)

        # The weights into Python, under their own names.
        saved = runs.load_file(work / "ours/model.safetensors")
        start = {n: p.clone() for n, p in source.model.state_dict().items()}
        missing, unexpected = source.model.load_state_dict(saved, strict=False)
        assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
        difference = max((start[n] - p).abs().max().item() for n, p in saved.items())
        assert difference <= 1e-4, difference
        again = transformers.AutoModelForCausalLM.from_pretrained(work / "ours")
        assert all(torch.equal(p, saved[n]) for n, p in again.named_parameters())

        # Stopped after 10 steps and resumed: bit for bit as if it had not been.
        shutil.copytree(work / "ours/checkpoint-10", work / "resumed/checkpoint-10")
        done = train(exported, data, work / "resumed", "--resume_from_checkpoint",
                     work / "resumed/checkpoint-10", "--save_strategy=no")
        assert done.returncode == 0, done.stderr[-2000:]
        ends = [(work / name / "model.safetensors").read_bytes() for name in ("ours", "resumed")]
        assert ends[0] == ends[1], "a resumed run differs"
        # A run of Python goes on here, and one of gradus there.
        shutil.copytree(work / "theirs/checkpoint-10", work / "moved/checkpoint-10")
        done = train(exported, data, work / "moved", "--resume_from_checkpoint",
                     work / "moved/checkpoint-10", "--save_strategy=no")
        assert done.returncode == 0, done.stderr[-2000:]
        compare(history(work / "moved"), history(work / "ours"), "from Python to gradus")
        back = python_trainer(source, ids, work / "back", save_strategy="no")
        back.train(resume_from_checkpoint=str(work / "ours/checkpoint-10"))
        compare(back.state.log_history, history(work / "ours"), "from gradus to Python")
        # What is saved can be loaded again.
        done = train(work / "ours", data, work / "second", "--save_strategy=no")
        assert done.returncode == 0, done.stderr[-2000:]
        # The same model as TorchScript, which LibTorch differentiates.
        scripted = work / "scripted"
        source, made, _ = runs.export([
            str(work / "model"), "--auto_class", "CausalLM", "--random_weights", "--torchscript"
        ], scripted)
        for run, more in (("script", []), ("script2", ["--resume_from_checkpoint"])):
            if more:
                shutil.copytree(work / "script/checkpoint-10", work / "script2/checkpoint-10")
                more.append(work / "script2/checkpoint-10")
            done = train(scripted, data, work / run, "--save_steps", "10", *more)
            assert done.returncode == 0, done.stderr[-2000:]
        compare(history(work / "script"), history(work / "ours"), "TorchScript and compiled")
        compare(history(work / "script2"), history(work / "script"), "a resumed script")
        check_processes(exported, data, work, work / "ours")
        check_processes(scripted, data, work, work / "script")
        example = runs.BUILD / "bin/example_exported_model"
        if example.exists():  # examples/exported_model.cpp
            done = subprocess.run([example, exported], cwd=work, capture_output=True, text=True)
            assert done.returncode == 0 and "loss" in done.stdout, done.stderr[-2000:]
            assert (work / "runs/exported/final/model.safetensors").exists()
        check_other_languages(exported, work)
        check_errors(exported, data, work)
    if os.environ.get("GRADUS_FULL_MATRIX") == "1":
        exported_options.main([])


if __name__ == "__main__":
    main()
