#include "trackers/background_tracker.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <sys/resource.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <variant>

namespace gradus {
namespace {

struct TrainingStart {
  int64_t step;
};
struct RunEnd {};
/// A `TrackedEntry` as it waits: in one piece of memory, which costs the caller less than a map.
struct QueuedEntry {
  std::vector<std::pair<std::string, double>> values;  // by name
  int64_t step;
  double time;
  bool is_predict;

  TrackedEntry unpacked() const { return {{values.begin(), values.end()}, step, time, is_predict}; }
};
using QueuedHistogram = std::unique_ptr<TrackedHistogram>;  // large, and few
using QueueItem = std::variant<TrackedRun, TrainingStart, QueuedEntry, QueuedHistogram, RunEnd>;

constexpr size_t kLargestBatch = 1000;
constexpr int kLastAttempts = 2;  // at the end of a run
constexpr int kNiceness = 10;     // of the thread, beside those that train

/// Whether the item counts towards the capacity, and may be lost.
bool is_entry(const QueueItem& item) {
  return std::holds_alternative<QueuedEntry>(item) || std::holds_alternative<QueuedHistogram>(item);
}

/// Lets the threads that train go first where there are not enough processors for all.
void lower_priority() {
  errno = 0;
  const int now = ::getpriority(PRIO_PROCESS, 0);  // on Linux that of this thread
  if (errno == 0) ::setpriority(PRIO_PROCESS, 0, now + kNiceness);
}

/// The queue and its thread's work. The thread shares it, so that a thread that hangs can be left
/// behind.
class WriterQueue {
 public:
  WriterQueue(std::string name, std::unique_ptr<TrackerWriter> writer, BackgroundOptions options)
      : name_(std::move(name)), writer_(std::move(writer)), options_(options) {}

  void put(QueueItem item) {
    const std::lock_guard lock(mutex_);
    if (is_abandoned_) return;
    if (is_entry(item)) ++entries_;
    items_.push_back(std::move(item));
    drop_oldest();
    if (entries_ == options_.capacity / 2 + 1) wake_.notify_one();
  }

  /// Waits until all that was put is done or given up; false when time runs out.
  bool end_run() {
    std::unique_lock lock(mutex_);
    if (is_abandoned_) return false;
    items_.push_back(RunEnd{});
    ++ends_wanted_;
    wake_.notify_one();
    const bool done =
        ended_.wait_for(lock, options_.finish_timeout, [&] { return ends_done_ == ends_wanted_; });
    if (done) return true;
    is_abandoned_ = true;
    lost_ += entries_;
    items_.clear();
    entries_ = 0;
    lock.unlock();
    log_warning(
        fmt::format("{}: no answer within {} s, the run goes on without it; {} log entries "
                    "or more are not in it",
                    name_, options_.finish_timeout.count() / 1000, lost_));
    return false;
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    wake_.notify_one();
  }

