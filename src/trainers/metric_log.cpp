#include "trainers/metric_log.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>

namespace gradus {

using torch::Tensor;

void MetricBatch::add(std::string name, Kind kind, const Tensor& value, const Tensor& count) {
  const auto number = value.detach().to(torch::kDouble);
  entries_.push_back(
      {std::move(name), kind, number,
       count.defined() ? count.detach().to(number.options()) : torch::ones({}, number.options())});
}

void MetricBatch::mean(std::string name, const Tensor& sum, const Tensor& count) {
  add(std::move(name), Kind::mean, sum, count);
}

void MetricBatch::mean_if_any(std::string name, const Tensor& sum, const Tensor& count) {
  add(std::move(name), Kind::mean_if_any, sum, count);
}

void MetricBatch::mean(std::string name, const Tensor& values) {
  add(std::move(name), Kind::mean, values.detach().to(torch::kFloat).mean(), {});
}

void MetricBatch::least(std::string name, const Tensor& value) {
  add(std::move(name), Kind::least, value, {});
}

void MetricBatch::greatest(std::string name, const Tensor& value) {
  add(std::move(name), Kind::greatest, value, {});
}

size_t MetricBatch::place_of(const std::string& name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  TORCH_INTERNAL_ASSERT(found != entries_.end(), "no metric ", name);
  return size_t(found - entries_.begin());
}

void MetricBatch::difference(std::string name, const std::string& of, const std::string& minus) {
  const auto first = place_of(of), second = place_of(minus);
  const auto nothing = torch::zeros({}, entries_[first].value.options());
  entries_.push_back({std::move(name), Kind::difference, nothing, nothing, first, second});
}

void MetricBatch::tokens(const Tensor& count) { tokens_ = count.detach().to(torch::kDouble); }

void MetricLog::note(const MetricBatch& batch, bool training) {
  const torch::NoGradGuard no_grad;
  const auto& entries = batch.entries_;
  std::vector<Tensor> flat;
  for (const auto& entry : entries) {
    flat.push_back(entry.value);
    flat.push_back(entry.count);
  }
  const bool has_tokens = batch.tokens_.defined();
  if (has_tokens) flat.push_back(batch.tokens_);
  if (flat.empty()) return;
  const auto own = at::stack(flat);
  // One row for each process.
  const auto all = group_ ? at::stack(group_->gather(own)) : own.unsqueeze(0);
  const auto sums = all.sum(0), least = all.amin(0), greatest = all.amax(0);
  if (has_tokens) {
    counts_tokens_ = true;
    const auto tokens = sums[int64_t(flat.size()) - 1];
    if (training) tokens_ = tokens_.defined() ? tokens_.to(tokens.device()) + tokens : tokens;
  }

  std::vector<std::string> names;
  std::vector<Tensor> values, counts;
  for (size_t i = 0; i < entries.size(); ++i) {
    using Kind = MetricBatch::Kind;
    const auto place = int64_t(2 * i);
    const auto one = torch::ones({}, sums.options());
    const auto& entry = entries[i];
    names.push_back(entry.name);
    if (entry.kind == Kind::difference) {
      const auto both = counts[entry.first] * counts[entry.second];
      values.push_back((values[entry.first] - values[entry.second]) * both);
      counts.push_back(both);
    } else if (entry.kind == Kind::least || entry.kind == Kind::greatest) {
      values.push_back((entry.kind == Kind::least ? least : greatest)[place]);
      counts.push_back(one);
    } else {
      const auto count = sums[place + 1], any = count.gt(0);
      values.push_back(at::where(any, sums[place] / count.clamp_min(1e-300), one * 0));
      counts.push_back(entry.kind == Kind::mean ? one : any.to(torch::kDouble));
    }
  }
  auto& means = means_[size_t(training)];
  if (names.empty()) return;
  const auto added = at::stack({at::stack(values), at::stack(counts)}, 1);
  if (means.names != names) {
    // Metrics that only some batches have.
    auto joined = means.names;
    for (const auto& name : names)
      if (std::ranges::find(joined, name) == joined.end()) joined.push_back(name);
    auto wider = torch::zeros({int64_t(joined.size()), 2}, added.options());
    if (means.sums.defined()) wider.narrow(0, 0, means.sums.size(0)).copy_(means.sums);
    means.names = std::move(joined);
    means.sums = wider;
  }
  if (means.names == names) {
    means.sums = means.sums.to(added.device()) + added;
    return;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const auto place = std::ranges::find(means.names, names[i]) - means.names.begin();
    means.sums[int64_t(place)] += added[int64_t(i)];
  }
}

void MetricLog::write(Logs& logs, bool training) {
  const std::string prefix = training ? "" : "eval_";
  auto& means = means_[size_t(training)];
  if (means.names.empty()) return;
  const auto sums = means.sums.cpu();
  for (size_t i = 0; i < means.names.size(); ++i) {
    const auto count = sums[int64_t(i)][1].item<double>();
    if (count > 0) logs[prefix + means.names[i]] = sums[int64_t(i)][0].item<double>() / count;
  }
  if (counts_tokens_)
    logs[prefix + "num_tokens"] = tokens_.defined() ? tokens_.item<double>() : 0.0;
  means = {};
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
  const auto& means = means_[1];
  const auto sums = means.sums.defined() ? means.sums.cpu() : Tensor();
  for (size_t i = 0; i < means.names.size(); ++i)
    state["means"].push_back(
        {means.names[i], sums[int64_t(i)][0].item<double>(), sums[int64_t(i)][1].item<double>()});
  return state;
}

void MetricLog::load_state_dict(const nlohmann::json& state) {
  Means means;
  std::vector<double> sums;
  for (const auto& each : state.at("means")) {
    means.names.push_back(each.at(0));
    // JSON has no NaN: it was written as null.
    sums.push_back(each.at(1).is_null() ? std::nan("") : each.at(1).get<double>());
    sums.push_back(each.at(2));
  }
  if (!sums.empty()) means.sums = torch::tensor(sums, torch::kDouble).reshape({-1, 2});
  means_[1] = std::move(means);
  tokens_ = torch::full({}, state.at("tokens").get<double>(), torch::kDouble);
  restored_ = true;
}

}  // namespace gradus
