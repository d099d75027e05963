"""make_distillation.py: distillation.json, losses of transformers 5.22.2's Trainer with the loss of
its research projects: `distillation` (Distiller.step: KL at a temperature, the model's own loss,
MSE of the logits, cosine of the last hidden states) and `zero-shot-distillation`
(DistillationTrainer.compute_loss: the labels are the teacher's probabilities).

Models are an embedding (or nothing), a hidden layer and a linear one; all weights are in the file.
"""

import json
import pathlib
import tempfile

import torch
import transformers
from torch.nn import functional as F

torch.manual_seed(5)
transformers.logging.set_verbosity_error()
ROWS, TOKENS, VOCABULARY, STEPS = 12, 5, 7, 10


class Net(torch.nn.Module):
    """Rows of numbers or of tokens to logits."""
    def __init__(self, width, tokens):
        super().__init__()
        self.tokens = tokens
        self.first = torch.nn.Linear(4, width)
        self.last = torch.nn.Linear(width, VOCABULARY)
        if tokens:
            self.embedding = torch.nn.Embedding(VOCABULARY, 4)

    def forward(self, x, labels=None, attention_mask=None):
        hidden = torch.tanh(self.first(self.embedding(x) if self.tokens else x))
        logits = self.last(hidden)
        output = {"logits": logits, "last_hidden_state": hidden}
        if labels is not None and not labels.is_floating_point():
            output = {"loss": F.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1))
                     } | output
        return output


def weights(model):
    return {name: value.tolist() for name, value in model.state_dict().items()}


class Distillation(transformers.Trainer):
    def __init__(self, *args, teacher, alphas, **more):
        super().__init__(*args, **more)
        self.teacher, self.alphas, self.model_accepts_loss_kwargs = teacher, alphas, False

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if self.teacher is None:
            target = inputs["labels"]
            outputs = model(inputs["x"])
            loss = -torch.sum(target * F.log_softmax(outputs["logits"], dim=-1), dim=-1).mean()
            return (loss, outputs) if return_outputs else loss
        with torch.no_grad():
            wanted = self.teacher(**{key: inputs[key] for key in inputs if key != "labels"})
        outputs = model(**inputs)
        mask = inputs.get("attention_mask")
        rows = lambda values: values[mask.bool()] if mask is not None else values
        s, t = rows(outputs["logits"]), rows(wanted["logits"])
        T, soft, hard, cos, mse = (self.alphas[key]
                                   for key in ("temperature", "alpha_soft", "alpha_hard",
                                               "alpha_cos", "alpha_mse"))
        loss = soft * torch.nn.KLDivLoss(reduction="batchmean")(F.log_softmax(s / T, dim=-1),
                                                                F.softmax(t / T, dim=-1)) * T**2
        loss = loss + hard * outputs["loss"]
        loss = loss + mse * torch.nn.MSELoss(reduction="sum")(s, t) / s.size(0)
        if cos:
            a, b = rows(outputs["last_hidden_state"]), rows(wanted["last_hidden_state"])
            loss = loss + cos * torch.nn.CosineEmbeddingLoss(reduction="mean")(
                a, b, a.new_ones(a.size(0)))
        return (loss, outputs) if return_outputs else loss


def case(tokens, same_width, zero_shot=False, **alphas):
    alphas = {
        "temperature": 2.0, "alpha_soft": 0.5, "alpha_hard": 0.5, "alpha_cos": 0.0, "alpha_mse": 0.0
    } | alphas
    teacher, student = Net(6, tokens), Net(6 if same_width else 3, tokens)
    columns = {"x": torch.randint(VOCABULARY, (ROWS, TOKENS)) if tokens else torch.randn(ROWS, 4)}
    columns["labels"] = torch.randint(VOCABULARY, (ROWS, TOKENS) if tokens else (ROWS,))
    if tokens:
        length = torch.randint(1, TOKENS + 1, (ROWS, 1))
        columns["attention_mask"] = (torch.arange(TOKENS)[None] < length).long()
        columns["labels"] = columns["labels"].masked_fill(columns["attention_mask"] == 0, -100)
    if zero_shot:
        columns["labels"] = torch.softmax(teacher(columns["x"])["logits"], -1).detach()
    made = {
        "alphas": alphas, "tokens": tokens, "zero_shot": zero_shot, "student": weights(student),
        "teacher": weights(teacher), "columns": {k: v.tolist() for k, v in columns.items()}
    }
    rows = [{key: value[i] for key, value in columns.items()} for i in range(ROWS)]
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(
            folder, per_device_train_batch_size=3, per_device_eval_batch_size=ROWS,
            gradient_accumulation_steps=2, max_steps=STEPS, learning_rate=0.3, optim="sgd",
            logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
            remove_unused_columns=False, lr_scheduler_type="constant")
        trainer = Distillation(student, args, train_dataset=rows, eval_dataset=rows,
                               teacher=None if zero_shot else teacher, alphas=alphas)
        trainer.remove_callback(transformers.PrinterCallback)
        made["before"] = trainer.evaluate()["eval_loss"]
        trainer.train()
        made["losses"] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        made["after"] = trainer.evaluate()["eval_loss"]
    return made


def main():
    cases = [
        case(False, False),
        case(False, False, temperature=4.0, alpha_soft=0.9, alpha_hard=0.1),
        case(False, False, alpha_hard=0.0, alpha_soft=1.0),
        case(False, True, alpha_cos=0.7, alpha_mse=0.05),
        case(True, True, temperature=1.5, alpha_cos=1.0, alpha_mse=0.1, alpha_soft=2.0),
        case(True, False, alpha_mse=0.01),
        case(False, False, zero_shot=True),
    ]
    (pathlib.Path(__file__).parent / "distillation.json").write_text(json.dumps(cases) + "\n")


main()
