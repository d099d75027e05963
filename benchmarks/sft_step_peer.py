"""The Python side of sft_step.py, in a process of its own.

    sft_step_peer.py make FOLDER         a model and a tokenizer
    sft_step_peer.py train FOLDER JSON   prints the seconds of a step; JSON: [arguments, with LoRA]
"""

import json
import sys
from pathlib import Path

import datasets
import peft
import tokenizers
import torch
import transformers
import trl


def make(folder):
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = tokenizers.decoders.ByteLevel()
    rows = [json.loads(line)["text"] for line in open(folder / "rows.jsonl")]
    trained.train_from_iterator(
        rows, tokenizers.trainers.BpeTrainer(
            vocab_size=8192, special_tokens=["<pad>", "<eos>"],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    transformers.PreTrainedTokenizerFast(tokenizer_object=trained, eos_token="<eos>",
                                         pad_token="<pad>").save_pretrained(folder / "model")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=8192, hidden_size=256, intermediate_size=688, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0,
        eos_token_id=1, bos_token_id=None)
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")


def train(folder, args, with_lora):
    lora = peft.LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = trl.SFTTrainer(
        transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32),
        trl.SFTConfig(output_dir=str(folder / "theirs"), dataloader_pin_memory=False, **args),
        train_dataset=datasets.load_dataset("json", data_files=str(folder / "rows.jsonl"),
                                            split="train"),
        processing_class=transformers.AutoTokenizer.from_pretrained(folder / "model"),
        peft_config=lora if with_lora else None)
    print(json.dumps(1 / trainer.train().metrics["train_steps_per_second"]))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    else:
        train(Path(sys.argv[2]), *json.loads(sys.argv[3]))
