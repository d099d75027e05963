#include <gradus/functional/trainer.h>

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/trackers/progress_bar.h>

#include "data/numpy_random.h"
#include "functional/processes.h"

namespace gradus::functional {
namespace {

/// The order of `datasets.Dataset.shuffle(seed=epoch)`.
class EpochShuffle final : public Sampler {
 public:
  explicit EpochShuffle(int64_t rows) : rows_(rows) {}
  int64_t size() const override { return rows_; }
  std::vector<int64_t> order(int64_t epoch) const override {
    return data::NumpyRandom(uint64_t(epoch)).permutation(rows_);
  }

 private:
  int64_t rows_;
};

torch::Tensor loss_of(const TensorMetrics& metrics, const char* function) {
  const auto entry = metrics.find("loss");
  if (entry == metrics.end()) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : metrics) keys.push_back("'" + key + "'");
    throw Error("G-FN-1", ErrorKind::training,
                fmt::format("{} returned no 'loss'; its metrics are {}", function,
                            keys.empty() ? "empty" : fmt::format("{}", fmt::join(keys, ", "))),
                "Return the loss of the batch in the metrics, under \"loss\".");
  }
  const auto& loss = entry->second;
  if (!loss.defined() || loss.dim() != 0)
    throw Error("G-FN-1", ErrorKind::training,
                fmt::format("{} returned a loss that is not a scalar: {}", function,
                            loss.defined() ? fmt::format("its shape is [{}]",
                                                         fmt::join(loss.sizes().vec(), ", "))
                                           : "it is undefined"),
                "Return one number: take the mean or the sum.");
  return loss.detach();
}

Batch on_device(Batch batch, const TrainState& state) {
  const auto device = state.params.values()[0].device();
  return device.is_cpu() ? batch : batch.to(device);
}

/// Whether it is true in one of the processes.
bool any(bool value, ProcessGroup* group) {
  if (group == nullptr) return value;
  const auto sum = at::scalar_tensor(value ? 1 : 0, at::kInt).reshape({1});
  group->sum(sum);
  return sum.item<int>() > 0;
}

void check(bool good, const std::string& what, const std::string& advice) {
  if (!good) throw Error("G-FN-2", ErrorKind::usage, what, advice);
}

/// `where`: what they were read from, with a colon; empty for the caller's own.
void check_sizes(const Args& args, const std::string& where) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"logging_steps", args.logging_steps},
      {"save_steps", args.save_steps},
      {"batch_size_per_device", args.batch_size_per_device},
      {"max_epochs", args.max_epochs}};
  for (const auto& [name, value] : sizes)
    check(value >= 1, fmt::format("{}{} is {}, expected 1 or more", where, name, value),
          where.empty() ? "Set it in functional::Args." : "Correct the file.");
}

}  // namespace

Trainer::Trainer(TrainerOptions options) : options_(std::move(options)) {
  check_sizes(options_.args, "");
  check(options_.train_step_fn != nullptr && options_.val_step_fn != nullptr &&
            options_.model_save_fn != nullptr,
        "train_step_fn, val_step_fn or model_save_fn is empty",
        "Leave them out to have the plain ones.");
}

TrainState Trainer::create_state(const ModelFunction& model, GradientTransformation tx,
                                 int64_t num_train_steps, CreateStateOptions options) {
  const bool own_tx = !tx;
  auto state =
      TrainState::create(model, own_tx ? build_tx(options_.args, num_train_steps) : std::move(tx),
                         std::move(options.loss_fn), options.key);
  if (options.ckpt_dir) {
    auto checkpoint = restore_checkpoint(*options.ckpt_dir, state, options_.flax_layout);
    if (checkpoint.args)
      check_sizes(*checkpoint.args, (*options.ckpt_dir / "args.json").string() + ": ");
    state.step = checkpoint.step;
    state.params = std::move(checkpoint.params);
    state.opt_state = std::move(checkpoint.opt_state);
    state.key = checkpoint.key;
    state.running_loss = at::scalar_tensor(checkpoint.running_loss, at::kFloat);
    const auto folder = options_.args.base_dir;
    if (checkpoint.args) options_.args = *checkpoint.args;
    if (!folder.empty()) options_.args.base_dir = folder;  // the run may have been moved
    if (checkpoint.collator_settings &&
        *checkpoint.collator_settings != options_.data_collator.settings()) {
      if (options_.data_collator.can_restore())
        options_.data_collator = options_.data_collator.restored(*checkpoint.collator_settings);
      else
        log_warning("the checkpoint " + options.ckpt_dir->string() + " has collator settings " +
                    checkpoint.collator_settings->dump() +
                    ", which this collator cannot take over");
    }
    if (own_tx) state.tx = build_tx(options_.args, num_train_steps);
  }
  if (!options_.scheduler_fn || own_tx)
    options_.scheduler_fn = warmup_then_decay(options_.args, num_train_steps);
  return state;
}

TrainState Trainer::train(TrainState state, const DatasetRef& train_data,
                          const DatasetRef& val_data) {
  const auto group = processes();
  try {
    const auto device = state.params.empty() ? torch::kCPU : state.params.values()[0].device();
    if (group && device.is_cuda()) group->use_nccl(device);
    return run_epochs(std::move(state), train_data, val_data, group.get());
  } catch (const std::exception& error) {
    if (group) group->fail(error.what());
    throw;
  }
}

