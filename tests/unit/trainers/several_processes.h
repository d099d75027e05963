#pragma once

#include <gradus/distributed/process_group.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <thread>

namespace gradus::testing {

/// Runs `work(group)` in each of `size` threads, which meet in a store in memory.
template <class Work>
void in_processes(int64_t size, Work work) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      work(std::make_shared<ProcessGroup>(store, rank, size, std::chrono::seconds(20)));
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace gradus::testing
