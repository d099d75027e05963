#include "generate_flags.h"

#include <gradus/core/error.h>

#include "cli.h"
#include "core/parsed_json.h"
#include "reference.h"

namespace gradus::cli {
namespace {

constexpr std::string_view kDtypes[] = {"auto", "float32", "bfloat16", "float16"};

constexpr OptionRow<GenerateFlags> kRows[] = {
    {&GenerateFlags::model_name_or_path, "model_name_or_path", Group::model, any_value(),
     "The folder of a model (config.json, weights, tokenizer, generation_config.json) or of an "
     "adapter."},
    {&GenerateFlags::tokenizer_name, "tokenizer_name", Group::model, any_value(),
     "The tokenizer's folder, when it is another one."},
    {&GenerateFlags::dtype, "dtype", Group::model, one_of(kDtypes),
     "Type of the weights; auto: as config.json says."},
    {&GenerateFlags::prompt, "prompt", Group::data, any_value(),
     "A text to continue; repeat --prompt for further ones.", Origin::gradus},
    {&GenerateFlags::prompt_file, "prompt_file", Group::data, any_value(),
     "A text file with a prompt a line, or .jsonl/.json with a prompt a row; - reads lines from "
     "stdin.",
     Origin::gradus},
    {&GenerateFlags::prompt_column, "prompt_column", Group::data, any_value(),
     "Column of the .jsonl/.json file; default: prompt, text or messages, whichever exists.",
     Origin::gradus},
    {&GenerateFlags::chat, "chat", Group::data, any_value(),
     "Prompts are a user's messages, put through the chat template; without a prompt: a "
     "conversation on stdin.",
     Origin::gradus},
    {&GenerateFlags::system, "system", Group::data, any_value(), "The system message of a chat.",
     Origin::gradus},
    {&GenerateFlags::add_special_tokens, "add_special_tokens", Group::data, any_value(),
     "Put the tokenizer's special tokens around a prompt (not in a chat)."},
    {&GenerateFlags::skip_special_tokens, "skip_special_tokens", Group::output, any_value(),
     "Leave special tokens out of the text."},
    {&GenerateFlags::return_full_text, "return_full_text", Group::output, any_value(),
     "The prompt and what follows it, not only the latter."},
    {&GenerateFlags::stream, "stream", Group::output, any_value(),
     "Print the text as it is produced; default: on a terminal, for a single prompt.",
     Origin::gradus},
    {&GenerateFlags::output_dir, "output_dir", Group::output, any_value(),
     "Folder for generations.jsonl and generated_predictions.txt."},
    {&GenerateFlags::output_file, "output_file", Group::output, any_value(),
     "A .jsonl file with a row for each text: prompt, generated_text.", Origin::gradus},
    {&GenerateFlags::batch_size, "batch_size", Group::hardware, at_least(1),
     "Prompts generated together, padded on the left (encoder-decoder: right).", Origin::gradus},
    {&GenerateFlags::seed, "seed", Group::reproducibility, any_value(),
     "Of the random numbers when sampling."},
    {&GenerateFlags::use_cpu, "use_cpu", Group::hardware, any_value(), "Do not use a GPU."},
    {&GenerateFlags::json, "json", Group::program, any_value(),
     "Print one JSON document to stdout.", Origin::gradus},
};

using G = GenerationOptions;
constexpr OptionRow<GenerationOptions> kGenerationRows[] = {
    {&G::max_new_tokens, "max_new_tokens", Group::generation, at_least(1),
     "Most tokens to add; default 20."},
    {&G::max_length, "max_length", Group::generation, at_least(1),
     "Most tokens of prompt and text together; max_new_tokens wins over it."},
    {&G::min_new_tokens, "min_new_tokens", Group::generation, at_least(0),
     "Least number of new tokens."},
    {&G::min_length, "min_length", Group::generation, at_least(0),
     "Least number of tokens, the prompt's included."},
    {&G::max_time, "max_time", Group::generation, above(0),
     "Seconds after which no further token is begun."},
    {&G::stop_strings, "stop_strings", Group::generation, any_value(),
     "Texts that end the generation when they appear."},
    {&G::do_sample, "do_sample", Group::generation, any_value(),
     "Draw tokens instead of taking the likeliest."},
    {&G::num_beams, "num_beams", Group::generation, at_least(1),
     "Beams of the beam search; 1 is none."},
    {&G::num_return_sequences, "num_return_sequences", Group::generation, at_least(1),
     "Texts for each prompt; needs sampling or at least as many beams."},
    {&G::temperature, "temperature", Group::generation, above(0),
     "Sampling: below 1 favours likely tokens."},
    {&G::top_k, "top_k", Group::generation, at_least(0),
     "Sampling: only the k likeliest tokens; 0 is off, default 50."},
    {&G::top_p, "top_p", Group::generation, within(0, 1),
     "Sampling: only the likeliest tokens up to this probability."},
    {&G::top_h, "top_h", Group::generation, within(0, 1),
     "Sampling: only the likeliest tokens up to this share of the entropy."},
    {&G::min_p, "min_p", Group::generation, within(0, 1),
     "Sampling: only tokens at least this likely, relative to the likeliest."},
    {&G::typical_p, "typical_p", Group::generation, within(0, 1),
     "Sampling: only tokens of typical probability up to this mass."},
    {&G::epsilon_cutoff, "epsilon_cutoff", Group::generation, within(0, 1),
     "Sampling: only tokens more likely than this."},
    {&G::eta_cutoff, "eta_cutoff", Group::generation, within(0, 1),
     "Sampling: a cutoff that follows the entropy."},
    {&G::repetition_penalty, "repetition_penalty", Group::generation, above(0),
     "Above 1 makes tokens that were there less likely."},
    {&G::encoder_repetition_penalty, "encoder_repetition_penalty", Group::generation, above(0),
     "Above 1 makes tokens of the input more likely."},
    {&G::no_repeat_ngram_size, "no_repeat_ngram_size", Group::generation, at_least(0),
     "No n-gram of this size twice; 0 is off."},
    {&G::encoder_no_repeat_ngram_size, "encoder_no_repeat_ngram_size", Group::generation,
     at_least(0), "No n-gram of this size from the input; 0 is off."},
    {&G::length_penalty, "length_penalty", Group::generation, any_value(),
     "Beam search: above 0 favours long texts, below 0 short ones."},
    {&G::renormalize_logits, "renormalize_logits", Group::generation, any_value(),
     "Normalise the scores after all penalties."},
    {&G::remove_invalid_values, "remove_invalid_values", Group::generation, any_value(),
     "Replace NaN and infinite scores."},
    {&G::use_cache, "use_cache", Group::generation, any_value(),
     "Keep keys and values of past tokens."},
    {&G::forced_bos_token_id, "forced_bos_token_id", Group::generation, at_least(0),
     "The first new token, where the decoder starts from one."},
    {&G::pad_token_id, "pad_token_id", Group::generation, at_least(0), "Fills up short rows."},
    {&G::bos_token_id, "bos_token_id", Group::generation, at_least(0),
     "The token of the beginning."},
};

/// The options of other types, as the words they are given in.
struct WordFlags {
  std::optional<std::string> early_stopping;
  std::optional<std::vector<std::string>> eos_token_id, forced_eos_token_id, decoder_start_token_id,
      suppress_tokens, begin_suppress_tokens, exponential_decay_length_penalty, bad_words_ids,
      sequence_bias;
};
constexpr OptionRow<WordFlags> kWordRows[] = {
    {&WordFlags::early_stopping, "early_stopping", Group::generation,
     any_value().boolean_as("true", "false").typed("bool | str"),
     "Beam search: true stops at num_beams complete texts, never only when no better one is "
     "possible."},
    {&WordFlags::eos_token_id, "eos_token_id", Group::generation, any_value().typed("int | list"),
     "The token or tokens that end a text."},
    {&WordFlags::forced_eos_token_id, "forced_eos_token_id", Group::generation,
     any_value().typed("int | list"), "The last token when the length is reached."},
    {&WordFlags::decoder_start_token_id, "decoder_start_token_id", Group::generation,
     any_value().typed("int | list"), "Encoder-decoder: what the decoder starts from."},
    {&WordFlags::suppress_tokens, "suppress_tokens", Group::generation, any_value().typed("list"),
     "Token ids that never appear."},
    {&WordFlags::begin_suppress_tokens, "begin_suppress_tokens", Group::generation,
     any_value().typed("list"), "Token ids that do not appear first."},
    {&WordFlags::exponential_decay_length_penalty, "exponential_decay_length_penalty",
     Group::generation, any_value().typed("list"),
     "START FACTOR: after START new tokens the end becomes likelier by FACTOR with each."},
    {&WordFlags::bad_words_ids, "bad_words_ids", Group::generation, any_value().typed("JSON"),
     "Sequences of token ids that never appear: '[[5], [6, 7]]'."},
    {&WordFlags::sequence_bias, "sequence_bias", Group::generation, any_value().typed("JSON"),
     "Added to the scores of sequences: '[[[5], -2.0]]'."},
};
constexpr std::string_view kListNames[] = {"suppress_tokens", "begin_suppress_tokens"};

void add_tables(OptionSet& set, GenerateFlags& flags, WordFlags& words) {
  set.add(flags, std::span<const OptionRow<GenerateFlags>>(kRows));
  set.add(flags.generation, std::span<const OptionRow<GenerationOptions>>(kGenerationRows));
  set.add(words, std::span<const OptionRow<WordFlags>>(kWordRows));
}

/// "2" is a number, "[1, 2]" a list, "never" a text.
nlohmann::json word_value(const std::string& word) {
  auto value = json_or_discarded(word);
  return value.is_discarded() ? nlohmann::json(word) : value;
}

/// The word flags that were given, as generation_config.json would hold them.
nlohmann::json word_values(const OptionSet& set) {
  auto values = nlohmann::json::object();
  const auto all = set.values();
  for (const auto& row : kWordRows) {
    const auto& given = all[std::string(row.name)];
    if (given.is_null()) continue;
    const auto words = given.is_string() ? std::vector{given.get<std::string>()}
                                         : given.get<std::vector<std::string>>();
    const bool is_list =
        words.size() > 1 || (std::find(std::begin(kListNames), std::end(kListNames), row.name) !=
                                 std::end(kListNames) &&
                             !word_value(words[0]).is_array());
    auto& value = values[std::string(row.name)];
    if (!is_list)
      value = word_value(words[0]);
    else
      for (const auto& word : words) value.push_back(word_value(word));
  }
  return values;
}

/// Takes `--prompt TEXT` and `--prompt=TEXT` out, each of them one prompt, whatever it begins with.
std::vector<std::string> take_prompts(std::vector<std::string>& words) {
  std::vector<std::string> prompts, rest;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with("--prompt=")) {
      prompts.push_back(words[i].substr(9));
    } else if (words[i] == "--prompt") {
      if (i + 1 == words.size())
        throw Error("G-CLI-4", ErrorKind::usage, "--prompt: expected a text, received nothing",
                    "Put the text after it: --prompt \"Once upon a time\"");
      prompts.push_back(words[++i]);
    } else {
      rest.push_back(words[i]);
    }
  }
  words = std::move(rest);
  return prompts;
}

}  // namespace

