// trl's kto.py: a language model learns from completions that are wanted or not.
#include <gradus/trainers/kto.h>

#include "tasks/registry.h"
#include "tasks/trl_task.h"

namespace gradus {

std::unique_ptr<Task> make_kto() {
  return std::make_unique<tasks::PlainTrlTask<KTOTrainer, KTOTrainerOptions>>("kto", "KTOTrainer",
                                                                              ModelTask::causal_lm);
}

}  // namespace gradus
