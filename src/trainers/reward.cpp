#include <fmt/format.h>
#include <gradus/data/collators.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/layers/no_dropout.h>
#include <gradus/trainers/reward.h>

#include "trainers/metric_log.h"
#include "trainers/preference_setup.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr const char* kRewardName = "RewardTrainer";

constexpr OptionRow<RewardConfig> kRewardRows[] = {
    {&RewardConfig::model_init_kwargs, "model_init_kwargs", Group::trainer,
     holds(Shape::dictionary),
     "Accepted for trl's sake; the model's own flags say how it is loaded."},
    {&RewardConfig::chat_template_path, "chat_template_path", Group::trainer, any_value(),
     "A file with the chat template to use (.jinja)."},
    {&RewardConfig::disable_dropout, "disable_dropout", Group::trainer, any_value(),
     "Train without dropout."},
    {&RewardConfig::dataset_num_proc, "dataset_num_proc", Group::trainer, at_least(1),
     "Accepted for trl's sake; rows are prepared in one process."},
    {&RewardConfig::eos_token, "eos_token", Group::trainer, any_value(),
     "End token; unset: the tokenizer's."},
    {&RewardConfig::max_length, "max_length", Group::trainer, at_least(1),
     "Pairs with a text of more tokens are left out."},
    {&RewardConfig::pad_to_multiple_of, "pad_to_multiple_of", Group::trainer,
     at_least(1).unset_by("auto"), "Round the padded length up to a multiple."},
    {&RewardConfig::center_rewards_coefficient, "center_rewards_coefficient", Group::trainer,
     any_value(), "Weight of a term that keeps rewards around zero; 0.01 is usual."},
    {&RewardConfig::activation_offloading, "activation_offloading", Group::trainer, any_value(),
     "Keep the activations of gradient checkpointing in host memory."},
    {&RewardConfig::pad_token, "pad_token", Group::trainer, any_value(),
     "Padding token; unset: the tokenizer's, else the end token."},
};

std::shared_ptr<Model> reward_model(const RewardTrainerOptions& given, const Tokenizer& tokenizer) {
  if (!given.model) refuse_options(std::string(kRewardName) + " has no model", "Set `model`.");
  const auto config = given.model->config();  // null: a model of the user's own
  const auto labels = config.is_object() ? num_labels(config) : 1;
  if (labels != 1)
    refuse_options(fmt::format("the model has {} labels: expected 1, the reward", labels),
                   "Load it with AutoModelForSequenceClassification and num_labels 1.");
  given.model->align_special_tokens(tokenizer);  // it looks for the last token before the padding
  return with_adapter(given.model, given.peft_config);
}

}  // namespace

std::span<const OptionRow<RewardConfig>> RewardConfig::own_options() { return kRewardRows; }

nlohmann::ordered_json RewardConfig::to_dict() const { return arguments_to_dict(*this); }

RewardConfig RewardConfig::from_json(const nlohmann::json& dict) {
  return arguments_from_json<RewardConfig>(dict);
}

bool operator==(const RewardConfig&, const RewardConfig&) = default;

RewardConfig::operator TrainingArguments() const { return plain_arguments(*this); }

RewardConfig RewardConfig::resolved() const { return resolve_fields(with_trl_rules(*this)); }

PreparedPreferences RewardTrainer::prepare(const RewardTrainerOptions& given,
                                           const RewardConfig& args) {
  const PreferenceKind kind{
      .who = kRewardName,
      .tokenizer = {args.eos_token, args.pad_token, args.chat_template_path},
      .max_length = args.max_length,
      .model = [&](const Tokenizer& tokenizer) { return reward_model(given, tokenizer); },
      .collator =
          [&](int64_t pad_token_id) {
            return DataCollatorForPreference(
                {.pad_token_id = pad_token_id, .pad_to_multiple_of = args.pad_to_multiple_of});
          },
      .make_tokens = prepare_reward_rows};
  return prepare_preferences(plain_options(given, args, kRewardName), kind);
}

RewardTrainer::RewardTrainer(RewardTrainerOptions options)
    : RewardTrainer(options.args.resolved(), prepare(options, options.args.resolved())) {}

RewardTrainer::RewardTrainer(RewardConfig args, PreparedPreferences prepared)
    : TrlTrainer(std::move(prepared.options), args.to_dict()), args_(std::move(args)) {
  loss_is_scaled_for_ga = false;
  set_prepare_rows(std::move(prepared.prepare_rows));
}

StepTraits RewardTrainer::step_traits() const {
  if (!is_exactly<RewardTrainer>()) return {};
  return {.recordable = !processes(), .reads_logits = false};  // metrics of several are exchanged
}

Loss RewardTrainer::compute_loss(Model& model, Batch inputs, std::optional<Tensor>) {
  const bool training = model.is_training();
  const layers::NoDropout no_dropout(args_.disable_dropout);
  const auto margin = inputs.pop_or_undefined("margin");
  Loss result;
  result.outputs = run_model(model, inputs, training);
  const auto rewards = result.outputs["logits"].squeeze(-1).to(torch::kFloat);
  const auto halves = rewards.chunk(2);
  const auto& chosen = halves[0];
  const auto& rejected = halves[1];
  const auto distance = chosen - rejected;
  result.loss = -torch::log_sigmoid(margin.defined() ? distance - margin : distance).mean();
  if (args_.center_rewards_coefficient)
    result.loss =
        result.loss + *args_.center_rewards_coefficient * (chosen + rejected).square().mean();

  MetricBatch metrics;
  metrics.least("min_reward", rewards.min());
  metrics.mean("mean_reward", rewards);
  metrics.greatest("max_reward", rewards.max());
  const auto pairs = torch::full({}, distance.numel(), distance.options());
  metrics.mean("accuracy", distance.gt(0).sum(), pairs);
  metrics.mean("margin", distance.sum(), pairs);
  metrics.tokens(inputs["attention_mask"].sum());
  note(metrics, training);
  return result;
}

}  // namespace gradus
