#include "train/processes.h"
#include "core/parsed_json.h"

#include <fmt/format.h>
#include <gradus/config/gradient_checkpointing.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/engine/data_parallel.h>

#include <array>

#include "config/sharding.h"
#include "distributed/gather_on_use.h"
#include "engine/sharded.h"

namespace gradus {

Processes::Processes(const TrainingArguments& args, torch::Device device)
    : group_(ProcessGroup::of_this_run(std::chrono::seconds(args.ddp_timeout))),
      is_on_gpu_(device.is_cuda()) {
  if (!is_on_gpu_) return;
  if (!group_ && args.ddp_backend)
    group_ = ProcessGroup::alone(std::chrono::seconds(args.ddp_timeout));
  if (group_ && args.ddp_backend.value_or("nccl") == "nccl") group_->use_nccl(device);
}

std::shared_ptr<Strategy> Processes::sharded_strategy(const TrainingArguments& args) const {
  const auto asked = config::sharding_of(args);
  if (asked.stage == 0) return nullptr;
  if (!group_) {
    log_warning_once("There is one process: nothing is sharded (fsdp, zero_stage).");
    return nullptr;
  }
  const auto refuse = [](const char* what, const char* advice) {
    throw Error("G-DIST-9", ErrorKind::usage, what, advice);
  };
  if (args.debug.contains("underflow_overflow"))
    refuse("debug underflow_overflow needs whole parameters, which a sharded model does not have",
           "Leave out --debug, or --fsdp and --zero_stage.");
  if (args.save_on_each_node)
    refuse("save_on_each_node: a sharded model is saved by all processes into one folder",
           "Leave it out, and use a folder that all machines share.");
  if (is_on_gpu_ && asked.offload)
    refuse("fsdp offload, cpu_offload: shares of a model on GPUs stay there",
           "Leave it out; more processes make the shares smaller.");
  ShardedOptions options;
  options.stage = asked.stage;
  options.master_weights = args.mixed_precision() == "bf16" && args.bf16_mode == "master";
  options.min_num_params = asked.min_num_params;
  options.broadcast_buffers = args.ddp_broadcast_buffers.value_or(true);
  if (asked.wrap == config::Sharding::Wrap::by_size) options.wrap = ShardedOptions::Wrap::by_size;
  if (asked.wrap == config::Sharding::Wrap::none) options.wrap = ShardedOptions::Wrap::none;
  return std::make_shared<Sharded>(group_, options);
}

// transformers looks for unused parameters unless gradient checkpointing is on.
std::shared_ptr<Strategy> Processes::strategy(const TrainingArguments& args) const {
  if (auto sharded = sharded_strategy(args)) return sharded;
  if (!group_) return nullptr;
  DataParallelOptions options;
  options.buckets.find_unused_parameters =
      args.ddp_find_unused_parameters.value_or(!GradientCheckpointing::of(args));
  options.buckets.static_graph = args.ddp_static_graph.value_or(false);
  if (args.ddp_bucket_cap_mb) options.buckets.bucket_cap_bytes = *args.ddp_bucket_cap_mb << 20;
  options.broadcast_buffers = args.ddp_broadcast_buffers.value_or(true);
  if (args.ddp_comm_hook == "fp16") options.buckets.format = BucketOptions::Format::fp16;
  if (args.ddp_comm_hook == "bf16") options.buckets.format = BucketOptions::Format::bf16;
  return std::make_shared<DataParallel>(group_, options);
}

void Processes::tell_others(const std::exception& error) const {
  const auto reason = GatherOnUse::take_failure();
  if (!reason) return group_->fail(error.what());
  try {
    std::rethrow_exception(reason);
  } catch (const std::exception& first) {
    group_->fail(first.what());
    throw;
  }
}

void Processes::agree(TrainerControl& control) const {
  if (!group_) return;
  const std::array switches{&control.should_training_stop, &control.should_epoch_stop,
                            &control.should_save,          &control.should_evaluate,
                            &control.should_log,           &control.is_interrupted,
                            &control.save_was_due};
  auto own = torch::zeros({int64_t(switches.size()) + 1}, torch::kInt);
  auto* values = own.data_ptr<int>();
  for (size_t i = 0; i < switches.size(); ++i) values[i] = int(*switches[i]);
  values[switches.size()] = control.interrupted_by;
  for (const auto& each : group_->gather(own)) {
    const auto* theirs = each.const_data_ptr<int>();
    for (size_t i = 0; i < switches.size(); ++i) *switches[i] |= theirs[i] != 0;
    control.interrupted_by = std::max(control.interrupted_by, theirs[switches.size()]);
  }
}

bool Processes::any(bool value) const { return sum(int64_t(value)) > 0; }

double Processes::sum(double value) const {
  if (!group_) return value;
  const auto total = torch::full({1}, value, torch::kDouble);
  group_->sum(total);
  return total.item<double>();
}

int64_t Processes::sum(int64_t value) const {
  if (!group_) return value;
  const auto total = torch::full({1}, value, torch::kLong);
  group_->sum(total);
  return total.item<int64_t>();
}

double Processes::mean(double value) const {
  if (!group_) return value;
  return torch::cat(group_->gather(torch::full({1}, value, torch::kFloat))).mean().item<double>();
}

std::string Processes::of_first(const std::function<std::string()>& text) const {
  if (!group_) return text();
  return group_->gather_bytes(rank() == 0 ? text() : std::string()).front();
}

std::vector<std::string> Processes::gather(const std::string& text) const {
  if (!group_) return {text};
  return group_->gather_bytes(text);
}

void Processes::wait_for_all() const {
  if (group_) group_->barrier();
}

void Processes::require_same(const nlohmann::json& facts) const {
  if (!group_) return;
  const auto all = group_->gather_bytes(dump_json(facts));
  for (size_t other = 1; other < all.size(); ++other) {
    if (all[other] == all[0]) continue;
    const auto first = strict_json(all[0]), second = strict_json(all[other]);
    for (const auto& [name, value] : first.items()) {
      const auto theirs = second.value(name, nlohmann::json());
      if (value == theirs) continue;
      throw Error("G-DIST-5", ErrorKind::usage,
                  fmt::format("the processes differ in {}: {} in process 0, {} in process {}", name,
                              dump_json(value), dump_json(theirs), other),
                  "Start every process with the same program, options and data.");
    }
  }
}

nlohmann::json shared_arguments(const TrainingArguments& args) {
  auto facts = nlohmann::json(args.to_dict());
  for (const char* own :
       {"output_dir", "local_rank", "log_level", "log_level_replica", "disable_tqdm", "report_to",
        "run_name", "num_threads", "dataloader_num_workers", "dataloader_prefetch_factor",
        "resume_from_checkpoint"})
    facts.erase(own);
  return facts;
}

}  // namespace gradus
