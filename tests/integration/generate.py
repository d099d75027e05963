#!/usr/bin/env python3
"""`gradus generate` from outside: prompts, files, chat, streams, output files, errors and exit
codes.

    python generate.py GRADUS

Needs Python's standard library alone: it writes a tiny GPT-2 and a tiny T5 with a tokenizer of
words itself.
"""
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

from on_gpu import on_gpu

GRADUS = sys.argv[1]
on_gpu(GRADUS)  # it is used where there is one; there must be one where that is asked for
WORDS = [
    "<pad>", "</s>", "<unk>", "<user>", "<bot>", "<sys>"
] + "the a cat dog sat ran on under mat tree and then it was red blue big small . ,".split()
TEMPLATE = ("{% for m in messages %}{% if m.role == 'system' %}<sys> {% elif m.role == 'user' %}"
            "<user> {% else %}<bot> {% endif %}{{ m.content }} {% endfor %}{% if "
            "add_generation_prompt %}<bot>{% endif %}")


def tensors_file(path, shapes):
    rng, header, body = random.Random(1), {}, b""
    for name, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        values = [
            1.0 if "norm" in name or name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight"))
            else 0.0 if name.endswith("bias") else rng.gauss(0, 0.6) for _ in range(count)
        ]
        header[name] = {
            "dtype": "F32", "shape": shape, "data_offsets": [len(body),
                                                             len(body) + 4 * count]
        }
        body += struct.pack(f"<{count}f", *values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def tokenizer_files(folder):
    folder.mkdir()
    special = [{
        "id": i, "content": WORDS[i], "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": True
    } for i in range(6)]
    (folder / "tokenizer.json").write_text(
        json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
            "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
            "decoder": None, "model": {
                "type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)},
                "unk_token": "<unk>"
            }
        }))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({
            "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": "</s>",
            "unk_token": "<unk>", "chat_template": TEMPLATE
        }))


def gpt2_folder(folder):
    tokenizer_files(folder)
    width, vocabulary = 16, len(WORDS)
    shapes = {"transformer.wte.weight": [vocabulary, width], "transformer.wpe.weight": [64, width]}
    for name, shape in {
            "ln_1.weight": [width], "ln_1.bias": [width], "attn.c_attn.weight": [width, 3 * width],
            "attn.c_attn.bias": [3 * width], "attn.c_proj.weight": [width, width],
            "attn.c_proj.bias": [width], "ln_2.weight": [width], "ln_2.bias": [width],
            "mlp.c_fc.weight": [width, 4 * width], "mlp.c_fc.bias": [4 * width],
            "mlp.c_proj.weight": [4 * width, width], "mlp.c_proj.bias": [width]
    }.items():
        shapes["transformer.h.0." + name] = shape
    shapes |= {"transformer.ln_f.weight": [width], "transformer.ln_f.bias": [width]}
    tensors_file(folder / "model.safetensors", shapes)
    (folder / "config.json").write_text(
        json.dumps({
            "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": vocabulary,
            "n_positions": 64, "n_embd": width, "n_layer": 1, "n_head": 2, "bos_token_id": 1,
            "eos_token_id": 1, "pad_token_id": 0
        }))
    (folder / "generation_config.json").write_text(
        json.dumps({"eos_token_id": 1, "pad_token_id": 0, "max_new_tokens": 7}))


def t5_folder(folder):
    tokenizer_files(folder)
    width, vocabulary = 16, len(WORDS)
    shapes = {"shared.weight": [vocabulary, width]}
    for stack, layers in (("encoder", (("SelfAttention",), ("DenseReluDense",))),
                          ("decoder", (("SelfAttention",), ("EncDecAttention",),
                                       ("DenseReluDense",)))):
        for i, (kind,) in enumerate(layers):
            base = f"{stack}.block.0.layer.{i}."
            shapes[base + "layer_norm.weight"] = [width]
            if kind == "DenseReluDense":
                shapes |= {
                    base + kind + ".wi.weight": [24, width],
                    base + kind + ".wo.weight": [width, 24]
                }
            else:
                shapes |= {f"{base}{kind}.{part}.weight": [width, width] for part in "qkvo"}
                if kind == "SelfAttention":
                    shapes[base + kind + ".relative_attention_bias.weight"] = [32, 2]
        shapes[f"{stack}.final_layer_norm.weight"] = [width]
    tensors_file(folder / "model.safetensors", shapes)
    (folder / "config.json").write_text(
        json.dumps({
            "model_type": "t5", "architectures": ["T5ForConditionalGeneration"],
            "is_encoder_decoder": True, "vocab_size": vocabulary, "d_model": width, "d_kv": 8,
            "d_ff": 24, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0,
            "eos_token_id": 1, "pad_token_id": 0
        }))


