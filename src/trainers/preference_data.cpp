#include "trainers/preference_data.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include <algorithm>

#include "trainers/row_reader.h"

namespace gradus {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPairForms =
    "Rows hold chosen and rejected, and may hold prompt, as texts or as messages.";
constexpr const char* kUnpairedForms =
    "Rows hold prompt, completion and label, or prompt, chosen and rejected, as texts or as "
    "messages.";

/// One row on its way to tokens.
class PreferenceRow {
 public:
  PreferenceRow(const PreferencePreparation& how, Example row, const std::string& where,
                int64_t number, const char* forms)
      : how_(how),
        row_(std::move(row)),
        read_(row_, where, number, forms),
        is_chat_(is_conversational(row_)) {}
  PreferenceRow(const PreferenceRow&) = delete;
  PreferenceRow& operator=(const PreferenceRow&) = delete;

  const Example& row() const { return row_; }
  const RowReader& read() const { return read_; }

  /// The tokens of the prompt alone.
  std::vector<int64_t> prompt() const {
    if (!is_chat_) return how_.tokenizer->encode(read_.text("prompt")).ids();
    auto options = read_.chat_options();
    options.add_generation_prompt = true;
    return read_.chat_tokens(*how_.tokenizer, read_.messages("prompt"), options).ids();
  }

  /// The tokens of the prompt, if there is one, and the completion in column `name`.
  std::vector<int64_t> whole(const std::string& name) const {
    const bool has_prompt = row_.contains("prompt");
    if (!is_chat_)
      return how_.tokenizer->encode((has_prompt ? read_.text("prompt") : "") + read_.text(name))
          .ids();
    auto conversation = has_prompt ? read_.messages("prompt") : ordered_json::array();
    bool has_answer = false;
    for (const auto& message : read_.messages(name)) {
      has_answer |= message.is_object() && message.value("role", ordered_json()) == "assistant";
      conversation.push_back(message);
    }
    if (!has_answer)
      read_.refuse(fmt::format("the conversation {} has no message of the assistant", name),
                   "Give at least one message with the role assistant.");
    return read_.chat_tokens(*how_.tokenizer, conversation, read_.chat_options()).ids();
  }

  /// Refuses a row that the model cannot take.
  void check_length(size_t tokens, const std::string& name) const {
    const auto kept = int64_t(tokens);
    const auto length = how_.max_length ? std::min(kept, *how_.max_length) : kept;
    if (!how_.longest || length <= *how_.longest) return;
    read_.refuse(fmt::format("{} has {} tokens, but the model takes {} at most", name, length,
                             *how_.longest),
                 fmt::format("Set --max_length {} or less.", *how_.longest));
  }

 private:
  const PreferencePreparation& how_;
  Example row_;
  RowReader read_;
  bool is_chat_;
};

/// Where the characters of a text begin, and its end.
std::vector<size_t> character_starts(const std::string& text) {
  std::vector<size_t> starts;
  for (size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) starts.push_back(i);
  starts.push_back(text.size());
  return starts;
}

/// trl's rule: up to the first difference, a space before it goes to the completions. The last
/// character of the shorter text is always part of its completion.
size_t shared_characters(const std::string& chosen, const std::string& rejected) {
  const auto a = character_starts(chosen), b = character_starts(rejected);
  const auto shorter = std::min(a.size(), b.size()) - 1;
  size_t same = 0;
  while (same < shorter && std::string_view(chosen).substr(a[same], a[same + 1] - a[same]) ==
                               std::string_view(rejected).substr(b[same], b[same + 1] - b[same]))
    ++same;
  if (same == shorter) return shorter == 0 ? 0 : a[shorter - 1];
  if (same > 0 && chosen[a[same] - 1] == ' ') --same;
  return a[same];
}

/// Splits off what both completions begin with, as `prompt`.
void extract_prompt(Example& row, const RowReader& read) {
  if (!is_conversational(row)) {
    const auto chosen = read.text("chosen"), rejected = read.text("rejected");
    const auto shared = shared_characters(chosen, rejected);
    row.set("prompt", chosen.substr(0, shared));
    row.set("chosen", chosen.substr(shared));
    row.set("rejected", rejected.substr(shared));
    return;
  }
  const auto chosen = read.messages("chosen"), rejected = read.messages("rejected");
  const auto shorter = std::min(chosen.size(), rejected.size());
  size_t same = 0;
  // In any order of keys.
  while (same < shorter && nlohmann::json(chosen[same]) == nlohmann::json(rejected[same])) ++same;
  if (same == shorter && shorter > 0) --same;
  const auto part = [&](const ordered_json& list, size_t from, size_t to) {
    auto result = ordered_json::array();
    for (size_t i = from; i < to; ++i) result.push_back(list[i]);
    return Value::nested(std::move(result));
  };
  row.set("prompt", part(chosen, 0, same));
  row.set("chosen", part(chosen, same, chosen.size()));
  row.set("rejected", part(rejected, same, rejected.size()));
}

/// The rows with a prompt, and with the end token where they are texts.
std::vector<Example> with_prompts(const Dataset& source, const PreferencePreparation& how,
                                  std::initializer_list<const char*> completions,
                                  const std::string& where, const char* forms) {
  const auto first = source.get(0);
  const bool has_prompt = first.contains("prompt"), is_chat = is_conversational(first);
  std::vector<Example> rows;
  for (int64_t i = 0; i < source.size(); ++i) {
    auto row = source.get(i);
    const RowReader read(row, where, i, forms);
    if (!has_prompt && completions.size() == 2) extract_prompt(row, read);
    if (!is_chat)
      for (const auto* name : completions) append_end_token(row, name, *how.tokenizer);
    rows.push_back(std::move(row));
  }
  return rows;
}

DatasetRef rows_left(std::vector<Example> rows, const PreferencePreparation& how,
                     const std::string& where, const char* what) {
  if (rows.empty())
    throw Error("G-TRL-2", ErrorKind::data,
                fmt::format("no row of {} is left: {} max_length={}", where, what,
                            how.max_length.value_or(0)),
                "Raise --max_length.");
  return DatasetRef(from_examples(std::move(rows)));
}

std::vector<int64_t> rest_of(const std::vector<int64_t>& ids, size_t start) {
  return {ids.begin() + int64_t(start), ids.end()};
}

bool prompt_fits(const std::vector<int64_t>& prompt, const PreferencePreparation& how) {
  return how.keeps_end || !how.max_length || int64_t(prompt.size()) < *how.max_length;
}

constexpr size_t kPairsAtATime = 1000;

/// Pairs as rows of one completion each: of every thousand rows first the chosen, then the rejected
/// ones, as trl's data sets are mapped.
std::vector<Example> unpaired(const std::vector<Example>& pairs) {
  std::vector<Example> rows;
  for (size_t begin = 0; begin < pairs.size(); begin += kPairsAtATime)
    for (const bool is_chosen : {true, false})
      for (size_t i = begin; i < std::min(begin + kPairsAtATime, pairs.size()); ++i) {
        Example row{{"completion", pairs[i][is_chosen ? "chosen" : "rejected"]},
                    {"label", is_chosen}};
        for (const auto& [name, value] : pairs[i])  // a label of the pair counts for both
          if (name != "chosen" && name != "rejected") row.set(name, value);
        rows.push_back(std::move(row));
      }
  return rows;
}

/// The pair that row `row` of `unpaired` is made of.
size_t pair_of(size_t row, size_t pairs) {
  const auto begin = row / (2 * kPairsAtATime) * kPairsAtATime;
  return begin + (row - 2 * begin) % std::min(kPairsAtATime, pairs - begin);
}

constexpr const char* kAllMargins = "Give every row a margin, or none.";

bool has_value(const Example& row, const char* name) {
  const auto* value = row.find(name);
  return value != nullptr && !value->is_null();
}

bool label_of(const PreferenceRow& row) {
  const auto& value = row.read().column("label");
  if (value.is_bool()) return value.boolean();
  if (value.is_int() && (value.integer() == 0 || value.integer() == 1)) return value.integer() == 1;
  row.read().refuse(fmt::format("label must be true or false, received {}", value.type_name()),
                    "Give true for completions that are wanted, false for others.");
}

int64_t longer_of(const Example& row) {
  return int64_t(std::max(row["chosen_ids"].ints().size(), row["rejected_ids"].ints().size()));
}

}  // namespace

