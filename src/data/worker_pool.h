#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gradus::data {

/// Loader threads and the tasks they wait for. The destructor drops tasks not yet begun and joins.
///
/// Thread-safety: `submit` may be called from any thread.
class WorkerPool {
 public:
  /// Throws G-DATA-8 when the system does not give so many threads.
  WorkerPool(int64_t threads, int64_t seed);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void submit(std::function<void()> task);

 private:
  void stop();
  void run(int64_t id, int64_t count, int64_t seed);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace gradus::data
