#include "trainers/reward_scorer.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/models/model.h>

#include <cmath>

#include "trainers/row_reader.h"

namespace gradus {

using torch::Tensor;

namespace {

/// Columns that reward functions get in another form.
bool is_passed_otherwise(const std::string& name) {
  return name == "prompt" || name == "completion" || name == "completion_ids";
}

std::string last_content(const nlohmann::json& messages) {
  if (messages.empty() || !messages.back().is_object()) return "";
  const auto content = messages.back().find("content");
  return content != messages.back().end() && content->is_string() ? content->get<std::string>()
                                                                  : "";
}

}  // namespace

RewardScorer::RewardScorer(std::vector<Reward> rewards,
                           std::vector<std::shared_ptr<Tokenizer>> tokenizers,
                           nlohmann::json chat_template_kwargs)
    : rewards_(std::move(rewards)),
      tokenizers_(std::move(tokenizers)),
      chat_template_kwargs_(std::move(chat_template_kwargs)) {
  const auto refuse = [](const std::string& what, const std::string& advice) {
    throw Error("G-TRL-1", ErrorKind::usage, what, advice);
  };
  if (tokenizers_.empty()) tokenizers_.resize(rewards_.size());
  if (tokenizers_.size() != rewards_.size())
    refuse(fmt::format("there are {} reward_processing_classes for {} rewards", tokenizers_.size(),
                       rewards_.size()),
           "Give one for each reward; null for functions.");
  for (size_t i = 0; i < rewards_.size(); ++i) {
    const auto& reward = rewards_[i];
    if (!reward.model() && !reward.function())
      refuse(fmt::format("the reward {} has neither function nor model", reward.name()),
             "Give one of them.");
    if (!reward.model()) continue;
    auto& tokenizer = tokenizers_[i];
    if (!tokenizer)
      refuse(fmt::format("the reward model {} has no tokenizer", reward.name()),
             "Give it in reward_processing_classes.");
    if (!tokenizer->pad_token_id() && tokenizer->special_token("eos_token"))
      tokenizer->set_special_token("pad_token", *tokenizer->special_token("eos_token"));
    // The reward is that of the last token that is not padding.
    reward.model()->align_special_tokens(*tokenizer);
    reward.model()->eval();
  }
}

std::vector<std::string> RewardScorer::names() const {
  std::vector<std::string> names;
  for (const auto& reward : rewards_) names.push_back(reward.name());
  return names;
}

RewardInputs RewardScorer::inputs_of(const Question& question, RewardInputs::Notes& notes) const {
  RewardInputs in(question.state, notes);
  in.completions = question.completions;
  in.completion_ids = question.rollouts.completion_ids;
  const bool is_chat = is_message_list(question.rows.front().find("prompt"), "role");
  for (size_t i = 0; i < question.rows.size(); ++i) {
    const auto* prompt = question.rows[i].find("prompt");
    if (!is_chat) {
      in.prompts.push_back(prompt != nullptr && prompt->is_string() ? prompt->str() : "");
      continue;
    }
    in.prompt_messages.push_back(prompt->json());
    in.prompts.push_back(last_content(prompt->json()));
    in.completion_messages.push_back(
        nlohmann::json::array({{{"role", "assistant"}, {"content", question.completions[i]}}}));
  }
  for (const auto& name : question.rows.front().names()) {
    if (is_passed_otherwise(name)) continue;
    auto& values = in.columns[name];
    for (const auto& row : question.rows) {
      const auto* value = row.find(name);
      values.push_back(value != nullptr ? *value : Value());
    }
  }
  for (const auto& [name, values] : question.rollouts.columns) in.columns[name] = values;
  return in;
}

std::vector<double> RewardScorer::ask_model(size_t place, const RewardInputs& in,
                                            torch::Device device) {
  const auto& tokenizer = *tokenizers_[place];
  auto& model = *rewards_[place].model();
  std::vector<Example> rows;
  for (size_t i = 0; i < in.completions.size(); ++i) {
    auto text = in.prompts[i] + in.completions[i];
    if (!in.prompt_messages.empty()) {
      auto conversation = nlohmann::ordered_json(in.prompt_messages[i]);
      conversation.push_back(nlohmann::ordered_json(in.completion_messages[i][0]));
      ChatOptions options;
      if (chat_template_kwargs_.is_object())
        options.variables = nlohmann::ordered_json(chat_template_kwargs_);
      text = tokenizer.render_chat(conversation, options);
    }
    rows.push_back(tokenizer.encode(text, {.add_special_tokens = false}));
  }
  model.to(device);
  const torch::NoGradGuard no_grad;
  const auto batch = tokenizer.pad(rows, {.padding_side = PaddingSide::right}).to(device);
  const auto all = model.forward(batch)["logits"];
  if (all.dim() != 2)
    throw Error("G-RWD-1", ErrorKind::usage,
                fmt::format("the reward model {} gives {} numbers for each text, not one",
                            rewards_[place].name(), all.numel() / all.size(0)),
                "Load a sequence classification model with one label "
                "(AutoModelForSequenceClassification).");
  const auto logits = all.select(1, 0).to(torch::kDouble).cpu();
  return {logits.data_ptr<double>(), logits.data_ptr<double>() + logits.numel()};
}

Tensor RewardScorer::score(const Question& question, RewardInputs::Notes& notes) {
  const auto in = inputs_of(question, notes);
  const auto count = in.completions.size();
  auto all = torch::zeros({int64_t(count), int64_t(rewards_.size())}, torch::kFloat);
  auto numbers = all.accessor<float, 2>();
  for (size_t k = 0; k < rewards_.size(); ++k) {
    const auto& reward = rewards_[k];
    const auto values = reward.model() ? ask_model(k, in, question.device) : reward.function()(in);
    if (values.size() != count)
      throw Error("G-RWD-1", ErrorKind::training,
                  fmt::format("the reward {} gave {} numbers for {} completions", reward.name(),
                              values.size(), count),
                  "Return exactly one number for each completion.");
    for (size_t i = 0; i < count; ++i) {
      if (std::isinf(values[i]))
        throw Error("G-RWD-1", ErrorKind::training,
                    fmt::format("the reward {} gave an infinite number for completion {}",
                                reward.name(), i),
                    "Return a finite number, or NaN when the reward does not apply.");
      numbers[int64_t(i)][int64_t(k)] = float(values[i]);
    }
  }
  const auto nobody = all.isnan().all(1).nonzero();
  if (nobody.numel() > 0) {
    const auto first = size_t(nobody[0].item<int64_t>());
    log_warning(fmt::format(
        "No reward applies to {} completions, which do not count. The first one: prompt '{}', "
        "completion '{}'.",
        nobody.size(0), in.prompts[first], in.completions[first]));
  }
  return all.to(question.device);
}

}  // namespace gradus
