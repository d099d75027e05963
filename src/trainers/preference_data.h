#pragma once

#include <gradus/data/dataset.h>
#include <gradus/text/tokenizer.h>

#include <optional>
#include <string>

namespace gradus {

/// How rows of preferences become tokens, as in trl.
struct PreferencePreparation {
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  std::string who = {};  ///< The trainer, for messages.
  std::optional<int64_t> max_length = {};
  bool keeps_end = false;               ///< What is longer than `max_length` loses its beginning.
  std::optional<int64_t> longest = {};  ///< What the model can take; unset: anything.
};

/// Rows with `chosen`, `rejected` and maybe `prompt` and `margin`, as `chosen_ids` and
/// `rejected_ids`, whole texts. Pairs with a text longer than `max_length` are left out.
///
/// This and the functions below take texts or messages, leave rows that have token ids already, and
/// name the set by `where`. They throw `Error` G-TRL-2 for a row that cannot be used, and when no
/// row is left.
DatasetRef prepare_reward_rows(const DatasetRef& rows, const PreferencePreparation& how,
                               const std::string& where);

/// Rows with `prompt`, `chosen` and `rejected` as `prompt_ids`, `chosen_ids` and `rejected_ids`.
/// Without a prompt it is what both texts begin with. Prompts that fill `max_length` are left out.
DatasetRef prepare_preference_rows(const DatasetRef& rows, const PreferencePreparation& how,
                                   const std::string& where);

/// Rows with `prompt`, `completion` and `label`, or those of `prepare_preference_rows`, as
/// `prompt_ids`, `completion_ids` and `label`. With `kl_batch` each row also has the completion of
/// its neighbour in a batch of so many rows, `KL_completion_ids`.
DatasetRef prepare_unpaired_rows(const DatasetRef& rows, const PreferencePreparation& how,
                                 std::optional<int64_t> kl_batch, const std::string& where);

}  // namespace gradus
