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

/// Which text is cut when the input is too long: a boolean, or transformers' names longest_first,
/// only_first, only_second and do_not_truncate.
class Truncation {
 public:
  /// The values.
  enum class Strategy {
    unset,          ///< As longest_first when `max_length` is set, else as none.
    none,           ///< `false` or "do_not_truncate".
    longest_first,  ///< `true`: the longer of two texts, token by token.
    only_first,     ///< Only the first text.
    only_second     ///< Only the second text.
  };

  /// `Strategy::unset`.
  Truncation() = default;
  /// `Strategy::longest_first` or `Strategy::none`.
  Truncation(bool on) : strategy_(on ? Strategy::longest_first : Strategy::none) {}
  /// By name. Throws `Error` G-TEXT-9 with the names that exist.
  Truncation(const std::string& name);
  /// By name. Throws `Error` G-TEXT-9 with the names that exist.
  Truncation(const char* name) : Truncation(std::string(name)) {}
  /// Which of the values it is.
  Strategy strategy() const { return strategy_; }

 private:
  Strategy strategy_ = Strategy::unset;
};

/// Whether short rows are padded: a boolean, or transformers' names longest, max_length and
/// do_not_pad.
class Padding {
 public:
  /// The values.
  enum class Strategy {
    none,       ///< `false` or "do_not_pad".
    longest,    ///< `true`: to the longest row of the call.
    max_length  ///< To `max_length`.
  };

  /// `Strategy::none`.
  Padding() = default;
  /// `Strategy::longest` or `Strategy::none`.
  Padding(bool on) : strategy_(on ? Strategy::longest : Strategy::none) {}
  /// By name. Throws `Error` G-TEXT-9 with the names that exist.
  Padding(const std::string& name);
  /// By name. Throws `Error` G-TEXT-9 with the names that exist.
  Padding(const char* name) : Padding(std::string(name)) {}
  /// Which of the values it is.
  Strategy strategy() const { return strategy_; }

 private:
  Strategy strategy_ = Strategy::none;
};

/// The arguments of transformers' `tokenizer(...)`, by name.
struct EncodeOptions {
  /// Most tokens of a row, special ones included. By default the model's length, where it is known.
  std::optional<int64_t> max_length = std::nullopt;
  Truncation truncation = {};  ///< Which text is cut when the row is too long.
  /// The second text. As in transformers, an empty one counts as none.
  std::optional<std::string> text_pair = std::nullopt;
  bool add_special_tokens = true;           ///< Adds [CLS], [SEP] and the like.
  int64_t stride = 0;                       ///< Tokens that a window shares with the next one.
  bool return_overflowing_tokens = false;   ///< Fills `Encoding::overflowing()`.
  bool return_offsets_mapping = false;      ///< Adds a column; `Encoding::offsets()` needs none.
  bool return_special_tokens_mask = false;  ///< Adds a column.
  std::optional<bool> return_token_type_ids = std::nullopt;  ///< By default if the model takes it.
  std::optional<bool> return_attention_mask = std::nullopt;  ///< By default if the model takes it.
  bool return_length = false;                                ///< Adds the column `length`.
  Padding padding = {};                                      ///< How far rows are padded.
  std::optional<int64_t> pad_to_multiple_of = std::nullopt;  ///< Rounds the padded length up.
  /// Treats special tokens in the text as ordinary text.
  std::optional<bool> split_special_tokens = std::nullopt;
  /// Leaves out offsets, word ids and sequence ids, which is about a third faster.
  bool ids_only = false;
};

/// How ids become text.
struct DecodeOptions {
  bool skip_special_tokens = false;  ///< Leaves out special tokens.
  /// Removes spaces before punctuation; by default as the tokenizer's configuration says.
  std::optional<bool> clean_up_tokenization_spaces = std::nullopt;
};

/// The arguments of `apply_chat_template`, by name.
struct ChatOptions {
  bool add_generation_prompt = false;          ///< Ends with the start of an assistant's message.
  nlohmann::ordered_json tools = nullptr;      ///< A list of JSON schemas.
  bool continue_final_message = false;         ///< Leaves the last message open.
  bool return_assistant_tokens_mask = false;   ///< Needs `{% generation %}` in the template.
  nlohmann::ordered_json documents = nullptr;  ///< Documents for the template.
  /// A template, or the name of one of the tokenizer's templates.
  std::optional<std::string> chat_template = std::nullopt;
  std::string continue_field = "content";  ///< The field that `continue_final_message` leaves open.
  /// Further variables of the template.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  std::optional<int64_t> max_length = std::nullopt;  ///< Most tokens of the result.
  Truncation truncation = false;                     ///< Whether longer results are cut.
};

