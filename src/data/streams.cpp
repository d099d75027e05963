#include <gradus/core/error.h>
#include <gradus/data/streams.h>

#include "data/batch_plan.h"
#include "data/random_order.h"
#include "data/required.h"

#include <nlohmann/json.hpp>

#include <numeric>

namespace gradus {
namespace {

using Source = std::shared_ptr<IterableDataset>;

/// A stream whose place is that of its source.
class SourceView : public IterableDataset {
 public:
  explicit SourceView(Source source)
      : source_(data::required(std::move(source), "a view of a stream")) {}
  void reset(int64_t epoch) override { source_->reset(epoch); }
  nlohmann::json save_state() const override { return source_->save_state(); }
  void load_state(const nlohmann::json& state) override { source_->load_state(state); }
  bool shard(int64_t rank, int64_t world) override { return source_->shard(rank, world); }

 protected:
  Source source_;
};

class MappedStream final : public SourceView {
 public:
  MappedStream(Source source, std::function<Example(const Example&)> function)
      : SourceView(std::move(source)), function_(std::move(function)) {}
  std::optional<Example> next() override {
    auto row = source_->next();
    if (!row) return row;
    return function_(*row);
  }
  std::optional<int64_t> size() const override { return source_->size(); }

 private:
  std::function<Example(const Example&)> function_;
};

class FilteredStream final : public SourceView {
 public:
  FilteredStream(Source source, std::function<bool(const Example&)> keep)
      : SourceView(std::move(source)), keep_(std::move(keep)) {}
  std::optional<Example> next() override {
    auto row = source_->next();
    while (row && !keep_(*row)) row = source_->next();
    return row;
  }
  std::vector<std::string> column_names() const override { return source_->column_names(); }

 private:
  std::function<bool(const Example&)> keep_;
};

class CutStream final : public SourceView {
 public:
  CutStream(Source source, int64_t count, int64_t skip)
      : SourceView(std::move(source)), count_(count), skip_(skip) {}
  std::optional<Example> next() override {
    for (; skipped_ < skip_; ++skipped_) {
      if (!source_->next()) return std::nullopt;
    }
    if (given_ >= count_) return std::nullopt;
    auto row = source_->next();
    if (row) ++given_;
    return row;
  }
  void reset(int64_t epoch) override {
    source_->reset(epoch);
    given_ = skipped_ = 0;
  }
  nlohmann::json save_state() const override {
    auto state = source_->save_state();
    return state.is_null()
               ? state
               : nlohmann::json{
                     {"source", std::move(state)}, {"given", given_}, {"skipped", skipped_}};
  }
  void load_state(const nlohmann::json& state) override {
    source_->load_state(state.at("source"));
    given_ = state.at("given").get<int64_t>();
    skipped_ = state.at("skipped").get<int64_t>();
  }
  bool shard(int64_t, int64_t) override {
    return false;
  }  // the count is that of all processes together
  std::optional<int64_t> size() const override {
    const auto rows = source_->size();
    if (!rows) return std::nullopt;
    return std::clamp<int64_t>(*rows - skip_, 0, std::max<int64_t>(count_, 0));
  }
  std::vector<std::string> column_names() const override { return source_->column_names(); }

 private:
  int64_t count_;
  int64_t skip_;
  int64_t given_ = 0;
  int64_t skipped_ = 0;
};

class ShuffledStream final : public SourceView {
 public:
  ShuffledStream(Source source, int64_t size, int64_t seed)
      : SourceView(std::move(source)), size_(size), seed_(seed) {}

  std::optional<Example> next() override {
    if (place_ == buffer_.size() && !fill()) return std::nullopt;
    return std::move(buffer_[place_++]);
  }

  void reset(int64_t epoch) override {
    source_->reset(epoch);
    epoch_ = epoch;
    number_ = -1;
    place_ = 0;
    buffer_.clear();
    before_ = nullptr;
  }