/// `group`: the processes that train together; null for one.
TrainState Trainer::run_epochs(TrainState state, const DatasetRef& train_data,
                               const DatasetRef& val_data, ProcessGroup* group) {
  const auto& args = options_.args;
  const bool is_first = group == nullptr || group->rank() == 0;
  check(!state.params.empty(), "the state to train has no parameters",
        "Make it with create_state or TrainState::create.");
  const auto folder = args.checkpoint_dir(0, 0).parent_path();
  if (is_first) remove_unfinished(folder.empty() ? "." : folder);  // what a killed run has left
  if (group != nullptr) state = replicated(std::move(state), *group);
  const auto batches = loader(train_data, /*shuffle=*/true);
  const int64_t steps_per_epoch = *batches.size();
  const int64_t first_epoch = state.step / steps_per_epoch;
  if (!options_.scheduler_fn)
    options_.scheduler_fn = warmup_then_decay(args, args.max_epochs * steps_per_epoch);
  for (int64_t epoch = first_epoch; epoch < args.max_epochs; ++epoch) {
    int64_t i = epoch == first_epoch ? state.step % steps_per_epoch
                                     : 0;  // steps of this epoch that are done
    if (i == 0 || !state.running_loss.defined()) state.running_loss = at::zeros({}, at::kFloat);
    std::optional<ProgressBar> bar;
    if (options_.show_progress && is_first)
      bar.emplace(ProgressBarOptions{.total = steps_per_epoch,
                                     .initial = i,
                                     .description = fmt::format("Running EPOCH-{}", epoch)});

    auto pass = batches.iterate(epoch, i);
    while (auto batch = pass.next()) {
      // Each process draws numbers of its own; the next key is that of process 0.
      const auto key = is_first ? state.key : state.key.fold_in(uint64_t(group->rank()));
      auto result = options_.train_step_fn(state, key, on_device(std::move(*batch), state));
      auto running_loss = state.running_loss + loss_of(result.metrics, "train_step_fn");
      state = std::move(result.state);
      state.key = group == nullptr ? result.key : shared_key(result.key, *group);
      state.running_loss = std::move(running_loss);
      ++i;
      if (bar) bar->update();
      if (i % args.logging_steps == 0) {
        const auto line = log(state, i, val_data);
        if (bar) bar->write(line);
      }
      if (i % args.save_steps == 0) {
        if (group != nullptr) require_replicas(state, *group);
        if (is_first) save_checkpoint(args.checkpoint_dir(epoch, i), state);
      }
      if (options_.should_stop && any(options_.should_stop(state), group)) return state;
    }
  }
  return state;
}

std::string Trainer::log(const TrainState& state, int64_t steps_of_epoch,
                         const DatasetRef& val_data) const {
  const auto tr_loss = state.running_loss.item<double>() / double(steps_of_epoch);
  const auto lr = options_.scheduler_fn(state.step - 1);
  const auto eval_loss = evaluate(state, val_data);
  const auto group = processes();
  if (group) require_replicas(state, *group);
  if (options_.logger && (!group || group->rank() == 0))
    options_.logger->log({{"eval_loss", eval_loss}, {"tr_loss", tr_loss}, {"lr", lr}}, state.step);
  return fmt::format("{{'step': {}, 'eval_loss': {}, 'tr_loss': {}, 'lr': {}}}", state.step,
                     json_number(eval_loss), json_number(tr_loss), json_number(lr));
}

double Trainer::evaluate(const TrainState& state, const DatasetRef& data) const {
  auto pass = loader(data, /*shuffle=*/false).iterate(0);
  torch::Tensor running_loss;
  while (auto batch = pass.next()) {
    const auto loss =
        loss_of(options_.val_step_fn(state, on_device(std::move(*batch), state)), "val_step_fn");
    running_loss = running_loss.defined() ? running_loss + loss : loss.to(at::kFloat);
  }
  return running_loss.item<double>() / double(pass.position());
}

DataLoader Trainer::loader(const DatasetRef& data, bool shuffle) const {
  const auto batch_size = options_.args.batch_size_per_device;
  check(data.map_style() != nullptr,
        "the functional trainer was given an iterable data set or none",
        "Give a data set whose rows can be taken in any order.");
  const auto rows = data.map_style()->size();
  const auto group = processes();
  const DataShard shard{.rank = group ? group->rank() : 0, .world = group ? group->size() : 1};
  const auto together = batch_size * shard.world;
  check(rows >= together,
        fmt::format("the data set has {} rows, fewer than one batch of {}", rows, together),
        "A partial batch is left out. Give more rows, or set a smaller batch_size_per_device.");
  return DataLoader({.dataset = data,
                     .batch_size = batch_size,
                     .sampler = shuffle ? std::make_shared<EpochShuffle>(rows) : nullptr,
                     .collator = options_.data_collator.function(),
                     .drop_last = true,
                     .shard = shard});
}

}  // namespace gradus::functional
