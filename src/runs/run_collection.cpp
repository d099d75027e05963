#include "runs/run_collection.h"

#include <gradus/core/log.h>

#include <chrono>
#include <new>

namespace gradus::runs {
namespace {

using std::chrono_literals::operator""ms;
constexpr size_t kReaders = 2;
constexpr size_t kPieceOfAFile = size_t(16) << 20;  // then other runs have their turn
constexpr double kQuiet = 60;                       // seconds; then a run is looked at seldom
constexpr uint64_t kSeldom = 8;                     // in passes

}  // namespace

RunCollection::RunCollection(std::filesystem::path root)
    : root_(std::move(root)),
      study_folder_(root_),
      studies_(std::make_shared<std::vector<FoundStudy>>()) {
  look_for_runs();
  look_for_studies();
  for (size_t part = 0; part < kReaders; ++part)
    threads_.emplace_back([this, part] { work(part); });
}

RunCollection::~RunCollection() {
  {
    const std::scoped_lock lock(stop_mutex_);
    stopping_ = true;
  }
  stop_signal_.notify_all();
  for (auto& thread : threads_) thread.join();
}

bool RunCollection::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(stop_mutex_);
  return !stop_signal_.wait_for(lock, time, [this] { return stopping_; });
}

void RunCollection::look_for_runs() {
  for (const auto& path : find_runs(root_)) {
    auto name = path.lexically_relative(root_).string();
    const std::unique_lock lock(mutex_);
    if (!names_.insert(name).second) continue;
    runs_.push_back(std::make_shared<CollectedRun>(runs_.size(), std::move(name), path));
    runs_.back()->changed = clock_now();
    runs_.back()->version = ++version_;
  }
}

void RunCollection::look_for_studies() {
  if (!study_folder_.look()) return;
  auto found = std::make_shared<const std::vector<FoundStudy>>(study_folder_.studies());
  {
    const std::unique_lock lock(mutex_);
    studies_ = std::move(found);
  }
  ++studies_version_;
  ++version_;
}

bool RunCollection::read_once(CollectedRun& run) {
  const std::unique_lock lock(run.mutex);
  bool changed = false;
  try {
    changed = run.reader.poll(kPieceOfAFile);
  } catch (const std::bad_alloc&) {
    log_warning_once(run.name + " is too large to be read: memory ran out.");
    return false;  // the others are still shown
  }
  const auto status = status_of(run.reader.data(), clock_now());
  changed |= std::exchange(run.status, status) != status;
  if (changed) {
    run.changed = clock_now();
    // Together: whoever sees the collection's version sees those of its runs, too.
    const std::unique_lock together(mutex_);
    run.version = ++version_;
  }
  return run.reader.bytes_left() >= 4096 && changed;
}

void RunCollection::work(size_t part) {
  for (uint64_t pass = 0;; ++pass) {
    std::vector<std::shared_ptr<CollectedRun>> mine;
    {
      const std::shared_lock lock(mutex_);
      for (const auto& run : runs_)
        if (run->id % kReaders == part) mine.push_back(run);
    }
    bool has_more = false;
    const double now = clock_now();
    for (const auto& run : mine) {
      bool is_quiet = false;
      {
        const std::shared_lock lock(run->mutex);
        is_quiet = pass > 0 && run->status != RunStatus::running && now - run->changed > kQuiet;
      }
      if (is_quiet && (pass + run->id) % kSeldom != 0) continue;
      has_more |= read_once(*run);
      if (!wait(0ms)) return;
    }
    if (!has_more && pass == 0 && ++first_passes_ == kReaders) {
      complete_ = true;
      ++version_;
    }
    if (has_more) {
      --pass;  // the first pass is over when everything was read
      continue;
    }
    if (!wait(1000ms)) return;
    if (part == 0) {
      look_for_runs();
      look_for_studies();
    }
  }
}

std::vector<std::shared_ptr<const CollectedRun>> RunCollection::runs() const {
  const std::shared_lock lock(mutex_);
  return {runs_.begin(), runs_.end()};
}

uint64_t RunCollection::version() const {
  const std::shared_lock lock(mutex_);
  return version_;
}

std::shared_ptr<const std::vector<FoundStudy>> RunCollection::studies() const {
  const std::shared_lock lock(mutex_);
  return studies_;
}

std::shared_ptr<const CollectedRun> RunCollection::find(size_t id) const {
  const std::shared_lock lock(mutex_);
  return id < runs_.size() ? runs_[id] : nullptr;
}

}  // namespace gradus::runs
