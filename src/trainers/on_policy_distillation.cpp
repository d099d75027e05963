#include <gradus/trainers/on_policy_distillation.h>

#include <gradus/device/runtime.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/layers/no_dropout.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/logaddexp.h>

#include <cmath>

#include "trainers/metric_log.h"
#include "trainers/rollout_arguments.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr const char* kDistillationName = "OnPolicyDistillationTrainer";

constexpr OptionRow<OnPolicyDistillationConfig> kOnPolicyRows[] = {
    {&OnPolicyDistillationConfig::model_init_kwargs, "model_init_kwargs", Group::trainer,
     holds(Shape::dictionary), "Accepted; the model is given as an object."},
    {&OnPolicyDistillationConfig::teacher_model_name_or_path, "teacher_model_name_or_path",
     Group::trainer, any_value(),
     "Folder of the teacher; used when no teacher is given as an object."},
    {&OnPolicyDistillationConfig::teacher_model_revision, "teacher_model_revision", Group::trainer,
     any_value(), "Accepted: folders have no revisions."},
    {&OnPolicyDistillationConfig::teacher_model_init_kwargs, "teacher_model_init_kwargs",
     Group::trainer, holds(Shape::dictionary),
     "Accepted; the teacher's own folder says how it is loaded."},
    {&OnPolicyDistillationConfig::disable_dropout, "disable_dropout", Group::trainer, any_value(),
     "Drops nothing in training."},
    {&OnPolicyDistillationConfig::max_completion_length, "max_completion_length", Group::trainer,
     at_least(1), "Most tokens of a completion."},
    {&OnPolicyDistillationConfig::ds3_gather_for_generation, "ds3_gather_for_generation",
     Group::trainer, any_value(), "Accepted: for DeepSpeed."},
    {&OnPolicyDistillationConfig::shuffle_dataset, "shuffle_dataset", Group::trainer, any_value(),
     "Takes the prompts in a new order in every pass."},
    {&OnPolicyDistillationConfig::pad_to_multiple_of, "pad_to_multiple_of", Group::trainer,
     at_least(1).unset_by("auto"), "Rounds padded lengths up."},
    {&OnPolicyDistillationConfig::temperature, "temperature", Group::trainer, above(0),
     "Of sampling; the log probabilities of the loss are divided by it, too."},
    {&OnPolicyDistillationConfig::top_p, "top_p", Group::trainer, within(0, 1),
     "Samples from the most likely tokens up to this probability."},
    {&OnPolicyDistillationConfig::top_k, "top_k", Group::trainer, at_least(0),
     "Samples from the k most likely tokens; 0: from all."},
    {&OnPolicyDistillationConfig::min_p, "min_p", Group::trainer, within(0, 1),
     "Least probability of a token, relative to the most likely one."},
    {&OnPolicyDistillationConfig::generation_kwargs, "generation_kwargs", Group::trainer,
     holds(Shape::dictionary), "Further options of generation; they replace those above."},
    {&OnPolicyDistillationConfig::chat_template_kwargs, "chat_template_kwargs", Group::trainer,
     holds(Shape::dictionary), "Variables for the chat template."},
    {&OnPolicyDistillationConfig::repetition_penalty, "repetition_penalty", Group::trainer,
     above(0), "Above 1 repeats become unlikely."},
    {&OnPolicyDistillationConfig::cache_implementation, "cache_implementation", Group::trainer,
     any_value(), "Accepted: gradus has one key-value cache."},
    {&OnPolicyDistillationConfig::use_vllm, "use_vllm", Group::trainer, any_value(),
     "Must stay false: gradus samples with the model itself."},
    {&OnPolicyDistillationConfig::vllm_mode, "vllm_mode", Group::trainer, any_value(),
     "Accepted and not used."},
    {&OnPolicyDistillationConfig::vllm_model_impl, "vllm_model_impl", Group::trainer, any_value(),
     "Accepted and not used."},
    {&OnPolicyDistillationConfig::vllm_enable_sleep_mode, "vllm_enable_sleep_mode", Group::trainer,
     any_value(), "Accepted and not used."},
    {&OnPolicyDistillationConfig::vllm_structured_outputs_regex, "vllm_structured_outputs_regex",
     Group::trainer, any_value(), "Accepted and not used."},
    {&OnPolicyDistillationConfig::vllm_server_base_url, "vllm_server_base_url", Group::trainer,
     any_value(), "Accepted and not used."},
    {&OnPolicyDistillationConfig::vllm_server_host, "vllm_server_host", Group::trainer, any_value(),
     "Accepted and not used."},
    {&OnPolicyDistillationConfig::vllm_server_port, "vllm_server_port", Group::trainer, any_value(),
     "Accepted and not used."},
    {&OnPolicyDistillationConfig::vllm_server_timeout, "vllm_server_timeout", Group::trainer,
     any_value(), "Accepted and not used."},
    {&OnPolicyDistillationConfig::vllm_group_port, "vllm_group_port", Group::trainer, any_value(),
     "Accepted and not used."},
    {&OnPolicyDistillationConfig::vllm_gpu_memory_utilization, "vllm_gpu_memory_utilization",
     Group::trainer, any_value(), "Accepted and not used."},
    {&OnPolicyDistillationConfig::vllm_max_model_length, "vllm_max_model_length", Group::trainer,
     any_value(), "Accepted and not used."},
    {&OnPolicyDistillationConfig::vllm_tensor_parallel_size, "vllm_tensor_parallel_size",
     Group::trainer, any_value(), "Accepted and not used."},
    {&OnPolicyDistillationConfig::beta, "beta", Group::trainer, within(0, 1),
     "0: forward divergence, 1: reverse divergence, between: generalized Jensen–Shannon."},
    {&OnPolicyDistillationConfig::max_tool_calling_iterations, "max_tool_calling_iterations",
     Group::trainer, any_value(), "Accepted and not used: there are no tools."},
    {&OnPolicyDistillationConfig::log_completions, "log_completions", Group::trainer, any_value(),
     "Prints completions with every log, and writes them to output_dir/completions as Parquet."},
    {&OnPolicyDistillationConfig::num_completions_to_print, "num_completions_to_print",
     Group::trainer, any_value(), "How many completions are printed; unset: all."},
    {&OnPolicyDistillationConfig::log_unique_prompts, "log_unique_prompts", Group::trainer,
     any_value(), "Prints one completion of each prompt."},
};

