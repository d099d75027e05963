#pragma once

#include <gradus/data/data_loader.h>

#include "data/batch_plan.h"

#include <nlohmann/json.hpp>

#include <set>

namespace gradus::data {

/// The making of batches in two steps: `take` claims the next one (and reads what can only be read
/// in order), `make` does the rest. One thread at a time may call `take` and `state`; any number
/// call `make`.
class BatchMaker {
 public:
  struct Ticket {
    int64_t number = 0;                     ///< of the batch in its pass
    std::vector<Example> rows;              ///< of an iterable data set
    std::optional<Batch> batch;             ///< of a user's batch source
    std::optional<int64_t> step_rows = {};  ///< see `BatchIterator::step_rows`
  };

  virtual ~BatchMaker() = default;
  /// Nothing at the end of the pass.
  virtual std::optional<Ticket> take() = 0;
  virtual Batch make(Ticket ticket) const = 0;
  /// What is needed to go on after the last ticket taken; null when its number is enough.
  virtual nlohmann::json state() const { return nullptr; }
};

/// Where a pass begins.
struct PassStart {
  int64_t epoch = 0;
  int64_t first_batch = 0;
  nlohmann::json state;
  std::set<int64_t> done;  ///< batches after the first one that were given already
};

std::unique_ptr<BatchMaker> make_map_maker(std::shared_ptr<const DataLoaderOptions> options,
                                           PassStart start);
std::unique_ptr<BatchMaker> make_iterable_maker(std::shared_ptr<const DataLoaderOptions> options,
                                                PassStart start);
std::unique_ptr<BatchMaker> make_source_maker(std::shared_ptr<BatchSource> source, PassStart start);

/// Sets `collate_context()` while it lives.
class ContextScope {
 public:
  explicit ContextScope(CollateContext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  CollateContext before_;
};

/// The collator's batch, in page-locked memory where that is asked for and possible.
Batch collate_rows(const DataLoaderOptions& options, std::vector<Example> rows, int64_t number);

/// Throws the exception that is being handled as an `Error` that begins with `where`. Call it in a
/// catch block.
[[noreturn]] void rethrow_with_place(const std::string& where);

}  // namespace gradus::data
