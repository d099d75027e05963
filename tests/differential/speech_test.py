"""speech-recognition-ctc and wav2vec2-pretraining of the program beside the logic of transformers'
scripts: the same sound, folders and flags.

Models are tiny and random. CTC runs 30 steps with SpecAugment, LayerDrop and dropout, whose numbers
come from the same generators; pre-training runs 30 steps whose masks, negatives and Gumbel noise
do. Compared: losses 1e-5, WER and CER exactly, vocab.json, and the saved folder's outputs in
transformers. Without the peer: exit code 77.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRADUS = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/gradus"
try:
    import jiwer
    import numpy
    import soundfile
    import torch
    import transformers
    from transformers.models.wav2vec2.modeling_wav2vec2 import (
        _compute_mask_indices, _sample_negative_indices
    )
except ImportError as error:
    print("skipped: the Python peer is not there:", error)
    sys.exit(77)

STEPS, RATE = 30, 16000
WORDS = {"one": 310, "two": 470, "six": 640, "Ten": 890}
TINY = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            conv_dim=[12, 16, 16], conv_stride=[10, 8, 4], conv_kernel=[20, 8, 4],
            num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, num_codevectors_per_group=8,
            num_codevector_groups=2, codevector_dim=16, proj_codevector_dim=16, num_negatives=10,
            vocab_size=12)


def clip(words, rng):
    parts = []
    for word in words:
        time = numpy.arange(int(RATE * rng.uniform(0.12, 0.2))) / RATE
        parts += [0.3 * numpy.sin(2 * numpy.pi * WORDS[word] * time), numpy.zeros(800)]
    sound = numpy.concatenate(parts)
    return (sound + 0.01 * rng.standard_normal(len(sound))).astype(numpy.float32)


def make_data(folder, splits):
    rng = numpy.random.default_rng(0)
    for split, count in splits.items():
        (folder / split).mkdir(parents=True)
        with open(folder / split / "metadata.csv", "w") as table:
            table.write("file_name,text\n")
            for i in range(count):
                words = list(rng.choice(list(WORDS), size=int(rng.integers(1, 4))))
                soundfile.write(folder / split / f"{i}.flac", clip(words, rng), RATE)
                table.write(f'{i}.flac,"{" ".join(words)}!"\n')


def rows_of(folder, split):
    lines = (folder / split / "metadata.csv").read_text().splitlines()[1:]
    for line in lines:
        name, text = line.split(",", 1)
        yield soundfile.read(folder / split / name, dtype="float32")[0], text.strip('"')


def run_gradus(flags):
    words = [str(GRADUS), "train"]
    for name, value in flags.items():
        words += [f"--{name}"] + ([str(one) for one in value] if isinstance(value, list) else
                                  [str(value).lower() if isinstance(value, bool) else str(value)])
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    state = json.loads((pathlib.Path(flags["output_dir"]) / "trainer_state.json").read_text())
    return state["log_history"]


def near(name, mine, other, tolerance=1e-5):
    assert abs(mine - other) <= tolerance * max(1.0, abs(other)), (name, mine, other)


# ---- CTC ---------------------------------------------------------------------


def vocabulary_of(texts):
    letters = {v: k for k, v in enumerate(sorted(set(" ".join(texts))))}
    letters["|"] = letters.pop(" ")
    letters["[UNK]"] = len(letters)
    letters["[PAD]"] = len(letters)
    return letters


class Collator:
    def __init__(self, extractor, tokenizer):
        self.extractor, self.tokenizer = extractor, tokenizer

    def __call__(self, rows):
        batch = self.extractor.pad([{"input_values": row["input_values"]} for row in rows],
                                   padding="longest", return_tensors="pt")
        labels = self.tokenizer.pad([{"input_ids": row["labels"]} for row in rows],
                                    padding="longest", return_tensors="pt")
        batch["labels"] = labels["input_ids"].masked_fill(labels.attention_mask.ne(1), -100)
        if "attention_mask" in batch:
            batch["attention_mask"] = batch["attention_mask"].to(torch.long)
        return batch


def ctc(folder, form, model_class):
    data, start, out = folder / "data", folder / f"start-{form}", folder / f"out-{form}"
    stable = form == "stable"
    torch.manual_seed(1)
    config_class = model_class.config_class
    more = dict(do_stable_layer_norm=True, feat_extract_norm="layer",
                conv_bias=True) if stable else {}
    model = model_class(config_class(**TINY, **more))
    body = getattr(model, model_class.base_model_prefix)
    body.save_pretrained(start)  # without a head, as a pre-trained model
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=stable)
    extractor.save_pretrained(start)

    train, test = list(rows_of(data, "train")), list(rows_of(data, "test"))
    clean = lambda text: re.sub("[!]", "", text).lower() + " "
    vocabulary = vocabulary_of([clean(text) for _, text in train + test])
    (folder / f"vocab-{form}").mkdir()
    (folder / f"vocab-{form}/vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(folder / f"vocab-{form}/vocab.json",
                                                  unk_token="[UNK]", pad_token="[PAD]",
                                                  word_delimiter_token="|")
    changes = dict(hidden_dropout=0.1, attention_dropout=0.1, activation_dropout=0.1,
                   feat_proj_dropout=0.1, final_dropout=0.1, layerdrop=0.2, mask_time_prob=0.3,
                   mask_time_length=2, mask_feature_prob=0.1, mask_feature_length=4)
    common = dict(max_steps=STEPS, per_device_train_batch_size=4, per_device_eval_batch_size=3,
                  learning_rate=2e-3, warmup_steps=5, logging_steps=1, eval_strategy="steps",
                  eval_steps=10, save_strategy="no", seed=3, use_cpu=True, report_to="none",
                  disable_tqdm=True)
    # The head is new: both sides start from the same one.
    fresh = AutoCTC(start, changes, tokenizer, model_class)
    fresh.save_pretrained(start)
    history = run_gradus({
        "task": "speech-recognition-ctc", "model_name_or_path": start, "dataset_name": data,
        "train_split_name": "train", "eval_split_name": "test", "chars_to_ignore": ["!"],
        "eval_metrics": ["wer", "cer"], "do_train": True, "do_eval": True, "output_dir": out,
        **changes, **common
    })

    transformers.set_seed(common["seed"])
    model = AutoCTC(start, changes, tokenizer, model_class)
    if model_class.base_model_prefix == "wav2vec2":
        model.freeze_feature_encoder()
    else:
        model.hubert.feature_extractor._freeze_parameters()

    def prepared(rows):
        return [{
            "input_values": extractor(sound, sampling_rate=RATE).input_values[0],
            "labels": tokenizer(clean(text)).input_ids
        } for sound, text in rows]

    def metrics(prediction):
        ids = prediction.predictions[0]
        labels = prediction.label_ids.copy()
        labels[labels == -100] = tokenizer.pad_token_id
        said = tokenizer.batch_decode(ids)
        wanted = tokenizer.batch_decode(labels, group_tokens=False)
        return {"wer": jiwer.wer(wanted, said), "cer": jiwer.cer(wanted, said)}

    trainer = transformers.Trainer(
        model=model, args=transformers.TrainingArguments(output_dir=str(folder / "hf"), **common),
        data_collator=Collator(extractor, tokenizer), compute_metrics=metrics,
        train_dataset=prepared(train), eval_dataset=prepared(test),
        preprocess_logits_for_metrics=lambda logits, labels: (logits.argmax(-1), labels))
    trainer.train()
    theirs = trainer.state.log_history
    compared = 0
    for mine, other in zip(history, theirs):
        assert mine["step"] == other["step"], (mine, other)
        for key in ("loss", "grad_norm", "eval_loss", "learning_rate"):
            if key in other:
                near(f"{form} {key} of step {other['step']}", mine[key], other[key],
                     1e-4 if key == "grad_norm" else 1e-5)
                compared += 1
        for key in ("eval_wer", "eval_cer"):
            if key in other:
                assert mine[key] == other[key], (form, key, mine, other)
                compared += 1
    assert compared >= 3 * STEPS, compared

    # The folder as Python sees it.
    processor = transformers.Wav2Vec2Processor.from_pretrained(out)
    assert processor.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert processor.feature_extractor.to_dict() == extractor.to_dict()
    saved, report = model_class.from_pretrained(out, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    batch = Collator(extractor, tokenizer)(prepared(test)[:3])
    with torch.no_grad():
        mine, other = saved.eval()(**batch).logits, trainer.model.eval()(**batch).logits
        difference = (mine - other).abs().max()
    assert difference < 1e-3, difference
    print(f"ctc {form}: {compared} values, last loss {theirs[STEPS - 1].get('loss')}")


def AutoCTC(start, changes, tokenizer, model_class):
    config = model_class.config_class.from_pretrained(start)
    config.update({
        **changes, "ctc_loss_reduction": "mean", "ctc_zero_infinity": False,
        "pad_token_id": tokenizer.pad_token_id, "vocab_size": len(tokenizer)
    })
    return model_class.from_pretrained(start, config=config)


# ---- pre-training --------------------------------------------------------------


def batch_seed(seed, epoch, batch):
    return (seed + epoch * 0x9E3779B1 + batch * 0x85EBCA77) % 2**32


def pretraining(folder):
    data, start, out = folder / "data", folder / "start-pretraining", folder / "out-pretraining"
    more = dict(do_stable_layer_norm=True, feat_extract_norm="layer", conv_bias=True,
                mask_time_prob=0.5, mask_time_length=2, layerdrop=0.1)
    config = transformers.Wav2Vec2Config(**TINY, **more)
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True)
    config.save_pretrained(start)
    extractor.save_pretrained(start)
    flags = dict(per_device_train_batch_size=4, per_device_eval_batch_size=4, learning_rate=2e-3,
                 warmup_steps=5, max_steps=STEPS, seed=3, logging_steps=1, use_cpu=True)
    # The rate of the first step is 0: its checkpoint has the fresh weights, with the moments and
    # the random state after it, from which Python goes on.
    history = run_gradus({
        "task": "wav2vec2-pretraining", "model_name_or_path": start, "dataset_name": data,
        "dataset_split_names": ["train"], "validation_split_percentage": 20,
        "min_duration_in_seconds": 0.1, "max_duration_in_seconds": 0.5,
        "gumbel_temperature_decay": 0.97, "do_train": True, "do_eval": True, "output_dir": out,
        "max_grad_norm": 0, "adam_epsilon": 1e-6, "save_strategy": "steps", "save_steps": 1,
        "eval_strategy": "steps", "eval_steps": STEPS, "report_to": "none", **flags
    })
    model = transformers.Wav2Vec2ForPreTraining.from_pretrained(out / "checkpoint-1").train()
    state = torch.load(out / "checkpoint-1/optimizer.pt", weights_only=True)
    assert len(list(model.parameters())) == len(state["state"])
    clips = [sound[:int(0.5 * RATE)] for sound, _ in rows_of(data, "train")]
    count = len(clips) * 20 // 100
    train, test = clips[count:], clips[:count]
    train = [clip for clip in train if len(clip) > int(0.1 * RATE)]

    def collate(rows, seed):
        numpy.random.seed(seed)
        batch = extractor.pad([{
            "input_values": extractor(row, sampling_rate=RATE).input_values[0]
        } for row in rows], padding="longest", return_tensors="pt")
        frames = int(model._get_feat_extract_output_lengths(batch["input_values"].shape[-1]))
        sub = model._get_feature_vector_attention_mask(frames, batch["attention_mask"])
        mask = _compute_mask_indices((len(rows), frames), 0.5, 2, attention_mask=sub)
        negatives = _sample_negative_indices((len(rows), frames), 10, mask)
        batch["mask_time_indices"] = torch.tensor(mask, dtype=torch.long)
        batch["sampled_negative_indices"] = torch.tensor(negatives, dtype=torch.long)
        return batch, sub

    # The order of the rows is that of transformers' sampler.
    per_epoch = -(-len(train) // 4)
    order = []
    for epoch in range(STEPS // per_epoch + 1):
        order.append(epoch_order(len(train), flags["seed"], epoch))
    random = torch.load(out / "checkpoint-1/rng_state.pth", weights_only=False)
    groups = trainer_groups(model)
    torch.set_rng_state(random["cpu"])
    model.train()
    optimizer = torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)
    optimizer.load_state_dict(state | {"param_groups": optimizer.state_dict()["param_groups"]})
    schedule = lambda step: (step / 5 if step < 5 else max(0.0, (STEPS - step) / (STEPS - 5)))
    losses = {entry["step"]: entry for entry in history if "loss" in entry}
    for step in range(1, STEPS):
        epoch, number = divmod(step, per_epoch)
        if number == 0:
            torch.empty((), dtype=torch.int64).random_()  # as a DataLoader does when it starts
        rows = [train[i] for i in order[epoch][number * 4:number * 4 + 4]]
        batch, sub = collate(rows, batch_seed(flags["seed"], epoch, number))
        model.set_gumbel_temperature(max(2.0 * 0.97**(step - 1), 0.5))
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * schedule(step)
        outputs = model(**batch)
        masked = batch["mask_time_indices"].sum()
        (outputs.loss / masked).backward()
        optimizer.step()
        optimizer.zero_grad()
        mine = losses[step + 1]
        near(f"pre-training loss of step {step + 1}", mine["loss"], (outputs.loss / masked).item())
        near("contrastive", mine["constrast_loss"], (outputs.contrastive_loss / masked).item())
        near("diversity", mine["div_loss"], (outputs.diversity_loss / masked).item())
        near("masked", mine["%_mask_idx"], float(masked / sub.sum()))
        near("perplexity", mine["ppl"], outputs.codevector_perplexity.item())
        near("temperature", mine["temp"], max(2.0 * 0.97**step, 0.5))
    print(f"pre-training: {STEPS - 1} steps, last loss {losses[STEPS]['loss']:.4f}")


def epoch_order(count, seed, epoch):
    """The order of an epoch in transformers' Trainer: accelerate's seedable sampler."""
    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    return torch.randperm(count, generator=generator).tolist()


def trainer_groups(model):
    """The parameters in the order of the Trainer's optimizer: those with decay first."""
    arguments = transformers.TrainingArguments(output_dir="unused", report_to="none", use_cpu=True)
    trainer = transformers.Trainer(model=model, args=arguments)
    decayed = set(trainer.get_decay_parameter_names(model))
    named = list(model.named_parameters())
    return [{"params": [value for name, value in named if name in decayed]},
            {"params": [value for name, value in named if name not in decayed]}]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_data(folder / "data", {"train": 22, "test": 7})
        ctc(folder, "stable", transformers.Wav2Vec2ForCTC)
        ctc(folder, "group", transformers.Wav2Vec2ForCTC)
        ctc(folder, "hubert", transformers.HubertForCTC)
        pretraining(folder)


if __name__ == "__main__":
    main()
