#include <gradus/core/error.h>
#include <gradus/data/data_loader.h>

#include "data/batch_iterator_impl.h"
#include "data/batch_plan.h"
#include "data/worker_pool.h"

#include <fmt/format.h>

namespace gradus {

struct DataLoader::Workers {
  std::shared_ptr<data::WorkerPool> pool;
};

namespace {

[[noreturn]] void throw_options(const std::string& message, const std::string& advice) {
  throw Error("G-DATA-8", ErrorKind::usage, message, advice);
}

void check(const DataLoaderOptions& options) {
  if (!options.dataset)
    throw_options("a data loader needs a data set", "Set DataLoaderOptions::dataset.");
  if (options.num_workers < 0)
    throw_options(fmt::format("num_workers is {}, expected 0 or more", options.num_workers),
                  "0 works in the caller's thread.");
  if (options.prefetch_factor && *options.prefetch_factor < 1)
    throw_options(
        fmt::format("prefetch_factor is {}, expected at least 1", *options.prefetch_factor),
        "2 is the default.");
  if (options.num_workers == 0 && options.prefetch_factor)
    throw_options("prefetch_factor is set without workers",
                  "Set num_workers to 1 or more, or leave prefetch_factor out.");
  if (options.num_workers == 0 && options.persistent_workers)
    throw_options("persistent_workers is set without workers", "Set num_workers to 1 or more.");
  if (options.dataset.is_iterable() && options.sampler)
    throw_options("a sampler is set for an iterable data set",
                  "An iterable data set decides on its own order; leave the sampler out.");
  if (options.batch_sampler &&
      (options.dataset.is_iterable() || options.sampler || options.shard.world != 1))
    throw_options(fmt::format("a batch sampler is set beside {}",
                              options.dataset.is_iterable() ? "an iterable data set"
                              : options.sampler             ? "a sampler"
                                                            : "a shard of the data"),
                  "A batch sampler chooses the batches of this process alone, for map-style data.");
  data::BatchPlan(options.batch_size, options.drop_last, options.shard);  // checks the sizes
}

std::optional<int64_t> rows_of(const DataLoaderOptions& options) {
  return options.sampler ? options.sampler->size() : options.dataset.size();
}

// The batches of one process for a stream that says how long it is.
int64_t stream_batches(const DataLoaderOptions& options, int64_t rows) {
  const int64_t together =
      options.batch_size * (options.shard.split_batches ? 1 : options.shard.world);
  return options.drop_last ? rows / together : (rows + together - 1) / together;
}

/// The seed of the first worker. Those of other processes have others, as in transformers.
int64_t worker_seed(const DataLoaderOptions& options) {
  return options.seed + options.shard.rank * options.num_workers;
}

/// Splits what `ThreadedIterator::state` adds when batches overtook each other.
data::PassStart pass_start(int64_t epoch, int64_t first_batch, const nlohmann::json& state) {
  if (!state.is_object() || !state.contains("ahead")) return {epoch, first_batch, state, {}};
  return {epoch, state.at("next").get<int64_t>(), state.at("state"),
          state.at("ahead").get<std::set<int64_t>>()};
}

}  // namespace

DataLoader::DataLoader(DataLoaderOptions options) {
  check(options);
  options_ = std::make_shared<const DataLoaderOptions>(std::move(options));
  if (options_->persistent_workers) {
    workers_ = std::make_shared<Workers>(
        Workers{std::make_shared<data::WorkerPool>(options_->num_workers, worker_seed(*options_))});
  }
}

DataLoader::DataLoader(std::shared_ptr<BatchSource> source) : source_(std::move(source)) {
  if (!source_) throw_options("a data loader needs a batch source", "Pass a BatchSource.");
}

std::optional<int64_t> DataLoader::size() const {
  if (source_) return source_->size();
  if (!options_) return std::nullopt;
  if (options_->batch_sampler) return options_->batch_sampler->size();
  const auto rows = rows_of(*options_);
  if (!rows) return std::nullopt;
  if (options_->dataset.is_iterable()) return stream_batches(*options_, *rows);
  return data::BatchPlan(options_->batch_size, options_->drop_last, options_->shard).batches(*rows);
}

std::optional<int64_t> DataLoader::num_examples() const {
  return options_ ? rows_of(*options_) : std::nullopt;
}

BatchIterator DataLoader::iterate(int64_t epoch, int64_t first_batch) const {
  return iterate(epoch, first_batch, nullptr);
}

BatchIterator DataLoader::iterate(int64_t epoch, int64_t first_batch,
                                  const nlohmann::json& state) const {
  const auto start = pass_start(epoch, first_batch, state);
  if (source_)
    return BatchIterator(
        data::make_direct_iterator(data::make_source_maker(source_, start), first_batch));
  if (!options_)
    throw_options("an empty data loader has no batches", "Give it a data set or a batch source.");
  auto maker = options_->dataset.is_iterable() ? data::make_iterable_maker(options_, start)
                                               : data::make_map_maker(options_, start);
  if (options_->num_workers == 0)
    return BatchIterator(data::make_direct_iterator(std::move(maker), first_batch));
  auto pool =
      workers_ ? workers_->pool
               : std::make_shared<data::WorkerPool>(options_->num_workers, worker_seed(*options_));
  const int64_t ahead = options_->num_workers * options_->prefetch_factor.value_or(2);
  return BatchIterator(data::make_threaded_iterator(std::move(maker), std::move(pool), ahead, start,
                                                    first_batch, options_->in_order));
}

DataLoader tensor_loader(std::vector<std::pair<std::string, torch::Tensor>> columns,
                         TensorLoaderOptions options) {
  auto dataset = from_tensors(std::move(columns));
  DataLoaderOptions loader;
  loader.sampler = options.shuffle ? random_sampler(dataset->size(), options.seed) : nullptr;
  loader.dataset = std::move(dataset);
  loader.batch_size = options.batch_size;
  loader.drop_last = options.drop_last;
  loader.num_workers = options.num_workers;
  loader.seed = options.seed;
  return DataLoader(std::move(loader));
}

}  // namespace gradus
