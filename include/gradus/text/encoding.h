#pragma once

#include <gradus/data/batch.h>
#include <gradus/data/example.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

/// One row of ids with what belongs to each; all lists have the same length.
struct EncodingWindow {
  std::vector<int64_t> ids;
  std::vector<int64_t> type_ids;
  std::vector<int64_t> attention_mask;
  std::vector<int64_t> special_tokens_mask;
  /// Where the token stands in its text: first and past-the-last character (not byte). Empty with
  /// `ids_only`.
  std::vector<std::pair<int64_t, int64_t>> offsets;
  /// Number of the word the token is part of; nothing for special tokens. Empty with `ids_only`.
  std::vector<std::optional<int64_t>> word_ids;
  /// 0: first text, 1: second; nothing for special tokens. Empty with `ids_only`.
  std::vector<std::optional<int64_t>> sequence_ids;
};

/// What `Tokenizer::encode` makes of a text: ids and everything known about them.
///
/// It turns into an `Example` by itself, with the columns the model takes in transformers' order
/// (`input_ids`, `token_type_ids`, `attention_mask`, then those asked for), so a function that
/// encodes a row can return it. A value; copying copies the lists. Thread-safety: as a
/// `std::vector`.
class Encoding {
 public:
  /// Which columns `example()` and `batch()` have beside `input_ids`.
  struct Columns {
    bool token_type_ids = false;
    bool attention_mask = true;
    bool special_tokens_mask = false;
    bool offset_mapping = false;
    bool length = false;
  };

  Encoding() = default;
  Encoding(EncodingWindow window, Columns columns)
      : window_(std::move(window)), columns_(columns) {}

  int64_t size() const { return static_cast<int64_t>(window_.ids.size()); }
  const std::vector<int64_t>& ids() const { return window_.ids; }
  const std::vector<int64_t>& type_ids() const { return window_.type_ids; }
  const std::vector<int64_t>& attention_mask() const { return window_.attention_mask; }
  const std::vector<int64_t>& special_tokens_mask() const { return window_.special_tokens_mask; }
  /// The next three throw `Error` G-TEXT-4 after an encode with `ids_only`.
  const std::vector<std::pair<int64_t, int64_t>>& offsets() const;
  const std::vector<std::optional<int64_t>>& word_ids() const;
  const std::vector<std::optional<int64_t>>& sequence_ids() const;
  /// 1 for tokens an assistant wrote; empty unless `return_assistant_tokens_mask` was asked for.
  const std::vector<int64_t>& assistant_masks() const { return assistant_masks_; }
  void set_assistant_masks(std::vector<int64_t> masks) { assistant_masks_ = std::move(masks); }

  /// The windows after this one when the text was longer than `max_length` and
  /// `return_overflowing_tokens` was asked for.
  const std::vector<Encoding>& overflowing() const { return overflowing_; }
  void set_overflowing(std::vector<Encoding> windows) { overflowing_ = std::move(windows); }

  /// The first token that covers character `position` of the first (0) or second (1) text; nothing
  /// when none does.
  std::optional<int64_t> char_to_token(int64_t position, int64_t sequence = 0) const;
  /// First and past-the-last token of word `word`.
  std::optional<std::pair<int64_t, int64_t>> word_to_tokens(int64_t word,
                                                            int64_t sequence = 0) const;

  /// One row. `offset_mapping` is nested: [[begin, end], …].
  Example example() const;
  operator Example() const { return example(); }
  /// Tensors of shape [1, length].
  Batch batch() const;

  const EncodingWindow& window() const { return window_; }
  EncodingWindow& window() { return window_; }
  const Columns& columns() const { return columns_; }

 private:
  EncodingWindow window_;
  Columns columns_;
  std::vector<int64_t> assistant_masks_;
  std::vector<Encoding> overflowing_;
};

}  // namespace gradus
