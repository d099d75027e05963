#pragma once

#include <gradus/data/batch.h>
#include <gradus/device/gpu.h>
#include <gradus/models/model_output.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

/// Forward passes of evaluation, recorded once per shape and replayed, while a run with recorded
/// steps is under way.
///
/// The first batch of a shape runs plainly. Passes with large outputs are not recorded: their
/// memory would be held for good. Thread-safety: none.
class EvalGraphs {
 public:
  using Work = std::function<ModelOutput(const Batch& inputs)>;

  /// Does `work` or replays it; the result is the caller's own either way. `kind` is part of what
  /// makes work the same.
  ModelOutput run(const Batch& inputs, const std::string& kind, const Work& work);

 private:
  struct Entry {
    bool plain = false;  ///< this shape stays plain
    Batch inputs;
    ModelOutput outputs;
    std::unique_ptr<device::Graph> graph;
  };

  std::vector<std::pair<std::string, Entry>> entries_;
  bool given_up_ = false;
};

}  // namespace gradus
