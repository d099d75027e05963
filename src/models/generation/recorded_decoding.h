#pragma once

#include <memory>

#include "kernels/recorder.h"
#include "models/generation/decoding_loop.h"

namespace gradus {

/// The model's part of a step of one token, recorded once and replayed: it is then one launch. What
/// is made of the scores stays with the caller, and so may differ from step to step.
///
/// It works on the decoder's cache, which has a fixed shape from the first step on.
class RecordedDecoding {
 public:
  /// For rows of at most `max_length` tokens.
  RecordedDecoding(Decoder& decoder, std::shared_ptr<const kernels::Recorder> recorder,
                   int64_t max_length);

  /// Logits (rows, vocabulary) in float32 behind `tokens` (rows, 1). The next step overwrites them.
  const torch::Tensor& next_logits(const torch::Tensor& tokens);
  /// The rows of the next step continue these.
  void select_rows(const torch::Tensor& rows);
  /// The same, with fewer rows. The decoder takes care of the encoder's output.
  void keep_rows(const torch::Tensor& rows);

 private:
  void begin(int64_t rows);
  void arrange(const torch::Tensor& kept);
  void run();

  Decoder& decoder_;
  std::shared_ptr<const kernels::Recorder> recorder_;
  std::shared_ptr<void> stream_;
  int64_t max_length_, length_ = 0, room_ = 0;
  torch::Tensor tokens_, origins_,
      own_;  ///< What a step reads; `own_` are all rows in their order.
  torch::Tensor place_, positions_, mask_;
  torch::Tensor logits_;
  std::unique_ptr<kernels::RecordedWork> work_;
  bool has_begun_ = false, is_warm_ = false, cannot_be_recorded_ = false;
};

}  // namespace gradus
