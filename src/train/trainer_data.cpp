// Loaders and samplers of a Trainer.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/collators.h>
#include <gradus/data/tokenizer_like.h>

#include <set>

#include "train/trainer_parts.h"

namespace gradus {
namespace {

// The columns the model can use: its inputs, its labels, and the names collators turn into labels.
std::set<std::string> usable_columns(const Model& model, const Names& label_names) {
  const auto inputs = model.input_names();
  std::set<std::string> columns(inputs.begin(), inputs.end());
  columns.insert({"label", "label_ids"});
  columns.insert(label_names.begin(), label_names.end());
  return columns;
}

// `remove_unused_columns`: leaves out what the model's forward does not take.
void remove_unused_columns(DataLoaderOptions& options, const Model& model, const Names& label_names,
                           const char* description) {
  if (model.input_names().empty()) return;
  const auto usable = usable_columns(model, label_names);
  const auto columns = options.dataset.column_names();
  if (!columns.empty() && !options.dataset.is_iterable()) {
    Names kept, ignored;
    for (const auto& column : columns) (usable.contains(column) ? kept : ignored).push_back(column);
    if (kept.empty())
      throw Error(
          "G-TRAIN-14", ErrorKind::data,
          fmt::format(
              "no column of the {} set is one the model takes: it has {}; the model takes {}",
              description, fmt::join(columns, ", "), fmt::join(usable, ", ")),
          "Rename the columns, or set --remove_unused_columns false.");
    if (ignored.empty()) return;
    log_info(
        fmt::format("The following columns in the {} set don't have a corresponding argument in "
                    "the model's forward and have been ignored: {}.",
                    description, fmt::join(ignored, ", ")));
    options.dataset = options.dataset.map_style()->select_columns(kept);
    return;
  }
  options.collator = RemoveColumnsCollator({.collator = options.collator,
                                            .columns = {usable.begin(), usable.end()},
                                            .model_name = "the model",
                                            .description = description});
}

// This process's share of the rows, by the rules of accelerate: a stream is dispatched unless that
// is refused. An evaluation always has equally many batches in each process; what is repeated for
// that is cut off again.
DataShard shard_of(const TrainingArguments& args, const DatasetRef& dataset, bool is_training) {
  const auto& config = args.accelerator_config;
  const auto says = [&](const char* name, bool otherwise) {
    if (!config.is_object() || !config.contains(name) || config[name].is_null()) return otherwise;
    return config[name].get<bool>();
  };
  const bool is_stream = dataset.is_iterable();
  return {.rank = args.process_index(),
          .world = args.world_size(),
          .even_batches = is_stream || !is_training || says("even_batches", true),
          .split_batches = says("split_batches", false),
          .dispatch = says("dispatch_batches", is_stream)};
}

DataLoaderOptions loader_options(const TrainingArguments& args, const DatasetRef& dataset,
                                 const DataCollator& collator, int64_t batch_size,
                                 torch::Device device) {
  return {.dataset = dataset,
          .batch_size = batch_size,
          .collator = collator,
          .drop_last = args.dataloader_drop_last &&
                       !dataset.is_iterable(),  // HF keeps the last batch of a stream
          .num_workers = args.dataloader_num_workers,
          .prefetch_factor = args.dataloader_prefetch_factor,
          .persistent_workers = args.dataloader_persistent_workers,
          .in_order = args.dataloader_in_order,
          .pin_memory = args.dataloader_pin_memory && device.is_cuda(),
          .seed = args.data_seed.value_or(args.seed)};
}

// Whether the data have a column of lengths that is still there when a sampler is made. As in
// transformers, unused columns are removed before, and the model hardly ever takes this one.
bool has_length_column(const Dataset& rows, const TrainingArguments& args, const Model& model) {
  const auto columns = rows.column_names();
  const auto& name = args.length_column_name;
  if (std::find(columns.begin(), columns.end(), name) == columns.end()) return false;
  const auto inputs = model.input_names();
  if (!args.remove_unused_columns || inputs.empty() ||
      std::find(inputs.begin(), inputs.end(), name) != inputs.end())
    return true;
  log_info(
      fmt::format("The column '{}' (length_column_name) is removed as an unused column: "
                  "lengths are counted. Set --remove_unused_columns false to use it.",
                  name));
  return false;
}

// The input whose length is that of its row: transformers' choice, or, where the rows do not have
// it, the model's main input.
std::string measured_input(const Dataset& rows, const Model& model,
                           const TokenizerLike* tokenizer) {
  const auto inputs = tokenizer != nullptr ? tokenizer->model_input_names() : Names();
  if (!inputs.empty()) return inputs.front();
  // By the first row: data that is decoded on the way knows no names of columns.
  if (rows.size() == 0) return "input_ids";
  const auto first = rows.get(0);
  const auto main = model.main_input_name();
  return first.find("input_ids") == nullptr && first.find(main) != nullptr ? main : "input_ids";
}

// The length of every row, from its own column where there is one.
std::vector<int64_t> row_lengths(const DatasetRef& dataset, const TrainingArguments& args,
                                 const Model& model, const TokenizerLike* tokenizer) {
  const auto& rows = *dataset.map_style();
  if (!has_length_column(rows, args, model))
    return column_lengths(rows, measured_input(rows, model, tokenizer));
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < rows.size(); ++i)
    lengths.push_back(rows.get(i).at(args.length_column_name).integer());
  return lengths;
}

bool has_order_of_its_own(const DatasetRef& dataset) {
  return dataset.is_iterable() || !dataset.size();
}

}  // namespace

