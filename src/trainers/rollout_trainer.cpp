#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/device/runtime.h>
#include <gradus/distributed/process_group.h>
#include <gradus/models/backbone.h>
#include <gradus/models/layers/no_dropout.h>
#include <gradus/trainers/rollout_trainer.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>
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

// accelerate takes what is left of the data set's rows, not of the sampler's, for the last batch.
EvalLoopOutput RolloutTrainer::evaluation_loop(const DataLoader& dataloader,
                                               const std::string& description,
                                               std::optional<bool> prediction_loss_only,
                                               std::optional<Names> ignore_keys,
                                               const std::string& metric_key_prefix) {
  auto& r = *rolling_;
  const auto& group = processes();
  const auto full = args().eval_batch_size();
  const auto left = r.eval_rows.size().value_or(0) % (full * (group ? group->size() : 1));
  r.batches_left = dataloader.size().value_or(0);
  r.rows_of_the_end = left == 0 || args().dataloader_drop_last
                          ? full
                          : std::clamp<int64_t>(left - (group ? group->rank() : 0) * full, 0, full);
  return TrlTrainer::evaluation_loop(dataloader, description, prediction_loss_only,
                                     std::move(ignore_keys), metric_key_prefix);
}

int64_t RolloutTrainer::rows_of_loss(int64_t) const {
  return rolling_->batches_left == 0 ? rolling_->rows_of_the_end : args().eval_batch_size();
}

PredictionStep RolloutTrainer::prediction_step(Model& model, Batch inputs, bool, const Names&) {
  auto& r = *rolling_;
  --r.batches_left;
  const torch::NoGradGuard no_grad;
  const Evaluating evaluating(r.evaluating);
  auto batch = make_batch(inputs, r.eval_rows, /*training=*/false);
  batch = prepare_inputs(std::move(batch));
  const auto precision = compute_loss_context_manager();
  PredictionStep step;
  step.loss = compute_loss(model, std::move(batch), std::nullopt).loss.detach().mean();
  return step;
}

namespace {

/// Prompts and completions as the model takes them, and where the completions are.
struct CompletionRows {
  Batch inputs;
  Tensor labels;           ///< (rows, tokens): the completions' tokens.
  Tensor columns;          ///< (rows, completion): where the scores of the completions' tokens are.
  bool is_turned = false;  ///< Whether these differ from row to row.
};

/// On a GPU the padding before the prompts is moved behind the completions, so that attention needs
/// no mask. The tokens keep their positions.
CompletionRows completion_rows(const Batch& batch) {
  const auto &prompts = batch["prompt_ids"], &completions = batch["completion_ids"];
  const auto width = completions.size(1), before = prompts.size(1), all = before + width;
  auto ids = at::cat({prompts, completions}, 1);
  auto mask = at::cat({batch["prompt_mask"], batch["completion_mask"]}, 1);
  auto labels = torch::constant_pad_nd(
      completions.masked_fill(batch["completion_mask"].eq(0), -100), {before, 0}, -100);
  // The last token of the prompt predicts the first one of the completion.
  auto columns = (at::arange(width, ids.options()) + (before - 1)).expand({ids.size(0), width});
  if (!ids.is_cuda()) return {{{"input_ids", ids}, {"attention_mask", mask}}, labels, columns};
  const auto left = batch["prompt_mask"].eq(0).sum(1, /*keepdim=*/true);
  const auto places = (at::arange(all, ids.options()) + left).remainder(all);
  CompletionRows rows{{{"input_ids", ids.gather(1, places)},
                       {"attention_mask", mask.gather(1, places)},
                       {"position_ids", places}},
                      labels.gather(1, places),
                      columns - left,
                      /*is_turned=*/true};
  rows.inputs.set(kIsRightPadded, torch::ones({}, ids.options().dtype(torch::kBool)));
  return rows;
}

/// Scores of the completions' tokens from logits of all tokens. The entropies have a gradient.
TokenScores completion_scores(const Tensor& logits, const CompletionRows& rows, const Batch& batch,
                              const TokenScoreOptions& options, bool with_entropy_gradient) {
  const auto width = batch["completion_ids"].size(1);
  const auto without = batch["completion_mask"].eq(0);
  Tensor kept;  // one column more: the last one has no label
  if (rows.is_turned) {
    const auto places = rows.columns.unsqueeze(-1).expand({-1, -1, logits.size(-1)});
    kept = torch::constant_pad_nd(logits.gather(1, places), {0, 0, 0, 1});
  } else {
    kept = logits.narrow(1, logits.size(1) - width - 1, width + 1);
  }
  const auto labels =
      torch::constant_pad_nd(batch["completion_ids"].masked_fill(without, -100), {1, 0}, -100);
  auto scores = score_tokens(kept, labels, options);
  if (with_entropy_gradient) {
    const auto scaled = kept.narrow(1, 0, width).to(torch::kFloat) / options.temperature;
    const auto logs = scaled.log_softmax(-1);
    scores.entropy = (logs.exp() * logs).sum(-1).neg().masked_fill(without, 0);
  }
  return scores;
}

}  // namespace

