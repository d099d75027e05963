// What a run on a GPU adds: its stream, the precision engine, recorded steps, the choice of
// attention.
#include <fmt/format.h>
#include <gradus/core/log.h>
#include <gradus/device/attention_backend.h>
#include <gradus/device/runtime.h>
#include <gradus/models/pretrained_model.h>
#include <gradus/optim/clip.h>

#include "train/trainer_parts.h"

namespace gradus {
namespace {

double gib(int64_t bytes) { return double(bytes) / double(1 << 30); }

/// The first of `names` that the config has as a number.
std::optional<double> number_of(const nlohmann::json& config,
                                std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto found = config.find(name); found != config.end() && found->is_number())
      return found->get<double>();
  return std::nullopt;
}

/// How the model calls attention on batches like `inputs`; nothing for models without it.
std::optional<device::AttentionShape> attention_shape(const Model& model, const Batch& inputs,
                                                      torch::ScalarType dtype) {
  const auto config = model.config();
  const auto* tokens = inputs.find(model.main_input_name());
  if (!config.is_object() || tokens == nullptr || tokens->dim() != 2) return std::nullopt;
  const auto heads = number_of(config, {"num_attention_heads", "n_head", "num_heads", "n_heads"});
  const auto hidden = number_of(config, {"hidden_size", "n_embd", "d_model", "dim"});
  if (!heads || !hidden || *heads < 1) return std::nullopt;
  device::AttentionShape shape;
  shape.batch = tokens->size(0);
  shape.tokens = tokens->size(1);
  shape.heads = int64_t(*heads);
  shape.key_heads = int64_t(number_of(config, {"num_key_value_heads"}).value_or(*heads));
  shape.width = int64_t(number_of(config, {"head_dim", "d_kv"}).value_or(*hidden / *heads));
  shape.dropout =
      number_of(config, {"attention_dropout", "attn_pdrop", "attention_probs_dropout_prob"})
          .value_or(0);
  shape.dtype = dtype;
  shape.causal = model.shifts_labels();
  return shape;
}

/// Whether every token may be looked at; a mask that says so only keeps the fast kernels away.
bool is_all_ones(const torch::Tensor& mask) {
  return mask.is_cpu() && mask.dim() == 2 && mask.all().item<bool>();
}

}  // namespace

Error out_of_memory_error(torch::Device device, const std::string& what) {
  const auto use = device::memory_use(device);
  const auto cards = device::gpu_infos();
  const auto place = size_t(std::max<int>(device.index(), 0));
  const auto card =
      place < cards.size()
          ? fmt::format("; {} has {:.1f} GiB, {:.1f} of them free now", cards[place].name,
                        gib(cards[place].memory), gib(cards[place].free))
          : std::string();
  return Error(
      "G-GPU-1", ErrorKind::training,
      fmt::format("the GPU's memory ran out: the run held {:.1f} GiB when it stopped, {:.1f} at "
                  "most{} ({})",
                  gib(use.allocated), gib(use.peak), card, what.substr(0, what.find('\n'))),
      "Lower --per_device_train_batch_size and raise --gradient_accumulation_steps by the same "
      "factor, shorten the sequences, "
      "add --gradient_checkpointing or --bf16, or let --auto_find_batch_size look for a size that "
      "fits.\n"
      "The checkpoints written so far are complete: --resume_from_checkpoint last goes on from the "
      "newest.");
}

void Trainer::begin_device_run(Run& run) {
  auto& p = *parts_;
  const auto& a = p.args;
  const bool wants_masters =
      p.autocast_dtype == torch::kBFloat16 &&
      (a.bf16_mode == "master" ||
       (a.bf16_mode == "auto" && p.device.is_cuda() && p.model->takes_bf16_weights()));
  if (wants_masters && p.optimizer->can_train_masters()) {
    p.masters = std::make_unique<MasterWeights>(p.model->named_module());
    p.masters->attach(*p.optimizer);
  } else if (wants_masters) {
    log_warning(
        fmt::format("The optimizer {} cannot train master weights: bf16 runs with autocast over "
                    "float32 weights.",
                    p.optimizer->name()));
  }
  if (!p.device.is_cuda()) return;

  p.stream = device::own_stream(p.device);
  if (p.scaler && p.optimizer->takes_device_lr() && p.optimizer->skips_on_device())
    p.device_schedule = DeviceSchedule::leading(*p.lr_scheduler, run.plan.max_steps, p.device);

  if (a.cuda_graphs == "off") return;
  std::string reason;
  if (!device::has_plugin())
    reason = "libgradus_cuda.so is " + device::plugin_text();
  else if (a.cuda_graphs == "auto" && typeid(*this) != typeid(Trainer))
    reason =
        "the trainer is a class of your own, whose methods a replay would not call; --cuda_graphs "
        "on says that they may be skipped";
  else if (a.cuda_graphs == "auto" && (p.compute_loss_func || !p.model->is_recordable()))
    reason =
        "the model or loss is your own, whose code a replay would not run; --cuda_graphs on says "
        "that it may be skipped";
  else if (a.gradient_checkpointing &&
           GradientCheckpointing::from_kwargs(a.gradient_checkpointing_kwargs).offload)
    reason =
        "gradient checkpointing moves activations to the host, whose memory a recording cannot "
        "keep";
  else if (!p.find_bystanders().empty())
    reason =
        "the optimizer does not have all of the model's parameters, whose gradients count in the "
        "norm";
  if (reason.empty()) {
    p.graphs = std::make_unique<StepGraphs>(all_parameters(*p.optimizer), p.device);
    p.eval_graphs = std::make_unique<EvalGraphs>();
    if (!p.scaler && p.optimizer->takes_device_lr())
      p.device_schedule = DeviceSchedule::following(*p.lr_scheduler, p.optimizer->param_groups(),
                                                    run.plan.max_steps, p.device);
  } else {
    log_info("CUDA graphs are not used: " + reason);
  }
}

