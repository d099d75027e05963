#include <fmt/format.h>
#include <gradus/config/launch_environment.h>
#include <gradus/core/error.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace gradus {
namespace {

// The variables of each launcher: rank, world size, local rank, local world size.
struct Launcher {
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};
// Slurm sets the step's variables only for tasks that srun started, not in the batch script itself.
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};

std::optional<int64_t> number_of(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  const bool tasks_per_node = error == std::errc() && *stop == '(';  // Slurm: "2(x4)"
  if (error != std::errc() || value < 0 || (stop != end && !tasks_per_node))
    throw Error(
        "G-CONF-8", ErrorKind::usage,
        fmt::format("environment variable {}: expected a number, received \"{}\"", name, text),
        "A launcher such as torchrun sets it. Unset it for a run with one process.");
  return value;
}

}  // namespace

LaunchEnvironment launch_environment() {
  for (const auto& launcher : kLaunchers) {
    const auto rank = number_of(launcher.rank);
    const auto world_size = number_of(launcher.world_size);
    if (!rank || !world_size) continue;
    LaunchEnvironment here{.rank = *rank, .world_size = *world_size};
    here.local_rank = number_of(launcher.local_rank).value_or(here.rank);
    here.local_world_size = number_of(launcher.local_world_size).value_or(here.world_size);
    if (here.rank >= here.world_size)
      throw Error(
          "G-CONF-8", ErrorKind::usage,
          fmt::format("environment variable {} is {}, but {} is {}: expected a rank below it",
                      launcher.rank, here.rank, launcher.world_size, here.world_size),
          "Start the processes with a launcher such as torchrun, or unset both for a run with one "
          "process.");
    return here;
  }
  return {};
}

}  // namespace gradus
