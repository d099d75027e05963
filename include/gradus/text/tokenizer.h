#pragma once

#include <gradus/data/tokenizer_like.h>
#include <gradus/text/encoding.h>
#include <torch/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradus {

/// What to cut when a text is too long: `true` (longest_first), `false`, or transformers' names
/// longest_first, only_first, only_second, do_not_truncate. Not set: longest_first when
/// `max_length` is given, else nothing.
class Truncation {
 public:
  enum class Strategy { unset, none, longest_first, only_first, only_second };

  Truncation() = default;
  Truncation(bool on) : strategy_(on ? Strategy::longest_first : Strategy::none) {}
  /// Throws `Error` G-TEXT-9 with the names there are.
  Truncation(const std::string& name);
  Truncation(const char* name) : Truncation(std::string(name)) {}
  Strategy strategy() const { return strategy_; }

 private:
  Strategy strategy_ = Strategy::unset;
};

/// Whether to fill up short rows: `true` or "longest" (to the longest of the call), "max_length",
/// `false` or "do_not_pad".
class Padding {
 public:
  enum class Strategy { none, longest, max_length };

  Padding() = default;
  Padding(bool on) : strategy_(on ? Strategy::longest : Strategy::none) {}
  /// Throws `Error` G-TEXT-9 with the names there are.
  Padding(const std::string& name);
  Padding(const char* name) : Padding(std::string(name)) {}
  Strategy strategy() const { return strategy_; }

 private:
  Strategy strategy_ = Strategy::none;
};

/// The arguments of transformers' `tokenizer(...)`, by name.
struct EncodeOptions {
  std::optional<int64_t> max_length =
      std::nullopt;  ///< in tokens, special ones included; default: the model's, where it is known
  Truncation truncation = {};
  std::optional<std::string> text_pair =
      std::nullopt;  ///< the second text; an empty one counts as none, as in transformers
  bool add_special_tokens = true;
  int64_t stride = 0;  ///< tokens of a window repeated at the start of the next
  bool return_overflowing_tokens = false;
  bool return_offsets_mapping =
      false;  ///< as column `offset_mapping`; `Encoding::offsets()` is there without it
  bool return_special_tokens_mask = false;                   ///< as a column
  std::optional<bool> return_token_type_ids = std::nullopt;  ///< default: when the model takes them
  std::optional<bool> return_attention_mask = std::nullopt;  ///< default: when the model takes it
  bool return_length = false;                                ///< as column `length`
  Padding padding = {};
  std::optional<int64_t> pad_to_multiple_of = std::nullopt;
  std::optional<bool> split_special_tokens =
      std::nullopt;       ///< special tokens in the text are ordinary text
  bool ids_only = false;  ///< no offsets, word ids and sequence ids: about a third faster
};

struct DecodeOptions {
  bool skip_special_tokens = false;
  std::optional<bool> clean_up_tokenization_spaces =
      std::nullopt;  ///< default: as the tokenizer's configuration says
};

/// The arguments of `apply_chat_template`, by name.
struct ChatOptions {
  bool add_generation_prompt = false;
  nlohmann::ordered_json tools = nullptr;  ///< a list of JSON schemas
  bool continue_final_message = false;
  bool return_assistant_tokens_mask = false;  ///< needs a template with `{% generation %}` blocks
  nlohmann::ordered_json documents = nullptr;
  std::optional<std::string> chat_template =
      std::nullopt;                        ///< a template, or the name of one of the tokenizer's
  std::string continue_field = "content";  ///< what of the final message is continued
  nlohmann::ordered_json variables =
      nlohmann::ordered_json::object();  ///< more variables for the template
  std::optional<int64_t> max_length = std::nullopt;
  Truncation truncation = false;
};

struct PadOptions {
  Padding padding = true;
  std::optional<int64_t> max_length = std::nullopt;
  std::optional<int64_t> pad_to_multiple_of = std::nullopt;
  std::optional<PaddingSide> padding_side = std::nullopt;
  std::optional<bool> return_attention_mask = std::nullopt;
};

struct TokenizerTraining {
  int64_t vocab_size = 30000;
  int64_t min_frequency = 2;
  std::vector<std::string> special_tokens =
      {};                         ///< first ids, in this order; default: those of the kind
  bool lowercase = true;          ///< WordPiece
  bool add_prefix_space = false;  ///< BPE
};

/// A tokenizer as transformers' fast ones are: the same ids, offsets, texts and files.
///
/// Thread-safety: all const members from any thread, at once. `add_…` and `set_…` are for the
/// time before it is shared.
class Tokenizer : public TokenizerLike {
 public:
  /// From a model folder: tokenizer.json, tokenizer_config.json, special_tokens_map.json,
  /// added_tokens.json, chat_template.jinja and chat_templates/, config.json (for the kind of
  /// model). Truncation and padding baked into tokenizer.json are not applied. `settings` (an
  /// object) replace keys of tokenizer_config.json: {"add_prefix_space": true}. Throws `Error`
  /// G-TEXT-2, or G-TEXT-1 in a build without the tokenizer.
  static std::shared_ptr<Tokenizer> from_pretrained(const std::filesystem::path& directory,
                                                    const nlohmann::json& settings = nullptr);
  /// From a tokenizer.json alone.
  static std::shared_ptr<Tokenizer> from_file(const std::filesystem::path& tokenizer_json);

