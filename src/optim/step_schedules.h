#pragma once

#include <gradus/optim/schedulers.h>

/// The schedules of transformers that follow the step: one function for each row of the table in
/// schedulers.cpp.
namespace gradus::schedules {

std::unique_ptr<LRScheduler> make_constant(Optimizer& optimizer, const SchedulerArguments& args);
std::unique_ptr<LRScheduler> make_constant_with_warmup(Optimizer& optimizer,
                                                       const SchedulerArguments& args);
std::unique_ptr<LRScheduler> make_linear(Optimizer& optimizer, const SchedulerArguments& args);
std::unique_ptr<LRScheduler> make_cosine(Optimizer& optimizer, const SchedulerArguments& args);
std::unique_ptr<LRScheduler> make_cosine_with_restarts(Optimizer& optimizer,
                                                       const SchedulerArguments& args);
std::unique_ptr<LRScheduler> make_polynomial(Optimizer& optimizer, const SchedulerArguments& args);
std::unique_ptr<LRScheduler> make_inverse_sqrt(Optimizer& optimizer,
                                               const SchedulerArguments& args);
std::unique_ptr<LRScheduler> make_cosine_with_min_lr(Optimizer& optimizer,
                                                     const SchedulerArguments& args);
std::unique_ptr<LRScheduler> make_cosine_warmup_with_min_lr(Optimizer& optimizer,
                                                            const SchedulerArguments& args);
std::unique_ptr<LRScheduler> make_warmup_stable_decay(Optimizer& optimizer,
                                                      const SchedulerArguments& args);

}  // namespace gradus::schedules
