"""Makes the fixtures beside this script: tiny random models of transformers with their outputs and
gradients.

Each NAME.safetensors holds weights/NAME, and per case inputs, outputs and gradients; config, task
and versions are in its metadata. Run with the peer's Python: `python make_fixtures.py [NAME...]`.
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import (
    AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification, AutoModelForTokenClassification
)

HERE = pathlib.Path(__file__).parent
OUT = HERE / "fixtures"
TASKS = {
    "causal_lm": AutoModelForCausalLM, "masked_lm": AutoModelForMaskedLM,
    "sequence_classification": AutoModelForSequenceClassification,
    "token_classification": AutoModelForTokenClassification,
    "question_answering": AutoModelForQuestionAnswering
}
VOCAB, PAD = 40, 1

GPT2 = dict(model_type="gpt2", vocab_size=VOCAB, n_positions=24, n_embd=16, n_layer=2, n_head=2,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=2, eos_token_id=3,
            pad_token_id=PAD, classifier_dropout=0.0)
LLAMA = dict(model_type="llama", vocab_size=VOCAB, hidden_size=16, intermediate_size=24,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32, bos_token_id=2, eos_token_id=3, pad_token_id=PAD,
             classifier_dropout=0.0)

BERT = dict(model_type="bert", vocab_size=VOCAB, hidden_size=16, intermediate_size=24,
            num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=24,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=PAD)
ENCODERS = {
    "bert": BERT,
    "roberta": {
        **BERT, "model_type": "roberta", "hidden_act": "gelu_new", "layer_norm_eps": 1e-5,
        "bos_token_id": 2, "eos_token_id": 3
    },
    "distilbert": dict(model_type="distilbert", vocab_size=VOCAB, dim=16, hidden_dim=24, n_layers=2,
                       n_heads=2, max_position_embeddings=24, dropout=0.0, attention_dropout=0.0,
                       qa_dropout=0.0, seq_classif_dropout=0.0, pad_token_id=PAD),
}
SEPARATOR = 5
BIGBIRD = {
    **BERT, "model_type": "big_bird", "hidden_act": "gelu_new", "max_position_embeddings": 32,
    "block_size": 2, "num_random_blocks": 1, "sep_token_id": SEPARATOR, "classifier_dropout": 0.0
}


def llama(**changes):
    return {**LLAMA, **changes}


FAMILY = {
    "gpt2": GPT2,
    "llama": llama(),
    "mistral": llama(model_type="mistral", sliding_window=4, head_dim=8),
    "qwen2": llama(model_type="qwen2", use_sliding_window=True, sliding_window=4,
                   max_window_layers=1, tie_word_embeddings=True),
    "qwen3": llama(model_type="qwen3", head_dim=8, attention_bias=True),
}
ROPE = {
    "linear": dict(rope_type="linear", factor=2.0, rope_theta=10000.0),
    "dynamic": dict(rope_type="dynamic", factor=2.0, rope_theta=10000.0),
    "llama3": dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=16, rope_theta=500000.0),
    "yarn": dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8,
                 rope_theta=10000.0),
    "longrope": dict(rope_type="longrope", short_factor=[1.0, 1.5], long_factor=[2.0, 4.0],
                     original_max_position_embeddings=12, rope_theta=10000.0),
    "proportional": dict(rope_type="proportional", partial_rotary_factor=0.5, factor=2.0,
                         rope_theta=10000.0),
}


def randomise(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            norm = "norm" in name.lower() or ".ln_" in name
            parameter.copy_((1.0 if norm and name.endswith("weight") else 0.0) +
                            (0.1 if norm else 0.2) * noise)


def text(rows, tokens):
    return torch.randint(4, VOCAB, (rows, tokens))


def inputs_of(task, tokens=9):
    """Cases: name -> (inputs of the model, num_items_in_batch or None)."""
    plain = {"input_ids": text(2, tokens)}
    padded = {
        "input_ids": text(3, tokens), "attention_mask": torch.ones(3, tokens, dtype=torch.long)
    }
    for row, length in ((1, 5), (2, 7)):
        padded["input_ids"][row, length:] = PAD
        padded["attention_mask"][row, length:] = 0
    left = {"input_ids": text(2, tokens), "attention_mask": torch.ones(2, tokens, dtype=torch.long)}
    left["input_ids"][1, :3] = PAD
    left["attention_mask"][1, :3] = 0
    packed = {
        "input_ids": text(1, tokens),
        "position_ids": torch.cat([torch.arange(4), torch.arange(tokens - 4)]).unsqueeze(0)
    }
    cases = {"plain": plain, "padded": padded, "left_padded": left, "packed": packed}
    for name, case in cases.items():
        rows = case["input_ids"].shape[0]
        if task == "causal_lm":
            labels = case["input_ids"].clone()
            if "attention_mask" in case:
                labels[case["attention_mask"] == 0] = -100
            if name == "packed":
                labels[:, 4] = -100
            case["labels"] = labels
        elif task == "masked_lm":
            case["labels"] = torch.where(
                torch.rand(case["input_ids"].shape) < 0.3, text(*case["input_ids"].shape), -100)
            case["labels"][0, 1] = 7
        elif task == "token_classification":
            labels = torch.randint(0, 3, case["input_ids"].shape)
            labels[:, 0] = -100
            case["labels"] = labels
        elif task == "sequence_classification":
            case["labels"] = torch.randint(0, 3, (rows,))
        else:
            case["start_positions"] = torch.randint(0, 4, (rows,))
            case["end_positions"] = torch.randint(4, tokens, (rows,))
            if rows > 1:
                case["end_positions"][-1] = tokens + 2  # outside: ignored
    cases = {name: (case, None) for name, case in cases.items()}
    if task in ("causal_lm", "masked_lm"):
        cases["items"] = (cases["padded"][0], torch.tensor(37))
    if task == "sequence_classification":
        del cases["packed"]
    return cases


def record(model, cases, gradients):
    tensors = {}
    for name, (inputs, items) in cases.items():
        model.zero_grad()
        extra = {} if items is None else {"num_items_in_batch": items}
        outputs = model(**inputs, **extra)
        outputs.loss.backward()
        for key, value in {**inputs, **extra}.items():
            tensors[f"cases/{name}/inputs/{key}"] = value.clone()
        for key in ("loss", "logits", "start_logits", "end_logits"):
            if key in outputs:
                tensors[f"cases/{name}/outputs/{key}"] = outputs[key].detach().clone()
        if name in gradients:
            for key, parameter in model.named_parameters():
                if parameter.grad is not None:
                    tensors[f"cases/{name}/grads/{key}"] = parameter.grad.clone()
    return tensors


def write(name, model, task, tensors, mode="train"):
    tied = set(model._tied_weights_keys or ()) if getattr(
        model.config, "tie_word_embeddings", False) else set()
    tensors.update({
        f"weights/{key}": value.clone()
        for key, value in model.state_dict().items()
        if key not in tied
    })
    config = model.config.to_dict()
    config["architectures"] = [type(model).__name__]
    metadata = {
        "config": json.dumps(config), "task": task, "transformers": transformers.__version__,
        "torch": torch.__version__, "seed": "0", "mode": mode
    }
    save_file(tensors, OUT / f"{name}.safetensors", metadata)
    size = (OUT / f"{name}.safetensors").stat().st_size
    assert size <= 200_000, (name, size)
    print(f"{name}: {size} bytes")


def make(name, config, task, gradients, cases=None, inputs=None, mode="train"):
    torch.manual_seed(0)
    model = TASKS[task].from_config(AutoConfig.for_model(**config)).float().train(mode == "train")
    # as Trainer does; with a cache transformers does not look for packed sequences
    model.config.use_cache = False
    randomise(model)
    write(name, model, task,
          record(model, cases or (inputs() if inputs else inputs_of(task)), gradients), mode)


def encoder_inputs(config, task):
    cases = inputs_of(task)
    if config["model_type"] != "distilbert":
        ids = cases["padded"][0]["input_ids"]
        cases["padded"][0]["token_type_ids"] = (torch.arange(ids.shape[1])
                                                >= 4).long().expand(ids.shape).contiguous()
    return cases


def encoder_job(config, task, gradients, cases=None):
    return lambda name: make(name, config, task, gradients, cases, lambda: encoder_inputs(
        config, task))


def encoder_jobs():
    jobs = {}
    for family, config in ENCODERS.items():
        jobs[f"{family}_masked_lm"] = encoder_job(config, "masked_lm", ("plain", "padded"))
        for task in ("sequence_classification", "token_classification"):
            jobs[f"{family}_{task}"] = encoder_job({**config, "num_labels": 3}, task, ("padded",))
        task = "question_answering"
        jobs[f"{family}_{task}"] = encoder_job(config, task, ("padded",))
    generator = torch.Generator().manual_seed(1)
    rows = {"input_ids": torch.randint(4, VOCAB, (3, 6), generator=generator)}
    scores = {"rows": ({**rows, "labels": torch.randn(3, generator=generator)}, None)}
    vectors = {"rows": ({**rows, "labels": torch.randn(3, 2, generator=generator)}, None)}
    several = {
        "rows": ({**rows, "labels": torch.randint(0, 2, (3, 4), generator=generator).float()}, None)
    }
    jobs["bert_reward"] = encoder_job({**BERT, "num_labels": 1}, "sequence_classification",
                                      ("rows",), scores)
    jobs["distilbert_regression"] = encoder_job(
        {**ENCODERS["distilbert"], "num_labels": 2, "problem_type": "regression"},
        "sequence_classification", ("rows",), vectors)
    jobs["roberta_multi_label"] = encoder_job({**ENCODERS["roberta"], "num_labels": 4},
                                              "sequence_classification", ("rows",), several)
    jobs["bert_masked_lm_untied"] = encoder_job(
        {**BERT, "tie_word_embeddings": False, "hidden_act": "relu"}, "masked_lm", ("plain",))
    jobs["distilbert_masked_lm_untied"] = encoder_job(
        {**ENCODERS["distilbert"], "tie_word_embeddings": False, "activation": "gelu_new"},
        "masked_lm", ("plain",))
    return jobs


def bigbird_inputs(task, tokens):
    """Cases of one length: the first short text would make BigBird's attention full for good."""
    cases = inputs_of(task, tokens)
    for inputs, _ in cases.values():
        if task == "question_answering":
            ids = inputs["input_ids"]
            ids[ids == SEPARATOR] += 1
            ids[:, 3] = SEPARATOR
            inputs["start_positions"] = torch.randint(4, 6, inputs["start_positions"].shape)
        elif task != "causal_lm" and "attention_mask" in inputs:
            inputs["token_type_ids"] = (inputs["input_ids"] % 2).contiguous()
    return cases


