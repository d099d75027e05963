#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gradus {

/// The order of one pass, to be read from any place on.
class IndexOrder {
 public:
  virtual ~IndexOrder() = default;
  /// How many indices there are.
  virtual int64_t size() const = 0;
  /// What `Sampler::reopen` needs, beside the epoch, to give this order again; null when the epoch
  /// is enough.
  virtual nlohmann::json state() const;
  /// Fills `out` with the indices from place `first` on.
  virtual void read(int64_t first, std::span<int64_t> out) const = 0;
};

/// The order in which the rows of a map-style data set are visited.
///
/// As a rule it is a pure function of the epoch. Resuming then needs no replay: the loader asks for
/// the epoch's order and starts at its position. A sampler that is not pure overrides `open` and
/// `reopen`. Thread-safety: `order` is const and may be called from any thread.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// How many indices `order` gives.
  virtual int64_t size() const = 0;
  /// The indices of pass number `epoch`.
  virtual std::vector<int64_t> order(int64_t epoch) const = 0;
  /// The same order in the form the loader reads it; override where it need not be written out in
  /// full. The loader calls it once at the beginning of a pass.
  virtual std::shared_ptr<const IndexOrder> open(int64_t epoch) const;
  /// The order of a pass that was begun before, from the `state()` of its order.
  virtual std::shared_ptr<const IndexOrder> reopen(int64_t epoch,
                                                   const nlohmann::json& state) const;
};

/// 0, 1, 2, …
std::shared_ptr<Sampler> sequential_sampler(int64_t rows);

/// The order of accelerate's `SeedableRandomSampler`, bit for bit: `torch.randperm(rows)` from a
/// generator seeded with `seed + epoch`.
std::shared_ptr<Sampler> random_sampler(int64_t rows, int64_t seed);

/// The order of torch's own `RandomSampler` without a generator, bit for bit (accelerate's
/// `use_seedable_sampler=false`): each call of `order` or `open` draws a new seed from torch's
/// global generator, whatever the epoch. The seed is the order's state, so that a pass can be
/// resumed. Thread-safety: as the global generator.
std::shared_ptr<Sampler> global_random_sampler(int64_t rows);

/// Rows of similar length side by side, as transformers' `LengthGroupedSampler`: a random order is
/// cut into mega-batches, each is sorted by falling length, and the longest row of all comes first.
/// The generator is seeded with `seed + epoch`, so that a run can be resumed (transformers draws
/// from the global one). `batch_size` is that of an optimizer step.
std::shared_ptr<Sampler> length_grouped_sampler(std::vector<int64_t> lengths, int64_t batch_size,
                                                int64_t seed);

/// The part of process `rank` of `world` in the order above: every `world`-th index. Without
/// `drop_last` the first ones come again at the end so that all processes have equally many
/// (`DistributedLengthGroupedSampler`).
std::shared_ptr<Sampler> distributed_length_grouped_sampler(std::vector<int64_t> lengths,
                                                            int64_t batch_size, int64_t seed,
                                                            int64_t rank, int64_t world,
                                                            bool drop_last = false);

/// 0, 1, 2, … distributed to processes batch by batch. The first rows fill up the last round
/// (`ShardSampler`).
std::shared_ptr<Sampler> shard_sampler(int64_t rows, int64_t batch_size, int64_t rank,
                                       int64_t world, bool drop_last = false);

/// Options of `repeat_sampler`.
struct RepeatSamplerOptions {
  int64_t mini_repeat_count = 1;  ///< how often an index is repeated in a row
  int64_t batch_size = 1;         ///< different indices of a batch; a short last batch is left out
  int64_t repeat_count = 1;       ///< how often a batch is repeated
  /// Whether the rows are shuffled.
  bool shuffle = true;
  /// Seed of the shuffle.
  int64_t seed = 0;
};

/// TRL's `RepeatSampler`: groups of indices, each repeated. Epoch e is the (e+1)-th permutation of
/// one generator.
std::shared_ptr<Sampler> repeat_sampler(int64_t rows, RepeatSamplerOptions options);

/// The batches of one pass, each read by its number.
/// Thread-safety: `read` may be called from any thread.
class BatchOrder {
 public:
  virtual ~BatchOrder() = default;
  /// Batches of the pass.
  virtual int64_t size() const = 0;
  /// Puts the rows of batch `number` into `indices`.
  virtual void read(int64_t number, std::vector<int64_t>& indices) const = 0;
  /// As `IndexOrder::state`.
  virtual nlohmann::json state() const;
};

/// Which rows form each batch, where batches are not just cut from an order of rows: torch's
/// `batch_sampler`. A pure function of the epoch, as `Sampler`, so that a resume needs no replay.
/// It gives the batches of this process only.
class BatchSampler {
 public:
  virtual ~BatchSampler() = default;
  /// Batches of a pass.
  virtual int64_t size() const = 0;
  /// The batches of pass `epoch`.
  virtual std::shared_ptr<const BatchOrder> open(int64_t epoch) const = 0;
};

/// Options of `batch_rebalance_sampler`.
struct BatchRebalanceOptions {
  int64_t effective_batch_size =
      1;  ///< rows of an optimizer step, of all processes and accumulation steps together
  /// Batches per optimizer step.
  int64_t gradient_accumulation_steps = 1;
  /// Number of this process, from 0.
  int64_t rank = 0;
  /// Number of processes.
  int64_t world = 1;
  /// Whether the rows are shuffled.
  bool shuffle = true;
  int64_t seed = 42;      ///< the order of epoch e is drawn from `seed + e`
  bool drop_last = true;  ///< leave out the rows at the end that fill no step
};

/// Batches of nearly equal cost when padded (rows · longest, and a part for its square), as
/// transformers' `BatchRebalanceSampler`: the rows of each optimizer step are sorted by length and
/// cut so that long ones come in small batches and short ones in large batches. A step costs about
/// `effective_batch_size` times the number of batches in it to work out; nothing before it is
/// looked at.
std::shared_ptr<BatchSampler> batch_rebalance_sampler(std::vector<int64_t> lengths,
                                                      BatchRebalanceOptions options);

struct Dataset;

/// The length of column `name` of every row, for the samplers that look at lengths; reads each row
/// once. Throws G-DATA-10 when a row does not have it or it is not a list, text or tensor.
std::vector<int64_t> column_lengths(const Dataset& dataset, const std::string& name = "input_ids");

}  // namespace gradus
