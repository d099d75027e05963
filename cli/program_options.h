#pragma once

#include <gradus/config/option_set.h>
#include <gradus/train/callback.h>

#include <optional>
#include <string>
#include <vector>

namespace gradus::cli {

/// The flags of train, eval and predict that belong to the program, not to the task or its trainer.
struct ProgramOptions {
  std::optional<std::string> task = std::nullopt;
  bool json = false;
  bool dry_run = false;
  std::optional<std::string> cache_limit = std::nullopt;
  std::optional<int64_t> early_stopping_patience = std::nullopt;
  std::optional<double> early_stopping_threshold = std::nullopt;

  /// Adds the flags; this object must outlive the set.
  void add_to(OptionSet& set);
  /// Throws G-TRAIN-2 for what EarlyStoppingCallback would refuse when training begins. Here data
  /// and model are not open yet.
  void check(const TrainingArguments& args) const;
  /// The callbacks that the flags ask for.
  std::vector<CallbackHandle> callbacks() const;
};

}  // namespace gradus::cli