def bigbird_jobs():
    """Full attention for short texts, sparse attention for longer ones, the plan of the paper for
    1024 tokens, and evaluation, where no block is random.
    """
    jobs = {}
    make_one = lambda config, task, tokens, **more: lambda name: make(
        name, config, task, ("padded",), inputs=lambda: bigbird_inputs(task, tokens), **more)
    for kind, tokens in (("full", 9), ("sparse", 17)):
        jobs[f"bigbird_{kind}_masked_lm"] = make_one(BIGBIRD, "masked_lm", tokens)
        for task in ("sequence_classification", "token_classification"):
            jobs[f"bigbird_{kind}_{task}"] = make_one({**BIGBIRD, "num_labels": 3}, task, tokens)
        jobs[f"bigbird_{kind}_question_answering"] = make_one(BIGBIRD, "question_answering", tokens)
    jobs["bigbird_causal_lm"] = make_one(
        {**BIGBIRD, "is_decoder": True, "attention_type": "original_full"}, "causal_lm", 9)
    jobs["bigbird_three_random_blocks"] = make_one(
        {
            **BIGBIRD, "num_random_blocks": 3, "use_bias": False, "rescale_embeddings": True,
            "num_labels": 3
        },
        "token_classification", 26)
    jobs["bigbird_evaluation"] = make_one(BIGBIRD, "masked_lm", 18, mode="eval")
    long = {"input_ids": torch.randint(6, VOCAB, (1, 1024))}
    long["input_ids"][0, 7] = SEPARATOR
    long |= {"start_positions": torch.tensor([600]), "end_positions": torch.tensor([1000])}
    jobs["bigbird_plan_of_the_paper"] = lambda name: make(
        name, {
            **BIGBIRD, "max_position_embeddings": 1024, "block_size": 64, "num_random_blocks": 3,
            "hidden_size": 8, "num_hidden_layers": 1
        }, "question_answering", ("long",), {"long": (long, None)})
    return jobs


