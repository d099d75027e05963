"""Run folders as `gradus train` leaves them, made up: for tests of watch, serve and report."""
import json
import math
import os
import random
import socket
import struct
import time
import zlib


def begin_line(step=0, max_steps=1000, settings=None, at=None, alive=False):
    start = 0
    if alive:  # this process stands for the one that trains
        with open("/proc/self/stat") as stat:
            start = int(stat.read().rsplit(")", 1)[1].split()[19])
    return json.dumps({
        "event": "begin", "time": at or time.time(), "pid": os.getpid() if alive else 1,
        "host": socket.gethostname() if alive else "elsewhere", "process_start": start,
        "step": step, "max_steps": max_steps, "parameters": 124439808,
        "settings": settings or {}, "model": {"model_type": "gpt2", "n_layer": 12}}) + "\n"


def entry(step, rate, noise, at, every_eval=50):
    loss = 0.8 + 2.4 * math.exp(-step * rate) + noise.gauss(0, 0.06)
    lines = json.dumps({"step": step, "time": at, "epoch": step / 400, "grad_norm":
                        abs(noise.gauss(1.1, 0.3)), "learning_rate": 5e-5 * (1 - step / 1100),
                        "loss": loss}) + "\n"
    if step % every_eval == 0:
        lines += json.dumps({"step": step, "time": at, "eval_loss": loss + 0.12 - 0.05 * rate,
                             "eval_accuracy": 1 - loss / 4, "eval_runtime": 1.8}) + "\n"
    return lines


def progress(step, at, noise):
    return json.dumps({"event": "progress", "time": at, "step": step, "epoch": step / 400,
                       "steps_per_second": 7.5 + noise.gauss(0, 0.2), "system": {
                           "cpu.avg_util_percent": noise.uniform(60, 95),
                           "memory_percent": 41 + noise.gauss(0, 0.4),
                           "gpu.0.busy_percent": noise.uniform(88, 99),
                           "gpu.0.memoryMB": 61000 + noise.gauss(0, 50)}}) + "\n"


def write_run(folder, number, steps=1000, every=5, ended="finished"):
    """A run with settings of its own; returns its log file."""
    folder.mkdir(parents=True)
    noise = random.Random(number)
    rate = noise.choice([1e-5, 3e-5, 1e-4, 3e-4])
    settings = {"learning_rate": rate, "seed": number, "task": "causal-lm",
                "per_device_train_batch_size": noise.choice([8, 16, 32]),
                "optim": noise.choice(["adamw_torch", "lion_32bit"]), "output_dir": str(folder)}
    began = time.time() - 7200 + number
    log = folder / "run_log.jsonl"
    with open(log, "w") as out:
        out.write(begin_line(0, steps, settings, began))
        for step in range(every, steps + 1, every):
            at = began + step / 7.5
            out.write(entry(step, 0.002 + rate * 12, noise, at))
            if step % 75 == 0:
                out.write(progress(step, at, noise))
        if ended:
            out.write(json.dumps({"event": "message", "time": at, "level": "warning",
                                  "text": "the loader took 12 % of the time"}) + "\n")
            out.write(json.dumps({"event": "end", "time": at, "how": ended, "reason": ""}) + "\n")
    return log


def png(width, height, shade):
    rows = b"".join(b"\0" + bytes((x * shade + y * 3) % 256 for x in range(width * 3))
                    for y in range(height))

    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))

    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def wav(seconds=0.2):
    samples = b"".join(struct.pack("<h", int(9000 * math.sin(i / 8))) for i in range(int(
        8000 * seconds)))
    return (b"RIFF" + struct.pack("<I", 36 + len(samples)) + b"WAVEfmt " +
            struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16) + b"data" +
            struct.pack("<I", len(samples)) + samples)


def write_samples(folder):
    (folder / "generated_predictions.txt").write_text(
        "The river rises <b>in</b> the mountains.\nA second line.\n" + "more\n" * 60)
    (folder / "completions").mkdir()
    (folder / "completions" / "completions_00050.jsonl").write_text("".join(
        json.dumps({"prompt": f"What is {i} + {i}?", "completion": str(2 * i), "reward": i / 10})
        + "\n" for i in range(12)))
    (folder / "images").mkdir()
    for i in range(3):
        (folder / "images" / f"sample-{i}.png").write_bytes(png(48, 32, 3 + i))
    (folder / "speech.wav").write_bytes(wav())
