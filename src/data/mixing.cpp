#include <gradus/core/error.h>
#include <gradus/data/mixing.h>

#include "data/numpy_random.h"
#include "data/required.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <numeric>

namespace gradus {
namespace {

[[noreturn]] void throw_split(int64_t rows, double test_size, const std::string& reason) {
  throw Error("G-DATA-11", ErrorKind::data,
              fmt::format("{} rows cannot be split with test_size {}: {}", rows, test_size, reason),
              "Give a share between 0 and 1 or a number of rows below that of the data set.");
}

/// Running sums of the probabilities, the last one 1, as numpy's `choice` makes them. Empty for "in
/// turn".
std::vector<double> checked_sums(size_t parts, const std::vector<double>& probabilities) {
  if (parts == 0)
    throw Error("G-DATA-12", ErrorKind::data, "no data sets to interleave", "Pass at least one.");
  if (probabilities.empty()) return {};
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  const bool negative =
      std::any_of(probabilities.begin(), probabilities.end(), [](double p) { return !(p >= 0); });
  if (probabilities.size() != parts || negative || std::abs(sum - 1) > 1e-8) {
    throw Error("G-DATA-12", ErrorKind::data,
                fmt::format("{} probabilities with sum {} for {} data sets", probabilities.size(),
                            sum, parts),
                "Give one probability of 0 or more per data set, with sum 1.");
  }
  std::vector<double> sums(probabilities.size());
  std::partial_sum(probabilities.begin(), probabilities.end(), sums.begin());
  for (auto& value : sums) value /= sums.back();
  return sums;
}

size_t draw(data::NumpyRandom& random, const std::vector<double>& sums) {
  const auto place = std::upper_bound(sums.begin(), sums.end(), random.uniform());
  return std::min(static_cast<size_t>(place - sums.begin()), sums.size() - 1);
}

bool is_over(const std::vector<bool>& exhausted, Stopping stopping) {
  const auto done = std::count(exhausted.begin(), exhausted.end(), true);
  return stopping == Stopping::first_exhausted ? done > 0
                                               : done == static_cast<ptrdiff_t>(exhausted.size());
}

std::vector<int64_t> turns(const std::vector<int64_t>& lengths, const std::vector<int64_t>& offsets,
                           Stopping stopping) {
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  const int64_t rounds = stopping == Stopping::first_exhausted ? *shortest : *longest;
  std::vector<int64_t> indices;
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t part = 0; part < lengths.size(); ++part)
      indices.push_back(offsets[part] + round % lengths[part]);
  }
  return indices;
}

std::vector<int64_t> draws(const std::vector<int64_t>& lengths, const std::vector<int64_t>& offsets,
                           const std::vector<double>& sums, const InterleaveOptions& options) {
  data::NumpyRandom random(static_cast<uint64_t>(options.seed));
  std::vector<int64_t> next(lengths.size());
  std::vector<bool> exhausted(lengths.size());
  std::vector<int64_t> indices;
  // A part that is never drawn cannot run out, so it does not keep the others from ending.
  for (size_t part = 0; part < lengths.size(); ++part)
    exhausted[part] =
        options.stopping == Stopping::all_exhausted && options.probabilities[part] == 0;
  while (!is_over(exhausted, options.stopping)) {
    const size_t part = draw(random, sums);
    indices.push_back(offsets[part] + next[part]++);
    if (next[part] == lengths[part]) {
      exhausted[part] = true;
      next[part] = 0;
    }
  }
  return indices;
}

class InterleavedStream final : public IterableDataset {
 public:
  InterleavedStream(std::vector<std::shared_ptr<IterableDataset>> parts, InterleaveOptions options)
      : parts_(std::move(parts)),
        options_(std::move(options)),
        sums_(checked_sums(parts_.size(), options_.probabilities)),
        random_(static_cast<uint64_t>(options_.seed)) {
    reset(0);
  }

  std::optional<Example> next() override {
    while (!is_over(exhausted_, options_.stopping)) {
      const size_t part = sums_.empty() ? turn_++ % parts_.size() : draw(random_, sums_);
      if (auto row = parts_[part]->next()) return row;
      exhausted_[part] = true;
      if (is_over(exhausted_, options_.stopping)) break;
      parts_[part]->reset(epoch_);
      if (auto row = parts_[part]->next()) return row;
    }
    return std::nullopt;
  }

  void reset(int64_t epoch) override {
    epoch_ = epoch;
    for (const auto& part : parts_) part->reset(epoch);
    random_ = data::NumpyRandom(static_cast<uint64_t>(options_.seed + epoch));
    turn_ = 0;
    exhausted_.assign(parts_.size(), false);
    for (size_t part = 0; part < options_.probabilities.size(); ++part) {
      exhausted_[part] =
          options_.stopping == Stopping::all_exhausted && options_.probabilities[part] == 0;
    }
  }

