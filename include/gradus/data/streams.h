#pragma once

#include <gradus/data/dataset.h>

namespace gradus {

// Views of iterable data sets. Each takes the source over: from then on only the view reads it.
// Every one can be resumed where its source can. All but `filter_stream` know their size when
// their source does, so that training by epochs needs no max_steps.

/// `function` applied to each row.
std::shared_ptr<IterableDataset> map_stream(std::shared_ptr<IterableDataset> source,
                                            std::function<Example(const Example&)> function);

/// The rows for which `keep` is true.
std::shared_ptr<IterableDataset> filter_stream(std::shared_ptr<IterableDataset> source,
                                               std::function<bool(const Example&)> keep);

/// At most `count` rows of a pass, after leaving out the first `skip`.
std::shared_ptr<IterableDataset> take_stream(std::shared_ptr<IterableDataset> source, int64_t count,
                                             int64_t skip = 0);

/// Shuffles with a buffer: `buffer_size` rows are read and given in random order (from seed, epoch
/// and the number of the buffer), then the next ones. A resume reads only the buffer it stopped in
/// once more.
std::shared_ptr<IterableDataset> shuffle_stream(std::shared_ptr<IterableDataset> source,
                                                int64_t buffer_size, int64_t seed);

/// A map-style data set read from front to back.
std::shared_ptr<IterableDataset> as_stream(std::shared_ptr<const Dataset> dataset);

/// The rows of one process out of several: each takes `batch_size` of every `batch_size * world`
/// rows. Without `drop_last` the last round is filled with rows from the start, so that all have
/// equally many (`IterableDatasetShard`).
std::shared_ptr<IterableDataset> shard_stream(std::shared_ptr<IterableDataset> source,
                                              int64_t batch_size, int64_t rank, int64_t world,
                                              bool drop_last = false);

}  // namespace gradus
