#include <gradus/config/training_arguments.h>
#include <gradus/core/error.h>
#include <gradus/data/data_loader.h>
#include <gradus/train/plan.h>

#include <cmath>
#include <limits>

namespace gradus {
namespace {

// "Forever" is a number of steps too: what does not fit is the largest there is.
int64_t bounded_product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

int64_t bounded_ceil(double value) {
  return value >= 0x1p63 ? std::numeric_limits<int64_t>::max() : int64_t(std::ceil(value));
}

}  // namespace

TrainingPlan plan_training(const TrainingArguments& args, const DataLoader& loader,
                           int64_t train_batch_size) {
  const int64_t window = args.gradient_accumulation_steps;
  const auto batches = loader.size();
  TrainingPlan plan;
  plan.total_train_batch_size =
      train_batch_size * window * (args.elastic_order ? 1 : args.world_size());
  plan.max_steps = args.max_steps;
  if (batches && *batches > 0) {
    plan.steps_in_epoch = *batches;
    plan.num_update_steps_per_epoch = (*batches + window - 1) / window;
    plan.num_examples = loader.num_examples().value_or(*batches * train_batch_size);
    if (args.max_steps > 0) {
      plan.num_train_epochs = (args.max_steps - 1) / plan.num_update_steps_per_epoch + 1;
      plan.num_train_samples = double(args.max_steps) * double(plan.total_train_batch_size);
    } else {
      if (args.max_steps < 0)
        plan.max_steps =
            bounded_ceil(args.num_train_epochs * double(plan.num_update_steps_per_epoch));
      plan.num_train_epochs = bounded_ceil(args.num_train_epochs);
      plan.num_train_samples = double(plan.num_examples) * args.num_train_epochs;
    }
    return plan;
  }
  if (batches && args.max_steps <= 0)
    throw Error("G-TRAIN-4", ErrorKind::data,
                "the training data yields no batch: expected at least one row",
                "Check the data file, and --dataloader_drop_last with a large batch size.");
  if (args.max_steps <= 0)
    throw Error("G-TRAIN-4", ErrorKind::usage,
                "the training data has no length and max_steps is " +
                    std::to_string(args.max_steps) + ": the number of steps is not known",
                "Set --max_steps to a positive number.");
  plan.num_train_epochs = std::numeric_limits<int64_t>::max();
  plan.num_update_steps_per_epoch = args.max_steps;
  plan.num_examples = bounded_product(plan.total_train_batch_size, args.max_steps);
  plan.num_train_samples = double(plan.num_examples);
  plan.steps_in_epoch = bounded_product(args.max_steps, window);
  return plan;
}

}  // namespace gradus
