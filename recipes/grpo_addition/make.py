"""make.py FOLDER: data and tokenizer for GRPO on one-digit addition. Standard library only.

FOLDER gets the tokenizer with a configuration for a fresh model (`start`), `guesses.jsonl` with
answers to every sum that are wrong by up to 4, from which a model learns roughly how to add, and
`sums.jsonl` with the 100 sums and their right answers.
"""
import json
import sys
from pathlib import Path

TOKENS = ["<pad>", "<end>", *"0123456789+="]


def special(number):
    return dict(id=number, content=TOKENS[number], single_word=False, lstrip=False, rstrip=False,
                normalized=False, special=True)


def main():
    folder = Path(sys.argv[1])
    start = folder / "start"
    start.mkdir(parents=True, exist_ok=True)
    (start / "tokenizer.json").write_text(json.dumps(dict(
        version="1.0", truncation=None, padding=None, added_tokens=[special(0), special(1)],
        normalizer=None, post_processor=None, decoder=dict(type="Fuse"),
        pre_tokenizer=dict(type="Split", pattern=dict(Regex="."), behavior="Isolated",
                           invert=False),
        model=dict(type="WordLevel", vocab={t: i for i, t in enumerate(TOKENS)},
                   unk_token="<pad>"))))
    (start / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", pad_token="<pad>", eos_token="<end>")))
    (start / "config.json").write_text(json.dumps(dict(
        model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=len(TOKENS),
        hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=32, tie_word_embeddings=False,
        pad_token_id=0, eos_token_id=1, bos_token_id=None)))
    sums = [(a, b) for a in range(10) for b in range(10)]
    with (folder / "guesses.jsonl").open("w") as out:
        for a, b in sums:
            for guess in range(max(0, a + b - 4), a + b + 5):
                print(json.dumps(dict(prompt=f"{a}+{b}=", completion=str(guess))), file=out)
    with (folder / "sums.jsonl").open("w") as out:
        for a, b in sums:
            print(json.dumps(dict(prompt=f"{a}+{b}=", answer=str(a + b))), file=out)


if __name__ == "__main__":
    main()
