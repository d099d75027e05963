#pragma once

#include <cstdint>

namespace gradus {

/// This process among those that a launcher started together.
struct LaunchEnvironment {
  int64_t rank = 0;              ///< among all
  int64_t world_size = 1;        ///< how many in all
  int64_t local_rank = 0;        ///< on this machine
  int64_t local_world_size = 1;  ///< how many on this machine
};

/// Read from the environment: torchrun's RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, else Open
/// MPI's, MPICH's or Slurm's own; a lone process when there is none. Throws `Error` (usage)
/// G-CONF-8 for values that cannot be.
LaunchEnvironment launch_environment();

}  // namespace gradus
