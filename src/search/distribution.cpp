#include "core/parsed_json.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/search/distribution.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace gradus::search {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_distribution(const std::string& what, const std::string& advice = {}) {
  throw Error("G-SEARCH-1", ErrorKind::usage, "a parameter of a search " + what, advice);
}

void check_bounds(double low, double high, bool log) {
  if (!std::isfinite(low) || !std::isfinite(high) || low > high)
    refuse_distribution(fmt::format("needs low <= high, received low={} and high={}", low, high));
  if (log && low <= 0)
    refuse_distribution(fmt::format("with log needs low > 0, received low={}", low));
}

// The last of low, low + step, ... that is not above high. Decimal fractions are not exact in
// binary, so that 0.3 counts as three steps of 0.1.
double last_step(double low, double high, double step) {
  const double steps = (high - low) / step;
  const double whole = std::round(steps);
  if (std::abs(steps - whole) < 1e-9 * std::max(1.0, whole)) return high;
  return low + std::floor(steps) * step;
}

}  // namespace

Distribution Distribution::real(double low, double high, bool log, std::optional<double> step) {
  check_bounds(low, high, log);
  if (log && step) refuse_distribution("cannot have both log and step", "Leave one of them out.");
  if (step && !(*step > 0))
    refuse_distribution(fmt::format("needs step > 0, received step={}", *step));
  Distribution made;
  made.kind_ = Kind::real;
  made.low_ = low;
  made.high_ = step ? last_step(low, high, *step) : high;
  made.log_ = log;
  made.step_ = step;
  return made;
}

Distribution Distribution::integer(int64_t low, int64_t high, bool log, int64_t step) {
  check_bounds(double(low), double(high), log);
  if (log && step != 1)
    refuse_distribution("cannot have both log and step", "Leave one of them out.");
  if (step < 1) refuse_distribution(fmt::format("needs step > 0, received step={}", step));
  Distribution made;
  made.kind_ = Kind::integer;
  made.low_ = double(low);
  // Of unsigned numbers, because the range may be longer than the largest int64_t.
  const auto steps = (uint64_t(high) - uint64_t(low)) / uint64_t(step);
  made.high_ = double(int64_t(uint64_t(low) + steps * uint64_t(step)));
  made.log_ = log;
  made.step_ = double(step);
  return made;
}

Distribution Distribution::categorical(std::vector<json> choices) {
  if (choices.empty()) refuse_distribution("has an empty list of choices");
  for (const auto& choice : choices)
    if (choice.is_structured())
      refuse_distribution("may choose between numbers, texts, booleans and null, received " +
                          dump_json(choice));
  Distribution made;
  made.kind_ = Kind::categorical;
  made.low_ = 0;
  made.high_ = double(choices.size()) - 1;
  made.choices_ = std::move(choices);
  return made;
}

std::string Distribution::to_json() const {
  json attributes;
  if (kind_ == Kind::real)
    attributes = {
        {"step", step_ ? json(*step_) : json()}, {"low", low_}, {"high", high_}, {"log", log_}};
  else if (kind_ == Kind::integer)
    attributes = {
        {"log", log_}, {"step", int64_t(*step_)}, {"low", int64_t(low_)}, {"high", int64_t(high_)}};
  else
    attributes = {{"choices", choices_}};
  static const char* const kNames[] = {"FloatDistribution", "IntDistribution",
                                       "CategoricalDistribution"};
  return dump_json(json{{"name", kNames[size_t(kind_)]}, {"attributes", attributes}});
}

Distribution Distribution::from_json(const std::string& text) {
  const auto document = json_or_discarded(text);
  try {
    const auto name = document.at("name").get<std::string>();
    const auto& with = document.at("attributes");
    if (name == "CategoricalDistribution")
      return categorical(with.at("choices").get<std::vector<json>>());
    if (name == "IntDistribution")
      return integer(with.at("low"), with.at("high"), with.value("log", false),
                     with.value("step", int64_t(1)));
    if (name == "FloatDistribution") {
      const auto step = with.value("step", json());
      return real(with.at("low"), with.at("high"), with.value("log", false),
                  step.is_null() ? std::nullopt : std::optional(step.get<double>()));
    }
  } catch (const json::exception&) {
  }
  throw Error("G-SEARCH-2", ErrorKind::data,
              "the study holds a parameter that cannot be read: " + text.substr(0, 200),
              "It was written by an old version of Optuna, or the file is damaged. `optuna storage "
              "upgrade` helps with the first.");
}

bool Distribution::is_single() const {
  if (kind_ == Kind::categorical) return choices_.size() == 1;
  return low_ == high_ || (step_ && !log_ && high_ - low_ < *step_);
}

bool Distribution::contains(double number) const {
  if (number < low_ || number > high_) return false;
  if (kind_ == Kind::real && !step_) return true;
  const double steps = (number - low_) / step_.value_or(1);
  return std::abs(steps - std::round(steps)) < 1e-8;
}

json Distribution::value_of(double number) const {
  // A file may hold anything. Whole numbers may lie outside of bounds that were changed since.
  const double least = kind_ == Kind::integer ? -0x1p63 : low_;
  const double most = kind_ == Kind::integer ? std::nextafter(0x1p63, 0) : high_;
  if (kind_ != Kind::real && !(number >= least && number <= most))
    throw Error("G-SEARCH-2", ErrorKind::data,
                fmt::format("a trial of the study has the parameter {}, expected {} to {}", number,
                            least, most),
                "The file is damaged, or was changed by another program.");
  if (kind_ == Kind::categorical) return choices_[size_t(number)];
  if (kind_ == Kind::integer) return int64_t(number);
  return number;
}

double Distribution::number_of(const json& value) const {
  if (kind_ == Kind::categorical) {
    const auto found = std::find(choices_.begin(), choices_.end(), value);
    if (found == choices_.end())
      refuse_distribution(fmt::format("has the value {}, which is not one of {}", dump_json(value),
                                      dump_json(json(choices_))));
    return double(found - choices_.begin());
  }
  if (!value.is_number()) refuse_distribution("needs a number, received " + dump_json(value));
  return value.get<double>();
}

std::optional<std::vector<json>> Distribution::all_values() const {
  if (kind_ == Kind::categorical) return choices_;
  if (log_ || !step_) return std::nullopt;
  std::vector<json> all;
  const auto count = int64_t(std::round((high_ - low_) / *step_)) + 1;
  for (int64_t i = 0; i < count; ++i)  // three steps of 0.1 are a little more than 0.3
    all.push_back(value_of(i + 1 == count ? high_ : low_ + double(i) * *step_));
  return all;
}

}  // namespace gradus::search
