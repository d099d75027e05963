#pragma once

#include <gradus/data/dataset.h>
#include <gradus/text/tokenizer.h>

#include <string>
#include <string_view>
#include <vector>

namespace gradus {

/// Whether a row holds a conversation: a list of messages with roles.
bool is_conversational(const Example& row);
/// Whether a value is a list of messages, objects with the member `key`.
bool is_message_list(const Value* value, const char* key);

/// The values of a row of fine-tuning data, checked. Every function throws `Error` G-TRL-2, which
/// names the set, the row and what was expected, when the row has something else.
class RowReader {
 public:
  /// `where` names the set. The row is read when a function is called; it may change in between.
  RowReader(const Example& row, const std::string& where, int64_t number, std::string advice)
      : row_(row), where_(where), number_(number), advice_(std::move(advice)) {}

  /// Throws: what is wrong, and what to do.
  [[noreturn]] void refuse(const std::string& what, const std::string& advice) const;

  /// The value of a column, not null.
  const Value& column(const std::string& name) const;
  /// A number.
  double number(const std::string& name) const;
  /// A text.
  const std::string& text(const std::string& name) const;
  /// A list of whole numbers.
  std::vector<int64_t> list(const std::string& name) const;
  /// A list of whole numbers, one for each of `tokens` tokens.
  std::vector<int64_t> list_for(const std::string& name, size_t tokens) const;
  /// A list of messages.
  nlohmann::ordered_json messages(const std::string& name) const;
  /// The tokens of a conversation. What the chat template refuses names the row.
  Encoding chat_tokens(const Tokenizer& tokenizer, const nlohmann::ordered_json& conversation,
                       const ChatOptions& options) const;
  /// The columns `tools` and `chat_template_kwargs`, for the chat template.
  ChatOptions chat_options() const;

 private:
  const Example& row_;
  const std::string& where_;
  int64_t number_;
  std::string advice_;  ///< when a column is missing
};

/// Adds the end token to a column of text that lacks it; leaves others as they are. Returns whether
/// it was added. Throws `Error` G-TRL-1 when the tokenizer has none.
bool append_end_token(Example& row, const std::string& name, const Tokenizer& tokenizer);

/// How many tokens `prompt` and `whole` have in common at the beginning, which is where the
/// completion starts. Warns once when that is not all of the prompt.
size_t completion_start(const std::vector<int64_t>& prompt, const std::vector<int64_t>& whole);

/// Refuses rows with images for a trainer of language models. Throws `Error` G-TRL-2.
void refuse_images(const Example& row, std::string_view who, const std::string& where);

/// The rows of a set that `who` prepares: not a stream, and not empty. Throws `Error` G-TRL-1 and
/// G-TRL-2.
const Dataset& rows_to_prepare(const DatasetRef& rows, std::string_view who,
                               const std::string& where);

}  // namespace gradus