  nlohmann::json save_state() const override {
    auto states = nlohmann::json::array();
    for (const auto& part : parts_) {
      states.push_back(part->save_state());
      if (states.back().is_null()) return nullptr;
    }
    return {{"parts", std::move(states)},
            {"epoch", epoch_},
            {"turn", turn_},
            {"exhausted", exhausted_},
            {"random", random_.save_state()}};
  }

  void load_state(const nlohmann::json& state) override {
    epoch_ = state.at("epoch").get<int64_t>();
    turn_ = state.at("turn").get<size_t>();
    exhausted_ = state.at("exhausted").get<std::vector<bool>>();
    random_.load_state(state.at("random"));
    for (size_t part = 0; part < parts_.size(); ++part) {
      parts_[part]->reset(epoch_);
      parts_[part]->load_state(state.at("parts").at(part));
    }
  }

  std::vector<std::string> column_names() const override { return parts_.front()->column_names(); }

  /// Known when the parts take turns and know their sizes: part i of k ends in turn size * k + i.
  std::optional<int64_t> size() const override {
    if (!sums_.empty()) return std::nullopt;
    std::vector<int64_t> last_turns;
    for (size_t part = 0; part < parts_.size(); ++part) {
      const auto rows = parts_[part]->size();
      if (!rows || *rows == 0) return std::nullopt;
      last_turns.push_back(*rows * static_cast<int64_t>(parts_.size()) +
                           static_cast<int64_t>(part));
    }
    const auto [first, last] = std::minmax_element(last_turns.begin(), last_turns.end());
    return options_.stopping == Stopping::first_exhausted ? *first : *last;
  }

 private:
  std::vector<std::shared_ptr<IterableDataset>> parts_;
  InterleaveOptions options_;
  std::vector<double> sums_;
  data::NumpyRandom random_;
  size_t turn_ = 0;
  int64_t epoch_ = 0;
  std::vector<bool> exhausted_;
};

}  // namespace

std::shared_ptr<Dataset> shuffled(const std::shared_ptr<const Dataset>& dataset, int64_t seed) {
  data::required(dataset, "shuffled");
  return dataset->select(
      data::NumpyRandom(static_cast<uint64_t>(seed)).permutation(dataset->size()));
}

TrainTest train_test_split(const std::shared_ptr<const Dataset>& dataset, SplitOptions options) {
  const int64_t rows = data::required(dataset, "train_test_split")->size();
  const double size = options.test_size;
  if (!(size > 0) || (size >= 1 && size != std::floor(size)))
    throw_split(rows, size, "it is neither a share nor a number of rows");
  const auto test_rows =
      static_cast<int64_t>(size < 1 ? std::ceil(size * static_cast<double>(rows)) : size);
  if (test_rows >= rows) throw_split(rows, size, "no rows would be left for training");
  const int64_t train_rows = rows - test_rows;
  if (!options.shuffle) {
    std::vector<int64_t> all(static_cast<size_t>(rows));
    std::iota(all.begin(), all.end(), int64_t{0});
    return {dataset->select({all.begin(), all.begin() + train_rows}),
            dataset->select({all.begin() + train_rows, all.end()})};
  }
  const auto order = data::NumpyRandom(static_cast<uint64_t>(options.seed)).permutation(rows);
  return {dataset->select({order.begin() + test_rows, order.end()}),
          dataset->select({order.begin(), order.begin() + test_rows})};
}

std::shared_ptr<Dataset> interleave(std::vector<std::shared_ptr<const Dataset>> parts,
                                    InterleaveOptions options) {
  parts = data::required(std::move(parts), "interleave");
  const auto sums = checked_sums(parts.size(), options.probabilities);
  std::vector<int64_t> lengths;
  std::vector<int64_t> offsets;
  int64_t total = 0;
  for (size_t part = 0; part < parts.size(); ++part) {
    lengths.push_back(parts[part]->size());
    if (lengths.back() == 0 && (sums.empty() || options.probabilities[part] > 0)) {
      throw Error(
          "G-DATA-12", ErrorKind::data,
          fmt::format("data set {} of {} is empty and cannot be interleaved", part, parts.size()),
          "Leave it out.");
    }
    offsets.push_back(total);
    total += lengths.back();
  }
  auto indices = sums.empty() ? turns(lengths, offsets, options.stopping)
                              : draws(lengths, offsets, sums, options);
  return concatenate(std::move(parts))->select(std::move(indices));
}

std::shared_ptr<IterableDataset> interleave(std::vector<std::shared_ptr<IterableDataset>> parts,
                                            InterleaveOptions options) {
  return std::make_shared<InterleavedStream>(data::required(std::move(parts), "interleave"),
                                             std::move(options));
}

}  // namespace gradus