void Trainer::end_device_run() {
  auto& p = *parts_;
  p.graphs.reset();
  p.eval_graphs.reset();
  p.device_schedule.reset();
  p.clipping = {};
  p.replayed_norm.reset();
  p.masters.reset();
  p.stream.reset();
  p.attention_is_chosen = false;
}

Batch Trainer::upload(Batch inputs) const {
  const auto& p = *parts_;
  if (dynamic_cast<const PreTrainedModel*>(p.model.get()) != nullptr &&
      !inputs.contains("position_ids"))
    if (const auto* mask = inputs.find("attention_mask");
        mask != nullptr && mask->defined() && is_all_ones(*mask))
      inputs.pop("attention_mask");
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, value] : inputs) tensors.push_back(value);
  const auto moved = device::upload(tensors, p.device);
  size_t i = 0;
  for (auto& [name, value] : inputs) value = moved[i++];
  return inputs;
}

// One micro-batch. A whole step may come of it: the last of a window replays clipping and the
// optimizer along with its own work.
torch::Tensor Trainer::run_training_step(const Batch& batch,
                                         const std::optional<torch::Tensor>& num_items_in_batch,
                                         bool ends_window) {
  auto& p = *parts_;
  if (p.device.is_cuda() && !std::exchange(p.attention_is_chosen, true)) choose_attention(batch);
  if (ends_window && p.device_schedule) p.device_schedule->follow(p.optimizer->param_groups());
  if (!p.graphs || batch.empty()) return training_step(*p.model, batch, num_items_in_batch);
  std::optional<StepGraphs::Update> update;
  if (ends_window && update_is_recordable()) {
    update.emplace();
    update->kind = fmt::format("u{}", p.optimizer->arrangement());
    for (const auto& group : p.optimizer->param_groups())
      update->kind += fmt::format(",{}", group.weight_decay);
    update->run = [this] {
      const auto norm = clip_gradients();
      step_optimizer();
      return norm;
    };
  }
  auto result = p.graphs->run(
      upload(batch), num_items_in_batch, p.current_window,
      [this, &p](const Batch& inputs, const std::optional<torch::Tensor>& items) {
        return training_step(*p.model, inputs, items);
      },
      update);
  p.replayed_norm = std::move(result.norm);
  return result.loss;
}

// Whether clipping and the optimizer's step may be part of a recorded step: nothing of theirs is
// decided on the host, and no callback comes between them.
bool Trainer::update_is_recordable() const {
  const auto& p = *parts_;
  return p.device_schedule && p.optimizer->is_recordable() && p.clipping.is_unseen(p.callbacks);
}

void Trainer::choose_attention(const Batch& inputs) {
  auto& p = *parts_;
  if (p.args.full_determinism) {
    p.attention_backend = "flash";
  } else if (p.attention_backend.empty()) {
    const auto dtype = p.autocast_dtype;
    const auto shape = attention_shape(*p.model, inputs, dtype);
    if (!shape) return;
    const auto times = device::measure_attention(*shape, p.device);
    if (times.empty()) return;
    p.attention_backend = times.front().name;
    std::string text;
    for (const auto& time : times)
      text += fmt::format("{}{} {:.3f} ms", text.empty() ? "" : ", ", time.name, time.milliseconds);
    log_info(fmt::format("Attention: {} (forward and backward of one layer: {}).",
                         p.attention_backend, text));
  }
  device::prefer_attention(p.attention_backend);
}

void Trainer::settle_schedule(Run& run) {
  auto& p = *parts_;
  if (p.device_schedule && p.device_schedule->leads())
    run.learning_rate = p.device_schedule->settle();
}

}  // namespace gradus
