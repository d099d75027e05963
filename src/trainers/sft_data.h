#pragma once

#include <gradus/data/dataset.h>
#include <gradus/text/tokenizer.h>
#include <gradus/trainers/sft.h>

#include "trainers/row_reader.h"

namespace gradus {

/// How rows become tokens and labels.
struct SftPreparation {
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  SFTConfig args = {};
  bool completion_only = false;            ///< Labels of prompts are -100.
  std::optional<int64_t> longest = {};     ///< What the model can take; unset: anything.
  std::optional<int64_t> vocabulary = {};  ///< How many tokens it knows; unset: not said.
  std::function<std::string(const Example&)> formatting_func = nullptr;
};

/// The rows as `input_ids` and `labels` (with `seq_lengths` when packed), in memory. `where` names
/// the set in messages. Throws `Error` G-TRL-2.
std::shared_ptr<const Dataset> prepare_sft_rows(const DatasetRef& rows,
                                                const SftPreparation& preparation, bool packing,
                                                const std::string& where);

}  // namespace gradus
