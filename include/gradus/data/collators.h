#pragma once

#include <gradus/data/batch.h>
#include <gradus/data/example.h>

#include <vector>

namespace gradus {

/// Stacks the rows column by column, as `transformers.default_data_collator` does.
///
/// The first row says which columns there are. `label` and `label_ids` become `labels` (int64 for integers, float32
/// for floats); text and null columns are left out; numbers and lists become tensors, tensors are stacked.
/// Throws G-DATA-1 when a later row lacks a column, G-DATA-6 when a value cannot be a tensor, G-DATA-7 when lengths differ.
Batch default_data_collator(std::vector<Example> rows);

}  // namespace gradus
