#include "data/worker_pool.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/data/data_loader.h>

#include <system_error>

namespace gradus {
namespace {

thread_local std::optional<WorkerInfo> current_worker;

}  // namespace

std::optional<WorkerInfo> worker_info() { return current_worker; }

namespace data {

WorkerPool::WorkerPool(int64_t threads, int64_t seed) {
  try {
    for (int64_t id = 0; id < threads; ++id)
      threads_.emplace_back([this, id, threads, seed] { run(id, threads, seed); });
  } catch (const std::system_error& error) {
    const auto started = threads_.size();
    stop();
    throw Error("G-DATA-8", ErrorKind::usage,
                fmt::format("num_workers is {}, the system provided {} threads: {}", threads,
                            started, error.what()),
                "Set num_workers to about the number of cores.");
  }
}

WorkerPool::~WorkerPool() { stop(); }

void WorkerPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    tasks_.clear();
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void WorkerPool::submit(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void WorkerPool::run(int64_t id, int64_t count, int64_t seed) {
  current_worker = WorkerInfo{id, count, seed + id};
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace data
}  // namespace gradus