DatasetRef prepare_reward_rows(const DatasetRef& rows, const PreferencePreparation& how,
                               const std::string& where) {
  const auto& source = rows_to_prepare(rows, how.who, where);
  const auto first = source.get(0);
  const bool has_ids = first.contains("chosen_ids") && first.contains("rejected_ids"),
             has_old_ids =
                 first.contains("chosen_input_ids") && first.contains("rejected_input_ids"),
             is_chat = is_conversational(first), has_margin = has_value(first, "margin");
  std::vector<Example> made;
  for (int64_t i = 0; i < source.size(); ++i) {
    auto given = source.get(i);
    Example row;
    if (has_ids || has_old_ids) {
      const RowReader read(given, where, i, kPairForms);
      row = {{"chosen_ids", read.list(has_ids ? "chosen_ids" : "chosen_input_ids")},
             {"rejected_ids", read.list(has_ids ? "rejected_ids" : "rejected_input_ids")}};
    } else {
      if (!is_chat)
        for (const auto* name : {"chosen", "rejected"})
          append_end_token(given, name, *how.tokenizer);
      const PreferenceRow pair(how, given, where, i, kPairForms);
      row = {{"chosen_ids", pair.whole("chosen")}, {"rejected_ids", pair.whole("rejected")}};
      if (!how.max_length || longer_of(row) <= *how.max_length)  // others are left out
        for (const auto* name : {"chosen", "rejected"})
          pair.check_length(row[std::string(name) + "_ids"].ints().size(), name);
    }
    if (how.max_length && longer_of(row) > *how.max_length) continue;
    if (has_value(given, "margin") || has_margin) {
      const RowReader read(given, where, i, kAllMargins);
      if (!has_margin) read.refuse("it has a margin, but row 0 has none", kAllMargins);
      row.set("margin", read.number("margin"));
    }
    made.push_back(std::move(row));
  }
  return rows_left(std::move(made), how, where, "each has a text longer than");
}

DatasetRef prepare_preference_rows(const DatasetRef& rows, const PreferencePreparation& how,
                                   const std::string& where) {
  const auto& source = rows_to_prepare(rows, how.who, where);
  const auto first = source.get(0);
  refuse_images(first, how.who, where);
  if (first.contains("chosen_ids") && first.contains("prompt_ids")) return rows;
  auto given = with_prompts(source, how, {"chosen", "rejected"}, where, kPairForms);
  std::vector<Example> made;
  for (size_t i = 0; i < given.size(); ++i) {
    const PreferenceRow row(how, std::move(given[i]), where, int64_t(i), kPairForms);
    auto prompt = row.prompt();
    const auto chosen = row.whole("chosen"), rejected = row.whole("rejected");
    prompt.resize(std::min(completion_start(prompt, chosen), completion_start(prompt, rejected)));
    if (!prompt_fits(prompt, how)) continue;
    row.check_length(chosen.size(), "prompt and chosen");
    row.check_length(rejected.size(), "prompt and rejected");
    made.push_back({{"prompt_ids", prompt},
                    {"chosen_ids", rest_of(chosen, prompt.size())},
                    {"rejected_ids", rest_of(rejected, prompt.size())}});
  }
  return rows_left(std::move(made), how, where, "each prompt alone fills");
}

DatasetRef prepare_unpaired_rows(const DatasetRef& rows, const PreferencePreparation& how,
                                 std::optional<int64_t> kl_batch, const std::string& where) {
  const auto& source = rows_to_prepare(rows, how.who, where);
  const auto first = source.get(0);
  refuse_images(first, how.who, where);
  if (first.contains("completion_ids") && first.contains("prompt_ids")) return rows;
  const bool paired = first.contains("chosen") && first.contains("rejected");
  auto given = paired
                   ? unpaired(with_prompts(source, how, {"chosen", "rejected"}, where, kPairForms))
                   : with_prompts(source, how, {"completion"}, where, kUnpairedForms);
  std::vector<Example> made;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto number = int64_t(paired ? pair_of(i, given.size() / 2) : i);
    const PreferenceRow row(how, std::move(given[i]), where, number, kUnpairedForms);
    auto prompt = row.prompt();
    const auto whole = row.whole("completion");
    prompt.resize(completion_start(prompt, whole));
    if (!prompt_fits(prompt, how)) continue;
    row.check_length(whole.size(), "prompt and completion");
    made.push_back({{"prompt_ids", prompt},
                    {"completion_ids", rest_of(whole, prompt.size())},
                    {"label", label_of(row)}});
  }
  if (kl_batch)
    for (size_t begin = 0; begin < made.size(); begin += size_t(*kl_batch)) {
      const auto end = std::min(begin + size_t(*kl_batch), made.size());
      for (size_t i = begin; i < end; ++i)
        made[i].set("KL_completion_ids", made[i == begin ? end - 1 : i - 1]["completion_ids"]);
    }
  return rows_left(std::move(made), how, where, "each prompt alone fills");
}

}  // namespace gradus
