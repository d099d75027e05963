#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "runs/run_reader.h"
#include "runs/study_folder.h"

namespace gradus::runs {

/// A run of a `RunCollection`.
struct CollectedRun {
  CollectedRun(size_t number, std::string called, const std::filesystem::path& path)
      : id(number), name(std::move(called)), reader(path) {}

  const size_t id;         ///< its place in the collection; stays the same
  const std::string name;  ///< its path from the root; "." for the root itself

  mutable std::shared_mutex mutex;  ///< hold it, shared, while `reader` is looked at
  RunReader reader;
  RunStatus status = RunStatus::unknown;  ///< as of the last look; under `mutex`
  double changed = 0;  ///< when something new was found, in seconds since 1970; under `mutex`
  std::atomic<uint64_t> version{0};  ///< the collection's version when it last changed
};

/// All runs in a folder, read by threads of its own and kept up to date: new runs appear, runs
/// under way grow. Runs that are deleted stay with what was read. The studies of searches are kept
/// up to date, too.
///
/// The files are looked at once a second, those of runs that have been quiet for long more seldom.
/// Thread-safe.
class RunCollection {
 public:
  /// Starts reading.
  explicit RunCollection(std::filesystem::path root);
  ~RunCollection();
  RunCollection(const RunCollection&) = delete;
  RunCollection& operator=(const RunCollection&) = delete;

  /// All runs so far, by id.
  std::vector<std::shared_ptr<const CollectedRun>> runs() const;
  /// The run with this id; null when there is none.
  std::shared_ptr<const CollectedRun> find(size_t id) const;
  /// The studies of hyperparameter searches in the folder, as of the last look.
  std::shared_ptr<const std::vector<FoundStudy>> studies() const;
  /// Grows with every change of a study.
  uint64_t studies_version() const { return studies_version_; }
  /// Grows with every change.
  uint64_t version() const;
  /// When it was made: ids and versions of another collection mean something else.
  double began() const { return began_; }
  /// Whether all that was there at the start has been read once.
  bool is_complete() const { return complete_; }
  const std::filesystem::path& root() const { return root_; }

 private:
  void work(size_t part);
  void look_for_runs();
  void look_for_studies();
  bool read_once(CollectedRun& run);
  bool wait(std::chrono::milliseconds time);

  const std::filesystem::path root_;
  const double began_ = clock_now();
  mutable std::shared_mutex mutex_;
  std::vector<std::shared_ptr<CollectedRun>> runs_;
  std::set<std::string> names_;
  StudyFolder study_folder_;  // used by the first thread only
  std::shared_ptr<const std::vector<FoundStudy>> studies_;
  std::atomic<uint64_t> studies_version_{0};
  std::atomic<uint64_t> version_{1};
  std::atomic<bool> complete_{false};
  std::atomic<size_t> first_passes_{0};
  std::mutex stop_mutex_;
  std::condition_variable stop_signal_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace gradus::runs
