// The random and the grid sampler, and the table of samplers.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/nearest.h>
#include <gradus/search/sampler.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace gradus::search {
namespace {

using nlohmann::json;

uint64_t chosen_seed(const std::optional<uint64_t>& seed) {
  return seed ? *seed : std::random_device()();
}

double between(CountedRandom& random, double low, double high) {
  return low + (high - low) * random.rand();
}

double draw_number(CountedRandom& random, const Distribution& of) {
  const double below_high = std::nextafter(of.high(), of.high() - 1);
  const double half = of.step().value_or(0) / 2;
  if (of.log()) {
    const double drawn =
        std::exp(between(random, std::log(of.low() - half), std::log(of.high() + half)));
    if (of.kind() == Distribution::Kind::integer)
      return std::clamp(std::nearbyint(drawn), of.low(), of.high());
    return std::clamp(drawn, of.low(), below_high);
  }
  const double drawn = between(random, of.low() - half, of.high() + half);
  if (!of.step()) return std::min(drawn, below_high);
  const double steps = (drawn - of.low()) / *of.step();
  const double whole =
      of.kind() == Distribution::Kind::integer ? std::floor(steps + 0.5) : std::nearbyint(steps);
  return std::clamp(whole * *of.step() + of.low(), of.low(), of.high());
}

}  // namespace

void CountedRandom::go_to(uint64_t seed, int64_t drawn) {
  constexpr int64_t kMostDrawn = 1'000'000'000;  // a study of a million trials draws fewer
  if (drawn > kMostDrawn)
    throw Error("G-SEARCH-2", ErrorKind::data,
                fmt::format("the study says that its sampler has drawn {} numbers, expected at "
                            "most {}",
                            drawn, kMostDrawn),
                "The file is damaged, or was changed by another program.");
  if (seed != seed_ || drawn < drawn_) *this = CountedRandom(seed);
  while (drawn_ < drawn) rand();
}

RandomSampler::RandomSampler(std::optional<uint64_t> seed) : random_(chosen_seed(seed)) {}

double RandomSampler::sample_one(const StudyView&, const FrozenTrial&, const std::string&,
                                 const Distribution& distribution) {
  if (distribution.kind() != Distribution::Kind::categorical)
    return draw_number(random_, distribution);
  // One number a category: the greatest wins.
  std::vector<double> drawn(distribution.choices().size());
  for (auto& value : drawn) value = random_.rand();
  return double(std::max_element(drawn.begin(), drawn.end()) - drawn.begin());
}

json RandomSampler::state() const {
  return {{"name", name()}, {"seed", random_.seed()}, {"drawn", random_.drawn()}};
}

void RandomSampler::load(const json& state) {
  if (state.is_object() && state.value("name", "") == name())
    random_.go_to(state.at("seed"), state.at("drawn"));
}

GridSampler::GridSampler(Grid grid, uint64_t seed) : grid_(std::move(grid)) {
  constexpr int64_t kMost = 1'000'000;
  int64_t count = 1;
  for (const auto& [name, values] : grid_) {
    if (values.empty())
      throw Error("G-SEARCH-1", ErrorKind::usage, "the grid has no value for '" + name + "'");
    count *= int64_t(values.size());
    if (count > kMost)
      throw Error("G-SEARCH-1", ErrorKind::usage,
                  fmt::format("the grid has more than {} combinations", kMost),
                  "Give fewer values, or use the random or the TPE sampler.");
  }
  order_ = NumpyRandomState(seed).permutation(count);
}

int64_t GridSampler::cell_of(const FrozenTrial& trial) const {
  const auto cell = trial.system_attrs.value("grid_id", json());
  if (!cell.is_number_integer() || cell.get<int64_t>() < 0 || cell.get<int64_t>() >= size())
    throw Error("G-SEARCH-2", ErrorKind::data,
                fmt::format("trial {} of the study has the place {} in a grid of {}", trial.number,
                            dump_json(cell).substr(0, 40), size()),
                "Name another study: this one was searched with another grid, or is damaged.");
  return cell.get<int64_t>();
}

std::vector<int64_t> GridSampler::open(const StudyView& study) const {
  std::set<int64_t> taken;
  for (const auto& trial : study.trials)
    if (const auto cell = trial.system_attrs.value("grid_id", json()); cell.is_number_integer())
      taken.insert(cell.get<int64_t>());
  std::vector<int64_t> left;
  for (int64_t cell = 0; cell < size(); ++cell)
    if (!taken.contains(cell)) left.push_back(cell);
  return left;
}

json GridSampler::before_trial(const StudyView& study, const FrozenTrial& trial) {
  if (trial.system_attrs.contains("fixed_params")) return json::object();  // no cell of the grid
  const auto left = open(study);
  const bool own = std::find(left.begin(), left.end(), trial.number) != left.end();
  const auto cell = own ? trial.number : left.empty() ? trial.number % size() : left.front();
  return {{"search_space", grid_}, {"grid_id", cell}};
}

double GridSampler::sample_one(const StudyView&, const FrozenTrial& trial, const std::string& name,
                               const Distribution& distribution) {
  const auto found = grid_.find(name);
  if (found == grid_.end())
    throw Error("G-SEARCH-1", ErrorKind::usage, "the grid has no values for '" + name + "'",
                "Name every parameter of the space in the grid.");
  auto combination = order_[size_t(cell_of(trial))];
  for (auto axis = grid_.rbegin(); axis->first != name; ++axis)
    combination /= int64_t(axis->second.size());
  return distribution.number_of(found->second[size_t(combination % int64_t(found->second.size()))]);
}

bool GridSampler::is_exhausted(const StudyView& study) const { return open(study).empty(); }

std::vector<std::string> sampler_names() { return {"tpe", "random", "grid"}; }

std::shared_ptr<Sampler> make_sampler(const std::string& name, std::optional<uint64_t> seed,
                                      const GridSampler::Grid& grid) {
  if (name == "tpe") return std::make_shared<TPESampler>(TPEOptions{.seed = seed});
  if (name == "random") return std::make_shared<RandomSampler>(seed);
  if (name == "grid") return std::make_shared<GridSampler>(grid, seed.value_or(0));
  throw Error("G-SEARCH-3", ErrorKind::usage,
              "there is no sampler '" + name + "'; expected " + join_or(sampler_names()),
              did_you_mean(name, sampler_names()));
}

}  // namespace gradus::search
