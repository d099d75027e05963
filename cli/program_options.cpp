#include "program_options.h"

#include "data_cache.h"

#include <gradus/config/training_arguments.h>
#include <gradus/core/error.h>
#include <gradus/train/callbacks.h>

namespace gradus::cli {
namespace {

constexpr OptionRow<ProgramOptions> kProgramRows[] = {
    {&ProgramOptions::task, "task", Group::task, any_value(),
     "What to train; `gradus train --task T --help` lists the task's own flags.", Origin::gradus},
    {&ProgramOptions::json, "json", Group::program, any_value(),
     "Print one JSON document with the results to stdout.", Origin::gradus},
    {&ProgramOptions::dry_run, "dry_run", Group::program, any_value(),
     "Open everything, run one step, say what the run would do, and leave nothing behind.",
     Origin::gradus},
    {&ProgramOptions::cache_limit, "cache_limit", Group::program, any_value(),
     "Keep the cache of prepared data below this size, 20GB say: what was not used for longest "
     "goes first, after the data is open.",
     Origin::gradus},
    {&ProgramOptions::early_stopping_patience, "early_stopping_patience", Group::best_model,
     at_least(1),
     "Stop training when metric_for_best_model was not better in so many evaluations in a row.",
     Origin::gradus},
    {&ProgramOptions::early_stopping_threshold, "early_stopping_threshold", Group::best_model,
     at_least(0), "How much better it must be to count, for early_stopping_patience; 0 by default.",
     Origin::gradus},
};

[[noreturn]] void fail(const std::string& flag, const char* needs, const char* advice) {
  throw Error("G-TRAIN-2", ErrorKind::usage, "--" + flag + " needs " + needs, advice);
}

}  // namespace

void ProgramOptions::add_to(OptionSet& set) {
  set.add(*this, std::span<const OptionRow<ProgramOptions>>(kProgramRows));
}

void ProgramOptions::check(const TrainingArguments& args) const {
  if (cache_limit) cache_limit_bytes(*cache_limit);
  if (early_stopping_threshold && !early_stopping_patience)
    fail("early_stopping_threshold", "--early_stopping_patience, which is not set",
         "Set --early_stopping_patience to the number of evaluations to wait for.");
  if (!early_stopping_patience || !args.do_train) return;
  if (!args.metric_for_best_model)
    fail("early_stopping_patience", "--metric_for_best_model, which is not set",
         "Set --metric_for_best_model, for example to loss.");
  if (args.eval_strategy == "no")
    fail("early_stopping_patience", "evaluations, but --eval_strategy is no",
         "Set --eval_strategy to steps or epoch.");
}

std::vector<CallbackHandle> ProgramOptions::callbacks() const {
  if (!early_stopping_patience) return {};
  return {std::make_shared<EarlyStoppingCallback>(*early_stopping_patience,
                                                  early_stopping_threshold.value_or(0.0))};
}

}  // namespace gradus::cli
