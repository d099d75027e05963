// trl's dpo.py: direct preference optimization of a language model.
#include <gradus/trainers/dpo.h>

#include "tasks/registry.h"
#include "tasks/trl_task.h"

namespace gradus {

std::unique_ptr<Task> make_dpo() {
  return std::make_unique<tasks::PlainTrlTask<DPOTrainer, DPOTrainerOptions>>("dpo", "DPOTrainer",
                                                                              ModelTask::causal_lm);
}

}  // namespace gradus
