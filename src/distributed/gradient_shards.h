#pragma once

#include <gradus/distributed/process_group.h>
#include <torch/types.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "distributed/flat_parameters.h"

namespace gradus {

/// Gives each process the mean gradient of its share of flat parameters, while the backward pass
/// still runs.
///
/// A gradient moves into the buffer of its flat parameters as soon as the backward pass has written
/// it. When all are there, every process sends each of the others its share of the buffer, and
/// frees it. Flat parameters go in the order given, the same in every process. A part without
/// gradients in all processes keeps none. While it lives, each parameter has a hook of ours.
///
/// Thread-safety: the hooks run on autograd's threads; everything else on one thread.
class GradientShards {
 public:
  /// Refers to `flats`, whose order is that in which backward passes end. Shares both groups: what
  /// is sent in backward passes goes through `channel`.
  GradientShards(std::vector<FlatParameters*> flats, std::shared_ptr<ProcessGroup> group,
                 std::shared_ptr<ProcessGroup> channel);
  ~GradientShards();
  GradientShards(const GradientShards&) = delete;
  GradientShards& operator=(const GradientShards&) = delete;

  /// Whether backward passes send what they finish. While they do not, gradients stay whole.
  void set_sending(bool sends) { sends_ = sends; }
  /// After a backward pass that sends: sends the rest, and adds all that came to the shares.
  void end_backward();
  /// Ends a window: the parts have their gradients afterwards. `sign` is a number that must be the
  /// same in all processes; returns whether it is.
  bool finish(int64_t sign);
  /// Forgets what came so far.
  void drop();

  /// How many flat parameters were sent before the backward pass had ended, the last time.
  size_t sent_in_backward() const { return sent_in_backward_; }

 private:
  struct Hook;
  struct Entry {
    FlatParameters* flat = nullptr;
    torch::Tensor buffer;          // whole gradients of this backward pass; undefined before them
    std::vector<bool> is_written;  // in this backward pass
    size_t missing = 0;
    bool is_sent = false;
    bool is_late = false;  // a gradient came after it was sent
    torch::Tensor share;   // the mean of this window so far; undefined before the first
    std::vector<bool> is_used;

    void begin();  // a backward pass
  };
  struct InFlight {
    Entry* entry;
    torch::Tensor sent, received;
    ProcessGroup::Pending pending;
  };

  void gradient_is_ready(size_t entry, size_t member);
  void move_to_buffer(Entry& entry, size_t member);
  void send(Entry& entry);
  void receive_one();
  void begin_backward();

  std::shared_ptr<ProcessGroup> group_, channel_;
  std::vector<Entry> entries_;
  std::deque<InFlight> in_flight_;
  std::mutex mutex_;
  size_t next_ = 0;  // the entry to send next
  size_t sent_in_backward_ = 0;
  bool sends_ = true;
};

}  // namespace gradus
