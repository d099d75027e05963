#pragma once

#include <gradus/data/batch.h>
#include <gradus/device/gpu.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace gradus {

/// Forward and backward of micro-batches, and the update of the weights after the last of a window,
/// recorded once per shape and then replayed with one launch.
///
/// The first batches of a shape run plainly (the second one with an alarm for operations that make
/// the host wait), then the work is recorded. When it cannot be, the reason is logged once and
/// everything runs plainly from then on. Gradients end in the parameters' `grad` either way.
/// Thread-safety: none.
class StepGraphs {
 public:
  /// The whole of a micro-batch: forward, backward; gives the detached loss. It must do the same
  /// work for every batch of a shape.
  using Work = std::function<torch::Tensor(const Batch& inputs,
                                           const std::optional<torch::Tensor>& num_items)>;

  /// What ends a step: clipping and the optimizer. `kind` tells apart updates whose recordings
  /// differ.
  struct Update {
    std::string kind;
    std::function<torch::Tensor()> run;  ///< gives the gradients' norm
  };

  struct Result {
    torch::Tensor loss;
    std::optional<torch::Tensor> norm = std::nullopt;  ///< set when the update was done as well
  };

  /// Whether the second batch of a shape runs with the alarm. Work that sets it off is repeated.
  enum class Watch { on, off };
  /// `holders`: the tensors whose gradients `work` adds to.
  StepGraphs(std::vector<torch::Tensor> holders, torch::Device device, Watch watch = Watch::on);

  /// Does `work`, or replays it together with `update` where there is one: work that is not
  /// replayed leaves the update to the caller. `inputs` and `num_items` are on the device. `window`
  /// is part of what makes work the same.
  Result run(const Batch& inputs, const std::optional<torch::Tensor>& num_items, int64_t window,
             const Work& work, const std::optional<Update>& update = {});

  size_t recorded() const;
  /// Why nothing is recorded (any more); empty when all is well.
  const std::string& reason() const { return reason_; }

 private:
  struct Entry {
    int64_t seen = 0;
    Batch inputs;
    std::optional<torch::Tensor> num_items;
    Result result;
    std::unique_ptr<device::Graph> graph;
  };
  struct Key {
    std::string text;
    bool adds = false;  ///< to the gradients of an earlier micro-batch
  };

  Key key_of(const Batch& inputs, const std::optional<torch::Tensor>& num_items, int64_t window,
             const std::optional<Update>& update) const;
  torch::Tensor run_watched(const Batch& inputs, const std::optional<torch::Tensor>& num_items,
                            const Work& work);
  void record(Entry& entry, const Batch& inputs, const std::optional<torch::Tensor>& num_items,
              bool adds, const Work& work, const std::optional<Update>& update);
  void move_gradients();
  Result replay(Entry& entry, const Batch& inputs, const std::optional<torch::Tensor>& num_items,
                bool adds);
  bool has_gradients() const;
  void drop_gradients();
  void give_up(const std::string& why);

  std::vector<torch::Tensor> holders_;
  torch::Device device_;
  Watch watch_;
  std::unordered_map<std::string, Entry> entries_;
  torch::Tensor norm_;  // where recorded updates leave the norm: not in the graphs' pool, whose
                        // memory other graphs write to
  std::vector<torch::Tensor>
      grads_;  // where recorded work leaves the gradients; undefined where a parameter gets none
  std::string reason_;
};

}  // namespace gradus
