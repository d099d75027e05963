// What one micro-batch goes through.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/tokenizer_like.h>
#include <gradus/device/runtime.h>

#include "train/trainer_parts.h"

namespace gradus {
namespace {

std::string joined(const Names& names) { return fmt::format("{}", fmt::join(names, ", ")); }

// Mixed precision ends at the model's border: what it gives is float32 again.
void to_float(ModelOutput& outputs) {
  for (const auto& [name, value] : ModelOutput(outputs))
    if (value.defined() &&
        (value.scalar_type() == torch::kHalf || value.scalar_type() == torch::kBFloat16))
      outputs.set(name, value.to(torch::kFloat));
}

// All that compute_loss gives, under names.
ModelOutput with_loss(Loss result) {
  result.outputs.set("loss", result.loss);
  return std::move(result.outputs);
}

}  // namespace

torch::Tensor Trainer::training_step(Model& model, Batch inputs,
                                     std::optional<torch::Tensor> num_items_in_batch) {
  auto& p = *parts_;
  model.train();
  p.optimizer->train();
  inputs = prepare_inputs(std::move(inputs));
  torch::Tensor loss;
  {
    const auto autocast = compute_loss_context_manager();
    p.forward.need_logits = typeid(*this) != typeid(Trainer);  // a subclass may look at the outputs
    if (p.debug)
      loss = p.debug->watch(model, inputs, [&] {
        return with_loss(compute_loss(model, inputs, num_items_in_batch));
      })["loss"];
    else
      loss = compute_loss(model, std::move(inputs), num_items_in_batch).loss;
    p.forward = {};
  }
  if (!loss.defined() || loss.numel() != 1)
    throw Error("G-TRAIN-7", ErrorKind::training,
                fmt::format("compute_loss gave {}: expected a scalar",
                            loss.defined() ? "a tensor of shape " +
                                                 fmt::format("[{}]", fmt::join(loss.sizes(), ", "))
                                           : "no loss"),
                "Reduce the loss with mean() or sum().");
  if (p.args.torch_empty_cache_steps && p.state.global_step % *p.args.torch_empty_cache_steps == 0)
    device::empty_cache(p.device);
  const bool is_scaled = loss_is_scaled_for_ga.value_or(
      (p.model_accepts_loss_kwargs && num_items_in_batch) || p.compute_loss_func);
  if (!is_scaled && p.current_window > 1) loss = loss / p.current_window;
  if (p.scaler)
    p.scaler->scale(loss).backward();
  else
    loss.backward();
  return loss.detach();
}

Loss Trainer::compute_loss(Model& model, Batch inputs,
                           std::optional<torch::Tensor> num_items_in_batch) {
  auto& p = *parts_;
  torch::Tensor labels;
  if (p.label_smoother || p.compute_loss_func) labels = inputs.pop_or_undefined("labels");
  p.forward.num_items_in_batch = p.model_accepts_loss_kwargs ? num_items_in_batch : std::nullopt;
  if (labels.defined()) p.forward.need_logits = true;
  auto outputs = run_model(model, inputs, model.is_training());

  torch::Tensor loss;
  if (p.compute_loss_func) {
    if (!labels.defined())
      log_warning_once(
          "compute_loss_func is set, but the batch has no labels: it is called without.");
    loss = p.compute_loss_func(outputs, labels, num_items_in_batch);
  } else if (labels.defined()) {
    loss = (*p.label_smoother)(outputs, labels, model.shifts_labels(), num_items_in_batch);
  } else if (outputs.contains("loss")) {
    loss = outputs["loss"];
  } else {
    throw Error("G-TRAIN-6", ErrorKind::training,
                fmt::format("the model returned no loss, only: {}. The inputs it received are: {}",
                            joined(outputs.names()), joined(inputs.names())),
                "Give labels to the model, set compute_loss_func, or override compute_loss.");
  }
  return {std::move(loss), std::move(outputs)};
}

ModelOutput Trainer::run_model(Model& model, const Batch& inputs, bool /*training*/) {
  const auto forward = [&] { return model.forward(inputs, parts_->forward); };
  auto outputs = parts_->debug ? parts_->debug->watch(model, inputs, forward) : forward();
  if (parts_->autocast_dtype != torch::kFloat) to_float(outputs);
  return outputs;
}

device::AutocastGuard Trainer::compute_loss_context_manager() const {
  return {parts_->device.type(), parts_->cast_to()};
}

Batch Trainer::prepare_inputs(Batch inputs) const {
  if (inputs.empty())
    throw Error(
        "G-TRAIN-11", ErrorKind::data,
        "the batch received was empty, so the model cannot be run on it",
        fmt::format("Check the data collator and the columns: the model reads {}.",
                    parts_->model->input_names().empty() ? "every column"
                                                         : joined(parts_->model->input_names())));
  if (!parts_->device.is_cpu()) inputs = upload(std::move(inputs));
  if (parts_->masters)  // what goes into bfloat16 layers; labels are compared in float32
    for (auto& [name, value] : inputs)
      if (value.defined() && value.scalar_type() == torch::kFloat &&
          std::find(parts_->label_names.begin(), parts_->label_names.end(), name) ==
              parts_->label_names.end())
        value = value.to(torch::kBFloat16);
  return inputs;
}

std::optional<torch::Tensor> Trainer::get_num_items_in_batch(
    const std::vector<Batch>& window) const {
  const auto& p = *parts_;
  const bool wanted = p.model_accepts_loss_kwargs || p.compute_loss_func;
  if (!wanted || window.empty() || !window.front().contains("labels")) return std::nullopt;
  torch::Tensor count;
  for (const auto& batch : window) {
    const auto* shifted = batch.find("shift_labels");
    auto labels = shifted != nullptr ? *shifted : batch["labels"];
    if (shifted == nullptr && p.model->counts_shifted_labels() && labels.dim() > 0)
      labels = labels.slice(-1, 1);
    const auto items = labels.ne(-100).sum();
    count = count.defined() ? count + items : items;
  }
  if (p.device.is_cpu() || !count.is_cpu()) return count;
  return torch::full(
      {}, count.item<int64_t>(),
      torch::dtype(torch::kLong).device(p.device));  // travels with the launch: nothing waits
}

double Trainer::floating_point_ops(const Batch& inputs) const {
  return parts_->model->floating_point_ops(inputs);
}

int64_t Trainer::count_input_tokens(const Batch& batch) const {
  const auto& p = *parts_;
  const auto* input = batch.find(p.model->main_input_name());
  if (input == nullptr) {
    log_warning_once("include_num_input_tokens_seen: the batch has no '" +
                     p.model->main_input_name() +
                     "', which the model calls its main input; no tokens are counted.");
    return 0;
  }
  if (p.args.include_num_input_tokens_seen != "non_padding") return input->numel();
  if (const auto* mask = batch.find("attention_mask")) return mask->sum().item<int64_t>();
  if (p.processing_class && p.processing_class->pad_token_id())
    return input->ne(*p.processing_class->pad_token_id()).sum().item<int64_t>();
  log_warning_once(
      "include_num_input_tokens_seen: padding cannot be told without attention_mask or tokenizer; "
      "all tokens are counted.");
  return input->numel();
}

}  // namespace gradus
