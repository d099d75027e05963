#pragma once

#include <string>

#include "trackers/background_tracker.h"

/// What several trackers say about a run, in the words of transformers' integrations.
namespace gradus::tracked {

/// The model's config with the arguments on top, and the number of parameters under
/// "model/num_parameters".
nlohmann::json config(const TrackedRun& run);
/// An argument that is a text; empty when it is not set.
std::string argument(const TrackedRun& run, const std::string& name);
/// An environment variable; empty when it is not set.
std::string environment(const char* name);
/// Whether the variable says yes as transformers reads it: 1, on, yes or true.
bool environment_says_yes(const char* name);

/// Values of the end of a run that wandb shows beside the curves ("train_runtime", "train_loss").
bool is_single_value(const std::string& key);
/// A number as JSON, with NaN and Infinity as Python writes them.
std::string json_number(double value);

/// The characters of a text; bytes that are no UTF-8 as U+FFFD.
std::u32string characters(std::string_view text);
/// Whether Python's `str.isalnum` says yes: a letter or a digit of any alphabet.
bool is_letter_or_digit(char32_t character);

/// `digits` random letters of "0123456789abcdef" (or of `letters`).
std::string random_text(size_t digits, std::string_view letters = "0123456789abcdef");
/// "calm-river-3": a name for a run that has none.
std::string random_run_name();
/// Seconds since 1970 as "2026-11-16T17:30:10.527610+00:00".
std::string iso_time(double seconds);
/// The same in local time, by `strftime`'s format.
std::string local_time(double seconds, const char* format);
/// This machine's name.
std::string host_name();
/// This user's name.
std::string user_name();

}  // namespace gradus::tracked
