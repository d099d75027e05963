#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/trainers/distillation.h>

#include "trainers/saved_arguments.h"

namespace gradus {
namespace {

constexpr OptionRow<DistillationArguments> kDistillationRows[] = {
    {&DistillationArguments::temperature, "temperature", Group::trainer, at_least(1e-6),
     "Logits are divided by it before teacher and student are compared."},
    {&DistillationArguments::alpha_soft, "alpha_soft", Group::trainer, at_least(0.0),
     "Weight of the teacher's softened probabilities in the loss."},
    {&DistillationArguments::alpha_hard, "alpha_hard", Group::trainer, at_least(0.0),
     "Weight of the student's own loss, with the labels."},
    {&DistillationArguments::alpha_cos, "alpha_cos", Group::trainer, at_least(0.0),
     "Weight of the angle between the last hidden states of teacher and student."},
    {&DistillationArguments::alpha_mse, "alpha_mse", Group::trainer, at_least(0.0),
     "Weight of the squared distance between the logits of teacher and student."},
};

[[noreturn]] void refuse_distillation(const std::string& message, const std::string& advice) {
  throw Error("G-TRAIN-22", ErrorKind::usage, message, advice);
}

bool is_hidden_state(const std::string& name) { return name.starts_with("hidden_states."); }

// The output of the last block.
torch::Tensor last_hidden_state(const ModelOutput& outputs, const char* whose) {
  if (const auto* found = outputs.find("last_hidden_state")) return *found;
  torch::Tensor last;
  for (const auto& [name, value] : outputs)
    if (is_hidden_state(name)) last = value;
  if (!last.defined())
    refuse_distillation(
        fmt::format("alpha_cos compares hidden states, but the {} returns none", whose),
        "Set alpha_cos to 0, or return \"last_hidden_state\" from the model's forward.");
  return last;
}

ForwardOptions with_hidden_states(bool wanted) {
  ForwardOptions options;
  options.output_hidden_states = wanted;
  return options;
}

ModelOutput without_hidden_states(const ModelOutput& outputs) {
  ModelOutput rest;
  for (const auto& [name, value] : outputs)
    if (!is_hidden_state(name)) rest.set(name, value);
  return rest;
}

void check_same_shape(const torch::Tensor& student, const torch::Tensor& teacher, const char* what,
                      const char* advice) {
  if (student.sizes() == teacher.sizes()) return;
  refuse_distillation(
      fmt::format("the teacher's {} have the shape [{}], the student's [{}]: "
                  "expected the same",
                  what, fmt::join(teacher.sizes(), ", "), fmt::join(student.sizes(), ", ")),
      advice);
}

// The rows of tokens that count; all rows where there are no tokens.
class CountedRows {
 public:
  CountedRows(const Batch& inputs, const torch::Tensor& logits) {
    if (logits.dim() != 3) return;
    const auto shape = logits.sizes().slice(0, 2);
    if (const auto* mask = inputs.find("attention_mask"); mask != nullptr && mask->sizes() == shape)
      mask_ = mask->ne(0);
    else if (const auto* labels = inputs.find("labels");
             labels != nullptr && labels->sizes() == shape)
      mask_ = labels->ne(-100);
  }

  // As a matrix of one row each.
  torch::Tensor of(const torch::Tensor& values) const {
    const auto rows = values.reshape({-1, values.size(-1)});
    return mask_.defined() ? rows.index({mask_.reshape(-1)}) : rows;
  }

