#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/models/generation_config.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

namespace gradus {

namespace {

[[noreturn]] void fail(const std::string& where, const std::string& name,
                       const std::string& expected, const nlohmann::json& value) {
  throw Error(
      "G-GEN-1", ErrorKind::model,
      fmt::format("{}: {} must be {}, received {}", where, name, expected, dump_json(value)),
      "Correct or remove the value.");
}

/// Reading and writing one type of value.
struct Value {
  const std::string& where;
  const std::string& name;

  void read(const nlohmann::json& value, int64_t& to) const {
    if (value.is_number_integer())
      to = value.get<int64_t>();
    else if (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>() &&
             std::abs(value.get<double>()) < 9e15)
      to = static_cast<int64_t>(value.get<double>());
    else
      fail(where, name, "an integer", value);
  }
  void read(const nlohmann::json& value, double& to) const {
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      fail(where, name, "a finite number", value);
    to = value.get<double>();
  }
  void read(const nlohmann::json& value, bool& to) const {
    if (!value.is_boolean()) fail(where, name, "true or false", value);
    to = value.get<bool>();
  }
  void read(const nlohmann::json& value, std::string& to) const {
    if (!value.is_string()) fail(where, name, "a text", value);
    to = value.get<std::string>();
  }
  void read(const nlohmann::json& value, EarlyStopping& to) const {
    if (value.is_boolean())
      to = value.get<bool>();
    else if (value == "never")
      to = "never";
    else
      fail(where, name, "true, false or \"never\"", value);
  }
  void read(const nlohmann::json& value, TokenIds& to) const {
    if (value.is_array()) {
      std::vector<int64_t> ids;
      read(value, ids);
      to = ids;
    } else {
      int64_t id = 0;
      read(value, id);
      to = id;
    }
  }
  void read(const nlohmann::json& value, SequenceBias& to) const {
    if (!value.is_array() || value.size() != 2)
      fail(where, name, "a list of [[token ids], bias]", value);
    read(value[0], to.ids);
    read(value[1], to.bias);
    if (to.ids.empty() || *std::min_element(to.ids.begin(), to.ids.end()) < 0)
      fail(where, name, "a list of [[token ids], bias] with at least one id each", value);
  }
  void read(const nlohmann::json& value, LengthDecay& to) const {
    if (!value.is_array() || value.size() != 2) fail(where, name, "[start, factor]", value);
    read(value[0], to.start);
    read(value[1], to.factor);
  }
  template <class T>
  void read(const nlohmann::json& value, std::vector<T>& to) const {
    if constexpr (std::is_same_v<T, std::string>)
      if (value.is_string()) return to.push_back(value.get<std::string>());
    if (!value.is_array()) fail(where, name, "a list", value);
    for (const auto& item : value) read(item, to.emplace_back());
  }
};

nlohmann::json written(const EarlyStopping& value) {
  return value.kind() == EarlyStopping::Kind::never
             ? nlohmann::json("never")
             : nlohmann::json(value.kind() == EarlyStopping::Kind::yes);
}
nlohmann::json written(const TokenIds& value) {
  return value.is_list() ? nlohmann::json(value.ids()) : nlohmann::json(value.ids().front());
}
nlohmann::json written(const SequenceBias& value) {
  return nlohmann::json::array({value.ids, value.bias});
}
nlohmann::json written(const LengthDecay& value) {
  return nlohmann::json::array({value.start, value.factor});
}
nlohmann::json written(const std::vector<SequenceBias>& values) {
  auto list = nlohmann::json::array();
  for (const auto& value : values) list.push_back(written(value));
  return list;
}
template <class T>
nlohmann::json written(const T& value) {
  return value;
}

/// The one list of names: calls `visit(name, pointer to member)` for each option that files hold.
template <class Visit>
void for_each_option(Visit visit) {
  using Options = GenerationOptions;
  visit("max_length", &Options::max_length);
  visit("max_new_tokens", &Options::max_new_tokens);
  visit("min_length", &Options::min_length);
  visit("min_new_tokens", &Options::min_new_tokens);
  visit("early_stopping", &Options::early_stopping);
  visit("max_time", &Options::max_time);
  visit("stop_strings", &Options::stop_strings);
  visit("do_sample", &Options::do_sample);
  visit("num_beams", &Options::num_beams);
  visit("use_cache", &Options::use_cache);
  visit("temperature", &Options::temperature);
  visit("top_k", &Options::top_k);
  visit("top_p", &Options::top_p);
  visit("top_h", &Options::top_h);
  visit("min_p", &Options::min_p);
  visit("typical_p", &Options::typical_p);
  visit("epsilon_cutoff", &Options::epsilon_cutoff);
  visit("eta_cutoff", &Options::eta_cutoff);
  visit("repetition_penalty", &Options::repetition_penalty);
  visit("encoder_repetition_penalty", &Options::encoder_repetition_penalty);
  visit("length_penalty", &Options::length_penalty);
  visit("no_repeat_ngram_size", &Options::no_repeat_ngram_size);
  visit("encoder_no_repeat_ngram_size", &Options::encoder_no_repeat_ngram_size);
  visit("bad_words_ids", &Options::bad_words_ids);
  visit("sequence_bias", &Options::sequence_bias);
  visit("renormalize_logits", &Options::renormalize_logits);
  visit("forced_bos_token_id", &Options::forced_bos_token_id);
  visit("forced_eos_token_id", &Options::forced_eos_token_id);
  visit("remove_invalid_values", &Options::remove_invalid_values);
  visit("exponential_decay_length_penalty", &Options::exponential_decay_length_penalty);
  visit("suppress_tokens", &Options::suppress_tokens);
  visit("begin_suppress_tokens", &Options::begin_suppress_tokens);
  visit("num_return_sequences", &Options::num_return_sequences);
  visit("pad_token_id", &Options::pad_token_id);
  visit("bos_token_id", &Options::bos_token_id);
  visit("eos_token_id", &Options::eos_token_id);
  visit("decoder_start_token_id", &Options::decoder_start_token_id);
}

template <class T>
std::optional<T> make_value() {
  if constexpr (std::is_same_v<T, EarlyStopping>)
    return T(false);
  else if constexpr (std::is_same_v<T, TokenIds>)
    return T(int64_t{0});
  else
    return T{};
}

void check(bool good, const char* name, const std::string& expected, const std::string& received) {
  if (!good)
    throw Error("G-GEN-2", ErrorKind::usage,
                fmt::format("generate: {} must be {}, received {}", name, expected, received),
                "Correct the option, or the model's generation_config.json.");
}

void check_range(const char* name, const std::optional<double>& value, double low, double high,
                 bool low_included, const std::string& expected) {
  if (value)
    check(std::isfinite(*value) && (low_included ? *value >= low : *value > low) && *value <= high,
          name, expected, json_number(*value));
}

void check_count(const char* name, const std::optional<int64_t>& value, int64_t low) {
  if (value) check(*value >= low, name, fmt::format("at least {}", low), std::to_string(*value));
}

/// A token that is forced where it is also barred would leave none.
void check_forced(const char* name, const std::vector<int64_t>& forced,
                  const std::vector<int64_t>& barred) {
  const bool some_left = std::any_of(forced.begin(), forced.end(), [&](int64_t id) {
    return std::find(barred.begin(), barred.end(), id) == barred.end();
  });
  check(forced.empty() || some_left, name, "a token that suppress_tokens does not bar",
        nlohmann::json(forced).dump());
}

void check_words(const std::vector<std::vector<int64_t>>& words) {
  const bool good = !words.empty() && std::all_of(words.begin(), words.end(), [](const auto& word) {
    return !word.empty() && *std::min_element(word.begin(), word.end()) >= 0;
  });
  check(good, "bad_words_ids", "a list of lists with at least one token id each",
        nlohmann::json(words).dump().substr(0, 80));
}

/// Combinations that cannot work, and those that are merely without effect.
void check_combinations(const GenerationOptions& options) {
  const auto beams = *options.num_beams, returned = *options.num_return_sequences;
  if (beams == 1 && !*options.do_sample)
    check(returned == 1, "num_return_sequences", "1 with greedy search (no sampling, one beam)",
          std::to_string(returned));
  check(!options.streamer || (beams == 1 && returned == 1), "streamer",
        "unset with several beams or sequences", "one");
  if (beams > 1)
    check(returned <= beams, "num_return_sequences", fmt::format("at most num_beams ({})", beams),
          std::to_string(returned));
  if (options.suppress_tokens && options.forced_bos_token_id)
    check_forced("forced_bos_token_id", {*options.forced_bos_token_id}, *options.suppress_tokens);
  if (options.suppress_tokens && options.forced_eos_token_id)
    check_forced("forced_eos_token_id", options.forced_eos_token_id->ids(),
                 *options.suppress_tokens);
  if (options.bad_words_ids) check_words(*options.bad_words_ids);
  if (options.stop_strings && !options.stop_strings->empty())
    check(static_cast<bool>(options.decode), "stop_strings",
          "given together with `decode`, which turns ids into text", "without it");
}

/// Takes what `options` leaves unset from `source`.
void fill_in(GenerationOptions& options, const GenerationOptions& source) {
  for_each_option([&](const char*, auto pointer) {
    if (!(options.*pointer)) options.*pointer = source.*pointer;
  });
}

/// transformers' values for what neither a call nor a model's folder sets.
const GenerationConfig& defaults() {
  static const auto config =
      GenerationConfig::from_json({{"max_length", 20},
                                   {"min_length", 0},
                                   {"do_sample", false},
                                   {"use_cache", true},
                                   {"early_stopping", false},
                                   {"num_beams", 1},
                                   {"temperature", 1.0},
                                   {"top_k", 50},
                                   {"top_p", 1.0},
                                   {"typical_p", 1.0},
                                   {"repetition_penalty", 1.0},
                                   {"length_penalty", 1.0},
                                   {"no_repeat_ngram_size", 0},
                                   {"encoder_no_repeat_ngram_size", 0},
                                   {"num_return_sequences", 1},
                                   {"output_scores", false},
                                   {"return_dict_in_generate", false},
                                   {"remove_invalid_values", false},
                                   {"epsilon_cutoff", 0.0},
                                   {"eta_cutoff", 0.0},
                                   {"encoder_repetition_penalty", 1.0},
                                   {"num_assistant_tokens", 20},
                                   {"num_assistant_tokens_schedule", "constant"},
                                   {"assistant_confidence_threshold", 0.4},
                                   {"assistant_lookbehind", 10},
                                   {"target_lookbehind", 10},
                                   {"num_beam_groups", 1},
                                   {"diversity_penalty", 0.0}});
  return config;
}

}  // namespace

EarlyStopping::EarlyStopping(const std::string& text) : kind_(Kind::never) {
  if (text != "never")
    throw Error(
        "G-GEN-1", ErrorKind::usage,
        fmt::format("early_stopping must be true, false or \"never\", received \"{}\"", text), "");
}

GenerationConfig GenerationConfig::from_json(const nlohmann::json& values,
                                             const std::string& where) {
  if (!values.is_object())
    throw Error(
        "G-GEN-1", ErrorKind::model,
        fmt::format("{}: expected an object, received {}", where, dump_json(values).substr(0, 60)),
        "");
  GenerationConfig config;
  config.other = values;
  for_each_option([&](const std::string& name, auto pointer) {
    auto& member = config.options.*pointer;
    const auto found = values.find(name);
    if (found == values.end()) return;
    config.other.erase(name);
    if (found->is_null()) return;
    using T = typename std::decay_t<decltype(member)>::value_type;
    auto value = make_value<T>();
    Value{where, name}.read(*found, *value);
    member = std::move(value);
  });
  return config;
}

GenerationConfig GenerationConfig::from_model_config(const nlohmann::json& config) {
  nlohmann::json values = {{"_from_model_config", true}};
  for (const auto* name : {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id",
                           "forced_bos_token_id", "forced_eos_token_id"}) {
    const auto found = config.find(name);
    if (found != config.end() && !found->is_null()) values[name] = *found;
  }
  return from_json(values, "config.json");
}

GenerationConfig GenerationConfig::from_config_file(const nlohmann::json& config) {
  nlohmann::json values = {{"_from_model_config", true}};
  for_each_option([&](const char* name, auto) {
    const auto found = config.find(name);
    if (found != config.end() && !found->is_null()) values[name] = *found;
  });
  return from_json(values, "config.json");
}

GenerationConfig GenerationConfig::load(const std::filesystem::path& file) {
  return from_json(read_json(file), file.string());
}

void GenerationConfig::validate() const {
  complete_options(options, {});
  std::vector<std::string> idle;
  const auto note = [&](const char* name, bool is_idle, const char* needs) {
    if (is_idle) idle.push_back(fmt::format("{} ({})", name, needs));
  };
  const auto& o = options;
  if (!o.do_sample.value_or(false)) {
    const char* needs = "needs do_sample";
    note("temperature", o.temperature.value_or(1) != 1, needs);
    note("top_p", o.top_p.value_or(1) != 1, needs);
    note("min_p", o.min_p.has_value(), needs);
    note("top_h", o.top_h.has_value(), needs);
    note("typical_p", o.typical_p.value_or(1) != 1, needs);
    note("top_k", o.top_k.value_or(50) != 50, needs);
    note("epsilon_cutoff", o.epsilon_cutoff.value_or(0) != 0, needs);
    note("eta_cutoff", o.eta_cutoff.value_or(0) != 0, needs);
  }
  if (o.num_beams.value_or(1) == 1) {
    note("early_stopping", o.early_stopping.value_or(false).kind() != EarlyStopping::Kind::no,
         "needs num_beams above 1");
    note("length_penalty", o.length_penalty.value_or(1) != 1, "needs num_beams above 1");
  }
  if (!idle.empty())
    throw Error("G-GEN-2", ErrorKind::usage,
                fmt::format("generation_config: options without effect: {}", fmt::join(idle, ", ")),
                "Remove them, or set what they need.");
}

void GenerationConfig::fill_in_defaults() {
  fill_in(options, defaults().options);
  for (const auto& [name, value] : defaults().other.items())
    if (!other.contains(name) || other[name].is_null()) other[name] = value;
}

nlohmann::json GenerationConfig::to_json() const {
  auto values = other;
  for_each_option([&](const char* name, auto pointer) {
    if (options.*pointer) values[name] = written(*(options.*pointer));
  });
  return values;
}

void GenerationConfig::save(const std::filesystem::path& file) const {
  write_file_atomically(file, dump_json(to_json(), 2) + "\n");
}

GenerationOptions complete_options(GenerationOptions given, const GenerationOptions& model) {
  // Options of one kind exclude each other: a given max_length must not meet the folder's
  // max_new_tokens.
  auto base = model;
  if (given.max_length && !given.max_new_tokens) base.max_new_tokens.reset();
  if (given.min_length && !given.min_new_tokens) base.min_new_tokens.reset();
  auto fallback = defaults().options;
  fallback.max_length.reset();  // without one the limit depends on the prompt
  auto merged = std::move(given);
  fill_in(merged, base);
  fill_in(merged, fallback);

  check_count("max_length", merged.max_length, 1);
  check_count("max_new_tokens", merged.max_new_tokens, 1);
  check_count("min_length", merged.min_length, 0);
  check_count("min_new_tokens", merged.min_new_tokens, 0);
  check_count("num_beams", merged.num_beams, 1);
  check_count("num_return_sequences", merged.num_return_sequences, 1);
  check_count("top_k", merged.top_k, 0);
  check_count("no_repeat_ngram_size", merged.no_repeat_ngram_size, 0);
  check_count("pad_token_id", merged.pad_token_id, 0);
  check_range("temperature", merged.temperature, 0.0, 1e30, false,
              "greater than 0 (use do_sample=false for greedy search)");
  check_range("top_p", merged.top_p, 0.0, 1.0, true, "from 0 to 1");
  check_range("top_h", merged.top_h, 0.0, 1.0, false, "greater than 0 and at most 1");
  check_range("min_p", merged.min_p, 0.0, 1.0, true, "from 0 to 1");
  check_range("typical_p", merged.typical_p, 0.0, 1.0, false, "greater than 0 and at most 1");
  check_range("repetition_penalty", merged.repetition_penalty, 0.0, 1e30, false, "greater than 0");
  check_range("encoder_repetition_penalty", merged.encoder_repetition_penalty, 0.0, 1e30, false,
              "greater than 0");
  check_count("encoder_no_repeat_ngram_size", merged.encoder_no_repeat_ngram_size, 0);
  check_range("max_time", merged.max_time, 0.0, 1e30, false, "greater than 0");
  check_combinations(merged);
  return merged;
}

}  // namespace gradus
