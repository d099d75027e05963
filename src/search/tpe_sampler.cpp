#include <gradus/core/json.h>
#include <gradus/search/sampler.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/parsed_json.h"
#include "search/parzen_estimator.h"

namespace gradus::search {
namespace {

using nlohmann::json;
using Trials = std::vector<const FrozenTrial*>;

constexpr const char* kRelativeParams = "tpe:relative_params:";

// The numbers of a trial. One that runs has noted what it is going to use.
std::map<std::string, double> numbers_of(const FrozenTrial& trial,
                                         const std::map<std::string, Distribution>& space) {
  auto numbers = trial.numbers;
  if (trial.is_finished()) return numbers;
  std::string text;
  for (int i = 0;; ++i) {
    const auto part = trial.system_attrs.find(kRelativeParams + std::to_string(i));
    if (part == trial.system_attrs.end() || !part->is_string()) break;
    text += part->get_ref<const std::string&>();
  }
  const auto noted = json_or_discarded(text);
  if (!noted.is_object()) return numbers;
  for (const auto& [name, value] : noted.items())
    if (const auto known = space.find(name); known != space.end() && !numbers.contains(name))
      numbers[name] = known->second.number_of(value);
  return numbers;
}

// Best first. Pruned ones that got further are better than those that did not.
void sort_best_first(Trials& complete, Trials& pruned, Direction direction) {
  const double sign = direction == Direction::minimize ? 1 : -1;
  std::stable_sort(complete.begin(), complete.end(), [&](const auto* a, const auto* b) {
    return sign * a->value.value_or(HUGE_VAL * sign) < sign * b->value.value_or(HUGE_VAL * sign);
  });
  const auto score = [&](const FrozenTrial& trial) -> std::pair<double, double> {
    if (trial.intermediate_values.empty()) return {1, 0};
    const auto& [step, value] = *trial.intermediate_values.rbegin();
    return {-double(step), std::isnan(value) ? HUGE_VAL : sign * value};
  };
  std::stable_sort(pruned.begin(), pruned.end(),
                   [&](const auto* a, const auto* b) { return score(*a) < score(*b); });
}

struct Split {
  Trials below, above;  // the good ones and the others, in the order of their numbers
};

Split split_trials(const Trials& trials, Direction direction, size_t good) {
  Trials complete, pruned, running;
  for (const auto* trial : trials)
    (trial->state == TrialState::complete ? complete
     : trial->state == TrialState::pruned ? pruned
                                          : running)
        .push_back(trial);
  sort_best_first(complete, pruned, direction);
  Split split;
  for (const auto* group : {&complete, &pruned})
    for (const auto* trial : *group)
      (split.below.size() < good ? split.below : split.above).push_back(trial);
  split.above.insert(split.above.end(), running.begin(), running.end());
  for (auto* side : {&split.below, &split.above})
    std::sort(side->begin(), side->end(),
              [](const auto* a, const auto* b) { return a->number < b->number; });
  return split;
}

std::vector<ParzenEstimator::Point> points_of(const Trials& trials,
                                              const std::map<std::string, Distribution>& space) {
  std::vector<ParzenEstimator::Point> points;
  for (const auto* trial : trials) {
    const auto numbers = numbers_of(*trial, space);
    ParzenEstimator::Point point;
    for (const auto& [name, distribution] : space)
      if (const auto number = numbers.find(name); number != numbers.end())
        point.push_back(number->second);
    if (point.size() == space.size()) points.push_back(std::move(point));
  }
  return points;
}

int64_t count_results(const StudyView& study) {
  return std::count_if(study.trials.begin(), study.trials.end(), [](const auto& trial) {
    return trial.state == TrialState::complete || trial.state == TrialState::pruned;
  });
}

// What all trials with a result have in common, without what has only one value.
std::map<std::string, Distribution> common_space(const StudyView& study) {
  std::optional<std::map<std::string, Distribution>> space;
  for (const auto& trial : study.trials) {
    if (trial.state != TrialState::complete && trial.state != TrialState::pruned) continue;
    if (!space) {
      space = trial.distributions;
      continue;
    }
    std::erase_if(*space, [&](const auto& each) {
      const auto found = trial.distributions.find(each.first);
      return found == trial.distributions.end() || !(found->second == each.second);
    });
  }
  if (!space) return {};
  std::erase_if(*space, [](const auto& each) { return each.second.is_single(); });
  return *space;
}

uint64_t seed_or_random(const std::optional<uint64_t>& seed) {
  return seed ? *seed : std::random_device()();
}

}  // namespace

TPESampler::TPESampler(TPEOptions options)
    : options_(options), random_(seed_or_random(options.seed)), startup_(random_.seed()) {}

std::map<std::string, double> TPESampler::sample_together(const StudyView& study,
                                                          const FrozenTrial& trial) {
  if (!options_.multivariate || count_results(study) < options_.n_startup_trials) return {};
  const auto space = common_space(study);
  return space.empty() ? std::map<std::string, double>() : sample(study, trial, space);
}

double TPESampler::sample_one(const StudyView& study, const FrozenTrial& trial,
                              const std::string& name, const Distribution& distribution) {
  if (count_results(study) >= options_.n_startup_trials)
    return sample(study, trial, {{name, distribution}}).at(name);
  return startup_.sample_one(study, trial, name, distribution);
}

std::map<std::string, double> TPESampler::sample(const StudyView& study, const FrozenTrial& trial,
                                                 const std::map<std::string, Distribution>& space) {
  Trials trials;
  for (const auto& each : study.trials)
    if (each.number != trial.number &&
        (each.state == TrialState::complete || each.state == TrialState::pruned ||
         (options_.constant_liar && each.state == TrialState::running)))
      trials.push_back(&each);
  constexpr double kShare = 0.1, kMost = 25;
  const auto results = double(count_results(study));
  const auto good = size_t(std::min(std::ceil(kShare * results), kMost));
  const auto split = split_trials(trials, study.direction, good);
  const ParzenEstimator below(space, points_of(split.below, space));
  const ParzenEstimator above(space, points_of(split.above, space));
  const auto candidates = below.sample(random_, options_.n_ei_candidates);
  size_t best = 0;
  double most = -HUGE_VAL;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (const double gain = below.log_density(candidates[i]) - above.log_density(candidates[i]);
        gain > most) {
      most = gain;
      best = i;
    }
  std::map<std::string, double> numbers;
  size_t at = 0;
  for (const auto& [name, distribution] : space) numbers[name] = candidates[best][at++];
  return numbers;
}

json TPESampler::state() const {
  return {{"name", name()},
          {"seed", random_.seed()},
          {"drawn", random_.drawn()},
          {"drawn_at_random", startup_.state().at("drawn")}};
}

void TPESampler::load(const json& state) {
  if (!state.is_object() || state.value("name", "") != name()) return;
  random_.go_to(state.at("seed"), state.at("drawn"));
  startup_.load(
      {{"name", "random"}, {"seed", state.at("seed")}, {"drawn", state.at("drawn_at_random")}});
}

}  // namespace gradus::search
