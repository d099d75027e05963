#include "trainers/row_reader.h"
#include "core/parsed_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include <algorithm>

namespace gradus {

using nlohmann::ordered_json;

bool is_message_list(const Value* value, const char* key) {
  return value != nullptr && value->is_nested() && value->json().is_array() &&
         !value->json().empty() && value->json()[0].is_object() && value->json()[0].contains(key);
}

bool is_conversational(const Example& row) {
  constexpr const char* columns[] = {"prompt", "completion", "chosen", "rejected", "messages"};
  return std::ranges::any_of(
      columns, [&](const char* name) { return is_message_list(row.find(name), "role"); });
}

void RowReader::refuse(const std::string& what, const std::string& advice) const {
  throw Error("G-TRL-2", ErrorKind::data, fmt::format("{}, row {}: {}", where_, number_, what),
              advice);
}

const Value& RowReader::column(const std::string& name) const {
  const auto* value = row_.find(name);
  if (value == nullptr)
    refuse(
        fmt::format("there is no column {}; the row has {}", name, fmt::join(row_.names(), ", ")),
        advice_);
  if (value->is_null()) refuse(name + " is null", advice_);
  return *value;
}

double RowReader::number(const std::string& name) const {
  const auto& value = column(name);
  if (!value.is_double() && !value.is_int())
    refuse(fmt::format("{} must be a number, received {}", name, value.type_name()),
           "Give every row a number, or leave the column out.");
  return value.number();
}

const std::string& RowReader::text(const std::string& name) const {
  const auto& value = column(name);
  if (!value.is_string())
    refuse(fmt::format("{} must be text, received {}", name, value.type_name()),
           "Give text, or messages in all columns of the row.");
  return value.str();
}

std::vector<int64_t> RowReader::list(const std::string& name) const {
  const auto& value = column(name);
  if (value.is_ints()) return value.ints();
  if (value.is_tensor()) {
    const auto tensor = value.tensor().to(torch::kLong).contiguous().flatten();
    return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
  }
  refuse(fmt::format("{} must be a list of whole numbers, received {}", name, value.type_name()),
         "Give one number for each token.");
}

std::vector<int64_t> RowReader::list_for(const std::string& name, size_t tokens) const {
  auto numbers = list(name);
  if (numbers.size() != tokens)
    refuse(
        fmt::format("{} has length {}, but there are {} token ids", name, numbers.size(), tokens),
        "Give one number for each token.");
  return numbers;
}

ordered_json RowReader::messages(const std::string& name) const {
  const auto& value = column(name);
  if (!value.is_nested() || !value.json().is_array())
    refuse(fmt::format("{} must be a list of messages, received {}", name, value.type_name()),
           "Give a list of objects with role and content.");
  return value.json();
}

Encoding RowReader::chat_tokens(const Tokenizer& tokenizer, const ordered_json& conversation,
                                const ChatOptions& options) const {
  try {
    return tokenizer.apply_chat_template(conversation, options);
  } catch (const Error& error) {
    const bool is_of_the_tokenizer = error.id() == "G-TEXT-7" || !tokenizer.has_chat_template();
    if (is_of_the_tokenizer) throw;
    throw Error(error.id(), error.kind(),
                fmt::format("{}, row {}: {}", where_, number_, error.message()), error.advice());
  }
}

ChatOptions RowReader::chat_options() const {
  ChatOptions options;
  if (const auto* tools = row_.find("tools"); tools != nullptr && !tools->is_null()) {
    const bool is_empty_list = tools->is_ints() && tools->ints().empty();
    if (!tools->is_string() && !tools->is_nested() && !is_empty_list)
      refuse(fmt::format("tools must be a list of JSON schemas, received {}", tools->type_name()),
             "Give a list of JSON schemas, or leave the column out.");
    options.tools = tools->is_string()   ? ordered_json_or_discarded(tools->str())
                    : tools->is_nested() ? tools->json()
                                         : ordered_json::array();
  }
  if (options.tools.is_discarded())
    refuse("tools is not valid JSON", "Give a list of JSON schemas, or leave the column out.");
  if (const auto* more = row_.find("chat_template_kwargs"); more != nullptr && !more->is_null()) {
    if (!more->is_nested() || !more->json().is_object())
      refuse("chat_template_kwargs must be an object, received " + more->type_name(),
             "Give an object with the variables of the chat template, or leave the column out.");
    options.variables = more->json();
  }
  return options;
}

bool append_end_token(Example& row, const std::string& name, const Tokenizer& tokenizer) {
  const auto end = tokenizer.special_token("eos_token");
  if (!end)
    throw Error("G-TRL-1", ErrorKind::usage, "the tokenizer has no end token for the texts",
                "Name one with --eos_token, or give a tokenizer that has one.");
  const auto* value = row.find(name);
  if (value == nullptr || !value->is_string() || value->str().ends_with(*end)) return false;
  row.set(name, value->str() + *end);
  return true;
}

size_t completion_start(const std::vector<int64_t>& prompt, const std::vector<int64_t>& whole) {
  const auto same = size_t(std::ranges::mismatch(prompt, whole).in1 - prompt.begin());
  if (same < prompt.size())
    log_warning_once(
        "The tokens of a prompt are not the beginning of the tokens of prompt and completion "
        "together, so the completion begins where they differ. This likely holds for every row.");
  return same;
}

void refuse_images(const Example& row, std::string_view who, const std::string& where) {
  for (const auto* name : {"image", "images"})
    if (row.contains(name))
      throw Error(
          "G-TRL-2", ErrorKind::data,
          fmt::format("{} has a column {}, but the models of {} read text only", where, name, who),
          "Remove the column to train on the text alone.");
}

const Dataset& rows_to_prepare(const DatasetRef& rows, std::string_view who,
                               const std::string& where) {
  if (rows.is_iterable())
    throw Error("G-TRL-1", ErrorKind::usage,
                fmt::format("{} is a stream, which {} cannot prepare", where, who),
                "Give a data set whose rows can be taken in any order.");
  if (rows.map_style()->size() == 0)
    throw Error("G-TRL-2", ErrorKind::data, fmt::format("{} has no rows", where),
                "Give more data.");
  return *rows.map_style();
}

}  // namespace gradus
