#include "trainers/metric_log.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace gradus {

using torch::Tensor;

namespace {

/// After so many batches the numbers are exchanged, also without a log.
constexpr size_t kMostNoted = 256;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

}  // namespace

void MetricBatch::add(std::string name, Kind kind, const Tensor& value, const Tensor& count) {
  const auto number = value.detach().to(torch::kDouble);
  entries_.push_back({.name = std::move(name), .kind = kind});
  entries_.back().has_all = kind == Kind::least || kind == Kind::greatest;
  numbers_.push_back(number);
  numbers_.push_back(count.defined() ? count.detach().to(number.options())
                                     : torch::ones({}, number.options()));
}

void MetricBatch::mean(std::string name, const Tensor& sum, const Tensor& count) {
  add(std::move(name), Kind::mean, sum, count);
}

void MetricBatch::mean_if_any(std::string name, const Tensor& sum, const Tensor& count) {
  add(std::move(name), Kind::mean_if_any, sum, count);
}

void MetricBatch::mean_unless_nan(std::string name, const Tensor& sum, const Tensor& count) {
  add(std::move(name), Kind::mean_unless_nan, sum, count);
}

void MetricBatch::mean(std::string name, const Tensor& values) {
  add(std::move(name), Kind::mean, values.detach().to(torch::kFloat).mean(), {});
  entries_.back().has_all = true;
}

void MetricBatch::least(std::string name, const Tensor& value) {
  add(std::move(name), Kind::least, value, {});
}

void MetricBatch::greatest(std::string name, const Tensor& value) {
  add(std::move(name), Kind::greatest, value, {});
}

// What does not apply here loses against every number of the other processes.
void MetricBatch::least_unless_nan(std::string name, const Tensor& value) {
  const auto is_none = value.detach().isnan();
  add(std::move(name), Kind::least, value.detach().masked_fill(is_none, kInfinite),
      is_none.logical_not());
}

void MetricBatch::greatest_unless_nan(std::string name, const Tensor& value) {
  const auto is_none = value.detach().isnan();
  add(std::move(name), Kind::greatest, value.detach().masked_fill(is_none, -kInfinite),
      is_none.logical_not());
}

size_t MetricBatch::place_of(const std::string& name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  TORCH_INTERNAL_ASSERT(found != entries_.end(), "no metric ", name);
  return size_t(found - entries_.begin());
}

void MetricBatch::difference(std::string name, const std::string& of, const std::string& minus) {
  const auto first = place_of(of), second = place_of(minus);
  entries_.push_back({std::move(name), Kind::difference, first, second});
  numbers_.resize(numbers_.size() + 2, torch::zeros({}, numbers_[2 * first].options()));
}

void MetricBatch::tokens(const Tensor& count) { tokens_ = count.detach().to(torch::kDouble); }

void MetricLog::note(const MetricBatch& batch, bool training, int64_t processes) {
  const torch::NoGradGuard no_grad;
  auto numbers = batch.numbers_;
  const bool has_tokens = batch.tokens_.defined();
  if (has_tokens) numbers.push_back(batch.tokens_);
  if (numbers.empty()) return;
  noted_.push_back({batch.entries_, at::stack(numbers), has_tokens, training, processes});
  if (!group_ || noted_.size() >= kMostNoted) exchange();
}

void MetricLog::exchange() {
  const torch::NoGradGuard no_grad;
  const auto noted = std::exchange(noted_, {});
  if (noted.empty()) return;
  if (!group_) {
    for (const auto& each : noted) add(each, each.numbers.unsqueeze(0));
    return;
  }
  std::vector<Tensor> own;
  for (const auto& each : noted) own.push_back(each.numbers);
  const auto all = at::stack(group_->gather(at::cat(own)));
  int64_t first = 0;
  for (const auto& each : noted) {
    add(each, all.narrow(1, first, each.numbers.size(0)));
    first += each.numbers.size(0);
  }
}