/// The arguments of `tokenizer.pad(...)`, by name.
struct PadOptions {
  Padding padding = true;                                    ///< How far rows are padded.
  std::optional<int64_t> max_length = std::nullopt;          ///< For `Padding` "max_length".
  std::optional<int64_t> pad_to_multiple_of = std::nullopt;  ///< Rounds the padded length up.
  std::optional<PaddingSide> padding_side = std::nullopt;    ///< By default the tokenizer's.
  std::optional<bool> return_attention_mask = std::nullopt;  ///< By default if the model takes it.
};

/// How a new tokenizer is trained.
struct TokenizerTraining {
  int64_t vocab_size = 30000;  ///< Most entries of the vocabulary.
  int64_t min_frequency = 2;   ///< Rarer pairs are not merged.
  /// They get the first ids, in this order. By default those of the kind of tokenizer.
  std::vector<std::string> special_tokens = {};
  bool lowercase = true;          ///< WordPiece: ignores case.
  bool add_prefix_space = false;  ///< BPE: treats the first word like the others.
};

/// A tokenizer that gives the same ids, offsets, texts and files as transformers' fast tokenizers.
///
/// Thread-safety: const members may be called from several threads at the same time. Call `add_…`
/// and `set_…` before it is shared.
class Tokenizer : public TokenizerLike {
 public:
  /// Loads a tokenizer from a model folder: tokenizer.json, tokenizer_config.json,
  /// special_tokens_map.json, added_tokens.json, chat_template.jinja, chat_templates/ and, for the
  /// kind of model, config.json.
  ///
  /// Truncation and padding stored in tokenizer.json are not applied. `settings` is an object that
  /// replaces keys of tokenizer_config.json: {"add_prefix_space": true}. Throws `Error` G-TEXT-2,
  /// or G-TEXT-1 in a build without the tokenizer.
  static std::shared_ptr<Tokenizer> from_pretrained(const std::filesystem::path& directory,
                                                    const nlohmann::json& settings = nullptr);
  /// Loads a tokenizer from a tokenizer.json alone. Throws as `from_pretrained`.
  static std::shared_ptr<Tokenizer> from_file(const std::filesystem::path& tokenizer_json);

  /// Trains a byte-level BPE tokenizer, as GPT-2 has, from text files. Throws `Error` G-TEXT-6.
  static std::shared_ptr<Tokenizer> train_bpe(const std::vector<std::filesystem::path>& files,
                                              const TokenizerTraining& training = {});
  /// Trains a WordPiece tokenizer, as BERT has. Throws `Error` G-TEXT-6.
  static std::shared_ptr<Tokenizer> train_wordpiece(const std::vector<std::filesystem::path>& files,
                                                    const TokenizerTraining& training = {});
  /// Trains a Unigram tokenizer, as T5 has. Throws `Error` G-TEXT-6.
  static std::shared_ptr<Tokenizer> train_unigram(const std::vector<std::filesystem::path>& files,
                                                  const TokenizerTraining& training = {});

  ~Tokenizer() override;

  /// Writes tokenizer.json, tokenizer_config.json and the chat templates. Both transformers and
  /// `from_pretrained` read the same tokenizer back.
  void save_pretrained(const std::filesystem::path& directory) const override;

