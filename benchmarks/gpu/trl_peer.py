"""One workload with trl and peft: prints `RESULT {json}`. Used by benchmarks/gpu/trl_run."""
import argparse
import json
import time

import datasets
import peft
import torch
import transformers
import trl
from trl_workloads import TRL_WORKLOADS, arguments

TRAINERS = dict(sft=(trl.SFTTrainer, trl.SFTConfig), dpo=(trl.DPOTrainer, trl.DPOConfig),
                grpo=(trl.GRPOTrainer, trl.GRPOConfig))


def length(completion_ids, **_):
    """As gradus' reward length:256."""
    return [max(0.0, 1 - abs(len(ids) - 256) / 256) for ids in completion_ids]


def wait():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Clock(transformers.TrainerCallback):
    """Seconds at every log, and of every generation."""

    def __init__(self):
        self.times, self.generating = [], []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in (logs or {}):
            wait()
            self.times.append(time.perf_counter())

    def watch(self, trainer):
        """Measures the trainer's generation of completions."""
        generate = trainer._generate_single_turn

        def timed(*args, **kwargs):
            wait()
            start = time.perf_counter()
            result = generate(*args, **kwargs)
            wait()
            self.generating.append(time.perf_counter() - start)
            return result

        trainer._generate_single_turn = timed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    work = TRL_WORKLOADS[options.name]
    trainer_class, config_class = TRAINERS[work["task"]]
    args = arguments(work, options.steps, options.tiny)
    clock = Clock()
    more = dict(reward_funcs=length) if work["task"] == "grpo" else {}
    if "lora" in work:
        more["peft_config"] = peft.LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear",
                                              **work["lora"])
    trainer = trainer_class(
        model=transformers.AutoModelForCausalLM.from_pretrained(options.model,
                                                                dtype=torch.float32),
        args=config_class(output_dir=options.out, disable_tqdm=True, **args),
        train_dataset=datasets.load_dataset("json", data_files=options.data, split="train"),
        processing_class=transformers.PreTrainedTokenizerFast.from_pretrained(options.model),
        callbacks=[clock], **more)
    if work["task"] == "grpo":
        clock.watch(trainer)
    trainer.train()
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    gaps = [1000 * (b - a) / work["interval"] for a, b in zip(clock.times, clock.times[1:])]
    print("RESULT " + json.dumps({
        "ms": gaps, "rollout_ms": [1000 * seconds for seconds in clock.generating],
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "peak_gb": peak / 2**30
    }))


if __name__ == "__main__":
    main()