void MetricLog::add(const Noted& noted, const Tensor& all) {
  const auto first =
      noted.processes > 0 ? all.narrow(0, 0, std::min(noted.processes, all.size(0))) : all;
  const auto sums = first.sum(0), sums_of_all = all.sum(0);
  const auto least = all.amin(0), greatest = all.amax(0);
  if (noted.has_tokens) {
    counts_tokens_ = true;
    const auto tokens = sums[sums.size(0) - 1];
    if (noted.training) {
      if (!tokens_.defined() || tokens_.device() != tokens.device())
        tokens_ = tokens_.defined() ? tokens_.to(tokens.device()) : torch::zeros_like(tokens);
      tokens_.add_(tokens);
    }
  }
  std::vector<std::string> names;
  std::vector<Tensor> values, counts;
  const auto one = torch::ones({}, sums.options());
  for (size_t i = 0; i < noted.entries.size(); ++i) {
    using Kind = MetricBatch::Kind;
    const auto place = int64_t(2 * i);
    const auto& entry = noted.entries[i];
    names.push_back(entry.name);
    if (entry.kind == Kind::difference) {
      const auto both = counts[entry.first] * counts[entry.second];
      values.push_back((values[entry.first] - values[entry.second]) * both);
      counts.push_back(both);
      continue;
    }
    const auto& sum = entry.has_all ? sums_of_all : sums;
    const auto count = sum[place + 1], any = count.gt(0);
    if (entry.kind == Kind::least || entry.kind == Kind::greatest) {
      const auto& found = (entry.kind == Kind::least ? least : greatest)[place];
      values.push_back(at::where(any, found, one * 0));
      counts.push_back(any.to(torch::kDouble));
      continue;
    }
    const auto mean = at::where(any, sum[place] / count.clamp_min(1e-300), one * 0);
    const bool skips_nan = entry.kind == Kind::mean_unless_nan;
    values.push_back(skips_nan ? mean.masked_fill(mean.isnan(), 0) : mean);
    counts.push_back(skips_nan                  ? mean.isnan().logical_not().to(torch::kDouble)
                     : entry.kind == Kind::mean ? one
                                                : any.to(torch::kDouble));
  }
  if (!names.empty())
    add(means_[size_t(noted.training)], names,
        at::stack({at::stack(values), at::stack(counts)}, 1));
}

void MetricLog::add(std::vector<Means>& means, const std::vector<std::string>& names,
                    const Tensor& added) {
  auto place = std::ranges::find(means, names, &Means::names);
  if (place == means.end())
    place = means.insert(means.end(), Means{names, torch::zeros_like(added)});
  if (place->sums.device() != added.device()) place->sums = place->sums.to(added.device());
  place->sums.add_(added);
}

std::vector<std::pair<std::string, std::pair<double, double>>> MetricLog::totals_of(
    const std::vector<Means>& means) {
  std::vector<std::pair<std::string, std::pair<double, double>>> totals;
  for (const auto& each : means) {
    const auto sums = each.sums.cpu();
    const auto* number = sums.const_data_ptr<double>();
    for (size_t i = 0; i < each.names.size(); ++i, number += 2) {
      const auto has_name = [&](const auto& total) { return total.first == each.names[i]; };
      auto place = std::ranges::find_if(totals, has_name);
      if (place == totals.end()) {
        totals.emplace_back(each.names[i], std::pair(0.0, 0.0));
        place = totals.end() - 1;
      }
      if (number[1] == 0) continue;
      place->second.first += number[0];
      place->second.second += number[1];
    }
  }
  return totals;
}

void MetricLog::write(Logs& logs, bool training) {
  exchange();
  const std::string prefix = training ? "" : "eval_";
  auto& means = means_[size_t(training)];
  bool has_any = false;
  for (const auto& [name, total] : totals_of(means)) {
    if (total.second == 0) continue;
    logs[prefix + name] = total.first / total.second;
    has_any = true;
  }
  if (has_any && counts_tokens_)
    logs[prefix + "num_tokens"] = tokens_.defined() ? tokens_.item<double>() : 0.0;
  const torch::NoGradGuard no_grad;
  for (auto& each : means) each.sums.zero_();
}

void MetricLog::on_train_begin(const TrainingArguments&, TrainerState& state, TrainerControl&,
                               const CallbackContext&) {
  if (std::exchange(restored_, false)) return;
  for (const auto& entry : state.log_history)
    if (entry.contains("num_tokens"))
      tokens_ = torch::full({}, entry["num_tokens"].get<double>(), torch::kDouble);
}

nlohmann::json MetricLog::state_dict() const {
  nlohmann::json state = {{"means", nlohmann::json::array()},
                          {"tokens", tokens_.defined() ? tokens_.item<double>() : 0.0}};
  // A resumed run adds in the same order.
  state["sizes"] = nlohmann::json::array();
  for (const auto& each : means_[1]) {
    const auto sums = each.sums.cpu();
    const auto* number = sums.const_data_ptr<double>();
    state["sizes"].push_back(each.names.size());
    for (size_t i = 0; i < each.names.size(); ++i)
      state["means"].push_back({each.names[i], number[2 * i], number[2 * i + 1]});
  }
  return state;
}

void MetricLog::load_state_dict(const nlohmann::json& state) {
  const auto& rows = state.at("means");
  const auto sizes = state.value("sizes", std::vector<size_t>{rows.size()});
  means_[1].clear();
  for (size_t first = 0; const auto size : sizes) {
    Means means;
    std::vector<double> sums;
    for (auto i = first; i < first + size; ++i) {
      const auto& each = rows.at(i);
      means.names.push_back(each.at(0));
      // JSON has no NaN: it was written as null.
      sums.push_back(each.at(1).is_null() ? std::nan("") : each.at(1).get<double>());
      sums.push_back(each.at(2));
    }
    first += size;
    if (sums.empty()) continue;
    means.sums = torch::tensor(sums, torch::kDouble).reshape({-1, 2});
    means_[1].push_back(std::move(means));
  }
  tokens_ = torch::full({}, state.at("tokens").get<double>(), torch::kDouble);
  restored_ = true;
}

}  // namespace gradus
