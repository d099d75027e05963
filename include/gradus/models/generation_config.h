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

/// When beam search stops: `true` as soon as num_beams sequences are complete, `false` by a
/// heuristic, "never" only when no better sequence is possible.
class EarlyStopping {
 public:
  enum class Kind { no, yes, never };
  EarlyStopping(bool on) : kind_(on ? Kind::yes : Kind::no) {}
  /// Only "never". Throws `Error` G-GEN-1.
  EarlyStopping(const char* text) : EarlyStopping(std::string(text)) {}
  EarlyStopping(const std::string& text);
  Kind kind() const { return kind_; }
  bool operator==(const EarlyStopping&) const = default;

 private:
  Kind kind_;
};

/// One or several token ids.
class TokenIds {
 public:
  TokenIds(int64_t id) : ids_{id} {}
  TokenIds(int id) : ids_{id} {}
  TokenIds(std::vector<int64_t> ids) : ids_(std::move(ids)), is_list_(true) {}
  TokenIds(std::initializer_list<int64_t> ids) : ids_(ids), is_list_(true) {}
  const std::vector<int64_t>& ids() const { return ids_; }
  bool is_list() const { return is_list_; }
  bool operator==(const TokenIds&) const = default;

 private:
  std::vector<int64_t> ids_;
  bool is_list_ = false;
};

/// Added to the score of the last of `ids` where the others came just before it. In files:
/// [[ids…], bias].
struct SequenceBias {
  std::vector<int64_t> ids;
  double bias = 0.0;
  bool operator==(const SequenceBias&) const = default;
};

/// From `start` new tokens on, the end token becomes likelier by `factor` with every token. In
/// files: [start, factor].
struct LengthDecay {
  int64_t start = 0;
  double factor = 1.0;
  bool operator==(const LengthDecay&) const = default;
};

/// What generate() may be told; names, meaning and defaults as in transformers' GenerationConfig.
/// What is not set comes from the model's generation_config.json, then from the defaults.
struct GenerationOptions {
  // length
  std::optional<int64_t> max_length =
      std::nullopt;  ///< of prompt and new tokens together; default: 20 new tokens
  std::optional<int64_t> max_new_tokens = std::nullopt;  ///< wins over max_length
  std::optional<int64_t> min_length = std::nullopt;      ///< no end token before
  std::optional<int64_t> min_new_tokens = std::nullopt;
  std::optional<EarlyStopping> early_stopping = std::nullopt;
  std::optional<double> max_time = std::nullopt;  ///< seconds after which no further token is begun
  std::optional<std::vector<std::string>> stop_strings = std::nullopt;  ///< needs `decode`
  // strategy
  std::optional<bool> do_sample = std::nullopt;
  std::optional<int64_t> num_beams = std::nullopt;
  std::optional<bool> use_cache = std::nullopt;
  // scores
  std::optional<double> temperature = std::nullopt;
  std::optional<int64_t> top_k =
      std::nullopt;  ///< default 50 when sampling, as in transformers; 0 is off
  std::optional<double> top_p = std::nullopt;
  std::optional<double> top_h =
      std::nullopt;  ///< keeps the best tokens up to this share of the entropy
  std::optional<double> min_p = std::nullopt;
  std::optional<double> typical_p = std::nullopt;
  std::optional<double> epsilon_cutoff = std::nullopt;
  std::optional<double> eta_cutoff = std::nullopt;
  std::optional<double> repetition_penalty = std::nullopt;
  std::optional<double> encoder_repetition_penalty =
      std::nullopt;  ///< above 1: tokens of the input become more likely
  std::optional<double> length_penalty =
      std::nullopt;  ///< beam search: exponent of the length by which scores are divided; default 1
  std::optional<int64_t> no_repeat_ngram_size = std::nullopt;
  std::optional<int64_t> encoder_no_repeat_ngram_size = std::nullopt;  ///< no n-gram of the input
  std::optional<std::vector<std::vector<int64_t>>> bad_words_ids = std::nullopt;
  std::optional<std::vector<SequenceBias>> sequence_bias = std::nullopt;
  std::optional<bool> renormalize_logits = std::nullopt;
  std::optional<int64_t> forced_bos_token_id = std::nullopt;
  std::optional<TokenIds> forced_eos_token_id = std::nullopt;
  std::optional<bool> remove_invalid_values = std::nullopt;
  std::optional<LengthDecay> exponential_decay_length_penalty = std::nullopt;
  std::optional<std::vector<int64_t>> suppress_tokens = std::nullopt;
  std::optional<std::vector<int64_t>> begin_suppress_tokens = std::nullopt;
  // output
  std::optional<int64_t> num_return_sequences = std::nullopt;
  // special tokens
  std::optional<int64_t> pad_token_id = std::nullopt;
  std::optional<int64_t> bos_token_id = std::nullopt;
  std::optional<TokenIds> eos_token_id = std::nullopt;
  std::optional<TokenIds> decoder_start_token_id = std::nullopt;

  // hooks; not part of generation_config.json
  std::function<std::string(const std::vector<int64_t>&)> decode =
      nullptr;  ///< ids to text, for stop_strings
  /// Called with a whole row (prompt and new tokens) after each token; true ends that row.
  std::vector<std::function<bool(std::span<const int64_t>)>> stopping_criteria = {};
  /// Called with the prompt's ids and then with each new token of a single row, as transformers'
  /// streamers are. Not with several rows or beams. `TextStreamer` makes text of them.
  std::function<void(std::span<const int64_t>)> streamer = nullptr;
  /// (ids (rows, tokens), scores (rows, vocabulary)) -> scores, after the penalties and before
  /// temperature and top-k.
  std::vector<std::function<torch::Tensor(const torch::Tensor&, torch::Tensor)>> logits_processors =
      {};
};

/// generation_config.json: the options of a model's folder, with every other key of the file kept.
class GenerationConfig {
 public:
  GenerationConfig() = default;
  /// Throws `Error` G-GEN-1 (key, expected, received) for a value of another type or NaN.
  static GenerationConfig from_json(const nlohmann::json& values,
                                    const std::string& where = "generation_config.json");
  /// Those of a model's settings that concern generation: the special tokens.
  static GenerationConfig from_model_config(const nlohmann::json& config);
  /// All options that an older config.json may hold, for a folder without generation_config.json.
  /// Throws as from_json.
  static GenerationConfig from_config_file(const nlohmann::json& config);
  static GenerationConfig load(const std::filesystem::path& file);

  /// As transformers' `validate(strict=True)`: throws `Error` G-GEN-2 also for options that would
  /// have no effect, such as a temperature without sampling.
  void validate() const;

  /// Sets what is unset to transformers' defaults, by which its Seq2SeqTrainer makes a model's
  /// settings explicit.
  void fill_in_defaults();

  nlohmann::json to_json() const;
  void save(const std::filesystem::path& file) const;

  GenerationOptions options;
  nlohmann::json other = nlohmann::json::object();  ///< keys we do not read, kept for writing back
};

/// `given` completed by `model`'s options and the defaults, ready for use; checks every value and
/// combination. Throws `Error` G-GEN-2 with the option, expected and received.
GenerationOptions complete_options(GenerationOptions given, const GenerationOptions& model);

}  // namespace gradus
