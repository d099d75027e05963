#pragma once

#include <gradus/config/training_arguments.h>
#include <gradus/distributed/process_group.h>
#include <gradus/engine/strategy.h>
#include <gradus/train/trainer_control.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gradus {

/// The processes that train together, as the Trainer sees them: what they tell each other and agree
/// on. A single process agrees with itself at once.
///
/// Every process calls the same functions in the same order. All of them throw `Error` G-DIST-2
/// when a process is lost.
class Processes {
 public:
  /// Waits for the others, up to ddp_timeout. They exchange what lies on `device`, if it is a GPU,
  /// by NCCL or as ddp_backend says. One that is set there makes a group of a single process, too.
  /// Throws `Error` G-DIST-1, G-DIST-3 and G-DIST-6.
  Processes(const TrainingArguments& args, torch::Device device);

  int64_t rank() const { return group_ ? group_->rank() : 0; }
  int64_t size() const { return group_ ? group_->size() : 1; }

  /// How they train: `ddp_...`, `fsdp` and `zero_stage` of the arguments. Null for a single
  /// process.
  std::shared_ptr<Strategy> strategy(const TrainingArguments& args) const;

  /// Runs `work`. When it throws, the others learn why.
  template <class Work>
  auto together(const Work& work) const {
    if (!group_) return work();
    try {
      return work();
    } catch (const std::exception& error) {
      tell_others(error);
      throw;
    }
  }

  /// What callbacks ask for in one process holds in all.
  void agree(TrainerControl& control) const;
  /// Whether it is true in one of them.
  bool any(bool value) const;
  double sum(double value) const;
  int64_t sum(int64_t value) const;
  /// The mean of float32 numbers, computed as transformers does.
  double mean(double value) const;
  /// What `text` gives in process 0, the only one to call it.
  std::string of_first(const std::function<std::string()>& text) const;
  /// The text of each process, by rank.
  std::vector<std::string> gather(const std::string& text) const;
  /// Returns when all have called it.
  void wait_for_all() const;
  /// Throws `Error` G-DIST-5 when the members of `facts` differ between the processes.
  void require_same(const nlohmann::json& facts) const;

  /// How long they wait for each other.
  std::chrono::milliseconds timeout() const {
    return group_ ? group_->timeout() : std::chrono::milliseconds(0);
  }
  /// Whether one of them is lost. May be called from any thread.
  bool is_lost() const { return group_ && group_->is_lost(); }

 private:
  /// Throws in place of `error` what has led to it, if that was an exchange.
  void tell_others(const std::exception& error) const;
  std::shared_ptr<Strategy> sharded_strategy(const TrainingArguments& args) const;

  std::shared_ptr<ProcessGroup> group_;  ///< null: a single process
  bool is_on_gpu_ = false;
};

/// Those of the arguments that must be the same in all processes, as facts for `require_same`.
nlohmann::json shared_arguments(const TrainingArguments& args);

}  // namespace gradus