def main():
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    wanted = sys.argv[1:]
    jobs = {}
    for family, config in FAMILY.items():
        jobs[f"{family}_causal_lm"] = lambda n, c=config: make(
            n, c, "causal_lm", ("plain", "padded", "packed"))
        for task in ("sequence_classification", "token_classification", "question_answering"):
            jobs[f"{family}_{task}"] = lambda n, c=config, t=task: make(
                n, {**c, "num_labels": 3} if t != "question_answering" else c, t, ("padded",))
    reward = {"rows": ({"input_ids": text(3, 6), "labels": torch.randn(3)}, None)}
    multi = {
        "rows": ({"input_ids": text(3, 6), "labels": torch.randint(0, 2, (3, 4)).float()}, None)
    }
    jobs["gpt2_reward"] = lambda n: make(n, {**GPT2, "num_labels": 1}, "sequence_classification",
                                         (), reward)
    jobs["llama_multi_label"] = lambda n: make(n, {**LLAMA, "num_labels": 4},
                                               "sequence_classification", (), multi)
    for kind, parameters in ROPE.items():
        long = {"plain": ({"input_ids": text(1, 20), "labels": text(1, 20)}, None)}
        jobs[f"llama_rope_{kind}"] = lambda n, p=parameters, l=long: make(
            n,
            llama(rope_parameters=p, max_position_embeddings=12
                  if p["rope_type"] == "dynamic" else 32), "causal_lm", (), l)
    jobs.update(encoder_jobs())
    jobs.update(bigbird_jobs())
    for name, job in jobs.items():
        if not wanted or name in wanted:
            job(name)


if __name__ == "__main__":
    main()
