"""The Python side of generation.py: generation_peer.py evaluate|train FOLDER ROWS.json."""

import json
import sys
import tempfile
import time

import transformers


class Steps(transformers.TrainerCallback):
    def __init__(self):
        self.seconds, self.before = [], None

    def on_step_begin(self, args, state, control, **kwargs):
        self.before = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.seconds.append(time.perf_counter() - self.before)


def main():
    mode, folder, file = sys.argv[1:]
    transformers.logging.set_verbosity_error()
    rows, steps = json.load(open(file)), Steps()
    with tempfile.TemporaryDirectory() as output:
        args = transformers.Seq2SeqTrainingArguments(
            output_dir=output, per_device_train_batch_size=16, per_device_eval_batch_size=16,
            max_steps=30, disable_tqdm=True, report_to="none", save_strategy="no", use_cpu=True,
            predict_with_generate=True, generation_max_length=48, generation_num_beams=4)
        trainer = transformers.Seq2SeqTrainer(
            transformers.AutoModelForSeq2SeqLM.from_pretrained(folder), args, train_dataset=rows,
            eval_dataset=rows, data_collator=transformers.default_data_collator,
            compute_metrics=lambda p: {"sum": float(p.predictions.sum())}, callbacks=[steps])
        if mode == "train":
            trainer.train()
            middle = sorted(steps.seconds)[len(steps.seconds) // 2]
            print(json.dumps({"milliseconds": middle * 1e3}))
            return
        begin = time.perf_counter()
        total = trainer.evaluate()["eval_sum"]
        print(json.dumps({"seconds": time.perf_counter() - begin, "sum": total}))


if __name__ == "__main__":
    main()
