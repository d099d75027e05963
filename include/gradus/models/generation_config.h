#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace gradus {

/// When beam search stops: a boolean or "never".
class EarlyStopping {
 public:
  /// The three values.
  enum class Kind {
    no,    ///< `false`: by a heuristic.
    yes,   ///< `true`: as soon as `num_beams` sequences are complete.
    never  ///< "never": only when no better sequence is possible.
  };
  /// `Kind::yes` or `Kind::no`.
  EarlyStopping(bool on) : kind_(on ? Kind::yes : Kind::no) {}
  /// Takes only "never". Throws `Error` G-GEN-1 for another text.
  EarlyStopping(const char* text) : EarlyStopping(std::string(text)) {}
  /// Takes only "never". Throws `Error` G-GEN-1 for another text.
  EarlyStopping(const std::string& text);
  /// Which of the three it is.
  Kind kind() const { return kind_; }
  /// Whether both are the same.
  bool operator==(const EarlyStopping&) const = default;

 private:
  Kind kind_;
};

/// One token id or a list of them. Remembers which, so that files are written back unchanged.
class TokenIds {
 public:
  /// One id.
  TokenIds(int64_t id) : ids_{id} {}
  /// One id.
  TokenIds(int id) : ids_{id} {}
  /// A list of ids.
  TokenIds(std::vector<int64_t> ids) : ids_(std::move(ids)), is_list_(true) {}
  /// A list of ids.
  TokenIds(std::initializer_list<int64_t> ids) : ids_(ids), is_list_(true) {}
  /// All ids; exactly one unless `is_list()`.
  const std::vector<int64_t>& ids() const { return ids_; }
  /// Whether a list was given.
  bool is_list() const { return is_list_; }
  /// Whether both have the same ids and form.
  bool operator==(const TokenIds&) const = default;

 private:
  std::vector<int64_t> ids_;
  bool is_list_ = false;
};

/// A bias for a sequence of tokens. It is added to the score of the last id where the other ids
/// come directly before. In files: [[ids], bias].
struct SequenceBias {
  std::vector<int64_t> ids;  ///< The sequence; at least one id.
  double bias = 0.0;         ///< Added to the score; negative makes the sequence less likely.
  /// Whether both are the same.
  bool operator==(const SequenceBias&) const = default;
};

/// Makes the end token more likely with every token after the first `start` new ones. In files:
/// [start, factor].
struct LengthDecay {
  int64_t start = 0;    ///< New tokens before it begins.
  double factor = 1.0;  ///< Above 1; its power grows with every token.
  /// Whether both are the same.
  bool operator==(const LengthDecay&) const = default;
};

/// The options of `generate`. Names, meaning and defaults are those of transformers'
/// GenerationConfig. An option that is not set comes from the model's generation_config.json, else
/// it has its default.
struct GenerationOptions {
  // Length.

  /// Tokens of the prompt and new ones together. By default 20 new tokens are generated.
  std::optional<int64_t> max_length = std::nullopt;
  std::optional<int64_t> max_new_tokens = std::nullopt;  ///< Takes precedence over `max_length`.
  std::optional<int64_t> min_length = std::nullopt;      ///< No end token before this length.
  std::optional<int64_t> min_new_tokens = std::nullopt;  ///< The same for new tokens only.
  std::optional<EarlyStopping> early_stopping = std::nullopt;  ///< When beam search stops.
  std::optional<double> max_time = std::nullopt;  ///< Seconds after which no token is started.
  /// Texts that end a row; needs `decode`.
  std::optional<std::vector<std::string>> stop_strings = std::nullopt;

  // Strategy.

  std::optional<bool> do_sample = std::nullopt;     ///< Sample instead of taking the best token.
  std::optional<int64_t> num_beams = std::nullopt;  ///< Beams of beam search; 1 for none.
  std::optional<bool> use_cache = std::nullopt;     ///< Keep keys and values; on by default.

  // Scores. Those from `temperature` to `eta_cutoff` apply to sampling only.

