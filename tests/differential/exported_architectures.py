"""Architectures that gradus has no code for: exported from tiny configs, trained by gradus.

  tests/differential/exported_architectures.py [--only opt,gemma2] [--results FILE] [--compiled]
                                               [--folder DIR]

For each: is it exported, and if not, why; gradients of the first step against eager ones (at most
1e-5); 20 losses against transformers' Trainer, dropout off (at most 1e-4); milliseconds per step
beside Python's, eager and with --compiled also by torch.compile. Writes FILE.json after each
architecture (those that are in it already are passed over) and FILE.md at the end. DIR keeps the
exported folders, and those that are there are used again. Takes about half a minute for each. Exits
with 1 when fewer than 18 hold.
"""
import argparse
import json
import pathlib
import tempfile

import torch
import transformers

import exported_runs as runs

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
IMAGE = dict(image_size=32, num_channels=3, num_labels=3, drop_path_rate=0.0)
VISION = dict(IMAGE, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
              intermediate_size=64)
CAUSAL, MASKED, IMAGES = "CausalLM", "MaskedLM", "ImageClassification"

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
    "qwen3": (CAUSAL, dict(TEXT, **KEYS, head_dim=8)),
    "olmo2": (CAUSAL, dict(TEXT, **KEYS)),
    "stablelm": (CAUSAL, dict(TEXT, **KEYS)),
    "mamba": (CAUSAL, dict(vocab_size=99, hidden_size=32, state_size=8, num_hidden_layers=2)),
    "rwkv": (CAUSAL, dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, context_length=64)),
    "xlnet": (CAUSAL, dict(vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=64)),
    "modernbert": (MASKED, dict(TEXT, cls_token_id=1, sep_token_id=2, local_attention=16)),
    "deberta-v2": (MASKED, dict(ENCODER, relative_attention=True, position_buckets=16,
                                norm_rel_ebd="layer_norm", share_att_key=True,
                                pos_att_type="p2c|c2p")),
    "electra": (MASKED, dict(ENCODER, embedding_size=16)),
    "albert": (MASKED, dict(ENCODER, embedding_size=16)),
    "longformer": (MASKED, dict(ENCODER, attention_window=8)),
    "mpnet": (MASKED, dict(ENCODER)),
    "camembert": (MASKED, dict(ENCODER, pad_token_id=1)),
    "pegasus": ("Seq2SeqLM", SEQ2SEQ),
    "marian": ("Seq2SeqLM", SEQ2SEQ),
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


def make_detr():
    """DETR: its labels are a list of dictionaries, which no batch of tensors can hold."""
    raise runs.export_model.ExportError(
        "its labels are a list of dictionaries and its loss matches boxes on the host (scipy)")


def try_one(name, options):
    auto, config = ARCHITECTURES[name]
    result = {"name": name, "exported": False, "holds": False}
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        exported = pathlib.Path(options.folder or work) / name
        if ":" in auto:
            arguments = [auto]
        else:
            transformers.AutoConfig.for_model(name, **config).save_pretrained(work / "model")
            arguments = [str(work / "model"), "--auto_class", auto, "--random_weights"]
        try:
            source, made, result["export_seconds"] = runs.export(
                [*arguments, "--steps", "train", "--max_batch", "16", "--max_length", "64"],
                exported)
            if options.export_only:
                return result
        except Exception as error:  # anything that torch says is the answer to "why not"
            result["why"] = " ".join(str(error).split())[:300]
            return result
        result["exported"], result["class_name"] = True, made["class_name"]
        try:
            result["gradients"] = runs.check_gradients(source, exported, work)
            columns = runs.rows_of(source)
            runs.save_file(columns, work / "rows.safetensors")
            args = {**runs.ARGS, "output_dir": str(work / "python")}
            start = {n: v.clone() for n, v in source.model.state_dict().items()}
            theirs, eager = runs.python_run(source, columns, args)
            job = {
                "folder": str(exported), "rows": str(work / "rows.safetensors"),
                "args": {**args, "output_dir": str(work / "gradus")}
            }
            answer = runs.ask(job, work)
            result["losses"] = runs.compare_logs(answer["log_history"], theirs)
            result["gradus_ms"], result["eager_ms"] = 1e3 * answer["step_seconds"], 1e3 * eager
            if options.compiled:
                source.model.load_state_dict(start)
                result["compiled_ms"] = 1e3 * runs.python_run(source, columns, args, True)[1]
        except Exception as error:
            result["why"] = " ".join(str(error).split())[:300]
            return result
        result["holds"] = result["gradients"] <= 1e-5 and result["losses"] <= 1e-4
    return result


def table(results):
    lines = [
        "| architecture | exported | gradients | 20 losses | gradus ms | Python ms | compiled ms |",
        "|---|---|---|---|---|---|---|"
    ]
    for r in results:
        if "losses" not in r:
            lines.append(f"| {r['name']} | {'yes' if r['exported'] else 'no'}: {r['why']} "
                         "| | | | | |")
            continue
        compiled = f"{r['compiled_ms']:.1f}" if "compiled_ms" in r else ""
        lines.append(f"| {r['name']} | yes | {r['gradients']:.1e} | {r['losses']:.1e} | "
                     f"{r['gradus_ms']:.1f} | {r['eager_ms']:.1f} | {compiled} |")
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
        if any(r["name"] == name for r in results):
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
    print(f"{held} of {len(results)} hold")
    return 0 if held >= min(NEEDED, len(results)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
