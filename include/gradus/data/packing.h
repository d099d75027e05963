#pragma once

#include <gradus/data/dataset.h>

#include <span>

namespace gradus {

enum class PackingStrategy {
  bfd,        ///< best fit, longest first; what is longer than a row is cut off
  bfd_split,  ///< the same, but what is cut off goes into other rows
  wrapped,    ///< all tokens behind each other, cut every `seq_length`
};

/// "bfd", "bfd_split" or "wrapped". Throws G-DATA-15.
PackingStrategy packing_strategy(std::string_view name);

struct PackingOptions {
  int64_t seq_length = 1024;
  PackingStrategy strategy = PackingStrategy::bfd;
  int64_t rows_at_once =
      1000;  ///< rows packed among each other; the peer's (`datasets.map`) is 1000
};

/// The places packed rows take their tokens from: list `row`, tokens [begin, begin + length).
struct PackedPiece {
  int64_t row = 0;
  int64_t begin = 0;
  int64_t length = 0;
};

/// Which pieces of lists of these lengths form each packed row. Pure; `pack_dataset` is this for a
/// data set.
std::vector<std::vector<PackedPiece>> pack_lengths(std::span<const int64_t> lengths,
                                                   const PackingOptions& options);

/// Rows of lists of integers put together into rows of at most `seq_length`, as TRL's
/// `pack_dataset`. The lengths are found now; rows are put together when they are asked for. `bfd`
/// and `bfd_split` add the column `seq_lengths`. Throws G-DATA-15 when a column is not a list, or
/// lists of a row differ in length.
std::shared_ptr<Dataset> pack_dataset(const std::shared_ptr<const Dataset>& dataset,
                                      PackingOptions options);

/// Sequence boundaries of a padding-free batch from position ids `[1, tokens]` that are 0 at each
/// start: int32
/// `[sequences + 1]`, from 0 to the number of tokens.
torch::Tensor cu_seq_lens(const torch::Tensor& position_ids);

/// Which sequence each token belongs to: int32 `[1, tokens]`.
torch::Tensor seq_idx_from(const torch::Tensor& cu_seq_lens);

/// Position ids `[1, tokens]` that restart at every sequence.
torch::Tensor position_ids_from(const torch::Tensor& cu_seq_lens);

/// The mask for attention that cannot take boundaries: bool `[1, 1, tokens, tokens]`, true where a
/// token may look. Tokens see only their own sequence, and with `causal` nothing behind them.
torch::Tensor block_diagonal_mask(const torch::Tensor& cu_seq_lens, bool causal = true);

}  // namespace gradus