 private:
  torch::Tensor mask_;
};

// The labels are what a teacher has said.
torch::Tensor cross_entropy_with(const torch::Tensor& probabilities, const torch::Tensor& logits) {
  check_same_shape(logits, probabilities, "probabilities (the labels)",
                   "Give labels with one probability for each class of the student, or a teacher.");
  return -(probabilities * torch::log_softmax(logits, -1)).sum(-1).mean();
}

}  // namespace

std::span<const OptionRow<DistillationArguments>> DistillationArguments::own_options() {
  return kDistillationRows;
}

DistillationArguments DistillationArguments::resolved() const { return resolve_fields(*this); }

nlohmann::ordered_json DistillationArguments::to_dict() const { return arguments_to_dict(*this); }

DistillationArguments DistillationArguments::from_json(const nlohmann::json& dict) {
  return arguments_from_json<DistillationArguments>(dict);
}

DistillationArguments::operator TrainingArguments() const { return common_arguments(*this); }

bool operator==(const DistillationArguments&, const DistillationArguments&) = default;

DistillationTrainer::DistillationTrainer(DistillationTrainerOptions options)
    : Trainer(convert_options<TrainerOptions>(options)),
      args_(options.args.resolved()),
      teacher_(std::move(options.teacher)) {
  loss_is_scaled_for_ga = false;
  if (!teacher_) return;
  if (teacher_ == model_ptr())
    refuse_distillation("teacher and student are the same model",
                        "Load the teacher a second time, or give another one.");
  if (args_.alpha_soft + args_.alpha_hard + args_.alpha_cos + args_.alpha_mse == 0)
    refuse_distillation("all weights of the loss are 0", "Set alpha_soft or another one.");
  teacher_->to(device());
  teacher_->eval();
}

ModelOutput DistillationTrainer::teacher_outputs(Batch inputs) const {
  const torch::NoGradGuard frozen;
  for (const auto& name : label_names()) inputs.pop_or_undefined(name);
  return teacher_->forward(inputs, with_hidden_states(args_.alpha_cos != 0));
}

ModelOutput DistillationTrainer::run_model(Model& model, const Batch& inputs, bool training) {
  if (!teacher_ || args_.alpha_cos == 0) return Trainer::run_model(model, inputs, training);
  return model.forward(inputs, with_hidden_states(true));
}

torch::Tensor DistillationTrainer::soft_loss(const torch::Tensor& student,
                                             const torch::Tensor& teacher) const {
  const auto T = args_.temperature;
  const auto wanted = torch::log_softmax(teacher / T, -1),
             given = torch::log_softmax(student / T, -1);
  return torch::kl_div(given, wanted, at::Reduction::Sum, /*log_target=*/true) /
         double(student.size(0)) * (T * T);
}

Loss DistillationTrainer::compute_loss(Model& model, Batch inputs,
                                       std::optional<torch::Tensor> /*num_items_in_batch*/) {
  if (!teacher_) {
    const auto labels = inputs.pop_or_undefined("labels");
    auto outputs = run_model(model, inputs, model.is_training());
    if (!labels.defined() || !labels.is_floating_point())
      refuse_distillation("there is no teacher, and the labels are no probabilities",
                          "Give a teacher, or its probabilities as labels.");
    auto loss = cross_entropy_with(labels, outputs.logits());
    return {std::move(loss), std::move(outputs)};
  }
  Loss student;
  if (args_.alpha_hard != 0)
    student = Trainer::compute_loss(model, inputs, std::nullopt);
  else
    student.outputs = run_model(model, inputs, model.is_training());
  const auto teacher = teacher_outputs(inputs);
  const auto &given = student.outputs.logits(), &wanted = teacher.logits();
  check_same_shape(given, wanted, "logits",
                   "Teacher and student need the same classes and the same tokenizer.");
  const CountedRows counted(inputs, given);
  const auto s = counted.of(given), t = counted.of(wanted).to(s.dtype());

  torch::Tensor loss;
  const auto add = [&](double weight, const std::function<torch::Tensor()>& part) {
    if (weight == 0) return;
    const auto weighted = weight * part();
    loss = loss.defined() ? loss + weighted : weighted;
  };
  add(args_.alpha_soft, [&] { return soft_loss(s, t); });
  add(args_.alpha_hard, [&] { return student.loss; });
  add(args_.alpha_mse,
      [&] { return torch::mse_loss(s, t, at::Reduction::Sum) / double(s.size(0)); });
  add(args_.alpha_cos, [&] {
    const auto mine = last_hidden_state(student.outputs, "student"),
               other = last_hidden_state(teacher, "teacher");
    check_same_shape(mine, other, "hidden states",
                     "Set alpha_cos to 0, or choose a student of the teacher's width.");
    const auto a = counted.of(mine), b = counted.of(other).to(a.dtype());
    return torch::cosine_embedding_loss(a, b, torch::ones(a.size(0), a.options()));
  });
  return {std::move(loss), without_hidden_states(student.outputs)};
}

std::optional<torch::Tensor> DistillationTrainer::get_num_items_in_batch(
    const std::vector<Batch>& /*window*/) const {
  return std::nullopt;
}

nlohmann::ordered_json DistillationTrainer::arguments_to_save() const {
  return saved_arguments(args_, Trainer::arguments_to_save());
}

}  // namespace gradus
