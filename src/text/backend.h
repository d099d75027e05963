#pragma once

#include <gradus/text/encoding.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::text {

enum class TruncationStrategy { none, longest_first, only_first, only_second };

struct BackendOptions {
  TruncationStrategy truncation = TruncationStrategy::none;
  int64_t max_length = 0;
  int64_t stride = 0;
  bool truncate_left = false;
  bool add_special_tokens = true;
  bool details = true;
  bool split_special_tokens = false;
};

/// The windows of one input: the encoding, then what did not fit.
using Windows = std::vector<EncodingWindow>;

/// The tokenizer of tokenizers-c behind C++ types. In a build without it every function throws
/// G-TEXT-1.
///
/// Thread-safety: any thread, at once; changes wait for running encodes.
class Backend {
 public:
  /// `baked` receives the truncation and padding of the file, which are not applied.
  /// Throws G-TEXT-2 with `where` when the text is not a tokenizer.
  static std::unique_ptr<Backend> from_json(std::string_view json, const std::string& where,
                                            nlohmann::json& baked);
  /// Throws G-TEXT-6.
  static std::unique_ptr<Backend> train(std::span<const std::string> files,
                                        const nlohmann::json& options);
  ~Backend();

  std::string to_json() const;
  void set_component(std::string_view component, const nlohmann::json& value);
  nlohmann::json component(std::string_view component) const;
  std::string model_type() const;
  /// How many of `tokens` (as in tokenizer.json's "added_tokens", ids not read) were not in the
  /// vocabulary yet.
  int64_t add_tokens(const nlohmann::json& tokens);
  nlohmann::json added_tokens() const;
  nlohmann::json vocab() const;
  int64_t vocab_size(bool with_added) const;
  std::optional<int64_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int64_t id) const;
  int64_t special_tokens_to_add(bool pair) const;

  /// Throws G-TEXT-3. `second` is empty or as long as `first`.
  std::vector<Windows> encode(std::span<const std::string_view> first,
                              std::span<const std::string_view> second,
                              const BackendOptions& options, int64_t threads) const;
  Windows encode_words(std::span<const std::string> first, const std::vector<std::string>* second,
                       const BackendOptions& options) const;
  std::string decode(std::span<const uint32_t> ids, bool skip_special_tokens) const;

 private:
  struct Handle;
  explicit Backend(std::unique_ptr<Handle> handle);
  std::unique_ptr<Handle> handle_;
};

/// Python's `str.lower()`. Throws G-TEXT-3 for text that is not UTF-8.
std::string lowercase(std::string_view text);
/// Python's `str.upper()`. Throws as `lowercase`.
std::string uppercase(std::string_view text);
/// What Python knows of a character: bits 1 for `\w`, 2 for `\d`, 4 for upper and 8 for lower
/// case, 16 for `\w` as Unicode defines it.
uint32_t character_class(char32_t character);

/// A compiled chat template.
class ChatTemplate {
 public:
  struct Rendered {
    std::string text;
    std::vector<std::pair<int64_t, int64_t>>
        spans;  ///< of `{% generation %}` blocks, in characters
  };

  /// Throws G-TEXT-7 when it cannot be parsed.
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  /// `context` holds the template's variables. Throws G-TEXT-8 with the template's own words.
  Rendered render(const nlohmann::ordered_json& context, bool want_spans) const;

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace gradus::text
