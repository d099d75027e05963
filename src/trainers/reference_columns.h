#pragma once

#include <gradus/data/dataset.h>
#include <gradus/distributed/process_group.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gradus {

/// Columns of a set that a reference policy computes once, before training.
struct ReferenceColumns {
  std::vector<std::string> names = {};  ///< Of the columns.
  /// The values of some rows: one tensor for each column, one number for each row. It is called on
  /// another thread than the caller's.
  std::function<std::vector<torch::Tensor>(const std::vector<Example>& rows)> compute = nullptr;
  int64_t batch_size = 1;  ///< Rows in a call of `compute`.
  /// Its weights are part of the cache's key. Null: it is gone.
  const torch::nn::Module* reference = nullptr;
  std::string settings = {};                      ///< What else the values depend on.
  std::shared_ptr<ProcessGroup> group = nullptr;  ///< The first process computes, the others read.
};

/// The rows with these columns; those that have them already stay as they are. The columns lie in
/// the cache of data sets, under a key of rows, weights and settings. `where` names the set. Throws
/// `Error` G-TRL-1 when the reference is gone.
DatasetRef with_reference_columns(const DatasetRef& rows, const ReferenceColumns& columns,
                                  const std::string& where);

}  // namespace gradus
