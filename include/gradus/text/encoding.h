#pragma once

#include <gradus/data/batch.h>
#include <gradus/data/example.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

/// One row of token ids and what is known about each. All lists that are not empty have the same
/// length.
struct EncodingWindow {
  std::vector<int64_t> ids;                  ///< The token ids.
  std::vector<int64_t> type_ids;             ///< 0 for the first text, 1 for the second (BERT).
  std::vector<int64_t> attention_mask;       ///< 1 for a token, 0 for padding.
  std::vector<int64_t> special_tokens_mask;  ///< 1 for a special token.
  /// The token's place in its text: first character and one past the last one. These are
  /// characters, not bytes. Empty with `ids_only`.
  std::vector<std::pair<int64_t, int64_t>> offsets;
  /// The number of the token's word; unset for special tokens. Empty with `ids_only`.
  std::vector<std::optional<int64_t>> word_ids;
  /// 0 for the first text, 1 for the second, unset for special tokens. Empty with `ids_only`.
  std::vector<std::optional<int64_t>> sequence_ids;
};

/// The result of `Tokenizer::encode`: token ids and everything known about them.
///
/// It converts to an `Example` with the columns that the model takes, in transformers' order:
/// `input_ids`, `token_type_ids`, `attention_mask`, then those asked for. So a function that
/// encodes a row can return it. An encoding is a value; copying copies the lists. Thread-safety: as
/// a `std::vector`.
class Encoding {
 public:
  /// The columns of `example()` and `batch()` beside `input_ids`.
  struct Columns {
    bool token_type_ids = false;       ///< Has `token_type_ids`.
    bool attention_mask = true;        ///< Has `attention_mask`.
    bool special_tokens_mask = false;  ///< Has `special_tokens_mask`.
    bool offset_mapping = false;       ///< Has `offset_mapping`.
    bool length = false;               ///< Has `length`.
  };

  /// No tokens.
  Encoding() = default;
  /// One window of ids.
  Encoding(EncodingWindow window, Columns columns)
      : window_(std::move(window)), columns_(columns) {}

  /// Number of tokens.
  int64_t size() const { return static_cast<int64_t>(window_.ids.size()); }
  /// The token ids.
  const std::vector<int64_t>& ids() const { return window_.ids; }
  /// 0 for tokens of the first text, 1 for those of the second.
  const std::vector<int64_t>& type_ids() const { return window_.type_ids; }
  /// 1 for tokens, 0 for padding.
  const std::vector<int64_t>& attention_mask() const { return window_.attention_mask; }
  /// 1 for special tokens.
  const std::vector<int64_t>& special_tokens_mask() const { return window_.special_tokens_mask; }
  /// See `EncodingWindow::offsets`. Throws `Error` G-TEXT-4 after an encode with `ids_only`.
  const std::vector<std::pair<int64_t, int64_t>>& offsets() const;
  /// See `EncodingWindow::word_ids`. Throws `Error` G-TEXT-4 after an encode with `ids_only`.
  const std::vector<std::optional<int64_t>>& word_ids() const;
  /// See `EncodingWindow::sequence_ids`. Throws `Error` G-TEXT-4 after an encode with `ids_only`.
  const std::vector<std::optional<int64_t>>& sequence_ids() const;
  /// 1 for tokens that an assistant wrote; empty without `return_assistant_tokens_mask`.
  const std::vector<int64_t>& assistant_masks() const { return assistant_masks_; }
  /// Sets `assistant_masks`; one value per token.
  void set_assistant_masks(std::vector<int64_t> masks) { assistant_masks_ = std::move(masks); }

  /// The further windows of a text longer than `max_length`, with `return_overflowing_tokens`.
  const std::vector<Encoding>& overflowing() const { return overflowing_; }
  /// Sets `overflowing`.
  void set_overflowing(std::vector<Encoding> windows) { overflowing_ = std::move(windows); }

  /// The first token that covers character `position` of the first (0) or second (1) text; unset
  /// when there is none.
  std::optional<int64_t> char_to_token(int64_t position, int64_t sequence = 0) const;
  /// The first token of word `word` and one past its last; unset when there is none.
  std::optional<std::pair<int64_t, int64_t>> word_to_tokens(int64_t word,
                                                            int64_t sequence = 0) const;

  /// One row with the columns above. `offset_mapping` is a nested list: [[begin, end], …].
  Example example() const;
  /// The same as `example()`.
  operator Example() const { return example(); }
  /// The same columns as tensors of shape (1, length).
  Batch batch() const;

  /// All lists of this encoding.
  const EncodingWindow& window() const { return window_; }
  /// All lists, to change them.
  EncodingWindow& window() { return window_; }
  /// Which columns `example()` has.
  const Columns& columns() const { return columns_; }

 private:
  EncodingWindow window_;
  Columns columns_;
  std::vector<int64_t> assistant_masks_;
  std::vector<Encoding> overflowing_;
};

}  // namespace gradus
