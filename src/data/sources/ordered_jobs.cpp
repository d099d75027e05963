#include "data/sources/ordered_jobs.h"

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace gradus::sources {
namespace {

class Pool {
 public:
  explicit Pool(int64_t threads) {
    try {
      for (int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {  // the system has no more threads to give: fewer do the
                                          // same work
      if (threads_.empty()) throw;
    }
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      waiting_.clear();
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  std::future<void> submit(std::function<void()> work) {
    std::packaged_task<void()> task(std::move(work));
    auto done = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(task));
    }
    wake_.notify_one();
    return done;
  }

 private:
  void serve() {
    while (true) {
      std::packaged_task<void()> task;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::packaged_task<void()>> waiting_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

void run_in_order(int64_t threads, const std::function<std::optional<OrderedJob>()>& next) {
  if (threads <= 1) {
    while (auto job = next()) {
      job->work();
      job->finish();
    }
    return;
  }
  struct Pending {
    std::future<void> done;
    std::function<void()> finish;
  };
  std::deque<Pending> pending;  // outlived by nothing that runs: the pool below is destroyed first
  Pool pool(threads);
  const auto finish_first = [&] {
    auto first = std::move(pending.front());
    pending.pop_front();
    first.done.get();
    first.finish();
  };
  while (auto job = next()) {
    pending.push_back({pool.submit(std::move(job->work)), std::move(job->finish)});
    if (int64_t(pending.size()) >= 2 * threads) finish_first();
  }
  while (!pending.empty()) finish_first();
}

}  // namespace gradus::sources
