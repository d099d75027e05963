#pragma once

#include <gradus/data/batch.h>

#include <string>

namespace gradus {

/// The same numbers in memory of its own; what the batch knows of its masks stays known.
Batch clone_of(const Batch& inputs);

/// Names, types and shapes of a batch, and which masks are known to be full, as one line: what a
/// recording is good for.
std::string shape_text(const Batch& inputs);

}  // namespace gradus
