// What one micro-batch goes through.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/tokenizer_like.h>
#include <gradus/device/runtime.h>

#include <algorithm>

#include "train/trainer_parts.h"

namespace gradus {
namespace {

std::string joined(const Names& names) { return fmt::format("{}", fmt::join(names, ", ")); }

// All that compute_loss gives, under names.
ModelOutput with_loss(Loss result) {
  result.outputs.set("loss", result.loss);
  return std::move(result.outputs);
}

}  // namespace

StepTraits Trainer::step_traits() const {
  if (is_exactly<Trainer>()) return {.recordable = true, .reads_logits = false};
  return {};
}

std::string Trainer::Parts::why_not_recorded(const StepTraits& traits) const {
  if (!traits.plain_because.empty()) return traits.plain_because;
  const bool is_auto = args.cuda_graphs == "auto";
  if (is_auto && !traits.recordable)
    return "the trainer is a class of your own, whose methods a replay would not call; "
           "--cuda_graphs on says that they may be skipped";
  if (is_auto && (compute_loss_func || !model->is_recordable()))
    return "the model or loss is your own, whose code a replay would not run; --cuda_graphs on "
           "says that it may be skipped";
  if (const auto how = GradientCheckpointing::of(args); how && how->offload)
    return "gradient checkpointing moves activations to the host, whose memory a recording cannot "
           "keep";
  return "";
}

bool Trainer::Parts::wants_masters() const {
  if (engine.precision().dtype() != torch::kBFloat16) return false;
  if (args.bf16_mode != "auto") return args.bf16_mode == "master";
  return engine.device().is_cuda() && model->takes_bf16_weights();
}

bool Trainer::Parts::frozen_weights_wait() const {
  if (!engine.device().is_cuda() || processes.size() > 1 || !wants_masters()) return false;
  int64_t frozen = 0, all = 0;
  for (const auto& parameter : model->parameters()) {
    all += parameter.numel();
    if (!parameter.requires_grad() && parameter.is_cpu()) frozen += parameter.numel();
  }
  return frozen * 2 > all;
}

void Trainer::Parts::place_model() {
  if (!frozen_weights_wait()) return model->to(engine.device());
  for (auto& parameter : model->parameters())
    if (parameter.requires_grad() || parameter.scalar_type() != torch::kFloat)
      parameter.set_data(parameter.detach().to(engine.device()));
  for (auto& buffer : model->buffers()) buffer.set_data(buffer.detach().to(engine.device()));
}

void Trainer::Parts::settle_schedule() {
  if (const auto rate = engine.settle()) run->learning_rate = rate;
}

Batch Trainer::batch_for_gpu(Batch inputs) const {
  remember_full_masks(*parts_->model, inputs);
  return inputs;
}

ForwardOptions& Trainer::forward_options() { return parts_->forward; }

// One micro-batch of the window under way, as the engine runs it: plainly, or from a recording.
torch::Tensor Trainer::run_micro_batch(const Batch& batch,
                                       const std::optional<torch::Tensor>& num_items_in_batch) {
  auto& p = *parts_;
  if (p.engine.wants_attention())
    p.engine.choose_attention(p.model->attention_shape(batch), p.args.full_determinism);
  const WindowPlace place{
      .size = p.run->window,
      .is_last = p.run->window_will_be_complete(p.args.gradient_accumulation_steps),
      .gradients_are_read =
          p.callbacks.listens_to(Event::pre_optimizer_step) || p.args.spike_action == "skip"};
  const bool is_recorded = p.engine.is_recording();  // its work begins with a batch on the device
  if (is_recorded) p.model->train();
  return p.engine.micro_batch(is_recorded ? batch_for_gpu(batch) : batch, num_items_in_batch, place,
                              [&](const Batch& inputs, const std::optional<torch::Tensor>& items) {
                                return training_step(*p.model, inputs, items);
                              });
}

torch::Tensor Trainer::training_step(Model& model, Batch inputs,
                                     std::optional<torch::Tensor> num_items_in_batch) {
  auto& p = *parts_;
  model.train();
  p.engine.optimizer()->train();
  inputs = prepare_inputs(std::move(inputs));
  std::optional<kernels::Fp8Weights::Use> in_fp8;
  if (p.run && p.run->fp8) in_fp8.emplace();
  torch::Tensor loss;
  {
    const auto autocast = compute_loss_context_manager();
    p.forward.need_logits = step_traits().reads_logits;
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
    device::empty_cache(p.engine.device());
  if (p.run && p.run->elastic) loss = p.run->elastic->weighed(loss);
  const bool is_scaled = loss_is_scaled_for_ga.value_or(
      (p.model->accepts_loss_kwargs() && num_items_in_batch) || p.compute_loss_func);
  if (!is_scaled && p.engine.window_size() > 1) loss = loss / p.engine.window_size();
  p.engine.backward(loss);
  return loss.detach();
}

Loss Trainer::compute_loss(Model& model, Batch inputs,
                           std::optional<torch::Tensor> num_items_in_batch) {
  auto& p = *parts_;
  torch::Tensor labels;
  if (p.label_smoother || p.compute_loss_func) labels = inputs.pop_or_undefined("labels");
  p.forward.num_items_in_batch = p.model->accepts_loss_kwargs() ? num_items_in_batch : std::nullopt;
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
  // Gradients become the mean over the processes: a loss that was divided by the items of all of
  // them must count as often as there are processes. With `elastic_order` every loss is weighed.
  const bool is_weighed = p.is_in_train && p.run && p.run->elastic;
  if (!is_weighed && p.processes.size() > 1 && p.args.average_tokens_across_devices &&
      num_items_in_batch && (p.model->accepts_loss_kwargs() || p.compute_loss_func))
    loss = loss * p.processes.size();
  return {std::move(loss), std::move(outputs)};
}

ModelOutput Trainer::run_model(Model& model, const Batch& inputs, bool /*training*/) {
  const auto forward = [&] { return model.forward(inputs, parts_->forward); };
  auto outputs = parts_->debug ? parts_->debug->watch(model, inputs, forward) : forward();
  parts_->engine.precision().restore(outputs);
  return outputs;
}

device::AutocastGuard Trainer::compute_loss_context_manager() const {
  return parts_->engine.precision().guard();
}

Batch Trainer::prepare_inputs(Batch inputs) const {
  if (inputs.empty())
    throw Error(
        "G-TRAIN-11", ErrorKind::data,
        "the batch received was empty, so the model cannot be run on it",
        fmt::format("Check the data collator and the columns: the model reads {}.",
                    parts_->model->input_names().empty() ? "every column"
                                                         : joined(parts_->model->input_names())));
  const bool is_on_host = std::ranges::all_of(
      inputs, [](const auto& entry) { return !entry.second.defined() || entry.second.is_cpu(); });
  if (!parts_->engine.device().is_cpu() && is_on_host) inputs = batch_for_gpu(std::move(inputs));
  inputs = parts_->engine.upload(std::move(inputs));
  return parts_->engine.precision().cast(std::move(inputs), parts_->label_names);
}

std::optional<torch::Tensor> Trainer::get_num_items_in_batch(
    const std::vector<Batch>& window) const {
  const auto& p = *parts_;
  const bool wanted = p.model->accepts_loss_kwargs() || p.compute_loss_func;
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
  const bool is_whole = p.run && p.run->elastic;  // every process has the labels of all
  if (!is_whole && p.processes.size() > 1 && p.args.average_tokens_across_devices)
    count = torch::full({}, p.processes.sum(count.item<int64_t>()), count.options());
  if (p.engine.device().is_cpu() || !count.is_cpu()) return count;
  return torch::full({}, count.item<int64_t>(),
                     torch::dtype(torch::kLong)
                         .device(p.engine.device()));  // travels with the launch: nothing waits
}

double Trainer::floating_point_ops(const Batch& inputs) const {
  return parts_->model->floating_point_ops(inputs);
}

Batch Trainer::Parts::own_rows(const Batch& batch,
                               const std::optional<torch::Tensor>& num_items_in_batch) {
  auto& elastic = *run->elastic;
  if (!elastic.loss_is_divided()) {
    const auto rows = elastic.take(batch);
    const bool is_divided =
        num_items_in_batch && (compute_loss_func || label_smoother || model_divides_loss(rows));
    elastic.set_loss_is_divided(processes.any(is_divided));
  }
  return elastic.take(batch);
}

// Asks the model, once in a run: no head says so.
bool Trainer::Parts::model_divides_loss(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  const auto autocast = engine.precision().guard();
  model->eval();
  const auto inputs = engine.precision().cast(engine.upload(batch), label_names);
  const auto loss_with = [&](int64_t items) {
    ForwardOptions options;
    options.num_items_in_batch =
        torch::full({}, items, torch::dtype(torch::kLong).device(engine.device()));
    const auto outputs = model->forward(inputs, options);
    return outputs.contains("loss") ? outputs["loss"].item<double>() : 0.0;
  };
  return std::abs(loss_with(1) - loss_with(2)) > 0.1 * std::abs(loss_with(1));
}

int64_t Trainer::Parts::count_input_tokens(const Batch& batch) const {
  const auto* input = batch.find(model->main_input_name());
  if (input == nullptr) {
    log_warning_once("include_num_input_tokens_seen: the batch has no '" +
                     model->main_input_name() +
                     "', which the model calls its main input; no tokens are counted.");
    return 0;
  }
  if (args.include_num_input_tokens_seen != "non_padding") return input->numel();
  if (const auto* mask = batch.find("attention_mask")) return mask->sum().item<int64_t>();
  if (processing_class && processing_class->pad_token_id())
    return input->ne(*processing_class->pad_token_id()).sum().item<int64_t>();
  log_warning_once(
      "include_num_input_tokens_seen: padding cannot be told without attention_mask or tokenizer; "
      "all tokens are counted.");
  return input->numel();
}

}  // namespace gradus
