#include "data/batch_maker.h"

#include <gradus/core/error.h>
#include <gradus/core/memory.h>
#include <gradus/data/collators.h>

#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradus {
namespace {

thread_local CollateContext current_context;

}  // namespace

const CollateContext& collate_context() { return current_context; }

nlohmann::json BatchSource::save_state() const { return nullptr; }

void BatchSource::load_state(const nlohmann::json&) {
  throw Error("G-DATA-9", ErrorKind::data, "this batch source cannot continue from a saved state",
              "Implement save_state() and load_state(), or resume without the state.");
}

namespace data {

ContextScope::ContextScope(CollateContext context)
    : before_(std::exchange(current_context, context)) {}
ContextScope::~ContextScope() { current_context = before_; }

void rethrow_with_place(const std::string& where) {
  try {
    throw;
  } catch (const Error& error) {
    throw Error(error.id(), error.kind(), where + ": " + error.message(), error.advice());
  } catch (const c10::Error& error) {
    throw Error("G-DATA-5", ErrorKind::data, where + ": " + error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    throw out_of_memory("making a batch (" + where + ")");
  } catch (const std::exception& error) {
    throw Error("G-DATA-5", ErrorKind::data, where + ": " + error.what());
  } catch (...) {
    throw Error("G-DATA-5", ErrorKind::data, where + ": an exception that is not a std::exception");
  }
}

namespace {

Batch staged(const DataLoaderOptions& options, Batch batch) {
  return options.pin_memory && at::hasCUDA() ? batch.pin() : batch;
}

bool uses_default_collator(const DataLoaderOptions& options) {
  if (!options.collator) return true;
  const auto* function = options.collator.target<Batch (*)(std::vector<Example>)>();
  return function != nullptr && *function == &default_data_collator;
}

class MapMaker final : public BatchMaker {
 public:
  MapMaker(std::shared_ptr<const DataLoaderOptions> options, PassStart start)
      : options_(std::move(options)),
        plan_(options_->batch_size, options_->drop_last, options_->shard),
        rows_(options_->sampler ? options_->sampler->size() : *options_->dataset.size()),
        batches_(open_batches(*options_, start.epoch, start.state)),
        default_collator_(uses_default_collator(*options_)),
        start_(std::move(start)),
        next_(start_.first_batch),
        end_(batches_->size()) {}

  std::optional<Ticket> take() override {
    while (start_.done.contains(next_)) ++next_;
    if (next_ >= end_) return std::nullopt;
    Ticket ticket;
    ticket.number = next_++;
    if (plan_.is_shared())
      ticket.step_rows = std::min(plan_.step_rows(), rows_ - ticket.number * plan_.step_rows());
    return ticket;
  }

  Batch make(Ticket ticket) const override {
    const ContextScope scope({options_->seed, start_.epoch, plan_.global_number(ticket.number)});
    std::vector<int64_t> indices;
    batches_->read(ticket.number, indices);
    const auto& dataset = *options_->dataset.map_style();
    std::vector<Example> rows;
    try {
      if (default_collator_) {
        if (auto batch = dataset.get_batch(indices)) return staged(*options_, std::move(*batch));
      }
      rows = dataset.get_many(indices);
    } catch (...) {
      blame_row(dataset, indices, ticket.number);
    }
    return collate_rows(*options_, std::move(rows), ticket.number);
  }

  nlohmann::json state() const override { return batches_->state(); }

 private:
  /// Finds the row that cannot be read by asking for each alone, and rethrows with its index.
  [[noreturn]] static void blame_row(const Dataset& dataset, const std::vector<int64_t>& indices,
                                     int64_t number) {
    for (const int64_t index : indices) {
      try {
        dataset.get(index);
      } catch (...) {
        rethrow_with_place(fmt::format("row {} of the data set (batch {})", index, number));
      }
    }
    rethrow_with_place(
        fmt::format("rows {} of the data set (batch {})", fmt::join(indices, ", "), number));
  }

  std::shared_ptr<const DataLoaderOptions> options_;
  BatchPlan plan_;
  int64_t rows_;
  std::shared_ptr<const BatchOrder> batches_;
  bool default_collator_;
  PassStart start_;
  int64_t next_;
  int64_t end_;
};

class SourceMaker final : public BatchMaker {
 public:
  SourceMaker(std::shared_ptr<BatchSource> source, PassStart start)
      : source_(std::move(source)), start_(std::move(start)) {
    source_->reset(start_.epoch);
    if (start_.state.is_null()) {
      while (next_ < start_.first_batch && source_->next()) ++next_;
    } else {
      source_->load_state(start_.state.at("source"));
      next_ = start_.first_batch;
    }
  }

  std::optional<Ticket> take() override {
    const ContextScope scope({0, start_.epoch, next_});
    auto batch = source_->next();
    if (!batch) return std::nullopt;
    return Ticket{.number = next_++, .rows = {}, .batch = std::move(batch), .step_rows = {}};
  }

  Batch make(Ticket ticket) const override { return std::move(*ticket.batch); }

  nlohmann::json state() const override {
    auto state = source_->save_state();
    return state.is_null() ? state : nlohmann::json{{"source", std::move(state)}};
  }

 private:
  std::shared_ptr<BatchSource> source_;
  PassStart start_;
  int64_t next_ = 0;
};

}  // namespace

Batch collate_rows(const DataLoaderOptions& options, std::vector<Example> rows,
                   int64_t number) try {
  return staged(options, options.collator ? options.collator(std::move(rows))
                                          : default_data_collator(std::move(rows)));
} catch (...) {
  rethrow_with_place(fmt::format("batch {}", number));
}

std::unique_ptr<BatchMaker> make_map_maker(std::shared_ptr<const DataLoaderOptions> options,
                                           PassStart start) {
  return std::make_unique<MapMaker>(std::move(options), std::move(start));
}

std::unique_ptr<BatchMaker> make_source_maker(std::shared_ptr<BatchSource> source,
                                              PassStart start) {
  return std::make_unique<SourceMaker>(std::move(source), std::move(start));
}

}  // namespace data
}  // namespace gradus
