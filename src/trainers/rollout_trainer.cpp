#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/device/runtime.h>
#include <gradus/models/layers/no_dropout.h>
#include <gradus/trainers/rollout_trainer.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>

#include <chrono>
#include <cmath>

#include "trainers/reference_policy.h"
#include "trainers/rollout_parts.h"
#include "trainers/token_scores.h"
#include "trainers/trl_options.h"

namespace gradus {

using torch::Tensor;

namespace {

struct RowNumbers : Dataset {
  explicit RowNumbers(int64_t rows) : rows_(rows) {}
  int64_t size() const override { return rows_; }
  Example get(int64_t index) const override { return {{kRowNumber, index}}; }

 private:
  int64_t rows_;
};

/// Sets a flag while it lives.
class Evaluating {
 public:
  explicit Evaluating(bool& flag) : flag_(flag) { flag_ = true; }
  ~Evaluating() { flag_ = false; }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  bool& flag_;
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check_prompts(const DatasetRef& rows, const RolloutSettings& settings) {
  if (!rows) refuse_options(settings.trainer + " has no train_dataset", "Set `train_dataset`.");
  if (rows.is_iterable())
    refuse_options(fmt::format("the train_dataset of {} is a stream", settings.trainer),
                   "Give a data set whose rows can be taken in any order: prompts are repeated.");
  const auto prompts = settings.generation_batch_size / settings.num_generations;
  if (*rows.size() < prompts)
    refuse_options(
        fmt::format("the train_dataset has {} rows, but a generation batch of {} completions "
                    "with {} for each prompt needs {} prompts",
                    *rows.size(), settings.generation_batch_size, settings.num_generations,
                    prompts),
        "Give more rows, or lower generation_batch_size, steps_per_generation or "
        "per_device_train_batch_size.");
}

}  // namespace

PreTrainedModel& policy_of(Model& model, const std::string& trainer) {
  // Only models of the library can write text.
  auto* policy = dynamic_cast<PreTrainedModel*>(&model);
  if (policy == nullptr || !policy->can_generate() || policy->is_encoder_decoder())
    throw Error("G-TRL-1", ErrorKind::usage,
                trainer + " trains causal language models of the library only",
                "Load the model with AutoModelForCausalLM.");
  return *policy;
}

RolloutTrainer::RolloutTrainer(RolloutOptions options, nlohmann::ordered_json arguments)
    : TrlTrainer(options.trainer, std::move(arguments)) {
  const auto& settings = options.settings;
  check_prompts(options.trainer.train_dataset, settings);
  const auto tokenizer = trl_tokenizer(options.trainer.processing_class, {}, settings.trainer);
  CompletionSampler sampler(tokenizer, policy_of(model(), settings.trainer), settings);
  rolling_.reset(new Rolling{.settings = settings,
                             .sampler = std::move(sampler),
                             .scorer = RewardScorer(options.rewards, options.reward_tokenizers,
                                                    settings.chat_template_kwargs),
                             .reward_weights = std::move(options.reward_weights),
                             .reference = std::move(options.reference),
                             .rollout_func = std::move(options.rollout_func),
                             .train_rows = options.trainer.train_dataset,
                             .completions = CompletionsLog(settings.generation_batch_size)});
  auto& r = *rolling_;
  r.memory = std::make_shared<RolloutMemory>(processes(), r.completions);
  r.memory->own_state = [this] { return own_state(); };
  r.memory->load_own_state = [this](const StateTree& state) { load_own_state(state); };
  add_callback(r.memory);
  // Each process draws other completions.
  device::seed_all(args().seed + (processes() ? processes()->rank() : 0));
}

RolloutTrainer::~RolloutTrainer() = default;

const RolloutSettings& RolloutTrainer::settings() const { return rolling_->settings; }

const std::vector<double>& RolloutTrainer::reward_weights() const {
  return rolling_->reward_weights;
}

std::vector<std::string> RolloutTrainer::reward_func_names() const {
  return rolling_->scorer.names();
}

// ---- Data.

std::shared_ptr<Sampler> RolloutTrainer::get_train_sampler() {
  const auto& s = rolling_->settings;
  return repeat_sampler(*rolling_->train_rows.size(),
                        {.mini_repeat_count = s.num_generations,
                         .batch_size = s.generation_batch_size / s.num_generations,
                         .repeat_count = s.num_iterations * s.steps_per_generation,
                         .shuffle = s.shuffle_dataset,
                         .seed = args().seed});
}

std::shared_ptr<Sampler> RolloutTrainer::get_eval_sampler(const DatasetRef& eval_dataset) {
  return repeat_sampler(
      eval_dataset.size().value_or(0),
      {.mini_repeat_count = rolling_->settings.num_generations_eval, .seed = args().seed});
}

DataLoaderOptions RolloutTrainer::train_dataloader_options() {
  auto options = TrlTrainer::train_dataloader_options();
  options.dataset = std::make_shared<RowNumbers>(*rolling_->train_rows.size());
  options.collator = nullptr;
  return options;
}

DataLoader RolloutTrainer::get_train_dataloader() {
  auto options = train_dataloader_options();
  options.batch_size *= rolling_->settings.steps_per_generation;  // a whole generation batch
  return DataLoader(std::move(options));
}

DataLoaderOptions RolloutTrainer::eval_dataloader_options(const DatasetRef& eval_dataset) {
  if (eval_dataset.is_iterable())
    throw Error("G-TRL-1", ErrorKind::usage,
                fmt::format("the eval_dataset of {} is a stream", rolling_->settings.trainer),
                "Give a data set whose rows can be taken in any order: prompts are repeated.");
  auto options = Trainer::eval_dataloader_options(eval_dataset);
  options.dataset = std::make_shared<RowNumbers>(eval_dataset.size().value_or(0));
  options.collator = nullptr;
  rolling_->eval_rows = eval_dataset;
  return options;
}

double RolloutTrainer::floating_point_ops(const Batch&) const { return 0; }

// Called once for each window, before its first batch.
std::optional<Tensor> RolloutTrainer::get_num_items_in_batch(
    const std::vector<Batch>& window) const {
  rolling_->window = std::max<int64_t>(int64_t(window.size()), 1);
  rolling_->place = 0;
  return std::nullopt;
}

int64_t RolloutTrainer::window() const { return rolling_->evaluating ? 1 : rolling_->window; }
bool RolloutTrainer::ends_window() const { return rolling_->place + 1 >= window(); }

// ---- Steps.

Tensor RolloutTrainer::training_step(Model& model, Batch inputs, std::optional<Tensor>) {
  auto& r = *rolling_;
  const auto start = seconds();
  model.train();
  auto batch = next_batch(inputs);
  auto loss = Trainer::training_step(model, std::move(batch), std::nullopt);
  r.memory->step += 1;
  r.place += 1;
  r.step_time += seconds() - start;
  if (r.memory->step % r.window == 0) {
    MetricBatch metrics;
    note(metrics, "step_time", torch::tensor(std::exchange(r.step_time, 0), torch::kDouble));
    note(metrics, /*training=*/true);
  }
  return loss;
}

PredictionStep RolloutTrainer::prediction_step(Model& model, Batch inputs, bool, const Names&) {
  auto& r = *rolling_;
  const torch::NoGradGuard no_grad;
  const Evaluating evaluating(r.evaluating);
  auto batch = make_batch(inputs, r.eval_rows, /*training=*/false);
  batch = prepare_inputs(std::move(batch));
  const auto precision = compute_loss_context_manager();
  PredictionStep step;
  step.loss = compute_loss(model, std::move(batch), std::nullopt).loss.detach().mean();
  return step;
}

// Advantages and log probabilities stay float32, whatever the model computes in.
Batch RolloutTrainer::prepare_inputs(Batch inputs) const {
  auto prepared = Trainer::prepare_inputs(inputs);
  for (const auto& [name, value] : inputs)
    if (value.is_floating_point()) prepared.set(name, value.to(device()));
  return prepared;
}

RolloutTrainer::TokenValues RolloutTrainer::token_values(Model& model, const Batch& batch,
                                                         bool with_entropy_gradient) {
  const layers::NoDropout no_dropout(rolling_->settings.disable_dropout);
  const auto ids = at::cat({batch["prompt_ids"], batch["completion_ids"]}, 1);
  const auto mask = at::cat({batch["prompt_mask"], batch["completion_mask"]}, 1);
  const auto outputs =
      run_model(model, {{"input_ids", ids}, {"attention_mask", mask}}, model.is_training());
  return completion_values(outputs["logits"], batch, rolling_->settings.temperature,
                           with_entropy_gradient);
}

RolloutTrainer::TokenValues RolloutTrainer::completion_values(const Tensor& logits,
                                                              const Batch& batch,
                                                              double temperature,
                                                              bool with_entropy_gradient) {
  const auto width = batch["completion_ids"].size(1);
  const auto& mask = batch["completion_mask"];
  // The last token of the prompt predicts the first one of the completion.
  const auto kept = logits.narrow(1, logits.size(1) - width - 1, width + 1);
  const auto labels =
      torch::constant_pad_nd(batch["completion_ids"].masked_fill(mask.eq(0), -100), {1, 0}, -100);
  const auto scores =
      score_tokens(kept, labels, {.temperature = temperature, .entropy = !with_entropy_gradient});
  TokenValues values{.log_probs = scores.log_probs, .entropy = scores.entropy};
  if (with_entropy_gradient) {
    const auto logs = (kept.narrow(1, 0, width).to(torch::kFloat) / temperature).log_softmax(-1);
    values.entropy = (logs.exp() * logs).sum(-1).neg().masked_fill(mask.eq(0), 0);
  }
  return values;
}

Tensor RolloutTrainer::log_probs_of(const Scored& scored) { return log_probs_by(nullptr, scored); }

Tensor RolloutTrainer::reference_log_probs_of(const Scored& scored) {
  return log_probs_by(rolling_->reference.get(), scored);
}

bool RolloutTrainer::has_reference() const { return rolling_->reference != nullptr; }

/// `reference` is null for the model that is trained.
Tensor RolloutTrainer::log_probs_by(const ReferencePolicy* reference, const Scored& scored) {
  const torch::NoGradGuard no_grad;
  const auto precision = compute_loss_context_manager();
  const auto rows = scored.batch["completion_ids"].size(0);
  const auto size =
      scored.training ? args().per_device_train_batch_size : args().per_device_eval_batch_size;
  if (reference != nullptr && reference->own_model()) reference->own_model()->to(device());
  std::vector<Tensor> parts;
  for (int64_t first = 0; first < rows; first += size) {
    Batch part;
    for (const char* name : {"prompt_ids", "prompt_mask", "completion_ids", "completion_mask"})
      part.set(name, scored.batch[name].slice(0, first, first + size));
    if (reference == nullptr) {
      parts.push_back(token_values(model(), part).log_probs);
      continue;
    }
    const auto outputs = reference->forward(
        {{"input_ids", at::cat({part["prompt_ids"], part["completion_ids"]}, 1)},
         {"attention_mask", at::cat({part["prompt_mask"], part["completion_mask"]}, 1)}});
    parts.push_back(
        completion_values(outputs["logits"], part, rolling_->settings.temperature, false)
            .log_probs);
  }
  return at::cat(parts);
}

bool RolloutTrainer::completions_get_old() const {
  const auto& s = rolling_->settings;
  return args().gradient_accumulation_steps % (s.steps_per_generation * s.num_iterations) != 0;
}

// ---- Processes and logs.

Tensor RolloutTrainer::gathered(const Tensor& values) const {
  const auto& group = processes();
  return group ? at::cat(group->gather(values.contiguous())) : values;
}

Tensor RolloutTrainer::own_part(const Tensor& values) const {
  const auto& group = processes();
  if (!group) return values;
  const auto rows = values.size(0) / group->size();
  return values.narrow(0, group->rank() * rows, rows);
}

void RolloutTrainer::note_mean(MetricBatch& metrics, const std::string& name, const Tensor& values,
                               const Tensor& mask) const {
  const torch::NoGradGuard no_grad;
  const auto each = values.detach().to(torch::kFloat);
  if (each.size(1) == 1)
    metrics.mean_unless_nan(name, each.sum(),
                            torch::full({}, double(each.size(0)), each.options()));
  else
    metrics.mean_unless_nan(name, (each * mask).sum(), mask.sum());
}

void RolloutTrainer::note(MetricBatch& metrics, const std::string& name,
                          const Tensor& value) const {
  const auto number = value.detach().to(device(), torch::kDouble);
  metrics.mean_unless_nan(name, number, at::ones_like(number));
  if (rolling_->evaluating || !name.starts_with("reward")) return;
  if (const auto value = number.item<double>(); !std::isnan(value))
    rolling_->memory->last_rewards[name] = value;
}

void RolloutTrainer::log(Logs logs, std::optional<double> start_time) {
  const auto& s = rolling_->settings;
  const bool training = model().is_training();
  if (std::exchange(rolling_->memory->has_new_tokens[size_t(training)], false))
    logs[training ? "num_tokens" : "eval_num_tokens"] = double(state().num_input_tokens_seen);
  // Steps that go on with completions of an earlier one log the rewards of these.
  if (training && logs.contains("loss"))
    logs.insert(rolling_->memory->last_rewards.begin(), rolling_->memory->last_rewards.end());
  TrlTrainer::log(std::move(logs), start_time);
  if (!s.log_completions || !is_world_process_zero()) return;
  auto& table = rolling_->completions;
  table.print(state().global_step, s.num_completions_to_print, s.log_unique_prompts);
  table.save(std::filesystem::path(*args().output_dir) / "completions", state().global_step);
}

}  // namespace gradus