std::shared_ptr<Model> frozen_teacher(const OnPolicyDistillationTrainerOptions& given,
                                      const OnPolicyDistillationConfig& args) {
  std::shared_ptr<Model> teacher = given.teacher_model;
  if (!teacher && args.teacher_model_name_or_path)
    teacher = AutoModelForCausalLM::from_pretrained(*args.teacher_model_name_or_path);
  if (!teacher)
    refuse_options("there is no teacher", "Set `teacher_model` or teacher_model_name_or_path.");
  if (teacher == given.model)
    refuse_options("the teacher is the model that is trained", "Give another object.");
  const auto words = [](const Model& model) {
    const auto config = model.config();
    return config.is_object() ? config.value("vocab_size", int64_t{-1}) : int64_t{-1};
  };
  if (given.model && words(*given.model) != words(*teacher))
    refuse_options(fmt::format("the student has {} tokens in its vocabulary, the teacher {}",
                               words(*given.model), words(*teacher)),
                   "Distillation compares distributions over the same tokens. Use a teacher with "
                   "the same tokenizer.");
  for (auto& parameter : teacher->parameters()) parameter.requires_grad_(false);
  teacher->eval();
  return teacher;
}

}  // namespace

std::span<const OptionRow<OnPolicyDistillationConfig>> OnPolicyDistillationConfig::own_options() {
  return kOnPolicyRows;
}

nlohmann::ordered_json OnPolicyDistillationConfig::to_dict() const {
  return arguments_to_dict(*this);
}

OnPolicyDistillationConfig OnPolicyDistillationConfig::from_json(const nlohmann::json& dict) {
  return arguments_from_json<OnPolicyDistillationConfig>(dict);
}

bool operator==(const OnPolicyDistillationConfig&, const OnPolicyDistillationConfig&) = default;

OnPolicyDistillationConfig::operator TrainingArguments() const { return plain_arguments(*this); }

OnPolicyDistillationConfig OnPolicyDistillationConfig::resolved() const {
  return resolve_common_rollout(*this);
}

