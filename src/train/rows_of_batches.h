#pragma once

#include <gradus/data/data_loader.h>

namespace gradus {

/// The rows of batches `first` to `first + count - 1` of a pass, for messages; at most 64. Empty
/// when the loader cannot say without drawing random numbers, and for a user's own batches.
std::vector<int64_t> rows_of_batches(const DataLoader& loader, int64_t epoch, int64_t first,
                                     int64_t count, int64_t batches_in_epoch);

}  // namespace gradus
