"""What trainer_tool does, done by transformers: the models, data sets, callbacks and calls of a run
of trainer_test.py.
"""

import types

EVENTS = ("init_end train_begin train_end epoch_begin epoch_end step_begin pre_optimizer_step "
          "optimizer_step substep_end step_end "
          "evaluate predict save log prediction_step push_begin").split()
FLAGS = ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate",
         "should_log")
COLUMNS = ("x", "input_ids", "attention_mask", "labels", "weights", "extra")


def models(torch):
    """Name to a function that makes the model of a run."""
    class Regression(torch.nn.Module):
        main_input_name = "x"

        def __init__(self, run):
            super().__init__()
            self.a = torch.nn.Parameter(torch.tensor(run["parameters"]["a"]))
            self.b = torch.nn.Parameter(torch.tensor(run["parameters"]["b"]))

        def forward(self, x, labels=None, weights=None):
            y, outputs = x * self.a + self.b, {}
            if weights is not None:
                outputs["loss"] = (weights * (y - labels).square()).mean()
            elif labels is not None:
                outputs["loss"] = torch.nn.functional.mse_loss(y, labels)
            return {**outputs, "logits": y}

    class Classifier(torch.nn.Module):
        main_input_name = "x"

        def __init__(self, run):
            super().__init__()
            self.l1, self.l2 = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)
            self.load_state_dict(
                {name: torch.tensor(value) for name, value in run["parameters"].items()})
            self.dropout = run.get("dropout", 0.0)
            self.config = types.SimpleNamespace(
                keys_to_ignore_at_inference=[])  # label smoothing looks into it

        def forward(self, x, labels=None):
            y = self.l2(
                torch.nn.functional.dropout(torch.relu(self.l1(x)), self.dropout, self.training))
            outputs = {} if labels is None else {
                "loss": torch.nn.functional.cross_entropy(y, labels)
            }
            return {**outputs, "logits": y}

    class Tokens(torch.nn.Module):
        accepts_loss_kwargs = True
        main_input_name = "input_ids"

        def __init__(self, run):
            super().__init__()
            parameters = {name: torch.tensor(value) for name, value in run["parameters"].items()}
            self.emb, self.out = torch.nn.Embedding(
                *parameters["emb.weight"].shape), torch.nn.Linear(
                    *reversed(parameters["out.weight"].shape))
            self.load_state_dict(parameters)
            self.config = types.SimpleNamespace(keys_to_ignore_at_inference=[])

        def forward(self, input_ids, attention_mask=None, labels=None, num_items_in_batch=None):
            hidden = self.emb(input_ids)
            y, outputs = self.out(hidden), {}
            if labels is not None:
                given = num_items_in_batch is not None
                loss = torch.nn.functional.cross_entropy(y.flatten(0, 1), labels.flatten(),
                                                         reduction="sum" if given else "mean")
                outputs = {"loss": loss / num_items_in_batch if given else loss}
            return {**outputs, "logits": y, "hidden": hidden.mean(-1)}

    return {"regression": Regression, "classifier": Classifier, "tokens": Tokens}


def rows_of(torch, run, part, data):
    def dtype(name):
        if name == "labels":
            return torch.float if run["model"] == "regression" else torch.long
        return torch.long if name in ("input_ids", "attention_mask") else torch.float

    columns = {
        name: torch.tensor(data[name], dtype=dtype(name))
        for name in COLUMNS
        if name in data
    }
    table = [{name: column[i]
              for name, column in columns.items()}
             for i in range(len(next(iter(columns.values()))))]
    for row, length in zip(table, data.get("lengths", [])):
        row["input_ids"] = [0] * length
    if part not in run.get("stream", []):
        return table

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([dict(row) for row in table])

    class SizedStream(Stream):
        def __len__(self):
            return len(table)

    return SizedStream() if run.get("sized") else Stream()


def eval_sets_of(torch, run, data):
    if "sets" not in data:
        return rows_of(torch, run, "eval", data)
    return {name: rows_of(torch, run, "eval", each) for name, each in data["sets"]}


def first(value):
    return value[0] if isinstance(value, (tuple, list)) else value


def mean(arrays):
    """The mean square of all numbers of an array or of a list of them: nothing cancels, so that
    small differences stay small.
    """
    values = [
        float(x)**2
        for array in (arrays if isinstance(arrays, list) else [arrays])
        for x in array.flatten()
    ]
    return sum(values) / len(values)


def whole_metrics(p):
    if isinstance(p.predictions, list):  # eval_do_concat_batches=False
        metrics = {
            "sum_of_means": sum(mean(first(batch)) for batch in p.predictions),
            "batches": len(p.predictions), "eval_labels": mean(first(p.label_ids[-1]))
        }
    else:
        metrics = {
            "mean": mean(first(p.predictions)), "eval_labels": mean(first(p.label_ids)),
            "outputs": len(p.predictions) if isinstance(p.predictions, tuple) else 1
        }
    if p.inputs is not None:
        metrics["inputs"] = mean(p.inputs)
    if isinstance(p.inputs, list):
        metrics["input_batches"] = len(p.inputs)
    if p.losses is not None:
        metrics |= {
            "losses": mean(p.losses),
            "loss_rows": sum(map(len, p.losses)) if isinstance(p.losses, list) else len(p.losses)
        }
    return metrics


