#include "data/batch_maker.h"

#include <gradus/core/error.h>

#include <fmt/format.h>

namespace gradus::data {
namespace {

/// Reads an iterable data set step by step; each process keeps its part of every step.
class IterableMaker final : public BatchMaker {
 public:
  IterableMaker(std::shared_ptr<const DataLoaderOptions> options, PassStart start)
      : options_(std::move(options)),
        source_(*options_->dataset.iterable()),
        plan_(make_plan(*options_)),
        start_(std::move(start)) {
    source_.reset(start_.epoch);
    if (start_.state.is_null()) {
      while (next_ < start_.first_batch && !ended_) {
        read_rows(plan_.step_rows(), [](int64_t, Example) {});
        ++next_;
      }
      return;
    }
    next_ = start_.state.value("batches", start_.first_batch);
    rows_read_ = start_.state.value("rows", int64_t{0});
    ended_ = start_.state.value("ended", false);
    if (!ended_) source_.load_state(start_.state.at("source"));
  }

  std::optional<Ticket> take() override {
    do {
      auto ticket = take_any();
      if (!ticket || !start_.done.contains(ticket->number)) return ticket;
    } while (true);
  }

  Batch make(Ticket ticket) const override {
    const ContextScope scope({options_->seed, start_.epoch, ticket.number});
    return collate_rows(*options_, std::move(ticket.rows), ticket.number);
  }

  nlohmann::json state() const override {
    nlohmann::json state{{"batches", next_}, {"rows", rows_read_}};
    if (ended_) {
      state["ended"] = true;
      return state;
    }
    state["source"] = source_.save_state();
    return state["source"].is_null() ? nlohmann::json() : state;
  }

 private:
  static BatchPlan make_plan(const DataLoaderOptions& options) {
    const auto& shard = options.shard;
    if (shard.world > 1 && shard.by_source &&
        options.dataset.iterable()->shard(shard.rank, shard.world)) {
      return {shard.split_batches ? options.batch_size / shard.world : options.batch_size,
              options.drop_last, DataShard{}};
    }
    return {options.batch_size, options.drop_last, shard};
  }

  std::optional<Ticket> take_any() {
    if (ended_) return std::nullopt;
    const ContextScope scope({options_->seed, start_.epoch, next_});
    Ticket ticket;
    ticket.number = next_;
    const int64_t begin = plan_.part_begin();
    const int64_t end = begin + plan_.part_rows();
    const auto keep = [&](int64_t place, Example row) {
      if (place >= begin && place < end) ticket.rows.push_back(std::move(row));
    };
    const int64_t count = read_rows(plan_.step_rows(), keep);
    if (count < plan_.step_rows()) {
      if (count == 0 || plan_.drop_last()) return std::nullopt;
      if (plan_.fill_up()) fill_up(count, keep);
    }
    if (ticket.rows.empty()) return std::nullopt;
    ++next_;
    return ticket;
  }

  /// Up to `limit` rows; says how many there were.
  template <class Function>
  int64_t read_rows(int64_t limit, const Function& use) {
    for (int64_t place = 0; place < limit; ++place) {
      auto row = read_row();
      if (!row) {
        ended_ = true;
        return place;
      }
      use(place, std::move(*row));
    }
    return limit;
  }

  std::optional<Example> read_row() try {
    auto row = source_.next();
    if (row) ++rows_read_;
    return row;
  } catch (...) {
    ended_ = true;
    rethrow_with_place(
        fmt::format("row {} of the iterable data set (batch {})", rows_read_, next_));
  }

  /// The last step is completed with the first rows of the pass, read once more: nothing of it must
  /// be kept until then.
  template <class Function>
  void fill_up(int64_t count, const Function& keep) {
    const int64_t missing = plan_.step_rows() - count;
    const int64_t first_rows = std::min(plan_.step_rows(), rows_read_);
    source_.reset(start_.epoch);
    std::vector<Example> first;
    for (int64_t i = 0; i < std::min(missing, first_rows); ++i) {
      auto row = source_.next();
      if (!row) break;
      first.push_back(std::move(*row));
    }
    if (first.empty()) return;
    for (int64_t i = 0; i < missing; ++i)
      keep(count + i, first[static_cast<size_t>(i) % first.size()]);
  }

  std::shared_ptr<const DataLoaderOptions> options_;
  IterableDataset& source_;
  BatchPlan plan_;
  PassStart start_;
  int64_t next_ = 0;
  int64_t rows_read_ = 0;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<BatchMaker> make_iterable_maker(std::shared_ptr<const DataLoaderOptions> options,
                                                PassStart start) {
  return std::make_unique<IterableMaker>(std::move(options), std::move(start));
}

}  // namespace gradus::data