  /// Encodes one text, or with `text_pair` two. Throws `Error` G-TEXT-3 for text that is not UTF-8
  /// and for a `max_length` that leaves no room.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// Encodes a text given as words (`is_split_into_words`), which `word_ids()` then numbers.
  /// `text_pair` is ignored.
  Encoding encode_words(std::span<const std::string> words,
                        const EncodeOptions& options = {}) const;
  /// Encodes many texts on `threads` threads; 0 uses all cores. `pairs` is empty or has one second
  /// text for each text. `text_pair` is ignored.
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     const EncodeOptions& options = {},
                                     std::span<const std::string> pairs = {},
                                     int64_t threads = 0) const;
  /// The tokens of a text as the vocabulary spells them, without special tokens.
  std::vector<std::string> tokenize(std::string_view text) const;

  /// The text of ids. As in transformers, ids outside the vocabulary are skipped. Throws `Error`
  /// G-TEXT-5 for a negative id.
  std::string decode(std::span<const int64_t> ids, const DecodeOptions& options = {}) const;
  /// The same for a vector.
  std::string decode(const std::vector<int64_t>& ids, const DecodeOptions& options = {}) const;
  /// The same for a tensor of one row, of any integer type and on any device.
  std::string decode(const torch::Tensor& ids, const DecodeOptions& options = {}) const;
  /// The text of each row.
  std::vector<std::string> batch_decode(const torch::Tensor& rows,
                                        const DecodeOptions& options = {}) const;
  /// The text of each row.
  std::vector<std::string> batch_decode(const std::vector<std::vector<int64_t>>& rows,
                                        const DecodeOptions& options = {}) const;

  /// The id of a token, or that of the unknown token; unset when there is neither.
  std::optional<int64_t> convert_tokens_to_ids(std::string_view token) const;
  /// The tokens of ids; unset for ids outside the vocabulary.
  std::vector<std::optional<std::string>> convert_ids_to_tokens(std::span<const int64_t> ids) const;
  std::optional<std::string> id_to_token(int64_t id) const override;

  /// Pads rows to one length and stacks them, as `tokenizer.pad(..., return_tensors="pt")` does.
  /// Throws `Error` G-TEXT-10 when there is no padding token, a row has no input_ids, or the rows
  /// cannot be stacked.
  Batch pad(const std::vector<Example>& rows, const PadOptions& options = {}) const;

  /// Renders a conversation, a list of objects with "role" and "content", as text.
  ///
  /// Throws `Error` G-TEXT-7 for a template that is not valid Jinja, G-TEXT-8 when the template
  /// refuses the conversation, and G-TEXT-11 for wrong options or messages and when there is no
  /// template.
  std::string render_chat(const nlohmann::ordered_json& messages,
                          const ChatOptions& options = {}) const;
  /// The same as ids, without adding special tokens.
  Encoding apply_chat_template(const nlohmann::ordered_json& messages,
                               const ChatOptions& options = {}) const;
  /// Whether there is a default chat template.
  bool has_chat_template() const;
  /// The default chat template. Throws `Error` G-TEXT-11 when there is none.
  std::string chat_template() const;
  /// Sets the default chat template, in Jinja.
  void set_chat_template(std::string source);

  /// The text of a special token by its role: bos_token, eos_token, unk_token, sep_token,
  /// pad_token, cls_token, mask_token or one of the model's own. Unset when there is none.
  std::optional<std::string> special_token(std::string_view name) const;
  /// The id of a special token by its role; unset when there is none.
  std::optional<int64_t> special_token_id(std::string_view name) const;
  /// The id of the start token.
  std::optional<int64_t> bos_token_id() const override { return special_token_id("bos_token"); }
  /// The id of the end token.
  std::optional<int64_t> eos_token_id() const override { return special_token_id("eos_token"); }
  /// The id of the unknown token.
  std::optional<int64_t> unk_token_id() const { return special_token_id("unk_token"); }
  /// The id of the separator token.
  std::optional<int64_t> sep_token_id() const { return special_token_id("sep_token"); }
  /// The id of the classification token.
  std::optional<int64_t> cls_token_id() const { return special_token_id("cls_token"); }
  std::optional<int64_t> pad_token_id() const override { return special_token_id("pad_token"); }
  /// The id of the mask token.
  std::optional<int64_t> mask_token_id() const override { return special_token_id("mask_token"); }
  /// All special tokens, without duplicates.
  std::vector<std::string> all_special_tokens() const;
  std::vector<int64_t> all_special_ids() const override;
  /// Gives a role to a token of the vocabulary, as Python's `tokenizer.pad_token =
  /// tokenizer.eos_token` does. Throws `Error` G-TEXT-5 when the token does not exist.
  void set_special_token(const std::string& name, const std::string& token);
  /// Gives roles to tokens and adds those that are new. Returns how many were added; resize the
  /// model's embeddings then.
  int64_t add_special_tokens(const std::map<std::string, std::string>& tokens);
  /// Adds tokens and returns how many were new. `special` ones are left out when decoding with
  /// `skip_special_tokens`.
  int64_t add_tokens(const std::vector<std::string>& tokens, bool special = false);

  int64_t vocab_size() const;                    ///< Number of tokens, without added ones.
  int64_t full_vocab_size() const override;      ///< With added ones; Python's `len(tokenizer)`.
  std::map<std::string, int64_t> vocab() const;  ///< All tokens and their ids.
  std::map<std::string, int64_t> added_vocab() const;  ///< The added tokens and their ids.
  /// How many special tokens `encode` adds to one text, or to a pair.
  int64_t num_special_tokens_to_add(bool pair = false) const;

  PaddingSide padding_side() const override;   ///< The side on which rows are padded.
  void set_padding_side(PaddingSide side);     ///< Sets the side on which rows are padded.
  PaddingSide truncation_side() const;         ///< The side on which texts are cut.
  void set_truncation_side(PaddingSide side);  ///< Sets the side on which texts are cut.
  std::optional<int64_t> model_max_length() const override;
  void set_model_max_length(std::optional<int64_t> length);  ///< Unset for no limit.
  std::vector<std::string> model_input_names() const override;
  /// The class that transformers would load: "BertTokenizer", "TokenizersBackend" and so on.
  const std::string& tokenizer_class() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  friend struct TokenizerFactory;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradus
