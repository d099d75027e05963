#include "trainers/sft_data.h"

#include <gradus/core/error.h>
#include <gradus/data/packing.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "data/numpy_random.h"

namespace gradus {

using nlohmann::ordered_json;

namespace {

constexpr const char* kChatColumns[] = {"prompt", "completion", "chosen", "rejected", "messages"};
constexpr const char* kOthersRoles[] = {"user", "human", "system", "developer", "tool"};
constexpr const char* kSftForms =
    "Rows hold text, prompt and completion, messages, or input_ids. --dataset_text_field names "
    "another column of text.";

/// Whether the model may have said it. Old conversations have names of their own for its role.
bool is_answer(const ordered_json& message) {
  const auto role = message.is_object() ? message.value("role", ordered_json()) : ordered_json();
  return role.is_string() &&
         std::ranges::none_of(kOthersRoles, [&](const char* other) { return role == other; });
}

/// One row on its way to tokens.
class SftRow {
 public:
  SftRow(const SftPreparation& how, Example row, const std::string& where, int64_t number)
      : how_(how), row_(std::move(row)), read_(row_, where, number, kSftForms) {}
  SftRow(const SftRow&) = delete;
  SftRow& operator=(const SftRow&) = delete;

  /// Token ids and labels.
  Example prepared(bool add_eos, bool from_value) {
    std::vector<std::vector<int64_t>> masks;
    std::vector<int64_t> ids;
    if (row_.contains("input_ids")) {
      ids = read_.list("input_ids");
      check_known("input_ids", ids);
      if (row_.contains("labels")) {
        auto labels = read_.list_for("labels", ids.size());
        check_known("labels", labels);
        return made(std::move(ids), std::move(labels));
      }
      if (how_.completion_only && row_.contains("completion_mask"))
        masks.push_back(read_.list_for("completion_mask", ids.size()));
      if (row_.contains("assistant_masks"))
        masks.push_back(read_.list_for("assistant_masks", ids.size()));
    } else {
      if (how_.formatting_func) row_.set("text", how_.formatting_func(row_));
      if (from_value) to_messages(row_);
      if (add_eos && !append_end_token(row_, how_.args.dataset_text_field, *how_.tokenizer))
        append_end_token(row_, "completion", *how_.tokenizer);
      ids = tokens(masks);
    }
    auto labels = ids;
    for (const auto& mask : masks)
      for (size_t i = 0; i < labels.size(); ++i)
        if (mask[i] == 0) labels[i] = -100;
    return made(std::move(ids), std::move(labels));
  }

 private:
  Example made(std::vector<int64_t> ids, std::vector<int64_t> labels) const {
    check_length(ids.size());
    return {{"input_ids", std::move(ids)}, {"labels", std::move(labels)}};
  }

  /// Refuses tokens that the model does not know.
  void check_known(const char* name, const std::vector<int64_t>& ids) const {
    const bool are_labels = name == std::string_view("labels");
    for (const auto id : ids)
      if (how_.vocabulary && !(are_labels && id == -100) && (id < 0 || id >= *how_.vocabulary))
        read_.refuse(fmt::format("{} holds {}, but the model knows the tokens 0 to {}", name, id,
                                 *how_.vocabulary - 1),
                     are_labels ? "Give each token one label; -100 leaves it out of the loss."
                                : "Make the tokens with the tokenizer of the model's folder.");
  }

  /// Refuses a row that the model cannot take.
  void check_length(size_t tokens) const {
    const auto length = std::min(int64_t(tokens), how_.args.max_length.value_or(int64_t(tokens)));
    if (how_.longest && length > *how_.longest)
      read_.refuse(fmt::format("{} tokens, but the model takes {} at most", length, *how_.longest),
                   fmt::format("Set --max_length {} or less.", *how_.longest));
  }

  /// Old conversations with "from" and "value".
  static void to_messages(Example& row) {
    for (const auto& name : row.names()) {
      const auto* value = row.find(name);
      const bool is_chat = std::ranges::find(kChatColumns, name) != std::end(kChatColumns);
      if ((!is_chat && name != "conversations") || !value->is_nested()) continue;
      auto list = value->json();
      for (auto& message : list) {
        if (!message.is_object()) continue;
        for (const auto& [from, to] : {std::pair("from", "role"), std::pair("value", "content")})
          if (message.contains(from)) {
            auto said = message[from];
            message.erase(from);
            message[to] = std::move(said);
          }
      }
      row.set(name == "conversations" ? "messages" : name, Value::nested(std::move(list)));
    }
    row.erase("conversations");
  }

