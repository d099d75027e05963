#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/formats/checksum.h>
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <vector>

namespace gradus {

/// What `rng_state.pth` (or `rng_state_RANK.pth`) of a Trainer checkpoint holds.
///
/// gradus draws only from torch's generators. The states of Python's `random` and of numpy are
/// carried through unchanged when the file came from Python, and are those of a fresh seed
/// otherwise, so that Python can resume.
struct RngState {
  torch::Tensor cpu;                ///< state of torch's CPU generator (uint8)
  std::vector<torch::Tensor> cuda;  ///< state per GPU; empty without one
  /// How the GPU states are stored: a list of all (distributed runs) or one tensor. With several
  /// states it is a list.
  bool cuda_as_list = false;
  StateTree python;  ///< `random.getstate()`: (3, (624 words, position), None or float)
  StateTree numpy;   ///< `np.random.get_state()`: ("MT19937", 624 words, position, has_gauss,
                     ///< cached_gauss)
};

/// `random.getstate()` after `random.seed(seed)`.
StateTree python_random_state(uint64_t seed);

/// `np.random.get_state()` after `np.random.seed(seed % 2**32)`.
StateTree numpy_random_state(uint64_t seed);

/// Reads Python's file or ours. Throws what `read_torch_file` throws, and G-RNG-1 when an entry is
/// missing or has another shape than Python accepts.
RngState read_rng_state(const std::filesystem::path& file);

/// Writes a file that Python's Trainer accepts. Throws G-RNG-1 when `cpu` is not set or a state is
/// malformed, G-IO-2.
WrittenFile write_rng_state(const std::filesystem::path& file, const RngState& state,
                            Sync sync = Sync::no);

}  // namespace gradus
