#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// The end of a row at which padding is added.
enum class PaddingSide { right, left };

/// What collators and trainers need to know about a tokenizer. `Tokenizer` implements it; a test
/// can use a small struct of its own.
///
/// Thread-safety: several loader threads call every member at once.
struct TokenizerLike {
  virtual ~TokenizerLike() = default;

  // Ids of special tokens. `nullopt`: the tokenizer has no such token.

  virtual std::optional<int64_t> pad_token_id() const = 0;                      ///< Padding.
  virtual std::optional<int64_t> mask_token_id() const = 0;                     ///< Mask.
  virtual std::optional<int64_t> bos_token_id() const { return std::nullopt; }  ///< Start of text.
  virtual std::optional<int64_t> eos_token_id() const { return std::nullopt; }  ///< End of text.
  /// What `token_type_ids` are padded with.
  virtual int64_t pad_token_type_id() const { return 0; }
  /// Where padding is added.
  virtual PaddingSide padding_side() const { return PaddingSide::right; }
  /// The number of ids, with added tokens: `len(tokenizer)` in transformers.
  virtual int64_t full_vocab_size() const = 0;
  /// The ids of all special tokens, without repeats.
  virtual std::vector<int64_t> all_special_ids() const = 0;
  /// The longest input the model takes; `nullopt` when unknown.
  virtual std::optional<int64_t> model_max_length() const { return std::nullopt; }
  /// The inputs of the model. With `attention_mask` among them, rows without a mask get one.
  virtual std::vector<std::string> model_input_names() const {
    return {"input_ids", "token_type_ids", "attention_mask"};
  }
  /// The token of an id as the vocabulary spells it ("##ing"); `nullopt` when unknown.
  virtual std::optional<std::string> id_to_token(int64_t id) const;
  /// Writes the tokenizer's files into an existing folder. The Trainer calls it for every save. The
  /// default writes nothing.
  virtual void save_pretrained(const std::filesystem::path& directory) const;
};

inline std::optional<std::string> TokenizerLike::id_to_token(int64_t) const { return std::nullopt; }
inline void TokenizerLike::save_pretrained(const std::filesystem::path&) const {}

}  // namespace gradus
