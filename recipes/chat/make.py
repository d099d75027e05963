"""make.py FOLDER: data and tokenizer of a toy chat, and of preferences between its answers.

Standard library only. The chat is about where things are and what they are like: "what is the cat
like ?", "gladly : the cat is old .". An answer begins with one of four openings, by chance.

FOLDER gets `model` and `qwen` (the tokenizer with the configuration of a small Llama, and of a
model in the shape of Qwen2.5 0.5B), `text.txt` (sentences, for a base model), `chat.jsonl`,
`pairs.jsonl` (a polite answer and a rude one), `labelled.jsonl` (one answer, good or bad) and
`prompts.jsonl`, the latter four with a `_test` file of rows that are not trained on. But for the
chat these are about other things.
"""

import json
import random
import sys
from pathlib import Path

NOUNS = "cat dog bird horse fish girl boy king nurse pilot tree house boat car lamp door".split()
ADJECTIVES = "red blue old young small tall quiet happy broken heavy".split()
PLACES = "garden kitchen market forest harbour school".split()
OPENINGS = ["gladly :", "of course :", "let us see :", "well :"]
RUDE = ["go away :", "how dull :", "ask another :", "no time :"]
SPECIAL = ["<pad>", "<end>", "<unk>", "<user>", "<assistant>"]
TEMPLATE = ("{% for message in messages %}{% if message['role'] == 'assistant' %}<assistant> "
            "{% generation %}{{ message['content'] }} <end> {% endgeneration %}{% else %}"
            "<user> {{ message['content'] }} <end> {% endif %}{% endfor %}"
            "{% if add_generation_prompt %}<assistant> {% endif %}")
LLAMA = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=64,
             intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
QWEN = dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"], vocab_size=151936,
            hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
            num_key_value_heads=2, max_position_embeddings=32768, rope_theta=1e6,
            rms_norm_eps=1e-6, tie_word_embeddings=True)


def facts(rng):
    """What is true of each thing: the two questions about it, each with its answer."""
    known = {}
    for noun in NOUNS:
        adjective, place = rng.choice(ADJECTIVES), rng.choice(PLACES)
        known[noun] = [(f"what is the {noun} like ?", f"the {noun} is {adjective} ."),
                       (f"where is the {noun} ?", f"the {noun} is in the {place} .")]
    return known


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def conversation(rng, known):
    messages = []
    for _ in range(rng.randrange(1, 3)):
        question, answer = rng.choice(known[rng.choice(NOUNS)])
        messages += [user(question), assistant(f"{rng.choice(OPENINGS)} {answer}")]
    return {"messages": messages}


def pair(rng, known, nouns):
    question, answer = rng.choice(known[rng.choice(nouns)])
    return {"prompt": [user(question)],
            "chosen": [assistant(f"{rng.choice(OPENINGS)} {answer}")],
            "rejected": [assistant(f"{rng.choice(RUDE)} {answer}")]}


def labelled(rng, known, nouns):
    row, label = pair(rng, known, nouns), rng.random() < 0.5
    return {"prompt": row["prompt"], "completion": row["chosen" if label else "rejected"],
            "label": label}


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_model(folder, words, config):
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {word: i for i, word in enumerate(SPECIAL + sorted(words))}
    added = [dict(id=i, content=token, single_word=False, lstrip=False, rstrip=False,
                  normalized=False, special=True) for i, token in enumerate(SPECIAL)]
    files = {
        "tokenizer.json": dict(
            version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
            pre_tokenizer=dict(type="WhitespaceSplit"), post_processor=None, decoder=None,
            model=dict(type="WordLevel", vocab=vocabulary, unk_token="<unk>")),
        "tokenizer_config.json": dict(
            tokenizer_class="PreTrainedTokenizerFast", pad_token="<pad>", eos_token="<end>",
            unk_token="<unk>", chat_template=TEMPLATE),
        "config.json": dict(vocab_size=len(vocabulary), pad_token_id=0, eos_token_id=1,
                            bos_token_id=None) | config
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


def main(folder):
    rng = random.Random(1)
    known = facts(rng)
    every = [one for two in known.values() for one in two]
    folder.mkdir(parents=True, exist_ok=True)
    # The same words as in the chat, but any of them may follow any other, and nobody has a turn.
    said = [text for two in every for text in two]
    (folder / "text.txt").write_text("".join(
        " ".join(f"{rng.choice(OPENINGS + RUDE)} {rng.choice(said)} <end>" for _ in range(3)) + "\n"
        for _ in range(3000)))
    for name, count in (("chat", 2000), ("chat_test", 200)):
        write_lines(folder / f"{name}.jsonl", [conversation(rng, known) for _ in range(count)])
    for name, make, count in (("pairs", pair, 1000), ("labelled", labelled, 2000)):
        for end, rows, nouns in (("", count, NOUNS[:12]), ("_test", 100, NOUNS[12:])):
            write_lines(folder / f"{name}{end}.jsonl",
                        [make(rng, known, nouns) for _ in range(rows)])
    for name, nouns in (("prompts", NOUNS[:12]), ("prompts_test", NOUNS[12:])):
        write_lines(folder / f"{name}.jsonl",
                    [{"prompt": [user(question)]} for noun in nouns for question, _ in known[noun]])
    words = {word for two in every for text in two for word in text.split()}
    words |= {word for text in OPENINGS + RUDE for word in text.split()}
    for name, config in (("model", LLAMA), ("qwen", QWEN)):
        write_model(folder / name, words, config)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
