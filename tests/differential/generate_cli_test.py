#!/usr/bin/env python3
"""`gradus generate` beside transformers on the same folders: text of prompts, batches, chats and
stop strings.

    python generate_cli_test.py [GRADUS]

Exits 77 with a reason where the peer is absent.
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import peft
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

BUILD = os.environ.get(
    "GRADUS_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/release"))
GRADUS = sys.argv[1] if len(sys.argv) > 1 else os.path.join(BUILD, "bin/gradus")
TEXT = [
    "The quick brown fox jumps over the lazy dog.",
    "Once upon a time there was a small house by the sea.",
    "How are you today? I am fine, thank you!",
    "Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich.",
    "She said: 'numbers 1 2 3 and 42'.\nThen she left.", "A model predicts the next word of a text."
] * 4
PROMPTS = [
    "The quick brown", "Once upon a time there", "How are", "She said: 'numbers", "A",
    "the sea.\nThen"
]
TEMPLATE = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if "
            "add_generation_prompt %}<|assistant|>{% endif %}")


def tokenizer_of(kind, folder):
    special = ["<pad>", "</s>", "<unk>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]
    if kind == "t5":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace(
        )
        tokenizer.train_from_iterator(
            TEXT, trainers.UnigramTrainer(vocab_size=150, special_tokens=special,
                                          unk_token="<unk>"))
        end = [("</s>", 1)]
        tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=end)
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(
            add_prefix_space=False), decoders.ByteLevel()
        tokenizer.train_from_iterator(
            TEXT,
            trainers.BpeTrainer(vocab_size=330, special_tokens=special,
                                initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>",
                                                eos_token="</s>", unk_token="<unk>",
                                                chat_template=TEMPLATE,
                                                clean_up_tokenization_spaces=False,
                                                padding_side="right" if kind == "t5" else "left")
    fast.save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def model_of(kind, vocabulary, folder):
    torch.manual_seed(2)
    ids = dict(vocab_size=vocabulary, pad_token_id=0, eos_token_id=1, bos_token_id=1)
    if kind == "t5":
        config = transformers.T5Config(**ids, d_model=32, d_kv=8, d_ff=48, num_layers=2,
                                       num_heads=4, decoder_start_token_id=0)
        model = transformers.T5ForConditionalGeneration(config)
    else:
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**ids, n_positions=256, n_embd=32, n_layer=2, n_head=4))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.4)
    model.eval().save_pretrained(folder)
    return model


def ours(folder, *words, stdin=""):
    done = subprocess.run(
        [GRADUS, "generate", "--model_name_or_path", folder, *map(str, words), "--json"],
        input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return [row["generated_text"] for row in json.loads(done.stdout)["generations"]]


def theirs(model, decoder, batch, **options):
    with torch.no_grad():
        ids = model.generate(**batch, **options)
    return decoder.batch_decode(
        ids[:, 0 if model.config.is_encoder_decoder else batch["input_ids"].shape[1]:],
        skip_special_tokens=True)


def flags_of(options):
    words = []
    for name, value in options.items():
        words += [f"--{name}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    return words


def check(kind, folder):
    tokenizer = tokenizer_of(kind, folder)
    model = model_of(kind, len(tokenizer), folder)
    prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
    batch = tokenizer(PROMPTS, padding=True, return_tensors="pt", return_token_type_ids=False)
    for options in (dict(max_new_tokens=20),
                    dict(max_new_tokens=20, num_beams=3, num_return_sequences=2),
                    dict(max_new_tokens=15, repetition_penalty=1.5, no_repeat_ngram_size=2,
                         min_new_tokens=10),
                    dict(max_new_tokens=10, num_beams=2, early_stopping=True, length_penalty=2.0)):
        expected = theirs(model, tokenizer, batch, **options)
        got = ours(folder, *prompts, *flags_of(options))
        assert got == expected, (kind, options, got, expected)
    free = theirs(model, tokenizer, batch, max_new_tokens=20)
    pieces = [
        text[i:i + 2]
        for text in free
        for i in range(4,
                       len(text) - 1)
        if text[i:i + 2].isascii() and text[i:i + 2].strip()
    ]
    for stops in ([pieces[0]], [pieces[1], "zzz"], [pieces[len(pieces) // 2], pieces[-1][0]]):
        expected = theirs(model, tokenizer, batch, max_new_tokens=20, stop_strings=stops,
                          tokenizer=tokenizer)
        got = ours(
            folder, *prompts, "--max_new_tokens", 20,
            *[f"--stop_strings={stops[0]}"] if len(stops) == 1 else ["--stop_strings", *stops])
        assert got == expected, (kind, stops, got, expected)
    if kind == "t5":
        return
    messages = [{"role": "system", "content": "Be brief."}]
    turns = ours(folder, "--chat", "--system", "Be brief.", "--max_new_tokens", 12,
                 stdin="How are you?\nThank you!\n")
    for line, got in zip(("How are you?", "Thank you!"), turns, strict=True):
        messages.append({"role": "user", "content": line})
        encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True,
                                                return_tensors="pt", return_dict=True)
        encoded.pop("token_type_ids", None)
        assert [got] == theirs(model, tokenizer, encoded, max_new_tokens=12), (got, messages)
        messages.append({"role": "assistant", "content": got})


def check_adapter(kind, folder):
    """A folder that holds only an adapter, as peft writes it, names its base model."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    auto = (transformers.AutoModelForSeq2SeqLM if kind == "t5" else
            transformers.AutoModelForCausalLM)
    torch.manual_seed(3)
    model = peft.get_peft_model(
        auto.from_pretrained(folder),
        peft.LoraConfig(r=4, lora_alpha=64, init_lora_weights=False,
                        task_type="SEQ_2_SEQ_LM" if kind == "t5" else "CAUSAL_LM"))
    with tempfile.TemporaryDirectory() as adapter:
        model.save_pretrained(adapter)
        model = auto.from_pretrained(adapter)
        batch = tokenizer(PROMPTS, padding=True, return_tensors="pt", return_token_type_ids=False)
        prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
        for options in (dict(max_new_tokens=20), dict(max_new_tokens=12, num_beams=3)):
            expected = theirs(model, tokenizer, batch, **options)
            got = ours(adapter, *prompts, *flags_of(options))
            assert got == expected, (kind, options, got, expected)
            assert got != ours(folder, *prompts, *flags_of(options)), "the adapter does nothing"


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for kind in ("gpt2", "t5"):
        with tempfile.TemporaryDirectory() as folder:
            check(kind, folder)
            check_adapter(kind, folder)
        print(f"{kind}: the texts are equal")


if __name__ == "__main__":
    main()
