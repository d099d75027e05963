// trl's reward.py: a model that gives texts a reward.
#include <gradus/trainers/reward.h>

#include "tasks/registry.h"
#include "tasks/trl_task.h"

namespace gradus {

std::unique_ptr<Task> make_reward() {
  return std::make_unique<tasks::PlainTrlTask<RewardTrainer, RewardTrainerOptions>>(
      "reward", "RewardTrainer", ModelTask::sequence_classification,
      nlohmann::json{{"num_labels", 1}});
}

}  // namespace gradus
