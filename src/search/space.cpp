#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/search/space.h>

#include <set>

namespace gradus::search {
namespace {

using nlohmann::json;

constexpr const char* kSpaceAdvice =
    "Write {low: 1, high: 5}, with log: true or step: 2, or a list of choices.";

[[noreturn]] void refuse_space(const std::string& name, const std::string& what) {
  throw Error("G-SEARCH-1", ErrorKind::usage,
              fmt::format("the parameter '{}' of the space {}", name, what), kSpaceAdvice);
}

Distribution parse_range(const std::string& name, const json& given) {
  static const std::set<std::string> kKeys = {"low", "high", "log", "step", "type"};
  for (const auto& [key, value] : given.items())
    if (!kKeys.contains(key)) refuse_space(name, "has an unknown key '" + key + "'");
  for (const char* key : {"low", "high"})
    if (!given.contains(key) || !given[key].is_number())
      refuse_space(name, fmt::format("needs a number for '{}'", key));
  const auto log = given.value("log", json(false));
  if (!log.is_boolean()) refuse_space(name, "needs true or false for 'log'");
  const auto step = given.value("step", json());
  if (!step.is_null() && !step.is_number()) refuse_space(name, "needs a number for 'step'");
  const auto type = given.value("type", json(""));
  const bool whole = given["low"].is_number_integer() && given["high"].is_number_integer() &&
                     (step.is_null() || step.is_number_integer());
  if (type != "" && type != "int" && type != "float")
    refuse_space(name, "has a type that is neither int nor float");
  if (type == "int" && !whole) refuse_space(name, "is an int and has bounds that are not");
  for (const char* key : {"low", "high", "step"})
    if (const auto found = given.find(key); whole && found != given.end() &&
                                            found->is_number_unsigned() &&
                                            found->get<uint64_t>() > uint64_t(INT64_MAX))
      refuse_space(name, fmt::format("has the {} {}, which is more than {}", key, dump_json(*found),
                                     INT64_MAX));
  if (whole && type != "float")
    return Distribution::integer(given["low"], given["high"], log.get<bool>(),
                                 step.is_null() ? 1 : step.get<int64_t>());
  return Distribution::real(given["low"], given["high"], log.get<bool>(),
                            step.is_null() ? std::nullopt : std::optional(step.get<double>()));
}

}  // namespace

std::map<std::string, Distribution> parse_space(const json& space) {
  if (!space.is_object() || space.empty())
    throw Error("G-SEARCH-1", ErrorKind::usage,
                "a space needs at least one parameter, received " + dump_json(space), kSpaceAdvice);
  std::map<std::string, Distribution> parsed;
  for (const auto& [name, given] : space.items()) {
    try {
      if (given.is_array())
        parsed.emplace(name, Distribution::categorical(given.get<std::vector<json>>()));
      else if (!given.is_object())
        parsed.emplace(name, Distribution::categorical({given}));
      else if (given.contains("choices") && given.size() == 1 && given["choices"].is_array())
        parsed.emplace(name, Distribution::categorical(given["choices"].get<std::vector<json>>()));
      else
        parsed.emplace(name, parse_range(name, given));
    } catch (const Error& error) {
      if (error.message().find("'" + name + "'") != std::string::npos) throw;
      refuse_space(name, "is wrong: " + error.message());
    }
  }
  return parsed;
}

GridSampler::Grid grid_of(const std::map<std::string, Distribution>& space) {
  constexpr double kMostValues = 1e6;  // as many as a grid may have combinations
  GridSampler::Grid grid;
  for (const auto& [name, distribution] : space) {
    const auto step = distribution.step();
    if (step && !distribution.log() &&
        (distribution.high() - distribution.low()) / *step >= kMostValues)
      throw Error("G-SEARCH-1", ErrorKind::usage,
                  fmt::format("the parameter '{}' has more than {:.0f} values, too many for a grid",
                              name, kMostValues),
                  "Give it a larger step, or use the random or the TPE sampler.");
    const auto values = distribution.all_values();
    if (!values)
      throw Error(
          "G-SEARCH-1", ErrorKind::usage,
          fmt::format("the parameter '{}' has endlessly many values, which is no grid", name),
          "Give it a step or a list of choices, or use the random or the TPE sampler.");
    grid[name] = *values;
  }
  return grid;
}

}  // namespace gradus::search
