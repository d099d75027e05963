#include "trainers/completion_sampler.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/models/config_reader.h>

#include <algorithm>

#include "trainers/row_reader.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr const char* kPromptForms =
    "Rows hold a prompt: a text, or a list of messages for the tokenizer's chat template.";

/// How many tokens a row of the model can have, where that is known.
std::optional<int64_t> context_of(const PreTrainedModel& model) {
  if (const auto positions = model.position_limit()) return positions;
  const ConfigReader read(model.config_json(), "config.json",
                          {{"max_position_embeddings", "n_positions"}});
  return read.optional_integer("max_position_embeddings");
}

std::vector<std::vector<int64_t>> ones_like(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<std::vector<int64_t>> ones;
  for (const auto& row : rows) ones.emplace_back(row.size(), 1);
  return ones;
}

}  // namespace

CompletionSampler::CompletionSampler(std::shared_ptr<Tokenizer> tokenizer,
                                     const PreTrainedModel& model, RolloutSettings settings)
    : tokenizer_(std::move(tokenizer)), settings_(std::move(settings)) {
  pad_ = *tokenizer_->pad_token_id();
  if (const auto& ids = model.generation_config.options.eos_token_id) ends_ = ids->ids();
  if (const auto end = tokenizer_->eos_token_id();
      end && std::ranges::find(ends_, *end) == ends_.end())
    ends_.insert(ends_.begin(), *end);

  auto& options = settings_.generation;
  if (!options.max_new_tokens && !options.max_length)
    options.max_new_tokens = settings_.max_completion_length;
  if (!options.do_sample) options.do_sample = true;
  if (!options.pad_token_id) options.pad_token_id = pad_;
  if (!options.bos_token_id) options.bos_token_id = tokenizer_->bos_token_id();
  if (!options.eos_token_id && !ends_.empty()) options.eos_token_id = TokenIds(ends_);
}

std::vector<int64_t> CompletionSampler::prompt_tokens(const Example& row, int64_t number) const {
  static const std::string where = "the data set";
  const RowReader read(row, where, number, kPromptForms);
  if (!is_message_list(row.find("prompt"), "role")) {
    const auto ids = tokenizer_->encode(read.text("prompt")).ids();
    if (ids.empty()) read.refuse("the prompt is empty", "Give it at least one token.");
    return ids;
  }
  ChatOptions options;
  options.add_generation_prompt = true;
  if (settings_.chat_template_kwargs.is_object())
    options.variables = nlohmann::ordered_json(settings_.chat_template_kwargs);
  return read.chat_tokens(*tokenizer_, read.messages("prompt"), options).ids();
}

Rollouts CompletionSampler::sample(const std::vector<Example>& rows,
                                   const std::vector<int64_t>& numbers,
                                   PreTrainedModel& model) const {
  Rollouts made;
  const auto context = context_of(model);
  for (size_t i = 0; i < rows.size(); ++i) {
    // The completions of a prompt come one after the other.
    const bool again = i > 0 && numbers[i] == numbers[i - 1];
    made.prompt_ids.push_back(again ? made.prompt_ids.back() : prompt_tokens(rows[i], numbers[i]));
    const auto tokens = int64_t(made.prompt_ids.back().size());
    if (context && tokens >= *context)
      throw Error("G-TRL-2", ErrorKind::data,
                  fmt::format("row {}: the prompt has {} tokens, but the model has room for {}, "
                              "the completion included",
                              numbers[i], tokens, *context),
                  "Leave such rows out, shorten them, or use a model with a longer context.");
  }
  const auto device = model.device();
  const auto prompts = padded_rows(made.prompt_ids, pad_, /*left=*/true);
  const auto mask = padded_rows(ones_like(made.prompt_ids), 0, /*left=*/true);
  const auto all =
      model
          .generate({{"input_ids", prompts.to(device)}, {"attention_mask", mask.to(device)}},
                    settings_.generation)
          .to(torch::kCPU);
  const auto width = prompts.size(1);
  for (int64_t i = 0; i < all.size(0); ++i) {
    const auto row = all[i].narrow(0, width, all.size(1) - width).contiguous();
    const auto* first = row.const_data_ptr<int64_t>();
    const auto* end = std::find_if(first, first + row.numel(), [&](int64_t id) {
      return std::ranges::find(ends_, id) != ends_.end();
    });
    if (end != first + row.numel()) ++end;
    made.completion_ids.emplace_back(first, end);
  }
  return made;
}

void CompletionSampler::check(const Rollouts& rollouts, size_t rows) const {
  const auto refuse = [](const std::string& what) {
    throw Error("G-TRL-2", ErrorKind::data, "rollout_func: " + what,
                "It returns prompt_ids and completion_ids for each row, and may return one log "
                "probability for each token of the completions.");
  };
  if (rollouts.prompt_ids.size() != rows || rollouts.completion_ids.size() != rows)
    refuse(fmt::format("{} prompts and {} completions for {} rows", rollouts.prompt_ids.size(),
                       rollouts.completion_ids.size(), rows));
  for (size_t i = 0; i < rows; ++i) {
    if (rollouts.prompt_ids[i].empty() || rollouts.completion_ids[i].empty())
      refuse(fmt::format("the {} of row {} has no tokens",
                         rollouts.prompt_ids[i].empty() ? "prompt" : "completion", i));
    if (!rollouts.logprobs.empty() &&
        (rollouts.logprobs.size() != rows ||
         rollouts.logprobs[i].size() != rollouts.completion_ids[i].size()))
      refuse(fmt::format("the log probabilities of row {} do not fit its completion", i));
  }
  for (const auto& [name, values] : rollouts.columns)
    if (values.size() != rows)
      refuse(fmt::format("the column {} has {} values for {} rows", name, values.size(), rows));
}

Tensor CompletionSampler::padded_rows(const std::vector<std::vector<int64_t>>& rows, int64_t filler,
                                      bool left) const {
  int64_t width = 0;
  for (const auto& row : rows) width = std::max(width, int64_t(row.size()));
  if (const auto step = settings_.pad_to_multiple_of) width = (width + *step - 1) / *step * *step;
  auto all = torch::full({int64_t(rows.size()), width}, filler, torch::kLong);
  for (size_t i = 0; i < rows.size(); ++i)
    std::ranges::copy(rows[i], all.data_ptr<int64_t>() + int64_t(i) * width +
                                   (left ? width - int64_t(rows[i].size()) : 0));
  return all;
}

Batch CompletionSampler::padded(const Rollouts& rollouts, torch::Device device) const {
  auto completion_mask = padded_rows(ones_like(rollouts.completion_ids), 0, /*left=*/false);
  if (settings_.mask_truncated_completions)
    for (size_t i = 0; i < rollouts.completion_ids.size(); ++i)
      if (is_truncated(rollouts.completion_ids[i])) completion_mask[int64_t(i)].zero_();
  return {{"prompt_ids", padded_rows(rollouts.prompt_ids, pad_, /*left=*/true).to(device)},
          {"prompt_mask", padded_rows(ones_like(rollouts.prompt_ids), 0, true).to(device)},
          {"completion_ids", padded_rows(rollouts.completion_ids, pad_, false).to(device)},
          {"completion_mask", completion_mask.to(device)}};
}

bool CompletionSampler::is_truncated(const std::vector<int64_t>& completion) const {
  const auto last = completion.back();
  return last != pad_ && std::ranges::find(ends_, last) == ends_.end();
}

std::vector<std::string> CompletionSampler::texts(const Rollouts& rollouts) const {
  return tokenizer_->batch_decode(rollouts.completion_ids, {.skip_special_tokens = true});
}

}  // namespace gradus