RolloutTrainer::TokenValues RolloutTrainer::token_values(Model& model, const Batch& batch,
                                                         bool with_entropy_gradient) {
  const layers::NoDropout no_dropout(rolling_->settings.disable_dropout);
  const auto rows = completion_rows(batch);
  const TokenScoreOptions options{.temperature = rolling_->settings.temperature,
                                  .entropy = !with_entropy_gradient};
  const auto outputs = run_for_scores(model, rows.inputs, rows.labels, options.temperature);
  if (!outputs.contains("token_log_probs")) {
    const auto scores =
        completion_scores(outputs["logits"], rows, batch, options, with_entropy_gradient);
    return {.log_probs = scores.log_probs, .entropy = scores.entropy};
  }
  const auto at_columns = [&](const Tensor& values) { return values.gather(1, rows.columns); };
  const auto& entropy = outputs["token_entropy"];
  return {.log_probs = at_columns(outputs["token_log_probs"]),
          .entropy = at_columns(with_entropy_gradient ? entropy : entropy.detach())};
}

Tensor RolloutTrainer::log_probs_by(const ReferencePolicy& reference, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  const auto rows = completion_rows(batch);
  const TokenScoreOptions options{.temperature = rolling_->settings.temperature};
  ForwardOptions asked;
  asked.need_logits = false;
  asked.token_scoring = TokenScoring{.labels = rows.labels, .temperature = options.temperature};
  const auto outputs = reference.forward(rows.inputs, model(), asked);
  if (outputs.contains("token_log_probs"))
    return outputs["token_log_probs"].gather(1, rows.columns);
  return completion_scores(outputs["logits"], rows, batch, options, false).log_probs;
}

Tensor RolloutTrainer::log_probs_of(const Scored& scored) {
  const torch::NoGradGuard no_grad;
  return in_batches(scored, [this](const Batch& part) {
    forward_options().need_logits = step_traits().reads_logits;
    auto values = token_values(model(), part);
    forward_options() = {};
    return values.log_probs;
  });
}

Tensor RolloutTrainer::reference_log_probs_of(const Scored& scored) {
  const auto& reference = *rolling_->reference;
  if (const auto own = reference.own_model()) own->to(device());
  return in_batches(scored, [&](const Batch& part) { return log_probs_by(reference, part); });
}

StepTraits RolloutTrainer::plain_step(bool reads_logits) {
  return {.recordable = false,
          .reads_logits = reads_logits,
          .plain_because = "the host reads the metrics of every step"};
}

bool RolloutTrainer::has_reference() const { return rolling_->reference != nullptr; }

Tensor RolloutTrainer::in_batches(const Scored& scored,
                                  const std::function<Tensor(const Batch&)>& log_probs) const {
  const auto precision = compute_loss_context_manager();
  const auto rows = scored.batch["completion_ids"].size(0);
  const auto size =
      scored.training ? args().per_device_train_batch_size : args().per_device_eval_batch_size;
  std::vector<Tensor> parts;
  for (int64_t first = 0; first < rows; first += size) {
    Batch part;
    for (const char* name : {"prompt_ids", "prompt_mask", "completion_ids", "completion_mask"})
      part.set(name, scored.batch[name].slice(0, first, first + size));
    parts.push_back(log_probs(part));
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
