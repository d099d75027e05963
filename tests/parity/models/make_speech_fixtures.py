"""Makes the fixtures of wav2vec 2.0 and HuBERT: tiny random models with outputs and gradients.

`python make_speech_fixtures.py` with the peer's Python. The files of fixtures/ are read by
tests/unit/models/parity_test.cpp as those of make_fixtures.py, speech/ by speech_test.cpp.
"""
import json
import pathlib

import numpy
import torch
from safetensors.torch import save_file
from transformers import (
    AutoConfig, AutoModelForAudioClassification, AutoModelForCTC, AutoModelForPreTraining
)
from transformers.models.wav2vec2.modeling_wav2vec2 import (
    _compute_mask_indices, _sample_negative_indices
)

import make_fixtures
from make_fixtures import record, randomise, write

OUT = pathlib.Path(__file__).parent / "speech"
make_fixtures.TASKS["ctc"] = AutoModelForCTC
make_fixtures.TASKS["sequence_classification"] = AutoModelForAudioClassification
TINY = dict(model_type="wav2vec2", vocab_size=9, hidden_size=16, num_hidden_layers=2,
            num_attention_heads=2, intermediate_size=24, conv_dim=[6, 8, 8], conv_stride=[5, 2, 2],
            conv_kernel=[10, 3, 3], num_conv_pos_embeddings=6, num_conv_pos_embedding_groups=2,
            hidden_dropout=0.0, activation_dropout=0.0, attention_dropout=0.0, final_dropout=0.0,
            layerdrop=0.0, apply_spec_augment=False, num_codevectors_per_group=5,
            num_codevector_groups=2, codevector_dim=8, proj_codevector_dim=6, num_negatives=4,
            classifier_proj_size=12, pad_token_id=0)
STABLE = {
    **TINY, "do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True
}
HUBERT = {
    key: value
    for key, value in TINY.items()
    if not key.startswith(("num_code", "code", "proj_code", "num_neg"))
} | {"model_type": "hubert"}


def sound(rows, samples, lengths=None):
    values = {"input_values": torch.randn(rows, samples)}
    if lengths:
        values["attention_mask"] = torch.zeros(rows, samples, dtype=torch.long)
        for row, length in enumerate(lengths):
            values["attention_mask"][row, :length] = 1
            values["input_values"][row, length:] = 0
    return values


def ctc_cases():
    labels = torch.tensor([[3, 4, 4, 5], [2, 8, -100, -100], [1, 0, 7, -100]])
    plain = {**sound(2, 420), "labels": labels[:2]}
    padded = {**sound(3, 420, [420, 300, 351]), "labels": labels}
    return {"plain": (plain, None), "padded": (padded, None), "items": (padded, torch.tensor(7))}


def class_cases():
    return {
        "plain": ({**sound(2, 300), "labels": torch.tensor([2, 0])}, None),
        "padded": ({
            **sound(3, 420, [420, 300, 351]), "labels": torch.tensor([1, 2, 0])
        }, None)
    }


def drawn_case(tensors, name, model, inputs, seed, gradients):
    """A step in which torch and numpy draw numbers, both from `seed`."""
    torch.manual_seed(seed)
    numpy.random.seed(seed)
    model.zero_grad()
    outputs = model(**inputs)
    outputs.loss.backward()
    for key, value in inputs.items():
        tensors[f"cases/{name}/inputs/{key}"] = value.clone()
    for key, value in outputs.items():
        if isinstance(value, torch.Tensor):
            tensors[f"cases/{name}/outputs/{key}"] = value.detach().clone().contiguous()
    if gradients:
        for key, parameter in model.named_parameters():
            if parameter.grad is not None:
                tensors[f"cases/{name}/grads/{key}"] = parameter.grad.clone()


def augmented(name, config):
    torch.manual_seed(1)
    config = {
        **config, "apply_spec_augment": True, "mask_time_prob": 0.3, "mask_time_length": 3,
        "mask_feature_prob": 0.2, "mask_feature_length": 2, "layerdrop": 0.4,
        "ctc_loss_reduction": "mean"
    }
    model = AutoModelForCTC.from_config(AutoConfig.for_model(**config)).train()
    randomise(model)
    tensors = {}
    for seed in (3, 4, 5):
        inputs = {
            **sound(3, 420, [420, 300, 351]),
            "labels": torch.tensor([[3, 4, 4, 5], [2, 8, -100, -100], [1, 6, 7, -100]])
        }
        drawn_case(tensors, str(seed), model, inputs, seed, True)
    write_speech(name, model, "ctc", tensors)