  nlohmann::json save_state() const override {
    if (place_ == buffer_.size()) {  // the next buffer begins where the source stands
      auto state = source_->save_state();
      return state.is_null() ? state
                             : nlohmann::json{{"source", std::move(state)},
                                              {"epoch", epoch_},
                                              {"buffer", number_},
                                              {"place", -1}};
    }
    return before_.is_null() ? before_
                             : nlohmann::json{{"source", before_},
                                              {"epoch", epoch_},
                                              {"buffer", number_ - 1},
                                              {"place", place_}};
  }

  void load_state(const nlohmann::json& state) override {
    epoch_ = state.at("epoch").get<int64_t>();
    number_ = state.at("buffer").get<int64_t>();
    source_->load_state(state.at("source"));
    buffer_.clear();
    place_ = 0;
    const auto place = state.at("place").get<int64_t>();
    if (place < 0) return;
    fill();
    place_ = static_cast<size_t>(place);
  }

  std::optional<int64_t> size() const override { return source_->size(); }

  std::vector<std::string> column_names() const override { return source_->column_names(); }

 private:
  bool fill() {
    before_ = source_->save_state();
    buffer_.clear();
    place_ = 0;
    ++number_;
    while (static_cast<int64_t>(buffer_.size()) < size_) {
      auto row = source_->next();
      if (!row) break;
      buffer_.push_back(std::move(*row));
    }
    const uint64_t mixed = (static_cast<uint64_t>(seed_ + epoch_) * 0x9E3779B97F4A7C15u) ^
                           (static_cast<uint64_t>(number_) * 0xC2B2AE3D27D4EB4Fu);
    data::TorchRandom random(mixed ^ (mixed >> 32));
    for (size_t i = 0; i + 1 < buffer_.size(); ++i)
      std::swap(buffer_[i], buffer_[i + random.next() % (buffer_.size() - i)]);
    return !buffer_.empty();
  }

  int64_t size_;
  int64_t seed_;
  int64_t epoch_ = 0;
  int64_t number_ = -1;  ///< of the buffer being given
  size_t place_ = 0;
  std::vector<Example> buffer_;
  nlohmann::json before_;  ///< the source's state at the buffer's first row
};

class DatasetStream final : public IterableDataset {
 public:
  explicit DatasetStream(std::shared_ptr<const Dataset> dataset) : dataset_(std::move(dataset)) {}
  std::optional<Example> next() override {
    if (next_ >= dataset_->size()) return std::nullopt;
    return dataset_->get(std::exchange(next_, next_ + step_));
  }
  void reset(int64_t) override { next_ = first_; }
  nlohmann::json save_state() const override { return next_; }
  void load_state(const nlohmann::json& state) override { next_ = state.get<int64_t>(); }
  bool shard(int64_t rank, int64_t world) override {
    next_ = first_ = rank;
    step_ = world;
    return true;
  }
  std::optional<int64_t> size() const override { return dataset_->size(); }
  std::vector<std::string> column_names() const override { return dataset_->column_names(); }

 private:
  std::shared_ptr<const Dataset> dataset_;
  int64_t first_ = 0;
  int64_t step_ = 1;
  int64_t next_ = 0;
};

/// Reads a whole round before it gives its own rows of it, for only a full one is certain to be
/// everyone's.
class ShardStream final : public SourceView {
 public:
  ShardStream(Source source, int64_t batch_size, int64_t rank, int64_t world, bool drop_last)
      : SourceView(std::move(source)),
        plan_(batch_size, drop_last, DataShard{.rank = rank, .world = world}),
        drop_last_(drop_last) {}

  std::optional<Example> next() override {
    if (place_ == mine_.size() && !read_round()) return std::nullopt;
    return mine_[place_++];
  }

  void reset(int64_t epoch) override {
    source_->reset(epoch);
    epoch_ = epoch;
    ended_ = false;
    rows_ = 0;
    place_ = 0;
    mine_.clear();
    before_ = nullptr;
  }

