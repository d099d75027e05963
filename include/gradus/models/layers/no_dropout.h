#pragma once

namespace gradus::layers {

/// While it lives, the models of the library drop nothing on this thread: as if every dropout were
/// 0. Blocks that gradient checkpointing repeats in the backward pass stay without dropout, too.
///
///     const layers::NoDropout guard;
///     const auto outputs = model.forward(batch);  // the model may be in training mode
///
/// Thread-safety: it speaks for its own thread only.
class [[nodiscard]] NoDropout {
 public:
  /// Turns dropout off; `on` false leaves everything as it is.
  explicit NoDropout(bool on = true);
  /// As it was before.
  ~NoDropout();
  NoDropout(const NoDropout&) = delete;
  NoDropout& operator=(const NoDropout&) = delete;

  /// Whether dropout is off on this thread.
  static bool is_on();

 private:
  bool before_;
};

}  // namespace gradus::layers