def pretraining():
    torch.manual_seed(2)
    config = {
        **STABLE, "apply_spec_augment": True, "mask_time_prob": 0.5, "mask_time_length": 2,
        "layerdrop": 0.3
    }
    model = AutoModelForPreTraining.from_config(AutoConfig.for_model(**config)).train()
    randomise(model)
    tensors = {}
    for seed in (6, 7):
        inputs = sound(3, 420, [420, 300, 351])
        frames = int(model._get_feat_extract_output_lengths(420))
        mask = model._get_feature_vector_attention_mask(frames, inputs["attention_mask"])
        numpy.random.seed(seed + 10)
        time = _compute_mask_indices((3, frames), 0.5, 2, mask, 2)
        negatives = _sample_negative_indices((3, frames), 4, time)
        inputs["mask_time_indices"] = torch.tensor(time, dtype=torch.long)
        inputs["sampled_negative_indices"] = torch.tensor(negatives, dtype=torch.long)
        drawn_case(tensors, str(seed), model, inputs, seed, True)
    model.eval()
    drawn_case(tensors, "eval", model, inputs, 8, True)
    write_speech("wav2vec2_pretraining", model, "audio_pretraining", tensors)


def write_speech(name, model, task, tensors):
    make_fixtures.OUT, kept = OUT, make_fixtures.OUT
    write(name, model, task, tensors)
    make_fixtures.OUT = kept


def masks():
    """Masks and negatives of `_compute_mask_indices` and `_sample_negative_indices`."""
    cases = []
    for seed, (rows, length, prob, span, least, lengths) in enumerate([
        (2, 30, 0.3, 4, 0, None), (3, 49, 0.65, 10, 2, [49, 30, 12]), (2, 20, 0.05, 10, 2, None),
        (3, 25, 0.4, 10, 0, [25, 9, 5]), (2, 40, 0.01, 5, 0, None), (4, 64, 0.5, 2, 2,
                                                                   [64, 64, 3, 20])
    ]):
        numpy.random.seed(seed)
        attention = None
        if lengths:
            attention = torch.zeros(rows, length, dtype=torch.long)
            for row, used in enumerate(lengths):
                attention[row, :used] = 1
        mask = _compute_mask_indices((rows, length), prob, span, attention, least)
        case = dict(seed=seed, rows=rows, length=length, prob=prob, span=span, least=least,
                    lengths=lengths, mask=mask.astype(int).tolist())
        if all(row.sum() > 1 for row in mask):
            case["negatives"] = _sample_negative_indices((rows, length), 3, mask).tolist()
        case["next"] = numpy.random.rand()
        cases.append(case)
    (OUT / "masks.json").write_text(json.dumps(cases) + "\n")


def main():
    OUT.mkdir(exist_ok=True)
    models = {
        "wav2vec2_ctc_sum": (TINY, ctc_cases, "ctc"),
        "wav2vec2_stable_ctc_mean": ({
            **STABLE, "ctc_loss_reduction": "mean"
        }, ctc_cases, "ctc"),
        "wav2vec2_adapter_ctc": ({
            **STABLE, "add_adapter": True, "adapter_attn_dim": 4, "output_hidden_size": 12,
            "num_adapter_layers": 1, "adapter_stride": 1
        }, ctc_cases, "ctc"),
        "wav2vec2_sequence_classification": (TINY, class_cases, "sequence_classification"),
        "wav2vec2_weighted_classification": ({
            **STABLE, "use_weighted_layer_sum": True
        }, class_cases, "sequence_classification"),
        "hubert_ctc": (HUBERT, ctc_cases, "ctc"),
        "hubert_batch_norm_ctc": ({
            **HUBERT, "conv_pos_batch_norm": True, "feat_proj_layer_norm": False,
            "ctc_loss_reduction": "mean"
        }, ctc_cases, "ctc"),
        "hubert_sequence_classification": ({
            **HUBERT, "do_stable_layer_norm": True, "feat_extract_norm": "layer"
        }, class_cases, "sequence_classification"),
    }
    for name, (config, cases, task) in models.items():
        if task == "sequence_classification":
            config = {**config, "num_labels": 3}
        make_fixtures.make(name, config, task, ("plain", "padded"), inputs=cases)
    augmented("wav2vec2_augmented", TINY)
    augmented("hubert_augmented", HUBERT)
    pretraining()
    masks()


if __name__ == "__main__":
    main()
