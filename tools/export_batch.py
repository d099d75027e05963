"""Example batches of Hugging Face models, with the names and bounds of their dimensions.

tools/export_model.py uses it.
"""
import inspect

import torch

SAMPLES = 30 * 16000  # the longest clip: 30 seconds


def forward_names(model):
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return inspect.signature(inner.forward).parameters


def example_batch(options, name, model):
    """A batch of made-up values, and the names of its dimensions."""
    config, rows, length = model.config, options.batch, options.length or 24
    torch.manual_seed(1)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = getattr(text, "vocab_size", 2)
    taken = forward_names(model)
    batch, axes = {}, {}

    def put(key, value, *names):
        batch[key], axes[key] = value, list(names)

    if "pixel_values" in taken and "input_ids" not in taken:
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        channels = getattr(config, "num_channels", 3)
        put("pixel_values", torch.randn(rows, channels, height, width), "batch", channels, height,
            width)
        if name == "SemanticSegmentation":
            put("labels", torch.randint(0, config.num_labels, (rows, height, width)), "batch",
                height, width)
        else:
            put("labels", torch.randint(0, config.num_labels, (rows,)), "batch")
        return batch, axes
    if "input_features" in taken:
        frames = 2 * getattr(config, "max_source_positions", 1500)
        bins = getattr(config, "num_mel_bins", 80)
        put("input_features", torch.randn(rows, bins, frames), "batch", bins, frames)
        put("labels", torch.randint(3, vocabulary, (rows, length)), "batch", "length")
        return batch, axes
    if "input_values" in taken:
        length = options.length or SAMPLES // 30
        put("input_values", torch.randn(rows, length), "batch", "length")
        if getattr(config, "feat_extract_norm", "layer") == "layer":  # others take no padding
            put("attention_mask", torch.ones(rows, length, dtype=torch.long), "batch", "length")
        if name == "CTC":
            symbols = torch.randint(0, vocabulary - 1, (rows, 6))
            symbols += symbols >= (config.pad_token_id or 0)  # all but the blank
            put("labels", symbols, "batch", "target_length")
        else:
            put("labels", torch.randint(0, config.num_labels, (rows,)), "batch")
        return batch, axes
    ids = torch.randint(min(5, vocabulary - 1), vocabulary, (rows, length))
    put("input_ids", ids, "batch", "length")
    if name != "CausalLM" or options.attention_mask:
        if "attention_mask" in taken:
            put("attention_mask", torch.ones_like(ids), "batch", "length")
        if "token_type_ids" in taken and getattr(config, "type_vocab_size", 0) > 1:
            put("token_type_ids", torch.zeros_like(ids), "batch", "length")
    if name == "SequenceClassification":
        labels = torch.randint(0, config.num_labels, (rows,))
        put("labels", labels.float() if config.num_labels == 1 else labels, "batch")
    elif name == "TokenClassification":
        put("labels", torch.randint(0, config.num_labels, (rows, length)), "batch", "length")
    elif name == "QuestionAnswering":
        for key in ("start_positions", "end_positions"):
            put(key, torch.randint(0, length, (rows,)), "batch")
    elif name == "Seq2SeqLM":
        put("labels", torch.randint(3, vocabulary, (rows, length - 4)), "batch", "target_length")
    else:
        labels = ids.clone()
        labels[:, 1::3] = -100
        put("labels", labels, "batch", "length")
    return batch, axes


def largest_sizes(options, config, batch):
    """The largest size of each named dimension; those without a name of their own here have that of
    "length"."""
    positions = getattr(config, "max_position_embeddings", None) or getattr(
        config, "max_target_positions", None) or 1024
    length = SAMPLES if "input_values" in batch else min(positions, 32768)
    limits = {"batch": options.max_batch, "length": options.max_length or length}
    if "input_values" in batch:
        limits["target_length"] = 1024
    return limits


def leave_out_masks(model):
    """Turns SpecAugment off: the masks of one batch would be part of the step."""
    config = getattr(model, "config", None)
    if getattr(config, "apply_spec_augment", False):
        config.apply_spec_augment = False