  std::optional<double> temperature = std::nullopt;  ///< Scores are divided by it.
  std::optional<int64_t> top_k = std::nullopt;  ///< Keeps the k best tokens; default 50, 0 is off.
  std::optional<double> top_p = std::nullopt;   ///< Keeps the best tokens up to this probability.
  std::optional<double> top_h = std::nullopt;   ///< Keeps the best up to this share of the entropy.
  std::optional<double> min_p = std::nullopt;   ///< Least probability, relative to the best token.
  std::optional<double> typical_p = std::nullopt;           ///< Keeps the most typical tokens.
  std::optional<double> epsilon_cutoff = std::nullopt;      ///< Least probability of a token.
  std::optional<double> eta_cutoff = std::nullopt;          ///< The same, lower at high entropy.
  std::optional<double> repetition_penalty = std::nullopt;  ///< Above 1 repeats become unlikely.
  /// Above 1 the tokens of the input become more likely.
  std::optional<double> encoder_repetition_penalty = std::nullopt;
  /// Beam search: scores are divided by the length to this power; 1 by default.
  std::optional<double> length_penalty = std::nullopt;
  std::optional<int64_t> no_repeat_ngram_size = std::nullopt;          ///< No n-gram occurs twice.
  std::optional<int64_t> encoder_no_repeat_ngram_size = std::nullopt;  ///< No n-gram of the input.
  /// Sequences of ids that never occur.
  std::optional<std::vector<std::vector<int64_t>>> bad_words_ids = std::nullopt;
  std::optional<std::vector<SequenceBias>> sequence_bias = std::nullopt;  ///< Biases of sequences.
  std::optional<bool> renormalize_logits = std::nullopt;  ///< Normalise after all other changes.
  std::optional<int64_t> forced_bos_token_id = std::nullopt;   ///< The first new token.
  std::optional<TokenIds> forced_eos_token_id = std::nullopt;  ///< The last one at `max_length`.
  std::optional<bool> remove_invalid_values = std::nullopt;    ///< Replace NaN and infinity.
  /// Makes the end token more likely over time.
  std::optional<LengthDecay> exponential_decay_length_penalty = std::nullopt;
  std::optional<std::vector<int64_t>> suppress_tokens = std::nullopt;  ///< Ids that never occur.
  /// Ids that are not the first new token.
  std::optional<std::vector<int64_t>> begin_suppress_tokens = std::nullopt;

  // Output.

  std::optional<int64_t> num_return_sequences = std::nullopt;  ///< Rows per prompt; default 1.

  // Special tokens.

  std::optional<int64_t> pad_token_id = std::nullopt;   ///< Fills up shorter rows.
  std::optional<int64_t> bos_token_id = std::nullopt;   ///< Starts a text without a prompt.
  std::optional<TokenIds> eos_token_id = std::nullopt;  ///< Each of these ends a row.
  std::optional<TokenIds> decoder_start_token_id = std::nullopt;  ///< Starts the decoder's text.

  // Functions; not part of generation_config.json.

  /// Turns ids into text, for `stop_strings`.
  std::function<std::string(const std::vector<int64_t>&)> decode = nullptr;
  /// Each is called with a whole row, prompt and new tokens, after each token. True ends the row.
  std::vector<std::function<bool(std::span<const int64_t>)>> stopping_criteria = {};
  /// Called with the prompt's ids and then with each new token, as transformers' streamers. Only
  /// for a single row without beams. `TextStreamer` turns the ids into text.
  std::function<void(std::span<const int64_t>)> streamer = nullptr;
  /// Each takes ids (rows, tokens) and scores (rows, vocabulary) and returns new scores. They run
  /// after the penalties, before temperature and top-k.
  std::vector<std::function<torch::Tensor(const torch::Tensor&, torch::Tensor)>> logits_processors =
      {};
};

/// The content of generation_config.json. Keys that gradus does not use are kept.
class GenerationConfig {
 public:
  /// No option is set.
  GenerationConfig() = default;
  /// Reads a JSON object; `where` names it in messages. Throws `Error` G-GEN-1 (key, expected,
  /// received) for a value of the wrong type and for NaN.
  static GenerationConfig from_json(const nlohmann::json& values,
                                    const std::string& where = "generation_config.json");
  /// The special tokens of a model's config.
  static GenerationConfig from_model_config(const nlohmann::json& config);
  /// All generation options of an older config.json, for a folder without generation_config.json.
  /// Throws as `from_json`.
  static GenerationConfig from_config_file(const nlohmann::json& config);
  /// Reads a file. Throws `Error` G-IO-1, G-JSON-1 and what `from_json` throws.
  static GenerationConfig load(const std::filesystem::path& file);

  /// Checks the options as transformers' `validate(strict=True)` does. Throws `Error` G-GEN-2, also
  /// for options without effect, such as a temperature without sampling.
  void validate() const;

  /// Sets every unset option to its default, as transformers' Seq2SeqTrainer does.
  void fill_in_defaults();

  /// The options that are set, and all other keys.
  nlohmann::json to_json() const;
  /// Writes `to_json` to a file. Throws `Error` G-IO-2.
  void save(const std::filesystem::path& file) const;

  GenerationOptions options;                        ///< The options of the file.
  nlohmann::json other = nlohmann::json::object();  ///< All other keys of the file.
};

/// Completes `given` by the options of `model` and the defaults, and checks every value and
/// combination. Throws `Error` G-GEN-2 with the option, expected and received.
GenerationOptions complete_options(GenerationOptions given, const GenerationOptions& model);

}  // namespace gradus
