#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/search/pruner.h>

#include <algorithm>
#include <cmath>

namespace gradus::search {
namespace {

std::string rung_key(int64_t rung) { return fmt::format("completed_rung_{}", rung); }

// Between the two in the middle, as numpy's percentile; NaN where there is none.
double median_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::optional<int64_t> estimated_resource(const StudyView& study) {
  std::optional<int64_t> last;
  for (const auto& trial : study.trials)
    if (trial.state == TrialState::complete && trial.last_step())
      last = std::max(last.value_or(0), *trial.last_step());
  if (!last) return std::nullopt;
  return std::max<int64_t>(*last / 100, 1);
}

// Whether the value is among the best of those that came to the rung, itself included.
bool passes_rung(double value, std::vector<double> all, int64_t factor, Direction direction) {
  const auto best = std::max<size_t>(all.size() / size_t(factor), 1) - 1;
  std::sort(all.begin(), all.end());
  return direction == Direction::maximize ? value >= all[all.size() - 1 - best]
                                          : value <= all[best];
}

}  // namespace

MedianPruner::MedianPruner(int64_t n_startup_trials, int64_t n_warmup_steps)
    : n_startup_trials_(n_startup_trials), n_warmup_steps_(n_warmup_steps) {}

Pruner::Verdict MedianPruner::judge(const StudyView& study, const FrozenTrial& trial) {
  const auto step = trial.last_step();
  if (!step || *step < n_warmup_steps_) return {};
  int64_t complete = 0;
  std::vector<double> others;
  for (const auto& each : study.trials) {
    if (each.state != TrialState::complete) continue;
    ++complete;
    if (const auto at = each.intermediate_values.find(*step); at != each.intermediate_values.end())
      others.push_back(at->second);
  }
  if (complete == 0 || complete < n_startup_trials_) return {};
  const bool maximizes = study.direction == Direction::maximize;
  double best = std::nan("");
  for (const auto& [at, value] : trial.intermediate_values)
    if (std::isnan(best) || (maximizes ? value > best : value < best)) best = value;
  if (std::isnan(best)) return {.prune = true};
  const double median = median_of(std::move(others));
  return {.prune = maximizes ? best < median : best > median};
}

SuccessiveHalvingPruner::SuccessiveHalvingPruner(HalvingOptions options) : options_(options) {
  if (options.min_resource.value_or(1) < 1 || options.reduction_factor < 2 ||
      options.min_early_stopping_rate < 0 || options.bootstrap_count < 0)
    throw Error("G-SEARCH-1", ErrorKind::usage,
                "successive halving needs min_resource >= 1, reduction_factor >= 2, "
                "min_early_stopping_rate >= 0 and bootstrap_count >= 0");
  if (options.bootstrap_count > 0 && !options.min_resource)
    throw Error("G-SEARCH-1", ErrorKind::usage,
                "successive halving with bootstrap_count needs a min_resource");
}

Pruner::Verdict SuccessiveHalvingPruner::judge(const StudyView& study, const FrozenTrial& trial) {
  Verdict verdict;
  const auto step = trial.last_step();
  if (!step) return verdict;
  const double value = trial.intermediate_values.at(*step);
  int64_t rung = 0;
  while (trial.system_attrs.contains(rung_key(rung))) ++rung;
  if (!options_.min_resource) options_.min_resource = estimated_resource(study);
  if (!options_.min_resource) return verdict;
  while (true) {
    const double due =
        double(*options_.min_resource) * std::pow(double(options_.reduction_factor),
                                                  double(options_.min_early_stopping_rate + rung));
    if (double(*step) < due) return verdict;
    verdict.prune = true;
    if (std::isnan(value)) return verdict;
    const auto key = rung_key(rung);
    verdict.notes[key] = value;
    std::vector<double> competing = {value};
    for (const auto& each : study.trials)
      if (each.number != trial.number && each.system_attrs.contains(key))
        competing.push_back(each.system_attrs[key].get<double>());
    if (int64_t(competing.size()) <= options_.bootstrap_count) return verdict;
    if (!passes_rung(value, competing, options_.reduction_factor, study.direction)) return verdict;
    verdict.prune = false;
    ++rung;
  }
}

std::vector<std::string> pruner_names() { return {"none", "median", "halving"}; }

std::shared_ptr<Pruner> make_pruner(const std::string& name) {
  if (name == "none") return std::make_shared<NopPruner>();
  if (name == "median") return std::make_shared<MedianPruner>();
  if (name == "halving") return std::make_shared<SuccessiveHalvingPruner>();
  throw Error("G-SEARCH-3", ErrorKind::usage,
              "there is no pruner '" + name + "'; expected " + join_or(pruner_names()),
              did_you_mean(name, pruner_names()));
}

}  // namespace gradus::search
