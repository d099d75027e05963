#pragma once

#include <gradus/config/training_arguments.h>

namespace gradus::config {

/// What `fsdp`, `fsdp_config` and `zero_stage` ask for.
struct Sharding {
  /// 0: every process has everything; 1: a share of the optimizer's state; 2: of gradients, too;
  /// 3: of parameters, too.
  int stage = 0;
  /// Which modules are gathered as one.
  enum class Wrap { blocks, by_size, none };
  Wrap wrap = Wrap::blocks;
  int64_t min_num_params = 0;  ///< for `by_size`
  /// A checkpoint has one file for each process, not the files of a run of one process.
  bool sharded_checkpoints = false;
  /// Shares are to lie in the host's memory.
  bool offload = false;
};

/// Reads the three options. Throws `Error` G-CONF-1 and G-CONF-2 for a key or value that does not
/// exist, G-CONF-4 for a contradiction, G-CONF-5 for what only Python has, G-CONF-6 for an unusable
/// file.
Sharding sharding_of(const TrainingArguments& args);

/// Checks the options of sharding, brings `fsdp_config` into the form without prefixes, and turns
/// its activation_checkpointing into gradient_checkpointing.
void resolve_sharding(TrainingArguments& args);

}  // namespace gradus::config
