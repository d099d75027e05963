#pragma once

#include <gradus/engine/eval_accumulator.h>
#include <gradus/engine/eval_prediction.h>

#include <vector>

namespace gradus {

/// What `Trainer::predict` returns. With `eval_do_concat_batches=false` the predictions and labels
/// of each batch are in `prediction_batches` and `label_batches`, and the first four members stay
/// empty.
struct PredictionOutput {
  torch::Tensor predictions;    ///< the model's output; undefined when there are several
  torch::Tensor label_ids;      ///< the labels; undefined when there are several
  TensorList prediction_parts;  ///< every output, also when there is just one
  TensorList label_parts;       ///< every label, also when there is just one
  Metrics metrics;              ///< every name begins with the prefix given to `predict`
  std::vector<TensorList> prediction_batches = {};  ///< not joined: `prediction_parts` per batch
  std::vector<TensorList> label_batches = {};       ///< not joined: `label_parts` per batch
};

}  // namespace gradus