def run(*words, code=0, stdin="", **more):
    done = subprocess.run([GRADUS, "generate", *map(str, words)], input=stdin, capture_output=True,
                          text=True, timeout=120, **more)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def texts(*words, **more):
    return [
        row["generated_text"]
        for row in json.loads(run(*words, "--json", **more).stdout)["generations"]
    ]


def check_prompts(folder, cwd):
    model = ["--model_name_or_path", folder / "gpt2"]
    one = texts(*model, "--prompt", "the cat sat")
    assert len(one) == 1 and 1 <= len(one[0].split()) <= 7, one
    assert run(*model, "--prompt", "the cat sat").stdout == one[0] + "\n"
    assert run(*model, "--prompt=the cat sat", "--stream").stdout == one[0] + "\n"
    assert run(*model, "--prompt", "the cat sat",
               "--return_full_text").stdout.startswith("the cat sat ")
    # a prompt gives the same text alone, in a left-padded batch, from every kind of file
    prompts = ["the cat sat", "a dog ran under the big tree and then", "blue"]
    alone = [texts(*model, "--prompt", prompt)[0] for prompt in prompts]
    assert texts(*model, *[word for prompt in prompts for word in ("--prompt", prompt)]) == alone
    (cwd / "p.txt").write_text("\n".join(prompts) + "\n\n")
    (cwd / "p.jsonl").write_text("".join(
        json.dumps({"id": i, "text": prompt}) + "\n" for i, prompt in enumerate(prompts)))
    (cwd / "p.json").write_text(json.dumps([{"question": prompt} for prompt in prompts]))
    assert texts(*model, "--prompt_file", cwd / "p.txt", "--batch_size", 2) == alone
    assert texts(*model, "--prompt_file", cwd / "p.jsonl") == alone
    assert texts(*model, "--prompt_file", cwd / "p.json", "--prompt_column", "question") == alone
    assert texts(*model, "--prompt_file", "-", stdin="\n".join(prompts)) == alone
    run(*model, "--prompt_file", cwd / "p.txt", "--output_dir", cwd / "out", "--output_file",
        cwd / "more" / "rows.jsonl")
    rows = [
        json.loads(line) for line in (cwd / "out" / "generations.jsonl").read_text().splitlines()
    ]
    assert [row["prompt"] for row in rows] == prompts
    assert [row["generated_text"] for row in rows] == alone
    same = cwd / "out" / "generations.jsonl"
    assert (cwd / "more" / "rows.jsonl").read_text() == same.read_text()
    assert (cwd / "out" / "generated_predictions.txt").read_text().splitlines() == alone


def check_options(folder, cwd):
    model = ["--model_name_or_path", folder / "gpt2", "--prompt", "the cat sat"]
    assert len(texts(*model, "--min_new_tokens", 30, "--max_new_tokens", 30)[0].split()) >= 25
    sampled = [
        "--do_sample", "--num_return_sequences", 4, "--temperature", 1.5, "--top_k", 0, "--top_p",
        0.95, "--min_p", 0.01, "--max_new_tokens", 9
    ]
    first = texts(*model, *sampled, "--seed", 7)
    assert len(first) == 4 and len(set(first)) > 1 and texts(
        *model, *sampled, "--seed", 7) == first and texts(*model, *sampled, "--seed", 8) != first
    assert len(
        texts(*model, "--num_beams", 3, "--num_return_sequences", 2, "--early_stopping", "never",
              "--length_penalty", 0.5)) == 2
    past = run(*model, "--min_new_tokens", 100, "--max_new_tokens", 100)
    assert len(past.stdout.split()) >= 40, past.stdout
    assert "64 positions" in past.stderr and "max_new_tokens" in past.stderr, past.stderr
    (cwd / "options.yaml").write_text("max_new_tokens: 2\nrepetition_penalty: 1.5\n")
    assert len(texts(*model, cwd / "options.yaml", "--min_new_tokens", 2)[0].split()) <= 2
    free = texts(*model, "--min_new_tokens", 20, "--max_new_tokens", 20)[0].split()
    word = free[5]
    stopped = texts(*model, "--min_new_tokens", 20, "--max_new_tokens", 20, "--stop_strings",
                    word)[0].split()
    assert stopped == free[:free.index(word) + 1], (free, stopped)
    barred = str(WORDS.index(word))
    assert word not in texts(*model, "--max_new_tokens", 20, "--suppress_tokens", barred)[0]
    assert word not in texts(*model, "--max_new_tokens", 20, "--bad_words_ids", f"[[{barred}]]")[0]
    assert texts(*model, "--eos_token_id", barred, 1, "--max_new_tokens", 20)[0].split()[-1] == word


