#pragma once

#include <gradus/config/option_set.h>
#include <gradus/models/generation_config.h>

#include <optional>
#include <string>
#include <vector>

namespace gradus::cli {

/// The flags of `gradus generate`: what to read and write, and every option of GenerationConfig
/// under its own name.
struct GenerateFlags {
  std::optional<std::string> model_name_or_path = std::nullopt;
  std::optional<std::string> tokenizer_name = std::nullopt;
  std::optional<std::string> dtype = std::nullopt;
  std::vector<std::string> prompt = {};
  std::optional<std::string> prompt_file = std::nullopt;
  std::optional<std::string> prompt_column = std::nullopt;
  bool chat = false;
  std::optional<std::string> system = std::nullopt;
  bool add_special_tokens = true;
  bool skip_special_tokens = true;
  bool return_full_text = false;
  std::optional<bool> stream = std::nullopt;
  std::optional<std::string> output_dir = std::nullopt;
  std::optional<std::string> output_file = std::nullopt;
  int64_t batch_size = 8;
  int64_t seed = 42;
  bool use_cpu = false;
  bool json = false;

  GenerationOptions
      generation;  ///< those that were given; the folder's generation_config.json has the rest
};

/// Reads the words of a command line. nullopt: --help was asked for. `--prompt` may stand several
/// times. Throws `Error` of kind usage.
std::optional<GenerateFlags> parse_generate_flags(std::span<const std::string> words);

/// What `gradus generate --help` prints.
std::string generate_help();

}  // namespace gradus::cli