/// What the constructor has made of its options.
struct OnPolicyDistillationTrainer::Prepared {
  RolloutOptions options = {};
  std::shared_ptr<Model> teacher = nullptr;
};

OnPolicyDistillationTrainer::Prepared OnPolicyDistillationTrainer::prepare(
    OnPolicyDistillationTrainerOptions given, const OnPolicyDistillationConfig& args) {
  Prepared prepared;
  prepared.teacher = frozen_teacher(given, args);
  device::seed_all(args.seed);  // the adapter's matrices are random
  prepared.options = rollout_options(given, args, kDistillationName);
  auto& settings = prepared.options.settings = common_rollout_settings(args, kDistillationName);
  // One completion of each prompt, made for a whole accumulation window at once.
  settings.steps_per_generation = args.gradient_accumulation_steps;
  settings.generation_batch_size = args.per_device_train_batch_size *
                                   TrainingArguments(args).world_size() *
                                   args.gradient_accumulation_steps;
  return prepared;
}

OnPolicyDistillationTrainer::OnPolicyDistillationTrainer(OnPolicyDistillationTrainerOptions options)
    : OnPolicyDistillationTrainer(options.args.resolved(),
                                  prepare(options, options.args.resolved())) {}

OnPolicyDistillationTrainer::OnPolicyDistillationTrainer(OnPolicyDistillationConfig args,
                                                         Prepared prepared)
    : RolloutTrainer(std::move(prepared.options), args.to_dict()),
      args_(std::move(args)),
      teacher_(std::move(prepared.teacher)) {
  loss_is_scaled_for_ga = true;
}

OnPolicyDistillationTrainer::~OnPolicyDistillationTrainer() = default;

void OnPolicyDistillationTrainer::score(Scored&, MetricBatch&) {}

/// Of each token, from log probabilities (rows, tokens, vocabulary).
Tensor OnPolicyDistillationTrainer::divergence(const Tensor& student, const Tensor& teacher) const {
  const auto beta = args_.beta;
  if (beta == 0) return (teacher.exp() * (teacher - student)).sum(-1);
  if (beta == 1) return (student.exp() * (student - teacher)).sum(-1);
  const auto mixture = at::logaddexp(student + std::log(1 - beta), teacher + std::log(beta));
  return (beta * teacher.exp() * (teacher - mixture) +
          (1 - beta) * student.exp() * (student - mixture))
      .sum(-1);
}

Loss OnPolicyDistillationTrainer::compute_loss(Model& model, Batch inputs, std::optional<Tensor>) {
  const bool training = model.is_training();
  const layers::NoDropout no_dropout(args_.disable_dropout);
  const auto width = inputs["completion_ids"].size(1);
  const Batch given{
      {"input_ids", at::cat({inputs["prompt_ids"], inputs["completion_ids"]}, 1)},
      {"attention_mask", at::cat({inputs["prompt_mask"], inputs["completion_mask"]}, 1)}};
  // The last token of the prompt predicts the first one of the completion.
  const auto completion_logs = [&](const Tensor& logits) {
    const auto kept = logits.narrow(1, logits.size(1) - width - 1, width).to(torch::kFloat);
    return (kept / args_.temperature).log_softmax(-1);
  };
  const auto student = completion_logs(run_model(model, given, training)["logits"]);
  Tensor teacher;
  {
    const torch::NoGradGuard no_grad;
    teacher_->to(device());
    const auto parameters = model.parameters();
    const bool is_half =
        !parameters.empty() && parameters.front().scalar_type() == torch::kBFloat16;
    const device::AutocastGuard precision(device().type(),
                                          is_half ? torch::kBFloat16 : torch::kFloat);
    teacher = completion_logs(teacher_->forward(given)["logits"]);
  }
  const auto mask = inputs["completion_mask"].to(torch::kFloat);
  const auto items =
      training ? inputs["num_items_in_batch"].to(torch::kFloat).clamp_min(1) / world_size()
               : mask.sum().clamp_min(1);
  Loss result{.loss = (divergence(student, teacher) * mask).sum() / items};

  const torch::NoGradGuard no_grad;
  MetricBatch metrics;
  const auto entropy = (student.exp() * student).sum(-1).neg();
  note_mean(metrics, "entropy", entropy, mask);
  note(metrics, training);
  return result;
}

}  // namespace gradus
