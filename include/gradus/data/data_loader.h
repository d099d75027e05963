#pragma once

#include <gradus/data/batch.h>
#include <gradus/data/dataset.h>
#include <gradus/data/sampler.h>

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace gradus {

/// Makes a batch of rows. Several loader threads may call it at once.
using DataCollator = std::function<Batch(std::vector<Example>)>;

/// Which batch is being collated. Collators that draw random numbers seed their generator from it,
/// so that the result is the same for any number of workers and after a resume.
struct CollateContext {
  int64_t seed = 0;         ///< `DataLoaderOptions::seed`.
  int64_t epoch = 0;        ///< Number of the pass.
  int64_t batch_index = 0;  ///< Number of the batch in the pass, those of all processes counted.
};
/// The context of the batch that is read and collated on this thread; zeros outside of one.
const CollateContext& collate_context();

/// A loader thread, as `torch.utils.data.get_worker_info()` describes one.
struct WorkerInfo {
  int64_t id = 0;           ///< From 0 to `num_workers` - 1.
  int64_t num_workers = 0;  ///< Threads of the loader.
  int64_t seed = 0;         ///< The loader's seed + `id`.
};
/// The worker that runs the calling thread; `nullopt` on other threads.
std::optional<WorkerInfo> worker_info();

/// Which of the batches this process takes when several train together.
struct DataShard {
  int64_t rank = 0;   ///< This process.
  int64_t world = 1;  ///< Number of processes.
  /// Go on with the first rows at the end, so that every process has as many full batches as the
  /// others.
  bool even_batches = true;
  /// `batch_size` is that of all processes together: each takes its part of every batch.
  bool split_batches = false;
  /// The rows that are left for the last step are shared equally, as accelerate's dispatcher does.
  /// Only the rest of a division is made up for with the first rows. Replaces `even_batches`.
  bool dispatch = false;
  /// Let an iterable data set leave out the others' rows itself (`IterableDataset::shard`), when it
  /// can. It must then see to it that all processes have equally many. Otherwise every process
  /// reads all rows and keeps its own.
  bool by_source = false;
};

/// Batches from elsewhere, for users who make them themselves.
struct BatchSource {
  virtual ~BatchSource() = default;
  /// The next batch, or nothing at the end of the pass.
  virtual std::optional<Batch> next() = 0;
  /// Goes to the first batch of pass number `epoch`.
  virtual void reset(int64_t epoch) = 0;
  /// Batches of a pass, where that is known.
  virtual std::optional<int64_t> size() const { return std::nullopt; }
  /// As in `IterableDataset`: null means "read and drop".
  virtual nlohmann::json save_state() const;
  /// Continues after what `save_state` returned. Throws `Error` G-DATA-9 by default.
  virtual void load_state(const nlohmann::json& state);
};

/// Options of `DataLoader`.
struct DataLoaderOptions {
  DatasetRef dataset = {};                ///< The rows.
  int64_t batch_size = 1;                 ///< Rows of a batch.
  std::shared_ptr<Sampler> sampler = {};  ///< default: sequential; not for iterable data sets
  /// Decides on whole batches in place of `sampler`, `batch_size` and `drop_last`; not for iterable
  /// data sets, and `shard` must be left alone.
  std::shared_ptr<BatchSampler> batch_sampler = {};
  DataCollator collator = {};  ///< default: `default_data_collator`
  bool drop_last = false;      ///< leave out the last batch when it is short
  int64_t num_workers = 0;  ///< threads that read and collate ahead; 0 works in the caller's thread
  std::optional<int64_t> prefetch_factor = {};  ///< batches ahead per worker; default 2
  bool persistent_workers = false;              ///< keep the threads between passes
  bool in_order = true;                         ///< false: a batch is given as soon as it is ready
  bool pin_memory = false;  ///< page-locked batches; only where a GPU is present
  int64_t seed = 0;         ///< reaches collators through `collate_context()`
  DataShard shard = {};     ///< this process's part of the data
};

class BatchIterator;

/// A recipe for batches. Copying it is cheap; the position lives in the iterators it makes.
class DataLoader {
 public:
  DataLoader() = default;
  /// A loader over a data set. Throws `Error` G-DATA-8 for options that contradict each other.
  explicit DataLoader(DataLoaderOptions options);
  /// A loader over batches that the user makes.
  explicit DataLoader(std::shared_ptr<BatchSource> source);

  /// Whether there is anything to load from.
  explicit operator bool() const { return options_ != nullptr || source_ != nullptr; }
  /// Batches of a pass, where that is known.
  std::optional<int64_t> size() const;
  /// Rows of a pass, where that is known.
  std::optional<int64_t> num_examples() const;
  /// Null for a loader over a user's batch source.
  const DataLoaderOptions* options() const { return options_.get(); }

  /// The batches of pass `epoch` from number `first_batch` on. Map-style data reads nothing before
  /// it; iterable data is read from the start and dropped.
  BatchIterator iterate(int64_t epoch, int64_t first_batch = 0) const;
  /// The same for iterable data that continues from a `BatchIterator::state`, without reading what
  /// came before.
  BatchIterator iterate(int64_t epoch, int64_t first_batch, const nlohmann::json& state) const;

 private:
  std::shared_ptr<const DataLoaderOptions> options_;
  std::shared_ptr<BatchSource> source_;
  struct Workers;
  std::shared_ptr<Workers> workers_;  ///< persistent threads, shared by the copies of this loader
};

/// One pass over a loader. Destroying it at any moment stops its workers.
class BatchIterator {
 public:
  struct Impl;
  /// For `DataLoader` only.
  explicit BatchIterator(std::unique_ptr<Impl> impl);
  /// An iterator can be moved, not copied.
  BatchIterator(BatchIterator&&) noexcept;
  /// Stops the workers of the iterator that is replaced.
  BatchIterator& operator=(BatchIterator&&) noexcept;
  ~BatchIterator();

  /// The next batch, or nothing at the end of the pass. An exception of a worker is thrown here,
  /// with the row's index.
  std::optional<Batch> next();
  /// Batches given so far, those skipped by `first_batch` included.
  int64_t position() const;
  /// How many rows all processes together have in the step of the last batch given; rows that were
  /// repeated to make the batches equal do not count. Nothing when the loader does not share its
  /// rows between processes.
  std::optional<int64_t> step_rows() const;
  /// What `DataLoader::iterate` needs, besides the position, to go on after the last batch given.
  /// It is not null for iterable data, for samplers with a state (`IndexOrder::state`), and with
  /// `in_order = false` when later batches have overtaken earlier ones.
  nlohmann::json state() const;

 private:
  std::unique_ptr<Impl> impl_;
};

/// Options of `tensor_loader`.
struct TensorLoaderOptions {
  int64_t batch_size = 1;   ///< Rows of a batch.
  bool shuffle = false;     ///< Random order, a new one in every pass.
  int64_t seed = 0;         ///< For `shuffle`.
  bool drop_last = false;   ///< Leaves out the last batch when it is short.
  int64_t num_workers = 0;  ///< Threads that work ahead.
};

/// A loader over tensors in memory: `from_tensors` with a sequential or random order.
DataLoader tensor_loader(std::vector<std::pair<std::string, torch::Tensor>> columns,
                         TensorLoaderOptions options = {});

}  // namespace gradus
