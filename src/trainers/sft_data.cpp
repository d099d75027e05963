#include "trainers/sft_data.h"

#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/packing.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "data/numpy_random.h"

namespace gradus {

using nlohmann::ordered_json;

namespace {

constexpr const char* kChatColumns[] = {"prompt", "completion", "chosen", "rejected", "messages"};

[[noreturn]] void refuse_row(const std::string& where, int64_t row, const std::string& what,
                             const std::string& advice) {
  throw Error("G-SFT-2", ErrorKind::data, fmt::format("{}, row {}: {}", where, row, what), advice);
}

bool is_message_list(const Value* value, const char* key) {
  return value != nullptr && value->is_nested() && value->json().is_array() &&
         !value->json().empty() && value->json()[0].is_object() && value->json()[0].contains(key);
}

/// One row on its way to tokens.
class SftRow {
 public:
  SftRow(const SftPreparation& how, const std::string& where, int64_t number)
      : how_(how), where_(where), number_(number) {}

  /// Token ids and labels.
  Example prepared(Example row, bool add_eos, bool from_value) {
    std::vector<std::vector<int64_t>> masks;
    std::vector<int64_t> ids;
    if (row.contains("input_ids")) {
      ids = list(row, "input_ids");
      if (row.contains("labels")) return made(ids, list(row, "labels"));
      if (how_.completion_only && row.contains("completion_mask"))
        masks.push_back(list(row, "completion_mask"));
      if (row.contains("assistant_masks")) masks.push_back(list(row, "assistant_masks"));
    } else {
      if (how_.formatting_func) row.set("text", how_.formatting_func(row));
      if (from_value) to_messages(row);
      if (add_eos) end_text(row);
      ids = tokens(row, masks);
    }
    auto labels = ids;
    for (const auto& mask : masks)
      for (size_t i = 0; i < labels.size(); ++i)
        if (i >= mask.size() || mask[i] == 0) labels[i] = -100;
    return made(std::move(ids), std::move(labels));
  }

 private:
  Example made(std::vector<int64_t> ids, std::vector<int64_t> labels) const {
    if (ids.size() != labels.size())
      refuse_row(where_, number_,
                 fmt::format("{} token ids, but {} labels", ids.size(), labels.size()),
                 "Give each token one label; -100 leaves it out of the loss.");
    return {{"input_ids", std::move(ids)}, {"labels", std::move(labels)}};
  }