DataLoaderOptions Trainer::train_dataloader_options() {
  auto& p = *parts_;
  if (!p.train_dataset)
    throw Error("G-TRAIN-15", ErrorKind::usage,
                "training needs a train_dataset: the Trainer has none",
                "Set train_dataset in TrainerOptions (--train_file).");
  auto options = loader_options(p.args, p.train_dataset, p.data_collator, p.train_batch_size,
                                p.engine.device());
  options.batch_sampler = get_train_batch_sampler();
  if (!options.batch_sampler) {
    options.sampler = get_train_sampler();
    if (p.processes.size() > 1 && !p.args.elastic_order)
      options.shard = shard_of(p.args, p.train_dataset, true);
  }
  if (p.args.remove_unused_columns)
    remove_unused_columns(options, *p.model, p.label_names, "Training");
  return options;
}

DataLoaderOptions Trainer::eval_dataloader_options(const DatasetRef& eval_dataset) {
  auto& p = *parts_;
  auto options = loader_options(p.args, eval_dataset, p.data_collator, p.args.eval_batch_size(),
                                p.engine.device());
  options.sampler = get_eval_sampler(eval_dataset);
  if (p.processes.size() > 1) options.shard = shard_of(p.args, eval_dataset, false);
  if (p.args.remove_unused_columns)
    remove_unused_columns(options, *p.model, p.label_names, "Evaluation");
  return options;
}

DataLoader Trainer::get_train_dataloader() { return DataLoader(train_dataloader_options()); }
DataLoader Trainer::get_eval_dataloader(const DatasetRef& eval_dataset) {
  return DataLoader(eval_dataloader_options(eval_dataset));
}
DataLoader Trainer::get_test_dataloader(const DatasetRef& test_dataset) {
  return DataLoader(eval_dataloader_options(test_dataset));
}

std::shared_ptr<Sampler> Trainer::get_train_sampler() {
  auto& p = *parts_;
  const auto rows = p.train_dataset.size();
  const auto& strategy = p.args.train_sampling_strategy;
  const auto seed = p.args.data_seed.value_or(p.args.seed);
  if (has_order_of_its_own(p.train_dataset)) {
    if (strategy == "group_by_length" || strategy == "batch_rebalance")
      log_warning(
          fmt::format("train_sampling_strategy '{}' is ignored: the training data can only be read "
                      "in its own order.",
                      strategy));
    return nullptr;
  }
  if (strategy == "sequential") return sequential_sampler(*rows);
  if (strategy == "group_by_length")
    return length_grouped_sampler(
        row_lengths(p.train_dataset, p.args, *p.model, p.processing_class.get()),
        p.train_batch_size * p.args.gradient_accumulation_steps, seed);
  const auto& accelerator = p.args.accelerator_config;
  if (accelerator.is_object() && !accelerator.value("use_seedable_sampler", true)) {
    if (p.processes.size() == 1) return global_random_sampler(*rows);
    // The generators of the processes may differ: the first one's decides.
    return random_sampler(*rows, std::stoll(p.processes.of_first([] {
      return std::to_string(torch::randint(INT32_MAX, {1}, torch::kLong).item<int64_t>());
    })));
  }
  return random_sampler(*rows, seed);
}

std::shared_ptr<BatchSampler> Trainer::get_train_batch_sampler() {
  const auto& p = *parts_;
  if (p.args.train_sampling_strategy != "batch_rebalance" || has_order_of_its_own(p.train_dataset))
    return nullptr;
  const auto steps = p.args.gradient_accumulation_steps;
  const auto world = p.args.elastic_order ? 1 : p.args.world_size();
  // The sampler's own seed: the peer gives it neither seed nor data_seed.
  return batch_rebalance_sampler(
      row_lengths(p.train_dataset, p.args, *p.model, p.processing_class.get()),
      {.effective_batch_size = p.train_batch_size * steps * world,
       .gradient_accumulation_steps = steps,
       .rank = p.args.elastic_order ? 0 : p.args.process_index(),
       .world = world,
       .drop_last = p.args.dataloader_drop_last});
}

std::shared_ptr<Sampler> Trainer::get_eval_sampler(const DatasetRef& eval_dataset) {
  const auto& p = *parts_;
  if (has_order_of_its_own(eval_dataset)) return nullptr;
  if (p.args.train_sampling_strategy == "group_by_length")
    return length_grouped_sampler(
        row_lengths(eval_dataset, p.args, *p.model, p.processing_class.get()),
        p.args.eval_batch_size(), p.args.data_seed.value_or(p.args.seed));
  return sequential_sampler(*eval_dataset.size());
}

}  // namespace gradus