  /// The thread's work, until `stop` finds the queue empty.
  void work() {
    lower_priority();
    std::unique_lock lock(mutex_);
    auto pause = options_.retry;  // after a failure
    int last_attempts = 0;
    size_t due = 0;  // items that were there at the last moment of writing
    while (!is_abandoned_) {
      const bool hurries = is_stopping_ || ends_wanted_ > ends_done_;
      if (!hurries && due == 0)
        wake_.wait_until(lock, failures_ == 0 ? next_moment() : Clock::now() + pause, [&] {
          return is_stopping_ || ends_wanted_ > ends_done_ ||
                 (failures_ == 0 && entries_ > options_.capacity / 2);
        });
      if (items_.empty()) {
        if (is_stopping_) return;
        due = 0;
        run_idle(lock);
        continue;
      }
      if (due == 0) due = items_.size();
      auto batch = take_batch();
      due -= std::min(due, batch.size());
      lock.unlock();
      const auto problem = attempt([&] { write_batch(batch); });
      lock.lock();
      if (is_abandoned_) return;
      if (!problem) {
        if (std::holds_alternative<RunEnd>(batch.front())) note_end();
        failures_ = last_attempts = 0;
        continue;
      }
      warn_once(lock, *problem);
      if (is_stopping_) return;
      due = 0;
      pause = options_.retry * (1 << std::min(failures_++, 6));
      put_back(std::move(batch));
      if (ends_wanted_ > ends_done_ && ++last_attempts >= kLastAttempts) {
        give_up_until_end();
        last_attempts = 0;
      }
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// All trackers write at the same moments: those that train are then disturbed once, not once by
  /// each.
  Clock::time_point next_moment() const {
    const auto end = Clock::now() + options_.interval;
    return end - end.time_since_epoch() % options_.interval;
  }

  /// All values in front of the next item that is none, or that item.
  std::vector<QueueItem> take_batch() {
    std::vector<QueueItem> batch;
    do {
      batch.push_back(std::move(items_.front()));
      items_.pop_front();
      if (is_entry(batch.back())) --entries_;
      if (!std::holds_alternative<QueuedEntry>(batch.front())) return batch;
    } while (batch.size() < kLargestBatch && !items_.empty() &&
             std::holds_alternative<QueuedEntry>(items_.front()));
    return batch;
  }

  void put_back(std::vector<QueueItem> batch) {
    if (is_entry(batch.front())) entries_ += batch.size();
    items_.insert(items_.begin(), std::make_move_iterator(batch.begin()),
                  std::make_move_iterator(batch.end()));
    drop_oldest();
  }

  void drop_oldest() {
    while (entries_ > options_.capacity) {
      items_.erase(std::find_if(items_.begin(), items_.end(), is_entry));
      --entries_;
      ++lost_;
    }
  }

  void write_batch(const std::vector<QueueItem>& batch) {
    if (const auto* run = std::get_if<TrackedRun>(&batch.front())) return writer_->begin(*run);
    if (const auto* start = std::get_if<TrainingStart>(&batch.front()))
      return writer_->training_begins(start->step);
    if (const auto* histogram = std::get_if<QueuedHistogram>(&batch.front()))
      return writer_->write_histogram(**histogram);
    if (std::holds_alternative<RunEnd>(batch.front())) return writer_->finish();
    std::vector<TrackedEntry> entries;
    entries.reserve(batch.size());
    for (const auto& item : batch) entries.push_back(std::get<QueuedEntry>(item).unpacked());
    writer_->write(entries);
  }

  template <class Work>
  static std::optional<std::string> attempt(Work work) {
    try {
      work();
      return std::nullopt;
    } catch (const Error& error) {
      return error.message();
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  void run_idle(std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    const auto problem = attempt([&] { writer_->idle(); });
    lock.lock();
    if (problem) warn_once(lock, *problem);
  }

  void warn_once(std::unique_lock<std::mutex>& lock, const std::string& problem) {
    if (std::exchange(has_warned_, true)) return;
    lock.unlock();
    log_warning(fmt::format("{}: {}; training continues, and this is tried again", name_, problem));
    lock.lock();
  }

  void note_end() {
    ++ends_done_;
    ended_.notify_all();
    if (lost_ == 0) return;
    log_warning(fmt::format("{}: {} log entries could not be written", name_, lost_));
    lost_ = 0;
  }

  void give_up_until_end() {
    bool at_end = false;
    while (!at_end && !items_.empty()) {
      at_end = std::holds_alternative<RunEnd>(items_.front());
      if (is_entry(items_.front())) {
        --entries_;
        ++lost_;
      }
      items_.pop_front();
    }
    if (at_end) note_end();
  }

  const std::string name_;
  const std::unique_ptr<TrackerWriter> writer_;
  const BackgroundOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::deque<QueueItem> items_;
  size_t entries_ = 0;  // of the items
  size_t lost_ = 0;     // entries, since the last warning about them
  int failures_ = 0;    // in a row
  int64_t ends_wanted_ = 0, ends_done_ = 0;
  bool is_stopping_ = false, is_abandoned_ = false, has_warned_ = false;
};

class BackgroundTracker : public Tracker {
 public:
  BackgroundTracker(std::string name, std::unique_ptr<TrackerWriter> writer,
                    BackgroundOptions options)
      : takes_histograms_(writer->takes_histograms()),
        queue_(std::make_shared<WriterQueue>(std::move(name), std::move(writer), options)) {}

  ~BackgroundTracker() override {
    BackgroundTracker::finish();
    if (!thread_.joinable()) return;
    queue_->stop();
    if (is_reachable_)
      thread_.join();
    else
      thread_.detach();
  }

  void begin(const nlohmann::json& args, const nlohmann::json& model_config) override {
    run_ = {args, model_config, std::nullopt};
    is_described_ = false;
  }
  void model_parameters(int64_t count) override { run_.parameters = count; }

  void training_begins(int64_t step) override {
    describe();
    put(TrainingStart{step});
  }

  void log(const std::map<std::string, double>& values, int64_t step) override {
    describe();
    put(QueuedEntry{{values.begin(), values.end()}, step, now_seconds(), false});
  }

  void log_prediction(const std::map<std::string, double>& metrics, int64_t step) override {
    describe();
    put(QueuedEntry{{metrics.begin(), metrics.end()}, step, now_seconds(), true});
  }

  bool takes_histograms() const override { return takes_histograms_; }
  void log_histogram(const std::string& name, const Histogram& histogram, int64_t step) override {
    if (!takes_histograms_) return;
    describe();
    put(std::make_unique<TrackedHistogram>(name, histogram, step, now_seconds()));
  }

  void finish() override {
    if (!is_open_) return;
    is_open_ = is_described_ = false;
    if (is_reachable_) is_reachable_ = queue_->end_run();
  }

 private:
  static double now_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  /// Before the first entry, so that a parameter count given after `begin` is in it.
  void describe() {
    if (!std::exchange(is_described_, true)) put(run_);
  }

  void put(QueueItem item) {
    is_open_ = true;
    if (!is_reachable_) return;
    queue_->put(std::move(item));
    if (!thread_.joinable()) thread_ = std::thread([queue = queue_] { queue->work(); });
  }

  const bool takes_histograms_;
  std::shared_ptr<WriterQueue> queue_;
  std::thread thread_;
  TrackedRun run_;
  bool is_described_ = false;  // the queue has `run_`
  bool is_open_ = false;       // something was put since the last `finish`
  bool is_reachable_ = true;   // the writer has answered so far
};

}  // namespace

std::shared_ptr<Tracker> in_background(std::string name, std::unique_ptr<TrackerWriter> writer,
                                       BackgroundOptions options) {
  return std::make_shared<BackgroundTracker>(std::move(name), std::move(writer), options);
}

}  // namespace gradus
