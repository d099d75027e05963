#pragma once

#include <gradus/distributed/bucket_options.h>
#include <gradus/distributed/process_group.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

/// Makes the gradients of all processes their mean, while the backward pass still runs.
///
/// The gradients lie in buckets. A bucket is sent as soon as the backward pass has written its last
/// gradient; the buckets go in the same order everywhere. The mean has the same bits in every
/// process. While it lives, each parameter has a hook of ours, and its gradient is a part of a
/// bucket.
///
/// Thread-safety: the hooks run on autograd's threads; everything else on one thread.
class GradientBuckets {
 public:
  using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

  /// `parameters` are the same in every process, in the same order. Those that need no gradient are
  /// left out. Shares `group`.
  GradientBuckets(const NamedTensors& parameters, std::shared_ptr<ProcessGroup> group,
                  BucketOptions options);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// Whether backward passes send what they finish. Off inside an accumulation window.
  void set_sending(bool sends) { sends_ = sends; }
  /// Before a backward pass: forgets what was sent of this window. Such a pass may be one that
  /// failed and is tried again.
  void begin_backward();
  /// After a backward pass that does not send: the gradients move to their places in the buckets.
  void move_gradients();
  /// Sends what was not sent, and returns when the mean is in every gradient. Throws `Error`
  /// G-DIST-4 with the names of parameters that were not used, unless they are looked for. A
  /// backward pass throws it when the graph is said to be static and is not.
  void finish();

  /// Number of buckets.
  size_t size() const { return buckets_.size(); }
  /// How many buckets were sent before `finish` in the last window.
  size_t sent_in_backward() const { return sent_in_backward_; }

 private:
  struct Hook;
  struct Bucket {
    std::vector<size_t> members;  // parameters, in the order of the bucket
    torch::Tensor flat;
    size_t missing = 0;  // gradients that this window's backward pass has not written yet
    torch::Tensor half;  // what travels in place of `flat`; undefined unless it is compressed
    ProcessGroup::Pending sum;
  };
  struct Place {
    size_t bucket = 0;
    int64_t offset = 0;
  };

  void make_buckets();
  void gradient_is_ready(size_t parameter);
  void send(Bucket& bucket);
  void move_gradients(const Bucket& bucket);
  void write_flags(Bucket& bucket);
  torch::Tensor part(size_t parameter) const;
  std::vector<bool> used_anywhere();
  void require_all_used() const;
  void require_expected(size_t parameter) const;
  void begin_window();

  std::shared_ptr<ProcessGroup> group_;
  BucketOptions options_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  std::vector<Place> places_;
  std::vector<Bucket> buckets_;
  int64_t flags_offset_ = 0;       // where the last bucket says which parameters were used
  std::vector<bool> used_;         // by this process in this window
  std::vector<bool> static_;       // by this process in its first window, if the graph is static
  std::vector<bool> used_by_any_;  // by any process in that window
  std::vector<bool> flags_of_;     // what `flags_` says
  torch::Tensor flags_;            // which parameters this process uses, for the last bucket
  std::mutex mutex_;
  size_t next_ = 0;  // the bucket to send next
  size_t sent_in_backward_ = 0;
  bool sends_ = true;
};

}  // namespace gradus
