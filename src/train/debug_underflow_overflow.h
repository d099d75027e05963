#pragma once

#include <gradus/models/model.h>

#include <deque>
#include <functional>

namespace gradus {

/// `--debug underflow_overflow`: looks for inf and nan in what a forward of the model reads and
/// gives, and says what led to the first one.
///
/// A frame has the name and class of a module, and the least and largest magnitude of its own
/// parameters, of its inputs and of its output. C++ modules have no forward hooks, so a frame is
/// taken at every torch operation that reads a parameter and belongs to the module that owns it:
/// layers with weights have frames, those without (activations, dropout, whole blocks) show in the
/// inputs of the next one. The last frame of a batch is the model itself, with all that it was
/// given and gave.
///
/// Every frame waits for the device. Thread-safety: none; forwards of one thread.
class DebugUnderflowOverflow {
 public:
  /// Runs `forward`, which runs `model` on `inputs` and gives its outputs. At the first inf or nan
  /// the last 21 frames are printed and G-TRAIN-16 is thrown; what the model still did after it has
  /// no frames. A watch inside of another is part of it.
  ModelOutput watch(const Model& model, const Batch& inputs,
                    const std::function<ModelOutput()>& forward);

 private:
  class Observer;
  using Lines = std::vector<std::string>;

  void add_line(const torch::Tensor& tensor, const std::string& what);
  void add_parameters(const torch::nn::Module& module);
  void begin_frame(const std::string& module_name, const torch::nn::Module& module);
  void end_frame();
  [[noreturn]] void report() const;

  std::deque<std::string> frames_;
  Lines frame_;
  Lines findings_;  ///< "weight has infs"; not empty: the search is over
  int64_t batch_number_ = 0;
  bool batch_begins_ = true;
};

}  // namespace gradus