  std::vector<int64_t> tokens(std::vector<std::vector<int64_t>>& masks) const {
    if (!row_.contains("prompt")) {
      const bool has_text = row_.contains(how_.args.dataset_text_field);
      return is_conversational(row_) || (!has_text && row_.contains("messages"))
                 ? chat_tokens(read_.messages("messages"), masks)
                 : how_.tokenizer->encode(read_.text(how_.args.dataset_text_field)).ids();
    }
    std::vector<int64_t> prompt, all;
    if (is_conversational(row_)) {
      auto options = read_.chat_options();
      options.add_generation_prompt = true;
      auto conversation = read_.messages("prompt");
      prompt = read_.chat_tokens(*how_.tokenizer, conversation, options).ids();
      for (auto& message : read_.messages("completion")) conversation.push_back(message);
      all = chat_tokens(conversation, masks);
    } else {
      prompt = how_.tokenizer->encode(read_.text("prompt")).ids();
      all = how_.tokenizer->encode(read_.text("prompt") + read_.text("completion")).ids();
    }
    const auto start = completion_start(prompt, all);
    if (how_.completion_only) {
      std::vector<int64_t> mask(all.size(), 1);
      std::fill_n(mask.begin(), start, 0);
      masks.push_back(std::move(mask));
    }
    return all;
  }

  std::vector<int64_t> chat_tokens(const ordered_json& conversation,
                                   std::vector<std::vector<int64_t>>& masks) const {
    if (std::ranges::none_of(conversation, is_answer))
      read_.refuse("the conversation has no message of the assistant",
                   "Give at least one message with the role assistant.");
    auto options = read_.chat_options();
    options.return_assistant_tokens_mask = how_.args.assistant_only_loss;
    const auto encoded = read_.chat_tokens(*how_.tokenizer, conversation, options);
    if (how_.args.assistant_only_loss) {
      masks.push_back(encoded.assistant_masks());
      if (std::ranges::count(masks.back(), 1) == 0)
        read_.refuse("assistant_only_loss is set, but the row has no assistant token",
                     "The conversation needs a message of the assistant, and the chat template "
                     "{% generation %} around what the assistant says.");
    }
    return encoded.ids();
  }

  const SftPreparation& how_;
  Example row_;
  RowReader read_;
};

/// Cuts a row; false when no label is left.
bool truncated(Example& row, const SFTConfig& args) {
  const auto length = size_t(*args.max_length);
  auto ids = row["input_ids"].ints(), labels = row["labels"].ints();
  if (ids.size() > length) {
    const auto begin = args.truncation_mode == "keep_end" ? ids.size() - length : 0;
    for (auto* list : {&ids, &labels})
      *list = std::vector<int64_t>(list->begin() + int64_t(begin),
                                   list->begin() + int64_t(begin + length));
  }
  const bool has_label = std::ranges::any_of(labels, [](int64_t label) { return label != -100; });
  row = {{"input_ids", std::move(ids)}, {"labels", std::move(labels)}};
  return has_label;
}

/// Joined rows count positions through.
void check_packed(const Dataset& rows, const SftPreparation& how, const std::string& where) {
  if (how.args.packing_strategy != "wrapped" || !how.longest) return;
  if (*how.args.max_length <= *how.longest) return;  // no row is longer
  int64_t length = 0;
  for (int64_t i = 0; i < rows.size() && length <= *how.longest; ++i)
    length = int64_t(rows.get(i)["input_ids"].ints().size());
  if (length > *how.longest)
    throw Error("G-TRL-2", ErrorKind::data,
                fmt::format("the packed rows of {} have {} tokens, but the model takes {} at most",
                            where, length, *how.longest),
                fmt::format("Set --max_length {} or less.", *how.longest));
}

std::shared_ptr<Dataset> shuffled_rows(const std::shared_ptr<Dataset>& rows, int64_t seed) {
  return rows->select(data::NumpyRandom(uint64_t(seed)).permutation(rows->size()));
}

}  // namespace

std::shared_ptr<const Dataset> prepare_sft_rows(const DatasetRef& rows,
                                                const SftPreparation& preparation, bool packing,
                                                const std::string& where) {
  const auto& args = preparation.args;
  const auto& source = rows_to_prepare(rows, "SFTTrainer", where);
  const auto first = source.get(0);
  const bool from_value = is_message_list(first.find("conversations"), "from");
  const bool add_eos = !from_value && !is_conversational(first);
  std::vector<Example> made;
  for (int64_t i = 0; i < source.size(); ++i) {
    auto row = SftRow(preparation, source.get(i), where, i).prepared(add_eos, from_value);
    if (!packing && args.max_length && !truncated(row, args)) continue;
    made.push_back(std::move(row));
  }
  if (made.empty())
    throw Error("G-TRL-2", ErrorKind::data,
                fmt::format("no row of {} has a label within max_length={}", where,
                            args.max_length.value_or(0)),
                "Raise --max_length: the prompts alone fill the rows.");
  auto prepared = from_examples(std::move(made));
  if (packing) {
    if (args.shuffle_dataset) prepared = shuffled_rows(prepared, args.seed);
    prepared = pack_dataset(prepared, {.seq_length = *args.max_length,
                                       .strategy = packing_strategy(args.packing_strategy)});
    check_packed(*prepared, preparation, where);
  }
  if (args.shuffle_dataset) prepared = shuffled_rows(prepared, args.seed);
  return prepared;
}

}  // namespace gradus
