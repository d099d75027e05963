#pragma once

#include <gradus/text/tokenizer.h>

#include <atomic>
#include <mutex>

#include "text/backend.h"
#include "text/tokenizer_settings.h"

namespace gradus {

struct Tokenizer::Impl {
  std::unique_ptr<text::Backend> backend;
  text::TokenizerSettings settings;
  std::string model_type;
  mutable std::atomic<bool> warned_too_long = false;

  /// Templates compiled so far, by source.
  mutable std::mutex mutex;
  mutable std::map<std::string, std::shared_ptr<const text::ChatTemplate>> templates;

  std::shared_ptr<const text::ChatTemplate> compiled(const std::string& source) const;
};

/// Makes tokenizers for the files of this folder.
struct TokenizerFactory {
  static std::shared_ptr<Tokenizer> make(std::unique_ptr<text::Backend> backend,
                                         text::TokenizerSettings settings);
};

namespace text {

/// Fills `window` up to `length` on `side`, as the fast tokenizers do.
void pad_window(EncodingWindow& window, int64_t length, PaddingSide side, int64_t pad_id,
                int64_t pad_type_id);

/// The length rows of `longest` tokens are filled up to; nothing when they are left as they are.
std::optional<int64_t> padded_length(Padding::Strategy strategy, int64_t longest,
                                     std::optional<int64_t> max_length,
                                     std::optional<int64_t> multiple);

}  // namespace text
}  // namespace gradus
