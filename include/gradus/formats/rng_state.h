#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/formats/checksum.h>
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gradus {

/// The content of `rng_state.pth` (or `rng_state_RANK.pth`) of a Trainer checkpoint.
///
/// gradus draws from torch's generators and from numpy's (`numpy_random()`), never from Python's
/// `random`. The state of that one is kept unchanged when the file came from Python. Otherwise it
/// is that of a fresh seed, so that Python can resume.
struct RngState {
  torch::Tensor cpu;                ///< State of torch's CPU generator (uint8).
  std::vector<torch::Tensor> cuda;  ///< One state per GPU; empty without a GPU.
  /// How a single GPU state is stored: as a list, as distributed runs do, or as one tensor. Several
  /// states are always a list.
  bool cuda_as_list = false;
  StateTree python;  ///< `random.getstate()`: (3, (624 words, position), None or float).
  /// `np.random.get_state()`: ("MT19937", 624 words, position, has_gauss, cached_gauss).
  StateTree numpy;
};

/// Python's `random.getstate()` after `random.seed(seed)`.
StateTree python_random_state(uint64_t seed);

/// Numpy's `np.random.get_state()` after `np.random.seed(seed % 2**32)`.
StateTree numpy_random_state(uint64_t seed);

/// The content of the file as a tree. Both functions throw `Error`
/// G-RNG-1 when `cpu` is not set, an entry is missing, or one has a shape that Python does not
/// accept.
StateTree rng_state_tree(const RngState& state);
/// Reads such a tree; `where` names the file in messages.
RngState rng_state_of(const StateTree& tree, const std::string& where = "rng_state.pth");

/// Reads a file that transformers or gradus wrote. Throws what `read_torch_file` and
/// `rng_state_of` throw.
RngState read_rng_state(const std::filesystem::path& file);

/// Writes a file that Python's Trainer accepts. Throws what `rng_state_tree` throws, and G-IO-2.
WrittenFile write_rng_state(const std::filesystem::path& file, const RngState& state,
                            Sync sync = Sync::no);

}  // namespace gradus