  const Value& column(const Example& row, const std::string& name) const {
    const auto* value = row.find(name);
    if (value == nullptr || value->is_null())
      refuse_row(
          where_, number_,
          fmt::format("there is no column {}; the row has {}", name, fmt::join(row.names(), ", ")),
          "Rows hold text, prompt and completion, messages, or input_ids. "
          "--dataset_text_field names another column of text.");
    return *value;
  }
  const std::string& text(const Example& row, const std::string& name) const {
    const auto& value = column(row, name);
    if (!value.is_string())
      refuse_row(where_, number_,
                 fmt::format("{} must be text, received {}", name, value.type_name()),
                 "Give text, or messages in all columns of the row.");
    return value.str();
  }
  std::vector<int64_t> list(const Example& row, const std::string& name) const {
    const auto& value = column(row, name);
    if (value.is_ints()) return value.ints();
    if (value.is_tensor()) {
      const auto tensor = value.tensor().to(torch::kLong).contiguous().flatten();
      return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
    }
    refuse_row(
        where_, number_,
        fmt::format("{} must be a list of whole numbers, received {}", name, value.type_name()),
        "Give one number for each token.");
  }
  ordered_json messages(const Example& row, const std::string& name) const {
    const auto& value = column(row, name);
    if (!value.is_nested() || !value.json().is_array())
      refuse_row(where_, number_,
                 fmt::format("{} must be a list of messages, received {}", name, value.type_name()),
                 "Give a list of objects with role and content.");
    return ordered_json(value.json());
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
            message[to] = message[from];
            message.erase(from);
          }
      }
      row.set(name == "conversations" ? "messages" : name, Value::nested(std::move(list)));
    }
    row.erase("conversations");
  }

  void end_text(Example& row) const {
    const auto end = how_.tokenizer.special_token("eos_token");
    if (!end)
      throw Error("G-SFT-1", ErrorKind::usage, "the tokenizer has no end token for the texts",
                  "Name one with --eos_token.");
    const auto append = [&](const std::string& name) {
      const auto* value = row.find(name);
      if (value == nullptr || !value->is_string() || value->str().ends_with(*end)) return false;
      row.set(name, value->str() + *end);
      return true;
    };
    if (!append(how_.args.dataset_text_field)) append("completion");
  }

  ChatOptions chat_options(const Example& row) const {
    ChatOptions options;
    if (const auto* tools = row.find("tools"); tools != nullptr && !tools->is_null())
      options.tools =
          tools->is_string() ? ordered_json::parse(tools->str()) : ordered_json(tools->json());
    if (const auto* more = row.find("chat_template_kwargs"); more != nullptr && more->is_nested())
      options.variables = ordered_json(more->json());
    return options;
  }

  std::vector<int64_t> tokens(const Example& row, std::vector<std::vector<int64_t>>& masks) const {
    if (!row.contains("prompt"))
      return is_conversational(row)
                 ? chat_tokens(row, messages(row, "messages"), masks)
                 : how_.tokenizer.encode(text(row, how_.args.dataset_text_field)).ids();
    std::vector<int64_t> prompt, all;
    if (is_conversational(row)) {
      auto options = chat_options(row);
      options.add_generation_prompt = true;
      auto conversation = messages(row, "prompt");
      prompt = how_.tokenizer.apply_chat_template(conversation, options).ids();
      for (auto& message : messages(row, "completion")) conversation.push_back(message);
      all = chat_tokens(row, conversation, masks);
    } else {
      prompt = how_.tokenizer.encode(text(row, "prompt")).ids();
      all = how_.tokenizer.encode(text(row, "prompt") + text(row, "completion")).ids();
    }
    const auto same = size_t(std::ranges::mismatch(prompt, all).in1 - prompt.begin());
    if (same < prompt.size())
      log_warning_once(
          "The tokens of a prompt are not the beginning of the tokens of prompt and completion "
          "together, so the completion begins where they differ. This likely holds for every row.");
    if (how_.completion_only) {
      std::vector<int64_t> mask(all.size(), 1);
      std::fill_n(mask.begin(), same, 0);
      masks.push_back(std::move(mask));
    }
    return all;
  }

  std::vector<int64_t> chat_tokens(const Example& row, const ordered_json& conversation,
                                   std::vector<std::vector<int64_t>>& masks) const {
    auto options = chat_options(row);
    options.return_assistant_tokens_mask = how_.args.assistant_only_loss;
    const auto encoded = how_.tokenizer.apply_chat_template(conversation, options);
    if (how_.args.assistant_only_loss) {
      masks.push_back(encoded.assistant_masks());
      if (std::ranges::count(masks.back(), 1) == 0)
        refuse_row(where_, number_,
                   "assistant_only_loss is set, but the row has no assistant token",
                   "The conversation needs a message of the assistant, and the chat template "
                   "{% generation %} around what the assistant says.");
    }
    return encoded.ids();
  }

  const SftPreparation& how_;
  const std::string& where_;
  int64_t number_;
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

std::shared_ptr<Dataset> shuffled_rows(const std::shared_ptr<Dataset>& rows, int64_t seed) {
  return rows->select(data::NumpyRandom(uint64_t(seed)).permutation(rows->size()));
}

}  // namespace

bool is_conversational(const Example& row) {
  return std::ranges::any_of(
      kChatColumns, [&](const char* name) { return is_message_list(row.find(name), "role"); });
}

std::shared_ptr<const Dataset> prepare_sft_rows(const DatasetRef& rows,
                                                const SftPreparation& preparation,
                                                const std::string& where) {
  const auto& args = preparation.args;
  if (rows.is_iterable())
    throw Error("G-SFT-1", ErrorKind::usage,
                fmt::format("{} is a stream, which SFTTrainer cannot prepare", where),
                "Give a data set whose rows can be taken in any order.");
  const auto& source = *rows.map_style();
  if (source.size() == 0)
    throw Error("G-SFT-2", ErrorKind::data, fmt::format("{} has no rows", where),
                "Give more data.");
  const auto first = source.get(0);
  const bool from_value = is_message_list(first.find("conversations"), "from");
  const bool add_eos = !from_value && !is_conversational(first);
  std::vector<Example> made;
  for (int64_t i = 0; i < source.size(); ++i) {
    auto row = SftRow(preparation, where, i).prepared(source.get(i), add_eos, from_value);
    if (!preparation.packing && args.max_length && !truncated(row, args)) continue;
    made.push_back(std::move(row));
  }
  if (made.empty())
    throw Error("G-SFT-2", ErrorKind::data,
                fmt::format("no row of {} has a label within max_length={}", where,
                            args.max_length.value_or(0)),
                "Raise --max_length: the prompts alone fill the rows.");
  auto prepared = from_examples(std::move(made));
  if (preparation.packing) {
    if (args.shuffle_dataset) prepared = shuffled_rows(prepared, args.seed);
    prepared = pack_dataset(prepared, {.seq_length = *args.max_length,
                                       .strategy = packing_strategy(args.packing_strategy)});
  }
  if (args.shuffle_dataset) prepared = shuffled_rows(prepared, args.seed);
  return prepared;
}

}  // namespace gradus
