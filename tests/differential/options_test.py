#!/usr/bin/env python3
"""Options of gradus against transformers' TrainingArguments, both asked now.

1. Every field of TrainingArguments is an option of gradus with the same position, type and default;
   choices agree where transformers has them.
2. The same dictionaries of options are given to both: accepted and refused alike, and where
   accepted the resolved values agree.
3. The same command lines are given to HfArgumentParser and to gradus.

Usage: options_test.py [build folder]   (default: GRADUS_BUILD, else build/release) Exit: 0 equal, 1
different, 77 when transformers is not installed.
"""
import dataclasses
import enum
import json
import os
import pathlib
import subprocess
import sys
import types
import typing
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "KUBEFLOW_TRAINER_SERVER_URL",
             "ACCELERATE_MIXED_PRECISION"):
    os.environ.pop(name, None)
try:
    import transformers
    from transformers import HfArgumentParser, TrainingArguments
    from transformers.trainer_pt_utils import AcceleratorConfig
except ImportError as error:
    print(f"skipped: the peer is not there ({error}); `make peer` makes it")
    sys.exit(77)
transformers.logging.set_verbosity_warning()

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(
    sys.argv[1] if sys.argv[1:] else os.environ.get("GRADUS_BUILD", ROOT / "build/release"))
TOOL = BUILD / "bin/config_tool"
failures = []
OUR_CHOICES = {"optim": ["muon"]}  # after the reference's own


def differ(text):
    failures.append(text)
    print("DIFFERENT", text)


