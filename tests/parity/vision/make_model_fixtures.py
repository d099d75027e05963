"""Makes models/NAME.safetensors beside this script: tiny random image classifiers of transformers
with their outputs and gradients.

Each holds weights/NAME (as save_pretrained writes them), and per case inputs, outputs and gradients
in training mode; the case "eval" is in evaluation mode. config and versions are in the metadata.
Run with the peer's Python: `python make_model_fixtures.py`.
"""
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageClassification

OUT = pathlib.Path(__file__).parent / "fixtures/models"
VIT = dict(model_type="vit", hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
           intermediate_size=24, image_size=12, patch_size=4, num_labels=3)
RESNET = dict(model_type="resnet", embedding_size=6, hidden_sizes=[8, 12], depths=[1, 2],
              num_labels=3)
CONVNEXT = dict(model_type="convnext", num_stages=2, hidden_sizes=[8, 12], depths=[1, 2],
                patch_size=2, num_labels=3)
MODELS = {
    "vit": VIT,
    "vit_grey": {
        **VIT, "num_channels": 1, "image_size": [12, 8], "qkv_bias": False, "hidden_act": "relu"
    },
    "resnet": RESNET,
    "resnet_basic": {**RESNET, "layer_type": "basic", "downsample_in_first_stage": True},
    "resnet_early": {**RESNET, "downsample_in_bottleneck": True, "hidden_act": "silu"},
    "convnext": CONVNEXT,
    "convnext_plain": {**CONVNEXT, "layer_scale_init_value": 0.0, "hidden_act": "relu"},
}


def randomise(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_((1.0 if is_norm else 0.0) +
                            (0.1 if "norm" in name else 0.2) * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(0, 0.2)
            if name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)


def saved_weights(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def run(model, inputs, items=None):
    model.zero_grad()
    extra = {} if items is None else {"num_items_in_batch": items}
    outputs = model(**inputs, **extra)
    outputs.loss.backward()
    return outputs


def make(name, values):
    torch.manual_seed(0)
    config = AutoConfig.for_model(**values)
    model = AutoModelForImageClassification.from_config(config).float()
    randomise(model)
    tensors = {f"weights/{key}": value.clone() for key, value in saved_weights(model).items()}
    size = values.get("image_size", 16)
    height, width = size if isinstance(size, list) else (size, size)
    pixels = torch.randn(4, config.num_channels, height, width)
    inputs = {"pixel_values": pixels, "labels": torch.tensor([0, 2, 1, 1])}
    cases = {"train": (True, None), "eval": (False, None)}
    if values["model_type"] == "vit":
        cases["items"] = (True, torch.tensor(7))
    for case, (training, items) in cases.items():
        model.train(training)
        before = {key: value.clone() for key, value in model.named_buffers()}
        outputs = run(model, inputs, items)
        for key, value in inputs.items():
            tensors[f"cases/{case}/inputs/{key}"] = value.clone()
        if items is not None:
            tensors[f"cases/{case}/inputs/num_items_in_batch"] = items
        for key in ("loss", "logits"):
            tensors[f"cases/{case}/outputs/{key}"] = outputs[key].detach().clone()
        for key, parameter in model.named_parameters():
            tensors[f"cases/{case}/grads/{key}"] = parameter.grad.clone()
        if training:
            for key, value in model.named_buffers():
                tensors[f"cases/{case}/buffers/{key}"] = value.clone()
        with torch.no_grad():
            for key, value in model.named_buffers():
                value.copy_(before[key])
    values = model.config.to_dict()
    values["architectures"] = [type(model).__name__]
    metadata = {
        "config": json.dumps(values), "transformers": transformers.__version__,
        "torch": torch.__version__, "seed": "0"
    }
    save_file(tensors, OUT / f"{name}.safetensors", metadata)
    print(name, (OUT / f"{name}.safetensors").stat().st_size)


if __name__ == "__main__":
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    for name, values in MODELS.items():
        make(name, values)
