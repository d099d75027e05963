#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace gradus::sources {

/// "map: 42 % 12,000/28,000 rows, 3,100/s": drawn over itself on a terminal, said once at the end
/// (level info) elsewhere.
class ProgressLine {
 public:
  /// An empty description says nothing.
  ProgressLine(std::string description, std::string unit, std::optional<int64_t> total);
  ~ProgressLine();
  /// `done` so far.
  void update(int64_t done);

 private:
  std::string text(int64_t done) const;

  std::string description_, unit_;
  std::optional<int64_t> total_;
  std::chrono::steady_clock::time_point begin_, drawn_;
  int64_t done_ = 0;
  bool on_terminal_ = false;
};

}  // namespace gradus::sources
