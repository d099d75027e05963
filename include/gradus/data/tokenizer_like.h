#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

enum class PaddingSide { right, left };

/// What collators need to know of a tokenizer. `Tokenizer` is one; a small struct of one's own will
/// do in a test.
///
/// Thread-safety: every member is called by several loader threads at once.
struct TokenizerLike {
  virtual ~TokenizerLike() = default;

  /// Nothing when the tokenizer has no such token.
  virtual std::optional<int64_t> pad_token_id() const = 0;
  virtual std::optional<int64_t> mask_token_id() const = 0;
  virtual std::optional<int64_t> bos_token_id() const { return std::nullopt; }
  virtual std::optional<int64_t> eos_token_id() const { return std::nullopt; }
  /// What `token_type_ids` are filled up with.
  virtual int64_t pad_token_type_id() const { return 0; }
  virtual PaddingSide padding_side() const { return PaddingSide::right; }
  /// How many ids there are, added tokens included: `len(tokenizer)`.
  virtual int64_t full_vocab_size() const = 0;
  /// The ids of all special tokens, without repeats.
  virtual std::vector<int64_t> all_special_ids() const = 0;
  /// The longest input the model takes, where that is known.
  virtual std::optional<int64_t> model_max_length() const { return std::nullopt; }
  /// The columns the model reads: decides whether `attention_mask` is made when rows have none.
  virtual std::vector<std::string> model_input_names() const {
    return {"input_ids", "token_type_ids", "attention_mask"};
  }
  /// The text of one id as the vocabulary spells it ("##ing"); nothing when it cannot say.
  virtual std::optional<std::string> id_to_token(int64_t id) const;
  /// Writes the tokenizer's files into a folder that exists, where it has any: the Trainer calls it
  /// for every save.
  virtual void save_pretrained(const std::filesystem::path& directory) const;
};

inline std::optional<std::string> TokenizerLike::id_to_token(int64_t) const { return std::nullopt; }
inline void TokenizerLike::save_pretrained(const std::filesystem::path&) const {}

}  // namespace gradus
