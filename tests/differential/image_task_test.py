"""Image classification of the program beside transformers' Trainer, following
run_image_classification: the same folders or Parquet files, model and flags.

Images are made here: PNG, JPEG and WebP of several modes and sizes in class folders. The Python
side decodes them with `datasets`, transforms them with torchvision and seeds torch's generator for
each batch as gradus does (include/gradus/data/collators.h): seed + epoch * 0x9E3779B1 + batch *
0x85EBCA77. Compared: 30 losses and gradient norms (1e-5 relative), eval_loss (1e-5), accuracy
exactly, config.json and preprocessor_config.json, the names of the weights both ways, and a resumed
run with one that was never stopped, bit for bit.

Without the peer: exit code 77.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import datasets
    import numpy as np
    import torch
    import transformers
    from PIL import Image
    from safetensors.torch import load_file
    from torchvision.transforms import (CenterCrop, Compose, Normalize, RandomHorizontalFlip,
                                        RandomResizedCrop, Resize, ToTensor)
except ImportError as error:
    print("skipped: the Python peer is not there:", error)
    sys.exit(77)

ROOT = pathlib.Path(__file__).parents[2]
GRADUS = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/gradus"
STEPS, SEED = 30, 42
CLASSES = ["bee", "ant", "cat"]
MODELS = {
    "vit": (dict(model_type="vit", hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                 intermediate_size=48, image_size=24, patch_size=6),
            transformers.ViTImageProcessor(size={"height": 24, "width": 24})),
    "resnet": (dict(model_type="resnet", embedding_size=8, hidden_sizes=[16, 24], depths=[1, 1]),
               transformers.ConvNextImageProcessor(size={"shortest_edge": 32})),
    "convnext": (dict(model_type="convnext", num_stages=2, hidden_sizes=[8, 16], depths=[1, 1],
                      layer_scale_init_value=0.1),
                 transformers.ConvNextImageProcessor(size={"shortest_edge": 24})),
}

# ---- data ------------------------------------------------------------------------


def picture(rng, label):
    """A class is a direction of stripes and a tint."""
    height, width = rng.integers(26, 90, 2)
    y, x = np.mgrid[0:height, 0:width]
    wave = np.sin((x if label == 0 else y if label == 1 else x + y) / 3.0)
    image = 128 + 90 * wave[:, :, None] * np.array([1, 0.4 + 0.3 * label, 0.2])
    return np.clip(image + rng.normal(0, 25, image.shape), 0, 255).astype(np.uint8)


def save_picture(rng, array, path):
    image = Image.fromarray(array)
    kind = rng.integers(0, 6)
    if kind == 0:
        image.save(path.with_suffix(".png"))
    elif kind == 1:
        exif = Image.Exif()
        exif[0x0112] = int(rng.integers(1, 9))
        image.save(path.with_suffix(".jpg"), quality=88, exif=exif)
    elif kind == 2:
        image.save(path.with_suffix(".webp"), quality=80)
    elif kind == 3:
        image.convert("L").save(path.with_suffix(".png"))
    elif kind == 4:
        image.convert("P").save(path.with_suffix(".png"))
    else:
        image.convert("RGBA").save(path.with_suffix(".webp"), lossless=True)


def make_folder(folder, rows, seed):
    rng = np.random.default_rng(seed)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
    for i in range(rows):
        label = int(rng.integers(0, 3))
        save_picture(rng, picture(rng, label), folder / CLASSES[label] / f"{i:03d}")


def make_model(name, folder, labels):
    values, processor = MODELS[name]
    torch.manual_seed(3)
    names = [f"{i}" for i in range(labels)]
    config = transformers.AutoConfig.for_model(
        **values, id2label=dict(enumerate(names)),
        label2id={label: i for i, label in enumerate(names)})
    transformers.AutoModelForImageClassification.from_config(config).save_pretrained(folder)
    processor.save_pretrained(folder)


# ---- the Python side --------------------------------------------------------------


def python_run(model_folder, data, flags, output):
    transformers.set_seed(SEED)
    dataset = datasets.load_dataset(**data)
    if "validation" not in dataset and flags.get("train_val_split", 0.15) > 0:
        split = dataset["train"].train_test_split(flags.get("train_val_split", 0.15))
        dataset["train"], dataset["validation"] = split["train"], split["test"]
    labels = dataset["train"].features["label"].names
    label2id = {label: str(i) for i, label in enumerate(labels)}
    id2label = {str(i): label for i, label in enumerate(labels)}
    config = transformers.AutoConfig.from_pretrained(model_folder, num_labels=len(labels),
                                                     label2id=label2id, id2label=id2label)
    model = transformers.AutoModelForImageClassification.from_pretrained(model_folder,
                                                                         config=config)
    processor = transformers.AutoImageProcessor.from_pretrained(model_folder)
    size = (processor.size["shortest_edge"] if processor.size.get("shortest_edge") else
            (processor.size["height"], processor.size["width"]))
    normalize = Normalize(mean=processor.image_mean, std=processor.image_std)
    train_transforms = Compose(
        [RandomResizedCrop(size), RandomHorizontalFlip(), ToTensor(), normalize])
    val_transforms = Compose([Resize(size), CenterCrop(size), ToTensor(), normalize])
    for name, count in (("train", "max_train_samples"), ("validation", "max_eval_samples")):
        if count in flags:
            dataset[name] = dataset[name].shuffle(seed=SEED).select(range(flags[count]))
    args = transformers.TrainingArguments(
        output_dir=output, seed=SEED, max_steps=STEPS, logging_steps=1, report_to="none",
        per_device_train_batch_size=4, per_device_eval_batch_size=4, learning_rate=2e-3,
        save_strategy="no", disable_tqdm=True, use_cpu=True, remove_unused_columns=False,
        gradient_accumulation_steps=flags.get("gradient_accumulation_steps", 1))
    batches = math.ceil(len(dataset["train"]) / 4)
    done = {"train": 0}

    def collate(examples):
        if "train" in examples[0]:
            epoch, batch = divmod(done["train"], batches)
            done["train"] += 1
            torch.manual_seed((SEED + epoch * 0x9E3779B1 + batch * 0x85EBCA77) & (2**64 - 1))
            pixels = [train_transforms(e["image"].convert("RGB")) for e in examples]
        else:
            pixels = [val_transforms(e["image"].convert("RGB")) for e in examples]
        return {
            "pixel_values": torch.stack(pixels),
            "labels": torch.tensor([e["label"] for e in examples])
        }

    dataset["train"] = dataset["train"].add_column("train", [1] * len(dataset["train"]))
    trainer = transformers.Trainer(
        model=model, args=args, train_dataset=dataset["train"],
        eval_dataset=dataset["validation"], processing_class=processor, data_collator=collate,
        compute_metrics=lambda p: {
            "accuracy": float((np.argmax(p.predictions, axis=1) == p.label_ids).mean())
        })
    trainer.train()
    trainer.save_model()
    metrics = trainer.evaluate()
    return trainer.state.log_history, metrics


# ---- the program ------------------------------------------------------------------


def gradus_run(model_folder, data, flags, output, *more):
    words = [GRADUS, "train", "--task", "image-classification", "--model_name_or_path",
             model_folder, *data, "--output_dir", output, "--do_eval", "--seed", SEED,
             "--max_steps", STEPS, "--logging_steps", 1, "--per_device_train_batch_size", 4,
             "--per_device_eval_batch_size", 4, "--learning_rate", 2e-3, "--disable_tqdm",
             "--use_cpu", "--ignore_mismatched_sizes", "--report_to", "none"]
    for name, value in flags.items():
        words += [f"--{name}", value]
    words += more or ["--save_strategy", "no"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    state = json.loads((output / "trainer_state.json").read_text())
    return state["log_history"], json.loads((output / "eval_results.json").read_text())


def close(name, ours, theirs, relative=1e-5):
    difference = abs(ours - theirs) / max(1.0, abs(theirs))
    assert difference <= relative, f"{name}: gradus {ours}, transformers {theirs}"
    return difference


def compare(name, ours, theirs):
    log, metrics = ours
    their_log, their_metrics = theirs
    worst = 0.0
    ours = [entry for entry in log if "loss" in entry]
    peers = [entry for entry in their_log if "loss" in entry]
    assert len(ours) == len(peers) == STEPS, (len(ours), len(peers))
    for entry, peer in zip(ours, peers):
        worst = max(worst, close(f"{name} loss {peer['step']}", entry["loss"], peer["loss"]))
        close(f"{name} grad_norm {peer['step']}", entry["grad_norm"], peer["grad_norm"], 1e-3)
    close(f"{name} eval_loss", metrics["eval_loss"], their_metrics["eval_loss"])
    assert metrics["eval_accuracy"] == their_metrics["eval_accuracy"], (name, metrics)
    print(f"{name}: {STEPS} losses, worst relative difference {worst:.1e}, "
          f"accuracy {metrics['eval_accuracy']:.4f}")


def compare_files(ours, theirs):
    for file, passed_over in (("config.json", {"transformers_version", "dtype"}),
                              ("preprocessor_config.json", set())):
        mine, peer = (json.loads((folder / file).read_text()) for folder in (ours, theirs))
        for key in set(mine) | set(peer):
            if key not in passed_over:
                assert mine.get(key) == peer.get(key), (file, key, mine.get(key), peer.get(key))
    mine, peer = (load_file(folder / "model.safetensors") for folder in (ours, theirs))
    assert set(mine) == set(peer), set(mine) ^ set(peer)
    report = transformers.AutoModelForImageClassification.from_pretrained(
        ours, output_loading_info=True)[1]
    assert not any(report.get(key) for key in ("missing_keys", "unexpected_keys",
                                               "mismatched_keys")), report


def check_folders(root):
    make_folder(root / "train", 40, 1)
    make_folder(root / "val", 13, 2)
    for name in MODELS:
        make_model(name, root / name, 3)
        data = {
            "path": "imagefolder", "data_files": {
                "train": str(root / "train/**"), "validation": str(root / "val/**")
            }
        }
        theirs = python_run(root / name, data, {}, root / f"{name}-python")
        ours = gradus_run(root / name, ["--train_dir", root / "train", "--validation_dir",
                                        root / "val"], {}, root / f"{name}-gradus")
        compare(f"{name}, folders", ours, theirs)
        compare_files(root / f"{name}-gradus", root / f"{name}-python")


def check_split_and_samples(root):
    data = {"path": "imagefolder", "data_files": {"train": str(root / "train/**")}}
    flags = {
        "train_val_split": 0.3, "max_train_samples": 21, "max_eval_samples": 7,
        "gradient_accumulation_steps": 2
    }
    theirs = python_run(root / "vit", data, flags, root / "split-python")
    ours = gradus_run(root / "vit", ["--train_dir", root / "train"], flags, root / "split-gradus",
                      "--save_strategy", "no", "--dataloader_num_workers", "2")
    compare("vit, split and samples, two workers", ours, theirs)


def check_parquet(root):
    data = {
        "path": "imagefolder", "data_files": {
            "train": str(root / "train/**"), "validation": str(root / "val/**")
        }
    }
    folder = root / "parquet"
    folder.mkdir()
    whole = datasets.load_dataset(**data)
    for split in ("train", "validation"):
        whole[split].to_parquet(folder / f"{split}-00000-of-00001.parquet")
    theirs = python_run(root / "vit", data, {}, root / "parquet-python")
    ours = gradus_run(root / "vit", ["--dataset_name", folder], {}, root / "parquet-gradus")
    compare("vit, Parquet", ours, theirs)


def check_resume(root, model):
    data = ["--train_dir", root / "train", "--validation_dir", root / "val"]
    places = root / f"{model}-whole", root / f"{model}-again"
    whole = gradus_run(root / model, data, {}, places[0], "--save_steps", "13")
    again = gradus_run(root / model, data, {}, places[1], "--save_steps", "13",
                       "--resume_from_checkpoint", places[0] / "checkpoint-13")
    assert [e for e in whole[0] if "loss" in e] == [e for e in again[0] if "loss" in e]
    mine, theirs = (load_file(place / "model.safetensors") for place in places)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    print(f"{model}: resumed from step 13, equal bit for bit")


def check_bad_images(root):
    make_folder(root / "bad", 20, 4)
    (root / "bad/ant/zz.jpg").write_bytes(b"\xff\xd8\xff\xe0 not a JPEG")
    data = ["--train_dir", root / "bad"]
    ours = gradus_run(root / "vit", data, {"skip_bad_rows": 1}, root / "bad-run")
    assert len([e for e in ours[0] if "loss" in e]) == STEPS
    done = subprocess.run([
        str(word) for word in [
            GRADUS, "train", "--task", "image-classification", "--model_name_or_path",
            root / "vit", *data, "--output_dir", root / "bad-run-2", "--max_steps", 30,
            "--disable_tqdm", "--ignore_mismatched_sizes", "--use_cpu"
        ]
    ], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "zz.jpg" in done.stderr and "G-IMG-2" in done.stderr, done.stderr
    print("a damaged image is named, and left out with --skip_bad_rows")


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HOME"] = folder + "/hf"
        datasets.config.HF_DATASETS_CACHE = pathlib.Path(folder) / "cache"
        datasets.disable_progress_bars()
        root = pathlib.Path(folder)
        check_folders(root)
        check_split_and_samples(root)
        check_parquet(root)
        check_resume(root, "vit")
        check_resume(root, "resnet")
        check_bad_images(root)
