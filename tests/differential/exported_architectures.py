"""Architectures that gradus has no code for: exported from tiny configs, trained by gradus.

  tests/differential/exported_architectures.py [--only opt,gemma2] [--results FILE] [--compiled]
                                               [--folder DIR]

For each: is it exported, and if not, why; gradients of the first step against eager ones (at most
1e-5); 20 losses of `gradus train` against transformers' Trainer, dropout off (at most 1e-4), and
the same run stopped after 10 steps and resumed, bit for bit. Where no task of gradus makes the
model's batch (exported_tasks.py), gradus' Trainer class trains on made-up rows. Milliseconds per
step, of the Trainer class, beside Python's. With --compiled only: those of Python with
torch.compile, for what is in FILE.json. One that cannot be compiled is tried as TorchScript, too,
which does not count. Writes FILE.json after each architecture (those that are in it already are
passed over) and FILE.md at the end. DIR keeps the exported folders, and those that are there are
used again. Takes about half a minute for each. Exits with 1 when fewer than 18 hold through
`gradus train`.
"""
import argparse
import json
import pathlib
import tempfile

import torch
import transformers

import exported_runs as runs
import exported_tasks as tasks

NEEDED = 18
TEXT = dict(vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=64, pad_token_id=0, bos_token_id=1,
            eos_token_id=2)
ENCODER = dict(TEXT, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
KEYS = dict(num_key_value_heads=2)
GPT = dict(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1,
           eos_token_id=2)
SEQ2SEQ = dict(vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1,
               encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
               decoder_ffn_dim=64, max_position_embeddings=64, pad_token_id=1, bos_token_id=0,
               eos_token_id=2, decoder_start_token_id=2, dropout=0.0, forced_eos_token_id=2)
IMAGE = dict(image_size=32, num_channels=3, num_labels=3)
VISION = dict(IMAGE, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
              intermediate_size=64)
FIGURES = ("task", "gradients", "losses", "resumed", "gradus_ms", "eager_ms", "compiled_ms")
CAUSAL, MASKED, IMAGES = "CausalLM", "MaskedLM", "ImageClassification"

SOUND = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             conv_dim=[12, 16, 16], conv_stride=[10, 8, 4], conv_kernel=[20, 8, 4],
             num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, vocab_size=13,
             pad_token_id=10, feat_extract_norm="layer", ctc_loss_reduction="mean")
