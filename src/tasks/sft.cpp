// trl's sft.py: supervised fine-tuning of a language model.
#include <gradus/trainers/sft.h>

#include "tasks/registry.h"
#include "tasks/trl_task.h"

namespace gradus {

std::unique_ptr<Task> make_sft() {
  return std::make_unique<tasks::PlainTrlTask<SFTTrainer, SFTTrainerOptions>>("sft", "SFTTrainer",
                                                                              ModelTask::causal_lm);
}

}  // namespace gradus