def batched_metrics(main_input):
    sums = {"sum": 0.0, "batches": 0}

    def compute(p, compute_result):
        inputs = mean(p.inputs[main_input]) if p.inputs is not None else 0
        sums["sum"] += mean(first(
            p.predictions)) + inputs + (p.losses.numel() if p.losses is not None else 0)
        sums["batches"] += 1
        if not compute_result:
            return {"unfinished": sums["batches"]}
        result = dict(sums)
        sums.update(sum=0.0, batches=0)
        return result

    return compute


def python_runner():
    """A function that trains a run with transformers and says what happened, in the form of
    trainer_tool.
    """
    import torch
    import transformers

    class Recorder(transformers.TrainerCallback):
        def __init__(self):
            self.events, self.controls = [], []

        def note(self, event, control):
            self.events.append(event)
            self.controls.append([getattr(control, flag) for flag in FLAGS])

    class FlagSetter(transformers.TrainerCallback):
        def __init__(self, event, occurrence, flag):
            self.event, self.occurrence, self.flag, self.seen = event, occurrence, flag, 0

        def note(self, event, control):
            self.seen += event == self.event
            if event == self.event and self.seen == self.occurrence:
                setattr(control, self.flag, True)

    for kind in (Recorder, FlagSetter):
        for event in EVENTS:
            setattr(
                kind, "on_" + event,
                lambda self, args, state, control, event="on_" + event, **_: self.note(
                    event, control))
    kinds = models(torch)

    def optimizer_of(run, model):
        kind = {"sgd": torch.optim.SGD, "adamw_torch": torch.optim.AdamW}[run["optimizer"]["optim"]]
        parameters = dict(model.named_parameters())
        groups = [{
            "params": [value for name, value in parameters.items() if name in group["names"]],
            "lr": group["lr"], "weight_decay": group["weight_decay"]
        } for group in run["optimizer"]["groups"]]
        return kind(groups, lr=run["args"]["learning_rate"])

    def squares(outputs, labels, num_items_in_batch=None):
        loss = (outputs["logits"] - labels).square().sum()
        return loss if num_items_in_batch is None else loss / num_items_in_batch

    def doubled(logits, labels):
        return first(logits) * 2 + (0 if labels is None else
                                    len(labels) if isinstance(labels, tuple) else 1)

    def trainer_of(run, recorder):
        def make_model():
            return kinds[run["model"]](run)

        model = None if run.get("model_init") else make_model()
        callbacks = [transformers.EarlyStoppingCallback(run["early_stopping"])
                    ] if "early_stopping" in run else []
        callbacks += [FlagSetter(*what) for what in run.get("control", [])]
        metrics = {
            "whole": whole_metrics, "batched": batched_metrics(kinds[run["model"]].main_input_name)
        }
        trainer = transformers.Trainer(
            model, transformers.TrainingArguments(**run["args"]),
            train_dataset=rows_of(torch, run, "train", run["train"]),
            eval_dataset=eval_sets_of(torch, run, run["eval"]) if "eval" in run else None,
            model_init=make_model if run.get("model_init") else None,
            compute_loss_func=squares if run.get("loss_func") else None,
            compute_metrics=metrics.get(run.get("metrics")), callbacks=callbacks + [recorder],
            optimizers=(optimizer_of(run, model) if "optimizer" in run else None, None),
            preprocess_logits_for_metrics=doubled if run.get("preprocess") else None)
        trainer.remove_callback(transformers.PrinterCallback)
        return trainer

    def parts_of(arrays):
        if isinstance(arrays, list):  # eval_do_concat_batches=False
            return [parts_of(batch) for batch in arrays]
        arrays = () if arrays is None else arrays if isinstance(arrays, tuple) else (arrays,)
        return [{"shape": list(part.shape), "values": part.astype("float64").flatten().tolist()}
                for part in arrays]

    def do_call(trainer, run, call, metrics):
        what, result = call["do"], {}
        metrics.append({})
        keys = {"ignore_keys": call["ignore_keys"]} if "ignore_keys" in call else {}
        if what == "train":
            done = trainer.train(resume_from_checkpoint=call.get("resume"))
            result = {"training_loss": done.training_loss, "global_step": done.global_step}
            metrics[-1] = done.metrics
        elif what == "evaluate":
            data = eval_sets_of(torch, run, run[call["data"]]) if "data" in call else None
            metrics[-1] = trainer.evaluate(data, metric_key_prefix=call["prefix"], **keys)
        elif what == "predict":
            found = trainer.predict(rows_of(torch, run, "test", run["test"]),
                                    metric_key_prefix=call["prefix"], **keys)
            result = {
                "predictions": parts_of(found.predictions), "labels": parts_of(found.label_ids)
            }
            metrics[-1] = found.metrics
        elif what == "save_metrics":
            trainer.save_metrics(call["split"], metrics[call["of"]], call["combined"])
        elif what == "save_state":
            trainer.save_state()
        return result | {"metrics": metrics[-1]}

    def train(run):
        recorder, metrics = Recorder(), []
        trainer = trainer_of(run, recorder)
        calls = [
            do_call(trainer, run, call, metrics) for call in run.get("calls", [{"do": "train"}])
        ]
        state = {key: value for key, value in vars(trainer.state).items() if key != "log_history"}
        parameters = {
            name: value.detach().double().flatten().tolist()
            for name, value in trainer.model.state_dict().items()
        }
        return {
            "log_history": trainer.state.log_history, "events": recorder.events,
            "controls": recorder.controls, "state": state, "parameters": parameters, "calls": calls
        }

    return train