  nlohmann::json save_state() const override {
    nlohmann::json state{{"epoch", epoch_}, {"rows", rows_}, {"place", 0}, {"source", nullptr}};
    if (place_ == mine_.size()) {
      state["ended"] = ended_;
      if (!ended_) state["source"] = source_->save_state();
      return ended_ || !state["source"].is_null() ? state : nlohmann::json();
    }
    if (before_.is_null()) return nullptr;
    state["rows"] = rows_before_;
    state["place"] = place_;
    state["source"] = before_;
    return state;
  }

  void load_state(const nlohmann::json& state) override {
    reset(state.at("epoch").get<int64_t>());
    rows_ = state.at("rows").get<int64_t>();
    ended_ = state.value("ended", false);
    if (ended_) return;
    source_->load_state(state.at("source"));
    const auto place = state.at("place").get<size_t>();
    if (place > 0) {
      read_round();
      place_ = place;
    }
  }

  bool shard(int64_t, int64_t) override { return false; }
  std::vector<std::string> column_names() const override { return source_->column_names(); }
  std::optional<int64_t> size() const override {
    const auto rows = source_->size();
    if (!rows) return std::nullopt;
    const auto extra = drop_last_ ? 0 : plan_.step_rows() - 1;
    const auto [begin, end] = plan_.part(plan_.step_rows());
    return (*rows + extra) / plan_.step_rows() * (end - begin);
  }

 private:
  bool read_round() {
    mine_.clear();
    place_ = 0;
    if (ended_) return false;
    before_ = source_->save_state();
    rows_before_ = rows_;
    std::vector<Example> round;
    while (static_cast<int64_t>(round.size()) < plan_.step_rows()) {
      auto row = source_->next();
      if (!row) break;
      round.push_back(std::move(*row));
    }
    rows_ += static_cast<int64_t>(round.size());
    if (static_cast<int64_t>(round.size()) < plan_.step_rows()) {
      ended_ = true;
      if (round.empty() || drop_last_) return false;
      fill_up(round);
    }
    const auto [begin, end] = plan_.part(plan_.step_rows());
    mine_.assign(round.begin() + begin, round.begin() + end);
    return true;
  }

  void fill_up(std::vector<Example>& round) {
    const auto first_rows = static_cast<size_t>(std::min(plan_.step_rows(), rows_));
    std::vector<Example> first;
    source_->reset(epoch_);
    while (first.size() < first_rows) {
      auto row = source_->next();
      if (!row) break;
      first.push_back(std::move(*row));
    }
    for (size_t i = 0; static_cast<int64_t>(round.size()) < plan_.step_rows(); ++i)
      round.push_back(first[i % first.size()]);
  }

  data::BatchPlan plan_;
  bool drop_last_;
  int64_t epoch_ = 0;
  int64_t rows_ = 0;
  int64_t rows_before_ = 0;
  bool ended_ = false;
  size_t place_ = 0;
  std::vector<Example> mine_;
  nlohmann::json before_;
};

}  // namespace

Source map_stream(Source source, std::function<Example(const Example&)> function) {
  return std::make_shared<MappedStream>(std::move(source), std::move(function));
}

Source filter_stream(Source source, std::function<bool(const Example&)> keep) {
  return std::make_shared<FilteredStream>(std::move(source), std::move(keep));
}

Source take_stream(Source source, int64_t count, int64_t skip) {
  return std::make_shared<CutStream>(std::move(source), count, skip);
}

Source shuffle_stream(Source source, int64_t buffer_size, int64_t seed) {
  if (buffer_size < 1)
    throw Error(
        "G-DATA-8", ErrorKind::usage,
        "a stream cannot be shuffled with a buffer of " + std::to_string(buffer_size) + " rows",
        "Use at least 1; 10,000 mixes well.");
  return std::make_shared<ShuffledStream>(std::move(source), buffer_size, seed);
}

Source as_stream(std::shared_ptr<const Dataset> dataset) {
  return std::make_shared<DatasetStream>(data::required(std::move(dataset), "as_stream"));
}

Source shard_stream(Source source, int64_t batch_size, int64_t rank, int64_t world,
                    bool drop_last) {
  return std::make_shared<ShardStream>(std::move(source), batch_size, rank, world, drop_last);
}

}  // namespace gradus
