#pragma once

#include <gradus/data/tokenizer_like.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gradus {

/// The special symbols of a CTC vocabulary; transformers' `Wav2Vec2CTCTokenizer` has these
/// defaults.
struct CTCTokens {
  std::string bos_token = "<s>";           ///< Start of text; not used by CTC. Empty: none.
  std::string eos_token = "</s>";          ///< End of text; not used by CTC. Empty: none.
  std::string unk_token = "<unk>";         ///< Stands for characters that are not known.
  std::string pad_token = "<pad>";         ///< Padding, and CTC's blank.
  std::string word_delimiter_token = "|";  ///< Stands for the space between words.
  bool do_lower_case = false;              ///< The vocabulary has capitals, texts may not.
  /// What decoded texts have where the delimiter stands.
  std::string replace_word_delimiter_char = " ";
  std::vector<std::string> extra_special_tokens = {};  ///< Further ones, which CTC does not use.
};

/// A symbol that is not in vocab.json but was added to it.
struct CTCAddedToken {
  int64_t id = 0;             ///< Its number.
  bool takes_spaces = false;  ///< Whether spaces beside it belong to it.
};

/// Characters and their numbers, for models that write down speech. Files and numbers are those of
/// transformers' `Wav2Vec2CTCTokenizer`: vocab.json, tokenizer_config.json, added_tokens.json.
///
/// Thread-safety: none is needed, it does not change.
class CTCTokenizer : public TokenizerLike {
 public:
  /// `vocabulary` maps characters to numbers, as vocab.json does; `added` are symbols beside it.
  /// Special symbols that both lack get the numbers after the last.
  explicit CTCTokenizer(std::map<std::string, int64_t> vocabulary, CTCTokens tokens = {},
                        std::map<std::string, CTCAddedToken> added = {});
  /// Reads vocab.json of a folder, and tokenizer_config.json, special_tokens_map.json and
  /// added_tokens.json where they are. Of a vocab.json with a table for each language it takes that
  /// of `target_lang`. Throws `Error` G-AUDIO-7 when vocab.json is missing or is not a table of
  /// numbers.
  static CTCTokenizer from_pretrained(const std::filesystem::path& folder);
  /// The same with other special symbols than those of the folder.
  static CTCTokenizer from_vocabulary(const std::filesystem::path& vocab_json, CTCTokens tokens);

  /// The numbers of a text, one for each character; a space is the word delimiter.
  std::vector<int64_t> encode(std::string_view text) const;
  /// The text of numbers. With `group_tokens` equal neighbours become one, as in CTC's output;
  /// references are decoded without. Blanks vanish; unknown numbers become the unknown symbol.
  std::string decode(std::span<const int64_t> ids, bool group_tokens = true) const;
  /// `decode` for each row of a matrix of numbers.
  std::vector<std::string> batch_decode(const torch::Tensor& ids, bool group_tokens = true) const;

  std::optional<int64_t> pad_token_id() const override { return pad_; }
  std::optional<int64_t> mask_token_id() const override { return std::nullopt; }
  std::optional<int64_t> bos_token_id() const override { return id_of(tokens_.bos_token); }
  std::optional<int64_t> eos_token_id() const override { return id_of(tokens_.eos_token); }
  /// One more than the largest number.
  int64_t full_vocab_size() const override;
  std::vector<int64_t> all_special_ids() const override;
  std::vector<std::string> model_input_names() const override {
    return {"input_values", "attention_mask", "labels"};
  }
  std::optional<std::string> id_to_token(int64_t id) const override;
  void save_pretrained(const std::filesystem::path& directory) const override;

  /// The symbols.
  const CTCTokens& tokens() const { return tokens_; }

 private:
  /// A symbol that is looked for before a text is read by characters.
  struct LongSymbol {
    std::string text;
    bool takes_spaces = false;
  };

  std::optional<int64_t> id_of(const std::string& token) const;
  /// The special symbols there are.
  std::vector<std::string> special_tokens() const;

  std::map<std::string, int64_t> vocabulary_;
  std::map<std::string, CTCAddedToken> added_;
  std::unordered_map<int64_t, std::string> symbols_;
  std::vector<LongSymbol> long_symbols_;  ///< longest first
  CTCTokens tokens_;
  int64_t pad_ = 0;
  std::optional<int64_t> unknown_;
};

/// The vocabulary of texts, as run_speech_recognition_ctc builds it: all characters in order, the
/// word delimiter in the place of the space, then the unknown symbol and the padding.
///
/// Several lists of texts (training and evaluation) may be given one after the other. The order of
/// the result is that of the script's vocab.json.
std::vector<std::pair<std::string, int64_t>> ctc_vocabulary(std::span<const std::string> texts,
                                                            const CTCTokens& tokens);

/// vocab.json of such a vocabulary, in its order.
std::string vocabulary_json(std::span<const std::pair<std::string, int64_t>> vocabulary);

/// How `beam_decode` searches.
struct BeamOptions {
  int64_t beams = 100;      ///< Prefixes that are kept after each frame.
  int64_t blank = 0;        ///< Number of the blank.
  double threshold = -1e9;  ///< Symbols with a lower log probability are left out of a frame.
};

/// What a search found.
struct BeamResult {
  std::vector<int64_t> ids;    ///< Numbers of the symbols, without repeats and blanks.
  double log_probability = 0;  ///< Of all alignments that the search has seen.
};

/// The most probable symbols of one clip, over all their alignments: CTC's prefix beam search.
///
/// `log_probabilities` is (frames, symbols). Greedy decoding is `argmax` and
/// `CTCTokenizer::decode`.
BeamResult beam_decode(const torch::Tensor& log_probabilities, const BeamOptions& options = {});

/// Words that must be changed, left out or added, over the words of the references: jiwer's `wer`.
/// Without a word in the references it is the number of words that were added. Throws `Error`
/// G-AUDIO-8 when the lists differ in length.
double word_error_rate(std::span<const std::string> references,
                       std::span<const std::string> predictions);
/// The same for characters: jiwer's `cer`.
double character_error_rate(std::span<const std::string> references,
                            std::span<const std::string> predictions);

}  // namespace gradus