ARCHITECTURES = {
    "opt": (CAUSAL, dict(TEXT, ffn_dim=64, word_embed_proj_dim=32)),
    "gemma2": (CAUSAL, dict(TEXT, **KEYS, head_dim=8, sliding_window=16)),
    "gemma3_text": (CAUSAL, dict(TEXT, **KEYS, head_dim=8, sliding_window=16)),
    "phi3": (CAUSAL, dict(TEXT, **KEYS)),
    "phi": (CAUSAL, dict(TEXT)),
    "falcon": (CAUSAL, dict(TEXT, new_decoder_architecture=False)),
    "gpt_neox": (CAUSAL, dict(TEXT)),
    "gpt_neo": (CAUSAL, dict(vocab_size=99, hidden_size=32, num_layers=2, num_heads=4,
                             max_position_embeddings=64, window_size=16,
                             attention_types=[[["global", "local"], 1]])),
    "gptj": (CAUSAL, dict(GPT, rotary_dim=4)),
    "codegen": (CAUSAL, dict(GPT, rotary_dim=4)),
    "bloom": (CAUSAL, dict(vocab_size=99, hidden_size=32, n_layer=2, n_head=4)),
    "mixtral": (CAUSAL, dict(TEXT, **KEYS, num_local_experts=4, num_experts_per_tok=2)),
    "qwen3_moe": (CAUSAL, dict(TEXT, **KEYS, head_dim=8, num_experts=4, num_experts_per_tok=2,
                               moe_intermediate_size=32)),
    "olmo2": (CAUSAL, dict(TEXT, **KEYS)),
    "stablelm": (CAUSAL, dict(TEXT, **KEYS)),
    "starcoder2": (CAUSAL, dict(TEXT, **KEYS)),
    "gemma": (CAUSAL, dict(TEXT, **KEYS, head_dim=8)),
    "cohere": (CAUSAL, dict(TEXT, **KEYS)),
    "granite": (CAUSAL, dict(TEXT, **KEYS)),
    "gpt_bigcode": (CAUSAL, dict(GPT)),
    "persimmon": (CAUSAL, dict(TEXT)),
    "mpt": (CAUSAL, dict(vocab_size=99, d_model=32, n_heads=4, n_layers=2, max_seq_len=64)),
    # Their loops over the length become part of the step, so a short one is enough here.
    "mamba": (CAUSAL, dict(vocab_size=99, hidden_size=32, state_size=8, num_hidden_layers=2),
              "--length", "8"),
    "rwkv": (CAUSAL, dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, context_length=64),
             "--length", "8"),
    "xlnet": (CAUSAL, dict(vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=64)),
    "modernbert": (MASKED, dict(TEXT, cls_token_id=1, sep_token_id=2, local_attention=16)),
    "deberta-v2": (MASKED, dict(ENCODER, relative_attention=True, position_buckets=16,
                                norm_rel_ebd="layer_norm", share_att_key=True,
                                pos_att_type="p2c|c2p")),
    "deberta": (MASKED, dict(ENCODER, relative_attention=True, pos_att_type="p2c|c2p")),
    "electra": (MASKED, dict(ENCODER, embedding_size=16)),
    "albert": (MASKED, dict(ENCODER, embedding_size=16)),
    "longformer": (MASKED, dict(ENCODER, attention_window=8)),
    "mpnet": (MASKED, dict(ENCODER)),
    "mobilebert": (MASKED, dict(ENCODER, embedding_size=16, intra_bottleneck_size=16)),
    "squeezebert": (MASKED, dict(ENCODER, embedding_size=32)),
    "fnet": (MASKED, dict(ENCODER)),
    "pegasus": ("Seq2SeqLM", SEQ2SEQ),
    "marian": ("Seq2SeqLM", SEQ2SEQ),
    "blenderbot": ("Seq2SeqLM", SEQ2SEQ),
    "whisper": ("SpeechSeq2Seq", dict(SEQ2SEQ, num_mel_bins=16, max_source_positions=24,
                                      max_target_positions=64)),
    "swin": (IMAGES, dict(IMAGE, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4],
                          window_size=4)),
    "convnextv2": (IMAGES, dict(IMAGE, num_stages=2, hidden_sizes=[8, 16], depths=[1, 1])),
    "beit": (IMAGES, dict(VISION, vocab_size=99)),
    "mobilenet_v2": (IMAGES, dict(IMAGE, depth_multiplier=0.35)),
    "segformer": ("SemanticSegmentation",
                  dict(IMAGE, num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1],
                       hidden_sizes=[16, 32], patch_sizes=[7, 3], strides=[4, 2],
                       num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=32)),
    # Other heads, for the tasks that the models above leave out.
    "electra/classes": ("SequenceClassification", dict(ENCODER, embedding_size=16, num_labels=3)),
    "modernbert/tags": ("TokenClassification",
                        dict(TEXT, cls_token_id=1, sep_token_id=2, local_attention=16,
                             num_labels=3)),
    "albert/answers": ("QuestionAnswering", dict(ENCODER, embedding_size=16)),
    "wavlm": ("CTC", dict(SOUND, num_buckets=16, max_bucket_distance=40)),
    "clip": ("exported_architectures:make_clip", {}),
    "vit_mae": ("exported_architectures:make_vit_mae", dict(VISION)),
    "detr": ("exported_architectures:make_detr", {}),
}


def make_clip():
    """CLIP: images and texts in one batch, no labels."""
    torch.manual_seed(0)
    config = transformers.CLIPConfig(
        text_config=dict(TEXT, vocab_size=99), vision_config={
            k: v for k, v in VISION.items() if k != "num_labels"
        }, projection_dim=16)
    ids = torch.randint(3, 98, (4, 12))
    ids[:, -1] = 2
    batch = {
        "input_ids": ids, "pixel_values": torch.randn(4, 3, 32, 32),
        "attention_mask": torch.ones_like(ids)
    }
    axes = {
        "input_ids": ["batch", "length"], "pixel_values": ["batch", 3, 32, 32],
        "attention_mask": ["batch", "length"]
    }
    return transformers.CLIPModel(config), batch, {"axes": axes, "extra": {"return_loss": True}}


def make_vit_mae():
    """ViT-MAE, whose random masking takes its noise from the batch."""
    torch.manual_seed(0)
    kinds = {k: v for k, v in VISION.items() if k != "num_labels"}
    config = transformers.ViTMAEConfig(**kinds, decoder_hidden_size=16, decoder_num_hidden_layers=1,
                                       decoder_num_attention_heads=2, decoder_intermediate_size=32)
    batch = {"pixel_values": torch.randn(4, 3, 32, 32), "noise": torch.rand(4, 16)}
    axes = {"pixel_values": ["batch", 3, 32, 32], "noise": ["batch", 16]}
    return transformers.ViTMAEForPreTraining(config), batch, {"axes": axes}


class DetrOfTensors(torch.nn.Module):
    """DETR with labels that are tensors; its own are a list of dictionaries."""

    def __init__(self):
        super().__init__()
        small = dict(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
                     decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64)
        backbone = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1],
                                             out_features=["stage2"])
        self.detr = transformers.DetrForObjectDetection(
            transformers.DetrConfig(**small, num_queries=5, num_labels=3, backbone_config=backbone))

    def forward(self, pixel_values, class_labels, boxes):
        labels = [{"class_labels": c, "boxes": b} for c, b in zip(class_labels, boxes)]
        return self.detr(pixel_values=pixel_values, labels=labels)


def make_detr():
    """DETR with two boxes in each image."""
    torch.manual_seed(0)
    batch = {
        "pixel_values": torch.randn(4, 3, 32, 32), "class_labels": torch.randint(0, 3, (4, 2)),
        "boxes": 0.2 + 0.2 * torch.rand(4, 2, 4)
    }
    axes = {"pixel_values": ["batch", 3, 32, 32], "class_labels": ["batch", 2]}
    return DetrOfTensors(), batch, {"axes": {**axes, "boxes": ["batch", 2, 4]}}


def try_one(name, options):
    result = try_as(name, options)
    if not result["exported"] and not options.export_only:
        scripted = try_as(name, options, "--torchscript", "--static")
        result["scripted"] = {k: scripted[k] for k in ("why", *FIGURES) if k in scripted}
    return result


def arguments_for(name, work):
    """What names the architecture to the exporter."""
    auto, config, *own = ARCHITECTURES[name]
    if ":" in auto:
        return [auto, *own]
    config = transformers.AutoConfig.for_model(name.split("/")[0], **config)
    config.save_pretrained(work / "model")
    tasks.save_companions(auto, config, work / "model")
    return [str(work / "model"), "--auto_class", auto, "--random_weights", *own]


def longest_of(name):
    return [] if ARCHITECTURES[name][0] == "CTC" else ["--max_length", "64"]


def try_as(name, options, *more):
    """Exports an architecture, with further options of the exporter, and compares."""
    more = more or ("--steps", "train")
    result = {"name": name, "exported": False, "holds": False}
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        exported = pathlib.Path(options.folder or work) / name.replace("/", "-")
        try:
            source, made, result["export_seconds"] = runs.export(
                [*arguments_for(name, work), *more, "--max_batch", "16", *longest_of(name)],
                exported)
            if options.export_only:
                return result
        except Exception as error:  # anything that torch says is the answer to "why not"
            result["why"] = " ".join(str(error).split())[:300]
            return result
        result["exported"], result["class_name"] = True, made["class_name"]
        result["fixed"] = source.fixed
        try:
            compare(result, source, exported, work)
        except Exception as error:
            result["why"] = " ".join(str(error).split())[:300]
            return result
        result["holds"] = (result["gradients"] <= 1e-5 and result["losses"] <= 1e-4 and
                           result.get("resumed", 0) == 0)
    return result


def compare(result, source, exported, work):
    """Adds the figures of an exported architecture."""
    result["gradients"] = runs.check_gradients(source, exported, work)
    columns = runs.rows_of(source)
    runs.save_file(columns, work / "rows.safetensors")
    args = {**runs.ARGS, "output_dir": str(work / "python")}
    answer = runs.ask(
        {
            "folder": str(exported), "rows": str(work / "rows.safetensors"),
            "args": {**args, "output_dir": str(work / "gradus")}
        }, work)
    if source.task in tasks.TASKS:
        result["task"], make = tasks.TASKS[source.task]
        data = make(source, exported, work, result["fixed"])
        ours, result["resumed"] = tasks.train_and_resume(result["task"], exported, data, work)
        theirs, eager = runs.python_run(source, data.rows, args, collate=data.collate)
    else:
        ours = answer["log_history"]
        theirs, eager = runs.python_run(source, columns, args)
    result["losses"] = runs.compare_logs(ours, theirs)
    result["gradus_ms"], result["eager_ms"] = 1e3 * answer["step_seconds"], 1e3 * eager


def compiled_time(name):
    """Milliseconds of a step of Python's Trainer with torch.compile, which needs no export."""
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        first, *others = arguments_for(name, work)
        source = runs.export_model.load(
            runs.export_model.read_options([first, str(work / "exported"), *others]))
        args = {**runs.ARGS, "output_dir": str(work / "python")}
        return 1e3 * runs.python_run(source, runs.rows_of(source), args, compiled=True)[1]


def table(results):
    lines = [
        "| architecture | class | exported | run by | gradients | 20 losses | resumed | gradus ms "
        "| Python ms | compiled ms |", "|---|---|---|---|---|---|---|---|---|---|"
    ]

    def add(r, name, exported):
        way = f"`{r['task']}`" if "task" in r else "Trainer class"
        resumed = r.get("resumed", "")  # a difference of weights
        resumed = "equal" if resumed == 0 else resumed
        compiled = f"{r['compiled_ms']:.1f}" if "compiled_ms" in r else ""
        lines.append(f"{name} {exported} | {way} | {r['gradients']:.1e} | {r['losses']:.1e} | "
                     f"{resumed} | {r['gradus_ms']:.1f} | {r['eager_ms']:.1f} | {compiled} |")

    for r in results:
        name = f"| `{r['name']}` | {r.get('class_name', '')} |"
        if "losses" in r:
            add(r, name, "yes" + "".join(f", {n} fixed" for n in r.get("fixed", {})))
            continue
        lines.append(f"{name} {'yes' if r['exported'] else 'no'}: {r['why']} | | | | | | | |")
        if "losses" in r.get("scripted", {}):
            add(r["scripted"], name, "as TorchScript, sizes fixed")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ARCHITECTURES))
    parser.add_argument("--results", default="exported-architectures")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--folder")
    parser.add_argument("--export_only", action="store_true")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    file = pathlib.Path(options.results + ".json")
    results = json.loads(file.read_text()) if file.exists() else []
    for name in options.only.split(","):
        known = [r for r in results if r["name"] == name]
        if options.compiled:
            for r in [r for r in known if "compiled_ms" not in r]:
                r["compiled_ms"] = compiled_time(name)
                print(f"{name}: {r['compiled_ms']:.1f} ms compiled", flush=True)
            file.write_text(json.dumps(results, indent=1))
            continue
        if known:
            continue
        results.append(try_one(name, options))
        print(json.dumps(results[-1]), flush=True)
        if options.export_only:
            continue
        file.write_text(json.dumps(results, indent=1))
    if options.export_only:
        return 0
    pathlib.Path(options.results + ".md").write_text(table(results) + "\n")
    held = sum(r["holds"] for r in results)
    through = sum(r["holds"] and "task" in r for r in results)
    print(f"{held} of {len(results)} hold, {through} of them through gradus train")
    return 0 if through >= min(NEEDED, len(results)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
