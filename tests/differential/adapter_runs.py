"""What the tests of tasks with --use_peft share."""

import subprocess

import peft
import torch


def with_adapter(model, flags):
    """With --use_peft: the adapter that trl's ModelConfig and the model's head stand for."""
    if not flags.get("use_peft"):
        return model
    kinds = {
        "CausalLM": "CAUSAL_LM", "LMHeadModel": "CAUSAL_LM", "ForSequenceClassification": "SEQ_CLS",
        "ForTokenClassification": "TOKEN_CLS", "ForQuestionAnswering": "QUESTION_ANS",
        "ForConditionalGeneration": "SEQ_2_SEQ_LM"
    }
    kind = [task for end, task in kinds.items() if type(model).__name__.endswith(end)]
    return peft.get_peft_model(
        model, peft.LoraConfig(task_type=kind[0] if kind else None, r=flags["lora_r"],
                               lora_alpha=32, lora_dropout=flags["lora_dropout"],
                               target_modules=flags.get("lora_target_modules")))


def compare_merged(gradus, adapter, logits, auto, problems):
    """`gradus merge` knows the head, and transformers loads what it writes."""
    merged = adapter / "merged"
    subprocess.run([
        str(gradus), "merge", "--adapter_name_or_path", str(adapter), "--output_dir", str(merged)
    ], check=True, capture_output=True)
    model, info = auto.from_pretrained(merged, output_loading_info=True)
    if info["missing_keys"] or info["unexpected_keys"]:
        problems.append(f"the merged folder does not load: {info}")
    difference = (model.eval()(torch.arange(5, 15)[None]).logits - logits).abs().max().item()
    if difference > 1e-4:
        problems.append(f"the merged model's outputs differ by {difference}")