def ask(mode, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    answer = subprocess.run([TOOL, mode], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in answer.stdout.splitlines()]


def kinds(annotation):
    """The set of plain kinds a type allows: {"int", "None"}; enums are their strings, paths and
    configs what JSON has for them.
    """
    if isinstance(annotation, str):
        words = annotation.replace(" ", "").split("|")
        return {"dict" if word.startswith("dict") else word for word in words}
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return set().union(*(kinds(part) for part in typing.get_args(annotation)))
    if origin is typing.Literal:
        return {type(value).__name__ for value in typing.get_args(annotation)}
    if origin is list:
        return {"list[str]"}
    if annotation is type(None):
        return {"None"}
    if origin is dict or annotation is dict:
        return {"dict"}
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return {"str"}
    if annotation in (int, float, str, bool):
        return {annotation.__name__}
    return {"dict"}  # ParallelismConfig


def default_of(field):
    made = field.default_factory is not dataclasses.MISSING
    value = field.default_factory() if made else field.default
    return value.value if isinstance(value, enum.Enum) else value


def compare_fields():
    ours = json.loads(
        subprocess.run([TOOL, "options"], capture_output=True, text=True, check=True).stdout)
    program = BUILD / "bin/gradus"
    if program.exists():
        listed = subprocess.run([program, "options", "--json"], capture_output=True, text=True)
        if listed.returncode == 0 and json.loads(listed.stdout) != ours:
            differ("`gradus options --json` is not the option table")
    theirs = [field for field in dataclasses.fields(TrainingArguments) if field.init]
    hf = [option for option in ours if option["origin"] == "hf"]
    if [option["name"] for option in hf] != [field.name for field in theirs]:
        differ(f"names or order: {[o['name'] for o in hf]} and {[f.name for f in theirs]}")
    for option, field in zip(hf, theirs):
        if kinds(option["type"]) != kinds(field.type):
            differ(f"type of {field.name}: {option['type']} and {field.type}")
        if option["default"] != default_of(field):
            differ(f"default of {field.name}: {option['default']!r} and {default_of(field)!r}")
        choices = field.metadata.get("choices")
        enums = [
            part for part in typing.get_args(field.type)
            if isinstance(part, type) and issubclass(part, enum.Enum)
        ]
        if enums:
            choices = [member.value for member in enums[0]]
        choices = choices and list(choices) + OUR_CHOICES.get(field.name, [])
        if choices and option["choices"] != choices:
            differ(f"choices of {field.name}: {option['choices']} and {list(choices)}")
        if not option["help"] or not option["group"]:
            differ(f"{field.name} has no help or group")
    if ours[len(hf):] != [option for option in ours if option["origin"] == "gradus"]:
        differ("our own options do not come last")
    print(f"{len(hf)} options of transformers {transformers.__version__}, {len(ours) - len(hf)} of "
          f"our own")


BEST = {"load_best_model_at_end": True, "eval_strategy": "steps", "save_strategy": "steps"}
# Accepted by both with the same values, or refused by both. `use_cpu` where transformers would ask
# for a GPU.
CASES = [
    {},
    {"output_dir": "~/runs/a"},
    {
        "output_dir": "x", "per_device_train_batch_size": 4, "num_train_epochs": 1.5,
        "max_steps": 10, "learning_rate": 0.001
    },
    *({"lr_scheduler_type": name}
      for name in ("linear", "cosine", "cosine_with_restarts", "warmup_stable_decay", "cosin", "")),
    *({"optim": name} for name in ("adamw_torch", "sgd", "lion_32bit", "adam")),
    {"lr_scheduler_kwargs": {"num_cycles": 2}},
    {
        "lr_scheduler_kwargs": '{"a": "true", "b": "12", "c": "0.5", "d": "-1", "e": {"f": "7"}, '
                               '"g": "1e-5"}'
    },
    {"lr_scheduler_kwargs": "{broken"},
    {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": '{"use_reentrant": false}'},
    *({"warmup_steps": value} for value in (0, 10, 0.1, 0.999, 1.0, -1, -0.5)),
    *({"logging_steps": value} for value in (0, 1, 10, 0.1, 10.0, 10.5, 1.5)),
    {"logging_strategy": "no", "logging_steps": 0},
    {"logging_strategy": "no", "logging_steps": 10.5},
    {"logging_strategy": "best"},
    {"eval_strategy": "steps"},
    {"eval_strategy": "steps", "logging_steps": 7},
    {"eval_strategy": "steps", "eval_steps": 0, "logging_steps": 7},
    {"eval_strategy": "steps", "logging_strategy": "no", "logging_steps": 0},
    {"eval_strategy": "steps", "eval_steps": 3, "logging_strategy": "epoch", "logging_steps": 0},
    {"eval_strategy": "steps", "eval_steps": 2.5},
    {"eval_strategy": "steps", "eval_steps": 4.0},
    {"eval_strategy": "epoch", "eval_steps": 2.5},
    {"eval_strategy": "best"},
    {"save_strategy": "best"},
    {"save_steps": 2.5},
    {"save_steps": 0.25},
    {"save_strategy": "epoch", "save_steps": 2.5},
    {"save_steps": 0},
    {"save_total_limit": 0},
    {"load_best_model_at_end": True},
    {"load_best_model_at_end": True, "save_strategy": "no"},
    {"load_best_model_at_end": True, "eval_strategy": "epoch"},
    {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "epoch"},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "save_strategy": "best"},
    {**BEST, "eval_steps": 10, "save_steps": 20},
    {**BEST, "eval_steps": 10, "save_steps": 15},
    {**BEST, "eval_steps": 0.1, "save_steps": 20},
    {**BEST, "eval_steps": 10, "save_steps": 0.2},
    {**BEST, "eval_steps": 0.1, "save_steps": 0.3},
    {**BEST, "eval_steps": 0.2, "save_steps": 0.3},
    {**BEST, "eval_steps": 0.07, "save_steps": 0.21},
    {**BEST, "metric_for_best_model": "accuracy"},
    {**BEST, "metric_for_best_model": "eval_loss"},
    {**BEST, "metric_for_best_model": "accuracy", "greater_is_better": False},
    {"metric_for_best_model": "f1"},
    {"lr_scheduler_type": "reduce_lr_on_plateau"},
    {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"},
    {"lr_scheduler_type": "greedy"},
    {"lr_scheduler_type": "greedy", "eval_strategy": "steps"},
    {"fp16": True, "bf16": True, "use_cpu": True},
    {"bf16": True, "use_cpu": True},
    {"fp16": True},
    {"fp16_full_eval": True, "bf16_full_eval": True, "use_cpu": True},
    {"bf16": True, "fp16_full_eval": True, "use_cpu": True},
    {"tf32": True},
    {"tf32": False},
    *({"torch_empty_cache_steps": value} for value in (1, 4, 0, -1, 1.0, "none")),
    {"dataloader_prefetch_factor": 2},
    {"dataloader_prefetch_factor": 2, "dataloader_num_workers": 2},
    {"use_cpu": True},
    {"torch_compile": True},
    {"torch_compile_mode": "reduce-overhead"},
    {"torch_compile_backend": "eager"},
    {"report_to": "none"},
    {"report_to": ["none"]},
    {"report_to": "tensorboard"},
    {"report_to": ["tensorboard"]},
    {"report_to": []},
    *({"include_num_input_tokens_seen": value}
      for value in (True, False, "all", "non_padding", "no")),
    {"debug": "underflow_overflow"},
    {"debug": "underflow_overflow tpu_metrics_debug"},
    {"debug": "everything"},
    {"hub_strategy": "never"},
    {"do_eval": True},
    {"accelerator_config": {"split_batches": True, "even_batches": False}},
    {"accelerator_config": '{"split_batches": "true"}'},
    {"accelerator_config": {"split_batch": True}},
    {"accelerator_config": "no/such/file.json"},
    {"label_names": ["start", "end"], "include_for_metrics": ["inputs", "loss"]},
    {"train_sampling_strategy": "group_by_length", "length_column_name": "n"},
    {"seed": 0, "data_seed": 7, "full_determinism": False},
    {"eval_delay": 2, "neftune_noise_alpha": 5, "max_grad_norm": 0, "label_smoothing_factor": 0.1},
    {"resume_from_checkpoint": "runs/a/checkpoint-5", "run_name": "a"},
]
# Where gradus means to differ: (options, does transformers accept, does gradus accept, reason)
MEANT = [
    ({"bf16": True}, False, True, "bf16 needs no use_cpu: LibTorch does it on every CPU"),
    ({"push_to_hub": True}, True, False, "gradus does not talk to the Hub"),
    ({"hub_model_id": "me/model"}, True, False, "hub options are refused, not passed over"),
    ({"report_to": "comet_ml"}, True, False,
     "trackers that are not there are refused at once, not by the Trainer"),
    ({"report_to": "tensorbord"}, True, False,
     "a misspelt tracker is refused at once, not by the Trainer"),
    ({"per_device_train_batch_size": 0}, True, False,
     "values that cannot work are refused at once"),
    ({"adam_beta1": 1.5}, True, False, "values that cannot work are refused at once"),
    ({"train_sampling_strategy": "x"}, True, False,
     "transformers checks these words only on the command line"),
    ({"seed": "many"}, True, False, "transformers does not check types"),
]
LINES = [
    [],
    "--output_dir x --learning_rate 1e-4 --max_steps 5 --logging_steps 0.5 --seed 3".split(),
    ["--learning-rate=1e-4", "--per-device-train-batch-size", "2", "--fp16"],
    "--logging_nan_inf_filter no".split(),
    "--no_remove_unused_columns --fp16 false --logging_first_step True".split(),
    "--no-dataloader-pin-memory --label_names a b c --warmup_steps 10".split(),
    "--lr_scheduler_kwargs {\"num_cycles\":2} --eval_strategy steps --eval_steps 4".split(),
    "--seed 1 --seed 2 --tf32 no --disable_tqdm yes".split(),
    "--learning_rate fast".split(),
    "--max_steps 1.5".split(),
    "--no_such_flag 1".split(),
    "--fp16 maybe".split(),
    "--log_level loud".split(),
    "--seed".split(),
    "stray".split(),
]


def plain(value):
    if isinstance(value, AcceleratorConfig):
        return value.to_dict()
    return json.loads(json.dumps(value, default=str))


def peer_answer(make):
    try:
        return plain(make().to_dict()), None
    except (Exception, SystemExit) as error:
        return None, f"{type(error).__name__}: {str(error)[:80]}"


def compare(label, answer, theirs, reason):
    if ("ok" in answer) != (theirs is not None):
        differ(f"{label}: gradus {answer.get('message', 'accepts')}, transformers "
               f"{reason or 'accepts'}")
    elif theirs is not None:
        for name, value in theirs.items():
            if answer["ok"].get(name, "missing") != value:
                differ(
                    f"{label}: {name}: gradus {answer['ok'].get(name)!r}, transformers {value!r}")


def compare_dictionaries():
    for options, answer in zip(CASES, ask("resolve", CASES)):
        theirs, reason = peer_answer(lambda: TrainingArguments(**json.loads(json.dumps(options))))
        compare(json.dumps(options), answer, theirs, reason)
    for (options, hf_accepts, we_accept,
         reason), answer in zip(MEANT, ask("resolve", [case[0] for case in MEANT])):
        theirs, _ = peer_answer(lambda: TrainingArguments(**options))
        if (theirs is not None) != hf_accepts or ("ok" in answer) != we_accept:
            differ(f"{json.dumps(options)}: no longer the difference we mean ({reason})")
    print(f"{len(CASES)} dictionaries compared, {len(MEANT)} meant to differ")


def compare_lines():
    sys.stderr.flush()
    for words, answer in zip(LINES, ask("parse", LINES)):
        parser = HfArgumentParser(TrainingArguments)
        parser.error = lambda message: (_ for _ in ()).throw(ValueError(message))
        theirs, reason = peer_answer(lambda: parser.parse_args_into_dataclasses(
            args=list(words), look_for_args_file=False)[0])
        compare("`" + " ".join(words) + "`", answer, theirs, reason)
    print(f"{len(LINES)} command lines")


if not TOOL.exists():
    print(f"{TOOL} is not built: build config_tool first")
    sys.exit(1)
compare_fields()
compare_dictionaries()
compare_lines()
print("equal" if not failures else f"{len(failures)} differences")
sys.exit(1 if failures else 0)
