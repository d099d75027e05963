#pragma once

#include <gradus/text/tokenizer.h>
#include <gradus/trainers/rollout_trainer.h>

namespace gradus {

/// Asks all rewards of a trainer about a batch of completions.
/// Ownership: shares models and tokenizers. Thread-safety: none.
class RewardScorer {
 public:
  /// `tokenizers` are those of models, one for each reward; null for functions. Throws `Error`
  /// G-TRL-1 when a model has none.
  RewardScorer(std::vector<Reward> rewards, std::vector<std::shared_ptr<Tokenizer>> tokenizers,
               nlohmann::json chat_template_kwargs);

  /// What is asked about.
  struct Question {
    const std::vector<Example>& rows;
    const Rollouts& rollouts;
    const std::vector<std::string>& completions;  ///< Texts.
    const TrainerState& state;
    torch::Device device;
  };
  /// (completions, rewards) in float32; NaN where a reward does not apply. What functions log goes
  /// to `notes`. Throws `Error` G-RWD-1 for wrong numbers of rewards and for infinite ones.
  torch::Tensor score(const Question& question, RewardInputs::Notes& notes);

  /// The names, in order.
  std::vector<std::string> names() const;

 private:
  RewardInputs inputs_of(const Question& question, RewardInputs::Notes& notes) const;
  std::vector<double> ask_model(size_t place, const RewardInputs& in, torch::Device device);

  std::vector<Reward> rewards_;
  std::vector<std::shared_ptr<Tokenizer>> tokenizers_;
  nlohmann::json chat_template_kwargs_;
};

}  // namespace gradus
