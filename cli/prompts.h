#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "generate_flags.h"

namespace gradus::cli {

/// What to generate from: a text, or the messages of a chat.
struct Prompt {
  std::string text = {};
  nlohmann::ordered_json messages = nullptr;  ///< a list; null for a plain text
  std::string where = {};                     ///< for errors: "--prompt 2", "a.jsonl:7"

  /// One line for the terminal.
  std::string title() const;
};

/// A chat of one user message behind the system message; without `text` the latter alone.
nlohmann::ordered_json chat_of(const std::optional<std::string>& text,
                               const std::optional<std::string>& system);

/// The prompts of --prompt and --prompt_file. Throws `Error` G-CLI-6 for one that is empty or a row
/// without a prompt.
std::vector<Prompt> read_prompts(const GenerateFlags& flags);

}  // namespace gradus::cli
