#pragma once

#include <gradus/data/example.h>
#include <gradus/train/trainer_state.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gradus {

class Model;

/// What a reward function sees of a batch of completions. All lists have one value for each
/// completion; the completions of one prompt come one after the other.
///
/// Valid during the call only.
class RewardInputs {
 public:
  /// The texts of the prompts; of a conversation the content of its last message.
  std::vector<std::string> prompts = {};
  /// The texts of the completions, without special tokens.
  std::vector<std::string> completions = {};
  /// The tokens of the completions, the end token included.
  std::vector<std::vector<int64_t>> completion_ids = {};
  /// The prompts as lists of messages; empty when the data are not conversations.
  std::vector<nlohmann::json> prompt_messages = {};
  /// The completions as lists of one message of the assistant; empty as above.
  std::vector<nlohmann::json> completion_messages = {};
  /// The other columns of the data set, and those that a rollout function adds.
  std::map<std::string, std::vector<Value>> columns = {};

  /// A column by name. Throws `Error` G-RWD-1 with the columns that there are.
  const std::vector<Value>& column(const std::string& name) const;
  /// The progress of the run, for rewards that change with it.
  const TrainerState& state() const { return *state_; }

  /// Adds a column to the table of completions (`log_completions`), one value for each completion.
  void log_extra(const std::string& column, std::vector<Value> values) const;
  /// Adds a number to the logs: the mean of all values until the next log.
  void log_metric(const std::string& name, double value) const;

  /// What functions have logged; read by the trainer.
  struct Notes {
    std::map<std::string, std::vector<Value>> extra;     ///< Columns of the table of completions.
    std::map<std::string, std::vector<double>> metrics;  ///< Numbers of the logs.
  };
  /// For trainers: inputs that read `state` and write into `notes`. Both must outlive them.
  RewardInputs(const TrainerState& state, Notes& notes) : state_(&state), notes_(&notes) {}

 private:
  const TrainerState* state_;
  Notes* notes_;
};

/// Gives one number for each completion. NaN says that the reward does not apply to a completion.
using RewardFunction = std::function<std::vector<double>(const RewardInputs&)>;

/// A source of rewards: a function or a model, with the name under which it is logged.
class Reward {
 public:
  /// A function.
  Reward(std::string name, RewardFunction function)
      : name_(std::move(name)), function_(std::move(function)) {}
  /// A sequence classification model with one label: its logit is the reward. The text is prompt
  /// and completion.
  Reward(std::string name, std::shared_ptr<Model> model)
      : name_(std::move(name)), model_(std::move(model)) {}

  /// Under which it is logged: `rewards/<name>/mean`.
  const std::string& name() const { return name_; }
  /// The function; empty for a model.
  const RewardFunction& function() const { return function_; }
  /// The model; null for a function.
  const std::shared_ptr<Model>& model() const { return model_; }

 private:
  std::string name_;
  RewardFunction function_ = nullptr;
  std::shared_ptr<Model> model_ = nullptr;
};

/// How `command_reward` runs its process.
struct CommandRewardOptions {
  std::string command;   ///< Run by `sh -c`, from the first batch of completions on.
  double timeout = 60;   ///< Seconds that one answer may take.
  int64_t restarts = 1;  ///< How often one question is asked again after a process has died.
};

/// Rewards of another process, in any language.
///
/// For every batch of completions it gets one line `{"prompts": [...], "completions": [...],
/// "columns": {"name": [...]}}` and answers with one line `{"rewards": [...]}`; null says that the
/// reward does not apply. Conversations are lists of messages. What it writes to its error output
/// goes to the log. It ends with the last copy of the reward: its input is closed, then it is
/// stopped.
///
/// A process that ends or does not answer in time is started again `restarts` times for one batch.
/// After that, and for an answer that is none, the function throws `Error` G-RWD-2.
Reward command_reward(const std::string& name, CommandRewardOptions options);

/// Makes a reward of the text after the colon in `--reward_funcs NAME:TEXT`; empty without one.
using RewardMaker = std::function<Reward(const std::string& text)>;

/// Adds a reward to those that `--reward_funcs` knows. Thread-safe. Throws `Error` G-REG-1 for a
/// name that is taken, G-REG-2 for an empty name or no `make`.
void register_reward(const std::string& name, RewardMaker make);
/// The names that `find_reward` knows.
std::vector<std::string> reward_names();
/// The reward of `NAME` or `NAME:TEXT`. docs/user/grpo.md lists those of the library. Throws
/// `Error` G-RWD-3 for an unknown name, with the nearest, and for a text that the reward cannot
/// use.
Reward find_reward(const std::string& text);

}  // namespace gradus
