#pragma once

namespace gradus::hooks {

/// Notes SIGINT while it lives, in place of the handler before. A second signal that comes more
/// than a second after the first, and before that was taken, acts as if this were not here.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

/// Whether a signal came since the last call.
bool take_interrupt();

}  // namespace gradus::hooks