std::optional<GenerateFlags> parse_generate_flags(std::span<const std::string> given) {
  GenerateFlags flags;
  WordFlags word_flags;
  OptionSet set;
  add_tables(set, flags, word_flags);
  std::vector<std::string> words(given.begin(), given.end());
  auto prompts = take_prompts(words);
  if (set.parse(words).help) return std::nullopt;
  if (!prompts.empty()) flags.prompt = std::move(prompts);
  auto others = [&] {
    try {
      return GenerationConfig::from_json(word_values(set), "gradus generate").options;
    } catch (const Error& error) {
      throw Error(error.id(), ErrorKind::usage, error.message(), error.advice());
    }
  }();
  auto& options = flags.generation;
  options.early_stopping = others.early_stopping;
  options.eos_token_id = others.eos_token_id;
  options.forced_eos_token_id = others.forced_eos_token_id;
  options.decoder_start_token_id = others.decoder_start_token_id;
  options.suppress_tokens = others.suppress_tokens;
  options.begin_suppress_tokens = others.begin_suppress_tokens;
  options.exponential_decay_length_penalty = others.exponential_decay_length_penalty;
  options.bad_words_ids = others.bad_words_ids;
  options.sequence_bias = others.sequence_bias;
  return flags;
}

std::vector<Flag> generate_flags() {
  GenerateFlags flags;
  WordFlags words;
  OptionSet set;
  add_tables(set, flags, words);
  return flags_of(set);
}

std::string generate_help() {
  GenerateFlags flags;
  WordFlags words;
  OptionSet set;
  add_tables(set, flags, words);
  return "usage: gradus generate --model_name_or_path DIR (--prompt TEXT… | --prompt_file F | "
         "--chat) [config.yaml|config.json] [--flags]\n\n"
         "Text from a language model. What is not given comes from the folder's "
         "generation_config.json.\n\n" +
         set.help();
}

}  // namespace gradus::cli
