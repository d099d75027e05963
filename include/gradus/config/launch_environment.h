#pragma once

#include <cstdint>

namespace gradus {

/// The place of this process among those that a launcher started together.
struct LaunchEnvironment {
  int64_t rank = 0;              ///< Number of this process, from 0.
  int64_t world_size = 1;        ///< Number of processes.
  int64_t local_rank = 0;        ///< Number of this process on this machine, from 0.
  int64_t local_world_size = 1;  ///< Number of processes on this machine.
};

/// Reads the environment: torchrun's RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, else the
/// variables of Open MPI, MPICH or Slurm. Without any of them this is a single process. Throws
/// `Error` (usage) G-CONF-8 for impossible values.
LaunchEnvironment launch_environment();

}  // namespace gradus
