#pragma once

#include <functional>
#include <optional>

namespace gradus::sources {

/// A piece of work for any thread, and what follows it on the caller's thread.
struct OrderedJob {
  std::function<void()> work;
  std::function<void()> finish;
};

/// Takes jobs from `next` (called on this thread) until it gives nothing, runs their `work` on
/// `threads` threads and their `finish` here, in the order they came. At most twice as many jobs as
/// threads are under way. The first exception of a `work` or `finish`, in that order, is thrown
/// after the running ones have ended.
void run_in_order(int64_t threads, const std::function<std::optional<OrderedJob>()>& next);

}  // namespace gradus::sources
