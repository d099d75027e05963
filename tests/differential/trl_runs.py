"""What the tests beside trl share: a tokenizer, models and rows, the loop over cases, comparisons.

A case is a label and a job, which the tool of a test reads, too. GRADUS_FULL_MATRIX=1, or a part of
a label as argument, runs cases that a test leaves out by default.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import datasets
    import peft
    import tokenizers
    import torch
    import transformers
    import trl
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin"
WANTED = sys.argv[1] if sys.argv[1:] and not sys.argv[1].startswith("--") else ""
FULL = bool(WANTED) or os.environ.get("GRADUS_FULL_MATRIX") == "1"
WORDS = ("the cat sat on a mat and saw one red bird that sang all day long under some old tree "
         "while rain fell").split()
TEMPLATE = ("{% if tools %}{{ tools | tojson }}{% endif %}"
            "{% for message in messages %}<|{{ message['role'] }}|>"
            "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<eos>"
            "{% endgeneration %}{% else %}{{ message['content'] }}<eos>{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
LLAMA = dict(model_type="llama", hidden_size=32, intermediate_size=64, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
# 20 steps with AdamW
ARGS = dict(max_steps=20, per_device_train_batch_size=4, per_device_eval_batch_size=4,
            gradient_accumulation_steps=2, learning_rate=2e-3, warmup_steps=4, logging_steps=2,
            eval_strategy="steps", eval_steps=10, save_strategy="no", seed=5, report_to="none",
            use_cpu=True, disable_tqdm=True, bf16=False, max_length=32)
CLOCKS = ("_runtime", "_per_second", "total_flos", "step_time")


def sentence(rng, least=3, most=12):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(least, most)))


def make_tokenizer(folder, vocab_size=320):
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = tokenizers.decoders.ByteLevel()
    trained.train_from_iterator(
        [" ".join(WORDS)] * 3,
        tokenizers.trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=["<pad>", "<eos>", "<|user|>", "<|assistant|>"],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=trained, eos_token="<eos>",
                                                     pad_token="<pad>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_model(folder, config, tokenizer, seed, kind=transformers.AutoModelForCausalLM):
    """A folder with new weights."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(
        **config, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None)
    model = kind.from_config(config)
    model.save_pretrained(folder)
    return model


def write_rows(path, rows):
    pathlib.Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


class FirstGradients(transformers.TrainerCallback):
    """The gradients of the first step, under the names that gradus has for parameters."""

    def __init__(self):
        self.found = None

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if self.found is None:
            self.found = {self.plain(name): parameter.grad.flatten().tolist()
                          for name, parameter in model.named_parameters()
                          if parameter.grad is not None}

    @staticmethod
    def plain(name):
        for part in ("module.", "base_model.model.", "modules_to_save.default.", ".base_layer"):
            name = name.replace(part, "")
        return name


def given_to_trl(job):
    """What the constructors of trl's trainers are given for a job, and the gradients to come."""
    rows = {name: datasets.Dataset.from_list(
        [json.loads(line) for line in pathlib.Path(job[name]).read_text().splitlines()])
        for name in ("train", "eval")}
    gradients = FirstGradients()
    return dict(train_dataset=rows["train"], eval_dataset=rows["eval"], callbacks=[gradients],
                processing_class=transformers.AutoTokenizer.from_pretrained(job["folder"]),
                peft_config=peft.LoraConfig(**job["lora"]) if "lora" in job else None), gradients


def answer_of(trainer, gradients, resume=None):
    """Trains, from a checkpoint on if there is one; the answer has the form of the tool's."""
    trainable = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    trainer.train(resume_from_checkpoint=resume)
    return {"log_history": trainer.state.log_history, "trainable": trainable,
            "gradients": gradients.found}


def without_clocks(entry):
    return {name: value for name, value in entry.items() if not name.endswith(CLOCKS)}


def is_near(value, other, bound):
    return abs(value - other) <= bound * max(1.0, abs(other))


def gradient_failures(label, mine, theirs, bound):
    if set(mine) != set(theirs):
        yield f"{label}: only one side has gradients of {sorted(set(mine) ^ set(theirs))[:3]}"
    for name in sorted(set(mine) & set(theirs)):
        ours, others = mine[name], theirs[name]
        worst = max((abs(a - b) for a, b in zip(ours, others)), default=0)
        if len(ours) != len(others) or not worst <= bound:
            yield f"{label}: the gradient of {name} differs by {worst}"


def is_rounding(name, entry):
    """Whether a metric says which of two rewards is larger that differ by rounding alone: those of
    a policy that has not moved from its reference, which was asked beforehand in other batches."""
    margin = abs(entry.get(name.replace("accuracies", "margins"), 1))
    return name.endswith("rewards/accuracies") and 0 < margin < 1e-6


def log_failures(label, ours, others, bound, exact_steps, more):
    """`bound` for the first steps and those after; `more` begins names that trl may lack."""
    if len(ours) != len(others):
        yield f"{label}: {len(ours)} log entries, trl {len(others)}"
    for entry, other in zip(map(without_clocks, ours), map(without_clocks, others)):
        where = f"{label}, step {other['step']}"
        known = {name for name, value in other.items() if value is not None}
        for name in sorted(set(entry) - known):
            if not more or not name.startswith(more):
                yield f"{where}: trl has no {name}"
        for name in sorted(known):
            if name not in entry:
                yield f"{where}: no {name}"
            elif not is_rounding(name, other) and not is_near(entry[name], other[name],
                                                              bound[other["step"] > exact_steps]):
                yield f"{where}, {name}: {entry[name]}, trl {other[name]}"


def failures_of(label, mine, theirs, bound=(1e-5, 1e-4), exact_steps=10, more=None):
    """All differences between two answers, as text."""
    failures = []
    if mine["trainable"] != theirs["trainable"]:
        failures.append(f"{label}: {mine['trainable']} trainable, trl {theirs['trainable']}")
    if mine["gradients"] is not None:
        failures += gradient_failures(label, mine["gradients"], theirs["gradients"], bound[0])
    failures += log_failures(label, mine["log_history"], theirs["log_history"], bound, exact_steps,
                             more)
    return failures


def chosen(cases):
    """Those whose label, the first member, has the word that was asked for."""
    return [case for case in cases if WANTED in case[0]]


def compare(tool, make_cases, trained_by_trl, more=None):
    """Runs the cases that `make_cases(folder)` makes on both sides; returns an exit code."""
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        cases = make_cases(place)
        for number, (_, job) in enumerate(cases):
            job["args"]["output_dir"] = str(place / f"run{number}")
        (place / "jobs.json").write_text(json.dumps([job for _, job in cases]))
        subprocess.run([BIN / tool, place / "jobs.json", place / "answers.json"], check=True,
                       env=dict(os.environ, XDG_CACHE_HOME=str(place / "cache")))
        answers = json.loads((place / "answers.json").read_text())
        failures = []
        for (label, job), answer in zip(cases, answers):
            job["args"]["output_dir"] = str(place / "trl")
            found = failures_of(label, answer, trained_by_trl(job), more=more,
                                exact_steps=job.get("exact_steps", 10))
            print(f"{label}: {'failed' if found else 'equal'}")
            failures += found
    print("\n".join(failures[:60]))
    print(f"{len(cases)} runs, {len(failures)} differences")
    return 1 if failures else 0
