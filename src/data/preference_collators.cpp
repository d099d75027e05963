#include <gradus/core/error.h>
#include <gradus/data/collators.h>

#include "data/column_collate.h"

namespace gradus {
namespace {

/// Token lists with a mask beside each, to be padded together.
class Completions {
 public:
  Completions(std::optional<int64_t> max_length, TruncationMode truncation)
      : max_length_(max_length), truncation_(truncation) {}

  void add(std::span<const int64_t> prompt, std::span<const int64_t> completion) {
    auto& ids = ids_.emplace_back(prompt.begin(), prompt.end());
    ids.insert(ids.end(), completion.begin(), completion.end());
    auto& mask = mask_.emplace_back(prompt.size(), 0);
    mask.resize(ids.size(), 1);
    cut(ids);
    cut(mask);
  }

  torch::Tensor ids(int64_t pad_token_id, std::optional<int64_t> multiple) const {
    return pad(ids_, pad_token_id, multiple);
  }
  torch::Tensor completion_mask(std::optional<int64_t> multiple) const {
    return pad(mask_, 0, multiple);
  }
  torch::Tensor attention_mask(std::optional<int64_t> multiple) const {
    std::vector<std::vector<int64_t>> ones;
    for (const auto& ids : ids_) ones.emplace_back(ids.size(), 1);
    return pad(ones, 0, multiple);
  }

 private:
  using Lists = std::vector<std::vector<int64_t>>;

  static torch::Tensor pad(const Lists& lists, int64_t value, std::optional<int64_t> multiple) {
    const std::vector<std::span<const int64_t>> views(lists.begin(), lists.end());
    return pad_lists(views, value, PaddingSide::right, multiple);
  }

  void cut(std::vector<int64_t>& list) const {
    if (!max_length_ || static_cast<int64_t>(list.size()) <= *max_length_) return;
    if (truncation_ == TruncationMode::keep_start)
      list.resize(static_cast<size_t>(*max_length_));
    else
      list.erase(list.begin(), list.end() - *max_length_);
  }

  std::optional<int64_t> max_length_;
  TruncationMode truncation_;
  Lists ids_;
  Lists mask_;
};

void pass_on(Batch& batch, const std::vector<Example>& rows, const char* name) {
  if (rows.front().contains(name)) batch.set(name, data::collate_column(rows, name));
}

}  // namespace

Batch DataCollatorForPreference::operator()(std::vector<Example> rows) const {
  if (rows.empty()) return {};
  const bool has_prompt = rows.front().contains("prompt_ids");
  const data::IntLists chosen(rows, "chosen_ids");
  const data::IntLists rejected(rows, "rejected_ids");
  const auto prompts =
      has_prompt ? std::optional(data::IntLists(rows, "prompt_ids")) : std::nullopt;
  Completions all(options_.max_length, options_.truncation_mode);
  for (const auto* side : {&chosen, &rejected}) {
    for (size_t row = 0; row < rows.size(); ++row)
      all.add(prompts ? (*prompts)[row] : std::span<const int64_t>(), (*side)[row]);
  }
  Batch batch{{"input_ids", all.ids(options_.pad_token_id, options_.pad_to_multiple_of)},
              {"attention_mask", all.attention_mask(options_.pad_to_multiple_of)}};
  if (has_prompt) batch.set("completion_mask", all.completion_mask(options_.pad_to_multiple_of));
  pass_on(batch, rows, "ref_chosen_logps");
  pass_on(batch, rows, "ref_rejected_logps");
  if (rows.front().contains("margin"))
    batch.set("margin", data::collate_column(rows, "margin").to(at::kFloat));
  return batch;
}

Batch DataCollatorForUnpairedPreference::operator()(std::vector<Example> rows) const {
  if (rows.empty()) return {};
  const data::IntLists prompts(rows, "prompt_ids");
  Batch batch;
  for (const std::string prefix : {"", "KL_"}) {
    const auto name = prefix + "completion_ids";
    if (!rows.front().contains(name)) continue;
    const data::IntLists answers(rows, name);
    Completions all(options_.max_length, TruncationMode::keep_start);
    for (size_t row = 0; row < rows.size(); ++row) all.add(prompts[row], answers[row]);
    batch.set(prefix + "input_ids", all.ids(options_.pad_token_id, options_.pad_to_multiple_of));
    batch.set(prefix + "attention_mask", all.attention_mask(options_.pad_to_multiple_of));
    batch.set(prefix + "completion_mask", all.completion_mask(options_.pad_to_multiple_of));
  }
  pass_on(batch, rows, "ref_logps");
  pass_on(batch, rows, "ref_KL_logps");
  batch.set("label", data::collate_column(rows, "label"));
  return batch;
}

}  // namespace gradus
