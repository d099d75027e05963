#pragma once

#include <gradus/data/dataset.h>

#include <span>

namespace gradus {

/// How rows are packed, by trl's names.
enum class PackingStrategy {
  bfd,        ///< Best fit, longest first. Tokens beyond `seq_length` are dropped.
  bfd_split,  ///< The same, but these tokens go into other rows.
  wrapped,    ///< All tokens joined and cut every `seq_length`.
};

/// "bfd", "bfd_split" or "wrapped". Throws G-DATA-15.
PackingStrategy packing_strategy(std::string_view name);

/// Options of `pack_dataset`.
struct PackingOptions {
  int64_t seq_length = 1024;                        ///< Longest packed row.
  PackingStrategy strategy = PackingStrategy::bfd;  ///< How rows are packed.
  /// Rows that are packed together, as the batches of `datasets.map` in trl.
  int64_t rows_at_once = 1000;
};

/// The places packed rows take their tokens from: list `row`, tokens [begin, begin + length).
struct PackedPiece {
  int64_t row = 0;     ///< Number of the list.
  int64_t begin = 0;   ///< First token.
  int64_t length = 0;  ///< Number of tokens.
};

/// Which pieces of lists of these lengths form each packed row. Pure; `pack_dataset` is this for a
/// data set.
std::vector<std::vector<PackedPiece>> pack_lengths(std::span<const int64_t> lengths,
                                                   const PackingOptions& options);

/// Packs rows of integer lists into rows of at most `seq_length`, as `pack_dataset` of trl. The
/// lengths are read now; rows are packed when they are read. `bfd`
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