def check_chat(folder, cwd):
    model = ["--model_name_or_path", folder / "gpt2", "--chat"]
    single = texts(*model, "--system", "big", "--prompt", "the cat")
    assert single == texts("--model_name_or_path", folder / "gpt2", "--prompt",
                           "<sys> big <user> the cat <bot>")
    (cwd / "chat.jsonl").write_text(
        json.dumps({
            "messages": [{"role": "system", "content": "big"},
                         {"role": "user", "content": "the cat"}]
        }) + "\n")
    assert texts("--model_name_or_path", folder / "gpt2", "--prompt_file",
                 cwd / "chat.jsonl") == single
    turns = run(*model, "--system", "big", "--json", stdin="the cat\n\na dog\n")
    rows = json.loads(turns.stdout)["generations"]
    assert rows[0]["generated_text"] == single[0] and [m["role"] for m in rows[1]["messages"]] == [
        "system", "user", "assistant", "user"
    ], rows
    assert run(*model, "--system", "big", "--stream", stdin="the cat\n").stdout == single[0] + "\n"


def check_errors(folder, cwd):
    model = ["--model_name_or_path", folder / "gpt2"]

    def fails(code, text, *words, **more):
        error = run(*words, code=code, **more).stderr
        assert text in error, (text, error)

    assert "--max_new_tokens" in run("--help").stdout and "--early_stopping" in run("--help").stdout
    fails(2, "needs --model_name_or_path", "--prompt", "x")
    fails(2, "has no prompt", *model)
    fails(2, "--prompt is empty", *model, "--prompt", " ")
    fails(2, "--system is a message of a chat", *model, "--prompt", "a", "--system", "big")
    fails(2, "Did you mean max_new_tokens", *model, "--prompt", "a", "--max_new_token", 3)
    fails(2, "--temperature: must be above 0", *model, "--prompt", "a", "--temperature", 0)
    fails(2, "early_stopping must be true, false or", *model, "--prompt", "a", "--early_stopping",
          "soon")
    fails(2, "num_return_sequences must be 1 with greedy search", *model, "--prompt", "a",
          "--num_return_sequences", 2)
    fails(2, "but max_length is 2", *model, "--prompt", "the cat sat", "--max_length", 2)
    fails(1, "there is no such folder", "--model_name_or_path", cwd / "nowhere", "--prompt", "a")
    (cwd / "empty.txt").write_text("\n\n")
    fails(1, "holds no prompt", *model, "--prompt_file", cwd / "empty.txt")
    (cwd / "bad.jsonl").write_text('{"text": "a"}\n{"answer": 1}\n')
    fails(1, "bad.jsonl:2 has no column prompt, text or messages; it has answer", *model,
          "--prompt_file", cwd / "bad.jsonl")
    (cwd / "cut.jsonl").write_text('{"text": "a"\n')
    fails(1, "cut.jsonl:1 is not JSON", *model, "--prompt_file", cwd / "cut.jsonl")
    fails(1, "G-IO-1", *model, "--prompt_file", cwd / "nowhere.txt")
    bare = folder / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((folder / "gpt2" / name).read_bytes())
    fails(1, "there is no tokenizer.json in it", "--model_name_or_path", bare, "--prompt", "a")
    config = json.loads((bare / "config.json").read_text())
    (bare / "config.json").write_text(
        json.dumps({**config, "architectures": ["GPT2ForSequenceClassification"]}))
    fails(1, "which cannot generate text", "--model_name_or_path", bare, "--prompt", "a")
    (bare / "config.json").write_text(json.dumps({**config, "model_type": "gtp2"}))
    fails(1, "Did you mean gpt2", "--model_name_or_path", bare, "--tokenizer_name", folder / "gpt2",
          "--prompt", "a")


def check_interrupt(folder):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # gradus leaves one alone that is ignored
    child = subprocess.Popen(
        [GRADUS, "generate", "--model_name_or_path", folder / "gpt2", "--chat"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child.stdin.write("the cat\n")
    child.stdin.flush()
    child.stdout.readline()  # it answers, so the handlers are there
    time.sleep(0.3)  # it waits for the next line
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130, child.returncode


def main():
    with tempfile.TemporaryDirectory() as name:
        folder, cwd = pathlib.Path(name) / "models", pathlib.Path(name)
        folder.mkdir()
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        gpt2_folder(folder / "gpt2")
        t5_folder(folder / "t5")
        check_prompts(folder, cwd)
        check_options(folder, cwd)
        check_chat(folder, cwd)
        prompts = [
            word for prompt in ("the cat </s>", "a dog ran under </s>")
            for word in ("--prompt", prompt)
        ]
        both = texts("--model_name_or_path", folder / "t5", *prompts, "--max_new_tokens", 6)
        assert both == [
            texts("--model_name_or_path", folder / "t5", *prompts[i:i + 2], "--max_new_tokens",
                  6)[0] for i in (0, 2)
        ]
        assert len(
            texts("--model_name_or_path", folder / "t5", *prompts[:2], "--num_beams", 3,
                  "--num_return_sequences", 3)) == 3
        check_errors(folder, cwd)
        check_interrupt(folder)
    print("gradus generate: all as it should be")


main()