  /// New tokenizers from text files: byte-level BPE (as GPT-2), WordPiece (as BERT), Unigram (as
  /// T5). Throws G-TEXT-6.
  static std::shared_ptr<Tokenizer> train_bpe(const std::vector<std::filesystem::path>& files,
                                              const TokenizerTraining& training = {});
  static std::shared_ptr<Tokenizer> train_wordpiece(const std::vector<std::filesystem::path>& files,
                                                    const TokenizerTraining& training = {});
  static std::shared_ptr<Tokenizer> train_unigram(const std::vector<std::filesystem::path>& files,
                                                  const TokenizerTraining& training = {});

  ~Tokenizer() override;

  /// Writes tokenizer.json, tokenizer_config.json and the chat templates so that transformers and
  /// `from_pretrained` read the same tokenizer back.
  void save_pretrained(const std::filesystem::path& directory) const override;

  /// Throws G-TEXT-3 for text that is not UTF-8 or a max_length without room.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// A text given as words (`is_split_into_words`); `word_ids()` number these. `text_pair` is not
  /// read.
  Encoding encode_words(std::span<const std::string> words,
                        const EncodeOptions& options = {}) const;
  /// Many texts on `threads` threads (0: all cores). `pairs` is empty or as long as `texts`;
  /// `text_pair` is not read.
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     const EncodeOptions& options = {},
                                     std::span<const std::string> pairs = {},
                                     int64_t threads = 0) const;
  /// The tokens as the vocabulary spells them, without special ones.
  std::vector<std::string> tokenize(std::string_view text) const;

  /// Ids outside the vocabulary are passed over, as in transformers. Throws G-TEXT-5 for a negative
  /// id.
  std::string decode(std::span<const int64_t> ids, const DecodeOptions& options = {}) const;
  std::string decode(const std::vector<int64_t>& ids, const DecodeOptions& options = {}) const;
  /// A row of integers of any kind, on any device.
  std::string decode(const torch::Tensor& ids, const DecodeOptions& options = {}) const;
  /// One text per row.
  std::vector<std::string> batch_decode(const torch::Tensor& rows,
                                        const DecodeOptions& options = {}) const;
  std::vector<std::string> batch_decode(const std::vector<std::vector<int64_t>>& rows,
                                        const DecodeOptions& options = {}) const;

  /// The id, or that of the unknown token; nothing when there is neither.
  std::optional<int64_t> convert_tokens_to_ids(std::string_view token) const;
  /// Nothing for ids outside the vocabulary.
  std::vector<std::optional<std::string>> convert_ids_to_tokens(std::span<const int64_t> ids) const;
  std::optional<std::string> id_to_token(int64_t id) const override;

  /// Rows filled up to one length and put together, as `tokenizer.pad(..., return_tensors="pt")`.
  /// Throws G-TEXT-10 when there is no padding token, rows have no input_ids or cannot be put
  /// together.
  Batch pad(const std::vector<Example>& rows, const PadOptions& options = {}) const;

  /// The conversation (a list of {"role", "content", …}) as text, or as ids without added special
  /// tokens. Throws G-TEXT-7, G-TEXT-8, G-TEXT-11.
  std::string render_chat(const nlohmann::ordered_json& messages,
                          const ChatOptions& options = {}) const;
  Encoding apply_chat_template(const nlohmann::ordered_json& messages,
                               const ChatOptions& options = {}) const;
  bool has_chat_template() const;
  /// The template used by default. Throws G-TEXT-11 when there is none.
  std::string chat_template() const;
  void set_chat_template(std::string source);

  /// bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token, and the model's
  /// own; nothing when not set.
  std::optional<std::string> special_token(std::string_view name) const;
  std::optional<int64_t> special_token_id(std::string_view name) const;
  std::optional<int64_t> bos_token_id() const override { return special_token_id("bos_token"); }
  std::optional<int64_t> eos_token_id() const override { return special_token_id("eos_token"); }
  std::optional<int64_t> unk_token_id() const { return special_token_id("unk_token"); }
  std::optional<int64_t> sep_token_id() const { return special_token_id("sep_token"); }
  std::optional<int64_t> cls_token_id() const { return special_token_id("cls_token"); }
  std::optional<int64_t> pad_token_id() const override { return special_token_id("pad_token"); }
  std::optional<int64_t> mask_token_id() const override { return special_token_id("mask_token"); }
  std::vector<std::string> all_special_tokens() const;
  std::vector<int64_t> all_special_ids() const override;
  /// Gives a name to a token that is in the vocabulary (`tokenizer.pad_token =
  /// tokenizer.eos_token`). Throws G-TEXT-5.
  void set_special_token(const std::string& name, const std::string& token);
  /// The same for tokens that may be new; how many were. Resize the model's embeddings then.
  int64_t add_special_tokens(const std::map<std::string, std::string>& tokens);
  int64_t add_tokens(const std::vector<std::string>& tokens, bool special = false);

  int64_t vocab_size() const;                ///< without added tokens
  int64_t full_vocab_size() const override;  ///< with them: `len(tokenizer)`
  std::map<std::string, int64_t> vocab() const;
  std::map<std::string, int64_t> added_vocab() const;
  int64_t num_special_tokens_to_add(bool pair = false) const;

  PaddingSide padding_side() const override;
  void set_padding_side(PaddingSide side);
  PaddingSide truncation_side() const;
  void set_truncation_side(PaddingSide side);
  std::optional<int64_t> model_max_length() const override;
  void set_model_max_length(std::optional<int64_t> length);
  std::vector<std::string> model_input_names() const override;
  /// The class transformers would load: "BertTokenizer", "TokenizersBackend", …
  const std::string& tokenizer_class() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  friend struct TokenizerFactory;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradus
