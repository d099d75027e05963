#pragma once

#include <gradus/trainers/dpo.h>
#include <torch/types.h>

#include <string>

namespace gradus {

/// What the losses of preference optimization are made of: one value for each pair.
struct PairLogProbs {
  torch::Tensor chosen, rejected;                ///< Log probabilities by the policy.
  torch::Tensor ref_chosen, ref_rejected;        ///< By the reference.
  torch::Tensor chosen_tokens, rejected_tokens;  ///< Lengths of the completions, at least 1.
  torch::Tensor chosen_nll;  ///< A scalar: the mean loss of the chosen tokens, for "sft".
};

/// trl's names of the losses.
std::span<const std::string_view> preference_losses();
/// Those that divergences other than reverse_kl have a meaning for.
bool takes_divergence(std::string_view loss_type);

/// The loss `type` of each pair, with the divergence and the parameters of `args`.
torch::Tensor preference_loss(const std::string& type, const PairLogProbs& pairs,
                              const DPOConfig& args);

/// The log probability of each sequence from those of its tokens (sequences, tokens): the sum. With
/// `ld_alpha`, tokens beyond the length of the shorter completion of a pair count so much. `mask`
/// tells the completions; the first half of the sequences is chosen, the second rejected.
torch::Tensor sequence_log_probs(const torch::Tensor& log_probs, const torch::Tensor& mask,
                                 std::optional<double> ld_alpha);

}  // namespace gradus
