#include "data/batch_iterator_impl.h"
#include "data/worker_pool.h"

#include <map>

namespace gradus {
namespace data {
namespace {

class DirectIterator final : public BatchIterator::Impl {
 public:
  DirectIterator(std::unique_ptr<BatchMaker> maker, int64_t position)
      : maker_(std::move(maker)), position_(position) {}

  std::optional<Batch> next() override {
    if (finished_) return std::nullopt;
    finished_ = true;  // stays so at the end and after an exception
    auto ticket = maker_->take();
    if (!ticket) return std::nullopt;
    step_rows_ = ticket->step_rows;
    auto batch = maker_->make(std::move(*ticket));
    finished_ = false;
    ++position_;
    return batch;
  }
  int64_t position() const override { return position_; }
  std::optional<int64_t> step_rows() const override { return step_rows_; }
  nlohmann::json state() const override { return maker_->state(); }

 private:
  std::unique_ptr<BatchMaker> maker_;
  int64_t position_;
  std::optional<int64_t> step_rows_;
  bool finished_ = false;
};

/// Each task on the pool takes one ticket (under `take_mutex_`) and leaves its batch in `results_`
/// (under `mutex_`). As many tasks are under way as batches may be ahead; each batch given submits
/// one more.
class ThreadedIterator final : public BatchIterator::Impl {
 public:
  ThreadedIterator(std::unique_ptr<BatchMaker> maker, std::shared_ptr<WorkerPool> pool,
                   int64_t ahead, const PassStart& start, int64_t position, bool in_order)
      : maker_(std::move(maker)),
        pool_(std::move(pool)),
        in_order_(in_order),
        position_(position),
        prefix_{start.first_batch, start.state},
        overtaken_(start.done) {
    for (int64_t i = 0; i < ahead; ++i) submit();
  }

  ~ThreadedIterator() override {
    std::unique_lock lock(mutex_);
    cancelled_ = true;
    changed_.wait(lock, [&] { return under_way_ == 0; });
  }

  std::optional<Batch> next() override {
    if (finished_) return std::nullopt;
    Result result;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ready() || under_way_ == 0; });
      if (results_.empty()) {
        finished_ = true;
        return std::nullopt;
      }
      result = std::move(results_.begin()->second);
      next_place_ = results_.begin()->first + 1;
      results_.erase(results_.begin());
    }
    if (result.error) {
      finished_ = true;
      std::rethrow_exception(result.error);
    }
    submit();
    note_given(result);
    step_rows_ = result.step_rows;
    return std::move(result.batch);
  }

  int64_t position() const override { return position_; }
  std::optional<int64_t> step_rows() const override { return step_rows_; }

  nlohmann::json state() const override {
    if (overtaken_.empty()) return prefix_.state;
    return {{"next", prefix_.next}, {"ahead", overtaken_}, {"state", prefix_.state}};
  }

 private:
  struct Result {
    Batch batch;
    std::exception_ptr error;
    int64_t number = 0;
    std::optional<int64_t> step_rows;
    nlohmann::json state;  ///< after this batch was taken
  };
  /// All batches below `next` were given; `state` is what the maker said after the one before it.
  struct Prefix {
    int64_t next;
    nlohmann::json state;
  };

  bool ready() const {
    return !results_.empty() && (!in_order_ || results_.begin()->first == next_place_);
  }

  void submit() {
    {
      const std::lock_guard lock(mutex_);
      ++under_way_;
    }
    pool_->submit([this] { work(); });
  }

  bool stopped() {
    const std::lock_guard lock(mutex_);
    return cancelled_ || ended_;
  }

  void work() {
    std::optional<BatchMaker::Ticket> ticket;
    Result result;
    int64_t place = 0;
    {
      const std::lock_guard taking(take_mutex_);
      if (!stopped()) {
        place = places_taken_++;
        try {
          ticket = maker_->take();
          if (ticket) {
            result.number = ticket->number;
            result.step_rows = ticket->step_rows;
            result.state = maker_->state();
          }
        } catch (...) {
          result.error = std::current_exception();
        }
        if (!ticket) end();
      }
    }
    if (ticket) {
      try {
        result.batch = maker_->make(std::move(*ticket));
      } catch (...) {
        result.error = std::current_exception();
      }
    }
    const std::lock_guard lock(mutex_);
    if (ticket || result.error) results_.emplace(place, std::move(result));
    --under_way_;
    changed_.notify_all();
  }

  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }

  void note_given(Result& result) {
    ++position_;
    overtaken_.insert(result.number);
    states_.emplace(result.number, std::move(result.state));
    while (overtaken_.erase(prefix_.next) > 0) {
      if (const auto state = states_.find(prefix_.next); state != states_.end()) {
        prefix_.state = std::move(state->second);
        states_.erase(state);
      }
      ++prefix_.next;
    }
  }

  std::unique_ptr<BatchMaker> maker_;
  std::shared_ptr<WorkerPool> pool_;
  const bool in_order_;

  // The caller's thread only.
  bool finished_ = false;
  int64_t position_;
  std::optional<int64_t> step_rows_;
  Prefix prefix_;
  std::set<int64_t> overtaken_;               ///< given, though one before them was not
  std::map<int64_t, nlohmann::json> states_;  ///< of those

  std::mutex take_mutex_;
  int64_t places_taken_ = 0;  ///< under take_mutex_

  std::mutex mutex_;  // everything below
  std::condition_variable changed_;
  std::map<int64_t, Result> results_;  ///< by place in the order of taking
  int64_t next_place_ = 0;
  int64_t under_way_ = 0;
  bool cancelled_ = false;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<BatchIterator::Impl> make_direct_iterator(std::unique_ptr<BatchMaker> maker,
                                                          int64_t position) {
  return std::make_unique<DirectIterator>(std::move(maker), position);
}

std::unique_ptr<BatchIterator::Impl> make_threaded_iterator(std::unique_ptr<BatchMaker> maker,
                                                            std::shared_ptr<WorkerPool> pool,
                                                            int64_t ahead, const PassStart& start,
                                                            int64_t position, bool in_order) {
  return std::make_unique<ThreadedIterator>(std::move(maker), std::move(pool), ahead, start,
                                            position, in_order);
}

}  // namespace data

BatchIterator::BatchIterator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BatchIterator::BatchIterator(BatchIterator&&) noexcept = default;
BatchIterator& BatchIterator::operator=(BatchIterator&&) noexcept = default;
BatchIterator::~BatchIterator() = default;

std::optional<Batch> BatchIterator::next() { return impl_->next(); }
int64_t BatchIterator::position() const { return impl_->position(); }
std::optional<int64_t> BatchIterator::step_rows() const { return impl_->step_rows(); }
nlohmann::json BatchIterator::state() const { return impl_->state(); }

}  // namespace gradus
