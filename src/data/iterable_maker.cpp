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
    const ContextScope scope({options_->seed, start_.epoch, plan_.global_number(ticket.number)});
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
    const ContextScope scope({options_->seed, start_.epoch, plan_.global_number(next_)});
    Ticket ticket;
    ticket.number = next_;
    // Which rows of a short step are ours is known only when it has ended: with `dispatch` they
    // are others than those of a full one.
    const auto full = plan_.part(plan_.step_rows());
    const bool keeps_all = plan_.is_shared() && plan_.fill_up();
    std::vector<Example> rows;
    const int64_t count = read_rows(plan_.step_rows(), [&](int64_t place, Example row) {
      if (keeps_all || (place >= full.begin && place < full.end)) rows.push_back(std::move(row));
    });
    if (count < plan_.step_rows() && (count == 0 || plan_.drop_last())) return std::nullopt;
    if (plan_.is_shared()) ticket.step_rows = count;
    if (!keeps_all) {
      ticket.rows = std::move(rows);
    } else {
      const auto part = plan_.part(count);
      if (part.end > count) append_first_rows(part.end - count, rows);
      for (int64_t place = part.begin; place < std::min(part.end, int64_t(rows.size())); ++place)
        ticket.rows.push_back(std::move(rows[size_t(place)]));
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
  void append_first_rows(int64_t missing, std::vector<Example>& rows) {
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
      rows.push_back(first[static_cast<size_t>(i) % first.size()]);
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
