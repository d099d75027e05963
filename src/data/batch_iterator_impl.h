#pragma once

#include "data/batch_maker.h"

namespace gradus {

struct BatchIterator::Impl {
  virtual ~Impl() = default;
  virtual std::optional<Batch> next() = 0;
  virtual int64_t position() const = 0;
  virtual std::optional<int64_t> step_rows() const = 0;
  virtual nlohmann::json state() const = 0;
};

namespace data {

class WorkerPool;

/// Everything in the caller's thread.
std::unique_ptr<BatchIterator::Impl> make_direct_iterator(std::unique_ptr<BatchMaker> maker,
                                                          int64_t position);

/// `pool` makes up to `ahead` batches before they are asked for.
std::unique_ptr<BatchIterator::Impl> make_threaded_iterator(std::unique_ptr<BatchMaker> maker,
                                                            std::shared_ptr<WorkerPool> pool,
                                                            int64_t ahead, const PassStart& start,
                                                            int64_t position, bool in_order);

}  // namespace data
}  // namespace gradus
